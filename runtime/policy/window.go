package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Window is a stretch of the day on some days of the week, by the clock on the
// wall. From is inside, To is not. A window whose To is not after its From ends
// on the next day and belongs to the day it begins on.
type Window struct {
	Days     []time.Weekday // none means every day
	From, To string         // "09:00"; To may be "24:00"
}

// Hours are windows in a time zone.
type Hours struct {
	// Zone is an IANA name, "Europe/Zurich" or "UTC". A name that the machine does
	// not know is an error when the policy is made.
	Zone    string
	Windows []Window
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// OnlyDuring gives the rule's answer outside the hours. What counts is the wall
// clock of the zone: when it is set back, the hour that comes twice counts
// twice, and an hour that is skipped does not come.
func OnlyDuring(r Rule, h Hours) (Policy, error) {
	c, err := h.compile()
	return r.build(err, func(Request) bool { return !c.open() })
}

// NotDuring gives the rule's answer within the hours.
func NotDuring(r Rule, h Hours) (Policy, error) {
	c, err := h.compile()
	return r.build(err, func(Request) bool { return c.open() })
}

// hours are Hours made ready; times are minutes of the day.
type hours struct {
	zone    *time.Location
	windows []window
	now     func() time.Time
}

type window struct {
	days     []time.Weekday
	from, to int
}

func (h Hours) compile() (hours, error) {
	c := hours{now: h.Now}
	if c.now == nil {
		c.now = time.Now
	}
	var faults []error
	if len(h.Windows) == 0 {
		faults = append(faults, errors.New("has no hours"))
	}
	if h.Zone == "" || h.Zone == "Local" {
		faults = append(faults, errors.New("names no time zone"))
	}
	var err error
	if c.zone, err = time.LoadLocation(h.Zone); err != nil {
		faults = append(faults, fmt.Errorf("time zone: %w", err))
	}
	for _, w := range h.Windows {
		m := window{days: slices.Clone(w.Days)}
		var err1, err2 error
		m.from, err1 = minute(w.From)
		m.to, err2 = minute(w.To)
		faults = append(faults, err1, err2)
		for _, d := range w.Days {
			if d < time.Sunday || d > time.Saturday {
				faults = append(faults, fmt.Errorf("there is no weekday %d", d))
			}
		}
		if m.from == 24*60 || (m.from == m.to && err1 == nil) {
			faults = append(faults, fmt.Errorf("from %s to %s is no stretch of time; a whole day is 00:00 to 24:00", w.From, w.To))
		}
		c.windows = append(c.windows, m)
	}
	return c, errors.Join(faults...)
}

// minute reads "hh:mm"; 24:00 is the end of the day.
func minute(s string) (int, error) {
	if s == "24:00" {
		return 24 * 60, nil
	}
	t, err := time.Parse("15:04", s)
	if err != nil || len(s) != len("15:04") {
		return 0, fmt.Errorf("%q is no time of day like 09:30", s)
	}
	return t.Hour()*60 + t.Minute(), nil
}

func (h hours) open() bool {
	now := h.now().In(h.zone)
	today, at := now.Weekday(), now.Hour()*60+now.Minute()
	yesterday := (today + 6) % 7
	return slices.ContainsFunc(h.windows, func(w window) bool {
		if w.from < w.to {
			return w.on(today) && w.from <= at && at < w.to
		}
		return (w.on(today) && at >= w.from) || (w.on(yesterday) && at < w.to)
	})
}

func (w window) on(d time.Weekday) bool { return len(w.days) == 0 || slices.Contains(w.days, d) }
