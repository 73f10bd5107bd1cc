package coord

import (
	"cmp"
	"container/heap"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/check"
)

// shard is one partition of the transaction log and the transactional ids in it. Everything below the run queue belongs
// to whoever runs the queue: one goroutine, or inline the caller of post.
type shard struct {
	c       *Coordinator
	index   int
	journal Journal
	epoch   int32 // coordinator epoch of this start

	mu      sync.Mutex
	queue   []func()
	idle    []func() // the other of two buffers
	running bool
	stopped bool
	wake    chan struct{}

	loading bool
	offline bool // a flush failed: what the log holds is known only after the next start
	ticking bool // a tick is in the queue; guarded by mu

	entries   map[string]*entry
	open      map[*entry]struct{} // Ongoing and Prepare*
	deadlines deadlineHeap
	timers    timerHeap
	timerSeq  uint64
	answers   []*completion // waiting EndTxn in the order of their deadlines
	asks      ask           // list head of requests not answered yet
	spare     int64         // a fresh producer id, -1: none

	rw rewriteState
}

// entry is a live transactional id. Owner: its shard.
type entry struct {
	id     string
	t      txn
	offset int64 // journal offset of its last record, -1: none
	flight int   // records on their way whose step is not installed
	held   int   // open transactions found at start that must be settled before the id moves on

	seq, durable uint64 // records written, records durable
	waits        []wait
	later        []func() // run when flight is 0 again
	behind       []func() // run when the decided transaction is complete

	ends     time.Duration // of the transaction or of the id, monotonic
	deadline time.Duration // when a tick looks at it next, at the end at the latest
	slot     int           // in the heap, -1: not armed

	comp *completion // markers under way

	link rewriteLink
}

// wait is something to be told when record seq of an entry is durable.
type wait struct {
	seq uint64
	fn  func(*kerr.Error)
}

func newShard(c *Coordinator, index int, j Journal) *shard {
	s := &shard{
		c: c, index: index, journal: j, loading: true, spare: -1, wake: make(chan struct{}, 1),
		entries: make(map[string]*entry), open: make(map[*entry]struct{}),
		rw: rewriteState{rounded: c.clk.Mono()},
	}
	s.asks.prev, s.asks.next = &s.asks, &s.asks
	if !c.cfg.Inline {
		c.wg.Go(s.run)
	}
	return s
}

func (s *shard) run() {
	for range s.wake {
		if s.drain() {
			return
		}
	}
}

// post puts fn at the end of the run queue, from any goroutine. False: the shard has stopped, fn will not run.
func (s *shard) post(fn func()) bool {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return false
	}
	s.queue = append(s.queue, fn)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		if s.c.cfg.Inline {
			s.drain()
		} else {
			s.wake <- struct{}{}
		}
	}
	return true
}

// drain runs the queue until it is empty and reports whether the shard has stopped. Only one runs at a time.
func (s *shard) drain() (stopped bool) {
	for {
		s.mu.Lock()
		q := s.queue
		if len(q) == 0 {
			s.running = false
			stopped = s.stopped
			s.mu.Unlock()
			return stopped
		}
		s.queue, s.idle = s.idle[:0], nil
		s.mu.Unlock()
		for i, fn := range q {
			q[i] = nil
			fn()
		}
		s.idle = q
	}
}

// stop refuses further posts and, behind what is in the queue, answers what waits with code; the goroutine ends. A
// request that has come in behind it still runs, and is refused: nothing it began would come back to the shard.
func (s *shard) stop(code *kerr.Error) {
	s.post(func() {
		s.offline = true
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		for s.asks.next != &s.asks {
			s.asks.next.refuse(code)
		}
	})
}

// ask is a request that is not answered yet. Owner: the shard.
type ask struct {
	fail       func(*kerr.Error)
	prev, next *ask
}

func (s *shard) newAsk(fail func(*kerr.Error)) *ask {
	a := &ask{fail: fail, prev: s.asks.prev, next: &s.asks}
	a.prev.next, a.next.prev = a, a
	return a
}

// close takes the request off the list; false: it was answered before.
func (a *ask) close() bool {
	if a.next == nil {
		return false
	}
	a.prev.next, a.next.prev = a.next, a.prev
	a.prev, a.next = nil, nil
	return true
}

func (a *ask) refuse(code *kerr.Error) {
	if a.close() {
		a.fail(code)
	}
}

