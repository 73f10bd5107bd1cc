package batch

import (
	"encoding/binary"
	"math"
)

// Builder makes batches for internal topics, tests and tools. Its zero value is ready; its owner is the caller. Base
// offset and leader epoch of what it makes are as a producer sends them, 0 and -1.
type Builder struct {
	// BaseTime is the milliseconds the records' TimeDelta count from; set it before the first Add.
	BaseTime int64

	b       []byte // header, then the records
	count   int32
	last    int32 // offset delta of the last record
	maxTime int64
}

// Add appends a record. Offset deltas must rise: one that does not lie above the last is raised to it plus one, so that
// callers without holes leave it 0. What r holds is copied.
func (b *Builder) Add(r Record) {
	if b.b == nil {
		b.b = make([]byte, HeaderLen, HeaderLen+r.bodyLen()+64)
	}
	if b.count == 0 {
		b.maxTime = -1
	} else if r.OffsetDelta <= b.last {
		r.OffsetDelta = b.last + 1
	}
	b.b = r.append(b.b)
	b.last = r.OffsetDelta
	b.maxTime = max(b.maxTime, b.BaseTime+r.TimeDelta)
	b.count++
}

// Len is the size in bytes of the uncompressed batch so far, HeaderLen at least.
func (b *Builder) Len() int { return max(len(b.b), HeaderLen) }

// Done returns the batch of the records added, compressed as a says (an undefined codec leaves them plain), and begins
// the next one. The view is the caller's. A batch without records is what compaction leaves: no client may send it.
func (b *Builder) Done(a Attrs, pid int64, epoch int16, seq int32) View {
	if b.count == 0 {
		b.b, b.last, b.maxTime = make([]byte, HeaderLen), 0, -1
	}
	v := View(b.b)
	if c := a.Codec(); b.count > 0 && c != None && c <= Zstd {
		v = make(View, HeaderLen, HeaderLen+len(b.b)/2)
		v = Compress(v, c, b.b[HeaderLen:])
	}
	binary.BigEndian.PutUint32(v[posEpoch:], math.MaxUint32)
	v[posMagic] = magic
	binary.BigEndian.PutUint16(v[posAttrs:], uint16(a))
	binary.BigEndian.PutUint32(v[posLastDelta:], uint32(b.last))
	binary.BigEndian.PutUint64(v[posBaseTime:], uint64(b.BaseTime))
	binary.BigEndian.PutUint64(v[posMaxTime:], uint64(b.maxTime))
	binary.BigEndian.PutUint64(v[posPID:], uint64(pid))
	binary.BigEndian.PutUint16(v[posPEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(v[posSequence:], uint32(seq))
	binary.BigEndian.PutUint32(v[posCount:], uint32(b.count))
	v.seal()
	*b = Builder{BaseTime: b.BaseTime}
	return v
}

// seal writes the length and the checksum.
func (v View) seal() {
	binary.BigEndian.PutUint32(v[posLength:], uint32(len(v)-lengthEnd))
	v.sum()
}
