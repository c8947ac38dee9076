package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// writeNew makes the file at path with mode 0600 and reports whether it did;
// it never replaces one. A file that exists afterwards is complete, whatever
// stops us: it is written and synced under another name first.
func writeNew(path string, data []byte) (made bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".moothall-*") // mode 0600
	if err != nil {
		return false, fmt.Errorf("make %s: %w", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	// A link, unlike a rename, fails when somebody else made the file meanwhile.
	if err := os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return writeExclusive(path, data) // a file system without hard links
	}
	return true, syncFolder(dir)
}

// writeExclusive makes the file in place; it removes what it could not finish.
func writeExclusive(path string, data []byte) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator names the file
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("make %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(path)
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, syncFolder(filepath.Dir(path))
}

// syncFolder makes a new name in dir survive a power cut.
func syncFolder(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator names the folder
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
