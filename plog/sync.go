package plog

import (
	"time"

	"sekali/internal/check"
	"sekali/segment"
)

// Round is one log's part of a commit round; syncer only, one at a time per log. BeginSync fills it under a short
// Log.mu and pins what it names; StartWrite and Datasync take no lock; EndSync gives it back. It may be used again.
type Round struct {
	End        int64 // exclusive: what the round makes durable
	log        *Log
	seg        *segment.Segment
	from, size int64              // of seg: bytes to be flushed
	sealed     []*segment.Segment // since the last round; they and the directory are flushed first
	dir        bool               // the directory has a new file
	top        peak
	bytes      int64
	took       time.Duration
}

// peak is the largest timestamp of a segment, and the last offset of the first batch that holds it.
type peak struct{ base, time, last int64 }

// Empty reports that there is nothing to flush: the caller may go from BeginSync straight to EndSync.
func (r *Round) Empty() bool { return r.from >= r.size && len(r.sealed) == 0 && !r.dir }

// BeginSync takes {end, segment, size, segments rolled since} as one snapshot. The caller has marked the log as queued
// before, so that an append from now on marks it again.
func (l *Log) BeginSync(r *Round) {
	check.That(r.log == nil, "plog: round begun twice")
	*r = Round{log: l, sealed: r.sealed[:0]}
	l.mu.Lock()
	defer l.mu.Unlock()
	check.That(!l.inRound, "I7: two rounds over one log at once")
	l.inRound = true
	r.End = l.end.Load()
	if l.down.Load() != nil {
		return
	}
	r.seg, r.from, r.size = l.active, l.from, l.active.Size()
	r.dir, l.dirDirty = l.dirDirty, false
	r.top, r.bytes = l.tail, l.unflushed
	pinned(r.seg)
	for _, s := range l.unsynced {
		pinned(s)
		r.sealed = append(r.sealed, s)
	}
	l.unsynced = l.unsynced[:0]
}

// pinned pins a segment the caller's lock keeps alive.
func pinned(s *segment.Segment) {
	check.That(s.TryPin(), "I2: a listed segment has no pin of its owner")
}

// Hasten asks for the flush of what was appended with Lazy, as one that waits for it does. It does not wait.
func (l *Log) Hasten() { l.o.Dirty() }

// StartWrite begins write-back of what the round covers and does not wait. It promises nothing; its error is one of the
// storage all the same and belongs to EndSync.
func (r *Round) StartWrite() error {
	for _, s := range r.sealed {
		if err := s.StartWrite(0, s.Size()); err != nil {
			return err
		}
	}
	if r.seg == nil || r.from >= r.size {
		return nil
	}
	return r.seg.StartWrite(r.from, r.size)
}

// Datasync flushes: rolled segments first, then the directory if it has a new file, then the active segment. One call a
// round: a flush that failed is never repeated (I15).
func (r *Round) Datasync() error {
	if r.seg == nil {
		return nil
	}
	began := r.log.o.Clock.Mono()
	for _, s := range r.sealed {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	if r.dir {
		if err := r.log.o.FS.SyncDir(r.log.o.Dir); err != nil {
			return err
		}
	}
	if r.from < r.size {
		if err := r.seg.Sync(); err != nil {
			return err
		}
	}
	r.took = r.log.o.Clock.Mono() - began
	return nil
}

// EndSync ends the round. Without an error everything below r.End is durable: the high watermark moves there (I7), the
// stable offset follows, and the waiters up to both are fired before it returns; fired counts those of AfterDurable.
// Any error takes the log offline, and only this log (I15).
func (l *Log) EndSync(r *Round, err error) (fired int) {
	check.That(r.log == l, "plog: round of another log")
	rolled := len(r.sealed) > 0
	l.mu.Lock()
	l.inRound = false
	switch {
	case l.down.Load() != nil:
	case err != nil:
		l.takeDown(offline("flush", err), "flush")
	default:
		l.flushed(r)
	}
	durable := l.durable
	alive := l.down.Load() == nil
	fired = l.todo.durable
	l.unlock()
	took, bytes := r.took, r.bytes
	r.done()
	if !alive || err != nil {
		return fired
	}
	if bytes > 0 {
		l.o.Events.Synced(took, bytes)
	}
	if rolled {
		l.persist(MarkDurable, durable)
	}
	return fired
}

// flushed publishes what a round made durable; under mu.
func (l *Log) flushed(r *Round) {
	check.AtMost(l.durable, r.End, "I7: durable end goes back")
	l.durable = r.End
	l.unflushed -= r.bytes
	l.owed -= len(r.sealed)
	l.o.Load.Bytes.Add(-r.bytes)
	if l.active == r.seg {
		l.from = r.size
	}
	if l.o.Written && l.owed == 0 {
		l.raiseWritten()
	} else if r.End >= l.lim.high.Load() {
		l.top = r.top
		l.raise(spot{offset: r.End, base: r.seg.ID().Base, pos: r.size})
	}
}

// raiseWritten lets high follow the written end; under mu, written mode only (D2).
func (l *Log) raiseWritten() {
	l.top = l.tail
	l.raise(spot{offset: l.end.Load(), base: l.active.ID().Base, pos: l.active.Size()})
}

// done drops the round's pins.
func (r *Round) done() {
	for i, s := range r.sealed {
		s.Unpin()
		r.sealed[i] = nil
	}
	if r.seg != nil {
		r.seg.Unpin()
	}
	*r = Round{sealed: r.sealed[:0]}
}
