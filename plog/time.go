package plog

import (
	"sekali/batch"
	"sekali/segment"
)

// OffsetForTime returns the first visible record, at or above the log start, whose timestamp is at or above ms, and
// that timestamp; -1 and -1 if there is none. The caller compares the offset with the limit of its isolation level.
// Batches that may hold it are read and, where compressed, decompressed.
func (l *Log) OffsetForTime(ms int64) (offset, time int64, err error) {
	for at := int64(0); ; {
		high, _, start := l.lim.get()
		at = max(at, start)
		if at >= high.offset {
			return -1, -1, l.Err()
		}
		v, i, s := l.pin(at)
		if s == nil {
			return -1, -1, l.Err()
		}
		offset, time, _, err = s.FindTime(ms, at)
		next := v.next(i, high.offset)
		s.Unpin()
		switch {
		case err != nil:
			return -1, -1, l.readFailed(err)
		case offset >= high.offset:
			return -1, -1, nil
		case offset >= 0:
			return offset, time, nil
		}
		at = next
	}
}

// OffsetOfMaxTime returns the first visible record, at or above the log start, with the largest timestamp, and that
// timestamp; -1 and -1 if no record has one.
func (l *Log) OffsetOfMaxTime() (offset, time int64, err error) {
	high, top, start := l.visiblePeak()
	best, from := int64(-1), start
	for at := start; at < high; {
		v, i, s := l.pin(at)
		if s == nil {
			return -1, -1, l.Err()
		}
		ms := top.time
		if s.ID().Base != top.base {
			ms, _ = s.MaxTime()
		}
		if s.ID().Base < start && ms > best {
			ms, err = l.maxTimeFrom(s, start, high)
		}
		if ms > best {
			best, from = ms, at
		}
		at = v.next(i, high)
		s.Unpin()
		if err != nil {
			return -1, -1, l.readFailed(err)
		}
	}
	if best < 0 {
		return -1, -1, l.Err()
	}
	_, _, s := l.pin(from)
	if s == nil {
		return -1, -1, l.Err()
	}
	defer s.Unpin()
	offset, time, _, err = s.FindTime(best, from)
	if err != nil {
		return -1, -1, l.readFailed(err)
	}
	return offset, time, nil
}

// visiblePeak is the high watermark, the largest timestamp of its segment below it, and the log start, of one moment.
func (l *Log) visiblePeak() (high int64, top peak, start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lim.high.Load(), l.top, l.lim.start.Load()
}

// maxTimeFrom is the largest timestamp of the records in [start, high) of a pinned segment that begins below start, -1
// for none: the segment's own maximum may belong to a record that was deleted.
func (l *Log) maxTimeFrom(s *segment.Segment, start, high int64) (best int64, err error) {
	best = -1
	pos, err := s.Find(start)
	if err != nil {
		return best, err
	}
	w := l.walk(s, s.Size())
	defer w.close()
	for pos < w.end {
		h, next, err := w.header(pos)
		if err != nil {
			return best, err
		}
		if h.BaseOffset() >= high {
			break
		}
		ms := h.MaxTime()
		if h.BaseOffset() < start {
			ms, err = l.maxTimeIn(s, pos, next, start)
		}
		if err != nil {
			return best, err
		}
		best = max(best, ms)
		pos = next
	}
	return best, nil
}

// maxTimeIn is the largest timestamp of the records at or above start in the batch [pos, next).
func (l *Log) maxTimeIn(s *segment.Segment, pos, next, start int64) (best int64, err error) {
	best = -1
	b := l.o.Shared.pool.Get(int(next - pos))
	defer l.o.Shared.pool.Put(b)
	if _, err := s.ReadAt(b, pos); err != nil {
		return best, err
	}
	v := batch.View(b)
	err = v.Records(func(r batch.Record) error {
		if v.BaseOffset()+int64(r.OffsetDelta) >= start {
			best = max(best, v.Time(r))
		}
		return nil
	})
	return best, err
}
