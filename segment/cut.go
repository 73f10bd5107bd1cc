package segment

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"

	"sekali/batch"
	"sekali/internal/vfs"
)

// Cut tells what a recovery removed behind the end of a log. The zero Cut: nothing, or only zeros that a length ahead
// of its bytes had left.
type Cut struct {
	At             int64  // position in the file where the log ends now
	Bytes, Batches int64  // removed; whole batches among them
	Copy           string // path of <base>.cut, if any whole batch was among them
	Torn           bool   // at or above Scan.Mark: expected after a crash, removed
	Reason         error  // why the batch at At was not accepted
}

// cutAt removes what lies behind pos of f and makes that durable; before, it copies it aside if it holds whole
// batches.
func (s *Segment) cutAt(f vfs.File, pos, size int64, reason error) (Cut, error) {
	c := Cut{At: pos, Bytes: size - pos, Torn: true, Reason: reason}
	zeros, err := allZero(f, pos, size)
	if err != nil {
		return Cut{}, err
	}
	if zeros {
		c = Cut{}
	} else {
		var sure bool
		if c.Batches, sure, err = wholeBatches(f, s.id.Base, pos, size); err != nil {
			return Cut{}, err
		}
		if c.Batches > 0 || !sure {
			if err := s.copyAside(f, &c, size); err != nil {
				return Cut{}, err
			}
		}
	}
	if err := f.Truncate(pos); err != nil {
		return Cut{}, err
	}
	return c, f.Datasync()
}

// copyAside writes what is about to be cut to <base>.cut, durably; a file of an earlier cut is replaced. A disk
// without room for it does not keep the log from opening: nothing of it was ever acknowledged.
func (s *Segment) copyAside(f io.ReaderAt, c *Cut, size int64) error {
	name := path.Join(s.dir, Name(s.id.Base, CutSuffix))
	err := s.writeAside(f, c.At, size, name)
	if vfs.IsNoSpace(err) {
		c.Reason = errors.Join(c.Reason, err)
		return missingIsFine(s.o.FS.Remove(name))
	}
	if err != nil {
		return err
	}
	c.Copy = name
	return s.o.FS.SyncDir(s.dir)
}

func (s *Segment) writeAside(f io.ReaderAt, from, to int64, name string) error {
	out, err := s.o.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = pieces(f, from, to, func(at int64, b []byte) error {
		_, err := out.WriteAt(b, at-from)
		return err
	})
	if err == nil {
		err = out.Datasync()
	}
	return errors.Join(err, out.Close())
}

// pieces calls fn with the bytes [from, to) of f, a piece at a time.
func pieces(f io.ReaderAt, from, to int64, fn func(at int64, b []byte) error) error {
	buf := make([]byte, min(scanLen, max(0, to-from)))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		if err := readFull(f, b, from); err != nil {
			return err
		}
		if err := fn(from, b); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}

var errNotZero = errors.New("not zero")

func allZero(f io.ReaderAt, from, to int64) (bool, error) {
	err := pieces(f, from, to, func(_ int64, b []byte) error {
		for _, c := range b {
			if c != 0 {
				return errNotZero
			}
		}
		return nil
	})
	if errors.Is(err, errNotZero) {
		return false, nil
	}
	return err == nil, err
}

// wholeBatches counts the batches with a right checksum that lie anywhere in [from, size), at any position: behind a
// torn batch nothing tells where the next one begins. sure is false if bytes made to look like headers used up the
// effort allowed; there may be more then.
func wholeBatches(f io.ReaderAt, base, from, size int64) (n int64, sure bool, err error) {
	r := NewReader(f, base, size)
	effort := resyncFactor * (size - from)
	for pos := from; size-pos >= batch.HeaderLen; {
		pos, err = r.nextMagic(pos)
		if err != nil {
			return n, false, err
		}
		if size-pos < batch.HeaderLen {
			break
		}
		head, err := r.bytes(pos, batch.HeaderLen)
		if err != nil {
			return n, false, err
		}
		v := batch.View(head)
		if sound(v, base, size-pos) != nil {
			pos++
			continue
		}
		length := length(v)
		if effort -= length; effort < 0 {
			return n, false, nil
		}
		ok, err := r.sumsUp(pos, length, v.CRC())
		switch {
		case err != nil:
			return n, false, err
		case ok:
			n++
			pos += length
		default:
			pos++
		}
	}
	return n, true, nil
}

// nextMagic returns the first position from pos on where a header with magic 2 may begin, or one too near the end.
func (r *Reader) nextMagic(pos int64) (int64, error) {
	const magicAt = 16
	for r.size-pos >= batch.HeaderLen {
		if _, err := r.bytes(pos, batch.HeaderLen); err != nil {
			return pos, err
		}
		b := r.buf[pos-r.at : r.n]       // what is there, a header at least
		last := len(b) - batch.HeaderLen // where a header can begin
		if i := bytes.IndexByte(b[magicAt:last+magicAt+1], 2); i >= 0 {
			return pos + int64(i), nil
		}
		pos += int64(last) + 1
	}
	return pos, nil
}

// Discard removes a segment that lies behind the end of its log, after a cut in a segment before it. If it holds any
// whole batch its .log is kept as <base>.cut. The removal is durable when it returns.
func Discard(dir string, id ID, o Options) (Cut, error) {
	s := newSegment(dir, id, o)
	f, err := o.FS.OpenFile(s.path(LogSuffix), os.O_RDWR, 0)
	if err != nil {
		return Cut{}, err
	}
	c, err := s.discard(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return Cut{}, err
	}
	for _, kind := range kinds[1:] {
		if err := missingIsFine(o.FS.Remove(s.path(kind))); err != nil {
			return c, err
		}
	}
	return c, o.FS.SyncDir(dir)
}

func (s *Segment) discard(f vfs.File) (Cut, error) {
	size, err := f.Size()
	if err != nil {
		return Cut{}, err
	}
	c := Cut{Bytes: size, Torn: size > 0, Reason: ErrBase}
	whole, sure, err := wholeBatches(f, s.id.Base, 0, size)
	if err != nil {
		return Cut{}, err
	}
	c.Batches = whole
	if whole == 0 && sure {
		return c, s.o.FS.Remove(s.path(LogSuffix))
	}
	if err := f.Datasync(); err != nil {
		return Cut{}, err
	}
	c.Copy = path.Join(s.dir, Name(s.id.Base, CutSuffix))
	return c, s.o.FS.Rename(s.path(LogSuffix), c.Copy)
}
