package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/gate/memory"
	"moothall/runtime/policy"
)

const (
	alice = "@alice:example.org"
	bob   = "@bob:example.org"
	carol = "@carol:example.org"
	dave  = "@dave:example.org"
)

var errFault = errors.New("fault")

func user(id string) capability.Actor { return capability.Actor{ID: id, Kind: capability.KindUser} }

// electors answers for those it names; the zero value denies everybody.
type electors struct {
	mu     sync.Mutex
	may    map[string]gate.Answer
	asked  int
	before func() // called while a question is being answered
}

func (e *electors) MayDecide(_ context.Context, _ gate.Approval, who capability.Actor) (gate.Answer, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.before != nil {
		e.before()
	}
	return e.may[who.ID], "You may not decide here."
}

// people knows links between identities; the zero value cannot tell.
type people struct {
	mu    sync.Mutex
	known bool
	links [][2]string
}

// link joins two identities. Nothing takes a link away: removed ones count.
func (p *people) link(a, b string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, [2]string{a, b})
}

func (p *people) Identities(_ context.Context, id string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		return nil, errors.New("nobody is known")
	}
	ids := []string{id}
	for i := 0; i < len(ids); i++ {
		for _, l := range p.links {
			for j, k := range []int{1, 0} {
				if l[j] == ids[i] && !slices.Contains(ids, l[k]) {
					ids = append(ids, l[k])
				}
			}
		}
	}
	return ids, nil
}

// contexts gives what the call says; the zero value gives none.
type contexts struct {
	give bool
}

func (c *contexts) Context(_ context.Context, call capability.CallInfo, o gate.Origin) (*capability.Context, error) {
	if !c.give {
		return nil, errors.New("no context")
	}
	return &capability.Context{
		User: capability.User{MatrixUserID: call.Actor.ID}, Session: capability.Session{RoomID: o.Place}, Call: call,
	}, nil
}

// faulty fails steps by name, as often as it is told.
type faulty struct {
	gate.Ledger
	mu   sync.Mutex
	fail map[string]int
	// late fails a step after it was taken.
	late map[string]int
}

func take(m map[string]int, step string) bool {
	if m[step] == 0 {
		return false
	}
	m[step]--
	return true
}

func (f *faulty) do(step string, do func() error) error {
	f.mu.Lock()
	before, after := take(f.fail, step), take(f.late, step)
	f.mu.Unlock()
	if before {
		return errFault
	}
	if err := do(); err != nil {
		return err
	}
	if after {
		return errFault
	}
	return nil
}

func (f *faulty) Claim(ctx context.Context, e gate.Execution, ev gate.Event) (have gate.Execution, fresh bool, err error) {
	err = f.do("claim", func() (err error) { have, fresh, err = f.Ledger.Claim(ctx, e, ev); return err })
	return have, fresh, err
}

func (f *faulty) Pend(ctx context.Context, p gate.Pend) error {
	return f.do("pend", func() error { return f.Ledger.Pend(ctx, p) })
}

func (f *faulty) Start(ctx context.Context, s gate.Start) error {
	return f.do("start", func() error { return f.Ledger.Start(ctx, s) })
}

func (f *faulty) Finish(ctx context.Context, e gate.Finish) error {
	return f.do("finish", func() error { return f.Ledger.Finish(ctx, e) })
}

func (f *faulty) Record(ctx context.Context, ev gate.Event) error {
	return f.do("record", func() error { return f.Ledger.Record(ctx, ev) })
}

func (f *faulty) Close(ctx context.Context, c gate.Close) (a gate.Approval, err error) {
	err = f.do("close", func() (err error) { a, err = f.Ledger.Close(ctx, c); return err })
	return a, err
}

func (f *faulty) Cast(ctx context.Context, v gate.Vote, ev gate.Event) (a gate.Approval, err error) {
	err = f.do("cast", func() (err error) { a, err = f.Ledger.Cast(ctx, v, ev); return err })
	return a, err
}

