package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The log file is a header and one record per revision, big-endian:
//
//	header  magic "SKML", version uint16, zero uint16, base revision int64, CRC-32C uint32
//	record  magic "MR", version uint8, zero uint8, payload length uint32, CRC-32C uint32, payload
//	payload revision int64, operations uint32, each: key length uint16, key, value length int32 (-1: delete), value
//
// Records hold the revisions base+1, base+2, ... without a gap. The CRC of a record covers its first eight bytes, its
// position in the file and its payload: bytes that a crash left behind at another place never pass for a record.
const (
	logMagic     = "SKML"
	logVersion   = 1
	logHeaderLen = 20

	recordMagic     = "MR"
	recordVersion   = 1
	recordHeaderLen = 12
)

// The snapshot file, big-endian, the CRC over all that is before it:
//
//	magic "SKMS", version uint16, zero uint16, revision int64, items uint32,
//	each: key length uint16, key, revision int64, value length uint32, value; CRC-32C uint32
const (
	snapMagic     = "SKMS"
	snapVersion   = 1
	snapHeaderLen = 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errShort   = errors.New("record runs past the end of the file")
	errMagic   = errors.New("wrong magic")
	errVersion = errors.New("written by a newer version")
	errCRC     = errors.New("checksum mismatch")
	errFormat  = errors.New("malformed payload")
)

func appendLogHeader(dst []byte, base Rev) []byte {
	from := len(dst)
	dst = append(dst, logMagic...)
	dst = binary.BigEndian.AppendUint16(dst, logVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(base))
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

func decodeLogHeader(b []byte) (base Rev, err error) {
	if len(b) < logHeaderLen {
		return 0, errShort
	}
	if string(b[:4]) != logMagic {
		return 0, errMagic
	}
	if crc32.Checksum(b[:16], castagnoli) != binary.BigEndian.Uint32(b[16:]) {
		return 0, errCRC
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != logVersion {
		return 0, fmt.Errorf("%w: %d", errVersion, v)
	}
	return Rev(binary.BigEndian.Uint64(b[8:])), nil
}

func recordCRC(head []byte, pos int64, payload []byte) uint32 {
	var p [8]byte
	binary.BigEndian.PutUint64(p[:], uint64(pos))
	sum := crc32.Update(0, castagnoli, head[:8])
	sum = crc32.Update(sum, castagnoli, p[:])
	return crc32.Update(sum, castagnoli, payload)
}

// appendRecord appends the record of c as it stands at byte pos of the file.
func appendRecord(dst []byte, pos int64, c Change) []byte {
	at := len(dst)
	dst = append(dst, recordMagic...)
	dst = append(dst, recordVersion, 0)
	dst = append(dst, make([]byte, 8)...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Rev))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Ops)))
	for _, op := range c.Ops {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(op.Key)))
		dst = append(dst, op.Key...)
		if op.Value == nil {
			dst = binary.BigEndian.AppendUint32(dst, 1<<32-1)
			continue
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(op.Value)))
		dst = append(dst, op.Value...)
	}
	head, payload := dst[at:at+recordHeaderLen], dst[at+recordHeaderLen:]
	binary.BigEndian.PutUint32(head[4:], uint32(len(payload)))
	binary.BigEndian.PutUint32(head[8:], recordCRC(head, pos, payload))
	return dst
}

// decodeRecord reads the record at the front of b, which stands at byte pos of the file, and returns its length.
// What it returns shares no memory with b.
func decodeRecord(b []byte, pos int64) (c Change, n int, err error) {
	if len(b) < recordHeaderLen {
		return c, 0, errShort
	}
	if string(b[:2]) != recordMagic {
		return c, 0, errMagic
	}
	size := binary.BigEndian.Uint32(b[4:])
	if size > recordBytesMax || int(size) > len(b)-recordHeaderLen {
		return c, 0, errShort
	}
	payload := b[recordHeaderLen : recordHeaderLen+int(size)]
	if recordCRC(b, pos, payload) != binary.BigEndian.Uint32(b[8:]) {
		return c, 0, errCRC
	}
	if b[2] != recordVersion {
		return c, 0, fmt.Errorf("%w: %d", errVersion, b[2])
	}
	c, err = decodePayload(payload)
	return c, recordHeaderLen + int(size), err
}

func decodePayload(b []byte) (c Change, err error) {
	if len(b) < 12 {
		return c, errFormat
	}
	c.Rev = Rev(binary.BigEndian.Uint64(b))
	count := int64(binary.BigEndian.Uint32(b[8:]))
	b = b[12:]
	if count*6 > int64(len(b)) {
		return c, errFormat
	}
	c.Ops = make([]Op, 0, count)
	for range count {
		var key string
		if key, b, err = takeKey(b); err != nil {
			return c, err
		}
		if len(b) < 4 {
			return c, errFormat
		}
		size := int64(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if size < 0 {
			c.Ops = append(c.Ops, Op{Key: key})
			continue
		}
		if size > int64(len(b)) {
			return c, errFormat
		}
		c.Ops = append(c.Ops, Op{Key: key, Value: append([]byte{}, b[:size]...)})
		b = b[size:]
	}
	if len(b) != 0 {
		return c, errFormat
	}
	return c, nil
}

func takeKey(b []byte) (key string, rest []byte, err error) {
	if len(b) < 2 {
		return "", nil, errFormat
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > len(b)-2 {
		return "", nil, errFormat
	}
	return string(b[2 : 2+n]), b[2+n:], nil
}

func appendSnapshot(dst []byte, s *State, rev Rev) []byte {
	from := len(dst)
	dst = append(dst, snapMagic...)
	dst = binary.BigEndian.AppendUint16(dst, snapVersion)
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(rev))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Len()))
	s.Range("", func(it Item) bool {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(it.Key)))
		dst = append(dst, it.Key...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(it.Rev))
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(it.Value)))
		dst = append(dst, it.Value...)
		return true
	})
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

func decodeSnapshot(b []byte) (*State, Rev, error) {
	if len(b) < snapHeaderLen+4 {
		return nil, 0, errShort
	}
	if string(b[:4]) != snapMagic {
		return nil, 0, errMagic
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, 0, errCRC
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != snapVersion {
		return nil, 0, fmt.Errorf("%w: %d", errVersion, v)
	}
	rev := Rev(binary.BigEndian.Uint64(b[8:]))
	count := int64(binary.BigEndian.Uint32(b[16:]))
	body = body[snapHeaderLen:]
	if count*14 > int64(len(body)) {
		return nil, 0, errFormat
	}
	e := editor{s: &State{}, fresh: map[*chunk]bool{}}
	for range count {
		key, rest, err := takeKey(body)
		if err != nil || len(rest) < 12 {
			return nil, 0, errFormat
		}
		it := Item{Key: key, Rev: Rev(binary.BigEndian.Uint64(rest))}
		size := int64(binary.BigEndian.Uint32(rest[8:]))
		rest = rest[12:]
		if size > int64(len(rest)) || it.Rev > rev {
			return nil, 0, errFormat
		}
		it.Value = append([]byte{}, rest[:size]...)
		e.set(it)
		body = rest[size:]
	}
	if len(body) != 0 || int64(e.s.n) != count {
		return nil, 0, errFormat
	}
	return e.s, rev, nil
}
