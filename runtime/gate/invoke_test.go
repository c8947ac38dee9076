package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

func TestR034AValidCall(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	res := w.invoke(call("k"))
	wants(t, res, completed, "")
	equal(t, "output", string(res.Output), `{"done":true}`)
	evs := w.events(gate.EventFilter{ExecutionID: res.ExecutionID})
	equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCompleted})
	equal(t, "events of the execution", len(evs), 3)
	equal(t, "attempts", evs[2].Data["attempts"], any(1))
	for _, e := range evs[1:] {
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(e.InputHash) {
			t.Errorf("%s: input hash %q", e.Type, e.InputHash)
		}
	}
	equal(t, "input", w.inputs, []string{`{"who":"carol"}`})
}

// faces is all that an outsider can see of an answer, as bytes.
func faces(t *testing.T, r capability.Result) string {
	t.Helper()
	r.ExecutionID = ""
	env, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	face, err := json.Marshal(r.Error.Face())
	if err != nil {
		t.Fatal(err)
	}
	return string(env) + string(face)
}

// R037, R038, R164: what is unknown, unexposed or hidden looks the same, byte for
// byte, even to somebody who sends nonsense; the audit has the truth.
func TestR037R038Concealment(t *testing.T) {
	hide := rule{"hides", nil, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		if r.CapabilityID == "hall.hidden" {
			return policy.Decision{Stance: policy.StanceHide}, nil
		}
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}}
	late := says("hides late", policy.Decision{Stance: policy.StanceAllow}, policy.PhaseExecution)
	late = rule{late.Name(), late.Phases(), func(_ context.Context, r policy.Request) (policy.Decision, error) {
		if r.CapabilityID == "hall.late" {
			return policy.Decision{Stance: policy.StanceHide}, nil
		}
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}}
	nowhere := func(m *capability.Meta) { m.Expose = []capability.Surface{capability.SurfaceHTTP} }
	w := newWorld(t, gate.Config{Policies: []policy.Policy{hide, late}})
	w.rebuild(w.tool(kit{id: "hall.elsewhere", meta: nowhere}), w.tool(kit{id: "hall.hidden"}), w.tool(kit{id: "hall.late"}))
	unknown := call("unknown")
	unknown.CapabilityID = "hall.none"
	want := faces(t, w.invoke(unknown))
	for _, tt := range []struct{ id, input, reason string }{
		{"hall.none", `{"who":"carol"}`, "unknown"},
		{"hall.none", `{"bad":`, "unknown"},
		{"HALL.NONE\x01", `{"who":"carol"}`, "unknown"},
		{"hall.elsewhere", `{"who":"carol"}`, "not-exposed"},
		{"hall.elsewhere", `{"bad":1}`, "not-exposed"}, // R038
		{"hall.elsewhere", `{"bad":`, "not-exposed"},
		{"hall.hidden", `{"who":"carol"}`, "hidden"},
		{"hall.late", `{"who":"carol"}`, "hidden"},
	} {
		t.Run(tt.id+" "+tt.reason, func(t *testing.T) {
			c := call("k " + tt.id + tt.input)
			c.CapabilityID, c.Input = tt.id, json.RawMessage(tt.input)
			if got := faces(t, w.invoke(c)); got != want {
				t.Errorf("got %s; want %s", got, want)
			}
			equal(t, "reason", w.last().Data["reason"], any(tt.reason))
		})
	}
	t.Run("an unknown surface", func(t *testing.T) {
		c := call("surface")
		c.CapabilityID, c.Surface = "hall.hidden", "moon"
		if got := faces(t, w.invoke(c)); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	})
	equal(t, "runs", w.runs(), 0)
}

