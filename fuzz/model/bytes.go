package model

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// Places in the header of a record batch, magic 2.
const (
	posBase    = 0
	posLeader  = 12
	posCRC     = 17
	posAttrs   = 21
	posMaxTime = 35
	appendTime = 0x08
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stored is what a request becomes at the end of the log: byte for byte as sent, except base offset and leader epoch,
// the timestamps of a topic with LogAppendTime, and a wrong largest timestamp; only the last two redo the checksum
// (I3).
func (p *Partition) stored(r *Request, leader int32, wall int64) *Batch {
	v := slices.Clone(r.Bytes)
	b := &Batch{
		Base: p.End(), PID: r.PID, Epoch: r.Epoch, First: r.First, End: r.End, Leader: leader, Bytes: v,
		CRC: binary.BigEndian.Uint32(v[posCRC:]), Times: r.Times, Time: slices.Max(r.Times),
	}
	b.Last = b.Base + r.count() - 1
	binary.BigEndian.PutUint64(v[posBase:], uint64(b.Base))
	binary.BigEndian.PutUint32(v[posLeader:], uint32(leader))
	attrs := binary.BigEndian.Uint16(v[posAttrs:])
	if p.Stamped {
		attrs |= appendTime
		b.Time, b.Times = wall, slices.Repeat([]int64{wall}, len(r.Times))
	}
	if p.Stamped || int64(binary.BigEndian.Uint64(v[posMaxTime:])) != b.Time {
		binary.BigEndian.PutUint16(v[posAttrs:], attrs)
		binary.BigEndian.PutUint64(v[posMaxTime:], uint64(b.Time))
		binary.BigEndian.PutUint32(v[posCRC:], crc32.Checksum(v[posAttrs:], castagnoli))
		b.Rewritten = true
	}
	return b
}
