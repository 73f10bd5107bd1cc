package batch

import (
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/snappy"
)

const (
	// xerialMagic begins the stream of snappy-java; two versions of 4 bytes follow it.
	xerialMagic     = "\x82SNAPPY\x00"
	xerialHeaderLen = len(xerialMagic) + 8
	xerialVersion   = 1
)

// snappySource reads the two forms of snappy that Kafka clients send: one raw block, or the chunks of snappy-java
// behind its magic. The framing format of Go's snappy writers is neither.
type snappySource struct {
	s     *stream
	p     []byte // compressed, not yet read
	raw   bool   // p is one block and not chunks
	block []byte // decompressed, not yet taken
}

func (x *snappySource) reset(p []byte) error {
	x.p = p
	x.raw = len(p) < xerialHeaderLen || string(p[:len(xerialMagic)]) != xerialMagic
	return nil
}

func (x *snappySource) read(d []byte) (int, error) {
	if len(x.block) == 0 {
		c, err := x.chunk()
		if err != nil {
			return 0, err
		}
		n, err := snappyLen(c)
		if err != nil {
			return 0, err
		}
		if n > x.s.left {
			return 0, ErrDecodedSize
		}
		if n <= len(d) {
			_, err = snappy.Decode(d[:n:n], c)
			return n, snappyErr(err)
		}
		if x.block, err = snappy.Decode(x.s.room(n), c); err != nil {
			return 0, ErrDecode
		}
	}
	n := copy(d, x.block)
	x.block = x.block[n:]
	return n, nil
}

// chunk cuts the next compressed block off.
func (x *snappySource) chunk() (c []byte, err error) {
	if len(x.p) == 0 {
		return nil, io.EOF
	}
	if x.raw {
		c, x.p = x.p, nil
		return c, nil
	}
	for len(x.p) >= xerialHeaderLen && string(x.p[:len(xerialMagic)]) == xerialMagic { // a stream may follow another
		if int32(binary.BigEndian.Uint32(x.p[len(xerialMagic):])) < xerialVersion {
			return nil, ErrDecode
		}
		if x.p = x.p[xerialHeaderLen:]; len(x.p) == 0 {
			return nil, io.EOF
		}
	}
	if len(x.p) < 4 {
		return nil, ErrDecode
	}
	n := int64(binary.BigEndian.Uint32(x.p))
	if n > int64(len(x.p)-4) {
		return nil, ErrDecode
	}
	c, x.p = x.p[4:4+n], x.p[4+n:]
	return c, nil
}

func snappyErr(err error) error {
	if err != nil {
		return ErrDecode
	}
	return nil
}

func (x *snappySource) release() { x.p, x.block = nil, nil }

// snappyLen returns the length of the block b decompressed. It reads every element, so that the length is true before
// memory is taken for it, and refuses the copies from offset 0 by which S2 extends the format: the decoder used here
// understands them, the consumers' decoders do not.
func snappyLen(b []byte) (int, error) {
	want, i := binary.Uvarint(b)
	if i <= 0 || i > 5 || want > 1<<32-1 {
		return 0, ErrDecode
	}
	got := uint64(0)
	for i < len(b) {
		tag := b[i]
		n := int(tag>>2) + 1
		switch tag & 3 {
		case 0:
			i++
			if k := n - 60; k > 0 { // the length is in the next k bytes
				if k > len(b)-i {
					return 0, ErrDecode
				}
				var le [8]byte
				copy(le[:], b[i:i+k])
				n = int(binary.LittleEndian.Uint64(le[:])) + 1
				i += k
			}
			if n > len(b)-i {
				return 0, ErrDecode
			}
			i += n
		case 1:
			n = int(tag>>2&7) + 4
			if i+2 > len(b) || tag&0xe0 == 0 && b[i+1] == 0 {
				return 0, ErrDecode
			}
			i += 2
		case 2:
			i += 3
		default:
			i += 5
		}
		got += uint64(n)
	}
	if i != len(b) || got != want {
		return 0, ErrDecode
	}
	return int(got), nil
}
