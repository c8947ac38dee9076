package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// NotifyChannel is where commits are told to other processes; see [Config.Notify].
const NotifyChannel = "moothall_work"

const (
	postgresConns = 16
	// postgresStep bounds one write: past it the server or the way to it is gone.
	postgresStep = 30 * time.Second
	// postgresTries is how often a write that met a deadlock is tried in all.
	postgresTries = 5
)

func connectPostgres(ctx context.Context, cfg Config) (*Store, error) {
	conf, err := pgx.ParseConfig(cfg.URI)
	if err != nil {
		return nil, fmt.Errorf("read the address of the PostgreSQL database: %w", err) // pgx leaves the password out
	}
	if cfg.ReadOnly {
		conf.RuntimeParams["default_transaction_read_only"] = "on"
	}
	s := &Store{cfg: cfg, name: fmt.Sprintf("PostgreSQL database %s on %s", conf.Database, conf.Host)}
	raw := stdlib.OpenDB(*conf)
	conns := cfg.MaxConns
	if conns <= 0 {
		conns = postgresConns
	}
	raw.SetMaxOpenConns(conns)
	raw.SetMaxIdleConns(conns)
	if err := raw.PingContext(ctx); err != nil {
		return nil, errors.Join(s.explain("reach", err), raw.Close())
	}
	if s.db, err = wrap(raw, "pgx"); err != nil {
		return nil, err
	}
	return s, nil
}

// again reports whether a transaction lost only to another one and may be run
// once more: nothing of it has happened.
func again(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40P01" || pg.Code == "40001")
}
