package memory_test

import (
	"testing"

	"moothall/runtime/gate"
	"moothall/runtime/gate/gatetest"
	"moothall/runtime/gate/memory"
)

func TestLedger(t *testing.T) {
	gatetest.RunLedger(t, func(_ *testing.T, onFollowUp func(kind, ref string)) gate.Ledger {
		l := memory.New()
		l.OnFollowUp = onFollowUp
		return l
	})
}
