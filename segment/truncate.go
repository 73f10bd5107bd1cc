package segment

import (
	"math"
	"sekali/index"
)

// TruncateTo removes every batch from the one that holds offset on, and makes that durable. The caller chooses offset
// on a batch border. The segment is active afterwards, also if it was sealed. Owner, before the log is published or
// with all readers drained (design 6); the recovery point has been lowered durably before. An error leaves a segment
// that must not be used any more.
func (s *Segment) TruncateTo(offset int64) error {
	h, err := s.open(false)
	if err != nil {
		return err
	}
	s.o.Handles.forget(s)
	pos, err := s.rewind(h, offset)
	if err != nil {
		return err
	}
	if err := h.f.Truncate(pos); err != nil {
		return err
	}
	if err := h.f.Datasync(); err != nil {
		s.smu.Lock()
		s.failed = err
		s.smu.Unlock()
		return err
	}
	s.size.Store(pos)
	s.synced.Store(pos)
	if err := s.thaw(h); err != nil {
		return err
	}
	return s.FlushIndex()
}

// rewind brings the index in memory to what it was before the batch that holds offset, and returns that batch's
// position.
func (s *Segment) rewind(h *handle, offset int64) (pos int64, err error) {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	w := s.walkFile(h.f, s.size.Load())
	defer w.done()
	if s.sealed.Load() {
		s.mu.Lock()
		b, err := s.readFiles(w.end)
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		s.reset()
		s.size.Store(w.end)
		s.sealed.Store(false)
		if err := s.keep(&w, b, offset); err != nil {
			return 0, err
		}
	} else {
		x := s.active.Load()
		x.Truncate(x.Search(offset-1) + 1)
		s.aborted.Load().Truncate(offset)
		s.hasAborted.Store(len(s.aborted.Load().All()) > 0)
	}
	s.next.Store(s.id.Base)
	s.firstTime.Store(index.NoTime)
	pos, _, err = s.advance(&w, s.lastEntry(), offset, rules{holes: math.MaxInt64})
	x, d := s.active.Load(), &s.disk
	d.entries, d.times = min(d.entries, x.Len()), min(d.times, x.Times())
	d.txns = min(d.txns, len(s.aborted.Load().All()))
	d.stale, d.extra = true, timeEntry{}
	return pos, err
}

// thaw makes the truncated segment the active one.
func (s *Segment) thaw(h *handle) error {
	if key := s.key.Swap(0); key != 0 {
		s.o.Cache.Drop(key)
	}
	if h.m != nil && int64(len(h.m.Bytes())) >= s.o.Size {
		s.w.f, s.w.end = h.f, s.size.Load()
	} else {
		old := h.m
		if err := s.activate(h.f); err != nil {
			s.handle.Store(nil)
			return err
		}
		if old != nil {
			if err := old.Unmap(); err != nil {
				return err
			}
		}
	}
	s.w.torn, s.w.reserved, s.w.step = false, s.w.end, reserveMin
	return nil
}
