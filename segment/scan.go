package segment

import (
	"errors"
	"hash/crc32"
	"io"

	"sekali/batch"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crcFrom is where the bytes under the checksum begin.
const crcFrom = 21

// Reader walks the batches of a .log file with buffered preads and checks each: length, magic, base offset, leader
// epoch, checksum. Base offset, length and leader epoch lie outside the checksum, so their order counts as much.
// Memory is bounded by scanLen and the largest whole batch; a length that lies is found out before memory is taken for
// it. One goroutine uses it.
type Reader struct {
	Next  int64 // base offset expected next
	Epoch int32 // lowest leader epoch that may follow
	Holes int64 // up to this base offset compaction may have left holes: one above Next will do; 0: nowhere
	Pos   int64 // position of the batch Read returns next

	f     io.ReaderAt
	base  int64
	size  int64
	buf   []byte // holds the file's [at, at+n)
	at    int64
	n     int
	large []byte
}

// NewReader returns a reader over the size bytes of f, a segment that begins at offset base. It starts at position 0
// and expects base; the fields may be set before the first Read.
func NewReader(f io.ReaderAt, base, size int64) *Reader {
	return &Reader{Next: base, f: f, base: base, size: size, buf: make([]byte, min(scanLen, max(size, batch.HeaderLen)))}
}

// Read returns the next batch, valid until the next call, and moves behind it. io.EOF: the file ends on a batch
// border. ErrShort, ErrLength, ErrMagic, ErrBase, ErrEpoch, ErrDelta and ErrChecksum tell why there is no batch at
// Pos; any other error is the file system's.
func (r *Reader) Read() (batch.View, error) {
	room := r.size - r.Pos
	if room == 0 {
		return nil, io.EOF
	}
	if room < batch.HeaderLen {
		return nil, ErrShort
	}
	head, err := r.bytes(r.Pos, batch.HeaderLen)
	if err != nil {
		return nil, err
	}
	v := batch.View(head)
	if err := sound(v, r.base, room); err != nil {
		return nil, err
	}
	switch {
	case v.BaseOffset() < r.Next, v.BaseOffset() > max(r.Next, r.Holes):
		return nil, ErrBase
	case v.LeaderEpoch() < r.Epoch:
		return nil, ErrEpoch
	}
	if v, err = r.whole(r.Pos, v); err != nil {
		return nil, err
	}
	r.Next, r.Epoch = v.LastOffset()+1, v.LeaderEpoch()
	r.Pos += int64(len(v))
	return v, nil
}

// whole returns the batch whose sound header is v, once its checksum agrees.
func (r *Reader) whole(pos int64, v batch.View) (batch.View, error) {
	n := length(v)
	if n <= int64(len(r.buf)) {
		b, err := r.bytes(pos, int(n))
		if err != nil {
			return nil, err
		}
		v = batch.View(b)
		if crc32.Checksum(v[crcFrom:], castagnoli) != v.CRC() {
			return nil, ErrChecksum
		}
		return v, nil
	}
	if ok, err := r.sumsUp(pos, n, v.CRC()); err != nil {
		return nil, err
	} else if !ok {
		return nil, ErrChecksum
	}
	if int64(cap(r.large)) < n {
		r.large = make([]byte, n)
	}
	b := r.large[:n:n]
	if err := readFull(r.f, b, pos); err != nil {
		return nil, err
	}
	return batch.View(b), nil
}

// sumsUp computes the checksum of the batch [pos, pos+n) piece by piece.
func (r *Reader) sumsUp(pos, n int64, want uint32) (bool, error) {
	sum := uint32(0)
	for from, to := pos+crcFrom, pos+n; from < to; {
		b, err := r.bytes(from, int(min(to-from, int64(len(r.buf)))))
		if err != nil {
			return false, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		from += int64(len(b))
	}
	return sum == want, nil
}

// bytes returns n bytes at pos, which lie in the file, from the buffer; n is at most the buffer's length.
func (r *Reader) bytes(pos int64, n int) ([]byte, error) {
	if pos < r.at || pos+int64(n) > r.at+int64(r.n) {
		kept := 0
		if pos >= r.at && pos < r.at+int64(r.n) {
			kept = copy(r.buf, r.buf[pos-r.at:r.n])
		}
		r.at, r.n = pos, kept
		want := int(min(int64(len(r.buf)), r.size-pos))
		if err := readFull(r.f, r.buf[kept:want], pos+int64(kept)); err != nil {
			r.n = 0
			return nil, err
		}
		r.n = want
	}
	i := pos - r.at
	return r.buf[i : i+int64(n) : i+int64(n)], nil
}

// readFull fills p from pos; a file that ends before is ErrShort.
func readFull(f io.ReaderAt, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return ErrShort
	}
	return err
}

// isReason tells a statement about the bytes from a failure to read them.
func isReason(err error) bool {
	for _, r := range []error{ErrShort, ErrLength, ErrMagic, ErrBase, ErrEpoch, ErrDelta, ErrChecksum} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}
