package plog

import (
	"runtime"
	"slices"
	"sort"

	"sekali/segment"
)

// view is an immutable list of segments in ascending order; the last one is the active one. Whoever loads it pins a
// segment before it touches it (TryPin), and loads the view again if that fails.
type view struct{ segs []*segment.Segment }

// floor is the index of the segment that would hold offset: the greatest base at or below it; -1 if there is none.
func (v *view) floor(offset int64) int {
	return sort.Search(len(v.segs), func(i int) bool { return v.segs[i].ID().Base > offset }) - 1
}

// next is the offset behind the last batch of segment i: the next one's base, or end for the active one.
func (v *view) next(i int, end int64) int64 {
	if i+1 < len(v.segs) {
		return v.segs[i+1].ID().Base
	}
	return end
}

// setSegs publishes a new list of segments, which must not be changed afterwards; under mu.
func (l *Log) setSegs(segs []*segment.Segment) {
	l.segs = segs
	l.active = segs[len(segs)-1]
	l.view.Store(&view{segs: segs})
}

// pin pins the segment that holds offset, or the first one if it lies below all of them, and returns the view it was
// found in and its place there. A segment retired in between is not found again in the newer view. s is nil once the
// log serves no more.
func (l *Log) pin(offset int64) (v *view, i int, s *segment.Segment) {
	for {
		v = l.view.Load()
		i = max(v.floor(offset), 0)
		if s = v.segs[i]; s.TryPin() {
			return v, i, s
		}
		if l.down.Load() != nil {
			return v, i, nil
		}
		runtime.Gosched()
	}
}

// without is list less the segments in gone, freshly allocated.
func without(list, gone []*segment.Segment) []*segment.Segment {
	return slices.DeleteFunc(slices.Clone(list), func(s *segment.Segment) bool { return slices.Contains(gone, s) })
}
