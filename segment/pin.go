package segment

import (
	"errors"
	"os"
	"path"
	"runtime"
	"strconv"
	"sync/atomic"

	"sekali/internal/check"
)

// pinLock is added to the pin count while the LRU takes the handle away: readers wait for a few instructions.
const pinLock = 1 << 62

// serials keeps the names of removed files apart: a second segment of the same base may be removed while readers still
// hold the first.
var serials atomic.Uint64

// TryPin keeps bytes, file and mapping of the segment in place until Unpin. Any goroutine. It is false once the
// segment was retired and the last pin is gone: the caller loads the view again.
func (s *Segment) TryPin() bool {
	for {
		n := s.pins.Load()
		switch {
		case n >= pinLock:
			runtime.Gosched()
		case n == 0:
			return false
		case s.pins.CompareAndSwap(n, n+1):
			return true
		}
	}
}

// Unpin gives a pin back; slices of Bytes are invalid from here on. The last one after Retire unmaps, closes and,
// where Retire said so, removes the files.
func (s *Segment) Unpin() {
	n := s.pins.Add(-1)
	check.That(n >= 0, "I2: more pins given back than taken")
	if n == 0 {
		s.drain()
	}
}

// Retire gives up the owner's pin; the owner uses the segment no more. With remove the files are renamed at once, so
// that a segment of the same base can take their names, and removed with the last pin; a start removes them if this
// process does not come to it. It makes system calls: not under Log.mu.
func (s *Segment) Retire(remove bool) {
	if remove {
		s.fault("rename", s.renameDeleted())
	}
	s.o.Handles.retire(s)
	s.Unpin()
}

func (s *Segment) renameDeleted() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := "." + strconv.FormatUint(serials.Add(1), 10) + DeletedSuffix
	var errs error
	for _, kind := range kinds {
		target := path.Join(s.dir, Name(s.id.Base, kind+s.suffix+to))
		errs = errors.Join(errs, missingIsFine(s.o.FS.Rename(s.path(kind), target)))
	}
	s.suffix += to
	s.remove = true
	return errs
}

// drain runs once, when the last pin is gone.
func (s *Segment) drain() {
	h := s.handle.Swap(nil)
	if h != nil {
		s.fault("close", h.close())
	}
	if key := s.key.Load(); key != 0 {
		s.o.Cache.Drop(key)
	}
	if !s.remove { // nobody else is left: no lock
		return
	}
	for _, kind := range kinds {
		s.fault("remove", missingIsFine(s.o.FS.Remove(s.path(kind))))
	}
}

// detach takes the handle away if nobody holds a pin but the owner; the caller closes it. Only Handles calls it, under
// its lock, for a segment that is not retired: the one pin is the owner's.
func (s *Segment) detach() (h *handle, ok bool) {
	if !s.pins.CompareAndSwap(1, 1+pinLock) {
		return nil, false
	}
	h = s.handle.Swap(nil)
	s.pins.Add(-pinLock)
	return h, true
}

func (h *handle) close() error {
	if h == nil {
		return nil
	}
	var err error
	if h.m != nil {
		err = h.m.Unmap()
	}
	return errors.Join(err, h.f.Close())
}

// open returns the handle, opened and with mapped also mapped. The caller holds a pin, or is the owner before anybody
// else knows the segment.
func (s *Segment) open(mapped bool) (*handle, error) {
	h := s.handle.Load()
	if h != nil && (!mapped || h.m != nil) {
		if !s.used.Load() {
			s.used.Store(true)
		}
		return h, nil
	}
	h, err := s.openSlow(mapped)
	if err != nil {
		return nil, err
	}
	s.used.Store(true)
	s.o.Handles.keep(s)
	return h, nil
}

func (s *Segment) openSlow(mapped bool) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := handle{}
	if h := s.handle.Load(); h != nil {
		next = *h
	}
	if next.f == nil {
		f, err := s.o.FS.OpenFile(s.path(LogSuffix), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		next.f = f
	}
	if mapped && next.m == nil {
		m, err := next.f.Map(s.mapSize())
		if err != nil {
			if s.handle.Load() == nil {
				err = errors.Join(err, next.f.Close())
			}
			return nil, err
		}
		next.m = m
	}
	s.handle.Store(&next)
	return &next, nil
}

// mapSize is the length of the mapping: what an active segment may grow to, else what there is.
func (s *Segment) mapSize() int64 {
	if s.sealed.Load() {
		return s.size.Load()
	}
	return max(s.o.Size, s.size.Load())
}
