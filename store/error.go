package store

import "fmt"

// NewerError refuses a database that a newer program has written.
type NewerError struct {
	Name     string // the file or database
	Database int    // its version
	Program  int    // the newest this program knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s is at schema version %d and this program knows only up to %d: use the newer program again", e.Name, e.Database, e.Program)
}

// OlderError refuses to read a database that must be migrated first.
type OlderError struct {
	Name     string // the file or database
	Database int    // its version, 0: empty
	Program  int    // what this program needs
}

func (e *OlderError) Error() string {
	return fmt.Sprintf("%s is at schema version %d and this program needs %d: start it once for writing so that it migrates", e.Name, e.Database, e.Program)
}

// InUseError refuses a SQLite file that another process has open for writing.
type InUseError struct {
	Lock string // the lock file
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("another process holds %s: a SQLite database belongs to one running Moothall at a time", e.Lock)
}
