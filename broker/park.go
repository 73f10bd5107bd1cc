package broker

import (
	"sync/atomic"

	"sekali/internal/clock"
	"sekali/plog"
)

// parking is one wait of a Fetch: for any of its partitions to move, or for its time to be up. A waiter that lost its
// cancellation may still be about to run, so a parking is never used again.
type parking struct {
	c       *conn
	woken   atomic.Bool
	waiters []plog.Waiter
	cancels []func()
	timer   clock.Timer
}

// parkings counts the partitions of all parked fetches of a server. Any goroutine may use it.
type parkings struct{ parts atomic.Int64 }

// enter reports whether n more partitions may be waited for; they then have to leave once.
func (k *parkings) enter(n int) bool {
	if k.parts.Add(int64(n)) <= parkedPartsMax {
		return true
	}
	k.leave(n)
	return false
}

func (k *parkings) leave(n int) { k.parts.Add(-int64(n)) }

// wait parks the fetch: it wakes when what partition i lets its readers see passes above[i]. The caller holds the
// execution turn and looks at parked fetches again before it gives the turn back, so no wake is lost.
func (f *fetch) wait(above []int64) {
	k := &parking{c: f.c, waiters: make([]plog.Waiter, len(above)), cancels: make([]func(), 0, len(above))}
	f.park = k
	f.c.mu.Lock()
	f.c.parked = f
	f.c.mu.Unlock()
	fn := k.moved
	for i := range above {
		k.waiters[i].Fn = fn
		k.cancels = append(k.cancels, f.parts[i].log.AfterReadable(above[i], f.committed, &k.waiters[i]))
		if k.woken.Load() {
			break
		}
	}
	k.timer = f.c.s.clk.AfterFunc(f.ends-f.c.s.clk.Mono(), k.wake)
}

// moved is a waiter's function: it marks and leaves. An error means that the log is gone; reading again tells.
func (k *parking) moved(error) { k.wake() }

func (k *parking) wake() {
	k.woken.Store(true)
	k.c.signal()
}

// end cancels what is left of the wait.
func (k *parking) end() {
	for _, cancel := range k.cancels {
		cancel()
	}
	k.timer.Stop()
	k.c.s.parkings.leave(len(k.waiters))
}

// due reports that a parked fetch has to be looked at: something moved, its time is up, or the connection drains.
func (f *fetch) due() bool { return f.park.woken.Load() || f.c.draining.Load() }

// resume reads again: what was read before parking is not used. Under the execution turn.
func (f *fetch) resume() {
	f.park.end()
	f.park = nil
	f.attempt()
}

// abandon ends the wait of a client that went away.
func (f *fetch) abandon() {
	f.park.end()
	f.release()
}
