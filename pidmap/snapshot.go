package pidmap

import "sekali/internal/check"

// snapshot is the copy that runs: the state of the map at its Begin, chunk by chunk.
type snapshot struct {
	at      int64
	touch   int32
	next    int    // chunk at which Copy goes on
	end     int    // chunks there were at Begin; those begun later bear its generation
	pending []Copy // made by the owner before its first change of a chunk
	spares  []Copy // buffers to use again
}

// Copy is one chunk as a snapshot wants it, with the first offsets of its open transactions. It belongs to the writer
// of the snapshot; between calls of Map.Copy nobody else touches it.
type Copy struct {
	entries []entry
	first   []int64 // of the entries with an open transaction, in their order
	touch   int32   // of Begin
}

// Begin starts a snapshot of the state at offset at, the first one not reflected, in constant time. It is false, and
// nothing begins, while another one runs. touch is the monotonic clock (ms): a snapshot keeps idle times, not readings.
func (m *Map) Begin(at, touch int64) bool {
	if m.copying {
		return false
	}
	m.observe(touch)
	m.copying = true
	m.gen++
	m.snap = snapshot{at: at, touch: m.now, end: len(m.chunks)}
	return true
}

// Running returns the offset of the snapshot that runs; ok is false if there is none.
func (m *Map) Running() (at int64, ok bool) { return m.snap.at, m.copying }

// Copy fills dst with the next chunk as of Begin; false: there is none left, and dst is untouched. dst may be used
// again once Append has encoded it; its buffers are swapped, not copied, where the owner had to copy the chunk already.
func (m *Map) Copy(dst *Copy) bool {
	if !m.copying {
		return false
	}
	s := &m.snap
	if n := len(s.pending); n > 0 {
		if dst.entries != nil && len(s.spares) < sparesMax {
			s.spares = append(s.spares, *dst)
		}
		*dst = s.pending[n-1]
		s.pending[n-1] = Copy{}
		s.pending = s.pending[:n-1]
		return true
	}
	for ; s.next < s.end; s.next++ {
		if c := &m.chunks[s.next]; c.gen != m.gen {
			m.copyChunk(dst, c)
			s.next++
			return true
		}
	}
	return false
}

// Finish ends a snapshot, whether Copy has given all of it or not.
func (m *Map) Finish() {
	m.copying = false
	m.snap = snapshot{}
}

// keep saves a chunk for the running snapshot before its first change. Every change of an entry, of a transaction's
// first offset in it, and every use or removal of a number goes through it.
func (m *Map) keep(i uint32) {
	if !m.copying || m.chunks[i].gen == m.gen {
		return
	}
	s := &m.snap
	var c Copy
	if n := len(s.spares); n > 0 {
		c = s.spares[n-1]
		s.spares = s.spares[:n-1]
	}
	m.copyChunk(&c, &m.chunks[i])
	s.pending = append(s.pending, c)
}

// copyChunk copies a chunk and raises its mark: exactly once for each snapshot, by whoever comes first.
func (m *Map) copyChunk(dst *Copy, c *chunk) {
	c.gen = m.gen
	dst.touch = m.snap.touch
	dst.entries = append(dst.entries[:0], c.entries...)
	dst.first = dst.first[:0]
	for i := range dst.entries {
		e := &dst.entries[i]
		if check.Costly && e.stored() {
			check.AtMost(e.newest()+1, m.snap.at, "I14: offset of a producer in a snapshot")
		}
		if e.txn != 0 {
			dst.first = append(dst.first, m.txns.firstOf(e.txn))
		}
	}
}

// Append encodes the producers of a copy, entries and trailer apart, as SnapshotFile wants them. It takes no lock.
func (c *Copy) Append(entries, trailer []byte) (e, t []byte) {
	open := 0
	for i := range c.entries {
		e := &c.entries[i]
		first := int64(-1)
		if e.txn != 0 {
			first = c.first[open]
			open++
		}
		if e.stored() {
			entries = appendEntry(entries, e, first)
			trailer = appendTrailer(trailer, e, c.touch)
		}
	}
	return entries, trailer
}
