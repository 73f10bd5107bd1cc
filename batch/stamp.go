package batch

import "encoding/binary"

// Stamp writes the fields the CRC does not cover: base offset and leader epoch (spec/batch.md 5, invariant I3). The
// caller owns the batch.
func (v View) Stamp(base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(v[posBase:], uint64(base))
	binary.BigEndian.PutUint32(v[posEpoch:], uint32(leaderEpoch))
}

// StampAppendTime makes ms the time of every record: it sets the append time bit and the largest time, clears the
// unused attribute bits and redoes the CRC. The deltas of the records stay as sent. The caller owns the batch.
func (v View) StampAppendTime(ms int64) { v.stampTime(v.Attrs()|AttrAppendTime, ms) }

// StampMaxTime corrects a wrong largest time, clears the unused attribute bits and redoes the CRC. Where ms is the
// header's value already, nothing changes, so a well-made batch keeps the CRC it came with. The caller owns the batch.
func (v View) StampMaxTime(ms int64) { v.stampTime(v.Attrs(), ms) }

func (v View) stampTime(a Attrs, ms int64) {
	if a == v.Attrs() && ms == v.MaxTime() {
		return
	}
	binary.BigEndian.PutUint16(v[posAttrs:], uint16(a&attrUsed))
	binary.BigEndian.PutUint64(v[posMaxTime:], uint64(ms))
	v.sum()
}

func (v View) sum() { binary.BigEndian.PutUint32(v[posCRC:], v.checksum()) }
