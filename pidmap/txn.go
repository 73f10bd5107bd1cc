package pidmap

import "sekali/internal/check"

// txn is a transaction of the partition: open, or closed by a marker that is not yet durable.
type txn struct {
	pid, first, pos int64
	marker          int64 // offset of the marker; -1: open
	// Neighbours (number; 0: none) among all transactions, ordered by first offset, and among the open ones, in the same
	// order. For a closed one, next[open] is the next one closed.
	prev, next [2]uint32
}

const (
	all  = 0
	open = 1
)

// txns lists the transactions that hold back the last stable offset (I11). Transactions open in log order and close in
// log order, so both lists grow at their tail; the numbers of transactions that are done are used again, so a hanging
// one costs no memory beside its own.
type txns struct {
	items      []txn // number - 1
	free       uint32
	head, tail [2]uint32
	closed     [2]uint32 // first and last of those closed, ordered by marker
	opened     int
}

func (t *txns) at(no uint32) *txn { return &t.items[no-1] }

// firstOf is the first offset of a transaction number, -1 for number 0.
func (t *txns) firstOf(no uint32) int64 {
	if no == 0 {
		return -1
	}
	return t.at(no).first
}

// begin enters an open transaction and returns its number.
func (t *txns) begin(pid, first, pos int64) uint32 {
	no := t.free
	if no != 0 {
		t.free = t.at(no).next[all]
	} else {
		t.items = append(t.items, txn{})
		no = uint32(len(t.items))
	}
	*t.at(no) = txn{pid: pid, first: first, pos: pos, marker: -1}
	t.insert(all, no)
	t.insert(open, no)
	t.opened++
	return no
}

// insert links a transaction into a list before the first one with a higher offset, looking from the tail.
func (t *txns) insert(list int, no uint32) {
	x := t.at(no)
	before := t.tail[list]
	after := uint32(0)
	for before != 0 && t.at(before).first > x.first {
		before, after = t.at(before).prev[list], before
	}
	x.prev[list], x.next[list] = before, after
	if before != 0 {
		t.at(before).next[list] = no
	} else {
		t.head[list] = no
	}
	if after != 0 {
		t.at(after).prev[list] = no
	} else {
		t.tail[list] = no
	}
}

func (t *txns) cut(list int, no uint32) {
	x := t.at(no)
	before, after := x.prev[list], x.next[list]
	if before != 0 {
		t.at(before).next[list] = after
	} else {
		t.head[list] = after
	}
	if after != 0 {
		t.at(after).prev[list] = before
	} else {
		t.tail[list] = before
	}
}

// end closes an open transaction by the marker at an offset above those of all markers before.
func (t *txns) end(no uint32, marker int64) {
	t.cut(open, no)
	x := t.at(no)
	x.marker = marker
	x.next[open] = 0
	if t.closed[1] != 0 {
		t.at(t.closed[1]).next[open] = no
	} else {
		t.closed[0] = no
	}
	t.closed[1] = no
	t.opened--
}

// settle drops the transactions whose marker lies below durable.
func (t *txns) settle(durable int64) {
	for no := t.closed[0]; no != 0 && t.at(no).marker < durable; no = t.closed[0] {
		if t.closed[0] = t.at(no).next[open]; t.closed[0] == 0 {
			t.closed[1] = 0
		}
		t.cut(all, no)
		*t.at(no) = txn{next: [2]uint32{t.free, 0}}
		t.free = no
	}
}

// other is the lowest first offset of the open transactions except one; -1: there is none.
func (t *txns) other(than uint32) int64 {
	no := t.head[open]
	if no != 0 && no == than {
		no = t.at(no).next[open]
	}
	return t.firstOf(no)
}

// Open is the transactions that are open, ordered by first offset.
func (m *Map) Open() []Producer {
	out := make([]Producer, 0, m.txns.opened)
	for no := m.txns.head[open]; no != 0; no = m.txns.at(no).next[open] {
		x := m.txns.at(no)
		_, e := m.lookup(x.pid, hash(x.pid))
		check.That(e != nil, "pidmap: an open transaction without its producer")
		out = append(out, e.producer(x.first))
	}
	return out
}

// Unstable returns the lowest first offset that is undecided, or whose marker lies at or above durable (exclusive end
// of what is durable; it never goes back), and its position in the segment that holds the offset. The position is -1
// for a transaction that came from a snapshot, until Locate tells it. ok is false if there is no such offset: the last
// stable offset is then the high watermark.
func (m *Map) Unstable(durable int64) (offset, pos int64, ok bool) {
	m.txns.settle(durable)
	no := m.txns.head[all]
	if no == 0 {
		return -1, -1, false
	}
	x := m.txns.at(no)
	return x.first, x.pos, true
}

// Locate tells the position of the offset that Unstable returned without one.
func (m *Map) Locate(offset, pos int64) {
	if no := m.txns.head[all]; no != 0 && m.txns.at(no).first == offset {
		m.txns.at(no).pos = pos
	}
}

// CheckMarker decides about a marker before it is written and changes nothing. The errors are ErrFenced, ErrCoordFenced
// and ErrFull. A marker of a PID without an open transaction is written too (it uses an offset) but enters no index and
// moves no watermark.
func (m *Map) CheckMarker(k *Marker) (Ended, error) {
	_, e := m.lookup(k.PID, hash(k.PID))
	if e == nil && m.full() {
		return Ended{}, ErrFull
	}
	if e == nil || !e.stored() {
		return Ended{First: -1, Stable: m.txns.other(0)}, nil
	}
	if k.Epoch < e.epoch || k.Version >= 2 && k.Epoch == e.epoch && e.txn != 0 {
		return Ended{}, ErrFenced
	}
	if k.CoordEpoch < e.coordEpoch {
		return Ended{}, ErrCoordFenced
	}
	return m.ended(e, k), nil
}

func (m *Map) ended(e *entry, k *Marker) Ended {
	return Ended{
		First: m.txns.firstOf(e.txn), Had: e.txn != 0, Stable: m.txns.other(e.txn),
		Same: e.txn == 0 && k.Epoch == e.epoch, Stale: k.Epoch < e.epoch,
	}
}

// CommitMarker takes over a marker that CheckMarker let pass, after it is in the log (I5). The window is emptied only
// if the epoch changes: sequences run on across the transactions of one epoch.
func (m *Map) CommitMarker(k *Marker, at At) {
	_, err := m.CheckMarker(k)
	check.NoError(err, "I5: commit of a marker that was refused")
	m.ReplayMarker(k, at)
}

// ReplayMarker takes over a marker found in the log (recovery, follower). A marker of an epoch below the stored one
// (Ended.Stale) ends the transaction all the same, but the higher epochs stay.
func (m *Map) ReplayMarker(k *Marker, at At) Ended {
	no, e, created := m.obtain(k.PID)
	if created {
		e.epoch = k.Epoch
	}
	d := m.ended(e, k)
	d.Same = d.Same && !created
	if k.Epoch > e.epoch {
		e.restart(k.Epoch)
	}
	e.coordEpoch = max(e.coordEpoch, k.CoordEpoch)
	e.touch, e.lastTime = m.now, k.Time
	if e.n == 0 {
		e.last[0] = at.Last
	}
	if e.txn != 0 {
		m.txns.end(e.txn, at.Last)
		e.txn = 0
	}
	delete(m.guards, k.PID)
	delete(m.doubts, k.PID)
	m.lower(no, e)
	return d
}
