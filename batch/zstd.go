package batch

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// zstdSource reads one or several zstd frames. What fits the caller's buffer is decoded in one call, without the memory
// of a window; the rest as a stream, whose window is bounded, or as a whole where the window is larger than that.
type zstdSource struct {
	s     *stream
	p     []byte
	whole *zstd.Decoder
	state zstdState
	in    bytes.Reader
	taken int    // bytes given out by the stream
	out   []byte // decoded as a whole, not yet taken
}

// zstdRatio is how much one byte can expand to: a block takes 4 bytes at least and gives 128 KiB at most.
const zstdRatio = 32 << 10

type zstdState uint8

const (
	zstdFresh zstdState = iota
	zstdStreams
	zstdWhole
)

func (z *zstdSource) reset(p []byte) error {
	z.p, z.state, z.taken, z.out = p, zstdFresh, 0, nil
	if z.whole != nil {
		return nil
	}
	var err error
	z.whole, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(zstdWindowMax))
	return err
}

func (z *zstdSource) read(d []byte) (int, error) {
	if z.state == zstdFresh {
		out, err := z.whole.DecodeAll(z.p, d[:0:len(d)])
		if err == nil && len(out) <= len(d) {
			return copy(d, out), io.EOF // out is d
		}
		if errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return 0, ErrDecode // no consumer has such a window
		}
		// Too big or damaged; the decoder does not always tell which.
		if err := z.stream(); err != nil {
			return 0, err
		}
	}
	if z.state == zstdStreams {
		n, err := z.s.large().zstd.Read(d)
		z.taken += n
		switch {
		case err == nil, err == io.EOF:
			return n, err
		case !errors.Is(err, zstd.ErrWindowSizeExceeded) && !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return n, ErrDecode
		case n > 0:
			return n, nil // the error is told again by the next read
		}
		if err := z.all(); err != nil {
			return 0, err
		}
	}
	n := copy(d, z.out)
	if z.out = z.out[n:]; len(z.out) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (z *zstdSource) stream() error {
	z.state = zstdStreams
	z.in.Reset(z.p)
	l := z.s.large()
	if l.zstd != nil {
		return l.zstd.Reset(&z.in)
	}
	var err error
	l.zstd, err = zstd.NewReader(&z.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdStreamMax))
	return err
}

// all decodes again, as a whole, what a stream would need too large a window for.
func (z *zstdSource) all() error {
	z.state = zstdWhole
	size := min(zstdWholeMax, len(z.p)*zstdRatio)
	out, err := z.whole.DecodeAll(z.p, z.s.room(size)[:0:size])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > size {
		return ErrDecodedSize
	}
	if err != nil || len(out) < z.taken {
		return ErrDecode
	}
	z.out = out[z.taken:]
	return nil
}

func (z *zstdSource) release() {
	z.p, z.out = nil, nil
	z.in.Reset(nil)
	if l := z.s.over; l != nil && l.zstd != nil {
		_ = l.zstd.Reset(nil) // cannot fail: the decoder is never closed
	}
}
