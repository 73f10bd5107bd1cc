package plog

import (
	"errors"
	"io"
	"math"
	"slices"

	"sekali/batch"
	"sekali/segment"
)

// group is how many segments from the front fit into one: by size, by the offsets an index can hold, by its entries.
func (c *cleaning) group(segs []*segment.Segment, end int64) (n int) {
	entries := int64(c.cfg.IndexBytesMax/12-1) * int64(max(c.cfg.IndexInterval, 1))
	most := min(c.cfg.SegmentBytes, entries)
	total := int64(0)
	for _, s := range segs {
		total += s.Size()
		if n > 0 && (total > most || s.NextOffset()-segs[0].ID().Base > math.MaxInt32 || s.ID().Base >= end) {
			break
		}
		n++
	}
	return n
}

// replace writes what stays of some neighbouring segments and puts it into their place. Where all of one stays, nothing
// is replaced.
func (c *cleaning) replace(from []*segment.Segment) error {
	total := int64(0)
	for _, s := range from {
		total += s.Size()
	}
	o := c.l.segOptions(&c.cfg)
	o.Size = min(max(2*total, cleanRoom), segment.SizeMax) // a horizon makes the time deltas longer
	to, err := segment.CreateCleaned(c.l.o.Dir, from[0].ID(), o)
	if err != nil {
		return c.unwritten(err)
	}
	same, err := c.copy(to, from)
	if err == nil && !same {
		if err = to.Seal(); err == nil {
			err = to.Sync()
		}
		err = c.unwritten(err)
	}
	if err != nil || same {
		to.Retire(true)
		return err
	}
	if err = c.swap(to, from); err == nil {
		c.out.Segments += len(from)
		c.out.Removed = c.filter.Removed
	}
	return err
}

// unwritten tells of a failure to write the new segment. The log is as it was.
func (c *cleaning) unwritten(err error) error {
	if err != nil && !errors.Is(err, errStopped) {
		c.l.o.Events.Fault("compaction", err)
	}
	return err
}

// copy writes what stays of from behind one another. same: it is one segment and all of it stays.
func (c *cleaning) copy(to *segment.Segment, from []*segment.Segment) (same bool, err error) {
	same = len(from) == 1
	for i, s := range from {
		r := reader(s)
		for {
			pos := r.Pos
			v, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return false, c.damaged(s, pos, err)
			}
			last := i+1 == len(from) && r.Pos == s.Size()
			b, kept, err := c.filter.Batch(c.buf[:0], v, last)
			if err != nil {
				return false, c.damaged(s, pos, err)
			}
			c.buf, same = b, same && kept
			if err := c.put(to, batch.View(b)); err != nil {
				return false, err
			}
			if err := c.pace(&c.out.Read, len(v)); err != nil {
				return false, err
			}
		}
	}
	return same, nil
}

func (c *cleaning) put(to *segment.Segment, v batch.View) error {
	if len(v) == 0 {
		return nil
	}
	if _, err := to.Append(v); err != nil {
		return c.unwritten(err)
	}
	if t, ok := c.filter.Ended(); ok {
		to.AddAborted(t)
	}
	return c.pace(&c.out.Written, len(v))
}

// counts reports whether the producer state counts on the header of a batch: it is one of those a producer's window
// names, or a marker of the epoch of a producer without a batch (spec: producer state, 8).
func (l *Log) counts(v batch.View) bool {
	pid, epoch := v.Producer()
	if pid < 0 {
		return false
	}
	l.mu.Lock()
	p, ok := l.pids.Get(pid)
	l.mu.Unlock()
	if !ok || p.Epoch != epoch {
		return false
	}
	if v.Attrs().Control() {
		return p.N == 0
	}
	for _, s := range p.Stamps[:p.N] {
		if s.Last == v.LastOffset() {
			return true
		}
	}
	return false
}

// swap puts a new segment into the place of those it came from (spec: on disk, 7 step 1). From now on a start must
// accept holes, and must not need what is gone: both is durable first. If retention was faster nothing happens. An
// error on the way leaves names of two stages; the log goes offline, and a start ends or undoes the swap.
func (c *cleaning) swap(to *segment.Segment, from []*segment.Segment) error {
	l := c.l
	l.chore.Lock()
	defer l.chore.Unlock()
	if l.firstDirty.Load() == 0 {
		// An entry above 0 says that there may be holes. The record at 0 has none before it that it could replace.
		if err := l.persist(MarkClean, 1); err != nil {
			to.Retire(true)
			return err
		}
		l.firstDirty.Store(1)
	}
	if l.down.Load() != nil || l.persistPoint() != nil || !l.listed(from) {
		to.Retire(true)
		return errStopped
	}
	if err := l.dropSnapshots(from[len(from)-1].NextOffset()); err != nil {
		to.Retire(true)
		return errStopped
	}
	if err := to.Promote(segment.Swap); err != nil {
		to.Retire(false)
		return l.fail("compaction", err)
	}
	l.mu.Lock()
	if l.down.Load() != nil { // by a failed flush: the next start ends the swap
		l.mu.Unlock()
		to.Retire(false)
		return errStopped
	}
	i := slices.Index(l.segs, from[0])
	l.setSegs(slices.Replace(slices.Clone(l.segs), i, i+len(from), to))
	l.mu.Unlock()
	for _, s := range from {
		s.Retire(true)
	}
	if err := to.Promote(segment.Final); err != nil {
		return l.fail("compaction", err)
	}
	l.ck.prune = true
	return nil
}

// listed reports whether the log still has these segments, one behind the other, as they were.
func (l *Log) listed(segs []*segment.Segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.segs, segs[0])
	if i < 0 || i+len(segs) >= len(l.segs) {
		return false
	}
	for k, s := range segs {
		if l.segs[i+k] != s || !s.Sealed() {
			return false
		}
	}
	return true
}
