package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// NoteOnce implements [queue.Notes].
func (r *Rows) NoteOnce(ctx context.Context, key string, now time.Time) (bool, error) {
	var fresh bool
	err := r.s.write(ctx, "note_once", func(ctx context.Context) error {
		n, err := r.s.exec(ctx, `INSERT INTO note (key, value, at) VALUES ($1, '', $2) ON CONFLICT (key) DO NOTHING`, key, toMS(now))
		fresh = n > 0
		return err
	})
	if err != nil {
		return false, err
	}
	return fresh, nil
}

// Note implements [queue.Notes].
func (r *Rows) Note(ctx context.Context, key string) (value string, err error) {
	err = r.s.read(ctx).QueryRowContext(ctx, `SELECT value FROM note WHERE key=$1`, key).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("note: %w", err)
	}
	return value, nil
}

// SetNote implements [queue.Notes].
func (r *Rows) SetNote(ctx context.Context, key, value string) error {
	return r.s.setNote(ctx, "set_note", key, value)
}

func (s *Store) setNote(ctx context.Context, step, key, value string) error {
	return s.write(ctx, step, func(ctx context.Context) error {
		_, err := s.exec(ctx, `INSERT INTO note (key, value, at) VALUES ($1, $2, $3)
			ON CONFLICT (key) DO UPDATE SET value=excluded.value, at=excluded.at`, key, clean(value), toMS(s.cfg.Now()))
		return err
	})
}
