package homeserver

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock locks the file at path, making it if needed, and returns nil and no
// error if somebody else has it. The lock ends when the returned file and every
// copy of it in other processes are closed, also by a crash.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the caller's own folder
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("flock %s: %w", path, err)
}
