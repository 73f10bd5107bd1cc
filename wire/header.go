package wire

import "encoding/binary"

// Header is a request header. ClientID is empty for a null one.
type Header struct {
	Key, Version int16
	Corr         int32
	ClientID     string
}

// fixedHeader is key, version, correlation id and the length of the client id.
const fixedHeader = 10

// ParseHeader reads request header v1 or, for flexible versions, v2, whose client id keeps its two-byte length. body
// aliases frame. known is the client id of an earlier request; its string is used again when the bytes are equal.
//
// ErrVersion comes with Key, Version and Corr filled, and the body nil: an ApiVersions request in a version of the
// future can still be answered (KIP-511). Any other error is ErrHeader.
func ParseHeader(frame []byte, known string) (h Header, body []byte, err error) {
	if len(frame) < fixedHeader-2 {
		return h, nil, ErrHeader
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.Corr = int32(binary.BigEndian.Uint32(frame[4:]))
	if !Served(h.Key, h.Version) {
		return h, nil, ErrVersion
	}
	c := cursor{b: frame[fixedHeader-2:]}
	id := c.short()
	switch {
	case c.bad || id < -1:
		return h, nil, ErrHeader
	case id >= 0:
		if s := c.span(int(id)); string(s) == known {
			h.ClientID = known
		} else {
			h.ClientID = string(s)
		}
	}
	if Flexible(h.Key, h.Version) {
		c.left = elementsMax
		c.tags()
	}
	if c.bad {
		return h, nil, ErrHeader
	}
	return h, c.b, nil
}

// appendHeader begins an answer: room for the length, the correlation id, and the empty tag section of response header
// v1. ApiVersions always keeps response header v0, so that a client can read the answer before it knows our versions.
func appendHeader(dst []byte, h Header) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Corr))
	if h.Key != KeyApiVersions && Flexible(h.Key, h.Version) {
		dst = append(dst, 0)
	}
	return dst
}
