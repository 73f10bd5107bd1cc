package plog

import (
	"errors"
	"fmt"

	"sekali/batch"
	"sekali/index"
	"sekali/pidmap"
	"sekali/segment"
)

// errStale: a batch or marker in the log bears a lower producer epoch than one before it. The higher epoch was kept.
var errStale = errors.New("plog: producer epoch falls in the log")

// takeIn replays one stored batch into the producer state: recovery, truncation and followers trust the log and refuse
// nothing. Aborted transactions are entered in s, the segment that holds the marker, if s takes appends. The checksum
// counts as the one received only where neither the log nor compaction can have redone it. stale tells of an epoch that
// falls.
func takeIn(m *pidmap.Map, s *segment.Segment, pos int64, v batch.View, touch int64) (stale bool, err error) {
	pid, epoch := v.Producer()
	if pid < 0 {
		return false, nil
	}
	base, last := v.BaseOffset(), v.LastOffset()
	at := pidmap.At{Base: base, Last: last, Time: v.MaxTime(), Pos: pos}
	if v.Attrs().Control() {
		return takeMarker(m, s, v, at)
	}
	b := pidmap.Batch{PID: pid, Epoch: epoch, CRC: v.CRC(), Txn: v.Attrs().Transactional(), Touch: touch}
	b.FirstSeq, b.LastSeq = v.Sequence()
	if v.Attrs().AppendTime() || v.Attrs().Horizon() || v.Count() != v.LastOffsetDelta()+1 {
		b.CRC = 0
	}
	return m.Replay(&b, at), nil
}

func takeMarker(m *pidmap.Map, s *segment.Segment, v batch.View, at pidmap.At) (stale bool, err error) {
	mk, err := batch.ParseMarker(v)
	if errors.Is(err, batch.ErrNoMarker) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("control batch at offset %d: %w", at.Base, err)
	}
	k := pidmap.Marker{PID: mk.PID, Epoch: mk.Epoch, CoordEpoch: mk.CoordEpoch, Commit: mk.Commit, Time: mk.Time}
	ended := m.ReplayMarker(&k, at)
	if ended.Had && !mk.Commit && s != nil {
		s.AddAborted(abortedTxn(mk.PID, &ended, at.Last))
	}
	return ended.Stale, nil
}

// abortedTxn is the index entry of a transaction that the abort marker at an offset ended: the last stable offset in it
// is the one that holds once the marker counts (spec: producer state, 6).
func abortedTxn(pid int64, ended *pidmap.Ended, marker int64) index.AbortedTxn {
	stable := ended.Stable
	if stable < 0 {
		stable = marker + 1
	}
	return index.AbortedTxn{PID: pid, First: ended.First, Last: marker, Stable: stable}
}
