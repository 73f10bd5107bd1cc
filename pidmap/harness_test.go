package pidmap

import (
	"maps"
	"slices"
)

// partition drives a Map as its owner does: Check, write, Commit, with offsets from a log that never lies.
type partition struct {
	*Map
	end   int64
	touch int64
	v12   bool // Produce 12: an unknown transactional producer begins at 0
}

func newPartition(mod uint64) *partition {
	return &partition{Map: newMap(Options{}, mod), end: 100, touch: 1000}
}

// batch of n records that begins at sequence f; the wrap is the map's.
func (p *partition) batch(pid int64, epoch int16, f int32, n int) *Batch {
	last := int32((uint32(f) + uint32(n) - 1) & uint32(p.seq))
	return &Batch{PID: pid, Epoch: epoch, FirstSeq: f, LastSeq: last, CRC: uint32(f)*31 + uint32(n), Touch: p.touch,
		FromZero: p.end == 0}
}

// txn is batch with the transactional bit.
func (p *partition) txn(pid int64, epoch int16, f int32, n int) *Batch {
	b := p.batch(pid, epoch, f, n)
	b.Txn = true
	b.FromZero = b.FromZero || p.v12
	return b
}

// place is where the batch is written now.
func (p *partition) place(b *Batch) At {
	at := At{Base: p.end, Last: p.end + int64(p.seq.delta(b.FirstSeq, b.LastSeq)), Time: 5000 + p.end, Pos: 10 * p.end}
	if b.FirstSeq == noSequence {
		at.Last = at.Base
	}
	p.end = at.Last + 1
	return at
}

// send checks a batch and appends it if it is accepted, verifying it first where that is asked for.
func (p *partition) send(b *Batch) Decision {
	d := p.Check(b)
	if d.Verdict == TxnUnverified {
		b.Guard = d.Guard
		d = p.Check(b)
	}
	if d.Verdict == Accept {
		p.Commit(b, p.place(b))
	}
	return d
}

// mark writes a marker of an epoch.
func (p *partition) mark(pid int64, epoch int16, coord int32, version int8) (Ended, error) {
	k := &Marker{PID: pid, Epoch: epoch, CoordEpoch: coord, Version: version, Commit: true, Time: 7000 + p.end}
	d, err := p.CheckMarker(k)
	if err == nil {
		p.CommitMarker(k, At{Base: p.end, Last: p.end, Time: k.Time, Pos: 10 * p.end})
		p.end++
	}
	return d, err
}

// want fails unless a batch gets a verdict.
func (p *partition) want(t failer, b *Batch, v Verdict) Decision {
	t.Helper()
	d := p.send(b)
	if d.Verdict != v {
		t.Fatalf("pid %d epoch %d sequence %d..%d: verdict %d, want %d", b.PID, b.Epoch, b.FirstSeq, b.LastSeq,
			d.Verdict, v)
	}
	return d
}

// state is every producer the map holds, by PID.
func (p *partition) state() map[int64]Producer { return stateOf(p.Map) }

func stateOf(m *Map) map[int64]Producer {
	s := map[int64]Producer{}
	for next := 0; next >= 0; {
		next = m.Each(next, func(p Producer) { s[p.PID] = p })
	}
	return s
}

// snapshot takes a whole snapshot of the present state.
func (p *partition) snapshot(t failer) []byte {
	t.Helper()
	if !p.Begin(p.end, p.touch) {
		t.Fatal("a snapshot runs already")
	}
	return drain(p.Map)
}

// drain copies what is left of the running snapshot and ends it.
func drain(m *Map) []byte {
	var c Copy
	var entries, trailer []byte
	for m.Copy(&c) {
		entries, trailer = c.Append(entries, trailer)
	}
	m.Finish()
	return SnapshotFile(entries, trailer)
}

// keys are the PIDs of a state, ascending.
func keys(s map[int64]Producer) []int64 { return slices.Sorted(maps.Keys(s)) }
