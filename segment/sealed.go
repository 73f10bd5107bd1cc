package segment

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

// sealedIndex returns the index of a sealed segment, through the cache.
func (s *Segment) sealedIndex() (*index.Sealed, error) {
	if s.o.Cache == nil {
		return s.load()
	}
	return s.o.Cache.Get(s.key.Load(), s.load)
}

// loadSealed reads the index of a sealed segment from its files. A damaged offset or time index is made anew from the
// batch headers; a damaged transaction index is an IndexError, for it needs the state of the producers.
func (s *Segment) loadSealed() (*index.Sealed, error) {
	s.mu.Lock()
	b, err := s.readFiles(s.size.Load())
	s.mu.Unlock()
	if _, mendable := errors.AsType[*IndexError](err); err != nil && !mendable {
		return nil, err
	}
	if err := s.checkTxn(b.txn); err != nil {
		return nil, err
	}
	if err == nil {
		var x *index.Sealed
		if x, err = index.DecodeSealed(b.offset, b.time, b.txn, s.id.Base, s.size.Load()); err == nil {
			return x, nil
		}
	}
	return s.reindex(b.txn, err)
}

func (s *Segment) checkTxn(txn []byte) error {
	err := index.CheckTxnIndex(txn, s.id.Base)
	if err == nil && len(txn) == 0 && s.hasAborted.Load() {
		err = errMissing
	}
	if err != nil {
		return s.indexError(err)
	}
	return nil
}

// reindex makes the offset and time index of a sealed segment anew, beside a sound transaction index. why is what was
// wrong with the old one.
func (s *Segment) reindex(txn []byte, why error) (*index.Sealed, error) {
	h, err := s.open(false)
	if err != nil {
		return nil, err
	}
	offsets, times, err := Reindex(h.f, s.id.Base, s.size.Load(), s.o.IndexEvery)
	if err != nil {
		if c, ok := errors.AsType[*CorruptError](err); ok {
			c.Path = s.pathNow()
		}
		return nil, err
	}
	s.fault("index", why)
	s.fault("index", s.rewrite(offsets, times, txn))
	return index.DecodeSealed(offsets, times, txn, s.id.Base, s.size.Load())
}

// Reindex makes the .index and .timeindex of a full segment from the headers of its batches: size bytes of f, a
// segment that begins at offset base, with an entry every so many bytes (0: 4096). The bytes are those Seal writes.
func Reindex(f io.ReaderAt, base, size int64, every int) (offsets, times []byte, err error) {
	s := newSegment("", ID{base}, Options{Size: min(max(size, 1), SizeMax), IndexEvery: every})
	w := s.walkFile(f, size)
	defer w.done()
	if _, _, err := s.advance(&w, anchor{}, math.MaxInt64, rules{holes: math.MaxInt64, build: true}); err != nil {
		return nil, nil, err
	}
	x := s.active.Load()
	offsets = index.AppendOffsetIndex(nil, x, 0, x.Len())
	times = index.AppendTimeIndex(nil, x, 0, x.Len())
	if e := s.lastTime(x, x.Len()); e.ok {
		times = index.AppendTimeEntry(times, e.ms, e.rel)
	}
	return offsets, times, nil
}

