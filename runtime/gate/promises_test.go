package gate_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// What has no canonical form has no hash, and so is neither asked about nor run.
func TestR109R111WhatCannotBeHashedDoesNotRun(t *testing.T) {
	for name, k := range map[string]kit{"open": {}, "gated": {meta: gated}} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, k)
			for _, input := range []string{`{"who":"\ud800"}`, `{"who":"a","who":"b"}`, `{"who":`, `{"who":function(){}}`} {
				c := call("k" + input)
				c.Input = json.RawMessage(input)
				wants(t, w.invoke(c), failed, capability.CodeInputInvalid)
			}
			equal(t, "runs", w.runs(), 0)
			equal(t, "questions", len(w.events(gate.EventFilter{Types: []gate.EventType{gate.EventApprovalRequested}})), 0)
		})
	}
}

func TestR164HiddenTwice(t *testing.T) {
	p := says("p", hide, policy.PhaseDiscovery, policy.PhaseInvocation)
	w := one(t, gate.Config{Policies: []policy.Policy{p}}, kit{})
	list, err := w.Describe(t.Context(), capability.SurfaceCommand, user(alice))
	if err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	none := call("none")
	none.CapabilityID = "hall.none"
	equal(t, "face", faces(t, w.invoke(call("k"))), faces(t, w.invoke(none)))
	equal(t, "runs", w.runs(), 0)
}

// A yes to one input is none to another, nor to the same one asked again.
func TestC145AYesIsForOneInput(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	wants(t, w.resume(w.approved(), gate.ResumeOptions{}), completed, "")
	for _, input := range []string{`{"who":"dave"}`, `{"who":"carol"}`} {
		c := call("again" + input)
		c.Input = json.RawMessage(input)
		equal(t, "status", w.invoke(c).Status, capability.StatusApprovalRequired)
	}
	equal(t, "runs", w.runs(), 1)
}

// A check that blows up is no pass.
func TestR045AValidatorThatPanics(t *testing.T) {
	if issues := gate.CheckThatPanics(); len(issues) == 0 {
		t.Error("valid")
	}
}

// A handler that spoils what it was given spoils it for itself alone: the next
// attempt gets what was asked for.
func TestEachAttemptGetsItsOwnInput(t *testing.T) {
	w := one(t, gate.Config{}, kit{
		meta: func(m *capability.Meta) { read(m); m.Retry.Max, m.Retry.Backoff = 1, time.Millisecond },
		run: func(_ context.Context, _ *capability.Context, in json.RawMessage) (json.RawMessage, error) {
			clear(in)
			return nil, retryable()
		},
	})
	w.invoke(call("k"))
	equal(t, "inputs", w.inputs, []string{`{"who":"carol"}`, `{"who":"carol"}`})
}

func TestDigestBindsWhatAttributesSay(t *testing.T) {
	with := func(power string) string {
		a := gate.Approval{ID: "apr_1", Input: json.RawMessage(`{}`), Actor: user(alice)}
		a.Actor.Attributes = map[string]string{"power": power}
		d, err := gate.Digest(a)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if with("0") == with("100") {
		t.Error("the same digest")
	}
}
