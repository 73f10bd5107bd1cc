package coord

import (
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

// Coordinator is the transaction coordinator: it turns "these partitions, this producer id, this epoch" into one
// outcome that survives anything. Its methods may be called from any goroutine at any moment; the callbacks run on the
// shard of the transactional id, each once, and must not block. Answers are error codes of the protocol, nil for none;
// the translation for old request versions is the caller's. Owner of everything behind it: the shards, one goroutine
// each.
type Coordinator struct {
	cfg    Config
	ids    *ProducerIDs
	sink   Sink
	snaps  Snapshots
	clk    clock.Clock
	shards atomic.Pointer[[]*shard] // nil before Recover
	closed atomic.Bool
	wg     sync.WaitGroup
}

// New returns a coordinator that answers COORDINATOR_LOAD_IN_PROGRESS until Recover has loaded its journals. ids is
// shared with the plain idempotent producers and closed by its owner, before the coordinator.
func New(c Config, ids *ProducerIDs, sink Sink, snaps Snapshots, clk clock.Clock) *Coordinator {
	return &Coordinator{cfg: c, ids: ids, sink: sink, snaps: snaps, clk: clk}
}

// Close answers what waits with COORDINATOR_NOT_AVAILABLE and ends the goroutines. Decided transactions go on at the
// next start. It may be called more than once, but not from a callback.
func (c *Coordinator) Close() {
	c.closed.Store(true)
	for _, s := range c.all() {
		s.stop(kerr.CoordinatorNotAvailable)
	}
	c.wg.Wait()
}

// Tick lets time pass: timeouts, expiry of ids, markers to be sent again, answers that have waited long enough, one
// step of rewriting and snapshots. To be called every 100 ms; the work is that of what is due.
func (c *Coordinator) Tick() {
	for _, s := range c.all() {
		s.mu.Lock()
		queued := s.ticking
		s.ticking = true
		s.mu.Unlock()
		if !queued {
			s.post(s.tick)
		}
	}
}

// all are the shards there are.
func (c *Coordinator) all() []*shard {
	if p := c.shards.Load(); p != nil {
		return *p
	}
	return nil
}

// background runs fn, which may wait for the disk, outside the shards: inline at once, else in a goroutine that Close
// waits for; not at all once the coordinator is closed.
func (c *Coordinator) background(fn func()) {
	switch {
	case c.closed.Load():
	case c.cfg.Inline:
		fn()
	default:
		c.wg.Go(fn)
	}
}

// to runs fn on the shard of a transactional id when it is loaded and healthy, else refuse with the code (spec/
// transactions.md 5.0), on the shard or at once.
func (c *Coordinator) to(id string, fn func(*shard), refuse func(*kerr.Error)) {
	shards := c.all()
	switch {
	case id == "":
		refuse(kerr.InvalidRequest)
		return
	case c.closed.Load():
		refuse(kerr.CoordinatorNotAvailable)
		return
	case len(shards) == 0:
		refuse(kerr.CoordinatorLoadInProgress)
		return
	}
	s := shards[Partition(id, int32(len(shards)))]
	ok := s.post(func() {
		if code := s.refusal(); code != nil {
			refuse(code)
			return
		}
		fn(s)
	})
	if !ok {
		refuse(kerr.CoordinatorNotAvailable)
	}
}

// told counts an answer in the metrics and returns it.
func (c *Coordinator) told(code *kerr.Error) *kerr.Error {
	switch {
	case code == kerr.ProducerFenced && c.cfg.Events.Fenced != nil:
		c.cfg.Events.Fenced()
	case code == kerr.ConcurrentTransactions && c.cfg.Events.Busy != nil:
		c.cfg.Events.Busy()
	}
	return code
}
