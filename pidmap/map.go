package pidmap

import (
	"math"
	"time"

	"sekali/internal/check"
)

// Map belongs to one partition and has no lock of its own: every call runs under the owner's (Log.mu). Expire, Each and
// Copy take a piece at a time, so that the lock can be given back in between. It is used as a concrete type: behind an
// interface Batch and Decision would escape to the heap, twice a batch.
type Map struct {
	dir   []*shard // 2^depth; neighbours may name the same shard
	shift uint8    // 64 less the depth
	seq   modulus

	copying bool   // a snapshot runs
	gen     uint32 // of the last Begin
	now     int32  // latest clock reading any call brought, in tenths of a second

	seen   int64  // PID of the last Check that found its producer
	seenNo uint32 // and its number + 1; 0: none. It may be out of date: the entry tells

	chunks []chunk
	txns   txns
	guards map[int64]guard
	doubts map[int64]struct{} // producers whose open transaction here the coordinator may not know
	made   uint64             // of the last guard

	n       int    // entries in use
	used    uint32 // numbers ever begun
	free    uint32 // number + 1 of the first free entry; 0: none
	max     int    // producers, softly: entries with an open transaction are never evicted
	limit   int    // producers, hard
	expire  int32  // tenths of a second; 0: never
	cursor  int    // chunk at which Expire goes on
	evicted int    // since Evicted was called
	early   bool

	order    []uint32 // chunks as a heap by their bounds
	unsorted bool     // order must be made anew

	slab   []entry
	shards []shard
	slots  []uint32

	snap snapshot
}

// New returns an empty Map.
func New(o Options) *Map { return newMap(o, seqMod) }

func newMap(o Options, mod uint64) *Map {
	m := &Map{seq: modulus(mod - 1), max: o.ProducersMax, limit: ProducersLimit, made: newGuards()}
	if m.max <= 0 || m.max > ProducersLimit {
		m.max = ProducersLimit
	}
	if o.ExpireAfter > 0 {
		m.expire = max(1, tenths(o.ExpireAfter.Milliseconds()))
	}
	return m
}

// Len is the number of producers held, those left by Refuse included.
func (m *Map) Len() int { return m.n }

// Evicted returns how many producers ProducersMax has pushed out since the last call, and whether one of them had been
// idle for less than EarlyEviction. Expired producers do not count.
func (m *Map) Evicted() (n int, early bool) {
	n, early = m.evicted, m.early
	m.evicted, m.early = 0, false
	return n, early
}

// Check decides about a batch of a client, or of a coordinator where the sequences are -1. It changes no producer
// state: all it may leave is the guard of a verification. Answers that say "this data is in the log" (Duplicate,
// DuplicateOld) wait until it is durable up to Stamp.Last or Seek.Until (D3).
func (m *Map) Check(b *Batch) Decision {
	no, e := m.lookup(b.PID, hash(b.PID))
	if e == nil {
		return m.checkUnknown(b)
	}
	m.seen, m.seenNo = b.PID, no+1
	if b.Epoch < e.epoch {
		return Decision{Verdict: Fenced}
	}
	same := b.Epoch == e.epoch
	next := true
	if b.Txn && same && e.txn != 0 && m.doubted(b.PID) {
		if g, ok := m.verified(b); !ok {
			return Decision{Verdict: TxnUnverified, Guard: g}
		}
	}
	if b.FirstSeq != noSequence {
		if !m.seq.holds(b.FirstSeq) || !m.seq.holds(b.LastSeq) {
			return Decision{Verdict: OutOfOrder}
		}
		if same {
			if next = e.follows(m.seq, b.FirstSeq); !next {
				if d, ok := m.duplicate(e, b); ok {
					return d
				}
			}
		} else {
			next = b.FirstSeq == 0
		}
	}
	if b.Txn && !(same && e.txn != 0 && !m.doubted(b.PID)) {
		if g, ok := m.verified(b); !ok {
			return Decision{Verdict: TxnUnverified, Guard: g}
		}
	}
	if !next {
		return Decision{Verdict: OutOfOrder}
	}
	if !b.Txn && e.txn != 0 {
		return Decision{Verdict: TxnOpen}
	}
	return Decision{}
}

