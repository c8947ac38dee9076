package demo

import (
	"fmt"
	"strconv"
	"time"
)

// checks counts what was as promised and prints what was not.
type checks struct {
	to     *transcript
	passed int
	failed int
}

// done records a check that waiting for something has passed.
func (c *checks) done(what string) { c.that(true, what, "", "") }

// that records one check; want and seen are for a person.
func (c *checks) that(ok bool, what, want, seen string) {
	if ok {
		c.passed++
		c.to.line(1, "✓ "+what)
		return
	}
	c.failed++
	c.to.line(1, "✗ "+what)
	c.to.line(2, "expected: "+want)
	c.to.line(2, "seen:     "+seen)
}

// equal is that for two texts.
func (c *checks) equal(what, want, seen string) {
	c.that(want == seen, what, strconv.Quote(want), strconv.Quote(seen))
}

// figures compares speed and memory with what is promised. Machines differ, so
// only a gross excess is a fault.
func (c *checks) figures(b *bot) {
	within := func(what string, ok, promised bool, limit, seen string) {
		if ok && !promised {
			what += ", beyond the promise"
		}
		c.that(ok, what, "at most "+limit, seen)
	}
	within("the bot was ready soon after its start", b.ready <= slowMachine*readyPromise, b.ready <= readyPromise,
		(slowMachine * readyPromise).String(), b.ready.Round(time.Millisecond).String())
	if b.memory > 0 {
		within("the bot's memory is small", b.memory <= slowMachine*memoryPromise, b.memory <= memoryPromise,
			mebibytes(slowMachine*memoryPromise), mebibytes(b.memory))
	}
}

// verdict is nil if nothing differed.
func (c *checks) verdict() error {
	if c.failed > 0 {
		return fmt.Errorf("%d of %d checks: %w", c.failed, c.failed+c.passed, ErrDifference)
	}
	return nil
}
