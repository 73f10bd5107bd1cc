package segment

import (
	"fmt"
	"io"
	"math"

	"sekali/batch"
	"sekali/internal/check"
	"sekali/internal/vfs"
)

// Fits reports whether v may be appended, or the log must roll first (spec/on-disk.md 5): the size limit, the time
// since the first batch by record time, offsets that fit 31 bits, a full index. It assumes that v gets the next
// offset, so v need not be stamped. A batch larger than the limit never fits, not even into an empty segment. Owner.
func (s *Segment) Fits(v batch.View) bool { return s.fits(&plan{}, v) }

// FitsAll returns how many of vs fit, from the front, one behind the other. Owner.
func (s *Segment) FitsAll(vs []batch.View) (n int) {
	var p plan
	for n < len(vs) && s.fits(&p, vs[n]) {
		n++
	}
	return n
}

// plan is what the batches before would have added.
type plan struct {
	begun               bool
	end, next, gap      int64
	entries, first, max int64
}

func (s *Segment) fits(p *plan, v batch.View) bool {
	x := s.active.Load()
	if !p.begun {
		*p = plan{begun: true, end: s.w.end, next: s.next.Load(), gap: s.w.gap, first: s.firstTime.Load()}
	}
	entries := int64(x.Len()) + p.entries
	times := int64(x.Times()) + p.entries // at most one each
	last := p.next + int64(v.LastOffsetDelta())
	switch {
	case p.end > s.w.limit-int64(len(v)):
		return false
	case p.end > 0 && s.w.rollMs > 0 && p.first >= 0 && v.MaxTime() > p.first && v.MaxTime()-p.first > s.w.rollMs:
		return false
	case last-s.id.Base > math.MaxInt32:
		return false
	case entries >= int64(s.o.IndexBytes/8) || times >= int64(s.o.IndexBytes/12)-1:
		return false
	}
	if p.end == 0 {
		p.first = v.MaxTime()
	}
	if p.gap > int64(s.o.IndexEvery) {
		p.entries, p.gap = p.entries+1, 0
	}
	p.gap += int64(len(v))
	p.end += int64(len(v))
	p.next = last + 1
	return true
}

// Append writes v, stamped, behind the last batch and publishes it. It returns the position. Owner; nothing is
// allocated.
//
// An error wraps that of the file system; a short write is io.ErrShortWrite, a full disk is told by vfs.IsNoSpace.
// Nothing was published then, and bytes behind the published size are cut off by Unwrite or by the next Append.
func (s *Segment) Append(v batch.View) (pos int64, err error) {
	pos = s.w.end
	if err := s.admit(v, s.next.Load(), pos+int64(len(v))); err != nil {
		return 0, err
	}
	if err := s.ready(pos + int64(len(v))); err != nil {
		return 0, err
	}
	if n, err := s.w.f.WriteAt(v, pos); err != nil || n != len(v) {
		return 0, s.unwritten(pos, err)
	}
	s.track(pos, v, int64(len(v)))
	s.publish(pos + int64(len(v)))
	return pos, nil
}

// AppendAll writes vs, stamped, with one pwritev, all or nothing, and appends their positions to dst. Owner. Errors as
// those of Append.
func (s *Segment) AppendAll(dst []int64, vs []batch.View) (pos []int64, err error) {
	end, next := s.w.end, s.next.Load()
	iov := s.w.iov[:0]
	for _, v := range vs {
		end += int64(len(v))
		if err := s.admit(v, next, end); err != nil {
			return dst, err
		}
		next = v.LastOffset() + 1
		iov = append(iov, v)
	}
	s.w.iov = iov
	err = s.ready(end)
	if err == nil {
		var n int
		if n, err = s.w.f.WritevAt(iov, s.w.end); err != nil || int64(n) != end-s.w.end {
			err = s.unwritten(s.w.end, err)
		}
	}
	clear(iov) // the batches lie in buffers of the network
	if err != nil {
		return dst, err
	}
	at := s.w.end
	for _, v := range vs {
		s.track(at, v, int64(len(v)))
		dst = append(dst, at)
		at += int64(len(v))
	}
	s.publish(end)
	return dst, nil
}

// admit refuses what no caller may write: a batch that would break the order of offsets or the limits of the formats.
func (s *Segment) admit(v batch.View, next, end int64) error {
	check.That(!s.sealed.Load(), "segment: append to a sealed segment")
	check.AtMost(batch.HeaderLen, int64(len(v)), "segment: batch length")
	check.AtMost(next, v.BaseOffset(), "I4: base offset below the next one")
	check.AtMost(0, int64(v.LastOffsetDelta()), "segment: last offset delta")
	if v.LastOffset()-s.id.Base > math.MaxInt32 || end > max(s.o.Size, s.w.limit) {
		return fmt.Errorf("%w: last offset %d, end %d", ErrLimit, v.LastOffset(), end)
	}
	return nil
}

func (s *Segment) publish(end int64) {
	s.w.end = end
	s.size.Store(end)
}

// ready cuts off what a failed write left and reserves blocks up to end at least.
func (s *Segment) ready(end int64) error {
	if s.w.torn {
		if err := s.Unwrite(); err != nil {
			return err
		}
	}
	if end <= s.w.reserved || end < reserveFrom {
		return nil
	}
	to := min(max(s.w.end+s.w.step, end), max(s.o.Size, end))
	err := s.w.f.Allocate(to)
	switch {
	case err == nil:
		s.w.reserved = to
		s.w.step = min(2*s.w.step, reserveMax)
	case vfs.IsNoSpace(err):
		// The step may be too much where the batch itself is not: the write decides.
		s.w.step = reserveMin
	default:
		return fmt.Errorf("segment: reserve %s to %d: %w", s.path(LogSuffix), to, err)
	}
	return nil
}

func (s *Segment) unwritten(pos int64, err error) error {
	s.w.torn = true
	if err == nil {
		err = io.ErrShortWrite
	}
	return fmt.Errorf("segment: write %s at %d: %w", s.path(LogSuffix), pos, err)
}

// Unwrite cuts the file back to the published size after a failed write. Owner. Reserved blocks go with the tail.
func (s *Segment) Unwrite() error {
	if err := s.w.f.Truncate(s.w.end); err != nil {
		return fmt.Errorf("segment: cut %s to %d: %w", s.path(LogSuffix), s.w.end, err)
	}
	s.w.torn, s.w.reserved, s.w.step = false, s.w.end, reserveMin
	return nil
}