func TestR039InvalidInput(t *testing.T) {
	secret := "hunter2"
	for name, in := range map[string]string{
		"a wrong type":        `{"who":7}`,
		"an unknown argument": `{"who":"x","` + secret + `":"` + secret + `"}`,
		"a missing one":       `{}`,
		"not an object":       `"` + secret + `"`,
		"no JSON":             `{"who":"` + secret,
		"a repeated key":      `{"who":"` + secret + `","who":"b"}`,
		"a big integer":       `{"who":9007199254740993}`,
		"a surrogate":         `{"who":"\ud800"}`,
		"too deep":            strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{})
			c := call("k")
			c.Input = json.RawMessage(in)
			res := w.invoke(c)
			wants(t, res, failed, capability.CodeInputInvalid)
			f := res.Error.Face()
			if f.Code != capability.CodeInputInvalid || f.Retryable || len(f.Issues) == 0 || f.Issues[0].Message == "" {
				t.Errorf("face: %+v", f)
			}
			equal(t, "stage", res.Error.Stage, capability.StageInput)
			if b, _ := json.Marshal(res); strings.Contains(string(b), secret) {
				t.Errorf("the envelope repeats what was sent: %s", b)
			}
			equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventFailed})
			equal(t, "input hash", w.last().InputHash, "")
			equal(t, "runs", w.runs(), 0)
		})
	}
	t.Run("where it is", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{})
		c := call("k")
		c.Input = json.RawMessage(`{"who":7}`)
		equal(t, "issues", w.invoke(c).Error.Issues, []capability.Issue{{Path: "/who", Message: "must be string, not number"}})
	})
}

func TestR041ActorComesAfterInput(t *testing.T) {
	for name, tt := range map[string]struct {
		actor capability.Actor
		input string
		want  capability.Code
	}{
		"R041 no actor, bad input":      {capability.Actor{}, `{}`, capability.CodeInputInvalid},
		"no actor":                      {capability.Actor{}, `{"who":"x"}`, capability.CodeUnauthenticated},
		"an actor of no kind":           {capability.Actor{ID: alice}, `{"who":"x"}`, capability.CodeUnauthenticated},
		"an actor of an unknown kind":   {capability.Actor{ID: alice, Kind: "model"}, `{"who":"x"}`, capability.CodeUnauthenticated},
		"R042 anonymous, said so":       {capability.Actor{ID: "guest", Kind: capability.KindAnonymous}, `{"who":"x"}`, ""},
		"an automation acts for itself": {capability.Actor{ID: "cron", Kind: capability.KindAutomation}, `{"who":"x"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{})
			c := call("k")
			c.Actor, c.Input = tt.actor, json.RawMessage(tt.input)
			equal(t, "code", code(w.invoke(c)), tt.want)
			if !tt.actor.Valid() {
				equal(t, "actor on record", w.last().Actor, capability.Actor{ID: "unknown", Kind: capability.KindAnonymous})
			}
		})
	}
}

func TestR043ProgrammerErrors(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	for name, change := range map[string]func(*gate.Call){
		"no key":          func(c *gate.Call) { c.Key = "" },
		"no capability":   func(c *gate.Call) { c.CapabilityID = "" },
		"R046 no surface": func(c *gate.Call) { c.Surface = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c := call("k")
			change(&c)
			if res, err := w.Invoke(t.Context(), c); err == nil {
				t.Errorf("gave %+v", res)
			}
		})
	}
	equal(t, "events", len(w.events(gate.EventFilter{})), 0)
}

func TestR047Correlation(t *testing.T) {
	var seen capability.CallInfo
	w := one(t, gate.Config{}, kit{run: func(_ context.Context, rt *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
		seen = rt.Call
		return json.RawMessage(`1`), nil
	}})
	res := w.invoke(call("k"))
	for _, e := range w.events(gate.EventFilter{}) {
		equal(t, string(e.Type), e.CorrelationID, "$ask")
	}
	equal(t, "call", seen, capability.CallInfo{
		ExecutionID: res.ExecutionID, CapabilityID: "hall.act", Surface: capability.SurfaceCommand, Actor: user(alice),
		CorrelationID: "$ask", IdempotencyKey: "k",
	})
}

// R051–R058: how a handler ends, and what of it is seen.
func TestR051HandlerErrors(t *testing.T) {
	secret := "hunter2"
	var typedNil *capability.Error
	for name, tt := range map[string]struct {
		err    error
		want   capability.Code
		public string
		effect capability.EffectStatus
	}{
		"R051 declared":            {capability.Failed("The hall is full.", false), capability.CodeExecutionFailed, "The hall is full.", capability.EffectUnknown},
		"declared, nothing done":   {capability.Failed("The hall is full.", true), capability.CodeExecutionFailed, "The hall is full.", ""},
		"R053 refused":             {capability.Refuse("Not here."), capability.CodeForbidden, "Not here.", ""},
		"R054 anything else":       {errors.New(secret), capability.CodeExecutionFailed, "The operation failed.", capability.EffectUnknown},
		"R055 its own code":        {capability.Fail(capability.CodeUnauthenticated), capability.CodeUnauthenticated, "Authentication is required.", capability.EffectUnknown},
		"wrapped":                  {errors.Join(errors.New(secret), capability.Refuse("Not here.")), capability.CodeForbidden, "Not here.", ""},
		"a nil pointer":            {typedNil, capability.CodeExecutionFailed, "The operation failed.", capability.EffectUnknown},
		"a cause stays in the log": {capability.Failed("Full.", true).Because(errors.New(secret)), capability.CodeExecutionFailed, "Full.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"half":"` + secret + `"}`), tt.err
			}})
			res := w.invoke(call("k"))
			wants(t, res, failed, tt.want)
			equal(t, "public", res.Error.Public, tt.public)
			equal(t, "effect", res.Effect, tt.effect)
			if b, _ := json.Marshal([]any{res, w.events(gate.EventFilter{})}); strings.Contains(string(b), secret) {
				t.Errorf("it leaks: %s", b)
			}
			equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventFailed})
		})
	}
	for name, tt := range map[string]func(){
		"a panic":  func() { panic(secret) },
		"a Goexit": runtime.Goexit,
		"an index": func() { _ = []int{}[len(secret)] },
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
				tt()
				return json.RawMessage(`1`), nil
			}})
			res := w.invoke(call("k"))
			wants(t, res, failed, capability.CodeExecutionFailed)
			equal(t, "effect", res.Effect, capability.EffectUnknown)
			if b, _ := json.Marshal(res); strings.Contains(string(b), secret) || res.Error.Face().Message != "The operation failed." {
				t.Errorf("it leaks: %s", b)
			}
		})
	}
}

