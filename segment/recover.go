package segment

import (
	"errors"
	"io"
	"os"

	"sekali/batch"
	"sekali/internal/vfs"
)

// Scan tells Recover where to begin and what to accept.
type Scan struct {
	// From is an offset. Batches that end below it are kept unread, with the index entries that name them, after a check
	// (spec/on-disk.md 7 step 4); at or below the base the whole segment is read and the index files count for nothing.
	From int64
	// Mark is the durable mark, an offset known to be fsynced: a bad batch below it is corruption, at or above it ends
	// the log.
	Mark int64
	// Epoch is the lowest leader epoch that may follow.
	Epoch int32
	// Holes is an offset below which compaction may have removed batches, now or under an earlier policy: up to it a base
	// offset above the expected one is accepted. What is not flushed yet was never compacted: there a hole is a write
	// that a power cut took. 0: there are none.
	Holes int64
	// Last: no segment follows, so ending below Mark is corruption.
	Last bool
	// Batch sees every batch kept at or above From, in order, with the half-built segment (abort entries are added
	// there). The view is valid during the call. An error ends the recovery. nil: nobody wants to see them.
	Batch func(s *Segment, pos int64, v batch.View) error
}

// Recover opens a segment after a crash, or for append after a clean stop: it reads from Scan.From on with buffered
// preads, cuts what is not a whole batch in its place (spec/on-disk.md 7 step 5), and returns an active segment whose
// index is that of a fresh build. A cut is durable when Recover returns; what else the scan found above the mark is
// not flushed, the caller runs a Sync before it shows it (I7).
//
// Errors: *IndexError (only with From above the base), nothing was changed: call again with From at the base, and with
// the producer state of the newest snapshot at or below it. *CorruptError: bytes below Mark are not what they must be,
// nothing was changed. Otherwise the file system's, or that of Scan.Batch.
func Recover(dir string, id ID, o Options, sc Scan) (*Segment, Cut, error) {
	s := newSegment(dir, id, o)
	f, err := o.FS.OpenFile(s.path(LogSuffix), os.O_RDWR, 0)
	if err != nil {
		return nil, Cut{}, err
	}
	c, err := s.recover(f, sc)
	if err != nil {
		return nil, Cut{}, errors.Join(err, f.Close())
	}
	if err := s.activate(f); err != nil { // closes f if it fails
		return nil, Cut{}, err
	}
	return s, c, nil
}

func (s *Segment) recover(f vfs.File, sc Scan) (c Cut, err error) {
	size, err := f.Size()
	if err != nil {
		return c, err
	}
	r := NewReader(f, s.id.Base, size)
	r.Epoch, r.Holes = sc.Epoch, sc.Holes
	if sc.From > s.id.Base {
		if err := s.resume(f, r, sc); err != nil {
			return c, err
		}
	} else {
		s.disk = onDisk{stale: true, newFiles: true}
	}
	reason, err := s.scan(r, sc)
	if err != nil {
		return c, err
	}
	switch {
	case reason == nil && sc.Last && r.Next < sc.Mark:
		return c, s.corrupt(r.Pos, ErrEnds)
	case reason != nil && r.Next < sc.Mark:
		return c, s.corrupt(r.Pos, reason)
	case reason != nil:
		if c, err = s.cutAt(f, r.Pos, size, reason); err != nil {
			return c, err
		}
	}
	s.size.Store(r.Pos)
	if r.Next <= sc.Mark || reason != nil {
		s.synced.Store(r.Pos)
	}
	return c, nil
}

// resume restores the index below sc.From and moves r there.
func (s *Segment) resume(f vfs.File, r *Reader, sc Scan) error {
	b, err := s.readFiles(r.size)
	if err != nil {
		return err
	}
	w := s.walkFile(f, r.size)
	defer w.done()
	if err := s.keep(&w, b, sc.From); err != nil {
		return err
	}
	pos, epoch, err := s.advance(&w, s.lastEntry(), sc.From, rules{holes: sc.Holes})
	if err == nil && s.next.Load() < sc.From && pos == r.size {
		err = s.corrupt(pos, ErrEnds)
	}
	if err != nil {
		if isCorrupt(err) && s.next.Load() >= sc.Mark {
			// From may be no batch border of a log that was cut shorter: the scan from the base decides.
			return s.indexError(err)
		}
		return err
	}
	r.Pos, r.Next, r.Epoch = pos, s.next.Load(), max(sc.Epoch, epoch)
	return nil
}

// scan reads batches to the end and takes them into the index. reason tells why it ended before the end of the file.
func (s *Segment) scan(r *Reader, sc Scan) (reason, err error) {
	for {
		pos := r.Pos
		v, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil && isReason(err):
			return err, nil
		case err != nil:
			return nil, err
		}
		s.track(pos, v, int64(len(v)))
		if sc.Batch != nil {
			if err := sc.Batch(s, pos, v); err != nil {
				return nil, err
			}
		}
	}
}
