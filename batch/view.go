// Package batch reads, checks and stamps Kafka record batches of format version 2 in place, on the bytes that travel on
// the wire and lie on the disk alike (spec/batch.md). It makes no objects of records unless asked, knows no file, no
// socket and no lock, and keeps no state but pools of decompressors.
//
// The checksum covers byte 21 to the end: base offset, length, leader epoch, magic and the checksum itself are not
// protected. Who scans a log must therefore also require the expected base offset (or one above it where compaction may
// have left a hole), a sane length, magic 2 and a leader epoch that does not fall before trusting a batch.
package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// HeaderLen is the size in bytes of a batch without records.
const HeaderLen = 61

// Codecs of the records section, the low three bits of the attributes.
const (
	None uint8 = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Bits of the attributes.
const (
	AttrCodec         Attrs = 0x07
	AttrAppendTime    Attrs = 0x08
	AttrTransactional Attrs = 0x10
	AttrControl       Attrs = 0x20
	AttrHorizon       Attrs = 0x40
	attrUsed          Attrs = 0x7f // the rest is ignored when read and cleared by a stamp, as in Kafka
)

const (
	posBase      = 0
	posLength    = 8
	posEpoch     = 12
	posMagic     = 16
	posCRC       = 17
	posAttrs     = 21 // first byte under the checksum
	posLastDelta = 23
	posBaseTime  = 27
	posMaxTime   = 35
	posPID       = 43
	posPEpoch    = 51
	posSequence  = 53
	posCount     = 57

	lengthEnd = 12 // the length field counts the bytes behind itself
	lengthMin = 14 // of a message of magic 0, the smallest entry of any format
	magic     = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// View is exactly one batch, header included, as Next, Builder and AppendMarker make it: at least HeaderLen bytes. It
// is a slice of its maker's memory. Reads may overlap; the Stamp methods write and need the batch for themselves.
type View []byte

// Attrs is the attributes field of a batch.
type Attrs uint16

// Codec is the compression of the records: None to Zstd, or an undefined 5 to 7.
func (a Attrs) Codec() uint8 { return uint8(a & AttrCodec) }

// AppendTime tells that every record has the batch's MaxTime as its time (LogAppendTime).
func (a Attrs) AppendTime() bool { return a&AttrAppendTime != 0 }

// Transactional tells that the batch belongs to a transaction.
func (a Attrs) Transactional() bool { return a&AttrTransactional != 0 }

// Control tells that the batch holds a marker and no data.
func (a Attrs) Control() bool { return a&AttrControl != 0 }

// Horizon tells that BaseTime is a delete horizon, set by compaction (KIP-534).
func (a Attrs) Horizon() bool { return a&AttrHorizon != 0 }

// Next splits the first batch off b by its length field alone; v has no capacity beyond its end. Nothing but the
// length has been checked in v, not even the magic: Validate does that.
//
// It returns ErrShort if b ends before the batch does, ErrCorrupt for a length no batch can have, and ErrOldMagic or
// ErrMagic where a length too small for a batch belongs to another format (spec/batch.md 7, rows 4, 5, 12 and 15).
func Next(b []byte) (v View, rest []byte, err error) {
	if len(b) < lengthEnd {
		return nil, b, ErrShort
	}
	n := int64(int32(binary.BigEndian.Uint32(b[posLength:])))
	if n < lengthMin {
		return nil, b, ErrCorrupt
	}
	if n > int64(len(b)-lengthEnd) {
		return nil, b, ErrShort
	}
	if n < HeaderLen-lengthEnd {
		if err := checkMagic(b[posMagic]); err != nil {
			return nil, b, err
		}
		return nil, b, ErrCorrupt
	}
	end := lengthEnd + int(n)
	return View(b[:end:end]), b[end:], nil
}

func checkMagic(m byte) error {
	switch m {
	case magic:
		return nil
	case 0, 1:
		return ErrOldMagic
	}
	return ErrMagic
}

func (v View) i64(at int) int64 { return int64(binary.BigEndian.Uint64(v[at:])) }
func (v View) i32(at int) int32 { return int32(binary.BigEndian.Uint32(v[at:])) }

// BaseOffset is the offset of the first record the batch had; not under the checksum.
func (v View) BaseOffset() int64 { return v.i64(posBase) }

// LastOffset is the offset of the last record the batch had, which compaction may have removed.
func (v View) LastOffset() int64 { return v.i64(posBase) + int64(v.i32(posLastDelta)) }

// LastOffsetDelta is LastOffset less BaseOffset.
func (v View) LastOffsetDelta() int32 { return v.i32(posLastDelta) }

// LeaderEpoch is the epoch of the leader that appended the batch; not under the checksum.
func (v View) LeaderEpoch() int32 { return v.i32(posEpoch) }

// Magic is the format version; only 2 is a batch.
func (v View) Magic() int8 { return int8(v[posMagic]) }

// Attrs is the attributes field with all its bits.
func (v View) Attrs() Attrs { return Attrs(binary.BigEndian.Uint16(v[posAttrs:])) }

// BaseTime is the milliseconds the time deltas of the records count from.
func (v View) BaseTime() int64 { return v.i64(posBaseTime) }

// MaxTime is the largest time of a record in milliseconds as the header has it, -1 for none.
func (v View) MaxTime() int64 { return v.i64(posMaxTime) }

// Producer is the producer id and epoch, -1 and -1 for none.
func (v View) Producer() (pid int64, epoch int16) {
	return v.i64(posPID), int16(binary.BigEndian.Uint16(v[posPEpoch:]))
}

// Sequence is the sequence numbers of the first and the last record the batch had, in Kafka's wrap: the last may be
// the smaller number. Both are -1 where the batch carries none.
func (v View) Sequence() (first, last int32) {
	first = v.i32(posSequence)
	if first < 0 {
		return -1, -1
	}
	return first, SeqAdd(first, v.i32(posLastDelta))
}

// Count is the number of records present: 0 only after compaction.
func (v View) Count() int32 { return v.i32(posCount) }

// CRC is the stored checksum; taken before a stamp redoes it, it is the one received.
func (v View) CRC() uint32 { return binary.BigEndian.Uint32(v[posCRC:]) }

// Time is the time in milliseconds of a record of this batch.
func (v View) Time(r Record) int64 {
	if v.Attrs().AppendTime() {
		return v.MaxTime()
	}
	return v.BaseTime() + r.TimeDelta
}

func (v View) checksum() uint32 { return crc32.Checksum(v[posAttrs:], castagnoli) }