// duplicate is the verdict on a batch of the entry's epoch that is not the next one, if it is proven written.
func (m *Map) duplicate(e *entry, b *Batch) (Decision, bool) {
	if i := e.find(m.seq, b.FirstSeq, b.LastSeq); i >= 0 {
		return Decision{Verdict: Duplicate, Stamp: e.slot(i)}, true
	}
	if !e.covers(m.seq, b.FirstSeq, b.LastSeq) {
		return Decision{}, false
	}
	return Decision{Verdict: DuplicateOld, Seek: Seek{
		PID: b.PID, Epoch: b.Epoch, FirstSeq: b.FirstSeq, LastSeq: b.LastSeq,
		Before: e.slot(e.oldest()).Base(), Until: e.newest(),
	}}, true
}

// checkUnknown decides about a PID the map knows nothing of: never seen, expired, or lost. Such a producer may go on
// where it stood, unless the log tells that it cannot have stood anywhere.
func (m *Map) checkUnknown(b *Batch) Decision {
	if b.FirstSeq != noSequence && !(m.seq.holds(b.FirstSeq) && m.seq.holds(b.LastSeq)) {
		return Decision{Verdict: OutOfOrder}
	}
	if b.Txn {
		if g, ok := m.verified(b); !ok {
			return Decision{Verdict: TxnUnverified, Guard: g}
		}
	}
	later := b.FirstSeq > 0
	if b.FromZero && later || !b.FromZero && b.Txn && m.overtakes(b) {
		return Decision{Verdict: OutOfOrder}
	}
	if m.full() {
		return Decision{Verdict: Full}
	}
	return Decision{Unproven: later}
}

// Refuse records that a batch of an unknown PID which begins at 0 was refused by a retriable code (19, 51, 56): an
// entry with an empty window then holds back the batches behind it, which would otherwise be taken as the first. The
// entry claims nothing stored: it is in no snapshot, fences no marker, and pushes out no other producer. Any other
// batch changes nothing. It is the one exception to I5.
func (m *Map) Refuse(b *Batch) {
	m.observe(b.Touch)
	h := hash(b.PID)
	if _, e := m.lookup(b.PID, h); e != nil || b.FirstSeq != 0 || m.n >= m.max {
		return
	}
	no, e := m.insert(b.PID, h)
	e.epoch, e.n = b.Epoch, refused
	m.lower(no, e)
}

// Commit takes over a batch that Check accepted, after its bytes are in the log (I5).
func (m *Map) Commit(b *Batch, at At) {
	m.observe(b.Touch)
	no, e, created := m.obtain(b.PID)
	if !created {
		check.AtMost(int64(e.epoch), int64(b.Epoch), "I6: epoch of a committed batch")
		if check.Costly {
			check.Equal(int64(m.Check(b).Verdict), int64(Accept), "I6: verdict of a committed batch")
		}
	}
	raised := e.epoch != b.Epoch
	if raised {
		e.restart(b.Epoch)
	}
	m.append(e, b, at, raised)
	if created {
		m.lower(no, e)
	}
}

// Replay takes over a batch found in the log (recovery, follower). It trusts the log: nothing is refused, numbers that
// do not follow (holes of compaction) shorten the span and keep the window. A batch of an epoch below the stored one is
// reported as stale: it is in the log, so it may open a transaction, but the higher epoch and its window stay, because
// a fenced producer must not come back by a restart.
func (m *Map) Replay(b *Batch, at At) (stale bool) {
	m.observe(b.Touch)
	no, e, created := m.obtain(b.PID)
	raised := b.Epoch > e.epoch
	if stale = b.Epoch < e.epoch; stale {
		u := Batch{PID: b.PID, FirstSeq: noSequence, LastSeq: noSequence, Txn: b.Txn}
		b = &u
	} else if raised {
		e.restart(b.Epoch)
	}
	m.append(e, b, at, raised)
	if created {
		m.lower(no, e)
	}
	return stale
}

// append is the effect of a written batch on an entry of its epoch; raised: which is new to the entry.
func (m *Map) append(e *entry, b *Batch, at At, raised bool) {
	e.touch, e.lastTime = m.now, at.Time
	if b.FirstSeq != noSequence {
		e.push(m.seq, b, at)
	} else if e.n == 0 {
		e.last[0] = at.Last
	}
	if b.Txn && (raised || e.txn == 0) {
		delete(m.guards, b.PID)
	}
	if b.Txn && e.txn == 0 {
		e.txn = m.txns.begin(b.PID, at.Base, at.Pos)
	}
}

