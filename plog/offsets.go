package plog

import (
	"runtime"
	"sync/atomic"

	"sekali/internal/check"
)

// spot is an offset and where it lies: base offset of the segment and position in it.
type spot struct{ offset, base, pos int64 }

// limits is what readers may see. The owner (holder of Log.mu) stores, anyone loads. The words of the two spots stand
// under a sequence lock: seq is odd while they change, and a reader that saw an odd or a changed number reads again.
// One mechanism serves both durability modes and allocates nothing, also where the limits move with every batch.
// Larger offsets are stored before smaller ones and loaded after them, so that I1 holds for single loads too.
type limits struct {
	seq                                  atomic.Uint32
	high, highBase, highPos              atomic.Int64
	stable, stableBase, stablePos, start atomic.Int64
}

// set stores both spots; the owner only.
func (m *limits) set(high, stable spot) {
	m.seq.Add(1)
	m.high.Store(high.offset)
	m.highBase.Store(high.base)
	m.highPos.Store(high.pos)
	m.stable.Store(stable.offset)
	m.stableBase.Store(stable.base)
	m.stablePos.Store(stable.pos)
	m.seq.Add(1)
}

// get is one consistent pair of spots, and the log start from before it.
func (m *limits) get() (high, stable spot, start int64) {
	start = m.start.Load()
	for {
		n := m.seq.Load()
		if n&1 == 0 {
			stable = spot{m.stable.Load(), m.stableBase.Load(), m.stablePos.Load()}
			high = spot{m.high.Load(), m.highBase.Load(), m.highPos.Load()}
			if m.seq.Load() == n {
				return high, stable, start
			}
		}
		runtime.Gosched()
	}
}

// Offsets are the four watermarks of a log: start <= stable <= high <= end (I1). Start is the first offset readers may
// ask for; stable, high and end are exclusive ends of what is decided, what is durable (in written mode: written) and
// what is written.
type Offsets struct{ Start, Stable, High, End int64 }

// Offsets are four atomic loads in an order that keeps I1 true for the caller. Of an offline or closed log: as of then.
func (l *Log) Offsets() Offsets {
	return Offsets{
		Start: l.lim.start.Load(), Stable: l.lim.stable.Load(), High: l.lim.high.Load(), End: l.end.Load(),
	}
}

// raise moves the high watermark to high, and stable to what follows from it, and wakes who waited for either; under
// mu, after the producer state has taken in everything below high.
func (l *Log) raise(high spot) {
	check.AtMost(l.lim.high.Load(), high.offset, "I1: high watermark goes back")
	check.AtMost(high.offset, l.end.Load(), "I1: high watermark above the end")
	stable := l.stableBelow(high, l.lim.start.Load())
	check.AtMost(l.lim.stable.Load(), stable.offset, "I1: stable offset goes back")
	l.lim.set(high, stable)
	l.wake(&l.waiting, high.offset)
	l.wake(&l.highWait, high.offset-1)
	l.wake(&l.stableWait, stable.offset-1)
}

// stableBelow is the last stable offset for a high watermark and a log start; under mu. If the log start has passed an
// open transaction's first offset, it stands in for it; its position is not known, nor needed: nothing is read between
// the log start and itself.
func (l *Log) stableBelow(high spot, start int64) spot {
	stable := high
	if offset, pos, ok := l.pids.Unstable(high.offset); ok && offset < high.offset {
		stable = spot{offset: offset, pos: pos}
	}
	if stable.offset < start {
		stable = spot{offset: start}
	}
	if stable.offset < high.offset {
		stable.base = l.segs[max(l.view.Load().floor(stable.offset), 0)].ID().Base
	}
	return stable
}

// raiseStart moves the log start, and stable with it where it lies below; under mu, after the new start is durable.
func (l *Log) raiseStart(start int64) {
	high, old, _ := l.lim.get()
	check.AtMost(l.lim.start.Load(), start, "I1: log start goes back")
	check.AtMost(start, high.offset, "I1: log start above the high watermark")
	if stable := l.stableBelow(high, start); stable.offset > old.offset {
		l.lim.set(high, stable)
		l.wake(&l.stableWait, stable.offset-1)
	}
	l.lim.start.Store(start)
}
