package plog

import (
	"errors"
	"math"
	"slices"

	"sekali/clean"
	"sekali/index"
	"sekali/segment"
)

// CleanIn bounds one call of Clean.
type CleanIn struct {
	Now  int64 // wall milliseconds
	Keys int   // how many different keys are looked at in one call, about
	// Pace is told of every piece of bytes read or written and may wait; false ends the call. Nil: no pace.
	Pace func(bytes int64) bool
}

// Cleaned is what one call of Clean did.
type Cleaned struct {
	Read, Written int64 // bytes
	Removed       int64 // records and markers
	Segments      int   // that were replaced
	FirstDirty    int64 // below it every key stands once, but for what was not decided yet
}

// Dirt is how much of a log compaction could look at, in bytes.
type Dirt struct {
	Clean, Dirty int64
	Late         bool // a record has been dirty for max.compaction.lag.ms
}

// errStopped: compaction was told to end, or its segments are no longer those of the log.
var errStopped = errors.New("plog: compaction stopped")

// Dirt tells what Clean would find now, at wall milliseconds; nothing in a log that is not compacted.
func (l *Log) Dirt(now int64) (d Dirt) {
	segs, cfg := l.cleanable(now)
	dirty := l.firstDirty.Load()
	for _, s := range segs {
		if s.NextOffset() <= dirty {
			d.Clean += s.Size()
			continue
		}
		if d.Dirty == 0 && cfg.CompactLagMaxMs > 0 {
			ms, _ := s.MaxTime()
			d.Late = ms >= 0 && now-ms > cfg.CompactLagMaxMs
		}
		d.Dirty += s.Size()
	}
	return d
}

// cleanable lists the segments compaction may touch, from the first one on. They are full, sealed and durable, every
// transaction in them is decided, and the producer state of all that lies in them is in a snapshot a start can go on
// from: a scan must not depend on headers that are gone (spec: producer state, 8).
func (l *Log) cleanable(now int64) (segs []*segment.Segment, cfg Config) {
	l.chore.Lock()
	bound := l.ck.recovery
	l.chore.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	cfg = l.cfg
	if l.down.Load() != nil || l.stopped || !cfg.Compact {
		return nil, cfg
	}
	bound = min(bound, l.durable, l.lim.stable.Load())
	n := 0
	for _, s := range l.segs[:len(l.segs)-1] {
		if s.NextOffset() > bound || !s.Sealed() || slices.Contains(l.unsynced, s) || l.tooYoung(s, now) {
			break
		}
		n++
	}
	return l.segs[:n:n], cfg
}

// tooYoung: min.compaction.lag.ms keeps the records of a segment from being looked at; under mu.
func (l *Log) tooYoung(s *segment.Segment, now int64) bool {
	ms, _ := s.MaxTime()
	return l.cfg.CompactLagMinMs > 0 && s.NextOffset() > l.firstDirty.Load() && ms > now-l.cfg.CompactLagMinMs
}

// Clean compacts what can be compacted (spec: on disk, 9): it learns the newest record of each key above the first
// dirty offset, rewrites all segments below the end of what it learned, a few small ones into one, and puts each in
// place of those it came from. Readers that hold old segments keep them. It runs beside appends, reads and Tick; Close
// and Delete end it. One call at a time works; after one that was ended early the next begins at the same place.
//
// Errors: damage that was found or a swap that failed took the log offline (ErrOffline); anything else left the log as
// it was, and was told to Events.
func (l *Log) Clean(in CleanIn) (Cleaned, error) {
	l.cleaner.Lock()
	defer l.cleaner.Unlock()
	c := cleaning{l: l, in: in}
	c.out.FirstDirty = l.firstDirty.Load()
	c.segs, c.cfg = l.cleanable(in.Now)
	if n := len(c.segs); n == 0 || c.segs[n-1].NextOffset() <= c.out.FirstDirty || l.quit.Load() > 0 || !c.pin() {
		return c.out, l.Err()
	}
	defer c.unpin()
	err := c.run()
	l.o.Events.Cleaned(c.out)
	if errors.Is(err, errStopped) {
		return c.out, l.Err()
	}
	return c.out, err
}

// cleaning is one call of Clean.
type cleaning struct {
	l       *Log
	in      CleanIn
	cfg     Config
	segs    []*segment.Segment // pinned
	aborted []index.AbortedTxn
	filter  *clean.Filter
	buf     []byte
	paced   int64
	out     Cleaned
}

func (c *cleaning) pin() bool {
	for i, s := range c.segs {
		if !s.TryPin() {
			c.segs = c.segs[:i]
			c.unpin()
			return false
		}
	}
	return true
}

func (c *cleaning) unpin() {
	for _, s := range c.segs {
		s.Unpin()
	}
}

func (c *cleaning) run() error {
	var f Fetch
	last := c.segs[len(c.segs)-1]
	if err := c.l.aborted(c.segs[0].ID().Base, last.NextOffset(), &f); err != nil {
		return c.l.readFailed(err)
	}
	c.aborted = f.Aborted
	keys, end, err := c.look()
	if err != nil {
		return err
	}
	c.filter = clean.NewFilter(clean.Options{
		Keys: keys, End: end, Now: c.in.Now, HorizonMs: c.cfg.DeleteHorizonMs, Aborted: c.aborted, Live: c.l.counts,
	})
	for rest := c.segs; len(rest) > 0 && rest[0].ID().Base < end; {
		n := c.group(rest, end)
		if err := c.replace(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	c.l.firstDirty.Store(end)
	c.out.FirstDirty = end
	return c.l.persist(MarkClean, end)
}

// look learns the newest offset of each key from the first dirty offset on, and how far it came.
func (c *cleaning) look() (keys *clean.Keys, end int64, err error) {
	from := c.out.FirstDirty
	keys, end = clean.NewKeys(c.in.Keys, c.aborted), from
	for _, s := range c.segs {
		if s.NextOffset() <= from {
			continue
		}
		r := reader(s)
		if r.Pos, err = s.Find(from); err != nil {
			return nil, 0, c.l.readFailed(err)
		}
		for r.Pos < s.Size() && !keys.Full() {
			pos := r.Pos
			v, err := r.Read()
			if err == nil {
				err = keys.Look(v)
			}
			if err != nil {
				return nil, 0, c.damaged(s, pos, err)
			}
			end = v.LastOffset() + 1
			if err := c.pace(&c.out.Read, len(v)); err != nil {
				return nil, 0, err
			}
		}
		if r.Pos < s.Size() {
			return keys, end, nil
		}
	}
	return keys, end, nil
}

// reader walks a whole segment and checks each batch: damage must not be copied under a new checksum.
func reader(s *segment.Segment) *segment.Reader {
	r := segment.NewReader(s, s.ID().Base, s.Size())
	r.Holes, r.Epoch = math.MaxInt64, math.MinInt32
	return r
}

// damaged is what a walk found at a position of a segment, as the error of the log.
func (c *cleaning) damaged(s *segment.Segment, pos int64, err error) error {
	return c.l.readFailed(&segment.CorruptError{
		Path: segment.Name(s.ID().Base, segment.LogSuffix), Pos: pos, Err: err,
	})
}

// pace counts bytes and lets others have the disk. It ends the call if the log does, or is asked to.
func (c *cleaning) pace(count *int64, n int) error {
	*count += int64(n)
	if c.paced += int64(n); c.paced < cleanPiece {
		return nil
	}
	n, c.paced = int(c.paced), 0
	if c.l.quit.Load() > 0 || c.l.down.Load() != nil || c.in.Pace != nil && !c.in.Pace(int64(n)) {
		return errStopped
	}
	return nil
}
