package store

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sekali/internal/vfs"
)

// The offset files at the top of the data directory; all have the form of EncodeOffsets.
const (
	RecoveryFile = "recovery-point-offset-checkpoint" // flushed with indexes and snapshot
	StartFile    = "log-start-offset-checkpoint"      // log start, where it was raised
	MarkFile     = "replication-offset-checkpoint"    // the durable mark
	CleanerFile  = "cleaner-offset-checkpoint"        // first dirty offset of compaction
	HighFile     = "sekali.high"                      // durability=written: last high watermarks
)

// Place names a partition inside an offset file.
type Place struct {
	Topic     string
	Partition int32
}

// Offsets is the content of an offset file.
type Offsets map[Place]int64

// EncodeOffsets is Kafka's checkpoint form: a line with the version 0, one with the number of entries, then a line
// "topic partition offset" each, here sorted.
func EncodeOffsets(o Offsets) []byte {
	places := make([]Place, 0, len(o))
	for p := range o {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b Place) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	b := append(make([]byte, 0, 16+40*len(o)), "0\n"...)
	b = append(strconv.AppendInt(b, int64(len(o)), 10), '\n')
	for _, p := range places {
		b = append(append(b, p.Topic...), ' ')
		b = append(strconv.AppendInt(b, int64(p.Partition), 10), ' ')
		b = append(strconv.AppendInt(b, o[p], 10), '\n')
	}
	return b
}

// DecodeOffsets reads what EncodeOffsets and Kafka write. An empty file has no entries.
func DecodeOffsets(b []byte) (Offsets, error) {
	o := Offsets{}
	if len(b) == 0 {
		return o, nil
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 {
		return nil, errors.New("no count")
	}
	if v := strings.TrimSpace(lines[0]); v != "0" {
		return nil, fmt.Errorf("version %q", v)
	}
	count, err := strconv.ParseUint(strings.TrimSpace(lines[1]), 10, 31)
	if err != nil || int(count) != len(lines)-2 {
		return nil, fmt.Errorf("%d entries, the file says %q", len(lines)-2, lines[1])
	}
	for i, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d: %q", i+3, line)
		}
		n, err := strconv.ParseUint(f[1], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+3, err)
		}
		at, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || at < 0 {
			return nil, fmt.Errorf("line %d: offset %q", i+3, f[2])
		}
		p := Place{f[0], int32(n)}
		if _, twice := o[p]; twice {
			return nil, fmt.Errorf("line %d: %s %d occurs twice", i+3, p.Topic, p.Partition)
		}
		o[p] = at
	}
	return o, nil
}

// ReadOffsets reads an offset file of a data directory. A missing file has no entries; a damaged one is an error, and
// what follows from it is the caller's decision.
func ReadOffsets(fs vfs.FS, dir, name string) (Offsets, error) {
	b, err := vfs.ReadFile(fs, path.Join(dir, name))
	if errors.Is(err, iofs.ErrNotExist) {
		return Offsets{}, nil
	}
	if err == nil {
		var o Offsets
		if o, err = DecodeOffsets(b); err == nil {
			return o, nil
		}
	}
	return nil, fmt.Errorf("store: %s: %w", path.Join(dir, name), err)
}

// WriteOffsets replaces an offset file; it returns when the new one is durable.
func WriteOffsets(fs vfs.FS, dir, name string, o Offsets) error {
	if err := vfs.WriteFileAtomic(fs, dir, name, EncodeOffsets(o)); err != nil {
		return fmt.Errorf("store: %s: %w", path.Join(dir, name), err)
	}
	return nil
}

// offsetFile is one offset file of an open store. Any goroutine may ask for it to be written: calls that meet share a
// write. A failed write leaves the file of before; the next one uses a new descriptor.
type offsetFile struct {
	fs        vfs.FS
	dir, name string

	mu    sync.Mutex
	free  sync.Cond // of mu: a write has ended
	asked uint64    // calls so far
	done  uint64    // calls whose values the last ended write held
	busy  bool
	err   error // of the last ended write
}

func newOffsetFile(fs vfs.FS, dir, name string) *offsetFile {
	f := &offsetFile{fs: fs, dir: dir, name: name}
	f.free.L = &f.mu
	return f
}

// write returns when everything that was to be seen by render before the call is durable. render runs without a
// lock of the file.
func (f *offsetFile) write(render func() Offsets) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	mine := f.asked
	for f.busy {
		f.free.Wait()
		if f.done >= mine {
			return f.err
		}
	}
	f.busy = true
	holds := f.asked
	f.mu.Unlock()
	err := WriteOffsets(f.fs, f.dir, f.name, render())
	f.mu.Lock()
	f.busy, f.done, f.err = false, holds, err
	f.free.Broadcast()
	return err
}
