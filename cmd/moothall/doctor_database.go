package main

import (
	"context"

	"moothall/cmd/moothall/config"
	"moothall/store"
)

// databaseCheck is how doctor tries the database of c: see
// doctor.checkDatabase.
func databaseCheck(c *config.Config) func(context.Context) error {
	return func(ctx context.Context) error { return store.Check(ctx, storeConfig(c)) }
}
