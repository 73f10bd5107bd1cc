package vfs

import (
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"sekali/internal/check"
)

// FailSync makes the disk fail: of the flushes of files and directories whose path or last element matches, the nth
// from now on (1: the next; 0: every one) returns err, whoever asked for it (Datasync, SyncDir or SyncAll). What
// the kernel does then is done: the dirty pages become clean, stay readable until Uncache, and are not on the disk;
// each File that is open reports the error once; later flushes succeed without having written those pages. match is
// a pattern of path.Match, "" matches all. The fault stays with the disk over Kill, until remove.
func (m *Mem) FailSync(match string, nth int, err error) (remove func()) {
	f := &syncFault{match: match, nth: nth, err: err}
	m.d.faults.mu.Lock()
	defer m.d.faults.mu.Unlock()
	m.d.faults.all = append(m.d.faults.all, f)
	m.d.faults.some.Store(true)
	return func() {
		m.d.faults.mu.Lock()
		defer m.d.faults.mu.Unlock()
		m.d.faults.all = slices.DeleteFunc(m.d.faults.all, func(g *syncFault) bool { return f == g })
	}
}

type syncFault struct {
	match string
	nth   int
	hits  int
	err   error
}

type syncFaults struct {
	some atomic.Bool // spares a healthy disk the lock, and the race detector the order it would make
	mu   sync.Mutex
	all  []*syncFault
}

// hit counts a flush of a file and returns the error it is to fail with.
func (s *syncFaults) hit(name string) (err error) {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		if !matches(f.match, name) {
			continue
		}
		f.hits++
		if f.nth == 0 || f.nth == f.hits {
			err = f.err
		}
	}
	return err
}

// matches reports whether a pattern fits a path or its last element.
func matches(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	whole, err := path.Match(pattern, name)
	check.NoError(err, "vfs: pattern "+pattern)
	base, err := path.Match(pattern, path.Base(name))
	check.NoError(err, "vfs: pattern "+pattern)
	return whole || base
}

// flush writes a node's content, or fails with err; under mu.
func (n *node) flush(err error) {
	if err != nil {
		n.lose(err)
		return
	}
	n.data.sync()
}

// lose is a failed flush; under mu.
func (n *node) lose(err error) {
	n.data.lose()
	n.errSeq++
	n.err, n.errKnown = err, false
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	f, err := m.OpenFile(dir, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDirFile(f, dir)
}

// SyncAll implements FS: the whole of Mem is one file system. After an error every file that was not concerned is
// durable, and directories are unless one of them was.
func (m *Mem) SyncAll(dir string) error {
	if _, err := m.Stat(dir); err != nil {
		return err
	}
	if err := m.enter("syncfs", dir); err != nil {
		return err
	}
	defer m.d.mu.Unlock()
	var failed error
	entries := true
	for _, n := range m.d.nodes() {
		err := m.d.faults.hit(n.path())
		n.mu.Lock()
		n.flush(err)
		n.mu.Unlock()
		if err != nil {
			failed = err
			entries = entries && !n.dir
		}
	}
	if entries {
		m.d.syncDir(nil)
	}
	if failed != nil {
		return pathErr("syncfs", dir, failed)
	}
	return nil
}
