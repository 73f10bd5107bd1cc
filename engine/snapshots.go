package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path"
	"strconv"

	"sekali/internal/vfs"
)

// The form of a snapshot file (docs/format): magic, version, shard, asOf, length, CRC-32C of all before and behind it,
// then what the coordinator or the groups wrote. Numbers are big-endian.
const (
	snapshotVersion = 1
	snapshotHead    = 4 + 2 + 4 + 8 + 4 + 4
	snapshotCRC     = snapshotHead - 4
)

// Prefixes of the names of snapshot files in the data directory; the number of the partition follows.
const (
	TxnSnapshotPrefix   = "sekali.coord-"
	GroupSnapshotPrefix = "sekali.group-"
)

var snapshotMagics = map[string]string{TxnSnapshotPrefix: "SKCS", GroupSnapshotPrefix: "SKGS"}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSnapshot: a snapshot file is damaged or of another version. It is only an accelerator: without it the journal is
// replayed from its start.
var ErrSnapshot = errors.New("engine: snapshot file damaged")

// snapshots keeps the snapshots of one kind of shards as files (coord.Snapshots, group.Snapshots). Calls for one shard
// do not overlap.
type snapshots struct {
	fs      vfs.FS
	dir     string
	prefix  string
	journal func(shard int) *partition // nil: there is none
	fault   func(path string, err error)
}

func (s *snapshots) name(shard int) string { return s.prefix + strconv.Itoa(shard) }

// Save replaces the snapshot of a shard. It is refused while what it reflects is not durable: a journal that was cut
// below asOf and has grown again would be taken for the one it was made of.
func (s *snapshots) Save(shard int, asOf int64, b []byte) error {
	j := s.journal(shard)
	if j == nil {
		return fmt.Errorf("engine: snapshot of shard %d: no journal", shard)
	}
	if high := j.offsets().High; asOf > high {
		return fmt.Errorf("engine: snapshot of %s as of %d, but durable below %d only", j.tp, asOf, high)
	}
	// With durability=written that is not yet on the disk. A power cut must not take records that the snapshot stands
	// for, nor later ones of ids that it leaves out for them.
	if err := j.flush(); err != nil {
		return fmt.Errorf("engine: snapshot of %s: %w", j.tp, err)
	}
	if int64(len(b)) > math.MaxUint32 {
		return fmt.Errorf("engine: snapshot of %s: %d bytes", j.tp, len(b))
	}
	return vfs.WriteFileAtomic(s.fs, s.dir, s.name(shard), EncodeSnapshot(s.prefix, shard, asOf, b))
}

// flush makes everything that was shown durable: with durability=written it need not be.
func (p *partition) flush() error {
	l, err := p.log()
	if err != nil {
		return err
	}
	return l.Flush(l.Offsets().High)
}

// Load reads the snapshot of a shard; asOf -1: there is none that can be used. One that is damaged, or lies outside the
// journal, is removed: a cut journal grows past asOf again.
func (s *snapshots) Load(shard int) (asOf int64, b []byte, err error) {
	name := path.Join(s.dir, s.name(shard))
	file, err := vfs.ReadFile(s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil, nil
	}
	if err != nil {
		return -1, nil, fmt.Errorf("engine: %w", err)
	}
	asOf, b, err = DecodeSnapshot(s.prefix, shard, file)
	if j := s.journal(shard); err == nil && j != nil {
		switch at := j.offsets(); {
		case asOf < at.Start:
			return -1, nil, nil // the journal was rewritten since and begins with the whole state
		case asOf > at.High:
			err = fmt.Errorf("%w: as of %d, outside the journal %d to %d", ErrSnapshot, asOf, at.Start, at.High)
		}
	}
	if err == nil {
		return asOf, b, nil
	}
	s.fault(name, err)
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return -1, nil, fmt.Errorf("engine: %w", err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return -1, nil, fmt.Errorf("engine: %w", err)
	}
	return -1, nil, nil
}

// EncodeSnapshot makes the content of a snapshot file; prefix is one of the constants of this package.
func EncodeSnapshot(prefix string, shard int, asOf int64, b []byte) []byte {
	out := make([]byte, 0, snapshotHead+len(b))
	out = append(out, snapshotMagics[prefix]...)
	out = binary.BigEndian.AppendUint16(out, snapshotVersion)
	out = binary.BigEndian.AppendUint32(out, uint32(shard))
	out = binary.BigEndian.AppendUint64(out, uint64(asOf))
	out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
	sum := crc32.Update(crc32.Checksum(out, castagnoli), castagnoli, b)
	out = binary.BigEndian.AppendUint32(out, sum)
	return append(out, b...)
}

// DecodeSnapshot checks a snapshot file and returns what it holds, a slice of file. Errors wrap ErrSnapshot.
func DecodeSnapshot(prefix string, shard int, file []byte) (asOf int64, b []byte, err error) {
	if len(file) < snapshotHead || string(file[:4]) != snapshotMagics[prefix] {
		return -1, nil, fmt.Errorf("%w: no header", ErrSnapshot)
	}
	if v := binary.BigEndian.Uint16(file[4:]); v != snapshotVersion {
		return -1, nil, fmt.Errorf("%w: version %d", ErrSnapshot, v)
	}
	if n := binary.BigEndian.Uint32(file[6:]); int64(n) != int64(shard) {
		return -1, nil, fmt.Errorf("%w: of partition %d", ErrSnapshot, n)
	}
	b = file[snapshotHead:]
	if n := binary.BigEndian.Uint32(file[18:]); int64(n) != int64(len(b)) {
		return -1, nil, fmt.Errorf("%w: %d bytes, the header says %d", ErrSnapshot, len(b), n)
	}
	sum := crc32.Update(crc32.Checksum(file[:snapshotCRC], castagnoli), castagnoli, b)
	if got := binary.BigEndian.Uint32(file[snapshotCRC:]); got != sum {
		return -1, nil, fmt.Errorf("%w: checksum", ErrSnapshot)
	}
	return int64(binary.BigEndian.Uint64(file[10:])), b, nil
}
