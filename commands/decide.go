package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"moothall/internal/visible"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// shortLen is how many letters of an id people are shown and type.
const shortLen = 6

// Short is the part of an approval's or execution's id that people type.
func Short(id string) string {
	_, u, ok := strings.Cut(id, "_")
	if !ok || len(u) < shortLen {
		return id
	}
	return u[:shortLen]
}

// decide makes !approve and !reject.
func (s *Set) decide(yes bool) func(context.Context, Request) (Reply, error) {
	return func(ctx context.Context, r Request) (Reply, error) {
		a, reason, reply, err := s.pick(ctx, r)
		if reply != nil || err != nil {
			return orNothing(reply), err
		}
		after, err := s.gate.Decide(ctx, gate.Decision{
			ApprovalID: a.ID, Approver: r.Actor, Yes: yes, Comment: visible.Text(reason, 300), Cause: r.Cause,
		})
		if err != nil {
			return Reply{}, err
		}
		if after.State == gate.ApprovalPending {
			return Say("Counted: %d of %d.", len(after.Votes), after.Requirements.Quorum), nil
		}
		return Reply{}, nil // the card and the thread say the rest
	}
}

func (s *Set) cancel(ctx context.Context, r Request) (Reply, error) {
	a, reason, reply, err := s.pick(ctx, r)
	if reply != nil || err != nil {
		return orNothing(reply), err
	}
	_, err = s.gate.Cancel(ctx, a.ID, r.Actor, visible.Text(reason, 300))
	if e, ok := errors.AsType[*capability.Error](err); ok && e.Code == capability.CodeForbidden {
		return Say("Only whoever asked, or somebody who could decide it, can take a request back. %s", e.Face().Message), nil
	}
	return Reply{}, err
}

func orNothing(r *Reply) Reply {
	if r == nil {
		return Reply{}
	}
	return *r
}

// pick finds the approval a command is about: the card it answers, the id it
// names, or the only one open in the thread, else in the room. rest is what
// follows the id. A reply means that it could not be told.
func (s *Set) pick(ctx context.Context, r Request) (a gate.Approval, rest string, reply *Reply, err error) {
	word, tail := splitWord(r.Line.Rest)
	if r.Target != "" && strings.HasPrefix(r.Target, "apr_") && !looksLikeID(word) {
		list, err := s.gate.FindApproval(ctx, r.Origin.Place, strings.TrimPrefix(r.Target, "apr_"))
		if err == nil && len(list) == 1 {
			return list[0], r.Line.Rest, nil, nil
		}
		return a, "", nil, err
	}
	if looksLikeID(word) {
		list, err := s.gate.FindApproval(ctx, r.Origin.Place, strings.ToLower(strings.TrimPrefix(word, "apr_")))
		if err != nil {
			return a, "", nil, err
		}
		if len(list) == 1 {
			return list[0], tail, nil, nil
		}
		if len(list) > 1 {
			rep := Say("More than one request begins so; give more letters of its id.")
			return a, "", &rep, nil
		}
	}
	open, err := s.gate.Pending(ctx, r.Origin.Place)
	if err != nil {
		return a, "", nil, err
	}
	here := make([]gate.Approval, 0, len(open))
	for _, o := range open {
		if o.Origin.Lane == r.Origin.Lane {
			here = append(here, o)
		}
	}
	if len(here) == 0 {
		here = open
	}
	switch {
	case len(here) == 0 || looksLikeID(word):
		// A mistyped id must not decide whatever else happens to be open.
		rep := Say("Nothing by that id waits for a decision here. `%sapprovals` lists what does.", s.prefix)
		if word == "" {
			rep = Say("Nothing waits for a decision here.")
		}
		return a, "", &rep, nil
	case len(here) > 1:
		rep := Say("Several requests wait here; say which, for example `%s%s %s`. `%sapprovals` lists them.", s.prefix, r.Line.Name, Short(here[0].ID), s.prefix)
		return a, "", &rep, nil
	}
	return here[0], r.Line.Rest, nil, nil
}

// looksLikeID: with the full prefix, or at least four letters that are
// hexadecimal or hold a digit: a mistyped id must not be taken for the first word
// of a reason.
func looksLikeID(w string) bool {
	if strings.HasPrefix(w, "apr_") || strings.HasPrefix(w, "exe_") {
		return true
	}
	if len(w) < 4 || len(w) > 36 {
		return false
	}
	return strings.Trim(strings.ToLower(w), "0123456789abcdef-") == "" || strings.ContainsAny(w, "0123456789")
}

