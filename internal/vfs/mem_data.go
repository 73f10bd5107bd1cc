package vfs

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	pieceSize  = 16 << 10 // content is kept in pieces that come into being when they are written
	sectorUnit = 512      // smallest unit that a crash keeps or loses
	blockSize  = 4096     // unit of space
	spareMax   = 64       // pieces made at once
)

// piece is 16 KiB of content. Only with a bit set in dirty or lost may cur differ from old, what the disk holds;
// old is nil while no bit is set.
type piece struct {
	cur, old *[pieceSize]byte
	dirty    uint32 // sectors written since the last flush
	lost     uint32 // sectors whose flush failed: clean in the cache, and not on the disk
	blocks   uint8  // written blocks, as far as they are paid for
}

var (
	blank  [pieceSize]byte // what the disk holds where nothing was written; never changed
	pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}
)

// content is the bytes of one file: as the process sees them and as the disk has them.
type content struct {
	pieces  map[int64]*piece
	changed []int64 // pieces with an old content, and perhaps some without
	size    int64   // seen
	synced  int64   // on the disk
	low     int64   // smallest size since the last flush
	reserve int64   // blocks below it are reserved
	blocks  int64   // paid for: reserved, and written ones above the reserve
	spare   []roomy
}

func (c *content) sizeDirty() bool { return c.size != c.synced || c.low != c.synced }

