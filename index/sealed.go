package index

import "sort"

// Sealed is the immutable heap form of a full segment's .index, .timeindex and .txnindex files. Any goroutine may use
// it at any time; it needs no release.
type Sealed struct {
	offset, time, aborted []byte
	base                  int64
}

// DecodeSealed checks the three files of the segment that begins at base and is size bytes long, and keeps the slices.
// An error wraps ErrInvalid and means "rebuild".
func DecodeSealed(offset, time, aborted []byte, base, size int64) (*Sealed, error) {
	if err := CheckOffsetIndex(offset, size); err != nil {
		return nil, err
	}
	if err := CheckTimeIndex(time); err != nil {
		return nil, err
	}
	if err := CheckTxnIndex(aborted, base); err != nil {
		return nil, err
	}
	return &Sealed{offset: offset, time: time, aborted: aborted, base: base}, nil
}

// Cost returns the heap bytes the value stands for, which is its weight in a Cache.
func (x *Sealed) Cost() int64 {
	const head = 128
	return int64(cap(x.offset)+cap(x.time)+cap(x.aborted)) + head
}

// Len returns the number of entries of the offset index.
func (x *Sealed) Len() int { return len(x.offset) / OffsetEntryLen }

// Ref returns the last offset and the position of the batch that entry i of the offset index names.
func (x *Sealed) Ref(i int) (offset, pos int64) { return OffsetAt(x.offset, i, x.base) }

// Search returns the number of the greatest entry at or below offset, or -1.
func (x *Sealed) Search(offset int64) int {
	return sort.Search(x.Len(), func(i int) bool {
		o, _ := x.Ref(i)
		return o > offset
	}) - 1
}

// SearchPos returns the number of the entry with the greatest position at or below pos, or -1.
func (x *Sealed) SearchPos(pos int64) int {
	return sort.Search(x.Len(), func(i int) bool {
		_, p := x.Ref(i)
		return p > pos
	}) - 1
}

// Floor returns the position of the greatest entry at or below offset, from which a scan finds the offset; 0 if there
// is none.
func (x *Sealed) Floor(offset int64) (pos int64) {
	if i := x.Search(offset); i >= 0 {
		_, pos = x.Ref(i)
	}
	return pos
}

// FloorPos returns the greatest indexed position at or below pos, which is a batch border; 0 if there is none.
func (x *Sealed) FloorPos(pos int64) int64 {
	if i := x.SearchPos(pos); i >= 0 {
		_, p := x.Ref(i)
		return p
	}
	return 0
}

// FloorTime returns an offset up to which, inclusive, every timestamp is below ms: that of the greatest time entry
// below ms, or the base offset less one.
func (x *Sealed) FloorTime(ms int64) (offset int64) {
	i := sort.Search(len(x.time)/TimeEntryLen, func(i int) bool {
		t, _ := TimeAt(x.time, i, x.base)
		return t >= ms
	})
	if i == 0 {
		return x.base - 1
	}
	_, offset = TimeAt(x.time, i-1, x.base)
	return offset
}

// Overlap appends to dst the transactions that touch [from, to): marker at or above from, first offset below to. done
// reports that segments further on hold no transaction that touches it: an entry here has Stable >= to.
func (x *Sealed) Overlap(dst []AbortedTxn, from, to int64) (out []AbortedTxn, done bool) {
	for i := range len(x.aborted) / TxnEntryLen {
		_, t := TxnAt(x.aborted, i)
		if t.Last >= from && t.First < to {
			dst = append(dst, t)
		}
		if t.Stable >= to {
			return dst, true
		}
	}
	return dst, false
}
