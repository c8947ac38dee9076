// Package storetest is the conformance suite of the store: what
// [moothall/bridge/queue] and [moothall/runtime/gate] ask of it, as tests that
// every engine must pass.
package storetest

import (
	"context"
	"errors"
	"path"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/store"
)

const (
	room  = "!hall:example.org"
	other = "!other:example.org"
	alice = "@alice:example.org"
	bob   = "@bob:example.org"
	carol = "@carol:example.org"
)

// start is the time at which the tests begin.
func start() time.Time { return time.UnixMilli(1_700_000_000_000).UTC() }

// Fresh gives the configuration of a fresh, empty database for one test.
type Fresh func(t *testing.T) store.Config

// Run runs the suite, each test on a database of its own.
func Run(t *testing.T, fresh Fresh) {
	t.Helper()
	for _, test := range []func(*testing.T, Fresh){
		laneClaimTakesTheLongestDue, laneIsHeldByOne, laneEpochsGrow, laneRenew, laneReleaseFindsTheNextRow,
		laneReleaseAll, laneNextDue, laneNoWakeUpIsLost, laneClaimsNeverCollide, lanesMayCross, laneWake,
		fencedWritesChangeNothing,
		inboxKeepsEventsOnce, inboxBadBodies, inboxHostileText, inboxManyEvents, inboxOrderAndHeadOfLine,
		inboxRoute, inboxWipeAndBacklog,
		workKeysAreUnique, workOrderAndHeadOfLine, workDoneAndDropped, workConcurrentKeys,
		outboxOrder, outboxWaitsForAnother, outboxFirstTryAndRetry, outboxEndsAndLookups, outboxCardsBegun,
		notes,
		claimOnce, claimConcurrent, pendWritesItsFollowUps, castQuorum, castReplaces, castExpiry,
		castHundredVoters, startConsumes, startOrCloseWins, startExpiry, finishAndReport, settleOnce, closeApproval,
		ledgerNotFound, ledgerLists, ledgerWithoutConversation, ledgerKeepsBytes, auditIsAppendOnly,
		faultsRollBack, panicsRollBack, transactionsCanBeLeft, reopening, cancelledCallers, readOnlyStore, writableAndStats,
	} {
		t.Run(nameOf(test), func(t *testing.T) { test(t, fresh) })
	}
}

// nameOf is the test's name, after the numbers of the promises it holds.
func nameOf(test func(*testing.T, Fresh)) string {
	name := path.Base(runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name())
	name = name[strings.LastIndex(name, ".")+1:]
	switch name {
	case "pendWritesItsFollowUps":
		return "R139 R140 " + name
	case "ledgerNotFound":
		return "R141 " + name
	case "castQuorum":
		return "R143 R144 " + name
	case "castExpiry":
		return "R147 RZ14 " + name
	case "startExpiry":
		return "R149 " + name
	case "startConsumes":
		return "R151 R120 " + name
	case "startOrCloseWins":
		return "R121 " + name
	case "ledgerLists":
		return "R152 " + name
	case "castHundredVoters":
		return "R153 " + name
	case "reopening":
		return "R156 " + name
	}
	return name
}

// open opens a store that ends with the test.
func open(t *testing.T, cfg store.Config) *store.Store {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = start
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// ok fails the test at an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// is fails the test unless err is target.
func is(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v; want %v", err, target)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %+v; want %+v", what, got, want)
	}
}

// claim takes the next lane of class c, which there must be, and gives a ctx under it.
func claim(t *testing.T, r *store.Rows, c queue.Class, now time.Time) (context.Context, queue.Lease) {
	t.Helper()
	l, found, err := r.Claim(t.Context(), c, "one", now, time.Minute)
	ok(t, err)
	if !found {
		t.Fatalf("no lane of class %s is due", c)
	}
	return queue.WithLease(t.Context(), l), l
}

func noClaim(t *testing.T, r *store.Rows, c queue.Class, now time.Time) {
	t.Helper()
	l, found, err := r.Claim(t.Context(), c, "one", now, time.Minute)
	ok(t, err)
	if found {
		t.Fatalf("lane %s %s was due", c, l.Key)
	}
}

// work gives the keys of all rows of class c that are due at now, lane by lane.
// It ends them.
func work(t *testing.T, r *store.Rows, c queue.Class, now time.Time) []queue.Work {
	t.Helper()
	var all []queue.Work
	for {
		l, found, err := r.Claim(t.Context(), c, "one", now, time.Minute)
		ok(t, err)
		if !found {
			return all
		}
		ctx := queue.WithLease(t.Context(), l)
		for {
			w, found, err := r.NextWork(ctx, now)
			ok(t, err)
			if !found {
				break
			}
			all = append(all, w)
			ok(t, r.DoneWork(ctx, w.ID, nil, nil, now))
		}
		ok(t, r.Release(ctx, l))
	}
}

func keys(rows []queue.Work) []string {
	var ks []string
	for _, w := range rows {
		ks = append(ks, w.Key)
	}
	return ks
}

func event(id, inRoom string) queue.Event {
	return queue.Event{
		ID: id, Room: inRoom, Sender: alice, Type: "m.room.message", SentAt: start().Add(-time.Second),
		Body: []byte(`{"content":{"body":"hello"}}`),
	}
}

func row(key, lane string) queue.Work {
	return queue.Work{Key: key, Class: queue.ClassThread, Lane: lane, Kind: queue.KindMessage, Ref: "$ref", Created: start()}
}
