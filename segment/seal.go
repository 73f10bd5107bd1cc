package segment

import (
	"errors"
	"fmt"
	"os"

	"sekali/index"
	"sekali/internal/vfs"
)

// FlushIndex appends the index entries made since the last call to the index files and flushes them (and the
// directory, if a file is new). When it returns nil, the entries of everything appended before the call are durable:
// the recovery point may move up to there. One caller at a time is let in; it may overlap Append and readers and is
// not for Log.mu.
func (s *Segment) FlushIndex() error {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return s.flush(false)
}

// Seal completes and flushes the three index files, gives back reserved blocks and makes the segment one that takes no
// more appends. The owner calls it after the last Append; it may overlap readers and is not for Log.mu. An error
// leaves the segment active; where it is a full disk the call may be repeated.
func (s *Segment) Seal() error {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	if s.sealed.Load() {
		return nil
	}
	if err := s.flush(true); err != nil {
		return err
	}
	if s.w.torn || s.w.reserved > s.w.end {
		if err := s.Unwrite(); err != nil {
			return err
		}
	}
	s.freeze()
	s.settle(s.synced.Load())
	return nil
}

// freeze lets readers use the files in place of the index in memory.
func (s *Segment) freeze() {
	if s.o.Cache != nil {
		s.key.Store(s.o.Cache.NextKey())
	}
	s.sealed.Store(true)
	s.active.Store(nil)
	s.aborted.Store(nil)
	s.w = writer{limit: s.w.limit, rollMs: s.w.rollMs, step: reserveMin}
}

// flush brings the files up to the index in memory. final adds the last time entry, which names the largest timestamp
// of the segment (spec/on-disk.md 4). fmu is held.
func (s *Segment) flush(final bool) error {
	x, d := s.active.Load(), &s.disk
	if x == nil || d.failed != nil {
		return d.failed
	}
	n, txns := x.Len(), s.aborted.Load().All()
	times := index.AppendTimeIndex(nil, x, d.entries, n)
	next := onDisk{entries: n, times: d.times + len(times)/index.TimeEntryLen, txns: len(txns), newFiles: d.newFiles}
	if final {
		next.extra = s.lastTime(x, n)
	}
	if e := next.extra; e.ok && (e != d.extra || len(times) > 0 || d.stale) {
		times = index.AppendTimeEntry(times, e.ms, e.rel)
	}
	offsets := index.AppendOffsetIndex(nil, x, d.entries, n)
	aborted := index.AppendTxnIndex(nil, txns[d.txns:])
	if d.stale && d.entries+d.times+d.txns == 0 {
		if err := s.rewrite(offsets, times, aborted); err != nil {
			return err
		}
		next.newFiles = false
		*d = next
		return nil
	}
	for _, file := range []struct {
		kind string
		at   int
		b    []byte
		cut  bool
	}{
		{IndexSuffix, d.entries * index.OffsetEntryLen, offsets, d.stale},
		{TimeSuffix, d.times * index.TimeEntryLen, times, d.stale || d.extra.ok && d.extra != next.extra},
		{TxnSuffix, d.txns * index.TxnEntryLen, aborted, d.stale},
	} {
		if err := s.extend(file.kind, int64(file.at), file.b, file.cut); err != nil {
			return err
		}
	}
	next.newFiles = d.newFiles
	if next.newFiles {
		if err := s.o.FS.SyncDir(s.dir); err != nil {
			return s.indexFailed(err)
		}
		next.newFiles = false
	}
	*d = next
	return nil
}

// lastTime is the time entry that the n entries of x lack.
func (s *Segment) lastTime(x *index.Active, n int) timeEntry {
	ms, last := s.max.get()
	have := int64(index.NoTime)
	if n > 0 {
		have = x.At(n - 1).MaxTime
	}
	if ms <= have {
		return timeEntry{}
	}
	return timeEntry{ms, uint32(last - s.id.Base), true}
}

func (s *Segment) indexFailed(err error) error {
	s.disk.failed = fmt.Errorf("segment: flush of the index of %s: %w", Name(s.id.Base, LogSuffix), err)
	return s.disk.failed
}

// extend writes b at position at of an index file, cuts off what lies behind it and flushes. With nothing to write it
// does nothing unless cut says that something lies behind.
func (s *Segment) extend(kind string, at int64, b []byte, cut bool) error {
	if len(b) == 0 && !cut {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.o.FS.OpenFile(s.path(kind), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if len(b) == 0 {
			return nil
		}
		s.disk.newFiles = true
		f, err = s.o.FS.OpenFile(s.path(kind), os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return err
	}
	err = s.overwrite(f, at, b)
	return errors.Join(err, f.Close())
}

func (s *Segment) overwrite(f vfs.File, at int64, b []byte) error {
	if len(b) > 0 {
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	end := at + int64(len(b))
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size != end {
		if err := f.Truncate(end); err != nil {
			return err
		}
	}
	if err := f.Datasync(); err != nil {
		return s.indexFailed(err)
	}
	return nil
}

// rewrite replaces the index files as a whole, for what they hold cannot be trusted.
func (s *Segment) rewrite(offsets, times, aborted []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := func(kind string) string { return Name(s.id.Base, kind+s.suffix) }
	if err := vfs.WriteFileAtomic(s.o.FS, s.dir, name(TxnSuffix), aborted); err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.o.FS, s.dir, name(TimeSuffix), times); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.o.FS, s.dir, name(IndexSuffix), offsets)
}
