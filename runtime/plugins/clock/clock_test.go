package clock_test

import (
	"encoding/json"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/plugins/clock"
)

func TestNow(t *testing.T) {
	at := time.Date(2024, 2, 29, 23, 59, 58, 0, time.FixedZone("", -3600))
	c := clock.Tools(func() time.Time { return at })[0]
	out, err := c.Run(t.Context(), &capability.Context{}, json.RawMessage(`{}`))
	want := `{"say":"It is Friday, 1 March 2024, 00:59:58 UTC.","time":"2024-03-01T00:59:58Z"}`
	if err != nil || string(out) != want {
		t.Errorf("%s %v; want %s", out, err, want)
	}
}

func TestTheClockOfTheHouse(t *testing.T) {
	tools := clock.Tools(nil)
	if _, err := capability.NewRegistry(tools...); err != nil {
		t.Fatal(err)
	}
	out, err := tools[0].Run(t.Context(), &capability.Context{}, json.RawMessage(`{}`))
	var got struct{ Time time.Time }
	if err != nil || json.Unmarshal(out, &got) != nil || time.Since(got.Time).Abs() > time.Minute {
		t.Errorf("%s %v", out, err)
	}
}
