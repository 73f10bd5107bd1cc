package plog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"syscall"

	"sekali/index"
	"sekali/internal/buf"
	"sekali/segment"
)

// ReadIn asks for batches.
type ReadIn struct {
	From      int64 // record offset; the first batch returned is the one that holds it
	BytesMax  int
	Committed bool // read_committed: nothing at or above the stable offset, aborted transactions listed
	AtLeast1  bool // one whole batch even if larger
	Copy      bool // TLS: pread into pooled buffers instead of slices of mappings
}

// Fetch is what Read found. Its owner is the caller, who gives it to one Read after the other, and calls Release
// between them: slices of Parts are valid until then, and the segments they lie in stay pinned.
type Fetch struct {
	Parts               [][]byte           // whole batches, in order
	Aborted             []index.AbortedTxn // sorted by First; of a read_committed read
	Start, Stable, High int64
	More                bool // the limit of the isolation level was not reached: BytesMax cut the answer
	log                 *Log
	pins                []*segment.Segment
	bufs                [][]byte
	pool                *buf.Pool
	head                [12]byte // of a batch at a border; on the heap once
}

// Release gives back pins and buffers. A Fetch that was never read into may be released too.
func (f *Fetch) Release() {
	for i, s := range f.pins {
		s.Unpin()
		f.pins[i] = nil
	}
	for i, b := range f.bufs {
		f.pool.Put(b)
		f.bufs[i] = nil
	}
	clear(f.Parts)
	if f.log != nil {
		f.log.released()
	}
	*f = Fetch{Parts: f.Parts[:0], Aborted: f.Aborted[:0], pins: f.pins[:0], bufs: f.bufs[:0]}
}

// released notes that a fetch has given everything back; Delete may wait for the last one.
func (l *Log) released() {
	if l.readers.Add(-1) == 0 && l.down.Load() != nil {
		select {
		case l.drained <- struct{}{}:
		default:
		}
	}
}

// Read fills out with whole batches from in.From on, below the high watermark, or the stable offset if in.Committed
// says so. Between that limit and the end there is nothing to read and no error. Errors: ErrRange, ErrOffline (also
// for what cannot be read any more: the log is offline then), ErrClosed, ErrDeleted; out is empty then, but for
// ErrRange its watermarks are filled. It takes no lock and allocates nothing once out has grown to the size of the
// answers.
func (l *Log) Read(in ReadIn, out *Fetch) error {
	out.Release()
	l.readers.Add(1)
	out.log = l
	if d := l.down.Load(); d != nil {
		out.Release()
		return d.err
	}
	high, stable, start := l.lim.get()
	out.Start, out.Stable, out.High = start, stable.offset, high.offset
	if in.From < start || in.From > l.end.Load() {
		return ErrRange
	}
	limit := high
	if in.Committed {
		limit = stable
	}
	if in.From >= limit.offset {
		return nil
	}
	upto, err := l.collect(&in, limit, out)
	if err == nil && in.Committed && len(out.Parts) > 0 {
		err = l.aborted(in.From, upto, out)
	}
	if err != nil {
		out.Release()
		return l.readFailed(err)
	}
	return nil
}

// readFailed turns an error of a segment into the error of the log: damaged or unreadable data takes it offline; a read
// that met the log going down is told so; a lack of descriptors or memory passes.
func (l *Log) readFailed(err error) error {
	if d := l.down.Load(); d != nil {
		return d.err
	}
	if errors.Is(err, ErrRange) {
		return err
	}
	for _, scarce := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, scarce) {
			l.fault("read", err)
			return err
		}
	}
	return l.fail("read", err)
}

// collect gathers parts segment by segment until the budget is used up or the limit reached, and returns an exclusive
// end of what was gathered: exact, or somewhat above it.
func (l *Log) collect(in *ReadIn, limit spot, out *Fetch) (upto int64, err error) {
	v, i, s := l.pin(in.From)
	if s == nil {
		return 0, l.down.Load().err
	}
	if s.ID().Base > in.From {
		s.Unpin()
		return 0, ErrRange // its segment has gone since the log start was looked at
	}
	left := int64(in.BytesMax)
	from := in.From
	for {
		var n int64
		n, upto, err = l.take(s, from, left, in, limit, out)
		left -= n
		if err != nil || out.More || i+1 >= len(v.segs) || s.ID().Base >= limit.base {
			return upto, err
		}
		if left <= 0 && !(in.AtLeast1 && len(out.Parts) == 0) {
			out.More = upto < limit.offset
			return upto, nil
		}
		if i++; !v.segs[i].TryPin() {
			out.More = true // retired meanwhile: what was gathered is good, the rest comes with the next read
			return upto, nil
		}
		s = v.segs[i]
		from = max(from, s.ID().Base)
	}
}

