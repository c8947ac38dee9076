package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"

	"go.mau.fi/util/dbutil"
)

// maxStatements bounds the statements kept ready; the program has fewer, apart
// from those whose length depends on how many rows they write.
const maxStatements = 128

// statements keeps the writes of SQLite prepared: preparing them anew would be a
// quarter of the work of storing an event. pgx does this by itself.
type statements struct {
	mu     sync.Mutex // never held while waiting for the connection: its holder needs it
	ready  map[string]*sql.Stmt
	asked  map[string]bool // once for every statement, so that it is prepared by one caller
	wanted []string
}

// prepare prepares the statements that were wanted. Only outside a transaction:
// it waits for the one writing connection.
func (st *statements) prepare(ctx context.Context, pool *sql.DB) error {
	st.mu.Lock()
	wanted := st.wanted
	st.wanted = nil
	st.mu.Unlock()
	for i, query := range wanted {
		stmt, err := pool.PrepareContext(ctx, strings.ReplaceAll(query, "$", "?")) //nolint:sqlclosecheck // kept until close
		st.mu.Lock()
		if err != nil {
			st.wanted = append(st.wanted, wanted[i:]...)
			st.mu.Unlock()
			return err
		}
		if st.ready == nil {
			st.ready = map[string]*sql.Stmt{}
		}
		st.ready[query] = stmt
		st.mu.Unlock()
	}
	return nil
}

// get gives the statement of query if it is ready, and asks for it otherwise.
func (st *statements) get(query string) *sql.Stmt {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.asked[query] && len(st.asked) < maxStatements {
		if st.asked == nil {
			st.asked = map[string]bool{}
		}
		st.asked[query] = true
		st.wanted = append(st.wanted, query)
	}
	return st.ready[query]
}

func (st *statements) close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	var errs []error
	for _, stmt := range st.ready {
		errs = append(errs, stmt.Close())
	}
	st.ready = nil
	return errors.Join(errs...)
}

// prepared gives query as a statement of the transaction in ctx, nil if it has
// to be sent as text.
func (s *Store) prepared(ctx context.Context, query string) *sql.Stmt {
	if s.postgres() {
		return nil
	}
	tx, ok := s.db.Execable(ctx).(*dbutil.LoggingTxn)
	if !ok {
		return nil
	}
	stmt := s.stmts.get(query)
	if stmt == nil {
		return nil
	}
	return tx.UnderlyingTx.StmtContext(ctx, stmt)
}

// exec runs a statement of a write and tells how many rows it changed.
func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	var res sql.Result
	var err error
	if stmt := s.prepared(ctx, query); stmt != nil { //nolint:sqlclosecheck // ends with its transaction
		res, err = stmt.ExecContext(ctx, args...)
	} else {
		res, err = s.db.Exec(ctx, query, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// one runs a query of a write that gives a row.
func (s *Store) one(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := s.prepared(ctx, query); stmt != nil { //nolint:sqlclosecheck // ends with its transaction
		return stmt.QueryRowContext(ctx, args...)
	}
	return s.db.QueryRow(ctx, query, args...)
}

// returning runs a query of a write and collects its rows.
func returning[T any](ctx context.Context, s *Store, scan func(dbutil.Scannable) (T, error), query string, args ...any) ([]T, error) {
	if stmt := s.prepared(ctx, query); stmt != nil { //nolint:sqlclosecheck // ends with its transaction
		rows, err := stmt.QueryContext(ctx, args...) //nolint:rowserrcheck // AsList does
		return dbutil.NewRowIterWithError(dbutil.Rows(rows), scan, err).AsList()
	}
	return list(ctx, s.db.Execable(ctx), scan, query, args...)
}