func (f *faulty) Approval(ctx context.Context, id string) (a gate.Approval, err error) {
	err = f.do("approval", func() (err error) { a, err = f.Ledger.Approval(ctx, id); return err })
	return a, err
}

func (f *faulty) Execution(ctx context.Context, id string) (e gate.Execution, err error) {
	err = f.do("execution", func() (err error) { e, err = f.Ledger.Execution(ctx, id); return err })
	return e, err
}

// world is a gate with everything around it.
type world struct {
	*gate.Gate
	t        *testing.T
	ledger   *faulty
	electors *electors
	people   *people
	contexts *contexts
	clock    time.Time
	mu       sync.Mutex
	inputs   []string // what the handler was given, call by call
	cfg      gate.Config
}

// newWorld makes one in which bob, carol and dave may decide.
func newWorld(t *testing.T, cfg gate.Config, caps ...*capability.Capability) *world {
	t.Helper()
	w := &world{
		t: t, ledger: &faulty{Ledger: memory.New(), fail: map[string]int{}, late: map[string]int{}},
		electors: &electors{may: map[string]gate.Answer{bob: gate.AnswerYes, carol: gate.AnswerYes, dave: gate.AnswerYes}},
		people:   &people{known: true}, contexts: &contexts{give: true}, clock: time.UnixMilli(1_700_000_000_000).UTC(),
	}
	w.cfg = cfg
	w.rebuild(caps...)
	return w
}

// rebuild makes a new gate over the same ledger, as a new process would.
func (w *world) rebuild(caps ...*capability.Capability) {
	w.t.Helper()
	r, err := capability.NewRegistry(caps...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.cfg.Registry, w.cfg.Ledger, w.cfg.Electors, w.cfg.People, w.cfg.Contexts = r, w.ledger, w.electors, w.people, w.contexts
	if w.cfg.Now == nil {
		w.cfg.Now = func() time.Time { return w.clock }
	}
	if w.Gate, err = gate.New(w.cfg); err != nil {
		w.t.Fatal(err)
	}
}

// runs is how often the handler was entered.
func (w *world) runs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inputs)
}

const (
	strict   = `{"type":"object","properties":{"who":{"type":"string"}},"required":["who"],"additionalProperties":false}`
	anything = `{}`
)

// kit is how a tool of a test differs from a harmless one.
type kit struct {
	id      string
	meta    func(*capability.Meta)
	in, out string
	run     capability.Handler
}

// tool makes a capability that counts its runs in w.
func (w *world) tool(k kit) *capability.Capability { return makeTool(func() *world { return w }, k) }

func makeTool(w func() *world, k kit) *capability.Capability {
	m := capability.Meta{
		Description: "A tool.", Expose: []capability.Surface{capability.SurfaceCommand},
		SideEffect: capability.SideEffectWrite, Risk: capability.RiskLow,
	}
	if k.meta != nil {
		k.meta(&m)
	}
	if k.id == "" {
		k.id = "hall.act"
	}
	if k.in == "" {
		k.in = strict
	}
	var out json.RawMessage
	if k.out != "" {
		out = json.RawMessage(k.out)
	}
	return capability.FromSchema(k.id, m, json.RawMessage(k.in), out,
		func(ctx context.Context, rt *capability.Context, in json.RawMessage) (json.RawMessage, error) {
			if w := w(); w != nil {
				w.mu.Lock()
				w.inputs = append(w.inputs, string(in))
				w.mu.Unlock()
			}
			if k.run == nil {
				return json.RawMessage(`{"done":true}`), nil
			}
			return k.run(ctx, rt, in)
		})
}

// one makes a world of one tool.
func one(t *testing.T, cfg gate.Config, k kit) *world {
	t.Helper()
	var w *world
	w = newWorld(t, cfg, makeTool(func() *world { return w }, k))
	return w
}

func gated(m *capability.Meta) { m.Approval.Required = true }
func read(m *capability.Meta)  { m.SideEffect = capability.SideEffectRead }