// take adds the part of one pinned segment to out, at most left bytes of it (n), and keeps the pin for out or gives it
// back. upto is an exclusive end of what is now gathered.
func (l *Log) take(
	s *segment.Segment, from, left int64, in *ReadIn, limit spot, out *Fetch,
) (n, upto int64, err error) {
	keep := false
	defer func() {
		if !keep {
			s.Unpin()
		}
	}()
	to, upto := s.Size(), s.NextOffset()
	if s.ID().Base == limit.base {
		upto = limit.offset
		if to = limit.pos; to < 0 {
			if to, err = s.Find(limit.offset); err != nil {
				return 0, 0, err
			}
		}
	}
	pos, err := s.Find(from)
	if err != nil || pos >= to {
		return 0, upto, err
	}
	if to-pos > left {
		first := in.AtLeast1 && len(out.Parts) == 0
		cut, next, err := l.cut(s, pos, pos+left, to, first, out.head[:])
		out.More = true
		if err != nil || cut == pos {
			return 0, from, err
		}
		to, upto = cut, next
		out.More = upto < limit.offset
	}
	if keep = !in.Copy; keep {
		return to - pos, upto, l.lend(s, pos, to, out)
	}
	return to - pos, upto, l.copyOut(s, pos, to, out)
}

// lend adds a slice of the mapping; the pin passes to out.
func (l *Log) lend(s *segment.Segment, pos, to int64, out *Fetch) error {
	out.pins = append(out.pins, s)
	b, err := s.Bytes(pos, to)
	if err != nil {
		return err
	}
	if s.Sealed() {
		s.WillNeed(pos, to)
	}
	out.Parts = append(out.Parts, b)
	return nil
}

// copyOut adds bytes read into a pooled buffer.
func (l *Log) copyOut(s *segment.Segment, pos, to int64, out *Fetch) error {
	out.pool = l.o.Shared.pool
	b := out.pool.Get(int(to - pos))
	out.bufs = append(out.bufs, b)
	if _, err := s.ReadAt(b, pos); err != nil {
		return err
	}
	out.Parts = append(out.Parts, b)
	return nil
}

// cut finds the last batch border in (pos, want], and the offset of the batch behind it; pos itself if there is none,
// except that first asks for one whole batch at any size. to is a border above want, head room for the head of a batch.
func (l *Log) cut(
	s *segment.Segment, pos, want, to int64, first bool, head []byte,
) (border, next int64, err error) {
	if want > pos {
		if border, err = s.Border(pos, want); err != nil {
			return pos, 0, err
		}
	}
	if border <= pos {
		if !first {
			return pos, 0, nil
		}
		if _, err := s.ReadAt(head, pos); err != nil {
			return pos, 0, err
		}
		border = pos + 12 + int64(int32(binary.BigEndian.Uint32(head[8:])))
	}
	if border >= to {
		return to, s.NextOffset(), nil
	}
	if _, err := s.ReadAt(head[:8], border); err != nil {
		return pos, 0, err
	}
	return border, int64(binary.BigEndian.Uint64(head)), nil
}

// aborted lists the aborted transactions that may touch [from, upto): the entries stand with the marker, so later
// segments are asked too, until one says that no more can come (spec: on disk, 8). A segment that is retired meanwhile
// means a new view, and a new start: a lost entry would leak aborted data.
func (l *Log) aborted(from, upto int64, out *Fetch) error {
	for {
		complete, err := l.abortedIn(l.view.Load(), from, upto, out)
		if err != nil || complete {
			sortAborted(out.Aborted)
			return err
		}
		if d := l.down.Load(); d != nil {
			return d.err
		}
		out.Aborted = out.Aborted[:0]
		runtime.Gosched()
	}
}

func (l *Log) abortedIn(v *view, from, upto int64, out *Fetch) (complete bool, err error) {
	done := false
	for i := max(v.floor(from), 0); i < len(v.segs) && !done; i++ {
		s := v.segs[i]
		if !s.HasAborted() {
			continue
		}
		if !s.TryPin() {
			return false, nil
		}
		out.Aborted, done, err = s.Aborted(out.Aborted, from, upto)
		s.Unpin()
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func sortAborted(a []index.AbortedTxn) {
	if len(a) > 1 {
		slices.SortFunc(a, func(x, y index.AbortedTxn) int { return cmp.Compare(x.First, y.First) })
	}
}
