// Package buf keeps byte buffers for reuse and guards one budget of bytes in flight. The two are apart on purpose:
// what a request is charged (Acquire) is what it may come to need, decided before a byte of it is read; the buffers
// it fills (Get, Grow) follow the bytes that really arrive. Charging everything at once, in the order of asking,
// cannot deadlock; charging while growing could.
package buf

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"sekali/internal/check"
)

// Pool hands out buffers of size classes and the byte budget. It owns its lists and its queue; every method may be
// called from any goroutine. A full budget makes Acquire wait, which is the back-pressure: who waits does not read
// its socket.
type Pool struct {
	idle  atomic.Int64 // bytes of buffers that lie unused in the lists
	keep  int64        // upper limit of idle
	lists [classes]list

	mu     sync.Mutex
	budget int64
	used   int64
	first  *waiter // in order of arrival
	last   *waiter
	queued int
}

type list struct {
	mu sync.Mutex
	b  [][]byte
}

type waiter struct {
	n          int64
	granted    bool // under Pool.mu
	ready      chan struct{}
	prev, next *waiter
}

// New makes a pool with a budget of bytes in flight. Unused buffers are kept up to a quarter of the budget. A
// budget below one byte is taken as one byte.
func New(budget int64) *Pool {
	budget = max(budget, 1)
	return &Pool{budget: budget, keep: budget / 4}
}

// Acquire takes n bytes from the budget and waits in order of arrival until they are free. A request of more than the
// whole budget is granted the whole of it, so that it can run alone. charged is what must be given to Release exactly
// once; with an error, which is ctx's cause, nothing is charged. n <= 0 charges nothing.
func (p *Pool) Acquire(ctx context.Context, n int64) (charged int64, err error) {
	n = min(n, p.budget)
	if n <= 0 {
		return 0, nil
	}
	p.mu.Lock()
	if p.first == nil && p.used+n <= p.budget {
		p.used += n
		p.mu.Unlock()
		return n, nil
	}
	if ctx.Err() != nil {
		p.mu.Unlock()
		return 0, context.Cause(ctx)
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	p.push(w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return n, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	granted := w.granted
	if !granted {
		p.unlink(w)
		p.grant() // a smaller one behind may fit now
	}
	p.mu.Unlock()
	if granted {
		return n, nil
	}
	return 0, context.Cause(ctx)
}

// TryAcquire is Acquire without waiting: false if the bytes are not free now or others wait for theirs.
func (p *Pool) TryAcquire(n int64) (charged int64, ok bool) {
	n = min(n, p.budget)
	if n <= 0 {
		return 0, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil || p.used+n > p.budget {
		return 0, false
	}
	p.used += n
	return n, true
}

// Release gives back what Acquire or TryAcquire charged, in one or several parts.
func (p *Pool) Release(charged int64) {
	if charged <= 0 {
		return
	}
	p.mu.Lock()
	p.used -= charged
	used := p.used
	p.grant()
	p.mu.Unlock()
	check.AtMost(0, used, "buf: more released than acquired")
}

// grant lets waiters in, in order, as far as the budget goes; under mu.
func (p *Pool) grant() {
	for w := p.first; w != nil && p.used+w.n <= p.budget; w = p.first {
		p.used += w.n
		p.unlink(w)
		w.granted = true
		close(w.ready)
	}
}

func (p *Pool) push(w *waiter) {
	w.prev = p.last
	if p.last != nil {
		p.last.next = w
	} else {
		p.first = w
	}
	p.last = w
	p.queued++
}

func (p *Pool) unlink(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		p.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		p.last = w.prev
	}
	w.prev, w.next = nil, nil
	p.queued--
}

// Usage is a snapshot for metrics, in bytes except Waiting.
type Usage struct {
	Budget, InFlight, Idle int64
	Waiting                int // callers inside Acquire
}

// Usage reads the figures of the pool.
func (p *Pool) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Usage{Budget: p.budget, InFlight: p.used, Idle: p.idle.Load(), Waiting: p.queued}
}

// Get returns a buffer of length n whose content is arbitrary and whose capacity is that of its class. It belongs
// to the caller until Put; one that is never put back is collected like any slice.
func (p *Pool) Get(n int) []byte {
	c := classOf(n)
	if c < 0 {
		return make([]byte, n)
	}
	size := classSize(c)
	l := &p.lists[c]
	l.mu.Lock()
	if k := len(l.b); k > 0 {
		b := l.b[k-1]
		l.b[k-1] = nil
		l.b = l.b[:k-1]
		l.mu.Unlock()
		p.idle.Add(-int64(size))
		return b[:n]
	}
	l.mu.Unlock()
	return make([]byte, n, size)
}

// Grow returns a buffer of the same length and content with room for at least n bytes in all: b itself if its capacity
// suffices, else a larger one, b being put back. The caller goes on with the result alone.
func (p *Pool) Grow(b []byte, n int) []byte {
	if n <= cap(b) {
		return b
	}
	nb := p.Get(n)[:len(b)]
	copy(nb, b)
	p.Put(b)
	return nb
}

// Put gives back a buffer made by Get or Grow, resliced from its beginning at most; the caller must not touch it
// again, nor may any slice of it be in use. A foreign slice, or one too many, is left to the collector. With
// check.Costly the bytes are overwritten, so that a use after Put shows, to the race detector too.
func (p *Pool) Put(b []byte) {
	c := classOf(cap(b))
	if c < 0 || classSize(c) != cap(b) {
		return
	}
	b = b[:cap(b)]
	if check.Costly {
		for i := range b {
			b[i] = poison
		}
	}
	size := int64(len(b))
	if p.idle.Add(size) > p.keep {
		p.idle.Add(-size)
		return
	}
	l := &p.lists[c]
	l.mu.Lock()
	full := len(l.b) >= idlePerList
	if !full {
		l.b = append(l.b, b)
	}
	l.mu.Unlock()
	if full {
		p.idle.Add(-size)
	}
}

const poison = 0xDB

// Trim lets go of all unused buffers, for a process that has become idle.
func (p *Pool) Trim() {
	for c := range p.lists {
		l := &p.lists[c]
		l.mu.Lock()
		n := len(l.b)
		l.b = nil
		l.mu.Unlock()
		p.idle.Add(-int64(n) * int64(classSize(c)))
	}
}

// classOf is the smallest class that holds n bytes, -1 if there is none.
func classOf(n int) int {
	if n > classMax {
		return -1
	}
	if n <= classMin {
		return 0
	}
	d := bits.Len(uint(n-1)) - bits.Len(uint(classMin)) // n lies in (classMin<<d, classMin<<(d+1)]
	step := classMin << d / perDoubling
	return d*perDoubling + (n-classMin<<d+step-1)/step
}

// classSize is the capacity of the buffers of class c in bytes.
func classSize(c int) int {
	d, q := c/perDoubling, c%perDoubling
	return classMin<<d + q*(classMin<<d/perDoubling)
}