func call(key string) gate.Call {
	return gate.Call{
		Key: key, CapabilityID: "hall.act", Input: json.RawMessage(`{"who":"carol"}`), Actor: user(alice),
		Surface: capability.SurfaceCommand, Origin: gate.Origin{Place: "!hall:example.org", Lane: "lane", Ref: "$ask"}, CorrelationID: "$ask",
	}
}

func (w *world) invoke(c gate.Call) capability.Result {
	w.t.Helper()
	res, err := w.Invoke(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("invoke: %v", err)
	}
	return res
}

func (w *world) resume(id string, o gate.ResumeOptions) capability.Result {
	w.t.Helper()
	res, err := w.Resume(w.t.Context(), id, o)
	if err != nil {
		w.t.Fatalf("resume: %v", err)
	}
	return res
}

// pending makes an approval of a call that waits.
func (w *world) pending() string {
	w.t.Helper()
	res := w.invoke(call("k"))
	if res.Status != capability.StatusApprovalRequired {
		w.t.Fatalf("status %s (%v); want an approval", res.Status, res.Error)
	}
	return res.ApprovalID
}

func (w *world) vote(id, who string, yes bool) (gate.Approval, error) {
	return w.Decide(w.t.Context(), gate.Decision{ApprovalID: id, Approver: user(who), Yes: yes, Cause: "$vote-" + who})
}

// approved makes an approval that bob has given.
func (w *world) approved() string {
	w.t.Helper()
	id := w.pending()
	if _, err := w.vote(id, bob, true); err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) approval(id string) gate.Approval {
	w.t.Helper()
	a, err := w.ledger.Ledger.Approval(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) events(f gate.EventFilter) []gate.Event {
	w.t.Helper()
	evs, err := w.ledger.Events(w.t.Context(), f)
	if err != nil {
		w.t.Fatal(err)
	}
	return evs
}

func (w *world) types(f gate.EventFilter) []gate.EventType {
	w.t.Helper()
	var out []gate.EventType
	for _, e := range w.events(f) {
		out = append(out, e.Type)
	}
	return out
}

// last gives the newest audit row.
func (w *world) last() gate.Event {
	w.t.Helper()
	evs := w.events(gate.EventFilter{})
	if len(evs) == 0 {
		w.t.Fatal("nothing is on record")
	}
	return evs[len(evs)-1]
}

func code(r capability.Result) capability.Code {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

// wants fails the test unless the call ended like this.
func wants(t *testing.T, r capability.Result, s capability.Status, c capability.Code) {
	t.Helper()
	if r.Status != s || code(r) != c {
		t.Fatalf("ended %s %s (%v); want %s %s", r.Status, code(r), r.Error, s, c)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	g, h := normal(t, got), normal(t, want)
	if g != h {
		t.Fatalf("%s: got %s; want %s", what, g, h)
	}
}

// normal gives v as JSON with the fields in one order.
func normal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rule is a policy made of a function.
type rule struct {
	name   string
	phases []policy.Phase
	f      func(ctx context.Context, r policy.Request) (policy.Decision, error)
}

func (r rule) Name() string           { return r.name }
func (r rule) Phases() []policy.Phase { return r.phases }
func (r rule) Evaluate(ctx context.Context, q policy.Request) (policy.Decision, error) {
	return r.f(ctx, q)
}

// says is a policy that always answers d.
func says(name string, d policy.Decision, phases ...policy.Phase) policy.Policy {
	return rule{name, phases, func(context.Context, policy.Request) (policy.Decision, error) { return d, nil }}
}

const (
	failed    = capability.StatusFailed
	completed = capability.StatusCompleted
	cancelled = capability.StatusCancelled
	waits     = capability.StatusApprovalRequired
)

// tampered is a store in which somebody has edited approvals.
type tampered struct {
	gate.Ledger
	change func(*gate.Approval)
}

func (l *tampered) Approval(ctx context.Context, id string) (gate.Approval, error) {
	a, err := l.Ledger.Approval(ctx, id)
	if err == nil {
		l.change(&a)
	}
	return a, err
}
