package pidmap

import "sync/atomic"

// guard is the pending verification of one PID: the coordinator is being asked whether its transaction includes this
// partition. There is one per PID, however many batches wait for it.
type guard struct {
	id     uint64
	lowest int32 // lowest first sequence of epoch that waits; -1 for a coordinator's write
	touch  int32
	epoch  int16
}

// mapsMade numbers the Maps of the process. A guard carries the number of its Map, so that one given out before a
// partition was reopened is never valid afterwards.
var mapsMade atomic.Uint64

// newGuards is the number below the first guard of a Map; 40 bits are the Map's to count in.
func newGuards() uint64 { return mapsMade.Add(1) << 40 }

// verified reports whether the batch holds the guard of its PID; if not, it returns the guard it may come back with.
func (m *Map) verified(b *Batch) (uint64, bool) {
	g, ok := m.guards[b.PID]
	if ok && b.Guard == g.id {
		return g.id, true
	}
	switch {
	case !ok:
		m.made++
		g = guard{id: m.made, lowest: b.FirstSeq, epoch: b.Epoch}
		m.spareGuard()
	case b.Epoch > g.epoch:
		g.epoch, g.lowest = b.Epoch, b.FirstSeq
	case b.Epoch == g.epoch && (g.lowest == noSequence || m.seq.after(b.FirstSeq, g.lowest)):
		g.lowest = b.FirstSeq
	}
	g.touch = max(m.now, tenths(b.Touch))
	m.guards[b.PID] = g
	return g.id, false
}

// Void makes the guard of a PID void, as a marker does: for one that need not be written a second time. A batch
// verified before it must not open a transaction behind it.
func (m *Map) Void(pid int64) { delete(m.guards, pid) }

// Doubt says that the coordinator may not know of the transaction that a producer has open here: its next batch, also
// one that is stored, needs a guard. Without an open transaction nothing changes.
func (m *Map) Doubt(pid int64) {
	if _, e := m.lookup(pid, hash(pid)); e != nil && e.txn != 0 {
		if m.doubts == nil {
			m.doubts = map[int64]struct{}{}
		}
		m.doubts[pid] = struct{}{}
		delete(m.guards, pid)
	}
}

func (m *Map) doubted(pid int64) bool {
	_, yes := m.doubts[pid]
	return yes
}

// VoidAll makes all guards void.
func (m *Map) VoidAll() { clear(m.guards) }

// overtakes reports whether a batch of lower sequence of the same PID and epoch still waits for its verification. The
// higher one must not become the first of an unknown producer before it.
func (m *Map) overtakes(b *Batch) bool {
	g, ok := m.guards[b.PID]
	return ok && b.FirstSeq != noSequence && g.epoch == b.Epoch && g.lowest != noSequence &&
		m.seq.after(g.lowest, b.FirstSeq)
}

// spareGuard makes room for one more guard. A guard that is forgotten costs its owner another question, nothing else.
func (m *Map) spareGuard() {
	if m.guards == nil {
		m.guards = map[int64]guard{}
	}
	if len(m.guards) < guardsMax {
		return
	}
	for pid := range m.guards {
		delete(m.guards, pid)
		return
	}
}

// expireGuards forgets verifications that were begun as long ago as producers are kept.
func (m *Map) expireGuards() {
	for pid, g := range m.guards {
		if int64(m.now)-int64(g.touch) >= int64(m.expire) {
			delete(m.guards, pid)
		}
	}
}
