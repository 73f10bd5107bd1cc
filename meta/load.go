package meta

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"

	"sekali/internal/vfs"
)

// Names of the files of the local store, at the top of the data directory.
const (
	LogName      = "sekali.meta"
	SnapshotName = "sekali.meta.snapshot"
	tmpSuffix    = ".tmp"
)

// load reads both files, cuts a torn last record, and syncs: what a killed process left in the page cache is durable
// before anybody sees it (the rule of I7 for metadata).
func (s *local) load() error {
	for _, p := range []string{s.logPath() + tmpSuffix, s.snapPath() + tmpSuffix} {
		if err := s.fs.Remove(p); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("meta: %w", err)
		}
	}
	state, rev, err := s.loadSnapshot()
	if err != nil {
		return err
	}
	raw, found, err := s.readLog()
	if err != nil {
		return err
	}
	if !found {
		if state != nil {
			return errNoLog(s.logPath())
		}
		return s.create()
	}
	log, err := DecodeLog(s.logPath(), raw)
	if err != nil {
		return err
	}
	return s.replay(state, rev, log, int64(len(raw)))
}

// replay builds the state from snapshot and log, and opens the log for writing.
func (s *local) replay(state *State, rev Rev, log Log, size int64) error {
	if state == nil {
		state = &State{}
	}
	state, rev, err := log.over(state, rev)
	if err != nil {
		return &CorruptError{Path: s.snapPath(), Err: err}
	}
	if err := s.openLog(log.End, size); err != nil {
		return err
	}
	s.cur.Store(&version{state: state, rev: rev})
	if log.last() == rev {
		s.hist = newHistory(log.Base, log.Changes)
		s.plan()
		return nil
	}
	// The log lost a tail that the snapshot covers; revisions must not have a gap, so a new log begins.
	s.hist = newHistory(rev, nil)
	if err := s.swapLog(rev); err != nil {
		return errors.Join(err, s.f.Close())
	}
	return nil
}

// readLog reads the log from the disk, not from the page cache: after a failed flush the cache may hold bytes that
// the disk does not, and a second flush would not write them (I15). Where pages cannot be dropped, a synced copy of
// what can be read takes the file's place.
func (s *local) readLog() (raw []byte, found bool, err error) {
	f, err := s.fs.OpenFile(s.logPath(), os.O_RDWR, 0)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("meta: %w", err)
	}
	if err = f.Datasync(); err == nil {
		err = f.Uncache(0, 0)
	}
	cached := errors.Is(err, vfs.ErrCached)
	if cached {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, false, fmt.Errorf("meta: opening %s: %w", s.logPath(), err)
	}
	raw, found, err = readFile(s.fs, s.logPath())
	if err != nil || !cached {
		return raw, found, err
	}
	if err = vfs.WriteFileAtomic(s.fs, s.dir, LogName, raw); err != nil {
		return nil, false, fmt.Errorf("meta: copying %s: %w", s.logPath(), err)
	}
	return raw, found, nil
}

func (s *local) loadSnapshot() (*State, Rev, error) {
	raw, found, err := readFile(s.fs, s.snapPath())
	if err != nil || !found {
		return nil, 0, err
	}
	state, rev, err := DecodeSnapshot(s.snapPath(), raw)
	if err != nil {
		return nil, 0, err
	}
	s.snapLen = int64(len(raw))
	return state, rev, nil
}

// openLog opens the log for writing, cuts it at end and syncs file and directory.
func (s *local) openLog(end, size int64) error {
	f, err := s.fs.OpenFile(s.logPath(), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	if end < size {
		err = f.Truncate(end)
	}
	if err == nil {
		err = f.Datasync()
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("meta: opening %s: %w", s.logPath(), err), f.Close())
	}
	s.f, s.size = f, end
	s.reserve()
	return nil
}

func (s *local) create() error {
	s.cur.Store(&version{state: &State{}})
	s.hist = newHistory(0, nil)
	return s.swapLog(0)
}

// swapLog puts an empty log that begins after base in the place of the one there is. An error that wraps errNoRoom
// says that nothing happened; after any other error the old log, if there is one, may be gone from the directory,
// and nothing may be written to it.
func (s *local) swapLog(base Rev) error {
	head := appendLogHeader(nil, base)
	tmp := s.logPath() + tmpSuffix
	f, err := writeFile(s.fs, tmp, head)
	if err != nil {
		return err
	}
	if err = s.fs.Rename(tmp, s.logPath()); err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("meta: replacing %s: %w", s.logPath(), err), f.Close())
	}
	old := s.f
	s.f, s.size = f, int64(len(head))
	s.reserve()
	s.plan()
	if old != nil {
		return old.Close()
	}
	return nil
}

// writeFile creates path with the content b, synced, and leaves it open.
func writeFile(fs vfs.FS, path string, b []byte) (vfs.File, error) {
	f, err := fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, writeError(path, err)
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Datasync()
	}
	if err != nil {
		return nil, errors.Join(writeError(path, err), f.Close())
	}
	return f, nil
}

func writeError(path string, err error) error {
	if vfs.IsNoSpace(err) {
		err = fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return fmt.Errorf("meta: writing %s: %w", path, err)
}

// readFile is false for a file that does not exist.
func readFile(fs vfs.FS, name string) (b []byte, found bool, err error) {
	b, err = vfs.ReadFile(fs, name)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("meta: reading %s: %w", name, err)
	}
	return b, true, nil
}
