//go:build !unix

package store

import "errors"

type fileLock struct{}

// lockFile fails: without a lock two processes could share one file.
func lockFile(string) (*fileLock, error) {
	return nil, errors.New("a SQLite database needs file locks, which this system does not offer: use PostgreSQL")
}

func (l *fileLock) release() error { return nil }

func isReadOnlyFS(error) bool { return false }
