package batch

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipMin is the size of the header and trailer of a gzip member: what is no longer is no member.
const gzipMin = 18

// gzipSource reads one or several members (RFC 1952). As Kafka's reader does, it takes bytes behind the last member
// that do not begin another one for padding.
type gzipSource struct {
	in bytes.Reader // a ByteReader, so that the inflater takes no byte too many
	z  gzip.Reader
}

func (g *gzipSource) reset(p []byte) error {
	g.in.Reset(p)
	if g.member() != nil {
		return ErrDecode
	}
	return nil
}

func (g *gzipSource) member() error {
	err := g.z.Reset(&g.in)
	g.z.Multistream(false)
	return err
}

func (g *gzipSource) read(d []byte) (int, error) {
	for {
		n, err := g.z.Read(d)
		switch {
		case n > 0 && (err == nil || err == io.EOF):
			return n, nil // an end is told again by the next read
		case err == io.EOF:
			if g.in.Len() <= gzipMin || g.member() != nil {
				return 0, io.EOF
			}
		case err != nil:
			return 0, ErrDecode
		default:
			return 0, nil
		}
	}
}

func (g *gzipSource) release() { g.in.Reset(nil) }
