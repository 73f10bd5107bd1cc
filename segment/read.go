package segment

import (
	"fmt"
	"io"

	"sekali/index"
	"sekali/internal/check"
)

// Bytes returns the published bytes [from, to) as a slice of the mapping, valid until Unpin. Only while pinned. The
// first call on a sealed segment opens and maps it, which can fail. Reading the slice in Go code is for hot pages;
// a system call may be handed any.
func (s *Segment) Bytes(from, to int64) ([]byte, error) {
	check.That(0 <= from && from <= to && to <= s.size.Load(), "I2: bytes beyond the published size")
	if from == to {
		return nil, nil
	}
	h, err := s.open(true)
	if err != nil {
		return nil, err
	}
	return h.m.Bytes()[from:to:to], nil
}

// ReadAt fills p from pos with pread, bounded by the published size: io.EOF when it meets it. Only while pinned. For
// TLS, scrubbing and checksums.
func (s *Segment) ReadAt(p []byte, pos int64) (int, error) {
	h, err := s.open(false)
	if err != nil {
		return 0, err
	}
	size := s.size.Load()
	short := pos+int64(len(p)) > size
	if short {
		p = p[:max(0, size-pos)]
	}
	n, err := h.f.ReadAt(p, pos)
	if n == len(p) {
		err = nil
	}
	switch {
	case err != nil:
		return n, fmt.Errorf("segment: read %s at %d: %w", Name(s.id.Base, LogSuffix), pos, err)
	case short:
		return n, io.EOF
	}
	return n, nil
}

// WillNeed starts read-ahead of [from, to) in the mapping, if there is one, and does not wait. Only while pinned.
func (s *Segment) WillNeed(from, to int64) {
	if h := s.handle.Load(); h != nil && h.m != nil {
		h.m.WillNeed(from, to-from)
	}
}

// Aborted appends to dst the aborted transactions whose marker lies in this segment and that touch the offsets
// [from, to). done: no later segment holds one that does. Only while pinned. An error must fail the read: without the
// whole list aborted records would look committed (I11).
func (s *Segment) Aborted(dst []index.AbortedTxn, from, to int64) (out []index.AbortedTxn, done bool, err error) {
	if !s.hasAborted.Load() {
		return dst, false, nil
	}
	if a := s.aborted.Load(); a != nil {
		out, done = a.Overlap(dst, from, to)
		return out, done, nil
	}
	x, err := s.sealedIndex()
	if err != nil {
		return dst, false, err
	}
	out, done = x.Overlap(dst, from, to)
	return out, done, nil
}

// StartWrite begins to write the pages of [from, to) back and does not wait; it promises nothing. Any goroutine.
func (s *Segment) StartWrite(from, to int64) error {
	if from >= to || !s.TryPin() { // nothing, or retired and gone
		return nil
	}
	defer s.Unpin()
	h, err := s.open(false)
	if err != nil {
		return err
	}
	return h.f.StartWriteback(from, to-from)
}

// Sync makes durable what was published before the call. Any goroutine; may overlap appends. An error is final (I15):
// every later call returns it without asking the file system again.
func (s *Segment) Sync() error {
	if !s.TryPin() {
		return nil // retired and gone
	}
	defer s.Unpin()
	s.smu.Lock() // of two flushes at once only one is told of an error
	defer s.smu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	size := s.size.Load()
	if s.synced.Load() >= size {
		return nil
	}
	h, err := s.open(false)
	if err != nil {
		return err
	}
	if err := h.f.Datasync(); err != nil {
		s.failed = fmt.Errorf("segment: sync %s: %w", Name(s.id.Base, LogSuffix), err)
		return s.failed
	}
	s.settle(size)
	return nil
}

// settle notes that size bytes are durable. A sealed segment whose bytes all are needs its descriptor no more: the LRU
// may close it. Before that it must not, for an error of write-back is told to descriptors that are open.
func (s *Segment) settle(size int64) {
	for {
		old := s.synced.Load()
		if old >= size || s.synced.CompareAndSwap(old, size) {
			break
		}
	}
	if s.sealed.Load() && s.synced.Load() == s.size.Load() {
		s.used.Store(true)
		s.o.Handles.keep(s)
	}
}
