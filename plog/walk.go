package plog

import (
	"encoding/binary"
	"fmt"

	"sekali/batch"
	"sekali/internal/buf"
	"sekali/segment"
)

// walker reads batch headers of one pinned segment, one behind the other, in a window of pooled bytes: a run of small
// batches costs one read, a large one no more than its header. Its owner is one goroutine; close gives the window back.
type walker struct {
	s    *segment.Segment
	pool *buf.Pool
	win  []byte
	at   int64 // position of win[0]
	n    int   // bytes of win that were read
	end  int64 // exclusive: no header at or above it is read
}

func (l *Log) walk(s *segment.Segment, end int64) walker {
	pool := l.o.Shared.pool
	return walker{s: s, pool: pool, win: pool.Get(walkWindow), end: end}
}

func (w *walker) close() { w.pool.Put(w.win) }

// header is the 61 bytes of the batch at pos, valid until the next call, and the position behind the batch.
func (w *walker) header(pos int64) (h batch.View, next int64, err error) {
	if pos < w.at || pos+batch.HeaderLen > w.at+int64(w.n) {
		n := min(w.end-pos, int64(len(w.win)))
		if n < batch.HeaderLen {
			return nil, 0, w.corrupt(pos)
		}
		if _, err := w.s.ReadAt(w.win[:n], pos); err != nil {
			return nil, 0, err
		}
		w.at, w.n = pos, int(n)
	}
	i := int(pos - w.at)
	h = batch.View(w.win[i : i+batch.HeaderLen])
	next = pos + 12 + int64(int32(binary.BigEndian.Uint32(h[8:])))
	if next < pos+batch.HeaderLen || next > w.end {
		return nil, 0, w.corrupt(pos)
	}
	return h, next, nil
}

func (w *walker) corrupt(pos int64) error {
	return &segment.CorruptError{
		Path: segment.Name(w.s.ID().Base, segment.LogSuffix), Pos: pos, Err: fmt.Errorf("%w: batch length", batch.ErrCorrupt),
	}
}