// append hands records to the journal; both callbacks come back on the shard. A failed flush takes the shard offline
// before done hears of it.
func (s *shard) append(recs []Record, lazy bool, written func(base int64, err error), done func(error)) {
	var end int64
	s.journal.Append(recs, lazy,
		func(base int64, err error) {
			s.post(func() {
				end = base + int64(len(recs))
				written(base, err)
			})
		},
		func(err error) {
			s.post(func() {
				if err != nil {
					s.fail(err)
				} else {
					s.flushed(end)
				}
				done(err)
			})
		})
}

// fail refuses everything from now on: which of the records of the failed flush the disk holds, only a start can tell.
func (s *shard) fail(err error) {
	if s.offline {
		return
	}
	s.offline = true
	if s.c.cfg.Events.Failed != nil {
		s.c.cfg.Events.Failed(s.index, err)
	}
}

// refusal is the code for a request that arrives now, nil if it may go on.
func (s *shard) refusal() *kerr.Error {
	switch {
	case s.loading:
		return kerr.CoordinatorLoadInProgress
	case s.offline:
		return kerr.NotCoordinator
	}
	return nil
}

// journalCode maps the failure of an append (spec/transactions.md 5.0).
func journalCode(err error) *kerr.Error {
	switch {
	case errors.Is(err, ErrTooLarge):
		return kerr.MessageTooLarge
	case errors.Is(err, ErrClosed), errors.Is(err, ErrStorage):
		return kerr.NotCoordinator
	}
	return kerr.CoordinatorNotAvailable
}

// change performs a step that writes: it appends the record and installs the new metadata. written and done each run
// once on the shard, with nil or the code of a failure; written as soon as the record is in the log, done when it is
// durable. The caller has made sure that no other step of e is on its way.
func (s *shard) change(e *entry, st step, written, done func(*kerr.Error)) {
	check.That(e.flight == 0, "two transitions of one transactional id at once")
	before := e.t.pending
	if before == noState {
		e.t.pending = st.txn.state
	}
	e.flight++
	rec := Record{Key: encodeKey(e.id)}
	if st.do&tombstone == 0 {
		rec = s.record(e.id, &st.txn, s.remainingOf(e, &st.txn))
	}
	var seq uint64
	s.append([]Record{rec}, st.do&lazy != 0, func(base int64, err error) {
		if err != nil {
			s.refused(e, st, before)
			code := journalCode(err)
			written(code)
			done(code)
			s.settle(e)
			return
		}
		e.seq++
		seq = e.seq
		e.offset = base
		s.appended(e, base, recordSize(rec))
		if st.do&early != 0 {
			s.install(e, st)
		}
		written(nil)
		s.settle(e)
	}, func(err error) {
		if err != nil {
			done(kerr.NotCoordinator)
			s.tell(e, e.seq, kerr.NotCoordinator)
			s.abandon(e)
			return
		}
		if st.do&early == 0 {
			s.install(e, st)
		}
		e.durable = seq
		done(nil)
		s.tell(e, seq, nil)
		s.settle(e)
	})
}

// refused puts an entry back to where it was before a step whose record is not in the log.
func (s *shard) refused(e *entry, st step, before State) {
	e.flight--
	e.t.pending = before
	switch {
	case e.t.epoch == -1:
		s.unload(e.id) // created for this record alone
	case st.do&keepEpoch != 0:
		e.t.epoch, e.t.lastEpoch, e.t.fenceFailed = st.txn.epoch, st.txn.lastEpoch, true
	}
}

// install makes the metadata of a step the entry's.
func (s *shard) install(e *entry, st step) {
	e.flight--
	from := e.t.state
	if e.t.epoch == -1 {
		from = Dead
	}
	e.t = st.txn
	if st.do&tombstone != 0 {
		s.unload(e.id)
		s.forgot(e)
	} else {
		e.t.pending = afterInstall(e.t.state)
		s.sort(e)
		s.arm(e, from)
	}
	if s.c.cfg.Events.Moved != nil && from != st.txn.state {
		s.c.cfg.Events.Moved(from, st.txn.state)
	}
}

// afterInstall: a decided transaction has its completion pending from the start.
func afterInstall(state State) State {
	if state == PrepareCommit || state == PrepareAbort {
		return completed(state == PrepareCommit)
	}
	return noState
}

// sort keeps the set of open transactions.
func (s *shard) sort(e *entry) {
	switch e.t.state {
	case Ongoing, PrepareCommit, PrepareAbort:
		s.open[e] = struct{}{}
	default:
		delete(s.open, e)
	}
}

// settle runs what waited for the entry's records to be installed.
func (s *shard) settle(e *entry) {
	for e.flight == 0 && len(e.later) > 0 {
		fn := e.later[0]
		e.later = e.later[1:]
		fn()
	}
}

