package main

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"

	"sekali/internal/vfs"
	"sekali/segment"
	"sekali/store"
)

// repair is what would make a partition open again: it is planned while the partition is checked and applied when it
// was confirmed. Whatever it takes off the log is kept beside it.
//
// The order of apply is such that a crash in between leaves a directory that either still tells of the damage or cuts
// the rest of it by itself at the next start: first the bytes are copied aside, then the marks are lowered, durably,
// then files go.
type repair struct {
	part *checkedPartition
	dir  string

	segs  []segFile
	snaps []int64
	start int64
	first int64 // base offset of the first segment

	at       int   // segment in which the log is cut; -1: nowhere
	pos      int64 // there
	to       int64 // the log ends at this offset afterwards; -1: it stays
	batches  int64 // whole ones that are cut
	oldEnd   int64
	newStart int64 // the log start is raised to it; -1: it stays

	indexes []int64 // base offsets of segments whose index files go
	bad     []int64 // snapshots that go
	epochs  bool    // the leader epochs are written anew
	list    []epochLine

	recovery, mark store.Offsets // of the directory as they were read; nil: unreadable
	starts         store.Offsets
}

func newRepair(p *partCheck) *repair {
	return &repair{part: p.out, dir: p.dir, segs: p.segs, snaps: slices.Clone(p.snaps), start: p.start, first: p.segs0(),
		at: -1, to: -1, newStart: -1, oldEnd: p.mark, recovery: p.k.recovery, mark: p.k.marks, starts: p.k.starts}
}

// cuts tells whether the log itself gets shorter.
func (r *repair) cuts() bool { return r.to >= 0 }

// cut ends the log at a position of a segment. Only the first call counts: what lies behind goes with it.
func (r *repair) cut(seg int, pos, next int64) {
	if !r.cuts() {
		r.at, r.pos, r.to = seg, pos, next
	}
}

// short lets a log that ends too early end there.
func (r *repair) short(end int64) {
	if !r.cuts() {
		r.to = end
	}
}

// behind notes a whole batch read behind the cut, up to offset end.
func (r *repair) behind(end int64) {
	if r.cuts() {
		r.batches++
		r.oldEnd = max(r.oldEnd, end)
	}
}

func (r *repair) raiseStart(first int64)  { r.newStart = first }
func (r *repair) dropSnapshot(at int64)   { r.bad = append(r.bad, at) }
func (r *repair) reindex(base int64)      { r.indexes = append(r.indexes, base) }
func (r *repair) path(name string) string { return path.Join(r.dir, name) }
func (r *repair) place() store.Place {
	return store.Place{Topic: r.part.Topic, Partition: r.part.Partition}
}
func (r *repair) logName(i int) string {
	return segment.Name(r.segs[i].base, segment.LogSuffix+r.segs[i].suffix)
}
func (r *repair) logBytes(i int) int64 { return r.segs[i].size }
func (r *repair) laterFrom() int       { return r.at + btoi(r.at == 0 || r.pos > 0) }
func (r *repair) truncates() bool      { return r.at >= 0 && r.laterFrom() > r.at }

// cutBytes is how much of the log goes.
func (r *repair) cutBytes() (n int64) {
	if r.at < 0 {
		return 0
	}
	n = r.segs[r.at].size - r.pos
	for i := r.at + 1; i < len(r.segs); i++ {
		n += r.segs[i].size
	}
	return n
}

// points are the marks as they will be: nothing vouches any more for what goes.
func (r *repair) points() (recovery, mark int64) {
	recovery, mark = r.recovery[r.place()], r.mark[r.place()]
	limit := int64(math.MaxInt64)
	if r.cuts() {
		limit, mark = r.to, min(mark, r.to)
	}
	gone := r.goneIndexes()
	for _, base := range gone {
		limit = min(limit, base)
	}
	if r.cuts() || len(gone)+len(r.bad) > 0 {
		recovery = min(recovery, r.snapshotBelow(limit))
	}
	return recovery, mark
}

// snapshotBelow is the offset of the newest sound snapshot at or below an offset, the first segment's without one.
func (r *repair) snapshotBelow(limit int64) int64 {
	at := min(r.first, limit)
	for _, s := range r.snaps {
		if s <= limit && s >= r.first && !slices.Contains(r.bad, s) {
			at = max(at, s)
		}
	}
	return at
}

// describe says exactly what apply will do.
func (r *repair) describe(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", r.part.name())
	if r.newStart >= 0 {
		fmt.Fprintf(w, "  raise the log start from %d to %d: the offsets between are not there any more\n", r.start,
			r.newStart)
	}
	switch {
	case r.truncates():
		fmt.Fprintf(w, "  cut %s at position %d, offset %d\n", r.path(r.logName(r.at)), r.pos, r.to)
	case r.cuts():
		fmt.Fprintf(w, "  end the log at offset %d\n", r.to)
	}
	if r.cuts() {
		lost := max(r.oldEnd-r.to, 0)
		fmt.Fprintf(w, "  LOST: %d bytes, %d whole batches among them, %d offsets (%d to %d)\n", r.cutBytes(), r.batches,
			lost,
			r.to, max(r.oldEnd-1, r.to))
		if r.cutBytes() > 0 {
			fmt.Fprintf(w, "  the bytes are kept aside under names that end in %s\n", segment.CutSuffix)
		}
	}
	if r.at >= 0 {
		for i := r.laterFrom(); i < len(r.segs); i++ {
			fmt.Fprintf(w, "  take %s out of the log (%d bytes)\n", r.path(r.logName(i)), r.logBytes(i))
		}
	}
	for _, at := range r.goneSnapshots() {
		fmt.Fprintf(w, "  remove %s\n", r.path(segment.Name(at, snapshotSuffix)))
	}
	for _, base := range r.goneIndexes() {
		fmt.Fprintf(w, "  remove the index files of %s, to be made anew\n", r.path(segment.Name(base, segment.LogSuffix)))
	}
	if r.epochs {
		fmt.Fprintf(w, "  write %s anew from the batches\n", r.path(epochName))
	}
	recovery, mark := r.points()
	fmt.Fprintf(w, "  durable mark %d (was %d), recovery point %d (was %d)\n", mark, r.mark[r.place()], recovery,
		r.recovery[r.place()])
}

