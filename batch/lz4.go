package batch

import (
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// Parts of the lz4 frame format.
const (
	lz4Magic       = 0x184d2204
	lz4Version     = 0x40 // FLG bits 7-6
	lz4VersionMask = 0xc0
	lz4Independent = 0x20
	lz4BlockSum    = 0x10
	lz4Size        = 0x08
	lz4ContentSum  = 0x04
	lz4FlgReserved = 0x03 // the lower bit is a dictionary id, which no client uses
	lz4BDReserved  = 0x8f
	lz4Plain       = 1 << 31 // size bit of a block that is not compressed
	lz4Ratio       = 255     // a block grows by less than this
)

// lz4Source reads one frame of independent blocks that begins and ends with its input. Kafka's reader does not look
// behind the end mark and at checksum and size of the content; the other consumers do, so they are verified here.
type lz4Source struct {
	s        *stream
	p        []byte
	flags    byte
	blockMax int
	size     uint64 // of the content, where the frame tells
	seen     uint64
	sum      xxh32
	block    []byte // decompressed, not yet taken
}

func (z *lz4Source) reset(p []byte) error {
	if len(p) < 7 || binary.LittleEndian.Uint32(p) != lz4Magic {
		return ErrDecode
	}
	z.flags = p[4]
	bd := p[5]
	end := 6
	if z.flags&lz4Size != 0 {
		end += 8
	}
	switch {
	case z.flags&lz4VersionMask != lz4Version, z.flags&lz4Independent == 0, z.flags&lz4FlgReserved != 0:
		return ErrDecode
	case bd&lz4BDReserved != 0, bd>>4 < 4, len(p) <= end:
		return ErrDecode
	case p[end] != byte(xxh32Of(p[4:end])>>8):
		return ErrDecode
	}
	z.blockMax = 1 << (8 + 2*(bd>>4)) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	if z.flags&lz4Size != 0 {
		z.size = binary.LittleEndian.Uint64(p[6:])
	}
	z.p, z.seen = p[end+1:], 0
	z.sum.reset()
	return nil
}

func (z *lz4Source) read(d []byte) (int, error) {
	if len(z.block) > 0 {
		n := copy(d, z.block)
		z.block = z.block[n:]
		return n, nil
	}
	data, plain, err := z.next()
	if err != nil {
		return 0, err
	}
	out, err := z.decode(d, data, plain)
	if err != nil {
		return 0, err
	}
	if z.flags&lz4ContentSum != 0 {
		z.sum.write(out)
	}
	z.seen += uint64(len(out))
	if len(out) == 0 || len(out) <= len(d) && &out[0] == &d[0] {
		return len(out), nil
	}
	n := copy(d, out)
	z.block = out[n:]
	return n, nil
}

// next cuts the next block off, or verifies the end of the frame and returns io.EOF.
func (z *lz4Source) next() (data []byte, plain bool, err error) {
	if len(z.p) < 4 {
		return nil, false, ErrDecode // the end mark is missing
	}
	head := binary.LittleEndian.Uint32(z.p)
	z.p = z.p[4:]
	if head == 0 {
		return nil, false, z.end()
	}
	n, sum := int(head&^lz4Plain), 0
	if z.flags&lz4BlockSum != 0 {
		sum = 4
	}
	if n == 0 || n > z.blockMax || n+sum > len(z.p) {
		return nil, false, ErrDecode
	}
	data = z.p[:n]
	if sum > 0 && binary.LittleEndian.Uint32(z.p[n:]) != xxh32Of(data) {
		return nil, false, ErrDecode
	}
	z.p = z.p[n+sum:]
	return data, head&lz4Plain != 0, nil
}

func (z *lz4Source) end() error {
	if z.flags&lz4ContentSum != 0 {
		if len(z.p) < 4 || binary.LittleEndian.Uint32(z.p) != z.sum.get() {
			return ErrDecode
		}
		z.p = z.p[4:]
	}
	if len(z.p) != 0 || z.flags&lz4Size != 0 && z.size != z.seen {
		return ErrDecode
	}
	return io.EOF
}

// decode decompresses one block into d if it has the room, else elsewhere.
func (z *lz4Source) decode(d, data []byte, plain bool) ([]byte, error) {
	if plain {
		return data, nil
	}
	most := min(z.blockMax, lz4Ratio*len(data))
	for to := d[:min(len(d), most)]; ; {
		n, err := lz4.UncompressBlock(data, to)
		if err == nil {
			return to[:n], nil
		}
		// The decoder does not tell a damaged block from one that needs more room.
		switch {
		case len(to) >= most:
			return nil, ErrDecode
		case len(to) < windowLen:
			to = z.s.room(min(most, windowLen))
		default:
			to = z.s.room(most)
		}
	}
}

func (z *lz4Source) release() { z.p, z.block = nil, nil }

// xxh32 is the 32-bit xxHash with seed 0, the checksum of lz4 frames; the lz4 library keeps its own to itself.
type xxh32 struct {
	v    [4]uint32
	buf  [16]byte
	n    int // bytes in buf
	size uint64
}

const (
	xxhPrime1 uint32 = 2654435761
	xxhPrime2 uint32 = 2246822519
	xxhPrime3 uint32 = 3266489917
	xxhPrime4 uint32 = 668265263
	xxhPrime5 uint32 = 374761393
)

func xxh32Of(p []byte) uint32 {
	var x xxh32
	x.reset()
	x.write(p)
	return x.get()
}

func (x *xxh32) reset() {
	p1 := xxhPrime1
	*x = xxh32{v: [4]uint32{p1 + xxhPrime2, xxhPrime2, 0, -p1}}
}

func (x *xxh32) write(p []byte) {
	x.size += uint64(len(p))
	if x.n > 0 {
		k := copy(x.buf[x.n:], p)
		x.n += k
		p = p[k:]
		if x.n < len(x.buf) {
			return
		}
		x.rounds(x.buf[:])
		x.n = 0
	}
	whole := len(p) &^ 15
	x.rounds(p[:whole])
	x.n = copy(x.buf[:], p[whole:])
}

// rounds takes in a multiple of 16 bytes.
func (x *xxh32) rounds(p []byte) {
	a, b, c, d := x.v[0], x.v[1], x.v[2], x.v[3]
	for ; len(p) >= 16; p = p[16:] {
		a = xxhRound(a, binary.LittleEndian.Uint32(p))
		b = xxhRound(b, binary.LittleEndian.Uint32(p[4:]))
		c = xxhRound(c, binary.LittleEndian.Uint32(p[8:]))
		d = xxhRound(d, binary.LittleEndian.Uint32(p[12:]))
	}
	x.v = [4]uint32{a, b, c, d}
}

func xxhRound(v, in uint32) uint32 { return bits.RotateLeft32(v+in*xxhPrime2, 13) * xxhPrime1 }

func (x *xxh32) get() uint32 {
	h := x.v[2] + xxhPrime5 // the seed, where nothing was mixed in yet
	if x.size >= 16 {
		h = bits.RotateLeft32(x.v[0], 1) + bits.RotateLeft32(x.v[1], 7) +
			bits.RotateLeft32(x.v[2], 12) + bits.RotateLeft32(x.v[3], 18)
	}
	h += uint32(x.size)
	p := x.buf[:x.n]
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*xxhPrime3, 17) * xxhPrime4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*xxhPrime5, 11) * xxhPrime1
	}
	h = (h ^ h>>15) * xxhPrime2
	h = (h ^ h>>13) * xxhPrime3
	return h ^ h>>16
}