func TestR057Output(t *testing.T) {
	secret := "hunter2"
	schema := `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	redact := func(f func(json.RawMessage) (json.RawMessage, error)) func(*capability.Meta) {
		return func(m *capability.Meta) { m.RedactOutput = f }
	}
	cut := func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{"safe":1}`), nil }
	for name, tt := range map[string]struct {
		out, schema string
		meta        func(*capability.Meta)
		want        capability.Code
		output      string
	}{
		"no schema":                      {`[1]`, "", nil, "", `[1]`},
		"nothing":                        {``, "", nil, "", `null`},
		"it fits":                        {`{"n":1}`, schema, nil, "", `{"n":1}`},
		"it does not fit":                {`{"n":"` + secret + `"}`, schema, nil, capability.CodeOutputInvalid, ""},
		"no JSON":                        {`{` + secret, "", nil, capability.CodeOutputInvalid, ""},
		"no UTF-8":                       {"\"" + secret + "\xff\"", "", nil, capability.CodeOutputInvalid, ""},
		"a number that takes ages":       {`{"n":1e-999999}`, `{"properties":{"n":{"multipleOf":0.1}}}`, nil, capability.CodeOutputInvalid, ""},
		"a number nobody can check":      {`{"n":1e99999999}`, schema, nil, capability.CodeOutputInvalid, ""},
		"R057 redacted":                  {`{"n":1,"key":"` + secret + `"}`, schema, redact(cut), "", `{"safe":1}`},
		"R059 the schema is asked first": {`{"key":"` + secret + `"}`, schema, redact(cut), capability.CodeOutputInvalid, ""},
		"R058 redaction fails": {`{"n":1}`, schema, redact(func(json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New(secret)
		}), capability.CodeExecutionFailed, ""},
		"R058 redaction panics": {`{"n":1}`, schema, redact(func(json.RawMessage) (json.RawMessage, error) {
			panic(secret)
		}), capability.CodeExecutionFailed, ""},
		"redaction gives nonsense": {`{"n":1}`, schema, redact(func(json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{` + secret), nil
		}), capability.CodeExecutionFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: tt.meta, out: tt.schema, run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(tt.out), nil
			}})
			res := w.invoke(call("k"))
			equal(t, "code", code(res), tt.want)
			equal(t, "output", string(res.Output), tt.output)
			e, err := w.Execution(t.Context(), res.ExecutionID)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := json.Marshal([]any{res, e, w.events(gate.EventFilter{})}); strings.Contains(string(b), secret) {
				t.Errorf("it leaks: %s", b)
			}
			if tt.want != "" {
				equal(t, "effect", res.Effect, capability.EffectUnknown)
				equal(t, "hidden", res.Error.Face().Code, capability.CodeInternal)
			}
		})
	}
}

// waitFor is a handler that waits for its ctx and says why it ended.
func waitFor(why chan<- error) capability.Handler {
	return func(ctx context.Context, _ *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		why <- context.Cause(ctx)
		return json.RawMessage(`"late"`), nil
	}
}

func TestR061Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := make(chan error, 1)
		w := one(t, gate.Config{Now: time.Now}, kit{run: waitFor(why), meta: func(m *capability.Meta) { m.Timeout = 25 * time.Millisecond }})
		begun := time.Now()
		res := w.invoke(call("k"))
		wants(t, res, cancelled, capability.CodeTimeout)
		equal(t, "took", time.Since(begun), 25*time.Millisecond)
		equal(t, "stage", res.Error.Stage, capability.StageTimeout)
		equal(t, "retryable", res.Error.Face().Retryable, true)
		equal(t, "effect", res.Effect, capability.EffectUnknown)
		synctest.Wait() // for the late end of the handler, which is told apart
		equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCancelled, gate.EventCompleted})
		equal(t, "code on record", w.events(gate.EventFilter{})[2].Data["code"], any("TIMEOUT"))
		equal(t, "late", w.last().Data["late"], any(true))
		if <-why == nil {
			t.Error("the handler was not told")
		}
		wants(t, w.invoke(call("k")), cancelled, capability.CodeTimeout) // it stays so
		equal(t, "runs", w.runs(), 1)
	})
}

func TestR062Cancellation(t *testing.T) {
	for name, end := range map[string]func(w *world, stop func()){
		"the caller goes away": func(_ *world, stop func()) { stop() },
		"a person stops it": func(w *world, _ func()) {
			list, err := w.ledger.Executions(w.t.Context(), gate.ExecutionFilter{})
			if err != nil || !w.Stop(list[0].ID) || w.Stop("exe_none") {
				w.t.Error("it cannot be stopped")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := make(chan error, 1)
				w := one(t, gate.Config{Now: time.Now}, kit{run: waitFor(why)})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					time.Sleep(time.Second)
					end(w, stop)
				}()
				res, err := w.Invoke(ctx, call("k"))
				if err != nil {
					t.Fatal(err)
				}
				wants(t, res, cancelled, capability.CodeCancelled)
				equal(t, "stage", res.Error.Stage, capability.StageCancellation)
				equal(t, "retryable", res.Error.Retryable, false)
				equal(t, "effect", res.Effect, capability.EffectUnknown)
				if !errors.Is(<-why, context.Canceled) && name == "the caller goes away" {
					t.Error("the handler was told something else")
				}
			})
		})
	}
	t.Run("the caller's own deadline is no time-out of the tool", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			why := make(chan error, 1)
			w := one(t, gate.Config{Now: time.Now}, kit{run: waitFor(why)})
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			res, err := w.Invoke(ctx, call("k"))
			if err != nil {
				t.Fatal(err)
			}
			wants(t, res, cancelled, capability.CodeCancelled)
			if !errors.Is(<-why, context.DeadlineExceeded) {
				t.Error("the handler was told something else")
			}
		})
	})
}

// A handler that ends after its call was cancelled does not make it complete.
func TestCancellationWinsOverALateEnd(t *testing.T) {
	for range 50 {
		ctx, stop := context.WithCancel(t.Context())
		w := one(t, gate.Config{}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
			stop()
			return json.RawMessage(`1`), nil
		}})
		res, err := w.Invoke(ctx, call("k"))
		if err != nil {
			t.Fatal(err)
		}
		wants(t, res, cancelled, capability.CodeCancelled)
	}
}

func TestR063AHandlerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t, gate.Config{Now: time.Now, Timeout: time.Second}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
			time.Sleep(time.Hour)
			return json.RawMessage(`"late"`), nil
		}})
		begun := time.Now()
		res := w.invoke(call("k"))
		wants(t, res, cancelled, capability.CodeTimeout)
		equal(t, "took", time.Since(begun), time.Second)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		again := w.invoke(call("k"))
		wants(t, again, cancelled, capability.CodeTimeout)
		equal(t, "output", string(again.Output), "")
		equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCancelled, gate.EventCompleted})
		equal(t, "how it ended", w.last().Data, map[string]any{"late": true, "attempt": 1})
	})
}

// A caller that is gone already starts nothing and asks nobody.
func TestNothingBeginsForACallerThatIsGone(t *testing.T) {
	for name, meta := range map[string]func(*capability.Meta){"a run": nil, "a question": gated} {
		t.Run(name, func(t *testing.T) {
			var stop context.CancelFunc
			goes := rule{"goes", nil, func(context.Context, policy.Request) (policy.Decision, error) {
				stop()
				return policy.Decision{Stance: policy.StanceAllow}, nil
			}}
			w := one(t, gate.Config{Policies: []policy.Policy{goes}}, kit{meta: meta})
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			if res, err := w.Invoke(ctx, call("k")); err == nil {
				t.Fatalf("gave %+v", res)
			}
			equal(t, "runs", w.runs(), 0)
			equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested})
			stop = func() {}
			want := completed
			if meta != nil {
				want = waits
			}
			equal(t, "asked again", w.invoke(call("k")).Status, want) // no verdict was recorded
		})
	}
}

func TestR078SameInputAgainIsANewExecution(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	a, b := w.invoke(call("turn/1")), w.invoke(call("turn/2"))
	if a.ExecutionID == b.ExecutionID {
		t.Error("one execution for two calls")
	}
	equal(t, "runs", w.runs(), 2)
}

// A handler cannot change what is on record or what a later attempt is given.
func TestHandlersGetCopies(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated, run: func(_ context.Context, rt *capability.Context, in json.RawMessage) (json.RawMessage, error) {
		clear(in)
		*rt = capability.Context{}
		return json.RawMessage(`1`), nil
	}})
	res := w.resume(w.approved(), gate.ResumeOptions{})
	wants(t, res, completed, "")
	e, err := w.Execution(t.Context(), res.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "input", string(e.Input), `{"who":"carol"}`)
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := gate.New(gate.Config{Timeout: -1, Policies: []policy.Policy{nil, says(" ", policy.Decision{}), says("odd", policy.Decision{}, "someday")}})
	if err == nil {
		t.Fatal("built")
	}
	for _, part := range []string{"are required", "must not be negative", "a policy has no name", "unknown phase"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

// Q5: somebody who goes away between the start and the handler has nothing run,
// and nothing is unknown.
func TestQ5CancelledBetweenStartAndHandler(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := one(t, gate.Config{}, kit{})
	w.ledger.Ledger = &goneAtStart{w.ledger.Ledger, stop}
	res, err := w.Invoke(ctx, call("k"))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, res, cancelled, capability.CodeCancelled)
	equal(t, "runs", w.runs(), 0)
	equal(t, "effect", res.Effect, "")
	equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCancelled})
	for name, f := range map[string]func() error{
		"invoke": func() error { _, err := w.Invoke(ctx, call("other")); return err },
		"resume": func() error { _, err := w.Resume(ctx, "apr_1", gate.ResumeOptions{}); return err },
	} {
		if f() == nil {
			t.Errorf("%s of somebody who is gone got an envelope", name)
		}
	}
	equal(t, "nothing was claimed", len(w.events(gate.EventFilter{})), 3)
}

// goneAtStart is a ledger after whose start the caller goes away.
type goneAtStart struct {
	gate.Ledger
	stop func()
}

func (l *goneAtStart) Start(ctx context.Context, s gate.Start) error {
	err := l.Ledger.Start(ctx, s)
	l.stop()
	return err
}