// goneSnapshots are those above the new end, and those that are wrong.
func (r *repair) goneSnapshots() (out []int64) {
	for _, at := range r.snaps {
		if slices.Contains(r.bad, at) || r.cuts() && at > r.to {
			out = append(out, at)
		}
	}
	return out
}

// goneIndexes are the segments whose index files go: wrong ones, and those of what is cut.
func (r *repair) goneIndexes() []int64 {
	out := slices.Clone(r.indexes)
	if r.cuts() && len(r.segs) > 0 {
		from := r.at
		if from < 0 {
			from = len(r.segs) - 1
		}
		for _, s := range r.segs[from:] {
			out = append(out, s.base)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// apply does it. After an error the directory is as described at repair; it may be called for again by another check.
func (r *repair) apply(fs vfs.FS, dir string) error {
	if err := errors.Join(missing(fs.Remove(path.Join(dir, store.CleanFile))), fs.SyncDir(dir)); err != nil {
		return err
	}
	if r.truncates() {
		if err := r.copyAside(fs); err != nil {
			return err
		}
	}
	if err := r.lowerMarks(fs, dir); err != nil {
		return err
	}
	if err := r.removeDerived(fs); err != nil {
		return err
	}
	if r.at >= 0 {
		if err := r.cutLog(fs); err != nil {
			return err
		}
	}
	if r.epochs {
		if err := vfs.WriteFileAtomic(fs, r.dir, epochName, encodeEpochs(r.list, r.to)); err != nil {
			return err
		}
	}
	return fs.SyncDir(r.dir)
}

// encodeEpochs is the leader epoch checkpoint of the epochs that begin below end; -1: of all.
func encodeEpochs(list []epochLine, end int64) []byte {
	if end >= 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(e epochLine) bool { return e.start >= end })
	}
	return encodeEpochLines(list)
}

func missing(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}

// aside is a free name for what is cut from a segment: nothing that was kept before is written over.
func (r *repair) aside(fs vfs.FS, base int64) (string, error) {
	name := r.path(segment.Name(base, segment.CutSuffix))
	for n := 1; ; n++ {
		there, err := vfs.Exists(fs, name)
		if err != nil || !there {
			return name, err
		}
		name = r.path(segment.Name(base, segment.CutSuffix+"."+strconv.Itoa(n)))
	}
}

// copyAside keeps what is cut from the segment that stays, durably.
func (r *repair) copyAside(fs vfs.FS) error {
	if r.segs[r.at].size <= r.pos {
		return nil
	}
	name, err := r.aside(fs, r.segs[r.at].base)
	if err != nil {
		return err
	}
	from, err := fs.OpenFile(r.path(r.logName(r.at)), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, r.pos, r.segs[r.at].size-r.pos))
	if err == nil {
		err = to.Datasync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, missing(fs.Remove(name)))
	}
	return fs.SyncDir(r.dir)
}

// lowerMarks files the new offsets. An unreadable file stays as it is: a start takes it for empty, which is lower than
// anything.
func (r *repair) lowerMarks(fs vfs.FS, dir string) error {
	recovery, mark := r.points()
	for _, f := range []struct {
		name string
		o    store.Offsets
		at   int64
	}{{store.RecoveryFile, r.recovery, recovery}, {store.MarkFile, r.mark, mark}, {store.StartFile, r.starts,
		r.newStart}} {
		if old, ok := f.o[r.place()]; f.o == nil || f.at < 0 || ok && old == f.at || !ok && f.at == 0 {
			continue
		}
		f.o[r.place()] = f.at
		if err := store.WriteOffsets(fs, dir, f.name, f.o); err != nil {
			return err
		}
	}
	return nil
}

// removeDerived removes snapshots and index files; the .index goes first, because a start notices its absence.
func (r *repair) removeDerived(fs vfs.FS) error {
	for _, at := range r.goneSnapshots() {
		if err := missing(fs.Remove(r.path(segment.Name(at, snapshotSuffix)))); err != nil {
			return err
		}
	}
	gone := r.goneIndexes()
	for _, kind := range []string{segment.IndexSuffix, segment.TimeSuffix, segment.TxnSuffix} {
		for _, base := range gone {
			if err := missing(fs.Remove(r.path(segment.Name(base, kind)))); err != nil {
				return err
			}
		}
		if err := fs.SyncDir(r.dir); err != nil {
			return err
		}
	}
	return nil
}

// cutLog takes the later segments out, from the last on, then cuts.
func (r *repair) cutLog(fs vfs.FS) error {
	for i := len(r.segs) - 1; i >= r.laterFrom(); i-- {
		if r.segs[i].size == 0 {
			if err := fs.Remove(r.path(r.logName(i))); err != nil {
				return err
			}
			continue
		}
		name, err := r.aside(fs, r.segs[i].base)
		if err != nil {
			return err
		}
		if err := fs.Rename(r.path(r.logName(i)), name); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(r.dir); err != nil || !r.truncates() {
		return err
	}
	f, err := fs.OpenFile(r.path(r.logName(r.at)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(r.pos); err == nil {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}
