package plog

import (
	"fmt"

	"sekali/batch"
	"sekali/pidmap"
)

// AppendMarker writes the marker that ends a transaction of this partition, for the transaction coordinator. redo: it
// may have been written before; if the producer has the marker's epoch and no open transaction, nothing is written and
// the answer is a duplicate that waits for all there is. Errors: ErrMarker with pidmap.ErrFenced (47),
// pidmap.ErrCoordFenced (52) or pidmap.ErrFull, else those of Append. The outcome is visible once it is durable (I11).
func (l *Log) AppendMarker(m batch.Marker, redo bool) (AppendOut, error) {
	out := l.nothing()
	if err := l.enter(); err != nil {
		return out, err
	}
	if err := l.lockForWrite(); err != nil {
		return out, err
	}
	err := l.appendMarker(m, redo, &out)
	l.unlock()
	if err == nil && !out.Duplicate {
		l.o.Dirty()
	}
	return out, err
}

// appendMarker checks, writes and commits a marker; under mu. A failed write leaves the producer state as it was (I5).
// The entry of an aborted transaction is published in the segment of its marker before the end that covers it.
func (l *Log) appendMarker(m batch.Marker, redo bool, out *AppendOut) error {
	k := pidmap.Marker{
		PID: m.PID, Epoch: m.Epoch, CoordEpoch: m.CoordEpoch, Version: m.Version, Commit: m.Commit, Time: m.Time,
	}
	ended, err := l.pids.CheckMarker(&k)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMarker, err)
	}
	base := l.end.Load()
	if redo && ended.Same {
		l.pids.Void(m.PID)
		out.Duplicate, out.Until = true, base
		return nil
	}
	v := batch.View(batch.AppendMarker(l.marker[:0], base, l.epoch, m))
	if !l.active.Fits(v) {
		if err := l.roll(); err != nil {
			return err
		}
	}
	pos, err := l.active.Append(v)
	if err != nil {
		return l.writeFailed("marker", err)
	}
	if ended.Had && !m.Commit {
		l.active.AddAborted(abortedTxn(m.PID, &ended, base))
	}
	l.pids.CommitMarker(&k, pidmap.At{Base: base, Last: base, Time: m.Time, Pos: pos})
	l.wrote(int64(len(v)), base, m.Time)
	l.publish()
	out.Base, out.Last, out.Until = base, base, base+1
	return nil
}

// VoidGuards makes every verification under way void: the coordinator that agreed has been replaced, by one that may
// not know of it.
func (l *Log) VoidGuards() {
	l.mu.Lock()
	l.pids.VoidAll()
	l.mu.Unlock()
}

// Doubt makes the next batch of a producer's open transaction ask the coordinator, also the retry of a stored one: the
// registration of the transaction was lost, or nobody knows. Its marker ends that.
func (l *Log) Doubt(pid int64) {
	l.mu.Lock()
	l.pids.Doubt(pid)
	l.mu.Unlock()
}

// HoldTxns refuses transactional batches, retries of stored ones too, with ErrUnsettled, until it is called with false:
// somebody has to see first whose the transactions are that were found open here. What a client is told of them before,
// or appends to them, its coordinator may not know.
func (l *Log) HoldTxns(on bool) {
	l.mu.Lock()
	l.holding = on
	l.mu.Unlock()
}

// CoordEpoch is the highest coordinator epoch that the markers of a producer have shown here, -1 if there was none: a
// marker below it is refused.
func (l *Log) CoordEpoch(pid int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.pids.Get(pid); ok {
		return p.CoordEpoch
	}
	return -1
}
