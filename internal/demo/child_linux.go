package demo

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttr keeps the keyboard's interrupt away from the child, and has the
// kernel kill it when the thread that started it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// residentBytes is the resident memory of a process, 0 if it is gone.
func residentBytes(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 || string(f[0]) != "VmRSS:" {
			continue
		}
		kib, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}
