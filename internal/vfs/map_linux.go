package vfs

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"sekali/internal/check"
)

func (f *osFile) Map(size int64) (*Mapping, error) {
	if err := f.enter("map"); err != nil {
		return nil, err
	}
	defer f.leave()
	if size <= 0 {
		return nil, pathErr("map", f.name, unix.EINVAL)
	}
	b, err := unix.Mmap(f.fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, pathErr("map", f.name, err)
	}
	return &Mapping{b: b, unmap: unmapOS, advis: willNeedOS, resid: residentOS}, nil
}

func willNeedOS(b []byte) {
	_ = unix.Madvise(b, unix.MADV_WILLNEED) // advice: without it the reader waits itself
}

func residentOS(b []byte) bool {
	absent, err := residency(b, true)
	return err == nil && !absent
}

// residency asks mincore about the pages of b, which begins on a page border. With absent it reports whether any
// page is not in memory, without whether any is. It allocates nothing.
func residency(b []byte, absent bool) (bool, error) {
	var vec [mincorePages]byte
	for len(b) > 0 {
		n := min(len(b), mincorePages*pageSize)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(n),
			uintptr(unsafe.Pointer(&vec[0])))
		if errno == unix.EAGAIN {
			continue
		}
		if errno != 0 {
			return false, errno
		}
		for _, v := range vec[:(n+pageSize-1)/pageSize] {
			if (v&1 == 0) == absent {
				return true, nil
			}
		}
		b = b[n:]
	}
	return false, nil
}

// poisoned holds the last regions unmapped under check.Costly: their addresses stay taken and unreadable for a
// while, so that a reader who came too late meets a fault and not the bytes of another file.
var poisoned struct {
	mu   sync.Mutex
	ring [poisonedMaps][]byte
	next int
}

func unmapOS(b []byte) error {
	if check.Costly {
		_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&b[0]), uintptr(len(b)), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return os.NewSyscallError("mmap", err)
		}
		poisoned.mu.Lock()
		i := poisoned.next % poisonedMaps
		b, poisoned.ring[i] = poisoned.ring[i], b
		poisoned.next++
		poisoned.mu.Unlock()
	}
	if b == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(b))
}
