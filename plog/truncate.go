package plog

import (
	"path"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// TruncateTo removes everything from offset on, a batch border, for a replica that diverged from its leader. The caller
// has drained all readers, waiters and rounds, or not yet published the log. The marks are lowered durably before
// anything is cut; producer state, leader epochs and watermarks become what they were at offset. Below the log start
// nothing is cut: ErrRange. An error after the cut began takes the log offline, and recovery ends the work.
func (l *Log) TruncateTo(offset int64) error {
	defer l.endCleaning()()
	l.chore.Lock()
	defer l.chore.Unlock()
	if offset < l.lim.start.Load() || offset > l.end.Load() {
		return ErrRange
	}
	if err := l.Err(); err != nil || offset == l.end.Load() {
		return err
	}
	l.dropSnapshot()
	if err := l.persist(MarkRecovery, min(l.ck.recovery, offset)); err != nil {
		return err
	}
	if err := l.persist(MarkDurable, min(l.durable, offset)); err != nil {
		return err
	}
	l.mu.Lock()
	gone, err := l.truncate(offset)
	if err != nil {
		l.takeDown(offline("truncate", err), "truncate")
	}
	l.unlock()
	for _, s := range gone {
		s.Retire(true)
	}
	if err != nil {
		return err
	}
	return l.cutEpochCache(offset)
}

// dropSnapshot ends a snapshot that runs, unwritten; chore is held.
func (l *Log) dropSnapshot() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ck.begun {
		l.pids.Finish()
		l.ck.begun = false
	}
}

// truncate cuts the segments and sets back what follows from them; chore and mu are held, for nobody else is there.
// gone is the segments that are no longer listed.
func (l *Log) truncate(offset int64) (gone []*segment.Segment, err error) {
	i := max(l.view.Load().floor(offset), 0)
	s := l.segs[i]
	gone = l.segs[i+1:]
	l.setSegs(append([]*segment.Segment(nil), l.segs[:i+1]...))
	l.unsynced, l.unsealed = without(l.unsynced, gone), without(l.unsealed, append(gone, s))
	l.owed = len(l.unsynced)
	if err := s.TruncateTo(offset); err != nil {
		return gone, err
	}
	s.Limit(l.cfg.SegmentBytes, l.cfg.SegmentMs)
	if err := l.rebuildProducers(offset); err != nil {
		return gone, err
	}
	l.durable = min(l.durable, offset)
	l.from = 0
	l.tail.base = s.ID().Base
	l.tail.time, l.tail.last = s.MaxTime()
	high, _, start := l.lim.get()
	if high.offset >= offset {
		high = spot{offset: offset, base: s.ID().Base, pos: s.Size()}
		l.top = l.tail
	}
	l.lim.set(high, l.stableBelow(high, start))
	l.end.Store(offset)
	return gone, nil
}

// rebuildProducers replaces the producer state by what the log tells up to its end at offset: the newest snapshot at or
// below it and the batches since.
func (l *Log) rebuildProducers(offset int64) error {
	m, from := pidmap.New(l.o.Pids), l.segs[0].ID().Base
	for n := len(l.ck.files); n > 0; n-- {
		at := l.ck.files[n-1]
		name := path.Join(l.o.Dir, segment.Name(at, snapshotSuffix))
		if at <= offset && at >= from {
			b, err := vfs.ReadFile(l.o.FS, name)
			if err == nil {
				err = m.Load(b, l.touch())
			}
			if err != nil {
				return err
			}
			from = at
			break
		}
		if err := vfs.RemoveAll(l.o.FS, name); err != nil {
			return err
		}
		l.ck.files = l.ck.files[:n-1]
	}
	l.ck.written, l.ck.recovery = -1, min(l.ck.recovery, offset)
	for i := max(l.view.Load().floor(from), 0); i < len(l.segs); i++ {
		if err := l.replaySegment(m, l.segs[i], from); err != nil {
			return err
		}
	}
	l.pids = m
	return nil
}

// replaySegment replays the batches of one segment from an offset on. Abort entries are in its index already.
func (l *Log) replaySegment(m *pidmap.Map, s *segment.Segment, from int64) error {
	pos, err := s.Find(from)
	if err != nil {
		return err
	}
	w := l.walk(s, s.Size())
	defer w.close()
	for pos < w.end {
		v, next, err := w.header(pos)
		if err != nil {
			return err
		}
		if v.Attrs().Control() {
			v = make(batch.View, next-pos)
			if _, err := s.ReadAt(v, pos); err != nil {
				return err
			}
		}
		if _, err := takeIn(m, nil, pos, v, l.touch()); err != nil {
			return err
		}
		pos = next
	}
	return nil
}
