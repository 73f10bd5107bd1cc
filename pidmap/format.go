package pidmap

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A snapshot file is Kafka's: version, CRC-32C of everything behind it, count, entries. A trailer of ours follows,
// under the same CRC, which Kafka's reader does not look at: it holds what an entry has no field for.
const (
	fileVersion    = 1
	headLen        = 10 // version 2, crc 4, count 4
	crcFrom        = 6
	entryLen       = 46
	trailerVersion = 1
	trailerHeadLen = 12 // magic 6, version 2, count 4
	trailerFixed   = 25 // idle 8, span 4, crc 4, time 8 (newest slot), older slots 1
	trailerSlot    = 28 // lastSeq 4, lastOffset 8, offsetDelta 4, timestamp 8, crc 4
)

const trailerMagic = "SKLPSX"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotHead returns what a snapshot file holds around the pieces that Copy.Append made: the file is head, entries,
// middle, trailer. It lets a caller write a large file without joining it in memory.
func SnapshotHead(entries, trailer []byte) (head [headLen]byte, middle [trailerHeadLen]byte) {
	n := uint32(len(entries) / entryLen)
	copy(middle[:], trailerMagic)
	binary.BigEndian.PutUint16(middle[6:], trailerVersion)
	binary.BigEndian.PutUint32(middle[8:], n)
	binary.BigEndian.PutUint16(head[:], fileVersion)
	binary.BigEndian.PutUint32(head[crcFrom:], n)
	crc := crc32.Update(0, castagnoli, head[crcFrom:])
	crc = crc32.Update(crc, castagnoli, entries)
	crc = crc32.Update(crc, castagnoli, middle[:])
	crc = crc32.Update(crc, castagnoli, trailer)
	binary.BigEndian.PutUint32(head[2:], crc)
	return head, middle
}

// SnapshotFile joins the pieces that Copy.Append made into the bytes of a snapshot file.
func SnapshotFile(entries, trailer []byte) []byte {
	head, middle := SnapshotHead(entries, trailer)
	file := make([]byte, 0, len(head)+len(entries)+len(middle)+len(trailer))
	file = append(append(file, head[:]...), entries...)
	return append(append(file, middle[:]...), trailer...)
}

func appendEntry(dst []byte, e *entry, txnFirst int64) []byte {
	seq, last, delta := int32(-1), int64(-1), int32(0)
	if e.n > 0 {
		seq, last, delta = e.lastSeq[e.head], e.last[e.head], e.delta[e.head]
	}
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(e.pid))
	dst = be.AppendUint16(dst, uint16(e.epoch))
	dst = be.AppendUint32(dst, uint32(seq))
	dst = be.AppendUint64(dst, uint64(last))
	dst = be.AppendUint32(dst, uint32(delta))
	dst = be.AppendUint64(dst, uint64(e.lastTime))
	dst = be.AppendUint32(dst, uint32(e.coordEpoch))
	return be.AppendUint64(dst, uint64(txnFirst))
}

// appendTrailer writes what the entry has no room for. The time of the newest slot is among it, because the entry's
// timestamp is that of a later marker, if there was one.
func appendTrailer(dst []byte, e *entry, touch int32) []byte {
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(idle(touch, e.touch).Milliseconds()))
	dst = be.AppendUint32(dst, e.span)
	if e.n == 0 {
		return append(be.AppendUint64(be.AppendUint32(dst, 0), 1<<64-1), 0)
	}
	dst = be.AppendUint32(dst, e.crc[e.head])
	dst = be.AppendUint64(dst, uint64(e.time[e.head]))
	dst = append(dst, e.n-1)
	for k, i := 1, e.oldest(); k < int(e.n); k, i = k+1, (i+1)%Window {
		dst = be.AppendUint32(dst, uint32(e.lastSeq[i]))
		dst = be.AppendUint64(dst, uint64(e.last[i]))
		dst = be.AppendUint32(dst, uint32(e.delta[i]))
		dst = be.AppendUint64(dst, uint64(e.time[i]))
		dst = be.AppendUint32(dst, e.crc[i])
	}
	return dst
}

// Decode reads a snapshot file and calls fn for each producer, in the order of the file. Touch is minus the idle time
// at the snapshot's offset. A file without a trailer, or with one of an unknown version, gives the newest slot alone,
// the span of that slot, and no idle time; trailer tells which it was. The bytes are not trusted: nothing is allocated
// for what they claim, and every error wraps ErrSnapshot, or is the one fn returned, which ends the walk.
func Decode(file []byte, fn func(*Producer) error) (trailer bool, err error) {
	return decode(file, seqMod-1, fn)
}

