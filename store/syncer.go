package store

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sekali/internal/clock"
)

// States of part.flag. An appender moves idle to queued and puts the part into the queue, or queued to again; the
// syncer stores queued before it looks at the log, and after the flush moves queued to idle. If that fails,
// something was appended since it looked, and the part goes back into the queue: no wake-up is lost and a part is
// in one round at a time.
const (
	idle uint32 = iota
	queued
	again
)

// syncer flushes the logs of one device in rounds (design: group commit). The goroutine of run owns the rounds; turn
// lends one to whoever must flush parts that nobody can see yet, and keeps a log out while it is taken away.
type syncer struct {
	s       *Store
	written bool // durability=written: an append wakes nobody, kick does
	workers int

	mu    sync.Mutex // queue
	queue []*part
	lazy  []*part       // to be marked by the next Tick
	wake  chan struct{} // of one place

	turn  sync.Mutex
	batch []*part // of the round
	bad   uint64  // SyncAlls that failed
	next  atomic.Int64
	fired atomic.Int64
	work  chan struct{}
	ended sync.WaitGroup

	crowds [crowdRounds]int64 // of each of the last rounds: waiters it fired, and those there were when it ended
	number int                // of the next round
	mean   time.Duration      // of the flushes of a round, moving

	expected, arrived atomic.Int64 // Expect, and its ends
}

func newSyncer(s *Store) *syncer {
	n := s.c.Syncers
	if n <= 0 {
		n = syncersDefault
	}
	return &syncer{s: s, written: s.c.Written, workers: n, wake: make(chan struct{}, 1), work: make(chan struct{}, n)}
}

// start runs the helpers, which flush beside whoever runs a round. They end when work is closed.
func (y *syncer) start(loops *sync.WaitGroup) {
	for range y.workers - 1 {
		loops.Go(func() {
			for range y.work {
				y.drain()
				y.ended.Done()
			}
		})
	}
}

// run does rounds until stop is closed.
func (y *syncer) run(stop <-chan struct{}) {
	for {
		select {
		case <-y.wake:
			y.rounds()
		case <-stop:
			return
		}
	}
}

// mark says that a log has something to flush. Any goroutine, after the write is published.
func (y *syncer) mark(p *part) {
	for {
		switch p.flag.Load() {
		case idle:
			if p.flag.CompareAndSwap(idle, queued) {
				y.push(p)
				return
			}
		case queued:
			if p.flag.CompareAndSwap(queued, again) {
				return
			}
		default:
			return
		}
	}
}

// later says that a log has something to flush that nobody waits for: the next Tick marks it. If another append marks
// it before, that round takes it along, and the one of the Tick finds nothing to do.
func (y *syncer) later(p *part) {
	if p.lazy.CompareAndSwap(false, true) {
		y.mu.Lock()
		y.lazy = append(y.lazy, p)
		y.mu.Unlock()
	}
}

// due marks what was put off. A part leaves the list before it is marked, so that an append from now on comes back.
func (y *syncer) due() {
	y.mu.Lock()
	parts := y.lazy
	y.lazy = nil
	y.mu.Unlock()
	for _, p := range parts {
		p.lazy.Store(false)
		y.mark(p)
	}
}

func (y *syncer) push(p *part) {
	y.mu.Lock()
	y.queue = append(y.queue, p)
	y.mu.Unlock()
	if !y.written {
		y.kick()
	}
}

// kick starts a round over what is queued.
func (y *syncer) kick() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

// gather waits, yielding, until about as many appenders wait as each of the last rounds had, so that half a crowd does
// not miss the round, and until those have appended who were expected to when it began. It takes a part of a flush at
// the most. A lone writer never waits, nor does one that appends to several logs in turn; and nobody does under a
// simulated clock.
func (y *syncer) gather() {
	clk := y.s.c.Clock
	if clock.Simulated(clk) {
		return
	}
	y.turn.Lock()
	want, mean := slices.Min(y.crowds[:]), y.mean
	y.turn.Unlock()
	began, coming := clk.Mono(), y.expected.Load()
	for y.s.load.Bytes.Load() < gatherBytesMax {
		waited := clk.Mono() - began
		crowd := want > 1 && y.s.load.Waiting.Load() < want && waited < mean/gatherShare
		late := y.arrived.Load() < coming && waited < mean/expectShare
		if !crowd && !late {
			return
		}
		runtime.Gosched()
	}
}

// Expect announces an append that follows within microseconds on one that was or is about to be made, so that both
// share a commit round: one that has not begun waits for it, a part of a flush at the most. Every Expect is followed by
// one Arrived, from any goroutine, when the append was made or will not be.
func (s *Store) Expect() { s.sync.expected.Add(1) }

// Arrived ends an Expect.
func (s *Store) Arrived() { s.sync.arrived.Add(1) }

