package plog

import (
	"fmt"
	"slices"

	"sekali/internal/vfs"
	"sekali/segment"
)

// roll begins a new segment at the end of the log; under mu. Nothing is flushed here: the next round flushes the old
// segment and the directory before the new one (spec: on disk, 5), and the housekeeper completes the old one's indexes.
// The producer snapshot of the new base begins as a mark; if an earlier one still runs, recovery starts from that.
func (l *Log) roll() error {
	old, base := l.active, l.end.Load()
	keep := l.segs
	if old.Size() == 0 {
		// Made under a smaller segment.bytes, or too small for one batch: it gives its name to the new one.
		keep = without(l.segs, []*segment.Segment{old})
		old.Retire(true)
	}
	s, err := segment.Create(l.o.Dir, segment.ID{Base: base}, l.segOptions(&l.cfg))
	if err != nil {
		if vfs.IsNoSpace(err) && len(keep) == len(l.segs) {
			l.todo.any, l.todo.fault, l.todo.err = true, "roll", err
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		l.segs = keep
		l.takeDown(offline("roll", err), "roll")
		return l.down.Load().err
	}
	if len(keep) == len(l.segs) {
		l.unsynced = append(l.unsynced, old)
		l.unsealed = append(l.unsealed, old)
		l.owed++
		l.todo.hurry = l.o.Written
		if now := l.o.Clock.Mono(); !l.ck.begun && l.pids.Begin(base, now.Milliseconds()) {
			l.began(base, now)
		}
	}
	l.setSegs(append(slices.Clone(keep), s))
	l.from, l.dirDirty, l.born = 0, true, l.o.Clock.Mono()
	l.tail = peak{base: base, time: -1, last: -1}
	l.todo.any = true
	l.todo.rolled = append(l.todo.rolled, base)
	return nil
}