// abandon runs what waited for a step that is never installed, because its flush has failed. It finds the shard
// offline.
func (s *shard) abandon(e *entry) {
	later := e.later
	e.later = nil
	for _, fn := range later {
		fn()
	}
}

// whenDurable calls fn when every record of e that is in the log now is durable, at once if all are. The last one may
// be one that nobody has waited for so far.
func (s *shard) whenDurable(e *entry, fn func(*kerr.Error)) {
	switch {
	case e.durable == e.seq:
		fn(nil)
	case s.offline:
		fn(kerr.NotCoordinator)
	default:
		e.waits = append(e.waits, wait{e.seq, fn})
		s.journal.Flush()
	}
}

// tell answers the waits up to record seq.
func (s *shard) tell(e *entry, seq uint64, code *kerr.Error) {
	for len(e.waits) > 0 && e.waits[0].seq <= seq {
		fn := e.waits[0].fn
		e.waits = e.waits[1:]
		fn(code)
	}
}

// next decides about a request; an id that is held back does not move.
func (e *entry) next(ev event) step {
	if e.held > 0 {
		return refuse(e.t, kerr.ConcurrentTransactions)
	}
	return next(e.t, ev)
}

// busy reports whether a record of e is on its way whose step is not installed: the log's end then knows more than e.t.
func (s *shard) busy(e *entry) bool { return e.flight > 0 }

// load puts an id read from the journal or a snapshot in place, over what an earlier record said. remainingMs is that
// of the record, -1 if it has none. Only before live.
func (s *shard) load(id string, t txn, remainingMs, offset int64) *entry {
	e := s.entries[id]
	if e == nil {
		e = &entry{id: id, slot: -1}
		s.entries[id] = e
	}
	if !slices.IsSortedFunc(t.tps, compareTPs) {
		t.tps = sortTPs(t.tps)
	}
	if t.startMs == -1 && t.state != Empty {
		t.startMs = max(t.updateMs, 0) // Kafka writes none such; Complete must have one
	}
	t.pending, t.fenceFailed = afterInstall(t.state), false
	e.t, e.offset = t, offset
	s.sort(e)
	s.armRemaining(e, s.since(&t, remainingMs))
	if e.slot >= 0 && t.state == Ongoing {
		s.armAt(e, s.c.clk.Mono()) // written down anew by the first tick, however soon the next death comes
	}
	return e
}

// unload forgets an id, if it is there.
func (s *shard) unload(id string) {
	if e := s.entries[id]; e != nil {
		delete(s.entries, id)
		delete(s.open, e)
		s.disarm(e)
	}
}

// live ends the loading: requests are served, and every decided transaction sends all its markers again. It may be
// called from any goroutine, once.
func (s *shard) live() {
	s.post(func() {
		s.loading = false
		for _, e := range s.opened() {
			if e.t.state != Ongoing && e.comp == nil {
				s.complete(e, true, nil)
			}
		}
	})
}

// opened are the open transactions by id: the order must not depend on a map, or a simulated run could not be repeated.
func (s *shard) opened() []*entry {
	es := make([]*entry, 0, len(s.open))
	for e := range s.open {
		es = append(es, e)
	}
	slices.SortFunc(es, func(a, b *entry) int { return cmp.Compare(a.id, b.id) })
	return es
}

// withPID makes sure that a fresh producer id lies in s.spare and then calls fn, at once if it can; with a code when
// none could be reserved. A shard never waits for the disk, except inline.
func (s *shard) withPID(fn func(*kerr.Error)) {
	for s.spare < 0 {
		id, pending, err := s.c.ids.take()
		switch {
		case err != nil:
			fn(kerr.CoordinatorLoadInProgress)
			return
		case pending == nil:
			s.spare = id
		case s.c.cfg.Inline:
			<-pending.done
			if pending.err != nil {
				fn(kerr.CoordinatorLoadInProgress)
				return
			}
		default:
			s.c.wg.Go(func() {
				<-pending.done
				s.post(func() {
					if pending.err != nil {
						fn(kerr.CoordinatorLoadInProgress)
						return
					}
					s.withPID(fn)
				})
			})
			return
		}
	}
	fn(nil)
}

// took marks the spare producer id as used if the step took it.
func (s *shard) took(st step) {
	if st.do&usedPID != 0 {
		s.spare = -1
	}
}

// after runs fn on the shard at the first tick that is d from now or later.
func (s *shard) after(d time.Duration, fn func()) {
	s.timerSeq++
	heap.Push(&s.timers, timer{s.c.clk.Mono() + d, s.timerSeq, fn})
}