// rounds does one round after the other until nothing is queued; in written mode one.
func (y *syncer) rounds() {
	for {
		y.gather()
		y.turn.Lock()
		y.take()
		n := len(y.batch)
		if n > 0 {
			_ = y.round(y.s.c.SyncFS && n > 1) // told by the logs that go offline
		}
		y.turn.Unlock()
		if n == 0 || y.written {
			return
		}
	}
}

// take moves the queue into the batch, each part once, without those that are to be left alone.
func (y *syncer) take() {
	y.mu.Lock()
	y.batch, y.queue = y.queue, y.batch[:0]
	y.mu.Unlock()
	kept := y.batch[:0]
	for _, p := range y.batch {
		if !p.picked && !p.out.Load() {
			p.picked = true
			kept = append(kept, p)
		}
	}
	clear(y.batch[len(kept):])
	y.batch = kept
}

// flush does a round over parts that no appender can reach yet, and returns when they are flushed or offline. With
// whole, one SyncAll takes the place of the flushes and covers directories and other files too; its error is
// returned.
func (y *syncer) flush(parts []*part, whole bool) error {
	y.turn.Lock()
	defer y.turn.Unlock()
	y.batch = append(y.batch[:0], parts...)
	return y.round(whole)
}

// keepOut takes parts out of the rounds; when it returns none of them is in one.
func (y *syncer) keepOut(parts ...*part) {
	for _, p := range parts {
		p.out.Store(true)
	}
	y.turn.Lock() // a round that has them ends first
	defer y.turn.Unlock()
}

// bringBack lets a part with a new log, flushed and still invisible, into the rounds again. If an appender of the
// old log has left it in the queue it may stand there twice; take sees to that.
func (y *syncer) bringBack(p *part) {
	p.flag.Store(idle)
	p.out.Store(false)
}

// round is one commit round over the batch: a look at every log, write-back on all, then the flushes, each log
// published as its own returns. A failed flush takes its own log offline and no other (I15).
func (y *syncer) round(whole bool) (err error) {
	for _, p := range y.batch {
		p.flag.Store(queued)
		p.since = y.bad
		p.log.Load().BeginSync(&p.round)
	}
	for _, p := range y.batch {
		p.begun = nil
		if len(y.batch) > 1 { // alone it would only be a call more before the flush
			p.begun = p.round.StartWrite()
		}
	}
	began := y.s.c.Clock.Mono()
	y.fired.Store(0)
	if whole {
		err = y.endCovered()
	}
	y.flushAll()
	y.mean += (y.s.c.Clock.Mono() - began - y.mean) >> flushMeanShift
	y.crowds[y.number%crowdRounds] = y.fired.Load() + y.s.load.Waiting.Load()
	y.number++
	clear(y.batch)
	y.batch = y.batch[:0]
	return err
}

// endCovered flushes the whole file system and ends the logs that it covers. A SyncAll that failed covers none:
// each file's own flush tells whose error it was. That holds for files outside this round too, whose pages it may
// have lost without a later SyncAll saying so: a log is covered only if a round of its own flush has begun and ended
// since the last failure. A round that was under way says nothing of what was appended after it began.
func (y *syncer) endCovered() error {
	if err := y.s.c.FS.SyncAll(y.s.c.Dir); err != nil {
		y.bad++
		return err
	}
	for i, p := range y.batch {
		if p.trusted == y.bad {
			y.end(p, p.begun)
			y.batch[i] = nil
		}
	}
	return nil
}

// flushAll shares what is left of the batch among the helpers and the caller.
func (y *syncer) flushAll() {
	y.next.Store(0)
	helpers := max(min(len(y.batch), y.workers)-1, 0)
	y.ended.Add(helpers)
	for range helpers {
		y.work <- struct{}{}
	}
	y.drain()
	y.ended.Wait()
}

func (y *syncer) drain() {
	for {
		i := int(y.next.Add(1)) - 1
		if i >= len(y.batch) {
			return
		}
		p := y.batch[i]
		if p == nil {
			continue
		}
		err := p.begun
		if err == nil && !p.round.Empty() {
			err = p.round.Datasync()
		}
		p.trusted = p.since
		y.end(p, err)
	}
}

// end publishes a log's part of the round and gives the part back.
func (y *syncer) end(p *part, err error) {
	end := p.round.End
	l := p.log.Load()
	y.fired.Add(int64(l.EndSync(&p.round, err)))
	if err == nil && l.Err() == nil {
		raise(&p.durable, end)
	}
	p.picked = false
	if !p.flag.CompareAndSwap(queued, idle) {
		y.push(p)
	}
}

// raise moves v up to at.
func raise(v *atomic.Int64, at int64) {
	for {
		old := v.Load()
		if at <= old || v.CompareAndSwap(old, at) {
			return
		}
	}
}
