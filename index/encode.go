package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Sizes of one entry in the three files, in bytes.
const (
	OffsetEntryLen = 8
	TimeEntryLen   = 12
	TxnEntryLen    = 34
)

// ErrInvalid is wrapped by every error about the content of an index file. The files are rebuildable: it means
// "rebuild", never "data lost".
var ErrInvalid = errors.New("index: invalid")

func invalid(file string, entry int, why string) error {
	return fmt.Errorf("%w: %s, entry %d: %s", ErrInvalid, file, entry, why)
}

// AppendOffsetIndex appends the .index form of the entries [from, to) of x to dst.
func AppendOffsetIndex(dst []byte, x *Active, from, to int) []byte {
	for i := from; i < to; i++ {
		e := x.At(i)
		dst = binary.BigEndian.AppendUint32(dst, e.Rel)
		dst = binary.BigEndian.AppendUint32(dst, e.Pos)
	}
	return dst
}

// AppendTimeIndex appends the .timeindex form of the entries [from, to) of x to dst: one for each whose time lies above
// the time before it.
func AppendTimeIndex(dst []byte, x *Active, from, to int) []byte {
	last := int64(NoTime)
	if from > 0 {
		last = x.At(from - 1).MaxTime
	}
	for i := from; i < to; i++ {
		if e := x.At(i); e.MaxTime > last {
			dst = AppendTimeEntry(dst, e.MaxTime, e.TimeRel)
			last = e.MaxTime
		}
	}
	return dst
}

// AppendTimeEntry appends one .timeindex entry: a timestamp and the relative last offset of the batch that holds it.
func AppendTimeEntry(dst []byte, ms int64, rel uint32) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(ms))
	return binary.BigEndian.AppendUint32(dst, rel)
}

// AppendTxnIndex appends the .txnindex form of the entries of list to dst.
func AppendTxnIndex(dst []byte, list []AbortedTxn) []byte {
	for _, t := range list {
		dst = append(dst, 0, 0) // version
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.PID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.First))
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.Last))
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.Stable))
	}
	return dst
}

// OffsetAt reads entry i of a .index file whose segment begins at base. The entry lies within b; nothing else is
// checked.
func OffsetAt(b []byte, i int, base int64) (offset, pos int64) {
	b = b[i*OffsetEntryLen:]
	return base + int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))
}

// TimeAt reads entry i of a .timeindex file whose segment begins at base. The entry lies within b; nothing else is
// checked.
func TimeAt(b []byte, i int, base int64) (ms, offset int64) {
	b = b[i*TimeEntryLen:]
	return int64(binary.BigEndian.Uint64(b)), base + int64(int32(binary.BigEndian.Uint32(b[8:])))
}

// TxnAt reads entry i of a .txnindex file. The entry lies within b; nothing else is checked.
func TxnAt(b []byte, i int) (version int16, t AbortedTxn) {
	b = b[i*TxnEntryLen:]
	return int16(binary.BigEndian.Uint16(b)), AbortedTxn{
		PID:    int64(binary.BigEndian.Uint64(b[2:])),
		First:  int64(binary.BigEndian.Uint64(b[10:])),
		Last:   int64(binary.BigEndian.Uint64(b[18:])),
		Stable: int64(binary.BigEndian.Uint64(b[26:])),
	}
}

// CheckOffsetIndex tells whether b is a sound .index file for a segment of size bytes: whole entries, offsets and
// positions strictly ascending and above 0 (the first batch has no entry), positions below size.
func CheckOffsetIndex(b []byte, size int64) error {
	if len(b)%OffsetEntryLen != 0 {
		return invalid("offset index", len(b)/OffsetEntryLen, "not whole")
	}
	lastRel, lastPos := int64(0), int64(0)
	for i := range len(b) / OffsetEntryLen {
		rel, pos := OffsetAt(b, i, 0)
		switch {
		case rel <= lastRel:
			return invalid("offset index", i, "offset does not ascend")
		case pos <= lastPos:
			return invalid("offset index", i, "position does not ascend")
		case pos >= size:
			return invalid("offset index", i, "position beyond the end of the segment")
		}
		lastRel, lastPos = rel, pos
	}
	return nil
}

// CheckTimeIndex tells whether b is a sound .timeindex file: whole entries, times from 0 on strictly ascending, offsets
// not descending.
func CheckTimeIndex(b []byte) error {
	if len(b)%TimeEntryLen != 0 {
		return invalid("time index", len(b)/TimeEntryLen, "not whole")
	}
	lastTime, lastRel := int64(NoTime), int64(0)
	for i := range len(b) / TimeEntryLen {
		ms, rel := TimeAt(b, i, 0)
		switch {
		case ms <= lastTime:
			return invalid("time index", i, "time does not ascend")
		case rel < lastRel:
			return invalid("time index", i, "offset descends")
		}
		lastTime, lastRel = ms, rel
	}
	return nil
}

// CheckTxnIndex tells whether b is a sound .txnindex file for a segment that begins at base: whole entries of version
// 0, markers within the segment and strictly ascending, no transaction that ends before it begins.
func CheckTxnIndex(b []byte, base int64) error {
	if len(b)%TxnEntryLen != 0 {
		return invalid("transaction index", len(b)/TxnEntryLen, "not whole")
	}
	last := base - 1
	for i := range len(b) / TxnEntryLen {
		version, t := TxnAt(b, i)
		switch {
		case version != 0:
			return invalid("transaction index", i, "unknown version")
		case t.PID < 0 || t.First < 0 || t.Stable < 0:
			return invalid("transaction index", i, "negative field")
		case t.Last < t.First:
			return invalid("transaction index", i, "ends before it begins")
		case t.Last <= last:
			return invalid("transaction index", i, "marker does not ascend")
		case t.Last-base > math.MaxInt32:
			return invalid("transaction index", i, "marker beyond the segment")
		}
		last = t.Last
	}
	return nil
}