func decode(file []byte, q modulus, fn func(*Producer) error) (trailer bool, err error) {
	be := binary.BigEndian
	if len(file) < headLen {
		return false, fmt.Errorf("%w: %d bytes", ErrSnapshot, len(file))
	}
	if v := be.Uint16(file); v != fileVersion {
		return false, fmt.Errorf("%w: version %d", ErrSnapshot, v)
	}
	if got, want := crc32.Checksum(file[crcFrom:], castagnoli), be.Uint32(file[2:]); got != want {
		return false, fmt.Errorf("%w: checksum %08x, stored %08x", ErrSnapshot, got, want)
	}
	count := int64(int32(be.Uint32(file[crcFrom:])))
	body := file[headLen:]
	if count < 0 || count > int64(len(body)/entryLen) {
		return false, fmt.Errorf("%w: %d entries in %d bytes", ErrSnapshot, count, len(file))
	}
	entries, rest := body[:count*entryLen], body[count*entryLen:]
	if trailer = ours(rest); trailer {
		if n := int64(be.Uint32(rest[8:])); n != count {
			return true, fmt.Errorf("%w: trailer of %d entries for %d", ErrSnapshot, n, count)
		}
		rest = rest[trailerHeadLen:]
	}
	var p Producer
	for i := range count {
		err := parseEntry(&p, entries[i*entryLen:], q)
		if err == nil && trailer {
			rest, err = parseTrailer(&p, rest, q)
		}
		if err != nil {
			return trailer, fmt.Errorf("%w: entry %d of producer %d: %w", ErrSnapshot, i, p.PID, err)
		}
		if err := fn(&p); err != nil {
			return trailer, err
		}
	}
	if trailer && len(rest) > 0 {
		return true, fmt.Errorf("%w: %d bytes behind the trailer", ErrSnapshot, len(rest))
	}
	return trailer, nil
}

// ours reports whether a trailer begins that this version can read.
func ours(b []byte) bool {
	return len(b) >= trailerHeadLen && string(b[:6]) == trailerMagic && binary.BigEndian.Uint16(b[6:]) == trailerVersion
}

// parseEntry reads what Kafka's format holds.
func parseEntry(p *Producer, b []byte, q modulus) error {
	be := binary.BigEndian
	*p = Producer{
		PID: int64(be.Uint64(b)), Epoch: int16(be.Uint16(b[8:])), LastTime: int64(be.Uint64(b[26:])),
		CoordEpoch: int32(be.Uint32(b[34:])), TxnFirst: int64(be.Uint64(b[38:])),
	}
	s := Stamp{
		LastSeq: int32(be.Uint32(b[10:])), Last: int64(be.Uint64(b[14:])), Delta: int32(be.Uint32(b[22:])),
		Time: p.LastTime,
	}
	if p.PID < 0 || p.Epoch < 0 || p.CoordEpoch < -1 || p.TxnFirst < -1 {
		return fmt.Errorf("epoch %d, coordinator epoch %d, transaction from %d", p.Epoch, p.CoordEpoch, p.TxnFirst)
	}
	// Kafka writes the unnumbered batches of a coordinator with their offset; there is no sequence to remember.
	if s.LastSeq == noSequence || s.Last < 0 {
		return nil
	}
	if err := plausible(s, q); err != nil {
		return err
	}
	p.Stamps[0], p.N, p.Span = s, 1, q.grown(0, uint32(s.Delta))
	return nil
}

// parseTrailer completes a producer and returns the bytes behind its part.
func parseTrailer(p *Producer, b []byte, q modulus) ([]byte, error) {
	be := binary.BigEndian
	if len(b) < trailerFixed {
		return nil, fmt.Errorf("trailer ends after %d bytes", len(b))
	}
	idleMs, span, older := int64(be.Uint64(b)), be.Uint32(b[8:]), int(b[24])
	newest := p.Stamps[0]
	newest.CRC, newest.Time = be.Uint32(b[12:]), int64(be.Uint64(b[16:]))
	b = b[trailerFixed:]
	if idleMs < 0 || older >= Window || len(b) < older*trailerSlot || p.N == 0 && (older > 0 || span > 0) ||
		p.N > 0 && (span < p.Span || span > q.spanMax()) {
		return nil, fmt.Errorf("idle %d ms, span %d, %d older batches in %d bytes", idleMs, span, older, len(b))
	}
	p.Touch, p.Span = -idleMs, span
	if p.N == 0 {
		return b, nil
	}
	for i := range older {
		p.Stamps[i] = Stamp{
			LastSeq: int32(be.Uint32(b)), Last: int64(be.Uint64(b[4:])), Delta: int32(be.Uint32(b[12:])),
			Time: int64(be.Uint64(b[16:])), CRC: be.Uint32(b[24:]),
		}
		b = b[trailerSlot:]
	}
	p.Stamps[older], p.N = newest, uint8(older+1)
	for i := range older + 1 {
		s := p.Stamps[i]
		if err := plausible(s, q); err != nil {
			return nil, err
		}
		if i > 0 && s.Base() <= p.Stamps[i-1].Last {
			return nil, fmt.Errorf("batch at %d behind one at %d", s.Base(), p.Stamps[i-1].Last)
		}
	}
	return b, nil
}

// plausible refuses slots whose arithmetic would leave the range of offsets or sequence numbers.
func plausible(s Stamp, q modulus) error {
	if !q.holds(s.LastSeq) || s.Delta < 0 || !q.holds(s.Delta) || s.Last < int64(s.Delta) {
		return fmt.Errorf("batch with last sequence %d, last offset %d, delta %d", s.LastSeq, s.Last, s.Delta)
	}
	return nil
}
