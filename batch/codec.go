package batch

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// source is one decompressor. It belongs to a stream, whose holder alone calls it.
type source interface {
	// reset begins with the compressed bytes p, at least one, which stay unchanged until release.
	reset(p []byte) error
	// read decompresses into d, which has room, and returns io.EOF behind the last byte of a stream that ended as its
	// format demands, another error where it is damaged. Only few results of 0, nil may come in a row.
	read(d []byte) (int, error)
	// release lets go of p.
	release()
}

// stream decompresses one batch. It comes from open, belongs to the caller alone and goes back by close. It counts what
// comes out, stops at the limit, and turns a panic of a decompressor into an error.
type stream struct {
	src   source
	codec uint8
	bad   bool   // the decompressor panicked: not to be used again
	raw   []byte // compressed
	left  int    // bytes that may still come out
	win   []byte // windowLen bytes, no more capacity
	blk   []byte // room for one block that does not fit where it should go; made when needed
	over  *large
}

// large is memory for a batch too big for a window. At most largeMax are in use; who needs one waits.
type large struct {
	buf  []byte
	zstd *zstd.Decoder // decodes streams, made when needed
}

var (
	streams    [Zstd + 1]sync.Pool
	larges     sync.Pool
	largeSlots = make(chan struct{}, largeMax)
)

// open takes a decompressor for p with at most limit bytes of output. What is wrong with p comes from first.
func open(codec uint8, p []byte, limit int) *stream {
	s, ok := streams[codec].Get().(*stream)
	if !ok {
		s = newStream(codec)
	}
	s.raw, s.left = p, limit
	return s
}

func newStream(codec uint8) *stream {
	s := &stream{codec: codec, win: make([]byte, windowLen)}
	switch codec {
	case Gzip:
		s.src = &gzipSource{}
	case Snappy:
		s.src = &snappySource{s: s}
	case LZ4:
		s.src = &lz4Source{s: s}
	default:
		s.src = &zstdSource{s: s}
	}
	return s
}

func (s *stream) close() {
	s.done()
	if !s.bad {
		streams[s.codec].Put(s)
	}
}

// done gives back what only decompressing needs. The window stays the caller's until close.
func (s *stream) done() {
	if !s.bad {
		s.src.release()
	}
	s.raw = nil
	if o := s.over; o != nil {
		s.over = nil
		if cap(o.buf) > largeKeep {
			o.buf = nil
		}
		if !s.bad {
			larges.Put(o)
		}
		<-largeSlots
	}
}

// large waits for a share of the memory for big batches. It is held until done or close, and nothing else is waited for
// meanwhile.
func (s *stream) large() *large {
	if s.over == nil {
		largeSlots <- struct{}{}
		s.over, _ = larges.Get().(*large)
		if s.over == nil {
			s.over = new(large)
		}
	}
	return s.over
}

// room returns n bytes of memory for one block, the same memory at each call.
func (s *stream) room(n int) []byte {
	if n <= windowLen {
		if cap(s.blk) < n {
			s.blk = make([]byte, max(n, windowLen/4))
		}
		return s.blk[:n]
	}
	l := s.large()
	if cap(l.buf) < n {
		l.buf = make([]byte, n)
	}
	return l.buf[:n]
}

// first decompresses into the window until it is full or, with eof, all is in it. The window is the caller's until
// close.
func (s *stream) first() (p []byte, eof bool, err error) {
	if err := s.start(); err != nil {
		return nil, false, err
	}
	n, eof, err := s.fill(s.win)
	return s.win[:n], eof, err
}

func (s *stream) start() (err error) {
	defer s.guard(&err)
	if len(s.raw) == 0 {
		return ErrDecode // an empty stream is none in any codec
	}
	return s.src.reset(s.raw)
}

// fill decompresses into d until it is full or the stream has ended.
func (s *stream) fill(d []byte) (n int, eof bool, err error) {
	for empty := 0; n < len(d); {
		k, err := s.read(d[n:])
		if k > s.left {
			return n, false, ErrDecodedSize
		}
		s.left -= k
		n += k
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
		if empty++; k > 0 {
			empty = 0
		} else if empty > emptyReads {
			return n, false, ErrDecode
		}
	}
	return n, false, nil
}

func (s *stream) read(d []byte) (n int, err error) {
	defer s.guard(&err)
	return s.src.read(d)
}

// guard keeps a panic of a decompressor from ending the process: what it choked on came from the wire.
func (s *stream) guard(err *error) {
	if recover() != nil {
		s.bad = true
		*err = ErrDecoderPanic
	}
}
