package vfs

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// osFile is one descriptor. Every call holds a reference while it uses the number, and the last one out closes it,
// so a Close beside a running call can never let that call hit another file that got the same number.
type osFile struct {
	refs atomic.Int64 // calls in progress, and closing
	fd   int
	name string
	dir  bool
}

const closing = 1 << 62

func (f *osFile) enter(op string) error {
	for {
		n := f.refs.Load()
		if n&closing != 0 {
			return pathErr(op, f.name, os.ErrClosed)
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (f *osFile) leave() {
	if f.refs.Add(-1) == closing {
		_ = unix.Close(f.fd) // whoever needs durability has had it from Datasync
	}
}

func (f *osFile) Close() error {
	for {
		n := f.refs.Load()
		if n&closing != 0 {
			return pathErr("close", f.name, os.ErrClosed)
		}
		if !f.refs.CompareAndSwap(n, n|closing) {
			continue
		}
		if n != 0 {
			return nil
		}
		if err := unix.Close(f.fd); err != nil && err != unix.EINTR {
			return pathErr("close", f.name, err)
		}
		return nil
	}
}

func (f *osFile) ReadAt(p []byte, off int64) (n int, err error) {
	if err := f.enter("read"); err != nil {
		return 0, err
	}
	defer f.leave()
	if off < 0 {
		return 0, pathErr("read", f.name, unix.EINVAL)
	}
	for len(p) > 0 {
		k, err := unix.Pread(f.fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, pathErr("read", f.name, err)
		}
		if k == 0 {
			return n, io.EOF
		}
		n, p, off = n+k, p[k:], off+int64(k)
	}
	return n, nil
}

func (f *osFile) WriteAt(p []byte, off int64) (n int, err error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.leave()
	if off < 0 {
		return 0, pathErr("write", f.name, unix.EINVAL)
	}
	for len(p) > 0 {
		k, err := unix.Pwrite(f.fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, pathErr("write", f.name, err)
		}
		if k == 0 {
			return n, pathErr("write", f.name, io.ErrShortWrite)
		}
		n, p, off = n+k, p[k:], off+int64(k)
	}
	return n, nil
}

func (f *osFile) Size() (int64, error) {
	if err := f.enter("stat"); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.size()
}

func (f *osFile) size() (int64, error) {
	if f.dir {
		return 0, nil
	}
	var st unix.Stat_t
	for {
		err := unix.Fstat(f.fd, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, pathErr("stat", f.name, err)
		}
		return st.Size, nil
	}
}

func (f *osFile) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	defer f.leave()
	if err := retry(func() error { return unix.Ftruncate(f.fd, size) }); err != nil {
		return pathErr("truncate", f.name, err)
	}
	return nil
}

func (f *osFile) Allocate(size int64) error {
	if err := f.enter("allocate"); err != nil {
		return err
	}
	defer f.leave()
	if size == 0 {
		return nil
	}
	err := retry(func() error { return unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if err != nil && err != unix.EOPNOTSUPP && err != unix.ENOSYS {
		return pathErr("allocate", f.name, err)
	}
	return nil
}

func (f *osFile) StartWriteback(off, n int64) error {
	if err := f.enter("writeback"); err != nil {
		return err
	}
	defer f.leave()
	if n == 0 || f.dir { // the call takes 0 for "to the end"
		return nil
	}
	for {
		err := unix.SyncFileRange(f.fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
		switch err {
		case unix.EINTR:
			continue
		case nil, unix.ENOSYS, unix.ESPIPE:
			return nil
		}
		return pathErr("writeback", f.name, err)
	}
}

func (f *osFile) Datasync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.leave()
	for {
		var err error
		if f.dir {
			err = unix.Fsync(f.fd)
		} else {
			err = unix.Fdatasync(f.fd)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return pathErr("sync", f.name, err)
		}
		return nil
	}
}

func (f *osFile) Uncache(off, n int64) error {
	if err := f.enter("uncache"); err != nil {
		return err
	}
	defer f.leave()
	size, err := f.size()
	if err != nil {
		return err
	}
	if off < 0 || n < 0 {
		return pathErr("uncache", f.name, unix.EINVAL)
	}
	end := size
	if n > 0 {
		end = min(off+n, size)
	}
	from := off &^ (pageSize - 1)
	if from >= end {
		return nil
	}
	end = (end + pageSize - 1) &^ (pageSize - 1) // a page counts only if the range covers all of it
	for range uncacheTries {
		advise := func() error { return unix.Fadvise(f.fd, from, end-from, unix.FADV_DONTNEED) }
		if err := retry(advise); err != nil {
			return pathErr("uncache", f.name, err)
		}
		cached, err := anyCached(f.fd, from, end-from)
		if err != nil {
			return pathErr("uncache", f.name, err)
		}
		if !cached {
			return nil
		}
	}
	return pathErr("uncache", f.name, ErrCached)
}

// anyCached maps a range without touching it and asks for its pages.
func anyCached(fd int, off, n int64) (bool, error) {
	b, err := unix.Mmap(fd, off, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false, err
	}
	cached, err := residency(b, false)
	return cached, errors.Join(err, unix.Munmap(b))
}
