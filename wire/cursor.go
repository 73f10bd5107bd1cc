package wire

import "encoding/binary"

// cursor walks a body without allocating. Once bad it stays bad and yields zeros; b is then empty. It belongs to one
// goroutine.
type cursor struct {
	b        []byte
	bad      bool
	flexible bool
	version  int16
	left     int // elements that may still come
}

func (c *cursor) fail() {
	c.bad = true
	c.b = nil
}

// span takes n bytes; they alias the body and cannot be appended to.
func (c *cursor) span(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.fail()
		return nil
	}
	s := c.b[:n:n]
	c.b = c.b[n:]
	return s
}

func (c *cursor) short() int16 {
	if len(c.b) < 2 {
		c.fail()
		return 0
	}
	v := int16(binary.BigEndian.Uint16(c.b))
	c.b = c.b[2:]
	return v
}

func (c *cursor) int() int32 {
	if len(c.b) < 4 {
		c.fail()
		return 0
	}
	v := int32(binary.BigEndian.Uint32(c.b))
	c.b = c.b[4:]
	return v
}

// uvarint takes at most five bytes and a value below 2^32.
func (c *cursor) uvarint() uint32 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v := uint32(c.b[0])
		c.b = c.b[1:]
		return v
	}
	var v uint64
	for i := 0; i < 5 && i < len(c.b); i++ {
		b := c.b[i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			c.b = c.b[i+1:]
			return uint32(v)
		}
	}
	c.fail()
	return 0
}

// length reads a length or count: compact ones hold n+1, 0 being null, which is -1 here. wide tells the four-byte
// form of bytes and arrays from the two-byte form of strings. Anything below -1 or beyond the bytes left is bad.
func (c *cursor) length(wide bool) int {
	var n int
	switch {
	case c.flexible:
		n = int(c.uvarint()) - 1
	case wide:
		n = int(c.int())
	default:
		n = int(c.short())
	}
	if n < -1 || n > len(c.b) {
		c.fail()
		return 0
	}
	return n
}

// str takes a string; null reports a null one.
func (c *cursor) str() (s []byte, null bool) {
	n := c.length(false)
	if n < 0 {
		return nil, true
	}
	if n > stringMax {
		c.fail()
		return nil, false
	}
	return c.span(n), false
}

// bytes takes a byte string; null reports a null one.
func (c *cursor) bytes() (s []byte, null bool) {
	n := c.length(true)
	if n < 0 {
		return nil, true
	}
	return c.span(n), false
}

// count takes the count of an array whose elements are at least size bytes long, and charges it to the elements left.
func (c *cursor) count(size int) (n int, null bool) {
	n = c.length(true)
	if n < 0 {
		return 0, true
	}
	if n > c.left || n*size > len(c.b) {
		c.fail()
		return 0, false
	}
	c.left -= n
	return n, false
}

// tags skips a section of tagged fields.
func (c *cursor) tags() {
	n := int(c.uvarint())
	if n == 0 {
		return
	}
	if n > c.left || 2*n > len(c.b) {
		c.fail()
		return
	}
	c.left -= n
	for ; n > 0 && !c.bad; n-- {
		c.uvarint()
		c.span(int(c.uvarint()))
	}
}