func (s *Set) approvals(ctx context.Context, r Request) (Reply, error) {
	open, err := s.gate.Pending(ctx, r.Origin.Place)
	if err != nil {
		return Reply{}, err
	}
	lost, err := s.gate.Unsettled(ctx, r.Origin.Place)
	if err != nil {
		return Reply{}, err
	}
	if len(open)+len(lost) == 0 {
		return Say("Nothing waits for a decision here."), nil
	}
	rep := Reply{}
	for _, a := range open {
		line := fmt.Sprintf("`%s` %s, asked by %s", Short(a.ID), a.CapabilityID, visible.Text(a.Actor.ID, 255))
		if a.State == gate.ApprovalApproved {
			line += ", approved, about to run"
		} else if !a.ExpiresAt.IsZero() {
			line += ", open until " + a.ExpiresAt.UTC().Format(time.DateTime) + " UTC"
		}
		rep.List = append(rep.List, line)
	}
	for _, e := range lost {
		rep.List = append(rep.List, fmt.Sprintf("`%s` %s, asked by %s: outcome unknown, `%ssettle %s done|not-done`",
			Short(e.ID), e.CapabilityID, visible.Text(e.Actor.ID, 255), s.prefix, Short(e.ID)))
	}
	rep.Paragraphs = []string{fmt.Sprintf("Waiting here: %d.", len(rep.List))}
	return rep, nil
}

func (s *Set) settle(ctx context.Context, r Request) (Reply, error) {
	id, word, note := r.Target, "", r.Line.Rest
	first, rest := splitWord(r.Line.Rest)
	if !strings.HasPrefix(id, "exe_") || looksLikeID(first) {
		found, reply, err := s.findUnsettled(ctx, r, first)
		if reply != nil || err != nil {
			return orNothing(reply), err
		}
		id, note = found, rest
	}
	word, note = splitWord(note)
	var done bool
	switch strings.ToLower(word) {
	case "done":
		done = true
	case "not-done", "notdone", "not":
	default:
		return Say("Say what happened: `%ssettle %s done` or `%ssettle %s not-done`, with a note if you like.", s.prefix, Short(id), s.prefix, Short(id)), nil
	}
	_, err := s.gate.Settle(ctx, id, r.Actor, done, visible.Text(note, 300))
	return Reply{}, err
}

func (s *Set) findUnsettled(ctx context.Context, r Request, word string) (string, *Reply, error) {
	if !looksLikeID(word) {
		rep := Say("Which call? `%sapprovals` lists those whose outcome is unknown.", s.prefix)
		return "", &rep, nil
	}
	list, err := s.gate.FindExecution(ctx, r.Origin.Place, strings.ToLower(strings.TrimPrefix(word, "exe_")))
	if err != nil {
		return "", nil, err
	}
	if len(list) != 1 {
		rep := Say("I know no call `%s` here. `%sapprovals` lists those whose outcome is unknown.", visible.Text(word, 40), s.prefix)
		return "", &rep, nil
	}
	return list[0].ID, nil, nil
}

// DecideTarget carries out a reaction on a card or on the notice of an unknown
// outcome. quiet is true when a refusal needs no words in the room, because what
// is shown there says it already.
func (s *Set) DecideTarget(ctx context.Context, target string, by capability.Actor, yes bool, cause string) (say string, quiet bool, err error) {
	if strings.HasPrefix(target, "exe_") {
		_, err = s.gate.Settle(ctx, target, by, yes, "")
	} else {
		_, err = s.gate.Decide(ctx, gate.Decision{ApprovalID: target, Approver: by, Yes: yes, Cause: cause})
	}
	e, ok := errors.AsType[*capability.Error](err)
	if !ok {
		return "", true, err
	}
	switch e.Code {
	case capability.CodeApprovalConsumed, capability.CodeApprovalRejected, capability.CodeApprovalCancelled,
		capability.CodeApprovalStale, capability.CodeApprovalSuperseded, capability.CodeInternal:
		return "", true, nil
	case capability.CodeApprovalExpired:
		return "That request has expired; it has to be asked for again.", false, nil
	default:
		return e.Face().Message, false, nil
	}
}
