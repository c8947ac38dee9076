package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"moothall/internal/visible"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// Request is one command as it reached us.
type Request struct {
	Line   Line
	Actor  capability.Actor
	Origin gate.Origin
	// Cause is the id of the event that carried it.
	Cause string
	// Target is the approval or execution whose card or notice the message
	// answers, if it answers one.
	Target string
}

// Reply is what the room is told. The zero value says nothing: the answer comes
// by another way (a card, a report). Text between backticks is code.
type Reply struct {
	Paragraphs []string
	List       []string
	Code       string // a block after the rest
}

// Say makes a reply of one paragraph.
func Say(format string, args ...any) Reply {
	return Reply{Paragraphs: []string{fmt.Sprintf(format, args...)}}
}

// Command is one thing a person can type.
type Command struct {
	Name string
	Args string // how its arguments are written, for help
	Help string // one line
	// Control commands never wait for a busy thread.
	Control bool
	Run     func(ctx context.Context, r Request) (Reply, error)
}

// Set is the commands of a room. It is immutable after [New] and safe for
// concurrent use.
type Set struct {
	gate   *gate.Gate
	prefix string
	list   []Command
	byName map[string]Command
}

// New makes the command set over a gate. prefix begins every command ("!").
func New(g *gate.Gate, prefix string) *Set {
	s := &Set{gate: g, prefix: prefix, byName: make(map[string]Command)}
	s.list = []Command{
		{Name: "help", Args: "[command | run TOOL]", Help: "what I understand, or how one tool is called", Run: s.help},
		{Name: "tools", Help: "the tools you can ask for", Run: s.tools},
		{Name: "run", Args: "TOOL [name=value … | {json}]", Help: "run a tool; what needs a yes is asked for here", Run: s.run},
		{Name: "approvals", Help: "what waits for a decision in this room", Run: s.approvals},
		{Name: "approve", Args: "[ID] [reason]", Help: "say yes to a request", Control: true, Run: s.decide(true)},
		{Name: "reject", Args: "[ID] [reason]", Help: "say no to a request", Control: true, Run: s.decide(false)},
		{Name: "cancel", Args: "[ID]", Help: "take back a request", Control: true, Run: s.cancel},
		{Name: "settle", Args: "ID done|not-done [note]", Help: "say what really happened to a call whose outcome is unknown", Control: true, Run: s.settle},
		{Name: "ping", Help: "see whether I am there", Run: s.ping},
	}
	for _, c := range s.list {
		s.byName[c.Name] = c
	}
	return s
}

// Prefix is what begins a command.
func (s *Set) Prefix() string { return s.prefix }

// Control reports whether the command of that name must not wait for a busy
// thread.
func (s *Set) Control(name string) bool { return s.byName[name].Control || name == "deny" }

// Run carries out one command. A [*InputError] or [capability.Error] has been
// turned into a reply already; an error is a fault, and the command may be run
// again: everything it did is keyed by its cause.
func (s *Set) Run(ctx context.Context, r Request) (Reply, error) {
	c, ok := s.byName[r.Line.Name]
	if !ok {
		return s.unknown(r.Line.Name), nil
	}
	reply, err := c.Run(ctx, r)
	if err == nil {
		return reply, nil
	}
	if e, ok := errors.AsType[*InputError](err); ok {
		return Say("Nothing was run: %s", sentenceEnd(e.Error())), nil
	}
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return Say("%s", e.Face().Message), nil
	}
	return Reply{}, err
}

