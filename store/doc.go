// Package store keeps everything Moothall must not forget, in one SQLite file or
// one PostgreSQL database. It is the only code that speaks SQL; the same
// statements run on both engines.
//
// [Store.Rows] implements the ports of bridge/queue and [Store.Ledger] the
// ledger of runtime/gate. Each of their methods that writes is one transaction,
// durable when it returns nil, with the rows that follow from it inside; one
// that returns an error has changed nothing. A write is never cut short half
// way by its ctx: ctx counts until the transaction begins.
//
// A write under a lease ([queue.WithLease]) is fenced: if the lane was claimed
// by somebody else since, it ends in [queue.ErrFenced] and changes nothing.
//
// The database's clock is never asked. Times are stored as Unix milliseconds,
// UTC, with finer parts cut off. Texts of messages, arguments and output never
// appear in errors or logs of this package.
//
// A SQLite file belongs to one process at a time, held by a lock on PATH.lock;
// it has one writer and a few readers. On PostgreSQL several processes share
// the database. A [Store] is safe for concurrent use.
package store
