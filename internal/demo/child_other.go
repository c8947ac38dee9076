//go:build !linux

package demo

import "syscall"

// childAttr keeps the keyboard's interrupt away from the child. Elsewhere than
// on Linux nothing ends the child of a crashed process.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func residentBytes(int) int64 { return 0 }
