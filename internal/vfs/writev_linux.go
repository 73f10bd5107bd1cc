package vfs

import (
	"io"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovecs are kept for reuse, so that gathering a write allocates nothing.
var iovecs = sync.Pool{New: func() any { return new([iovMax]unix.Iovec) }}

func (f *osFile) WritevAt(bufs [][]byte, off int64) (n int, err error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.leave()
	if off < 0 {
		return 0, pathErr("write", f.name, unix.EINVAL)
	}
	vec := iovecs.Get().(*[iovMax]unix.Iovec)
	defer iovecs.Put(vec)
	skip := 0 // bytes of bufs[0] that are written already
	for {
		count, next, bytes := gather(vec, bufs, skip)
		if count == 0 {
			return n, nil
		}
		k, errno := pwritev(f.fd, vec[:count], off)
		runtime.KeepAlive(bufs)
		clear(vec[:count])
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return n, pathErr("write", f.name, errno)
		}
		if k == 0 {
			return n, pathErr("write", f.name, io.ErrShortWrite)
		}
		n, off = n+k, off+int64(k)
		if k == bytes {
			bufs, skip = bufs[next:], 0
			continue
		}
		for skip += k; skip >= len(bufs[0]); bufs = bufs[1:] { // a short write: go on behind it
			skip -= len(bufs[0])
		}
	}
}

// gather fills vec from bufs, leaving out skip bytes of the first piece and empty pieces. next is the first piece that
// found no room, bytes the sum of those that did.
func gather(vec *[iovMax]unix.Iovec, bufs [][]byte, skip int) (count, next, bytes int) {
	for i, b := range bufs {
		b = b[skip:]
		skip = 0
		if len(b) == 0 {
			continue
		}
		if count == iovMax || bytes+len(b) > writevBytesMax && count > 0 {
			return count, i, bytes
		}
		vec[count].Base = unsafe.SliceData(b)
		vec[count].SetLen(len(b))
		count++
		bytes += len(b)
	}
	return count, len(bufs), bytes
}

// pwritev is the bare system call: the wrapper of x/sys allocates its vector.
func pwritev(fd int, vec []unix.Iovec, off int64) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_PWRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vec[0])), uintptr(len(vec)),
		uintptr(off), 0, 0) // the high word of the offset is unused where a word has 64 bits
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