// sentenceEnd puts the full stop that an error does not have.
func sentenceEnd(s string) string {
	if strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

func (s *Set) unknown(name string) Reply {
	if name == "deny" {
		return Say("Did you mean `%sreject`?", s.prefix)
	}
	shown := visible.Text(name, 32)
	known := make([]string, 0, len(s.list))
	for _, c := range s.list {
		known = append(known, c.Name)
	}
	if near, ok := Nearest(name, known); ok {
		return Say("I don't know `%s%s`. Did you mean `%s%s`? `%shelp` lists what I understand.", s.prefix, shown, s.prefix, near, s.prefix)
	}
	return Say("I don't know `%s%s`. `%shelp` lists what I understand.", s.prefix, shown, s.prefix)
}

func (s *Set) ping(context.Context, Request) (Reply, error) { return Say("Pong."), nil }

func (s *Set) help(ctx context.Context, r Request) (Reply, error) {
	f := strings.Fields(r.Line.Rest)
	switch {
	case len(f) == 0:
		rep := Reply{Paragraphs: []string{"I run tools for this room. What needs a yes is asked for here, and room admins decide."}}
		for _, c := range s.list {
			rep.List = append(rep.List, s.usage(c))
		}
		return rep, nil
	case len(f) >= 2 && strings.TrimPrefix(f[0], s.prefix) == "run":
		return s.helpTool(ctx, r, f[1])
	}
	name := strings.ToLower(strings.TrimPrefix(f[0], s.prefix))
	if c, ok := s.byName[name]; ok {
		return Reply{Paragraphs: []string{s.usage(c)}}, nil
	}
	if strings.Contains(name, ".") {
		return s.helpTool(ctx, r, name)
	}
	return s.unknown(name), nil
}

func (s *Set) usage(c Command) string {
	return fmt.Sprintf("`%s` – %s", strings.TrimSpace(s.prefix+c.Name+" "+c.Args), c.Help)
}

func (s *Set) helpTool(ctx context.Context, r Request, id string) (Reply, error) {
	t, err := s.tool(ctx, r, id)
	if err != nil {
		return Reply{}, err
	}
	if t == nil {
		return s.noTool(ctx, r, id)
	}
	return Reply{Code: SchemaHelp(s.prefix, t.ID, t.Description, t.InputSchema)}, nil
}

// tool gives one tool as this person may be offered it here, nil if not.
func (s *Set) tool(ctx context.Context, r Request, id string) (*gate.Descriptor, error) {
	list, err := s.gate.DescribeScope(ctx, capability.SurfaceCommand, r.Actor, gate.Scope{IDs: []string{id}})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func (s *Set) noTool(ctx context.Context, r Request, id string) (Reply, error) {
	tools, err := s.gate.Describe(ctx, capability.SurfaceCommand, r.Actor)
	if err != nil {
		return Reply{}, err
	}
	known := make([]string, 0, len(tools))
	for _, t := range tools {
		known = append(known, t.ID)
	}
	shown := visible.Text(id, 64)
	if near, ok := Nearest(id, known); ok {
		return Say("There is no tool `%s`. Did you mean `%s`?", shown, near), nil
	}
	return Say("There is no tool `%s`. `%stools` lists them.", shown, s.prefix), nil
}

func (s *Set) tools(ctx context.Context, r Request) (Reply, error) {
	tools, err := s.gate.Describe(ctx, capability.SurfaceCommand, r.Actor)
	if err != nil {
		return Reply{}, err
	}
	if len(tools) == 0 {
		return Say("There are no tools for you here."), nil
	}
	rep := Reply{Paragraphs: []string{fmt.Sprintf("`%shelp run TOOL` shows a tool's arguments.", s.prefix)}}
	for _, t := range tools {
		line := fmt.Sprintf("`%s` – %s", t.ID, t.Description)
		if t.RequiresApproval {
			line += " (needs approval)"
		}
		rep.List = append(rep.List, line)
	}
	return rep, nil
}

func (s *Set) run(ctx context.Context, r Request) (Reply, error) {
	id, rest := splitWord(r.Line.Rest)
	if id == "" {
		return Say("Which tool? `%stools` lists them, and `%shelp run TOOL` shows how one is called.", s.prefix, s.prefix), nil
	}
	t, err := s.tool(ctx, r, id)
	if err != nil {
		return Reply{}, err
	}
	if t == nil {
		return s.noTool(ctx, r, id)
	}
	input, err := ToolInput(rest, t.InputSchema)
	if err != nil {
		return Reply{}, err
	}
	_, err = s.gate.Invoke(ctx, gate.Call{
		Key: "event/" + r.Cause + "/0", CapabilityID: id, Input: input, Actor: r.Actor,
		Surface: capability.SurfaceCommand, Origin: r.Origin, CorrelationID: r.Cause,
	})
	// How it ended is told by the row that the gate wrote with the end.
	return Reply{}, err
}

// splitWord cuts the first word off.
func splitWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	i := strings.IndexFunc(s, unicode.IsSpace)
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}

// Has reports whether there is a command of that name.
func (s *Set) Has(name string) bool {
	_, ok := s.byName[name]
	return ok
}
