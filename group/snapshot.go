package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A snapshot of a shard: "SKGO", uint16 version, int32 partition, int64 asOf, int64 records, then for each record its
// journal offset (int64), key and value (uvarint length and bytes each), and xxhash64 of all that. Integers are
// big-endian. It holds the last record of every key of the state after asOf and possibly later ones; applying the
// journal from asOf on then gives the whole state. Staged offsets are never in it: asOf lies at or below the first of
// them. It is an accelerator and may be missing, damaged or deleted.
const (
	snapshotMagic   = "SKGO"
	snapshotVersion = 1
	snapshotHeader  = 4 + 2 + 4 + 8 + 8
	snapshotSum     = 8
	snapshotRetry   = 10 * time.Second
	maxSnapshot     = 1 << 31 // bytes of a key or value
)

// errSnapshot is the kind of every error of a snapshot that cannot be used.
var errSnapshot = errors.New("group: unusable snapshot")

// snapshot is when the last one was taken. Owner: the shard.
type snapshot struct {
	active bool
	asOf   int64
}

// takeSnapshot saves the state.
func (s *shard) takeSnapshot() {
	asOf := s.firstStaged(s.applied)
	b := s.encodeSnapshot(asOf)
	snaps, id := s.m.snaps, int(s.id)
	s.aside(func() func() {
		err := snaps.Save(id, asOf, b)
		return func() { s.snapshotTaken(asOf, err) }
	})
}

func (s *shard) snapshotTaken(asOf int64, err error) {
	if err != nil {
		s.after(snapshotRetry, s.takeSnapshot)
		return
	}
	// Counted from what was applied, not from asOf: a long transaction holds asOf back.
	s.snapshot = snapshot{asOf: max(asOf, s.applied)}
	s.maintain()
}

func (s *shard) encodeSnapshot(asOf int64) []byte {
	b := make([]byte, 0, snapshotHeader+64*(s.count+len(s.others)))
	b = append(b, snapshotMagic...)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(s.id))
	b = binary.BigEndian.AppendUint64(b, uint64(asOf))
	b = binary.BigEndian.AppendUint64(b, uint64(s.count+len(s.others)))
	add := func(at int64, key, value []byte) {
		b = binary.BigEndian.AppendUint64(b, uint64(at))
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
	}
	for key, o := range s.others {
		add(o.at, []byte(key), o.value)
	}
	for id, g := range s.groups {
		for k, c := range g.offsets.live {
			r := encodeOffset(id, k, &c)
			add(c.at, r.Key, r.Value)
		}
	}
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
}

// loadSnapshot applies the snapshot and moves from to the journal offset it stands for. stale: there is one that must
// not be used.
func (s *shard) loadSnapshot(j Journal, from *int64) (stale bool) {
	if s.m.snaps == nil {
		return false
	}
	asOf, b, err := s.m.snaps.Load(int(s.id))
	if err != nil || len(b) == 0 {
		return false
	}
	if asOf < j.Start() || asOf > j.End() {
		return true
	}
	recs, at, err := decodeSnapshot(b, s.id, asOf)
	for i := range recs {
		if err == nil {
			err = s.apply(at[i], -1, &recs[i])
		}
	}
	if err != nil {
		s.groups, s.others, s.count = map[string]*group{}, map[string]other{}, 0
		return true
	}
	*from, s.snapshot.asOf = asOf, asOf
	return false
}

// decodeSnapshot gives the records of a snapshot and their journal offsets. The slices alias b. Errors: errSnapshot.
func decodeSnapshot(b []byte, shard int32, asOf int64) (recs []Record, at []int64, err error) {
	if len(b) < snapshotHeader+snapshotSum || string(b[:4]) != snapshotMagic {
		return nil, nil, fmt.Errorf("%w: no header in %d bytes", errSnapshot, len(b))
	}
	body, sum := b[:len(b)-snapshotSum], binary.BigEndian.Uint64(b[len(b)-snapshotSum:])
	if xxhash.Sum64(body) != sum {
		return nil, nil, fmt.Errorf("%w: checksum", errSnapshot)
	}
	version, of := binary.BigEndian.Uint16(b[4:]), int32(binary.BigEndian.Uint32(b[6:]))
	if version != snapshotVersion || of != shard || int64(binary.BigEndian.Uint64(b[10:])) != asOf {
		return nil, nil, fmt.Errorf("%w: version %d of partition %d, wanted %d of %d, as of %d", errSnapshot, version, of,
			snapshotVersion, shard, asOf)
	}
	n := int64(binary.BigEndian.Uint64(b[18:]))
	r := tail{b: body[snapshotHeader:]}
	if n < 0 || n > int64(len(r.b)) {
		return nil, nil, fmt.Errorf("%w: %d records in %d bytes", errSnapshot, n, len(r.b))
	}
	recs, at = make([]Record, n), make([]int64, n)
	for i := range recs {
		if off := r.take(8); off != nil {
			at[i] = int64(binary.BigEndian.Uint64(off))
		}
		recs[i].Key = r.take(r.uvarint())
		recs[i].Value = r.take(r.uvarint())
	}
	if r.bad || len(r.b) != 0 {
		return nil, nil, fmt.Errorf("%w: records do not fill it", errSnapshot)
	}
	return recs, at, nil
}
