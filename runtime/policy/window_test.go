package policy_test

import (
	"testing"
	"time"

	"moothall/runtime/policy"
)

func TestHours(t *testing.T) {
	week := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday}
	office := policy.Window{Days: week, From: "09:00", To: "17:00"}
	night := policy.Window{Days: []time.Weekday{time.Friday}, From: "22:00", To: "02:00"}
	early := policy.Window{From: "02:00", To: "03:00"}
	for _, tt := range []struct {
		name   string
		zone   string
		window policy.Window
		at     string
		open   bool
	}{
		{"the first minute", "UTC", office, "2026-11-30T09:00:00Z", true},
		{"before it", "UTC", office, "2026-11-30T08:59:59Z", false},
		{"the last second", "UTC", office, "2026-11-30T16:59:59Z", true},
		{"at the end", "UTC", office, "2026-11-30T17:00:00Z", false},
		{"on a Sunday", "UTC", office, "2026-11-29T12:00:00Z", false},
		{"Monday there, Sunday here", "Pacific/Auckland", office, "2026-11-29T21:00:00Z", true},
		{"Friday night", "UTC", night, "2026-11-27T23:00:00Z", true},
		{"and what is left of it on Saturday", "UTC", night, "2026-11-28T01:59:00Z", true},
		{"Saturday at two", "UTC", night, "2026-11-28T02:00:00Z", false},
		{"Saturday night", "UTC", night, "2026-11-28T23:00:00Z", false},
		{"Friday before dawn belongs to Thursday", "UTC", night, "2026-11-27T01:00:00Z", false},
		{"a whole day", "UTC", policy.Window{From: "00:00", To: "24:00"}, "2026-11-29T23:59:59Z", true},
		{"until midnight", "UTC", policy.Window{From: "20:00", To: "24:00"}, "2026-11-29T00:00:00Z", false},
		{"in summer nine is seven", "Europe/Zurich", office, "2026-07-01T07:00:00Z", true},
		{"in winter nine is eight", "Europe/Zurich", office, "2026-01-07T07:00:00Z", false},
		{"the hour that is skipped does not come, before", "Europe/Zurich", early, "2026-03-29T00:59:59Z", false},
		{"the hour that is skipped does not come, after", "Europe/Zurich", early, "2026-03-29T01:00:00Z", false},
		{"the hour that comes twice, first", "Europe/Zurich", early, "2026-10-25T00:30:00Z", true},
		{"the hour that comes twice, again", "Europe/Zurich", early, "2026-10-25T01:30:00Z", true},
		{"and then it is over", "Europe/Zurich", early, "2026-10-25T02:00:00Z", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			h := policy.Hours{Zone: tt.zone, Windows: []policy.Window{tt.window}, Now: func() time.Time { return at }}
			want := map[bool]policy.Stance{true: policy.StanceAllow, false: policy.StanceDeny}
			if got := stance(t, must(t)(policy.OnlyDuring(no, h)), policy.Request{}); got != want[tt.open] {
				t.Errorf("only then: %s", got)
			}
			if got := stance(t, must(t)(policy.NotDuring(no, h)), policy.Request{}); got != want[!tt.open] {
				t.Errorf("not then: %s", got)
			}
		})
	}
}

func TestHoursRefuse(t *testing.T) {
	day := []policy.Window{{From: "09:00", To: "17:00"}}
	for name, h := range map[string]policy.Hours{
		"no zone": {Windows: day}, "the machine's zone": {Zone: "Local", Windows: day}, "an unknown zone": {Zone: "Europe/Atlantis", Windows: day},
		"no hours":         {Zone: "UTC"},
		"no time":          {Zone: "UTC", Windows: []policy.Window{{From: "9", To: "17:00"}}},
		"one digit":        {Zone: "UTC", Windows: []policy.Window{{From: "9:00", To: "17:00"}}},
		"no such minute":   {Zone: "UTC", Windows: []policy.Window{{From: "09:60", To: "17:00"}}},
		"an empty stretch": {Zone: "UTC", Windows: []policy.Window{{From: "09:00", To: "09:00"}}},
		"from the end":     {Zone: "UTC", Windows: []policy.Window{{From: "24:00", To: "09:00"}}},
		"no such day":      {Zone: "UTC", Windows: []policy.Window{{Days: []time.Weekday{7}, From: "09:00", To: "17:00"}}},
	} {
		if _, err := policy.OnlyDuring(no, h); err == nil {
			t.Errorf("%s was accepted", name)
		}
		if _, err := policy.NotDuring(no, h); err == nil {
			t.Errorf("%s was accepted the other way round", name)
		}
	}
}
