package plog

import (
	"errors"
	"io"
	"os"
	"path"

	"sekali/index"
	"sekali/internal/vfs"
	"sekali/segment"
)

// settle makes the page cache trustworthy before a log that was not closed is read. Whole, valid batches may lie in it
// that are on no disk: written by a process that died, or written back in vain, for after a failed flush the kernel
// marks pages clean and goes on showing them, also to the next process. So every file that reaches past the durable
// mark is flushed and then dropped from the cache; what the scan reads afterwards is what the disk holds (I7, I15).
// Where pages stay (a reader still has them mapped) the file is replaced by a synced copy: the lost bytes become real.
func (r *recovery) settle() error {
	if r.o.Clean || len(r.bases) == 0 {
		return nil
	}
	kind, err := r.o.FS.Kind(r.o.Dir)
	if err != nil {
		return err
	}
	if err := r.o.FS.SyncDir(r.o.Dir); err != nil {
		return err
	}
	if kind == "tmpfs" {
		return nil // the page cache is all there is
	}
	// The log start is no sign of a flush: in written mode it may have been raised above the durable end, and the
	// producers below it are still needed.
	flushed := max(r.o.Mark, r.o.Recovery)
	for i, base := range r.bases {
		if i+1 == len(r.bases) || r.bases[i+1] > flushed {
			if err := r.settleFile(base, flushed); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleFile flushes the segment file with this base and drops it from the cache from offset flushed on.
func (r *recovery) settleFile(base, flushed int64) error {
	name := path.Join(r.o.Dir, segment.Name(base, segment.LogSuffix))
	f, err := r.o.FS.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		err = f.Datasync()
	}
	cached := error(nil)
	if err == nil {
		cached = r.uncache(f, r.below(base, size, flushed))
	}
	if err == nil && cached != nil {
		r.l.fault("page cache", cached)
		err = r.replace(f, name, size)
	}
	return errors.Join(err, f.Close())
}

// uncache empties the page cache from a position on. Large folios go whole or not at all, so it begins on a border of
// the largest, and takes the whole file if something stays.
func (r *recovery) uncache(f vfs.File, from int64) error {
	from -= from % folioMax
	err := f.Uncache(from, 0)
	if err != nil && from > 0 {
		err = f.Uncache(0, 0)
	}
	return err
}

// below is the position of the last indexed batch of a segment file that ends below an offset, 0 without one. Index
// entries below the recovery point are on disk, and no mark lies lower.
func (r *recovery) below(base, size, offset int64) int64 {
	b, err := vfs.ReadFile(r.o.FS, path.Join(r.o.Dir, segment.Name(base, segment.IndexSuffix)))
	if err != nil || index.CheckOffsetIndex(b, size) != nil {
		return 0
	}
	pos := int64(0)
	for i := range len(b) / index.OffsetEntryLen {
		last, at := index.OffsetAt(b, i, base)
		if last >= offset {
			break
		}
		pos = at
	}
	return pos
}

// replace copies the first size bytes of f, as the cache shows them, into a new file, syncs it and gives it the name.
func (r *recovery) replace(f vfs.File, name string, size int64) error {
	tmp := name + ".tmp"
	to, err := r.o.FS.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = copyFile(to, f, size)
	if err == nil {
		err = to.Datasync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = r.o.FS.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, gone(r.o.FS.Remove(tmp)))
	}
	return r.o.FS.SyncDir(r.o.Dir)
}

func copyFile(to io.WriterAt, from io.ReaderAt, size int64) error {
	b := make([]byte, min(size, copyPiece))
	for pos := int64(0); pos < size; {
		n := min(size-pos, int64(len(b)))
		if _, err := from.ReadAt(b[:n], pos); err != nil {
			return err
		}
		if _, err := to.WriteAt(b[:n], pos); err != nil {
			return err
		}
		pos += n
	}
	return nil
}
