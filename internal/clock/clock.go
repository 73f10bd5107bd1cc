// Package clock is the only source of time of the program: wall time for what people see, monotonic time for
// everything that is measured or waited for. A jump of the wall clock therefore changes record stamps and
// retention, nothing else.
package clock

import (
	"time"
)

// Clock tells time. All methods may be called from any goroutine at any moment.
type Clock interface {
	// Wall is the time of day in milliseconds since 1970 UTC. It may jump, also backwards; it is for record stamps and
	// retention only.
	Wall() int64
	// Mono is the time since the clock was made; it never goes back. Every timeout, expiry, deadline and latency uses it.
	Mono() time.Duration
	// AfterFunc runs fn once, d from now (at once if d <= 0), in a goroutine that is not the caller's. fn must not block
	// for long.
	AfterFunc(d time.Duration, fn func()) Timer
}

// Timer is one pending AfterFunc. Its methods may be called from any goroutine, also from fn.
type Timer interface {
	// Stop reports whether it kept fn from running. False: fn has run, is running or was stopped before.
	Stop() bool
	// Reset arms the timer anew, d from now, whether or not it has fired. A run of fn that has begun is not undone.
	Reset(d time.Duration)
}

type realClock struct{ start time.Time }

// Real is the clock of the machine. A process makes one and hands it down: two of them disagree about Mono.
func Real() Clock { return &realClock{start: time.Now()} }

func (c *realClock) Wall() int64         { return time.Now().UnixMilli() }
func (c *realClock) Mono() time.Duration { return time.Since(c.start) }
func (c *realClock) AfterFunc(d time.Duration, fn func()) Timer {
	return realTimer{time.AfterFunc(d, fn)}
}

type realTimer struct{ t *time.Timer }

func (t realTimer) Stop() bool            { return t.t.Stop() }
func (t realTimer) Reset(d time.Duration) { t.t.Reset(d) }

// Sleep returns d later by clock c; under a simulated clock when somebody has advanced it that far. It must not be
// called from a timer's function.
func Sleep(c Clock, d time.Duration) {
	done := make(chan struct{})
	c.AfterFunc(d, func() { close(done) })
	<-done
}

// Simulated reports whether c is a Sim: whoever would wait for a short moment to gather work does not wait then,
// because nobody would advance the clock meanwhile.
func Simulated(c Clock) bool {
	_, ok := c.(*Sim)
	return ok
}
