package pidmap

import "math"

// chunk holds up to 512 entries. They stay in place once the chunk has its full size; the first chunk of a small map
// is moved while it doubles.
type chunk struct {
	entries []entry
	// touch and last are a lower bound, in this order, of the entries without an open transaction: eviction looks at
	// chunks with low bounds. Entries are only ever touched later, so a bound stays true until it is raised.
	last  int64
	touch int32
	gen   uint32 // of the snapshot that has this chunk already, or does not want it
}

// nothing is the bound of a chunk from which nothing can be evicted.
const nothing = math.MaxInt32

func (m *Map) at(no uint32) *entry { return &m.chunks[no>>chunkBits].entries[no&(chunkEntries-1)] }

// take returns the number of an entry nobody uses. The chunk has been kept for a running snapshot.
func (m *Map) take() uint32 {
	if m.free != 0 {
		no := m.free - 1
		m.keep(no >> chunkBits)
		m.free = m.at(no).span
		return no
	}
	no := m.used
	i := no >> chunkBits
	if int(i) == len(m.chunks) {
		m.chunks = append(m.chunks, chunk{entries: m.carve(), touch: nothing, last: math.MaxInt64, gen: m.gen})
		m.unsorted = true
	}
	m.keep(i)
	c := &m.chunks[i]
	if len(c.entries) == cap(c.entries) {
		c.entries = append(make([]entry, 0, 2*cap(c.entries)), c.entries...)
	}
	c.entries = c.entries[:len(c.entries)+1]
	m.used++
	return no
}

// give makes a number free again. The chunk has been kept.
func (m *Map) give(no uint32) {
	*m.at(no) = entry{pid: freePID, span: m.free}
	m.free = no + 1
}

// carve returns room for one chunk, from a slab that grows with the map: few objects to sweep for a large map, at most
// a sixty-fourth unused.
func (m *Map) carve() []entry {
	if len(m.chunks) == 0 {
		return make([]entry, 0, chunkMin)
	}
	if len(m.slab) == 0 {
		m.slab = make([]entry, chunkEntries*max(1, min(slabChunks, len(m.chunks)/64)))
	}
	c := m.slab[:0:chunkEntries]
	m.slab = m.slab[chunkEntries:]
	return c
}

// lower keeps the bound of a chunk true for an entry that has become evictable.
func (m *Map) lower(no uint32, e *entry) {
	c := &m.chunks[no>>chunkBits]
	if earlier(e.touch, e.newest(), c.touch, c.last) {
		c.touch, c.last = e.touch, e.newest()
		m.unsorted = true
	}
}

// earlier orders entries by their last append: by the clock, and within one step of it by offset.
func earlier(touch int32, last int64, than int32, thanLast int64) bool {
	return touch < than || touch == than && last < thanLast
}
