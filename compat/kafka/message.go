package main

import (
	"encoding/binary"
	"hash/crc32"
)

// message is a record batch of magic 2 by its fields, written by this program's own hand: the bytes sent to both
// brokers must not come from the code of one of them.
type message struct {
	base        int64
	length      *int32 // nil: as it is
	leaderEpoch int32
	magic       int8
	crc         *uint32 // nil: as it is
	attrs       int16
	lastDelta   int32
	baseTime    int64
	maxTime     int64
	pid         int64
	epoch       int16
	seq         int32
	count       int32
	records     []byte // as they stand in the batch, compressed or not
}

// Bits of the attributes, and where the checksum begins.
const (
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrHorizon       = 0x40

	headerSize = 61
	crcFrom    = 21
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// epochTime is the time of all records that are not about time: constant, so that both brokers get the same bytes.
const epochTime = 1_760_000_000_000

// plain is a batch of n records without a producer.
func plain(n int) *message {
	m := &message{magic: 2, leaderEpoch: -1, lastDelta: int32(n - 1), baseTime: epochTime, maxTime: epochTime,
		pid: -1, epoch: -1, seq: -1, count: int32(n)}
	for i := range n {
		m.records = append(m.records, rec{delta: int32(i), value: []byte("value")}.bytes()...)
	}
	return m
}

// by is a batch of n records of a producer.
func by(pid int64, epoch int16, seq int32, n int) *message {
	m := plain(n)
	m.pid, m.epoch, m.seq = pid, epoch, seq
	return m
}

// of is a batch of these records.
func of(records ...rec) *message {
	m := plain(len(records))
	m.records = nil
	for _, r := range records {
		m.records = append(m.records, r.bytes()...)
	}
	return m
}

// with changes a message and returns it.
func (m *message) with(change func(m *message)) *message {
	change(m)
	return m
}

// packed compresses the records.
func (m *message) packed(codec int16, pack func([]byte) []byte) *message {
	m.attrs |= codec
	m.records = pack(m.records)
	return m
}

// bytes encodes the message.
func (m *message) bytes() []byte {
	b := make([]byte, headerSize, headerSize+len(m.records))
	b = append(b, m.records...)
	be := binary.BigEndian
	be.PutUint64(b, uint64(m.base))
	be.PutUint32(b[8:], uint32(len(b)-12))
	if m.length != nil {
		be.PutUint32(b[8:], uint32(*m.length))
	}
	be.PutUint32(b[12:], uint32(m.leaderEpoch))
	b[16] = byte(m.magic)
	be.PutUint16(b[21:], uint16(m.attrs))
	be.PutUint32(b[23:], uint32(m.lastDelta))
	be.PutUint64(b[27:], uint64(m.baseTime))
	be.PutUint64(b[35:], uint64(m.maxTime))
	be.PutUint64(b[43:], uint64(m.pid))
	be.PutUint16(b[51:], uint16(m.epoch))
	be.PutUint32(b[53:], uint32(m.seq))
	be.PutUint32(b[57:], uint32(m.count))
	sum := crc32.Checksum(b[crcFrom:], castagnoli)
	if m.crc != nil {
		sum = *m.crc
	}
	be.PutUint32(b[17:], sum)
	return b
}

// rec is one record. A nil key or value is null.
type rec struct {
	attrs   byte
	time    int64 // added to the batch's base time
	delta   int32
	key     []byte
	value   []byte
	headers []head
	count   *int64 // of headers, where it is to lie
	longer  int64  // added to the length of the record
}

type head struct {
	key, value []byte
}

func (r rec) bytes() []byte {
	b := append([]byte(nil), r.attrs)
	b = binary.AppendVarint(b, r.time)
	b = binary.AppendVarint(b, int64(r.delta))
	b = part(b, r.key)
	b = part(b, r.value)
	n := int64(len(r.headers))
	if r.count != nil {
		n = *r.count
	}
	b = binary.AppendVarint(b, n)
	for _, h := range r.headers {
		b = part(b, h.key)
		b = part(b, h.value)
	}
	return append(binary.AppendVarint(nil, int64(len(b))+r.longer), b...)
}

func part(b, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(p))), p...)
}

// old is a message set of magic 0 or 1 with one message.
func old(magic byte) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, epochTime)
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no key
	body = binary.BigEndian.AppendUint32(body, 5)
	body = append(body, "value"...)
	b := make([]byte, 16, 16+len(body))
	binary.BigEndian.PutUint32(b[8:], uint32(4+len(body)))
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// size is the number of bytes of the encoded message.
func (m *message) size() int { return headerSize + len(m.records) }
