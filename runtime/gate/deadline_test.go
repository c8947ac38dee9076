package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errCause = errors.New("cause")

// A lazy deadline ends as an eager one would, however it is looked at.
func TestDeadline(t *testing.T) {
	type key struct{}
	for name, tt := range map[string]struct {
		parent func(ctx context.Context) (context.Context, context.CancelFunc)
		do     func(ctx context.Context, stop func())
		err    error
		cause  error
	}{
		"not yet":      {do: func(context.Context, func()) { time.Sleep(time.Second - 1) }},
		"looked at":    {do: func(context.Context, func()) { time.Sleep(time.Second) }, err: context.DeadlineExceeded, cause: errCause},
		"waited for":   {do: func(ctx context.Context, _ func()) { <-ctx.Done() }, err: context.DeadlineExceeded, cause: errCause},
		"stopped":      {do: func(_ context.Context, stop func()) { stop() }, err: context.Canceled, cause: context.Canceled},
		"stopped late": {do: func(ctx context.Context, stop func()) { ctx.Done(); stop() }, err: context.Canceled, cause: context.Canceled},
		"the parent ends first": {
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Millisecond)
			},
			do: func(ctx context.Context, _ func()) { <-ctx.Done() }, err: context.DeadlineExceeded, cause: context.DeadlineExceeded,
		},
		"the parent is cancelled": {
			parent: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, stop := context.WithCancelCause(ctx)
				time.AfterFunc(time.Millisecond, func() { stop(errFault) })
				return ctx, func() { stop(nil) }
			},
			do: func(context.Context, func()) { time.Sleep(time.Minute) }, err: context.Canceled, cause: errFault,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
				defer cancel()
				if tt.parent != nil {
					var done context.CancelFunc
					ctx, done = tt.parent(ctx)
					defer done()
				}
				l, stop := withDeadline(ctx, time.Second, errCause)
				defer stop()
				if l.Err() != nil || l.Value(key{}) != 1 {
					t.Fatal("it begins ended, or without its parent's values")
				}
				tt.do(l, stop)
				if !errors.Is(l.Err(), tt.err) || (tt.err == nil) != (l.Err() == nil) {
					t.Fatalf("error %v; want %v", l.Err(), tt.err)
				}
				if tt.err == nil {
					return
				}
				if got := context.Cause(l); !errors.Is(got, tt.cause) {
					t.Fatalf("cause %v; want %v", got, tt.cause)
				}
				<-l.Done()
				child, off := context.WithCancel(l)
				defer off()
				if !errors.Is(child.Err(), tt.err) || l.Value(key{}) != 1 {
					t.Fatal("a child does not end with it")
				}
			})
		})
	}
}

var errFault = errors.New("fault")
