package vfs

import (
	"math/rand/v2"

	"sekali/internal/check"
)

// CrashPlan decides the fate of every unsynced sector and directory entry; equal seeds give equal outcomes.
type CrashPlan struct {
	Seed uint64
	// KeepUnsynced is the chance in percent that an unsynced sector, length or change of an entry is on the disk: 0
	// leaves exactly what was synced, 100 everything.
	KeepUnsynced int
	// Garble lets a sector that is not kept be torn (its beginning new, its end old) or hold random bytes; below the
	// synced length in the places alone where old and new content differ, so that what was synced stays.
	Garble bool
	// SectorSize is what the disk writes at once: 512 (also for 0), 1024, ... 16384.
	SectorSize int
}

// Crash is a power loss: the process of m is dead, and the new one finds on the disk what was synced and what plan p
// leaves of the rest. Everything the new process finds is durable.
func (m *Mem) Crash(p CrashPlan) *Mem {
	if p.SectorSize == 0 {
		p.SectorSize = sectorUnit
	}
	check.That(p.SectorSize >= sectorUnit && p.SectorSize <= pieceSize && p.SectorSize&(p.SectorSize-1) == 0,
		"vfs: sector size is no power of two in 512..16384")
	old := m.d
	old.mu.Lock()
	defer old.mu.Unlock()
	m.die()
	t := old.durable.clone()
	r := rand.New(rand.NewPCG(p.Seed, 0))
	kept := make([]bool, len(old.pending))
	for i := range kept {
		kept[i] = p.keeps(r)
	}
	imply(old.pending, kept)
	for i, o := range old.pending {
		if kept[i] {
			t.apply(o)
		}
	}
	d := &disk{kind: old.kind, lastIno: old.lastIno}
	d.space.capacity.Store(old.space.capacity.Load())
	d.durable = newTree(nil)
	d.root = d.revive(old.root, t, p)
	d.durable.root = d.root
	return &Mem{d: d, locks: map[string]bool{}}
}

// revive copies a node and what lies below it as the disk has it.
func (d *disk) revive(old *node, t tree, p CrashPlan) *node {
	n := &node{ino: old.ino, dir: old.dir}
	if !n.dir {
		old.mu.Lock()
		n.data = old.data.crash(p, rand.New(rand.NewPCG(p.Seed, old.ino)), &d.space)
		old.mu.Unlock()
		return n
	}
	n.entries = map[string]*node{}
	for name, k := range t.kids[old] {
		c := d.revive(k, t, p)
		c.parent, c.name = n, name
		n.entries[name] = c
		d.durable.apply(dirOp{kind: opLink, n: c, dir: n, name: name})
	}
	return n
}

// Kill is the death of the process alone: the new process sees all that was written, synced or not, and a Crash may
// still take what was not. Locks are free, files and mappings of the old process are dead, injected sync failures
// stay.
func (m *Mem) Kill() *Mem {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.die()
	for _, n := range m.d.nodes() {
		n.refs = 0
		m.d.free(n)
	}
	m.d.sweep()
	return &Mem{d: m.d, locks: map[string]bool{}}
}

// die ends the process: when it returns no call of it is under way in a node, and none will change one; under mu.
func (m *Mem) die() {
	check.That(!m.dead.Load(), "vfs: this process is dead already")
	m.dead.Store(true)
	for _, n := range m.d.nodes() {
		n.mu.Lock()
		n.maps = nil
		n.mu.Unlock()
	}
}

func (p CrashPlan) keeps(r *rand.Rand) bool { return r.IntN(100) < p.KeepUnsynced }

// crash is the content that the disk has afterwards.
func (c *content) crash(p CrashPlan, r *rand.Rand, s *space) content {
	size := c.crashSize(p, r)
	n := content{pieces: map[int64]*piece{}, size: size, synced: size, low: size}
	for _, k := range c.order() {
		at := k * pieceSize
		q := &piece{cur: new([pieceSize]byte)}
		c.pieces[k].crash(q.cur, c.synced-at, p, r)
		if at >= size {
			continue
		}
		if end := size - at; end < pieceSize {
			clear(q.cur[end:])
		}
		n.pieces[k] = q
		for b := range pieceSize / blockSize {
			if at+int64(b)*blockSize < size {
				q.blocks |= 1 << b
				n.blocks++
			}
		}
	}
	s.used.Add(n.blocks)
	return n
}

// crashSize is the length that the disk has: the synced one, the last one seen, or one between.
func (c *content) crashSize(p CrashPlan, r *rand.Rand) int64 {
	if !c.sizeDirty() || p.KeepUnsynced <= 0 {
		return c.synced
	}
	if p.keeps(r) {
		return c.size
	}
	lo, hi := min(c.low, c.synced, c.size), max(c.synced, c.size)
	switch r.IntN(3) {
	case 0:
		return c.synced
	case 1:
		return c.low
	}
	return lo + r.Int64N(hi-lo+1)
}

// crash writes into dst what the disk has of a piece whose first synced bytes lay within the synced length.
func (p *piece) crash(dst *[pieceSize]byte, synced int64, plan CrashPlan, r *rand.Rand) {
	*dst = *p.cur
	if p.old == nil {
		return
	}
	size := plan.SectorSize
	for lo := 0; lo < pieceSize; lo += size {
		if (p.dirty|p.lost)&sectors(lo, lo+size) == 0 || plan.keeps(r) {
			continue
		}
		old, seen, out := p.old[lo:lo+size], p.cur[lo:lo+size], dst[lo:lo+size]
		copy(out, old)
		if !plan.Garble || r.IntN(2) == 0 {
			continue
		}
		if r.IntN(2) == 0 {
			copy(out[:r.IntN(size)], seen)
			continue
		}
		from := r.IntN(size)
		to := from + 1 + r.IntN(size-from)
		for i := from; i < to; i++ {
			if old[i] != seen[i] || int64(lo+i) >= synced {
				out[i] = byte(r.Uint32())
			}
		}
	}
}
