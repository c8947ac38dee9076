//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// fileLock is an exclusive lock that ends with the process at the latest.
type fileLock struct{ f *os.File }

// lockFile takes the lock at once or returns an [*InUseError]. The file stays
// when the lock goes: removing it would let two processes hold two files of one name.
func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // beside the operator's own path
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &fileLock{f}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &InUseError{Lock: path}
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}

func (l *fileLock) release() error {
	if l == nil {
		return nil
	}
	return ignore(l.f.Close(), os.ErrClosed)
}

func isReadOnlyFS(err error) bool { return errors.Is(err, syscall.EROFS) }
