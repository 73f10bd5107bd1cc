package plog

import (
	"time"

	"sekali/segment"
)

// Tick does the housekeeping of one log; now is wall milliseconds. It is called about once a second, one call at a time
// or not, and may take a few flushes of small files: expiry of producers, roll by age, completion of rolled segments,
// snapshot and recovery point, retention.
func (l *Log) Tick(now int64) {
	l.chore.Lock()
	defer l.chore.Unlock()
	if l.down.Load() != nil {
		return
	}
	l.expire()
	l.rollByAge(now)
	l.checkpoint()
	if l.down.Load() == nil {
		l.retain(now)
	}
}

// expire forgets idle producers, a piece at a time, and tells of those the cap has pushed out.
func (l *Log) expire() {
	l.mu.Lock()
	l.pids.Expire(l.touch(), expireBudget)
	n, early := l.pids.Evicted()
	l.mu.Unlock()
	if n > 0 {
		l.o.Events.Evicted(n, early)
	}
}

// rollByAge rolls an active segment that is older than segment.ms by the monotonic clock of this process. Record times
// decide on append (Fits); here they must not, or records from the past would roll at every call.
func (l *Log) rollByAge(now int64) {
	l.mu.Lock()
	age := l.o.Clock.Mono() - l.born
	if l.cfg.SegmentMs > 0 && age > time.Duration(l.cfg.SegmentMs)*time.Millisecond && l.active.Size() > 0 {
		l.rollIdle()
	}
	l.unlock()
}

// rollIdle rolls outside an append; under mu. The error, if any, was told by roll.
func (l *Log) rollIdle() {
	if l.down.Load() == nil && l.roll() == nil {
		l.todo.any, l.todo.dirty = true, true
	}
}

// retain removes segments from the front: those below the log start, then by size, then by time (spec: on disk, 9).
// The new log start is durable before a file goes. Segments go only below the recovery point: the snapshot it vouches
// for is all that is left of their producers.
func (l *Log) retain(now int64) {
	cfg := l.config()
	segs := l.view.Load().segs
	start, high := l.lim.start.Load(), l.lim.high.Load()
	n, base := 0, segs[0].ID().Base
	total := l.Size()
	for n < len(segs) {
		next := segs[n].NextOffset()
		if next > high || segs[n].Size() == 0 || !expired(&cfg, segs[n], next, start, total, now) {
			break
		}
		total -= segs[n].Size()
		base = next
		n++
	}
	if n == 0 {
		return
	}
	if n == len(segs) {
		// All of it must go: an empty segment remains, after which the snapshot of its base makes them removable.
		l.mu.Lock()
		l.rollIdle()
		l.unlock()
	}
	if base > l.ck.recovery {
		l.mu.Lock()
		l.ck.wanted = true
		l.mu.Unlock()
		for n > 0 && segs[n-1].NextOffset() > l.ck.recovery {
			n--
		}
	}
	if n > 0 && n < len(segs) {
		l.drop(segs[:n], segs[n].ID().Base)
	}
}

// expired reports whether a segment at the front, total bytes before the end, must go.
func expired(cfg *Config, s *segment.Segment, next, start, total, now int64) bool {
	if next <= start {
		return true
	}
	if !cfg.Delete {
		return false
	}
	if cfg.RetainBytes >= 0 && total-cfg.RetainBytes >= s.Size() {
		return true
	}
	if cfg.RetainMs < 0 {
		return false
	}
	largest, _ := s.MaxTime()
	return largest >= 0 && now-largest > cfg.RetainMs
}

// drop removes segments from the front, up to the base offset of the first that stays.
func (l *Log) drop(gone []*segment.Segment, base int64) {
	if l.DeleteBefore(base) != nil || l.persistPoint() != nil {
		return // told by persist; the next call tries again
	}
	l.mu.Lock()
	if l.down.Load() != nil {
		l.mu.Unlock()
		return
	}
	l.setSegs(without(l.segs, gone))
	l.unsealed = without(l.unsealed, gone)
	unsynced := without(l.unsynced, gone) // rolled with every byte durable, and no round since
	l.owed -= len(l.unsynced) - len(unsynced)
	l.unsynced = unsynced
	l.mu.Unlock()
	for _, s := range gone {
		s.Retire(true)
	}
	l.pruneSnapshots()
}

// DeleteBefore raises the log start to offset, at most to the high watermark, and returns when the new start is
// durable; segments below it go later. An offset at or below the present start changes nothing. Errors: ErrRange,
// ErrOffline, ErrClosed, ErrDeleted, or that of Persist, after which nothing was changed.
func (l *Log) DeleteBefore(offset int64) error {
	l.marks.Lock()
	defer l.marks.Unlock()
	if d := l.down.Load(); d != nil {
		return d.err
	}
	if offset < 0 || offset > l.lim.high.Load() {
		return ErrRange
	}
	if offset <= l.lim.start.Load() {
		return nil
	}
	if err := l.flushBelow(offset); err != nil {
		return err
	}
	if err := l.persistLocked(MarkStart, offset); err != nil {
		return err
	}
	l.mu.Lock()
	l.raiseStart(offset)
	l.unlock()
	l.cutEpochHead(offset)
	return nil
}

// Flush makes everything below offset durable, in written mode too, and returns then; the offsets that are shown do not
// move. Errors: ErrOffline, ErrClosed, ErrDeleted.
func (l *Log) Flush(offset int64) error {
	l.marks.Lock()
	defer l.marks.Unlock()
	if d := l.down.Load(); d != nil {
		return d.err
	}
	return l.flushBelow(offset)
}

// flushBelow makes everything below an offset durable, so that no log start lies above the durable end: a start could
// not tell what is missing there, and the producers of what is gone would be forgotten. Only written mode shows what is
// not flushed. The durable end itself moves with the next round.
func (l *Log) flushBelow(offset int64) error {
	l.mu.Lock()
	var late []*segment.Segment
	if offset > l.durable {
		for _, s := range l.segs {
			if s.NextOffset() > l.durable && s.ID().Base < offset {
				pinned(s)
				late = append(late, s)
			}
		}
	}
	l.mu.Unlock()
	if late == nil {
		return nil
	}
	err := l.o.FS.SyncDir(l.o.Dir)
	for _, s := range late {
		if err == nil {
			err = s.Sync()
		}
		s.Unpin()
	}
	if err != nil {
		return l.fail("flush", err)
	}
	return nil
}