// OpenSealed opens a segment that takes no more appends. It checks what can be checked in a few reads: sizes and last
// entries of the index files, the batch headers from the last indexed batch to the end, the transaction index. The
// file is closed again; the first read opens it.
//
// Errors: *IndexError, nothing is lost, the caller recovers the segment from its base; *CorruptError, the log itself
// is damaged; else the file system's.
func OpenSealed(dir string, id ID, o Options) (*Segment, error) {
	s := newSegment(dir, id, o)
	f, err := o.FS.OpenFile(s.path(LogSuffix), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	err = s.openSealed(f)
	s.handle.Store(nil)
	s.o.Handles.forget(s)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Segment) openSealed(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size > SizeMax {
		return s.corrupt(SizeMax, ErrLength)
	}
	t, err := s.readTails(size)
	if err != nil {
		return err
	}
	w := s.walkFile(f, size)
	defer w.done()
	a := anchor{}
	if t.indexed {
		a = anchor{t.pos, true}
		v, _, err := w.header(t.pos)
		if err != nil {
			return s.foreign(err)
		}
		if v.LastOffset() != s.id.Base+t.rel {
			return s.indexError(errForeign)
		}
	}
	if t.time.ok {
		s.max.set(t.time.ms, s.id.Base+int64(t.time.rel))
	}
	have, _ := s.max.get()
	end, _, err := s.advance(&w, a, math.MaxInt64, rules{holes: math.MaxInt64})
	if err != nil {
		return err
	}
	if ms, _ := s.max.get(); ms != have {
		return s.indexError(errMissing)
	}
	s.size.Store(end)
	s.synced.Store(end)
	s.hasAborted.Store(len(t.txn) > 0)
	s.freeze()
	// From here on the segment can be searched as readers do.
	s.handle.Store(&handle{f: f})
	return s.agreeSealed(&w, t)
}

// agreeSealed checks the last time entry and the last aborted transaction against their batches.
func (s *Segment) agreeSealed(w *walker, t tails) error {
	if t.time.ok {
		pos := int64(-1)
		if !t.indexed {
			pos = 0
		} else if int64(t.time.rel) >= t.rel {
			pos = t.pos // no need to load the index
		}
		if err := s.agreeTime(w, pos, t.time); err != nil {
			return err
		}
	}
	if n := len(t.txn) / index.TxnEntryLen; n > 0 {
		_, a := index.TxnAt(t.txn, n-1)
		return s.agreeMarker(w, a)
	}
	return nil
}

// tails is what OpenSealed knows of the index files: their last entries, and the transaction index as a whole, which
// is nearly always absent.
type tails struct {
	indexed  bool
	rel, pos int64
	time     timeEntry
	txn      []byte
}

func (s *Segment) readTails(size int64) (t tails, err error) {
	last, err := s.lastOf(IndexSuffix, index.OffsetEntryLen)
	if err != nil {
		return t, err
	}
	if len(last) > 0 {
		if err := index.CheckOffsetIndex(last, size); err != nil {
			return t, s.indexError(err)
		}
		t.indexed = true
		t.rel, t.pos = index.OffsetAt(last, 0, 0)
	}
	if last, err = s.lastOf(TimeSuffix, index.TimeEntryLen); err != nil {
		return t, err
	}
	if len(last) > 0 {
		if err := index.CheckTimeIndex(last); err != nil {
			return t, s.indexError(err)
		}
		ms, rel := index.TimeAt(last, 0, 0)
		t.time = timeEntry{ms, uint32(rel), true}
	}
	if t.txn, err = s.readFile(TxnSuffix, index.TxnEntryLen*(size/batch.HeaderLen+1)); err != nil {
		return t, err
	}
	return t, s.checkTxn(t.txn)
}

// lastOf reads the last entry of an index file; nil if it is empty.
func (s *Segment) lastOf(kind string, entry int64) ([]byte, error) {
	name := path.Join(s.dir, Name(s.id.Base, kind))
	f, err := s.o.FS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = &IndexError{name, err}
		}
		return nil, err
	}
	b, err := lastEntryOf(f, entry)
	if err != nil {
		err = &IndexError{name, err}
	}
	return b, errors.Join(err, f.Close())
}

func lastEntryOf(f vfs.File, entry int64) ([]byte, error) {
	size, err := f.Size()
	if err != nil || size == 0 {
		return nil, err
	}
	if size%entry != 0 {
		return nil, fmt.Errorf("%w: %d bytes", index.ErrInvalid, size)
	}
	b := make([]byte, entry)
	return b, readFull(f, b, size-entry)
}
