package vfs

import (
	"io"
	"os"
)

// FS is one file system, or a wrapper around one. Any method may be called from any goroutine and overlap any other.
// Names are slash separated paths. Errors wrap the errno: errors.Is works with fs.ErrNotExist, fs.ErrExist and with
// syscall.ENOSPC and its like; they name operation and path.
type FS interface {
	// OpenFile opens or creates a file for reading (os.O_RDONLY) or both (os.O_RDWR), with os.O_CREATE, os.O_EXCL and
	// os.O_TRUNC as they are known; os.O_APPEND and os.O_WRONLY are refused with EINVAL. A directory can be opened
	// read-only: its Datasync is what SyncDir does. A new file's entry is durable only after a sync of its directory.
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	// Rename moves a file or directory, atomically replacing a file, or an empty directory, at the target. Durable after
	// a sync of the target's directory (and of the source's, where it is another one).
	Rename(from, to string) error
	// Remove unlinks a file or an empty directory. Open files and mappings stay usable.
	Remove(name string) error
	// MkdirAll makes a directory and the missing ones above it; no error if it exists. Not durable by itself.
	MkdirAll(dir string, perm os.FileMode) error
	// ReadDir lists the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// Stat follows symbolic links.
	Stat(name string) (Info, error)
	// SyncDir makes all earlier changes of entries of dir durable, not the files' contents.
	SyncDir(dir string) error
	// SyncAll makes everything durable that was written to the file system that holds dir (syncfs). An error does not
	// say whose file it was; a file concerned still reports it at its own next Datasync.
	SyncAll(dir string) error
	// Kind names the file system that holds dir: "ext4", "xfs", "btrfs", "overlay", "tmpfs", "nfs", "fuse", ..., "mem",
	// or its magic number in hex.
	Kind(dir string) (string, error)
	// Free is the size of the file system that holds dir and what an ordinary user can still write there, in bytes.
	Free(dir string) (total, usable int64, err error)
	// LockFile makes the file if it is missing and takes an exclusive lock on it that lasts until Close or the end of
	// the process. Held by another: an error that is ErrLocked.
	LockFile(name string) (io.Closer, error)
}

// Info is what Stat tells. Size is in bytes, 0 for a directory. There is no modification time on purpose: mapped and
// copied files make it unreliable.
type Info struct {
	Size  int64
	IsDir bool
}

// File is an open file. Writes (WriteAt, WritevAt, Truncate, Allocate) never overlap each other, the caller sees to
// that; everything else may overlap everything. Datasync covers the writes that returned before it began. Close may
// overlap other calls; calls after it fail with fs.ErrClosed. Offsets and lengths are in bytes.
//
// WriteAt and WritevAt return how many bytes were written even with an error: a full disk shows as ENOSPC (see
// IsNoSpace), usually after a part. ReadAt returns io.EOF when it meets the end of the file.
//
// A directory opened read-only is a File too: its Datasync is an fsync of the directory, reads and writes fail.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WritevAt writes the pieces one behind the other, with one pwritev per 1024 pieces. bufs is not changed.
	WritevAt(bufs [][]byte, off int64) (int, error)
	Size() (int64, error)
	// Truncate sets the length; bytes added read as zero. Blocks reserved behind the new length are given back.
	Truncate(size int64) error
	// Allocate reserves blocks for the first size bytes without changing the length. Where the file system cannot, it
	// does nothing and returns nil, so a later write can still meet ENOSPC.
	Allocate(size int64) error
	// StartWriteback begins to write the dirty pages of a range and does not wait. It promises nothing.
	StartWriteback(off, n int64) error
	// Datasync makes content and length durable. An error is final (I15): what was not durable before may be lost
	// although it can still be read, and a second Datasync may succeed without having written it.
	Datasync() error
	// Uncache drops the cached pages of the range (n = 0: to the end), so that the next read comes from the disk. An
	// error that is ErrCached: some page is dirty, mapped or in use and stays.
	Uncache(off, n int64) error
	// Map maps the first size bytes read-only and shared; size may lie above the length, the bytes are there once
	// written. The mapping outlives Close.
	Map(size int64) (*Mapping, error)
}

// Mapping is a read-only shared mapping. Its owner is who called Map: only the owner calls Unmap, once, when nobody
// uses slices of Bytes any more (pins, I2). The other methods may be called from any goroutine until then. Bytes
// behind the end of the file must not be touched: that is SIGBUS on a disk.
type Mapping struct {
	b     []byte
	unmap func(b []byte) error
	advis func(b []byte)      // nil: nothing to advise
	resid func(b []byte) bool // nil: always resident
}

// Bytes is the whole mapping, Map's size long. Writers of the file show through; who reads below a published end,
// loaded after it was stored, sees frozen bytes.
func (m *Mapping) Bytes() []byte { return m.b }

// WillNeed starts read-ahead of a range without waiting for it.
func (m *Mapping) WillNeed(off, n int64) {
	if b := m.pages(off, n); len(b) > 0 && m.advis != nil {
		m.advis(b)
	}
}

// Resident reports whether a range can be read without waiting for the disk, as far as can be told. The answer may be
// stale when it arrives.
func (m *Mapping) Resident(off, n int64) bool {
	b := m.pages(off, n)
	return len(b) == 0 || m.resid == nil || m.resid(b)
}

// Unmap ends the mapping; slices of Bytes are invalid from here on. Mem, and the machine's file system under
// check.Costly, make a use after it visible. A second call returns fs.ErrClosed.
func (m *Mapping) Unmap() error {
	if m.b == nil {
		return os.ErrClosed
	}
	b := m.b
	m.b = nil
	return m.unmap(b)
}

// pages is the part of the mapping that covers the range, beginning on a page border.
func (m *Mapping) pages(off, n int64) []byte {
	size := int64(len(m.b))
	from := min(max(off, 0), size) &^ (pageSize - 1)
	to := min(max(off+n, from), size)
	return m.b[from:to]
}

// pageSize is the kernel's; cache operations are rounded to it.
const pageSize = 4096
