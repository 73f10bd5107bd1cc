package vfs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// region is the memory of one mapping. Writes go into the content and into the regions of all mappings of the file.
// Up to heapMapMax bytes a region is a slice of the Go heap, so the race detector sees writers and readers meet in
// it; a larger one is anonymous memory of the kernel, which costs what is touched and nothing else, and which the
// detector ignores.
type region struct{ b []byte }

func (f *memFile) Map(size int64) (*Mapping, error) {
	if err := f.enter("map"); err != nil {
		return nil, err
	}
	n := f.n
	defer n.mu.Unlock()
	switch {
	case size <= 0:
		return nil, pathErr("map", f.name, syscall.EINVAL)
	case n.dir:
		return nil, pathErr("map", f.name, syscall.ENODEV)
	}
	r := &region{}
	if size <= heapMapMax {
		r.b = make([]byte, size)
	} else {
		b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			return nil, pathErr("map", f.name, err)
		}
		r.b = b
	}
	for k, p := range n.data.pieces {
		if at := k * pieceSize; at < size {
			copy(r.b[at:], p.cur[:])
		}
	}
	if n.maps == nil {
		n.maps = map[*region]struct{}{}
	}
	n.maps[r] = struct{}{}
	d := f.m.d
	return &Mapping{b: r.b, unmap: func([]byte) error { return d.unmap(n, r) }}, nil
}

// unmap forgets a region and makes its bytes unusable: heap memory is overwritten, so that a reader who came too late
// finds nonsense, and the race detector if it is on; kernel memory is given back or made unreadable.
func (d *disk) unmap(n *node, r *region) error {
	d.mu.Lock()
	n.mu.Lock()
	delete(n.maps, r)
	size := n.data.size
	n.mu.Unlock()
	d.free(n)
	d.mu.Unlock()
	if len(r.b) > heapMapMax {
		return unmapOS(r.b)
	}
	b := r.b[:min(size, int64(len(r.b)))]
	for i := range b {
		b[i] = poison
	}
	return nil
}

const poison = 0xDB
