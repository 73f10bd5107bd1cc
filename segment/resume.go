package segment

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

// files is the content of the three index files. Each of them exists: by an empty .txnindex a segment without aborted
// transactions can be told from one that lost the file.
type files struct{ offset, time, txn []byte }

// onDisk is how much of the index the files hold, guarded by Segment.fmu.
type onDisk struct {
	entries, times, txns int
	extra                timeEntry // one more entry at the end of .timeindex, made by Seal
	stale                bool      // the files hold something else behind that
	newFiles             bool      // the directory has not been synced since a file was made
	failed               error     // of a flush: final (I15)
}

type timeEntry struct {
	ms  int64
	rel uint32
	ok  bool
}

// readFiles reads the index files of a segment of size bytes; what is wrong with them is an IndexError, and the others
// are read all the same. mu is held, or the segment is not shared yet.
func (s *Segment) readFiles(size int64) (b files, err error) {
	for _, file := range []struct {
		kind  string
		entry int64
		to    *[]byte
	}{
		{IndexSuffix, index.OffsetEntryLen, &b.offset},
		{TimeSuffix, index.TimeEntryLen, &b.time},
		{TxnSuffix, index.TxnEntryLen, &b.txn},
	} {
		var bad error
		if *file.to, bad = s.readFile(file.kind, file.entry*(size/batch.HeaderLen+1)); bad != nil && err == nil {
			err = bad
		}
	}
	return b, err
}

// readFile reads one index file of at most most bytes: more entries than batches is nonsense that takes no memory.
func (s *Segment) readFile(kind string, most int64) ([]byte, error) {
	name := s.path(kind)
	st, err := s.o.FS.Stat(name)
	if err == nil && st.Size > most {
		return nil, &IndexError{name, fmt.Errorf("%w: %d bytes", index.ErrInvalid, st.Size)}
	}
	var b []byte
	if err == nil {
		b, err = vfs.ReadFile(s.o.FS, name)
	}
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.EIO):
		return nil, &IndexError{name, err}
	}
	return b, err
}

// check tests everything that can be told from the index files alone.
func (s *Segment) check(b files, size int64) error {
	err := index.CheckOffsetIndex(b.offset, size)
	if err == nil {
		err = index.CheckTimeIndex(b.time)
	}
	if err == nil {
		err = index.CheckTxnIndex(b.txn, s.id.Base)
	}
	if err != nil {
		return s.indexError(err)
	}
	return nil
}

func (s *Segment) indexError(err error) error { return &IndexError{s.pathNow(), err} }

// keep takes the entries below offset from into the in-memory index, and checks the last ones against the batches they
// name (spec/on-disk.md 7 step 4). Owner, on a segment nobody else knows.
func (s *Segment) keep(w *walker, b files, from int64) error {
	if err := s.check(b, w.end); err != nil {
		return err
	}
	x := s.active.Load()
	times := len(b.time) / index.TimeEntryLen
	e, t := index.Entry{MaxTime: index.NoTime}, 0
	n := len(b.offset) / index.OffsetEntryLen
	for i := range n {
		rel, pos := index.OffsetAt(b.offset, i, 0)
		if s.id.Base+rel >= from {
			break
		}
		for ; t < times; t++ {
			ms, holder := index.TimeAt(b.time, t, 0)
			if holder > rel {
				break
			}
			e.MaxTime, e.TimeRel = ms, uint32(holder)
		}
		e.Rel, e.Pos = uint32(rel), uint32(pos)
		x.Add(e)
	}
	s.disk = onDisk{entries: x.Len(), times: x.Times(), stale: x.Len() < n || times > t+1}
	if t == times-1 {
		ms, holder := index.TimeAt(b.time, t, 0)
		s.disk.extra = timeEntry{ms, uint32(holder), true}
	}
	for i := range len(b.txn) / index.TxnEntryLen {
		if _, a := index.TxnAt(b.txn, i); a.Last < from {
			s.AddAborted(a)
			s.disk.txns++
		} else {
			s.disk.stale = true
		}
	}
	if x.Times() != t {
		// Two time entries between two offset entries: not how this package writes. Made anew with the next flush.
		s.disk = onDisk{stale: true}
	}
	return s.agree(w)
}

// agree checks the last entry of each index against the batch it names.
func (s *Segment) agree(w *walker) error {
	if x := s.active.Load(); x.Len() > 0 {
		if err := s.agreeLast(w, x.At(x.Len()-1)); err != nil {
			return err
		}
	}
	if list := s.aborted.Load().All(); len(list) > 0 {
		return s.agreeMarker(w, list[len(list)-1])
	}
	return nil
}

