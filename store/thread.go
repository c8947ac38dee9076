package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Latest implements [queue.Inbox].
func (r *Rows) Latest(ctx context.Context, room, root string) (string, error) {
	var event string
	err := r.s.read(ctx).QueryRowContext(ctx,
		`SELECT event_id FROM inbox WHERE room=$1 AND root=$2 AND root<>'' ORDER BY seq DESC LIMIT 1`, room, root).Scan(&event)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("newest event of a thread: %w", err)
	}
	return event, nil
}
