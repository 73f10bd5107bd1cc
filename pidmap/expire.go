package pidmap

// Expire removes producers that have been idle for Options.ExpireAfter at a reading of the monotonic clock (ms), never
// one with an open transaction, and forgets verifications as old. One call goes on where the last one stopped and looks
// at about budget entries (whole pieces of 512, at least one), at most at all of them once.
func (m *Map) Expire(touch int64, budget int) (removed int) {
	m.observe(touch)
	if m.expire == 0 || len(m.chunks) == 0 {
		return 0
	}
	for range m.chunks {
		if m.cursor >= len(m.chunks) {
			m.cursor = 0
		}
		if m.cursor == 0 {
			m.expireGuards()
		}
		c := &m.chunks[m.cursor]
		budget--
		if m.expired(c.touch) {
			budget -= len(c.entries)
			removed += m.expireChunk(uint32(m.cursor))
		}
		m.cursor++
		if budget <= 0 {
			break
		}
	}
	if m.n == 0 && !m.copying {
		m.drop()
	}
	return removed
}

// expired reports whether an append at touch is too long ago.
func (m *Map) expired(touch int32) bool { return int64(m.now)-int64(touch) >= int64(m.expire) }

func (m *Map) expireChunk(i uint32) (removed int) {
	for k := range m.chunks[i].entries {
		if e := &m.chunks[i].entries[k]; e.pid >= 0 && e.txn == 0 && m.expired(e.touch) {
			m.remove(i<<chunkBits | uint32(k))
			removed++
		}
	}
	s := m.survey(i)
	if c := &m.chunks[i]; c.touch != s.touch || c.last != s.last {
		c.touch, c.last = s.touch, s.last
		m.unsorted = true
	}
	return removed
}

// drop gives back the memory of a map that has become empty. Verifications and the clock stay.
func (m *Map) drop() {
	m.dir, m.shift = nil, 0
	m.chunks, m.used, m.free, m.cursor = nil, 0, 0, 0
	m.order, m.unsorted = nil, false
	m.slab, m.shards, m.slots = nil, nil, nil
	m.seenNo = 0
}

// evict removes the least recently touched producer without an open transaction; false: there is none. It visits chunks
// in the order of their bounds until the oldest entry seen is older than every other chunk's bound. Bounds are as old
// as the last visit, so after a long time without evictions many chunks may need one; evictScanMax limits that, and the
// victim is then the oldest among those seen, of at least 131,072 entries.
func (m *Map) evict() bool {
	if m.unsorted {
		m.sort()
	}
	victim := survey{}
	for seen := 0; len(m.order) > 0; seen++ {
		i := m.order[0]
		c := &m.chunks[i]
		if c.touch == nothing || victim.found && !earlier(c.touch, c.last, victim.touch, victim.last) {
			break
		}
		if victim.found && seen >= evictScanMax {
			break
		}
		s := m.survey(i)
		c.touch, c.last = s.touch, s.last
		m.sink(0)
		if s.found && (!victim.found || earlier(s.touch, s.last, victim.touch, victim.last)) {
			victim = s
		}
	}
	if !victim.found {
		return false
	}
	e := m.at(victim.no)
	m.evicted++
	m.early = m.early || e.stored() && idle(m.now, e.touch) < EarlyEviction
	if i := victim.no >> chunkBits; m.order[0] == i {
		m.chunks[i].touch, m.chunks[i].last = victim.nextTouch, victim.nextLast
		m.sink(0)
	}
	m.remove(victim.no)
	return true
}

// survey is the oldest entry of a chunk that may be evicted, and when the one after it was last touched.
type survey struct {
	last, nextLast   int64
	touch, nextTouch int32
	no               uint32
	found            bool
}

func (m *Map) survey(i uint32) survey {
	const end = 1<<63 - 1
	s := survey{touch: nothing, last: end, nextTouch: nothing, nextLast: end}
	for k := range m.chunks[i].entries {
		e := &m.chunks[i].entries[k]
		if e.touch > s.nextTouch || e.pid < 0 || e.txn != 0 {
			continue
		}
		switch last := e.newest(); {
		case earlier(e.touch, last, s.touch, s.last):
			s.nextTouch, s.nextLast = s.touch, s.last
			s.touch, s.last, s.no, s.found = e.touch, last, i<<chunkBits|uint32(k), true
		case earlier(e.touch, last, s.nextTouch, s.nextLast):
			s.nextTouch, s.nextLast = e.touch, last
		}
	}
	return s
}

// sort makes the heap of chunks anew.
func (m *Map) sort() {
	for i := len(m.order); i < len(m.chunks); i++ {
		m.order = append(m.order, uint32(i))
	}
	for at := len(m.order)/2 - 1; at >= 0; at-- {
		m.sink(at)
	}
	m.unsorted = false
}

// sink moves the chunk at a place of the heap below those with lower bounds.
func (m *Map) sink(at int) {
	for {
		low := 2*at + 1
		if low >= len(m.order) {
			return
		}
		if right := low + 1; right < len(m.order) && m.below(right, low) {
			low = right
		}
		if !m.below(low, at) {
			return
		}
		m.order[at], m.order[low] = m.order[low], m.order[at]
		at = low
	}
}

func (m *Map) below(a, b int) bool {
	x, y := &m.chunks[m.order[a]], &m.chunks[m.order[b]]
	return earlier(x.touch, x.last, y.touch, y.last)
}
