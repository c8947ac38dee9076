package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"moothall/bridge/queue"
	"moothall/runtime/gate"
)

// Ledger implements [gate.Ledger].
type Ledger struct{ s *Store }

var (
	_ gate.Ledger = (*Ledger)(nil)
	_ gate.People = (*Store)(nil)
)

const defaultList = 100

// orState ends a compare-and-set that changed nothing: there is no such record,
// or it is in another state. count asks for the record $1.
func (s *Store) orState(ctx context.Context, count, id string) error {
	if err := s.mustExist(ctx, count, id); err != nil {
		if errors.Is(err, queue.ErrNotFound) {
			return gate.ErrNotFound
		}
		return err
	}
	return gate.ErrState
}

func orNotFound(what string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return gate.ErrNotFound
	}
	return fmt.Errorf("%s: %w", what, err)
}

// The follow-up rows. Their keys name the cause, so that a repeat adds nothing.

func announce(approval string) queue.Work {
	return queue.Work{Key: "announce/" + approval, Class: queue.ClassControl, Lane: approval, Kind: queue.KindAnnounce, Ref: approval}
}

// expire has a lane of its own: it must not hold back what comes before it.
func expire(approval string, at time.Time) queue.Work {
	key := "expire/" + approval
	return queue.Work{Key: key, Class: queue.ClassControl, Lane: key, Kind: queue.KindExpire, Ref: approval, NotBefore: at}
}

func show(approval string, state gate.ApprovalState) queue.Work {
	return queue.Work{
		Key: "show/" + approval + "/" + string(state), Class: queue.ClassControl, Lane: approval,
		Kind: queue.KindShow, Ref: approval,
	}
}

func settled(execution string) queue.Work {
	return queue.Work{
		Key: "report/" + execution + "/settled", Class: queue.ClassControl, Lane: execution,
		Kind: queue.KindReport, Ref: execution,
	}
}

// resume and report go to the conversation; a surface without one gets none.
func resume(approval, lane string) []queue.Work {
	if lane == "" {
		return nil
	}
	return []queue.Work{{Key: "resume/" + approval, Class: queue.ClassThread, Lane: lane, Kind: queue.KindResume, Ref: approval}}
}

func report(execution, lane string) []queue.Work {
	if lane == "" {
		return nil
	}
	return []queue.Work{{Key: "report/" + execution, Class: queue.ClassThread, Lane: lane, Kind: queue.KindReport, Ref: execution}}
}
