package index

import (
	"math/bits"
	"sync/atomic"

	"sekali/internal/check"
)

const (
	firstChunk = 64 // entries; each further chunk holds twice as many as the one before
	chunksMax  = 20
)

// NoTime is the time of a segment without a timestamp: below every time that is indexed.
const NoTime = -1

// Entry is one entry of a sparse index. It is a value, made by the segment's owner.
type Entry struct {
	Rel, Pos uint32 // last offset of the batch, relative to the segment base; byte position of the batch
	TimeRel  uint32 // relative last offset of the batch that holds MaxTime, at or before Rel
	MaxTime  int64  // largest timestamp up to and including this batch; NoTime if there is none
}

// Active is the append-only index of a segment that grows. Its owner, the holder of Log.mu, calls Add, Truncate and
// Times; every other method may be called by anyone at any time without a lock: it sees a published prefix. Entries lie
// in chunks that never move, each twice as long as the one before; between two new chunks nothing is allocated.
//
// Publication: the chunk's pointer, then the entry, then the length are stored; a reader loads the length first.
type Active struct {
	n      atomic.Int32
	times  int32 // owner: entries that carry a time above the one before
	max    int32
	base   int64
	chunks [chunksMax]atomic.Pointer[[]Entry]
}

// NewActive returns an empty index for the segment that begins at offset base. It holds at most entriesMax entries.
func NewActive(base int64, entriesMax int) *Active {
	check.AtMost(1, int64(entriesMax), "index entries")
	check.AtMost(int64(entriesMax), firstChunk*(1<<chunksMax-1), "index entries")
	return &Active{base: base, max: int32(entriesMax)}
}

// place gives chunk and slot of entry i: chunk k holds the entries from firstChunk*(2^k-1) on.
func place(i int) (chunk, slot int) {
	chunk = bits.Len(uint(i/firstChunk+1)) - 1
	return chunk, i - firstChunk*(1<<chunk-1)
}

// Add appends e. Owner only. Offsets and positions must ascend and times not fall; the caller has asked Len before.
func (x *Active) Add(e Entry) {
	n := int(x.n.Load())
	check.That(n < int(x.max), "index: entry beyond the limit")
	last := Entry{MaxTime: NoTime}
	if n > 0 {
		last = x.At(n - 1)
	}
	check.That(e.Rel > last.Rel && e.Pos > last.Pos && e.MaxTime >= last.MaxTime && e.TimeRel <= e.Rel,
		"index: entries ascend")
	c, slot := place(n)
	chunk := x.chunks[c].Load()
	if chunk == nil {
		s := make([]Entry, min(firstChunk<<c, int(x.max)-n))
		chunk = &s
		x.chunks[c].Store(chunk)
	}
	(*chunk)[slot] = e
	if e.MaxTime > last.MaxTime {
		x.times++
	}
	x.n.Store(int32(n + 1))
}

// Len returns the number of entries.
func (x *Active) Len() int { return int(x.n.Load()) }

// Times returns the number of entries that go into the time index. Owner only.
func (x *Active) Times() int { return int(x.times) }

// Base returns the offset the entries are relative to.
func (x *Active) Base() int64 { return x.base }

// At returns entry i, which lies below a length seen before.
func (x *Active) At(i int) Entry {
	c, slot := place(i)
	return (*x.chunks[c].Load())[slot]
}

// Truncate drops the entries from n on. Owner only, while nobody reads (before a log is published, or with all readers
// drained).
func (x *Active) Truncate(n int) {
	check.AtMost(int64(n), int64(x.Len()), "index: truncate")
	last := int64(NoTime)
	x.times = 0
	for i := range n {
		if t := x.At(i).MaxTime; t > last {
			last = t
			x.times++
		}
	}
	x.n.Store(int32(n))
}

// Search returns the number of the greatest entry at or below offset, or -1.
func (x *Active) Search(offset int64) int {
	low, high := 0, x.Len()
	for low < high {
		mid := int(uint(low+high) >> 1)
		if x.base+int64(x.At(mid).Rel) <= offset {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// SearchPos returns the number of the entry with the greatest position at or below pos, or -1.
func (x *Active) SearchPos(pos int64) int {
	low, high := 0, x.Len()
	for low < high {
		mid := int(uint(low+high) >> 1)
		if int64(x.At(mid).Pos) <= pos {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// Ref returns the last offset and the position of the batch entry i names.
func (x *Active) Ref(i int) (offset, pos int64) {
	e := x.At(i)
	return x.base + int64(e.Rel), int64(e.Pos)
}

// Floor returns the position of the greatest entry at or below offset, from which a scan finds the offset; 0 if there
// is none.
func (x *Active) Floor(offset int64) (pos int64) {
	if i := x.Search(offset); i >= 0 {
		return int64(x.At(i).Pos)
	}
	return 0
}

// FloorPos returns the greatest indexed position at or below pos, which is a batch border; 0 if there is none.
func (x *Active) FloorPos(pos int64) int64 {
	if i := x.SearchPos(pos); i >= 0 {
		return int64(x.At(i).Pos)
	}
	return 0
}

// FloorTime returns a position before which every timestamp is below ms: that of the greatest entry whose MaxTime is
// below ms, or 0.
func (x *Active) FloorTime(ms int64) (pos int64) {
	low, high := 0, x.Len()
	for low < high {
		mid := int(uint(low+high) >> 1)
		if x.At(mid).MaxTime < ms {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return int64(x.At(low - 1).Pos)
}
