package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A snapshot, all big-endian: magic, version, shard (int32), asOf (int64), the bytes counted up to the log start and up
// to asOf (int64 each), the number of ids (uint32); for each id the offset of its last record and the bytes before it
// (int64 each), then key and value of that record, each behind its length (uint32); at the end the XXH64 of all before
// it.
const (
	snapshotMagic   = "SKTX"
	snapshotVersion = 1
	snapshotHeader  = 4 + 2 + 4 + 8 + 8 + 8 + 4
	snapshotEntry   = 8 + 8 + 4 + 4
	snapshotTrailer = 8
	snapshotIDs     = 1024 // encoded in one step
)

// errSnapshot: the bytes are no snapshot of this shard. It is an accelerator, so they are ignored.
var errSnapshot = errors.New("coord: damaged snapshot")

// snapshotState is a snapshot in the making. It holds the ids whose last record lies below asOf, an offset up to which
// the journal was durable when it began: what is replayed on top from there supplies all others, so that it can be made
// in steps while the shard works. It is saved when the records of those others are durable too: a crash that took one
// would leave its id without any.
type snapshotState struct {
	buf    []byte // nil: none in the making
	asOf   int64
	cursor *entry
	count  uint32
	ready  bool  // complete
	after  int64 // to be saved when everything below is durable
	last   int64 // bytes of the journal when the last one was begun
	saving bool
}

// snapshotStep begins a snapshot when SnapshotEvery bytes were written since the last, or goes on with one.
func (s *shard) snapshotStep() {
	sn, every := &s.rw.snap, s.c.cfg.SnapshotEvery
	if sn.saving || every <= 0 || s.c.snaps == nil {
		return
	}
	if sn.buf == nil {
		if s.rw.written-sn.last < every {
			return
		}
		s.beginSnapshot()
	}
	for n := 0; n < snapshotIDs && !sn.ready; n++ {
		e := sn.cursor
		if e == nil || e.offset >= sn.asOf {
			sn.ready, sn.after, sn.cursor = true, s.rw.end, nil
			break
		}
		sn.buf = appendEntry(sn.buf, e.offset, e.link.pos, s.record(e.id, &e.t, s.remaining(e)))
		sn.count++
		sn.cursor = e.link.next
	}
	if !sn.ready || s.rw.durable < sn.after {
		return
	}
	b, asOf := sealSnapshot(sn.buf, sn.count), sn.asOf
	sn.buf, sn.ready, sn.saving = nil, false, true
	s.c.background(func() {
		_ = s.c.snaps.Save(s.index, asOf, b) // without it the next start reads more of the journal
		s.post(func() { sn.saving = false })
	})
}

func (s *shard) beginSnapshot() {
	rw := &s.rw
	sn := &rw.snap
	sn.asOf, sn.cursor, sn.count, sn.last = rw.durable, rw.head, 0, rw.written
	sn.buf = beginSnapshot(s.index, sn.asOf, rw.start, rw.written)
}

// beginSnapshot is the header of a snapshot.
func beginSnapshot(shard int, asOf, start, written int64) []byte {
	b := append(make([]byte, 0, 4096), snapshotMagic...)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(shard))
	b = binary.BigEndian.AppendUint64(b, uint64(asOf))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, uint64(written))
	return append(b, 0, 0, 0, 0)
}

func appendEntry(b []byte, offset, pos int64, r Record) []byte {
	b = slices.Grow(b, snapshotEntry+len(r.Key)+len(r.Value))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(pos))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Key)))
	b = append(b, r.Key...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Value)))
	return append(b, r.Value...)
}

// sealSnapshot completes what beginSnapshot and appendEntry made.
func sealSnapshot(b []byte, count uint32) []byte {
	binary.BigEndian.PutUint32(b[snapshotHeader-4:], count)
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

// parseSnapshot gives the state that b, a snapshot of this shard and offset, holds; any doubt about it is an
// errSnapshot.
func parseSnapshot(b []byte, shard int, asOf int64) (*fold, error) {
	if len(b) < snapshotHeader+snapshotTrailer || string(b[:4]) != snapshotMagic {
		return nil, fmt.Errorf("%w: no header", errSnapshot)
	}
	body := b[:len(b)-snapshotTrailer]
	if xxhash.Sum64(body) != binary.BigEndian.Uint64(b[len(body):]) {
		return nil, fmt.Errorf("%w: checksum", errSnapshot)
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(body[i:])) }
	if v := binary.BigEndian.Uint16(body[4:]); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d", errSnapshot, v)
	}
	if got := int32(binary.BigEndian.Uint32(body[6:])); int(got) != shard || at(10) != asOf {
		return nil, fmt.Errorf("%w: of shard %d as of %d", errSnapshot, got, at(10))
	}
	f := newFold()
	f.start, f.written, f.snapped = at(18), at(26), at(26)
	count := binary.BigEndian.Uint32(body[34:])
	rest := body[snapshotHeader:]
	for range count {
		var err error
		if rest, err = f.restore(rest, asOf); err != nil {
			return nil, err
		}
	}
	if len(rest) != 0 || len(f.last) != int(count) {
		return nil, fmt.Errorf("%w: %d ids and %d bytes, %d ids told", errSnapshot, len(f.last), len(rest), count)
	}
	return f, nil
}

// restore reads one id of a snapshot and returns what follows it.
func (f *fold) restore(b []byte, asOf int64) (rest []byte, err error) {
	if len(b) < 16 {
		return nil, fmt.Errorf("%w: cut", errSnapshot)
	}
	offset, pos := int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	key, b, ok := counted(b[16:])
	if !ok {
		return nil, fmt.Errorf("%w: cut", errSnapshot)
	}
	value, b, ok := counted(b)
	if !ok || offset < 0 || offset >= asOf {
		return nil, fmt.Errorf("%w: record of offset %d", errSnapshot, offset)
	}
	id, err := decodeKey(key)
	if err == nil {
		_, _, err = decodeValue(value)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: record of offset %d: %w", errSnapshot, offset, err)
	}
	f.last[id] = &folded{id: id, value: value, offset: offset, pos: pos, size: recordSize(Record{key, value})}
	return b, nil
}

// counted splits off the bytes behind a uint32 length.
func counted(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > int64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}
