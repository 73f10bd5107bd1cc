package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Sim is a clock that stands still until Advance moves it. It is for tests of every package and for the simulator:
// equal calls give equal runs. All methods may be called from any goroutine; timer functions run one after the
// other in the goroutine that calls Advance, without any lock of the clock held.
type Sim struct {
	turn sync.Mutex // one Advance at a time

	mu   sync.Mutex
	now  time.Duration
	wall int64 // wall milliseconds at Mono 0
	seq  uint64
	q    simQueue
}

// NewSim makes a clock with Mono 0 and the given wall time in milliseconds.
func NewSim(wallMs int64) *Sim { return &Sim{wall: wallMs} }

// Wall is the simulated time of day in milliseconds.
func (s *Sim) Wall() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wall + s.now.Milliseconds()
}

// Mono is the sum of all advances.
func (s *Sim) Mono() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// SetWall makes the wall clock jump to ms, as an administrator or a time server does; monotonic time and timers are
// not affected.
func (s *Sim) SetWall(ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wall = ms - s.now.Milliseconds()
}

// AfterFunc arms a timer. One that is due already (d <= 0) fires in the next Advance, which may be Advance(0).
func (s *Sim) AfterFunc(d time.Duration, fn func()) Timer {
	t := &simTimer{s: s, fn: fn, at: -1}
	t.Reset(d)
	return t
}

// Advance moves time forward by d and runs the functions of all timers that fall due, in the order of their
// deadlines, equal deadlines in the order they were armed; while one runs, Mono is its deadline (never before the
// present). Timers armed meanwhile run too if they fall due by then. It must not be called from a timer's function.
func (s *Sim) Advance(d time.Duration) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	end := s.now + max(d, 0)
	for len(s.q) > 0 && s.q[0].deadline <= end {
		t := heap.Pop(&s.q).(*simTimer)
		s.now = max(s.now, t.deadline)
		s.mu.Unlock()
		t.fn()
		s.mu.Lock()
	}
	s.now = end
	s.mu.Unlock()
}

// Next is the monotonic deadline of the timer that fires next; false if none is armed. A test that advances to it
// again and again runs a program at full speed.
func (s *Sim) Next() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.q) == 0 {
		return 0, false
	}
	return s.q[0].deadline, true
}

// Pending is the number of armed timers.
func (s *Sim) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.q)
}

// simTimer belongs to its Sim; all fields but fn are under Sim.mu.
type simTimer struct {
	s        *Sim
	fn       func()
	deadline time.Duration
	seq      uint64
	at       int // place in the queue, -1 if not armed
}

func (t *simTimer) Stop() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.at < 0 {
		return false
	}
	heap.Remove(&t.s.q, t.at)
	return true
}

func (t *simTimer) Reset(d time.Duration) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.at >= 0 {
		heap.Remove(&s.q, t.at)
	}
	s.seq++
	t.deadline, t.seq = s.now+max(d, 0), s.seq
	heap.Push(&s.q, t)
}

type simQueue []*simTimer

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	if q[i].deadline != q[j].deadline {
		return q[i].deadline < q[j].deadline
	}
	return q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *simQueue) Push(x any) {
	t := x.(*simTimer)
	t.at = len(*q)
	*q = append(*q, t)
}
func (q *simQueue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	t.at = -1
	return t
}