// order is the piece numbers, ascending.
func (c *content) order() []int64 {
	ks := make([]int64, 0, len(c.pieces))
	for k := range c.pieces {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

func (c *content) piece(k int64) *piece {
	p := c.pieces[k]
	if p == nil {
		if c.pieces == nil {
			c.pieces = map[int64]*piece{}
		}
		p = c.room(k)
		c.pieces[k] = p
	}
	return p
}

// roomy is a piece with its memory.
type roomy struct {
	piece
	b [pieceSize]byte
}

// room makes a piece, many at once where blocks are reserved: so appending to a reserved file allocates next to
// nothing.
func (c *content) room(k int64) *piece {
	if len(c.spare) == 0 {
		c.spare = make([]roomy, min(max((c.reserve-k*pieceSize)/pieceSize, 1), spareMax))
	}
	r := &c.spare[0]
	c.spare = c.spare[1:]
	r.cur = &r.b
	return &r.piece
}

// touch marks the sectors of [lo, hi) of piece k dirty before they change.
func (c *content) touch(k int64, lo, hi int, fresh bool) {
	p := c.pieces[k]
	if p.old == nil {
		c.changed = append(c.changed, k)
		if fresh {
			p.old = &blank
		} else {
			p.old = pieces.Get().(*[pieceSize]byte)
			*p.old = *p.cur
		}
	}
	m := sectors(lo, hi)
	p.dirty |= m
	p.lost &^= m // the whole sector is written with the next flush, lost bytes too
}

// sectors is the mask of the sectors that [lo, hi) touches.
func sectors(lo, hi int) uint32 {
	a, b := lo/sectorUnit, (hi+sectorUnit-1)/sectorUnit
	return uint32(1<<b - 1<<a)
}

// flushed makes what is dirty durable.
func (p *piece) flushed() {
	if p.old == nil {
		return
	}
	if p.lost == 0 {
		p.dropOld()
	} else {
		p.ownOld()
		for s := range pieceSize / sectorUnit {
			if p.dirty>>s&1 != 0 {
				copy(p.old[s*sectorUnit:(s+1)*sectorUnit], p.cur[s*sectorUnit:])
			}
		}
	}
	p.dirty = 0
}

func (p *piece) dropOld() {
	if p.old != nil && p.old != &blank {
		pieces.Put(p.old)
	}
	p.old = nil
}

func (p *piece) ownOld() {
	if p.old == &blank {
		p.old = new([pieceSize]byte)
	}
}

// read copies what the process sees; the caller keeps within size.
func (c *content) read(b []byte, off int64) {
	for len(b) > 0 {
		k, lo := off/pieceSize, int(off%pieceSize)
		n := min(len(b), pieceSize-lo)
		if p := c.pieces[k]; p != nil {
			copy(b[:n], p.cur[lo:])
		} else {
			clear(b[:n])
		}
		b, off = b[n:], off+int64(n)
	}
}

// write stores b as far as space lasts and returns how many bytes that was.
func (c *content) write(s *space, b []byte, off int64) (n int) {
	for len(b) > 0 {
		k, lo := off/pieceSize, int(off%pieceSize)
		_, had := c.pieces[k]
		hi := min(lo+len(b), pieceSize)
		p := c.piece(k)
		paid := c.pay(s, p, k, lo, hi)
		if paid > lo {
			c.touch(k, lo, paid, !had)
			copy(p.cur[lo:paid], b)
		}
		n += max(paid-lo, 0)
		if paid < hi {
			break
		}
		b, off = b[hi-lo:], off+int64(hi-lo)
	}
	return n
}

// grow notes a size reached by writing.
func (c *content) grow(size int64) { c.size = max(c.size, size) }

// pay takes the blocks of [lo, hi) of piece k that are not yet paid for, in order; it returns how far they go.
func (c *content) pay(s *space, p *piece, k int64, lo, hi int) int {
	for b := lo / blockSize; b*blockSize < hi; b++ {
		if p.blocks>>b&1 != 0 {
			continue
		}
		if k*pieceSize+int64(b)*blockSize >= c.reserve {
			if !s.take(1) {
				return min(b*blockSize, hi)
			}
			c.blocks++
		}
		p.blocks |= 1 << b
	}
	return hi
}

// allocate pays for all blocks of the first size bytes, or for none.
func (c *content) allocate(s *space, size int64) bool {
	end := (size + blockSize - 1) / blockSize * blockSize
	if end <= c.reserve {
		return true
	}
	need := (end - c.reserve) / blockSize
	for k, p := range c.pieces {
		for b := range pieceSize / blockSize {
			at := k*pieceSize + int64(b)*blockSize
			if p.blocks>>b&1 != 0 && at >= c.reserve && at < end {
				need--
			}
		}
	}
	if !s.take(need) {
		return false
	}
	c.blocks += need
	c.reserve = end
	return true
}

// resize sets the size; bytes cut off read as zero should they come back. changed is called for every range that
// becomes zero.
func (c *content) resize(s *space, size int64, changed func(off, n int64)) {
	if size < c.size {
		for k, p := range c.pieces {
			lo := int(min(max(size-k*pieceSize, 0), pieceSize))
			hi := int(min(c.size-k*pieceSize, pieceSize))
			if lo < hi {
				c.touch(k, lo, hi, false)
				clear(p.cur[lo:hi])
			}
		}
		changed(size, c.size-size)
		c.low = min(c.low, size)
	}
	c.size = size
	end := (size + blockSize - 1) / blockSize * blockSize
	c.reserve = min(c.reserve, end)
	paid := c.reserve / blockSize
	for k, p := range c.pieces {
		keep := min(max((end-k*pieceSize)/blockSize, 0), pieceSize/blockSize)
		p.blocks &= uint8(1<<keep - 1)
		below := min(max((c.reserve-k*pieceSize)/blockSize, 0), pieceSize/blockSize)
		paid += int64(bits.OnesCount8(p.blocks >> below))
		if p.old == nil && k*pieceSize >= size {
			delete(c.pieces, k)
		}
	}
	s.give(c.blocks - paid)
	c.blocks = paid
}

// forgetBlocks hands back what was paid, for a file without name and user.
func (c *content) forgetBlocks() int64 {
	n := c.blocks
	c.blocks, c.reserve = 0, 0
	return n
}

// sync makes everything durable.
func (c *content) sync() {
	rest := c.changed[:0]
	for _, k := range c.changed {
		p := c.pieces[k]
		if p == nil {
			continue
		}
		p.flushed()
		if p.old != nil {
			rest = append(rest, k)
		} else if k*pieceSize >= c.size {
			delete(c.pieces, k)
		}
	}
	c.changed = rest
	c.synced, c.low = c.size, c.size
}

// lose is a failed flush: dirty sectors become clean without being durable, the length stays to be written.
func (c *content) lose() {
	for _, k := range c.changed {
		if p := c.pieces[k]; p != nil {
			p.lost |= p.dirty
			p.dirty = 0
		}
	}
}

// uncache brings back what the disk holds where a flush failed in the pages of [off, end). It changes nothing and is
// false if one of them is dirty.
func (c *content) uncache(off, end int64) bool {
	mask := func(k int64) uint32 {
		lo, hi := max(off-k*pieceSize, 0), min(end-k*pieceSize, pieceSize)
		if lo >= hi {
			return 0
		}
		return sectors(int(lo), int(hi))
	}
	for k, p := range c.pieces {
		if p.dirty&mask(k) != 0 {
			return false
		}
	}
	for k, p := range c.pieces {
		m := p.lost & mask(k)
		for s := range pieceSize / sectorUnit {
			if m>>s&1 != 0 {
				copy(p.cur[s*sectorUnit:(s+1)*sectorUnit], p.old[s*sectorUnit:])
			}
		}
		p.lost &^= m
		if p.lost|p.dirty == 0 {
			p.dropOld()
		}
	}
	return true
}

// space counts blocks.
type space struct {
	capacity atomic.Int64 // 0: no bound
	used     atomic.Int64
}

func (s *space) take(n int64) bool {
	for {
		used, limit := s.used.Load(), s.capacity.Load()
		if n > 0 && limit > 0 && used+n > limit {
			return false
		}
		if s.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (s *space) give(n int64) { s.used.Add(-n) }
