package segment

import (
	"errors"
	"io"
	"math"
	"runtime/debug"
	"sync"

	"sekali/batch"
)

// walker reads batch headers of one segment upwards. It lives on the stack of one reader that holds a pin; done gives
// its window back.
type walker struct {
	s   *Segment
	f   io.ReaderAt
	m   []byte
	end int64 // nothing at or beyond it is read
	hot int64 // headers from here on are read through the mapping
	w   *window
	at  int64 // the window holds [at, at+n)
	n   int
}

// window is pooled, because a slice handed to a File escapes.
type window struct {
	b      [windowLen]byte
	header [batch.HeaderLen]byte
}

var windows = sync.Pool{New: func() any { return new(window) }}

// walker starts a walk over the published part of s.
func (s *Segment) walker() (w walker, err error) {
	h, err := s.open(false)
	if err != nil {
		return w, err
	}
	w = s.walkFile(h.f, s.size.Load())
	if !s.sealed.Load() && h.m != nil {
		w.hot, w.m = w.end-hotTail, h.m.Bytes()
	}
	return w, nil
}

// walkFile starts a walk over the first size bytes of f, the segment's file, by pread alone.
func (s *Segment) walkFile(f io.ReaderAt, size int64) walker {
	return walker{s: s, f: f, end: size, hot: math.MaxInt64, w: windows.Get().(*window)}
}

func (w *walker) done() { windows.Put(w.w) }

// header returns the header of the batch at pos and where the batch ends. The header is valid until the next call.
// What is not the beginning of a batch within the segment is a CorruptError.
func (w *walker) header(pos int64) (v batch.View, next int64, err error) {
	if w.end-pos < batch.HeaderLen {
		return nil, 0, w.s.corrupt(pos, ErrShort)
	}
	if pos >= w.hot {
		v = w.w.header[:]
		if err := copyGuarded(v, w.m[pos:pos+batch.HeaderLen]); err != nil {
			return nil, 0, w.s.corrupt(pos, err)
		}
	} else if v, err = w.read(pos); err != nil {
		return nil, 0, err
	}
	next = pos + length(v)
	if err := sound(v, w.s.id.Base, w.end-pos); err != nil {
		return nil, 0, w.s.corrupt(pos, err)
	}
	return v, next, nil
}

// read takes the header from the window, or reads a new window.
func (w *walker) read(pos int64) (batch.View, error) {
	if pos < w.at || pos+batch.HeaderLen > w.at+int64(w.n) {
		n := int(min(windowLen, w.end-pos))
		got, err := w.f.ReadAt(w.w.b[:n], pos)
		if got < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = ErrShort // shorter than what was published
			}
			return nil, w.s.corrupt(pos, err)
		}
		w.at, w.n = pos, n
	}
	return batch.View(w.w.b[pos-w.at:][:batch.HeaderLen]), nil
}

func (s *Segment) corrupt(pos int64, err error) error {
	return &CorruptError{Path: s.pathNow(), Pos: pos, Err: err}
}

// copyGuarded copies from a mapping. An I/O error there is a signal; it becomes ErrFault.
func copyGuarded(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // nothing but a fault can panic in a copy
			err = ErrFault
		}
	}()
	copy(dst, src)
	return nil
}

// length is the size of the whole batch by its length field, of any value.
func length(v batch.View) int64 {
	return 12 + int64(int32(uint32(v[8])<<24|uint32(v[9])<<16|uint32(v[10])<<8|uint32(v[11])))
}

// sound tells why a header cannot be that of a whole batch in a segment with that base, room bytes before the end.
func sound(v batch.View, base, room int64) error {
	n := length(v)
	switch {
	case n < batch.HeaderLen:
		return ErrLength
	case n > room:
		return ErrShort
	case v.Magic() != 2:
		return ErrMagic
	case v.BaseOffset() < base:
		return ErrBase
	case v.LastOffsetDelta() < 0 || v.BaseOffset() > math.MaxInt64-math.MaxInt32 || v.LastOffset()-base > math.MaxInt32:
		return ErrDelta
	}
	return nil
}
