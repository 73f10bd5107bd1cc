package plog

import (
	"errors"
	"math"
	"path"
	"slices"

	"sekali/batch"
	"sekali/segment"
)

// pass opens the segments in order and scans from r.from on. Where an index cannot be trusted, the pass is given up for
// one that begins at that segment's base or below: its aborted transactions need the producer state from there.
func (r *recovery) pass() error {
	r.rep, r.again, r.seen = r.headless, false, 0
	r.epochs = cutEpochs(r.cached, 0, r.from)
	for i := 0; i < len(r.bases); i++ {
		base, last := r.bases[i], i+1 == len(r.bases)
		goes, err := r.joins(base, last)
		if err != nil {
			return err
		}
		if goes == drop {
			if err := r.remove(i); err != nil {
				return err
			}
			i--
			continue
		}
		if goes == head {
			r.again = true
			return errors.Join(r.behead(i), r.restart())
		}
		if goes == end {
			return r.discard(i, len(r.bases))
		}
		cut, err := r.open(i)
		var bad *segment.IndexError
		if errors.As(err, &bad) && r.from > base {
			r.l.fault("index", err)
			r.again = true
			r.older, r.from, err = r.newest(base)
			return err
		}
		if err != nil {
			return err
		}
		if cut {
			return r.discard(i+1, len(r.bases))
		}
	}
	return nil
}

type join uint8

const (
	keep join = iota
	drop      // an empty file that continues nothing
	head      // what comes before it lies below the log start, and is not all there
	end       // the log ended before it
)

// joins decides whether the segment with this base continues the log.
func (r *recovery) joins(base int64, last bool) (join, error) {
	if len(r.segs) == 0 {
		return keep, nil
	}
	next := r.segs[len(r.segs)-1].NextOffset()
	if base == next || base > next && base <= r.holes() {
		return keep, nil
	}
	name := path.Join(r.o.Dir, segment.Name(base, segment.LogSuffix))
	st, err := r.o.FS.Stat(name)
	switch {
	case err != nil:
		return keep, err
	case base <= r.start && base > next:
		return head, nil
	case st.Size == 0:
		return drop, nil
	}
	if next >= r.guarded() {
		return end, nil
	}
	return keep, &segment.CorruptError{Path: name, Err: segment.ErrBase}
}

// guarded is the offset below which damage and loss are corruption: the mark, unless all below it lies below the log
// start too.
func (r *recovery) guarded() int64 {
	if r.mark == r.start {
		return 0
	}
	return r.mark
}

// holes is the base offset up to which compaction, now or before, may have left holes; 0 if it has not. Ours stays
// below the recovery point and keeps the last batch of what it cleaned, so a hole above the mark is a write that never
// came to the disk while later ones did. Kafka's recovery point may lag behind its compaction.
func (r *recovery) holes() int64 {
	switch {
	case !r.o.Config.Compact && r.o.FirstDirty <= 0:
		return 0
	case r.o.Adopt:
		return math.MaxInt64
	}
	return r.mark
}

// open opens segment i. cut: the log ends in it, what is behind was removed.
func (r *recovery) open(i int) (cut bool, err error) {
	base, last := r.bases[i], i+1 == len(r.bases)
	so := r.l.segOptions(&r.o.Config)
	if !last && r.bases[i+1] <= r.from {
		s, err := segment.OpenSealed(r.o.Dir, segment.ID{Base: base}, so)
		if err == nil {
			r.segs = append(r.segs, s)
			return false, nil
		}
		if bad := (*segment.IndexError)(nil); !errors.As(err, &bad) || r.bases[i+1] < r.from {
			return false, err
		}
		// The recovery point may have been raised to its end before it was rolled and sealed.
	}
	epoch := int32(math.MinInt32)
	if n := len(r.epochs); n > 0 {
		epoch = r.epochs[n-1].epoch
	}
	s, c, err := segment.Recover(r.o.Dir, segment.ID{Base: base}, so, segment.Scan{
		From: r.from, Mark: r.guarded(), Epoch: epoch, Holes: r.holes(), Last: last, Batch: r.replay,
	})
	if err != nil {
		return false, err
	}
	r.segs = append(r.segs, s)
	r.count(c)
	return c.Reason != nil, nil
}

// count adds a cut to the report.
func (r *recovery) count(c segment.Cut) {
	if r.rep.Cut.Reason == nil {
		bytes, batches := r.rep.Cut.Bytes, r.rep.Cut.Batches
		r.rep.Cut = c
		r.rep.Cut.Bytes += bytes
		r.rep.Cut.Batches += batches
		return
	}
	r.rep.Cut.Bytes += c.Bytes
	r.rep.Cut.Batches += c.Batches
}

// replay sees every batch of the scan in order.
func (r *recovery) replay(s *segment.Segment, pos int64, v batch.View) error {
	r.seen = v.LastOffset() + 1
	if v.BaseOffset() < r.from {
		return nil
	}
	r.rep.Scanned += int64(len(v))
	r.rep.Batches++
	if n := len(r.epochs); v.LeaderEpoch() >= 0 && (n == 0 || r.epochs[n-1].epoch < v.LeaderEpoch()) {
		r.epochs = addEpoch(r.epochs, v.LeaderEpoch(), v.BaseOffset())
	}
	if r.older != nil {
		if _, err := takeIn(r.older, s, pos, v, r.touch); err != nil {
			return err
		}
		s = nil
	}
	if v.BaseOffset() < r.state {
		return nil
	}
	stale, err := takeIn(r.pids, s, pos, v, r.touch)
	if stale {
		r.l.fault("replay", errStale)
	}
	return err
}

// remove removes the empty segment i, which is in nobody's way but may be in that of a new one.
func (r *recovery) remove(i int) error {
	_, err := segment.Discard(r.o.Dir, segment.ID{Base: r.bases[i]}, r.l.segOptions(&r.o.Config))
	r.bases = slices.Delete(r.bases, i, i+1)
	return err
}

// discard removes the segments from i to j: the log ended before them, above the durable mark.
func (r *recovery) discard(i, j int) error {
	for _, base := range r.bases[i:j] {
		c, err := segment.Discard(r.o.Dir, segment.ID{Base: base}, r.l.segOptions(&r.o.Config))
		if err != nil {
			return err
		}
		r.count(c)
	}
	r.bases = slices.Delete(r.bases, i, j)
	return nil
}