// agreeMarker checks that an aborted transaction ends with a marker of its producer.
func (s *Segment) agreeMarker(w *walker, a index.AbortedTxn) error {
	v, err := w.batchOf(-1, a.Last)
	if err != nil {
		return s.foreign(err)
	}
	if pid, _ := v.Producer(); v.LastOffset() != a.Last || !v.Attrs().Control() || pid != a.PID {
		return s.indexError(errForeign)
	}
	return nil
}

func (s *Segment) agreeLast(w *walker, e index.Entry) error {
	v, _, err := w.header(int64(e.Pos))
	switch {
	case err != nil:
		return s.foreign(err)
	case v.LastOffset() != s.id.Base+int64(e.Rel):
		return s.indexError(errForeign)
	case v.MaxTime() > e.MaxTime && v.Count() > 0:
		return s.indexError(errMissing)
	}
	if e.MaxTime == index.NoTime {
		return nil
	}
	return s.agreeTime(w, -1, timeEntry{e.MaxTime, e.TimeRel, true})
}

// agreeTime checks that a time entry names the last offset of a batch with exactly that time, which lies at or behind
// the border pos; -1: the index tells where.
func (s *Segment) agreeTime(w *walker, pos int64, e timeEntry) error {
	v, err := w.batchOf(pos, s.id.Base+int64(e.rel))
	if err != nil {
		return s.foreign(err)
	}
	if v.LastOffset() != s.id.Base+int64(e.rel) || v.MaxTime() != e.ms {
		return s.indexError(errForeign)
	}
	return nil
}

// batchOf returns the header of the batch that holds offset, which lies at or behind the border pos; -1: the index
// tells where.
func (w *walker) batchOf(pos, offset int64) (v batch.View, err error) {
	if pos >= 0 {
		pos, err = w.seek(pos, offset)
	} else {
		pos, err = w.find(offset)
	}
	if err != nil {
		return nil, err
	}
	v, _, err = w.header(pos)
	return v, err
}

// foreign makes what a walk found wrong an error of the index: the scan that makes it anew will tell whether the log
// is damaged too.
func (s *Segment) foreign(err error) error {
	if isCorrupt(err) {
		return s.indexError(fmt.Errorf("%w: %w", errForeign, err))
	}
	return err
}

// anchor is where a walk begins: at an indexed batch, or at the start of the file.
type anchor struct {
	pos     int64
	indexed bool
}

// lastEntry returns the anchor at the last index entry and restores the times it stands for.
func (s *Segment) lastEntry() anchor {
	x := s.active.Load()
	if x.Len() == 0 {
		s.max.set(index.NoTime, index.NoTime)
		return anchor{}
	}
	e := x.At(x.Len() - 1)
	if e.MaxTime == index.NoTime {
		s.max.set(index.NoTime, index.NoTime)
	} else {
		s.max.set(e.MaxTime, s.id.Base+int64(e.TimeRel))
	}
	return anchor{int64(e.Pos), true}
}

// rules of a header walk: holes, up to which base offset compaction may have left some; build, that entries are made,
// not expected.
type rules struct {
	holes int64
	build bool
}

// advance walks headers from a to the first batch that ends at or above offset from, or to the end, and notes what it
// passes as if it had been appended: times, bytes since the last entry, next offset. errMissing: the index lacks an
// entry on the way. It returns position and the leader epoch of the last batch passed.
func (s *Segment) advance(w *walker, a anchor, from int64, r rules) (pos int64, epoch int32, err error) {
	epoch = math.MinInt32
	s.w.gap = 0
	if err := s.firstHeader(w); err != nil {
		return 0, 0, err
	}
	first := true
	// A header behind offset from is not looked at: it may be torn, and the scan says so.
	for pos = a.pos; pos < w.end && s.next.Load() < from; first = false {
		v, next, err := w.header(pos)
		if err != nil {
			return pos, epoch, err
		}
		if v.LastOffset() >= from {
			break
		}
		base, known := v.BaseOffset(), !(first && a.indexed)
		switch {
		case known && (base < s.next.Load() || base > max(s.next.Load(), r.holes)):
			return pos, epoch, s.corrupt(pos, ErrBase)
		case v.LeaderEpoch() < epoch:
			return pos, epoch, s.corrupt(pos, ErrEpoch)
		case !r.build && s.w.gap > int64(s.o.IndexEvery):
			return pos, epoch, s.indexError(errMissing)
		}
		s.track(pos, v, next-pos)
		pos, epoch = next, v.LeaderEpoch()
	}
	return pos, epoch, nil
}

// firstHeader notes the time of the first batch, from which the time rule of a roll counts.
func (s *Segment) firstHeader(w *walker) error {
	if w.end == 0 {
		return nil
	}
	v, _, err := w.header(0)
	if err == nil {
		s.firstTime.Store(v.MaxTime())
	}
	return err
}
