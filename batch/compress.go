package batch

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var (
	gzipWriters sync.Pool
	lz4Blocks   sync.Pool
	// EncodeAll of one encoder may run in any number of goroutines, up to its concurrency at once.
	zstdWriter = sync.OnceValue(func() *zstd.Encoder {
		z, _ := zstd.NewWriter(nil, zstd.WithZeroFrames(true)) // no option that can be refused
		return z
	})
)

// sink appends what is written to it.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// Compress appends src to dst, compressed the way the usual clients do: gzip as one member, snappy as one raw block,
// lz4 as independent blocks of 64 KiB without checksums, zstd as one frame. Any other codec appends src as it is. Calls
// may overlap; dst and src may not.
func Compress(dst []byte, codec uint8, src []byte) []byte {
	switch codec {
	case Gzip:
		return compressGzip(dst, src)
	case Snappy:
		return compressSnappy(dst, src)
	case LZ4:
		return compressLZ4(dst, src)
	case Zstd:
		return zstdWriter().EncodeAll(src, dst)
	}
	return append(dst, src...)
}

// CompressXerial appends src to dst as the stream of snappy-java, which Kafka's Java producer sends for snappy.
func CompressXerial(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	for len(src) > 0 {
		n := min(len(src), snappyChunk)
		at := len(dst)
		dst = compressSnappy(append(dst, 0, 0, 0, 0), src[:n])
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		src = src[n:]
	}
	return dst
}

func compressSnappy(dst, src []byte) []byte {
	dst = slices.Grow(dst, snappy.MaxEncodedLen(len(src)))
	return dst[:len(dst)+len(snappy.Encode(dst[len(dst):cap(dst)], src))]
}

func compressGzip(dst, src []byte) []byte {
	s := &sink{dst}
	w, ok := gzipWriters.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(s)
	}
	w.Reset(s)
	_, _ = w.Write(src) // a sink takes everything
	_ = w.Close()
	w.Reset(io.Discard)
	gzipWriters.Put(w)
	return s.b
}

func compressLZ4(dst, src []byte) []byte {
	const blockMax = 64 << 10
	c, ok := lz4Blocks.Get().(*lz4.Compressor)
	if !ok {
		c = new(lz4.Compressor)
	}
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4Version|lz4Independent, 4<<4)
	dst = append(dst, byte(xxh32Of(dst[len(dst)-2:])>>8))
	for len(src) > 0 {
		b := src[:min(len(src), blockMax)]
		src = src[len(b):]
		at := len(dst)
		dst = append(dst, make([]byte, 4+len(b))...)
		// One byte less than the block: what does not get smaller is stored plain.
		n, err := c.CompressBlock(b, dst[at+4:at+4+len(b)-1])
		head := uint32(n)
		if err != nil || n == 0 {
			n = copy(dst[at+4:], b)
			head = uint32(n) | lz4Plain
		}
		binary.LittleEndian.PutUint32(dst[at:], head)
		dst = dst[:at+4+n]
	}
	lz4Blocks.Put(c)
	return binary.LittleEndian.AppendUint32(dst, 0)
}
