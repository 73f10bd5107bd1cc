package vfs

import (
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Mem is a file system in memory that knows what would survive a power loss; the package comment has its model. It
// is one process's view of a simulated disk: Kill and Crash end that process and return the view of the next one,
// and every later call through the old one, its files included, fails with ErrDead. Methods may be called from any
// goroutine.
type Mem struct {
	d     *disk
	dead  atomic.Bool
	locks map[string]bool // held lock files; under disk.mu
}

// disk is what processes share: names under mu, the content of each node under its own lock. Order: mu, then node.mu.
type disk struct {
	mu      sync.Mutex
	kind    string
	root    *node
	lastIno uint64
	orphans []*node // without a name, kept while open, mapped, or still there after a crash
	durable tree    // entries as they are on the disk
	pending []dirOp // changes of entries not yet there, in order
	faults  syncFaults
	space   space
}

// node is a file or a directory.
type node struct {
	ino uint64
	dir bool

	// Under disk.mu.
	parent  *node // nil without a name
	name    string
	entries map[string]*node
	refs    int // open Files

	mu       sync.Mutex
	data     content
	maps     map[*region]struct{}
	errSeq   int64 // failed flushes
	err      error // of the last of them
	errKnown bool  // some File has reported it
}

// NewMem makes an empty disk of unlimited size with the root directory "/". Relative names start there too.
func NewMem() *Mem {
	root := &node{ino: 1, dir: true, entries: map[string]*node{}}
	return &Mem{locks: map[string]bool{}, d: &disk{kind: "mem", root: root, lastIno: 1, durable: newTree(root)}}
}

// SetKind changes what Kind answers, to test what a program does on other file systems.
func (m *Mem) SetKind(kind string) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.kind = kind
}

// SetCapacity bounds the disk to so many bytes, counted in blocks of 4096 that were written or reserved; 0 lifts
// the bound. Writes and reservations beyond it fail with ENOSPC, a write after the part that found room. Removed
// files free their blocks when they are neither open nor mapped.
func (m *Mem) SetCapacity(bytes int64) { m.d.space.capacity.Store(bytes / blockSize) }

// Used is the number of bytes in written or reserved blocks.
func (m *Mem) Used() int64 { return m.d.space.used.Load() * blockSize }

// enter takes disk.mu for a call of a living process.
func (m *Mem) enter(op, name string) error {
	m.d.mu.Lock()
	if m.dead.Load() {
		m.d.mu.Unlock()
		return pathErr(op, name, ErrDead)
	}
	return nil
}

func clean(name string) string { return path.Clean("/" + name) }

// dirOf finds the directory that holds name's last element; under mu.
func (d *disk) dirOf(name string) (*node, string, error) {
	dir, base := path.Split(clean(name))
	n, err := d.find(dir)
	if err != nil {
		return nil, "", err
	}
	if !n.dir {
		return nil, "", syscall.ENOTDIR
	}
	return n, base, nil
}

// find resolves a name; under mu.
func (d *disk) find(name string) (*node, error) {
	n := d.root
	for e := range strings.SplitSeq(strings.Trim(clean(name), "/"), "/") {
		if e == "" {
			continue
		}
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[e]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// create adds a node under a name; under mu.
func (d *disk) create(dir *node, name string, isDir bool) *node {
	d.lastIno++
	n := &node{ino: d.lastIno, dir: isDir, parent: dir, name: name}
	if isDir {
		n.entries = map[string]*node{}
	}
	dir.entries[name] = n
	d.pending = append(d.pending, dirOp{kind: opLink, n: n, dir: dir, name: name})
	return n
}

// unlink takes a node's name away; under mu. What the disk still says about it decides when it is forgotten.
func (d *disk) unlink(n *node) {
	delete(n.parent.entries, n.name)
	n.parent, n.name = nil, ""
	d.orphans = append(d.orphans, n)
	d.free(n)
}

// free gives back the blocks of a node that has neither name nor user; under mu.
func (d *disk) free(n *node) {
	if n.parent != nil || n == d.root || n.refs > 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.maps) == 0 {
		d.space.give(n.data.forgetBlocks())
	}
}

// path is a node's present name; under mu.
func (n *node) path() string {
	if n.parent == nil {
		return "/"
	}
	return path.Join(n.parent.path(), n.name)
}

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int, _ os.FileMode) (File, error) {
	if badFlags(flag) {
		return nil, pathErr("open", name, syscall.EINVAL)
	}
	if err := m.enter("open", name); err != nil {
		return nil, err
	}
	defer m.d.mu.Unlock()
	n, err := m.d.open(name, flag)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	n.refs++
	f := &memFile{m: m, n: n, name: name, write: flag&os.O_RDWR != 0}
	n.mu.Lock()
	f.seen = n.errSeq
	if n.errSeq > 0 && !n.errKnown {
		f.seen-- // an error nobody has seen is told to the first who asks
	}
	if flag&os.O_TRUNC != 0 {
		n.truncate(&m.d.space, 0)
	}
	n.mu.Unlock()
	return f, nil
}

