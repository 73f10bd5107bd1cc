package coord

import (
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/check"
)

// TopicsDeleted takes the partitions of deleted topics out of every transaction, decided ones too, and calls done once,
// when that is durable or with the first failure; then it may be called again. To be called before the partitions are
// closed (spec/on-disk.md 9). Journals that are not loaded need nothing: their markers find the topic gone.
func (c *Coordinator) TopicsDeleted(ids [][16]byte, done func(error)) {
	gone := make(map[[16]byte]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	shards := c.all()
	if c.closed.Load() {
		done(ErrClosed)
		return
	}
	var left atomic.Int64
	var failure atomic.Pointer[error]
	left.Store(int64(len(shards)) + 1)
	one := func(err error) {
		if err != nil {
			failure.CompareAndSwap(nil, &err)
		}
		if left.Add(-1) > 0 {
			return
		}
		if p := failure.Load(); p != nil {
			done(fmt.Errorf("drop the partitions of deleted topics: %w", *p))
			return
		}
		done(nil)
	}
	for _, s := range shards {
		if !s.post(func() { s.dropTopics(gone, one) }) {
			one(ErrClosed)
		}
	}
	one(nil)
}

// dropTopics does it for one shard.
func (s *shard) dropTopics(gone map[[16]byte]bool, done func(error)) {
	switch {
	case s.loading:
		done(nil)
		return
	case s.offline:
		done(ErrStorage)
		return
	}
	left := 1
	var failure error
	one := func(code *kerr.Error) {
		if code != nil && failure == nil {
			failure = code
		}
		if left--; left == 0 {
			done(failure)
		}
	}
	for _, e := range s.opened() {
		left++
		a := s.newAsk(one)
		s.drop(e, gone, func(code *kerr.Error) {
			if a.close() {
				one(code)
			}
		})
	}
	one(nil)
}

// drop does it for one id, behind the record that is on its way, if any.
func (s *shard) drop(e *entry, gone map[[16]byte]bool, done func(*kerr.Error)) {
	if s.offline {
		done(kerr.NotCoordinator)
		return
	}
	if s.busy(e) {
		e.later = append(e.later, func() { s.drop(e, gone, done) })
		return
	}
	st := next(e.t, event{kind: evDrop, gone: gone, nowMs: s.c.clk.Wall(), fresh: -1})
	if st.do&write == 0 {
		s.whenDurable(e, done)
		return
	}
	s.change(e, st, func(code *kerr.Error) {
		comp := e.comp
		if code != nil || comp == nil || comp.finishing {
			return
		}
		for tp := range comp.waiting {
			if gone[tp.ID] {
				delete(comp.waiting, tp)
			}
		}
		if len(comp.waiting) == 0 {
			s.finish(comp, 0)
		}
	}, done)
}

// register adds a partition in which an open transaction of e was found at start (spec/transactions.md 8): to a decided
// one, whose markers are not sent yet, in memory; to an Ongoing one, or as the beginning of one, durably. To be called
// on the shard, before live.
func (s *shard) register(e *entry, tp TP, done func(error)) {
	if e.t.state == PrepareCommit || e.t.state == PrepareAbort {
		check.That(e.comp == nil, "a participant was found after the markers were sent")
		e.t.tps = union(e.t.tps, []TP{tp})
		done(nil)
		return
	}
	if s.busy(e) {
		e.later = append(e.later, func() { s.register(e, tp, done) })
		return
	}
	st := next(e.t, event{
		kind: evAdd, pid: e.t.pid, epoch: e.t.epoch, tv: 2, tps: []TP{tp}, nowMs: s.c.clk.Wall(), fresh: -1,
	})
	finish := func(code *kerr.Error) {
		if code != nil {
			done(fmt.Errorf("register %s-%d of %q: %w", tp.Topic, tp.Partition, e.id, code))
			return
		}
		done(nil)
	}
	if st.do&write == 0 {
		s.whenDurable(e, finish)
		return
	}
	s.change(e, st, nothing, finish)
}