// obtain returns the entry of a PID for a change that cannot be refused, a new one if need be. An entry left by Refuse
// counts as none.
func (m *Map) obtain(pid int64) (no uint32, e *entry, created bool) {
	if no, e = m.recall(pid); e == nil {
		h := hash(pid)
		no, e = m.lookup(pid, h)
		if e == nil {
			if no, e = m.insert(pid, h); e == nil {
				check.Fail("producer map full: %d producers with open transactions", m.n)
			}
			return no, e, true
		}
	}
	m.keep(no >> chunkBits)
	if e.n&refused != 0 {
		e.restart(-1)
		return no, e, true
	}
	return no, e, false
}

// recall returns what the last Check found, if it was this PID and is still there: Commit mostly follows its Check.
func (m *Map) recall(pid int64) (uint32, *entry) {
	if m.seenNo == 0 || m.seen != pid {
		return 0, nil
	}
	e := m.at(m.seenNo - 1)
	if e.pid != pid {
		return 0, nil
	}
	return m.seenNo - 1, e
}

// insert makes an entry for a PID that has none; nil if the map is full. The caller lowers the bound of its chunk once
// the entry is filled in.
func (m *Map) insert(pid int64, h uint64) (uint32, *entry) {
	if m.n >= m.max && !m.evict() && m.n >= m.limit {
		return 0, nil
	}
	check.AtMost(0, pid, "producer id")
	no := m.take()
	e := m.at(no)
	*e = fresh(pid, m.now)
	m.link(h, no)
	m.n++
	return no, e
}

// remove forgets an entry without an open transaction.
func (m *Map) remove(no uint32) {
	m.keep(no >> chunkBits)
	m.unlink(hash(m.at(no).pid), no)
	m.give(no)
	m.n--
}

// full reports whether no entry can be made and none evicted.
func (m *Map) full() bool { return m.n >= m.limit && m.txns.opened >= m.n }

// observe keeps the latest clock reading. Markers bring none and use it.
func (m *Map) observe(touch int64) { m.now = max(m.now, tenths(touch)) }

// tenths turns milliseconds into the unit of entry.touch.
func tenths(ms int64) int32 { return clamp(ms / 100) }

func clamp(t int64) int32 { return int32(max(math.MinInt32, min(math.MaxInt32-1, t))) }

// idle is the time since an entry's last append at a clock reading.
func idle(now, touch int32) time.Duration {
	return time.Duration(max(0, int64(now)-int64(touch))) * (100 * time.Millisecond)
}

// Each calls fn for every producer of one piece and returns where the next one begins; -1: that was the last. It starts
// at 0. Entries left by Refuse are left out. fn runs under the owner's lock and calls nothing of the Map. Producers
// made or removed between two calls may be seen or not, all others are seen once.
func (m *Map) Each(from int, fn func(Producer)) (next int) {
	if from < 0 || from >= len(m.chunks) {
		return -1
	}
	for i := range m.chunks[from].entries {
		if e := &m.chunks[from].entries[i]; e.stored() {
			fn(e.producer(m.txns.firstOf(e.txn)))
		}
	}
	if from+1 == len(m.chunks) {
		return -1
	}
	return from + 1
}

// Get returns what is known of one producer; false: nothing is, or what Refuse left alone. It changes nothing.
func (m *Map) Get(pid int64) (Producer, bool) {
	_, e := m.lookup(pid, hash(pid))
	if e == nil || !e.stored() {
		return Producer{}, false
	}
	return e.producer(m.txns.firstOf(e.txn)), true
}

// producer is the outside form of an entry.
func (e *entry) producer(txnFirst int64) Producer {
	p := Producer{
		PID: e.pid, TxnFirst: txnFirst, LastTime: e.lastTime, Touch: int64(e.touch) * 100,
		Epoch: e.epoch, CoordEpoch: e.coordEpoch, Span: e.span, N: e.n,
	}
	if e.n > 0 {
		for k, i := 0, e.oldest(); k < int(e.n); k, i = k+1, (i+1)%Window {
			p.Stamps[k] = e.slot(i)
		}
	}
	return p
}
