package segment

import (
	"errors"
	"fmt"

	"sekali/batch"
)

// finder is the part of an index that active and sealed segments share.
type finder interface {
	Search(offset int64) int
	SearchPos(pos int64) int
	Ref(i int) (offset, pos int64)
}

func (s *Segment) finder() (finder, error) {
	if x := s.active.Load(); x != nil {
		return x, nil
	}
	x, err := s.sealedIndex()
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Find returns the position of the first batch whose last offset is at or above offset: the one that holds it, or the
// first behind a hole that compaction left. Where no batch reaches the offset it is the size published when the call
// began. Only while pinned.
func (s *Segment) Find(offset int64) (pos int64, err error) {
	w, err := s.walker()
	if err != nil {
		return 0, err
	}
	defer w.done()
	return w.find(offset)
}

func (w *walker) find(offset int64) (pos int64, err error) {
	x, err := w.s.finder()
	if err != nil {
		return 0, err
	}
	if pos, err = w.trusted(x, x.Search(offset)); err != nil {
		return 0, err
	}
	return w.seek(pos, offset)
}

// seek walks from the border pos to the first batch whose last offset is at or above offset; w.end if there is none.
func (w *walker) seek(pos, offset int64) (int64, error) {
	for pos < w.end {
		v, next, err := w.header(pos)
		if err != nil {
			return 0, err
		}
		if v.LastOffset() >= offset {
			return pos, nil
		}
		pos = next
	}
	return w.end, nil
}

// trusted returns the position entry i names, or that of the next entry before it that holds what it says. Index files
// have no checksum: a wrong entry costs time, never data.
func (w *walker) trusted(x finder, i int) (pos int64, err error) {
	for ; i >= 0; i-- {
		offset, pos := x.Ref(i)
		if pos >= w.end {
			continue // its batch is written but was not published when the walk began
		}
		v, _, err := w.header(pos)
		if err == nil && v.LastOffset() <= offset {
			return pos, nil
		}
		if err != nil && !isCorrupt(err) {
			return 0, err
		}
		if !w.s.broken.Swap(true) {
			w.s.fault("index", fmt.Errorf("segment: %s: entry %d: %w", w.s.pathNow(), i, errForeign))
		}
	}
	return 0, nil
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*CorruptError](err)
	return ok
}

// Border returns the last batch border in (from, to], where from is a border and to lies within the published size; 0
// if there is none. Only while pinned.
func (s *Segment) Border(from, to int64) (int64, error) {
	w, err := s.walker()
	if err != nil {
		return 0, err
	}
	defer w.done()
	to = min(to, w.end)
	if to == w.end && to > from {
		return to, nil
	}
	pos, err := w.floor(to)
	if err != nil {
		return 0, err
	}
	for pos = max(pos, from); pos < to; {
		_, next, err := w.header(pos)
		if err != nil {
			return 0, err
		}
		if next > to {
			break
		}
		pos = next
	}
	if pos <= from || pos > to {
		return 0, nil
	}
	return pos, nil
}

// floor returns the greatest indexed batch border at or below pos, or 0.
func (w *walker) floor(pos int64) (int64, error) {
	x, err := w.s.finder()
	if err != nil {
		return 0, err
	}
	return w.trusted(x, x.SearchPos(pos))
}

var errFound = errors.New("found")

// FindTime returns the first record at or above offset from whose timestamp is at or above ms: its offset, its time
// and the position of its batch. All three are -1 if the segment has none. Only while pinned. Batches that may hold it
// are read and, where compressed, decompressed.
func (s *Segment) FindTime(ms, from int64) (offset, time, pos int64, err error) {
	if largest, _ := s.MaxTime(); largest < ms {
		return -1, -1, -1, nil
	}
	w, err := s.walker()
	if err != nil {
		return 0, 0, 0, err
	}
	defer w.done()
	if pos, err = w.floorTime(ms); err != nil {
		return 0, 0, 0, err
	}
	low, err := w.find(from)
	if err != nil {
		return 0, 0, 0, err
	}
	for pos = max(pos, low); pos < w.end; {
		v, next, err := w.header(pos)
		if err != nil {
			return 0, 0, 0, err
		}
		if v.MaxTime() >= ms && v.LastOffset() >= from {
			offset, time, err = w.record(pos, next, ms, from)
			if err != nil || offset >= 0 {
				return offset, time, pos, err
			}
		}
		pos = next
	}
	return -1, -1, -1, nil
}

// floorTime returns a batch border before which every timestamp lies below ms.
func (w *walker) floorTime(ms int64) (pos int64, err error) {
	if x := w.s.active.Load(); x != nil {
		return w.trusted(x, x.SearchPos(x.FloorTime(ms)))
	}
	x, err := w.s.sealedIndex()
	if err != nil {
		return 0, err
	}
	return w.trusted(x, x.Search(x.FloorTime(ms)))
}

// record looks through the batch [pos, next) for the first record at or above offset from and time ms.
func (w *walker) record(pos, next, ms, from int64) (offset, time int64, err error) {
	v := make(batch.View, next-pos)
	if n, err := w.f.ReadAt(v, pos); n < len(v) {
		return 0, 0, w.s.corrupt(pos, err)
	}
	offset = -1
	err = v.Records(func(r batch.Record) error {
		o, t := v.BaseOffset()+int64(r.OffsetDelta), v.Time(r)
		if o >= from && t >= ms {
			offset, time = o, t
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return 0, 0, w.s.corrupt(pos, err)
	}
	return offset, time, nil
}
