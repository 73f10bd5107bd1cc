package wire

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Decode makes the request of a body that ParseHeader returned for h. Every length and count is held against the
// bytes that are there before anything is allocated, and together they list at most 65,536 elements. The records of a
// Produce alias body and live no longer than it; all else is copied. Bytes behind a whole request are ignored, as
// Kafka does.
//
// The error is ErrBody, or ErrVersion for what is not served.
func Decode(h Header, body []byte) (kmsg.Request, error) {
	a := lookup(h.Key)
	if a == nil || !Served(h.Key, h.Version) {
		return nil, ErrVersion
	}
	c := cursor{b: body, flexible: h.Version >= a.flexible, version: h.Version, left: elementsMax}
	if h.Key == KeyProduce {
		return c.produce()
	}
	c.walk(a.fields)
	if c.bad {
		return nil, ErrBody
	}
	switch h.Key {
	case KeyJoinGroup, KeySyncGroup, KeyAlterUserScram, KeySASLAuthenticate:
		// kmsg copies strings and lets byte slices alias what it reads. These have some, and outlive the body.
		body = bytes.Clone(body)
	}
	r := kmsg.RequestForKey(h.Key)
	r.SetVersion(h.Version)
	if err := r.ReadFrom(body); err != nil {
		return nil, ErrBody
	}
	return r, nil
}
