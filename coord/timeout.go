package coord

import (
	"container/heap"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// tick does what is due; the cost is that of what is due, however many ids there are.
func (s *shard) tick() {
	s.mu.Lock()
	s.ticking = false
	s.mu.Unlock()
	if s.loading {
		return
	}
	now := s.c.clk.Mono()
	s.answerDue(now)
	for len(s.timers) > 0 && s.timers[0].at <= now {
		heap.Pop(&s.timers).(timer).fn()
	}
	if s.offline {
		return
	}
	for len(s.deadlines) > 0 && s.deadlines[0].deadline <= now {
		e := s.deadlines[0]
		s.disarm(e)
		s.due(e)
	}
	s.tickJournal()
}

// due ends an Ongoing transaction that ran out of time, or forgets an id nobody used.
func (s *shard) due(e *entry) {
	now := s.c.clk.Mono()
	switch {
	case e.t.pending != noState || e.held > 0:
		s.armAt(e, now+retryFirst)
	case e.ends > now:
		s.keep(e)
		s.armAt(e, min(e.ends, now+s.keepEvery(e)))
	case e.t.state == Ongoing:
		s.timeout(e)
	default:
		s.expire(e)
	}
}

// keepEvery is how much of its time an Ongoing transaction may lose to a process death.
func (s *shard) keepEvery(e *entry) time.Duration {
	return max(keepLeast, time.Duration(e.t.timeoutMs)*time.Millisecond/keepShare)
}

// keep writes the record of an Ongoing transaction again, for the time it has left: what a process that dies has not
// written down is given anew, and deaths in a row would prolong a transaction without an end.
func (s *shard) keep(e *entry) {
	if s.busy(e) {
		return // a newer record is on its way
	}
	rec := s.record(e.id, &e.t, (e.ends - s.c.clk.Mono()).Milliseconds())
	s.append([]Record{rec}, false, func(base int64, err error) {
		if err == nil && s.entries[e.id] == e {
			e.offset = base
			s.appended(e, base, recordSize(rec))
		}
	}, func(error) {})
}

func (s *shard) timeout(e *entry) {
	st := next(e.t, event{kind: evTimeout, tv: s.c.cfg.TV, nowMs: s.c.clk.Wall(), fresh: s.spare})
	failed := func() { s.armAt(e, s.c.clk.Mono()+retryMost) }
	if st.do&needPID != 0 {
		s.withPID(func(code *kerr.Error) {
			switch {
			case e.t.state != Ongoing || s.entries[e.id] != e:
				return // somebody else moved it meanwhile, and armed what is due next
			case e.t.pending != noState || e.held > 0:
				s.armAt(e, s.c.clk.Mono()+retryFirst) // a partition more, or a decision that may be refused yet
			case code != nil:
				failed()
			default:
				s.timeout(e)
			}
		})
		return
	}
	s.took(st)
	s.change(e, st, nothing, func(code *kerr.Error) {
		if code != nil {
			failed()
			return
		}
		s.aborted(ByTimeout)
		s.complete(e, false, nil)
	})
}

func (s *shard) expire(e *entry) {
	st := next(e.t, event{kind: evExpire, nowMs: s.c.clk.Wall(), fresh: -1})
	s.change(e, st, nothing, func(code *kerr.Error) {
		if code != nil {
			s.armAt(e, s.c.clk.Mono()+retryMost)
		}
	})
}

// full is the time a state has from its beginning, false if it has no end.
func (s *shard) full(t *txn) (time.Duration, bool) {
	switch {
	case t.state == Ongoing && t.timeoutMs != neverMs:
		return time.Duration(t.timeoutMs) * time.Millisecond, true
	case expirable(t.state):
		return time.Duration(s.c.cfg.IDExpireMs) * time.Millisecond, true
	}
	return 0, false
}

// arm sets the deadline of a state just entered from another; more partitions do not prolong a transaction.
func (s *shard) arm(e *entry, from State) {
	if from == Ongoing && e.t.state == Ongoing {
		return
	}
	s.armRemaining(e, -1)
}

// armRemaining sets the deadline of a state that has remainingMs left, the whole if -1.
func (s *shard) armRemaining(e *entry, remainingMs int64) {
	d, ends := s.full(&e.t)
	if !ends {
		s.disarm(e)
		return
	}
	if remainingMs >= 0 && remainingMs < d.Milliseconds() {
		d = time.Duration(remainingMs) * time.Millisecond
	}
	now := s.c.clk.Mono()
	if e.ends = now + d; e.t.state == Ongoing {
		d = min(d, s.keepEvery(e))
	}
	s.armAt(e, now+d)
}

// since takes off what has passed since a record was written, of which the clock on the wall is the only witness. It
// may have been set: an open transaction loses no more by it than it could have lost without a record, an id keeps the
// last eighth of its time.
func (s *shard) since(t *txn, remainingMs int64) int64 {
	d, ends := s.full(t)
	if !ends {
		return -1
	}
	most := d - d/keepShare
	if t.state == Ongoing {
		most = max(keepLeast, d/keepShare)
	}
	if remainingMs < 0 || remainingMs > d.Milliseconds() {
		remainingMs = d.Milliseconds()
	}
	if t.updateMs <= 0 {
		return remainingMs // it does not say when it was written
	}
	passed := min(max(s.c.clk.Wall()-t.updateMs, 0), most.Milliseconds())
	return max(remainingMs-passed, 0)
}

// remaining is what a record of e as it is now says about its time: milliseconds left, -1 if it has no end.
func (s *shard) remaining(e *entry) int64 {
	if e.slot < 0 {
		return -1
	}
	return max(0, (e.ends - s.c.clk.Mono()).Milliseconds())
}

// remainingOf is the same for the metadata e is about to get.
func (s *shard) remainingOf(e *entry, n *txn) int64 {
	if n.state == Ongoing && e.t.state == Ongoing {
		return s.remaining(e)
	}
	d, ends := s.full(n)
	if !ends {
		return -1
	}
	return d.Milliseconds()
}

func (s *shard) armAt(e *entry, at time.Duration) {
	e.deadline = at
	if e.slot < 0 {
		heap.Push(&s.deadlines, e)
		return
	}
	heap.Fix(&s.deadlines, e.slot)
}

func (s *shard) disarm(e *entry) {
	if e.slot >= 0 {
		heap.Remove(&s.deadlines, e.slot)
	}
}

// deadlineHeap holds the armed entries, the next one due first.
type deadlineHeap []*entry

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

// Push is heap.Interface's.
func (h *deadlineHeap) Push(x any) {
	e := x.(*entry)
	e.slot = len(*h)
	*h = append(*h, e)
}

// Pop is heap.Interface's.
func (h *deadlineHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.slot = -1
	*h = old[:len(old)-1]
	return e
}

// timer is something to be run by a tick.
type timer struct {
	at  time.Duration
	seq uint64 // of two at the same time the older one first
	fn  func()
}

type timerHeap []timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }

// Pop is heap.Interface's.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return t
}
