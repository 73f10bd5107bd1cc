package group

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// shard is one partition of __consumer_offsets: a queue of functions that run one after the other, and the state only
// they touch. Its goroutine is the owner of every field below the mark; with Config.Inline it is whoever runs the
// queue.
type shard struct {
	m  *Manager
	id int32

	ready  atomic.Bool  // replayed: requests are taken
	broken atomic.Bool  // the replay failed
	due    atomic.Int64 // Mono of the earliest timer in nanoseconds; MaxInt64: none

	mu    sync.Mutex
	queue []func()
	busy  bool          // Inline: somebody runs the queue
	ended bool          // the goroutine is gone, nothing runs any more
	wake  chan struct{} // capacity 1

	// Owned by the shard from here on.
	journal  Journal
	groups   map[string]*group
	timers   timerHeap
	timerSeq uint64
	inflight int  // appends whose done has not run
	closing  bool // what waits was answered, nothing new is taken
	offsetsShard
}

func newShard(m *Manager, id int32, j Journal) *shard {
	s := &shard{m: m, id: id, journal: j, groups: map[string]*group{}, wake: make(chan struct{}, 1)}
	s.due.Store(math.MaxInt64)
	return s
}

// post runs fn on the shard, after everything posted before. It may be called from anywhere, also from a function that
// runs on the shard. False: the shard has ended and fn will not run.
func (s *shard) post(fn func()) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	s.queue = append(s.queue, fn)
	if s.m.cfg.Inline {
		run := !s.busy
		s.busy = true
		s.mu.Unlock()
		if run {
			s.drain()
		}
		return true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// drain runs the queue until it is empty and gives it back.
func (s *shard) drain() {
	for {
		s.mu.Lock()
		batch := s.queue
		s.queue = nil
		if len(batch) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for _, fn := range batch {
			fn()
		}
	}
}

// loop is the goroutine of the shard. It ends when Close was called and no append is on its way.
func (s *shard) loop() {
	for range s.wake {
		s.drain()
		if s.closing && s.inflight == 0 {
			s.mu.Lock()
			s.ended = len(s.queue) == 0
			ended := s.ended
			s.mu.Unlock()
			if ended {
				return
			}
			s.drain()
		}
	}
}

// append writes recs as one plain batch. done runs on the shard once they are durable (code nil) or refused.
func (s *shard) append(recs []Record, done func(base int64, code *kerr.Error)) {
	s.appendTxn(recs, -1, -1, 0, func(base int64, code *kerr.Error, _ uint64) { done(base, code) })
}

// appendTxn is append for a batch of a transaction. A guard in done means that nothing was written: ask the
// coordinator, then append again with it.
func (s *shard) appendTxn(recs []Record, pid int64, epoch int16, guard uint64,
	done func(base int64, code *kerr.Error, guard uint64)) {
	s.inflight++
	if pid < 0 {
		s.appending(recs)
	}
	s.journal.Append(recs, pid, epoch, guard, func(base int64, err error) {
		s.post(func() {
			s.inflight--
			if pid < 0 {
				s.appended(base, recs, err)
			}
			code, guard := journalCode(err)
			done(base, code, guard)
		})
	})
}

// now is the monotonic time, for timers and timeouts.
func (s *shard) now() time.Duration { return s.m.clk.Mono() }

// wall is the time of day in milliseconds, for what is stored.
func (s *shard) wall() int64 { return s.m.clk.Wall() }

// timer is one call that is due later. It belongs to its shard.
type timer struct {
	at    time.Duration
	seq   uint64 // between equal times the older one fires first
	fn    func()
	index int // in the heap; -1: not armed
}

// after runs fn on the shard, d from now at the earliest and one Tick later at the latest.
func (s *shard) after(d time.Duration, fn func()) *timer {
	s.timerSeq++
	t := &timer{at: s.now() + d, seq: s.timerSeq, fn: fn}
	heap.Push(&s.timers, t)
	s.publishDue()
	return t
}

// stop disarms t; nil and a timer that has fired are fine.
func (s *shard) stop(t *timer) {
	if t == nil || t.index < 0 {
		return
	}
	heap.Remove(&s.timers, t.index)
	s.publishDue()
}

func (s *shard) publishDue() {
	if len(s.timers) == 0 {
		s.due.Store(math.MaxInt64)
		return
	}
	s.due.Store(int64(s.timers[0].at))
}

// fire runs the timers that are due.
func (s *shard) fire() {
	now := s.now()
	for len(s.timers) > 0 && s.timers[0].at <= now && !s.closing {
		t := heap.Pop(&s.timers).(*timer)
		s.publishDue()
		t.fn()
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
