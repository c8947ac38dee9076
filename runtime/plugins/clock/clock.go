// Package clock gives the room one harmless tool: what time it is. It asks
// nobody, changes nothing and cannot fail.
package clock

import (
	"context"
	"time"

	"moothall/runtime/capability"
)

type nowIn struct{}

type nowOut struct {
	Say  string `json:"say"`
	Time string `json:"time" jsonschema:"RFC 3339, UTC"`
}

// Tools makes time.now. now is the clock to read; nil means time.Now.
func Tools(now func() time.Time) []*capability.Capability {
	if now == nil {
		now = time.Now
	}
	return []*capability.Capability{
		capability.Define("time.now", capability.Meta{
			Description: "Tell the date and time in UTC.",
			Expose:      []capability.Surface{capability.SurfaceCommand, capability.SurfaceAgent, capability.SurfaceMCP, capability.SurfaceHTTP, capability.SurfaceSchedule},
			SideEffect:  capability.SideEffectNone,
			Risk:        capability.RiskLow,
			Tags:        []string{"time"},
		}, func(context.Context, *capability.Context, nowIn) (nowOut, error) {
			t := now().UTC()
			return nowOut{Say: "It is " + t.Format("Monday, 2 January 2006, 15:04:05") + " UTC.", Time: t.Format(time.RFC3339)}, nil
		}),
	}
}
