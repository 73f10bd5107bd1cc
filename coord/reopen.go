package coord

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Reconcile settles open transactions of partitions that serve again after they did not, by the table that Recover goes
// by for those found at start, while requests are served: what no id owns is aborted, what its id knows stays. open is
// what was found; still tells whether one of them is open yet, as it was found. It is asked on a shard right before
// something is done, and must not block. Reconcile returns at once; its effects are tried again until they are there.
// settled runs once, when every verdict is acted on: ids that wait for an effect are held back from then on. It may be
// called from any goroutine but not from a callback, and does nothing before Recover has returned.
func (c *Coordinator) Reconcile(open []OpenTxn, still func(OpenTxn) bool, settled func()) {
	shards := c.all()
	if len(open) == 0 || len(shards) == 0 || c.closed.Load() {
		settled()
		return
	}
	q := &search{shards: shards, open: open, still: still, left: len(shards), whole: true, found: make(map[int64]owner)}
	q.settled = settled
	q.unsettled.Store(int64(len(open)))
	asked := make(map[int64]struct{}, len(open))
	for _, o := range open {
		asked[o.PID] = struct{}{}
	}
	for _, s := range shards {
		if !s.post(func() { s.owners(asked, q) }) {
			q.answer(nil, false)
		}
	}
}

// owner is an id that has, had or will have a producer id.
type owner struct {
	s *shard
	e *entry
}

// search asks all shards who owns the producer ids of open transactions. mu owns what is below it.
type search struct {
	shards []*shard
	open   []OpenTxn
	still  func(OpenTxn) bool

	settled   func()
	unsettled atomic.Int64 // of open

	mu    sync.Mutex
	left  int
	whole bool // every shard has answered for all its ids
	found map[int64]owner
}

// owners answers for one shard. One that does not serve now may own any of them; it is loaded anew before it serves,
// and reconciles all then.
func (s *shard) owners(asked map[int64]struct{}, q *search) {
	if s.refusal() != nil {
		q.answer(nil, false)
		return
	}
	found := make(map[int64]owner)
	s.find(asked, found)
	q.answer(found, true)
}

// find adds the ids of the shard that have, had or will have one of the producer ids asked for.
func (s *shard) find(asked map[int64]struct{}, found map[int64]owner) {
	for _, e := range s.entries {
		for _, pid := range e.t.pids() {
			if _, ok := asked[pid]; ok && pid >= 0 {
				found[pid] = owner{s, e}
			}
		}
	}
}

// pids are the producer ids of an id, -1 for none: the one before, the one it gets when its decided transaction is
// completed, and its own.
func (t *txn) pids() [3]int64 { return [...]int64{t.prevPID, t.nextPID, t.pid} }

// has reports whether pid is one of them.
func (t *txn) has(pid int64) bool {
	pids := t.pids()
	return slices.Contains(pids[:], pid)
}

// answer takes the answer of one shard; after the last one the transactions go to their owners.
func (q *search) answer(found map[int64]owner, whole bool) {
	q.mu.Lock()
	for pid, own := range found {
		q.found[pid] = own
	}
	q.whole = q.whole && whole
	q.left--
	ready := q.left == 0
	q.mu.Unlock()
	if !ready {
		return
	}
	for _, o := range q.open {
		own := q.found[o.PID]
		if own.e == nil {
			own.s = q.shards[uint64(o.PID)%uint64(len(q.shards))]
		}
		if !own.s.post(func() { own.s.reopened(o, own.e, q) }) {
			q.done() // its shard is loaded anew, and looks at all of them before it serves
		}
	}
}

// done counts a transaction that was dealt with.
func (q *search) done() {
	if q.unsettled.Add(-1) == 0 {
		q.settled()
	}
}

// reopened acts on one open transaction of a partition that serves again. A decided one whose markers are under way
// without this partition gets a marker for it alone.
func (s *shard) reopened(o OpenTxn, e *entry, q *search) {
	if s.refusal() != nil {
		q.done()
		return
	}
	if e != nil && (s.entries[e.id] != e || !e.t.has(o.PID)) {
		e = nil // expired or with another producer id by now: nobody's
	}
	if e != nil && s.busy(e) {
		e.later = append(e.later, func() { s.reopened(o, e, q) })
		return
	}
	defer q.done()
	if !q.still(o) {
		return
	}
	f := judge(o, e, q.whole)
	if f.do == leaveOpen && e != nil && e.comp != nil && !e.comp.waits(o.TP) {
		f.do = join // its marker was written, and lost with a flush that failed (durability=written)
	}
	if f.do == join {
		f = finding{do: mark, commit: e.t.state == PrepareCommit, epoch: e.t.epoch, version: int8(e.t.clientTV)}
	}
	s.act(o, e, f)
}