func (d *disk) open(name string, flag int) (*node, error) {
	n, err := d.find(name)
	if err == syscall.ENOENT && flag&os.O_CREATE != 0 {
		dir, base, err := d.dirOf(name)
		if err != nil {
			return nil, err
		}
		return d.create(dir, base, false), nil
	}
	switch {
	case err != nil:
		return nil, err
	case flag&os.O_EXCL != 0:
		return nil, syscall.EEXIST
	case n.dir && flag&(os.O_RDWR|os.O_CREATE) != 0:
		return nil, syscall.EISDIR
	}
	return n, nil
}

// Rename implements FS.
func (m *Mem) Rename(from, to string) error {
	if err := m.enter("rename", from); err != nil {
		return err
	}
	defer m.d.mu.Unlock()
	if err := m.d.rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (d *disk) rename(from, to string) error {
	fromDir, fromBase, err := d.dirOf(from)
	if err != nil {
		return err
	}
	toDir, toBase, err := d.dirOf(to)
	if err != nil {
		return err
	}
	if fromBase == "" || toBase == "" {
		return syscall.EBUSY // the root
	}
	n := fromDir.entries[fromBase]
	if n == nil {
		return syscall.ENOENT
	}
	old := toDir.entries[toBase]
	switch {
	case toDir.within(n):
		return syscall.EINVAL
	case old == n:
		return nil
	case old != nil && fromDir.within(old):
		return syscall.ENOTEMPTY
	case old != nil && n.dir && !old.dir:
		return syscall.ENOTDIR
	case old != nil && !n.dir && old.dir:
		return syscall.EISDIR
	case old != nil && len(old.entries) > 0:
		return syscall.ENOTEMPTY
	}
	if old != nil {
		d.unlink(old)
	}
	delete(fromDir.entries, fromBase)
	toDir.entries[toBase] = n
	n.parent, n.name = toDir, toBase
	d.pending = append(d.pending,
		dirOp{kind: opRename, n: n, dir: toDir, name: toBase, from: fromDir, fromName: fromBase})
	return nil
}

// within reports whether n is dir or lies below it.
func (n *node) within(dir *node) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	if err := m.enter("remove", name); err != nil {
		return err
	}
	defer m.d.mu.Unlock()
	n, err := m.d.find(name)
	switch {
	case err != nil:
		return pathErr("remove", name, err)
	case n == m.d.root:
		return pathErr("remove", name, syscall.EBUSY)
	case len(n.entries) > 0:
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.d.pending = append(m.d.pending, dirOp{kind: opUnlink, n: n, dir: n.parent, name: n.name})
	m.d.unlink(n)
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string, _ os.FileMode) error {
	if err := m.enter("mkdir", dir); err != nil {
		return err
	}
	defer m.d.mu.Unlock()
	n := m.d.root
	for e := range strings.SplitSeq(strings.Trim(clean(dir), "/"), "/") {
		if e == "" {
			continue
		}
		next := n.entries[e]
		if next == nil {
			next = m.d.create(n, e, true)
		}
		if !next.dir {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]string, error) {
	if err := m.enter("readdir", dir); err != nil {
		return nil, err
	}
	defer m.d.mu.Unlock()
	n, err := m.d.find(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("readdir", dir, err)
	}
	names := make([]string, 0, len(n.entries))
	for e := range n.entries {
		names = append(names, e)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	if err := m.enter("stat", name); err != nil {
		return Info{}, err
	}
	defer m.d.mu.Unlock()
	n, err := m.d.find(name)
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	if n.dir {
		return Info{IsDir: true}, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return Info{Size: n.data.size}, nil
}

// Kind implements FS: "mem", or what SetKind said.
func (m *Mem) Kind(dir string) (string, error) {
	if _, err := m.Stat(dir); err != nil {
		return "", err
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.d.kind, nil
}

// Free implements FS; a disk of unlimited size has 1 TiB more than is used.
func (m *Mem) Free(dir string) (total, usable int64, err error) {
	if _, err := m.Stat(dir); err != nil {
		return 0, 0, err
	}
	used, total := m.Used(), m.d.space.capacity.Load()*blockSize
	if total == 0 {
		total = used + 1<<40
	}
	return total, max(total-used, 0), nil
}

// LockFile implements FS. A lock ends with its process.
func (m *Mem) LockFile(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := m.enter("lock", name); err != nil {
		return nil, err
	}
	held := m.locks[clean(name)]
	m.locks[clean(name)] = true
	m.d.mu.Unlock()
	if held {
		_ = f.Close()
		return nil, &LockedError{Path: name}
	}
	return &memLock{File: f, m: m, name: clean(name)}, nil
}

type memLock struct {
	File
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	if err := l.File.Close(); err != nil {
		return err
	}
	if err := l.m.enter("unlock", l.name); err != nil {
		return err
	}
	defer l.m.d.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}
