package plog

import (
	"time"

	"sekali/batch"
	"sekali/pidmap"
	"sekali/segment"
)

// answerOld looks for the original of a proven duplicate that is no longer in the window (D4), with mu free. Found:
// out becomes the answer of a duplicate with the true offset. Not found: the error stays (46). Either answer vouches
// for all the producer has stored, so it waits for that.
func (l *Log) answerOld(seek *pidmap.Seek, out *AppendOut) {
	out.Until = seek.Until + 1
	h, found, err := l.findOlder(seek)
	if err != nil {
		out.Err = l.readFailed(err)
		return
	}
	if !found {
		return
	}
	out.Base, out.Last, out.Duplicate, out.Err = h.base, h.last, true, nil
	if l.config().AppendTime {
		out.Time = h.time
	}
}

// origin is where a batch lies, and its largest timestamp.
type origin struct{ base, last, time int64 }

// findOlder walks back over the headers of the segment that holds seek.Before and of the one before it, over pinned
// segments, by strides that double: within a stride headers can only be read forwards. It gives up after 4096 headers
// or 2 ms (spec: producer state, 5.1). The walk is for the exact batch: same producer, epoch, first and last sequence.
func (l *Log) findOlder(seek *pidmap.Seek) (o origin, found bool, err error) {
	budget := olderBudget{headers: olderHeadersMax, l: l, until: l.o.Clock.Mono() + olderTimeMax}
	v := l.view.Load()
	top := v.floor(seek.Before)
	for i := top; i >= 0 && i > top-2 && budget.left() && !found; i-- {
		s := v.segs[i]
		if !s.TryPin() {
			break // retired: its offsets are below the log start
		}
		end := s.Size()
		if i == top {
			end, err = s.Find(seek.Before)
		}
		if err == nil {
			o, found, err = l.findIn(s, end, seek, &budget)
		}
		s.Unpin()
		if err != nil {
			return origin{}, false, err
		}
	}
	return o, found, nil
}

// olderBudget bounds a walk back.
type olderBudget struct {
	headers int
	l       *Log
	until   time.Duration
}

func (b *olderBudget) left() bool { return b.headers > 0 && b.l.o.Clock.Mono() < b.until }

// findIn walks one pinned segment back from end, a batch border.
func (l *Log) findIn(
	s *segment.Segment, end int64, seek *pidmap.Seek, b *olderBudget,
) (o origin, found bool, err error) {
	w := l.walk(s, end)
	defer w.close()
	for stride := int64(olderStride); end > 0; stride *= 2 {
		from := int64(0)
		if end > stride {
			if from, err = s.Border(0, end-stride); err != nil {
				return origin{}, false, err
			}
		}
		for pos := from; pos < end; {
			if b.headers--; b.headers%64 == 0 && !b.left() {
				return origin{}, false, nil
			}
			h, next, err := w.header(pos)
			if err != nil {
				return origin{}, false, err
			}
			if sameBatch(h, seek) {
				return origin{base: h.BaseOffset(), last: h.LastOffset(), time: h.MaxTime()}, true, nil
			}
			pos = next
		}
		end = from
	}
	return origin{}, false, nil
}

func sameBatch(h batch.View, seek *pidmap.Seek) bool {
	pid, epoch := h.Producer()
	if pid != seek.PID || epoch != seek.Epoch || h.Attrs().Control() {
		return false
	}
	first, last := h.Sequence()
	return first == seek.FirstSeq && last == seek.LastSeq
}
