package vfs

import (
	"io"
	"os"
	"syscall"
)

// memFile is an open file of one process.
type memFile struct {
	m     *Mem
	n     *node
	name  string
	write bool

	// Under node.mu.
	closed bool
	seen   int64 // the last failed flush this File has reported
}

// enter takes node.mu for a call of a living process on an open file.
func (f *memFile) enter(op string) error {
	f.n.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = os.ErrClosed
	case f.m.dead.Load():
		err = ErrDead
	default:
		return nil
	}
	f.n.mu.Unlock()
	return pathErr(op, f.name, err)
}

func (f *memFile) Close() error {
	d := f.m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.enter("close"); err != nil {
		return err
	}
	f.closed = true
	f.n.mu.Unlock()
	f.n.refs--
	d.free(f.n)
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.enter("read"); err != nil {
		return 0, err
	}
	defer f.n.mu.Unlock()
	switch {
	case off < 0:
		return 0, pathErr("read", f.name, syscall.EINVAL)
	case len(p) == 0:
		return 0, nil
	case f.n.dir:
		return 0, pathErr("read", f.name, syscall.EISDIR)
	case off >= f.n.data.size:
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), f.n.data.size-off))
	f.n.data.read(p[:n], off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.n.mu.Unlock()
	return f.put(p, off)
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (n int, err error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.n.mu.Unlock()
	if off < 0 {
		return 0, pathErr("write", f.name, syscall.EINVAL)
	}
	for _, b := range bufs {
		k, err := f.put(b, off+int64(n))
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// put writes under node.mu: into the content, and into every mapping, where a reader that was not told of the bytes by
// their publication meets the race detector.
func (f *memFile) put(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, pathErr("write", f.name, syscall.EINVAL)
	case len(p) == 0:
		return 0, nil
	case !f.write:
		return 0, pathErr("write", f.name, syscall.EBADF)
	}
	n := f.n.data.write(&f.m.d.space, p, off)
	if n > 0 {
		f.n.data.grow(off + int64(n))
		for r := range f.n.maps {
			if off < int64(len(r.b)) {
				copy(r.b[off:], p[:n])
			}
		}
	}
	if n < len(p) {
		return n, pathErr("write", f.name, syscall.ENOSPC)
	}
	return n, nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.enter("stat"); err != nil {
		return 0, err
	}
	defer f.n.mu.Unlock()
	return f.n.data.size, nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	defer f.n.mu.Unlock()
	if size < 0 || !f.write {
		return pathErr("truncate", f.name, syscall.EINVAL)
	}
	f.n.truncate(&f.m.d.space, size)
	return nil
}

// truncate sets the length; under mu.
func (n *node) truncate(s *space, size int64) {
	n.data.resize(s, size, n.zeroMaps)
}

func (n *node) zeroMaps(off, length int64) {
	for r := range n.maps {
		if lo := min(off, int64(len(r.b))); lo < int64(len(r.b)) {
			clear(r.b[lo:min(off+length, int64(len(r.b)))])
		}
	}
}

func (f *memFile) Allocate(size int64) error {
	if err := f.enter("allocate"); err != nil {
		return err
	}
	defer f.n.mu.Unlock()
	switch {
	case size == 0:
		return nil
	case size < 0:
		return pathErr("allocate", f.name, syscall.EINVAL)
	case !f.write:
		return pathErr("allocate", f.name, syscall.EBADF)
	case !f.n.data.allocate(&f.m.d.space, size):
		return pathErr("allocate", f.name, syscall.ENOSPC)
	}
	return nil
}

// StartWriteback changes nothing: what it promises is nothing, and Crash lets unsynced sectors survive anyway.
func (f *memFile) StartWriteback(off, n int64) error {
	if err := f.enter("writeback"); err != nil {
		return err
	}
	defer f.n.mu.Unlock()
	if n != 0 && !f.n.dir && (off < 0 || n < 0) {
		return pathErr("writeback", f.name, syscall.EINVAL)
	}
	return nil
}

func (f *memFile) Datasync() error {
	d := f.m.d
	if f.n.dir { // files take no lock but their own, so that the race detector sees as much as it can
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.n.mu.Unlock()
	f.n.flush(d.faults.hit(f.name))
	if f.seen != f.n.errSeq {
		f.seen, f.n.errKnown = f.n.errSeq, true
		return pathErr("sync", f.name, f.n.err)
	}
	if f.n.dir {
		d.syncDir(f.n)
	}
	return nil
}

// failSync is a flush that fails above Mem (Inject): the disk is not asked, the pages become clean all the same.
func (f *memFile) failSync(err error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if !f.closed && !f.m.dead.Load() {
		f.n.lose(err)
		f.seen, f.n.errKnown = f.n.errSeq, true // Inject returns it
	}
}

func (f *memFile) Uncache(off, n int64) error {
	if err := f.enter("uncache"); err != nil {
		return err
	}
	defer f.n.mu.Unlock()
	if off < 0 || n < 0 {
		return pathErr("uncache", f.name, syscall.EINVAL)
	}
	end := f.n.data.size
	if n > 0 {
		end = min(off+n, end)
	}
	off &^= pageSize - 1
	if off >= end {
		return nil
	}
	end = (end + pageSize - 1) &^ (pageSize - 1)
	for r := range f.n.maps {
		if off < int64(len(r.b)) {
			return pathErr("uncache", f.name, ErrCached)
		}
	}
	if !f.n.data.uncache(off, end) {
		return pathErr("uncache", f.name, ErrCached)
	}
	return nil
}
