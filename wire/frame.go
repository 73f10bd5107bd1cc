package wire

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"sekali/internal/buf"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frame is one answer: encoded bytes interleaved with borrowed slices. It belongs to whoever holds it until Release,
// which must be called exactly once, sent or not.
type Frame struct {
	head    []byte
	cuts    []cut
	bufs    net.Buffers
	size    int
	release func()
}

// cut says that the pieces of partition part follow head[:at].
type cut struct{ at, part int }

var frames = sync.Pool{New: func() any { return &Frame{head: make([]byte, 0, headBytes)} }}

// Encode makes the answer to the request of header h. The version of r must be set.
func Encode(h Header, r kmsg.Response) *Frame {
	f := frames.Get().(*Frame)
	f.head = r.AppendTo(appendHeader(f.head[:0], h))
	f.bufs = append(f.bufs[:0], f.head)
	f.finish(len(f.head))
	return f
}

// finish writes the length; the first piece begins with it.
func (f *Frame) finish(size int) {
	f.size = size
	binary.BigEndian.PutUint32(f.head, uint32(size-4))
}

// Size is the length on the wire in bytes, the length field included.
func (f *Frame) Size() int { return f.size }

// Release gives back what the frame borrowed and the frame itself.
func (f *Frame) Release() {
	release := f.release
	f.release = nil
	clear(f.bufs)
	f.bufs, f.cuts = f.bufs[:0], f.cuts[:0]
	if cap(f.head) > headKeep {
		f.head = make([]byte, 0, headBytes)
	}
	frames.Put(f)
	if release != nil {
		release()
	}
}

// vectors are the slice headers of one Send; WriteTo eats them.
var vectors = sync.Pool{New: func() any { return new(vector) }}

type vector struct{ all, eaten net.Buffers }

// Send writes frames in order with one writev per 1,024 pieces and returns the bytes written. c must be the bare
// connection: behind any wrapper net.Buffers falls back to one write per piece. Send neither releases the frames nor
// sets a deadline, and calls for one connection must not overlap.
func Send(c net.Conn, fs []*Frame) (int64, error) {
	v := vectors.Get().(*vector)
	v.all = v.all[:0]
	for _, f := range fs {
		v.all = append(v.all, f.bufs...)
	}
	v.eaten = v.all
	n, err := v.eaten.WriteTo(c)
	clear(v.all)
	if cap(v.all) <= piecesMax {
		vectors.Put(v)
	}
	return n, err
}

// copies are buffers of SendCopy: a record of TLS holds 16 KiB.
var copies = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, copyBytes) }}

// SendCopy is Send for a connection that is not bare: pieces are gathered in a buffer, since each write has its price.
func SendCopy(c io.Writer, fs []*Frame) error {
	w := copies.Get().(*bufio.Writer)
	defer copies.Put(w)
	w.Reset(c)
	defer w.Reset(nil)
	for _, f := range fs {
		for _, b := range f.bufs {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// Token is a frame that holds nothing but b: an answer of a SASL exchange that has no header.
func Token(b []byte) *Frame {
	f := frames.Get().(*Frame)
	f.head = append(append(f.head[:0], 0, 0, 0, 0), b...)
	f.bufs = append(f.bufs[:0], f.head)
	f.finish(len(f.head))
	return f
}

// ReadToken reads such a frame of at most limit bytes. Errors are those of ReadHead.
func ReadToken(r io.Reader, limit int) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	switch {
	case n < 0:
		return nil, ErrFrameSize
	case int(n) > limit:
		return nil, ErrTooLarge
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

// Head is the begin of a frame: how many bytes follow the length, and of which key they are.
type Head struct {
	Size int
	Key  int16
}

// ReadHead reads the length of the next frame and the key behind it, and holds the length against the limit of that
// key. The key is peeked at, so ReadBody gives the whole frame. r must buffer at least six bytes. At the end of the
// stream the error is io.EOF between frames and io.ErrUnexpectedEOF within one; ErrFrameSize and ErrTooLarge mean
// that the connection has to go. Before login every key has the same small limit.
func ReadHead(r Peeker, l Limits, loggedIn bool) (Head, error) {
	b, err := r.Peek(4)
	if err == nil {
		if n := int32(binary.BigEndian.Uint32(b)); n < fixedHeader-2 {
			return Head{Size: int(n)}, ErrFrameSize
		}
		b, err = r.Peek(6)
	}
	if err != nil {
		if err == io.EOF && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return Head{}, err
	}
	h := Head{Size: int(binary.BigEndian.Uint32(b)), Key: int16(binary.BigEndian.Uint16(b[4:]))}
	limit := l.BeforeLogin
	if loggedIn {
		limit = l.Cap(h.Key)
	}
	if h.Size > limit {
		return h, ErrTooLarge
	}
	_, err = r.Discard(4)
	return h, err
}

// Peeker is what ReadHead needs of a buffered reader.
type Peeker interface {
	io.Reader
	Peek(n int) ([]byte, error)
	Discard(n int) (int, error)
}

// First is how many bytes a frame begins with, of which have arrived that many: about twice as many, so that who claims
// much has to send half of what is taken for it.
func (h Head) First(arrived int) int { return min(h.Size, max(2*arrived, firstPiece)) }

// ReadBody reads the frame that h announces, header first. The buffer comes from pool and grows with the bytes that
// arrive, not with the claim; it is the caller's, who gives it back with pool.Put. It begins with first bytes, which is
// what h.First said; more is called with how many more it is about to take, may wait, and ends the reading with its
// error. A stream that ends first gives io.ErrUnexpectedEOF.
func ReadBody(r io.Reader, h Head, first int, pool *buf.Pool, more func(n int) error) ([]byte, error) {
	b := pool.Get(first)
	for n := 0; ; {
		m, err := io.ReadFull(r, b[n:])
		n += m
		if err != nil {
			pool.Put(b)
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if n == h.Size {
			return b, nil
		}
		size := min(h.Size, 2*n)
		if err := more(size - n); err != nil {
			pool.Put(b)
			return nil, err
		}
		b = pool.Grow(b, size)[:size]
	}
}
