package plog

import (
	"sync/atomic"

	"sekali/internal/check"
)

// Waiter is embedded by the caller, so that waiting allocates nothing. It belongs to the log from AfterDurable or
// AfterReadable until Fn has begun or a cancel has won; then it may be used again. Fn runs outside Log.mu, in the
// goroutine of whoever moved the watermark (or of the caller, if there is nothing to wait for); it must not block, nor
// call Close, Delete, DeleteBefore or Tick.
type Waiter struct {
	Fn         func(err error) // nil: reached; else why the log serves no more
	next, prev *Waiter
	on         *list
	at         int64
	state      atomic.Uint32
}

const (
	idle uint32 = iota
	armed
	done
)

// list is waiters in the order of what they wait for, the lowest first; equal ones in order of arrival. Its owner is
// the holder of Log.mu, or who detached it.
type list struct {
	first, last *Waiter
	n           int
}

// insert puts w behind the last waiter that waits for no more. Almost always that is the end of the list.
func (q *list) insert(w *Waiter) {
	after := q.last
	for after != nil && after.at > w.at {
		after = after.prev
	}
	w.on, w.prev = q, after
	if after == nil {
		w.next, q.first = q.first, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		q.last = w
	} else {
		w.next.prev = w
	}
	q.n++
}

// remove takes w out of the list it is on.
func (q *list) remove(w *Waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.on = nil, nil, nil
	q.n--
}

// push appends to a detached list, in which only next and n count.
func (q *list) push(w *Waiter) {
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.n++
}

// wake detaches the waiters of q that wait for at most reached; they are fired when mu is given back.
func (l *Log) wake(q *list, reached int64) {
	for w := q.first; w != nil && w.at <= reached; w = q.first {
		l.detach(q, w, &l.todo.fire)
	}
}

// detach takes w off q and claims it for to; under mu. Fire and cancel meet in the compare and swap: who loses it
// leaves the waiter alone.
func (l *Log) detach(q *list, w *Waiter, to *list) {
	q.remove(w)
	if !w.state.CompareAndSwap(armed, done) {
		return
	}
	to.push(w)
	l.todo.any = true
	if q == &l.waiting {
		l.todo.durable++
		l.o.Load.Waiting.Add(-1)
	}
}

// fireAll runs what was detached; outside mu. A waiter may be used again the moment its Fn runs.
func fireAll(q list, err error) {
	for w := q.first; w != nil; {
		next := w.next
		w.next = nil
		w.Fn(err)
		w = next
	}
}

// AfterDurable fires w once everything below end is durable (in written mode: written), at once if it is already. A
// duplicate waits here for its original (D3). The error of the log is given instead if it serves no more; what was
// written may be found by recovery then, so the answer to a client must not be a definite "not stored".
func (l *Log) AfterDurable(end int64, w *Waiter) {
	if l.down.Load() == nil && l.lim.high.Load() >= end {
		w.Fn(nil)
		return
	}
	l.mu.Lock()
	if d := l.down.Load(); d != nil {
		l.mu.Unlock()
		w.Fn(d.err)
		return
	}
	if l.lim.high.Load() >= end {
		l.mu.Unlock()
		w.Fn(nil)
		return
	}
	l.arm(&l.waiting, end, w)
	l.o.Load.Waiting.Add(1)
	l.mu.Unlock()
}

// AfterReadable fires w once the high watermark (committed: the stable offset) lies above an offset, at once if it
// does, or with the log's error. cancel takes it back: when it returns, Fn has run, is about to run, or never will. It
// may be called any number of times and from any goroutine, until w is armed again.
func (l *Log) AfterReadable(above int64, committed bool, w *Waiter) (cancel func()) {
	q, limit := &l.highWait, &l.lim.high
	if committed {
		q, limit = &l.stableWait, &l.lim.stable
	}
	l.mu.Lock()
	if d := l.down.Load(); d != nil || limit.Load() > above {
		l.mu.Unlock()
		if d != nil {
			w.Fn(d.err)
		} else {
			w.Fn(nil)
		}
		return func() {}
	}
	l.arm(q, above, w)
	l.mu.Unlock()
	return func() { l.cancel(w) }
}

func (l *Log) arm(q *list, at int64, w *Waiter) {
	check.That(w.state.Load() != armed && w.on == nil, "plog: waiter armed twice")
	w.at = at
	w.state.Store(armed)
	q.insert(w)
}

// cancel wins or loses the compare and swap against whoever fires w; the winner then takes it off its list.
func (l *Log) cancel(w *Waiter) (won bool) {
	if !w.state.CompareAndSwap(armed, done) {
		return false
	}
	l.mu.Lock()
	if w.on != nil {
		w.on.remove(w)
	}
	l.mu.Unlock()
	return true
}
