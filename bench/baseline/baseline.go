// Package baseline is the least that any durable intake on SQLite must do, as a
// yardstick: the same rows in the same tables under the same connection
// settings, by prepared statements in one transaction a batch, with nothing
// around it. It was written once and stays as it is, so that ratios can be
// compared over time. It has no error handling beyond returning the first error.
package baseline

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite" // the driver
)

// dsn is the product's connection string for its SQLite writer.
const dsn = "file:%s?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)" +
	"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-16384)&_time_format=sqlite"

const schema = `
CREATE TABLE lane (class TEXT NOT NULL, key TEXT NOT NULL, owner TEXT, epoch BIGINT NOT NULL DEFAULT 0,
	lease_until BIGINT NOT NULL DEFAULT 0, due BIGINT, PRIMARY KEY (class, key));
CREATE INDEX lane_due ON lane (class, due) WHERE due IS NOT NULL;
CREATE TABLE inbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL UNIQUE CHECK (event_id <> ''),
	room TEXT NOT NULL, sender TEXT NOT NULL, type TEXT NOT NULL, sent_at BIGINT NOT NULL, received_at BIGINT NOT NULL,
	not_before BIGINT NOT NULL DEFAULT 0, attempts BIGINT NOT NULL DEFAULT 0,
	state BIGINT NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), root TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT '',
	done_at BIGINT NOT NULL DEFAULT 0, body TEXT NOT NULL);
CREATE INDEX inbox_new ON inbox (room, seq) WHERE state = 0;
CREATE INDEX inbox_root ON inbox (room, root, seq) WHERE root <> '';`

// Row is one event to store.
type Row struct {
	ID, Room, Sender, Type string
	SentAt, ReceivedAt     int64
	Body                   string
}

// Inbox stores rows. It is not safe for concurrent use.
type Inbox struct {
	db          *sql.DB
	event, lane *sql.Stmt
}

// Open makes the tables in a new file at path.
func Open(ctx context.Context, path string) (*Inbox, error) {
	db, err := sql.Open("sqlite", fmt.Sprintf(dsn, path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	in := &Inbox{db: db}
	if _, err = db.ExecContext(ctx, schema); err != nil {
		return nil, err
	}
	if in.event, err = db.PrepareContext(ctx, `INSERT INTO inbox (event_id, room, sender, type, sent_at, received_at, body)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id) DO NOTHING`); err != nil {
		return nil, err
	}
	in.lane, err = db.PrepareContext(ctx, `INSERT INTO lane (class, key, due) VALUES ('room', ?, ?)
		ON CONFLICT (class, key) DO UPDATE SET due = min(coalesce(due, excluded.due), excluded.due)`)
	return in, err
}

// Accept stores a batch and wakes its rooms, in one transaction.
func (in *Inbox) Accept(ctx context.Context, rows []Row) error {
	tx, err := in.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()                                                        //nolint:errcheck // no-op after Commit
	event, lane := tx.StmtContext(ctx, in.event), tx.StmtContext(ctx, in.lane) //nolint:sqlclosecheck // they end with the transaction
	woken := map[string]bool{}
	for _, r := range rows {
		if _, err := event.ExecContext(ctx, r.ID, r.Room, r.Sender, r.Type, r.SentAt, r.ReceivedAt, r.Body); err != nil {
			return err
		}
		if !woken[r.Room] {
			woken[r.Room] = true
			if _, err := lane.ExecContext(ctx, r.Room, r.ReceivedAt); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// Close closes the file.
func (in *Inbox) Close() error { return in.db.Close() }
