package store

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"

	"sekali/internal/vfs"
)

// ReserveFile holds blocks for the day the disk is full: what gives room again (retention, a raised log start) first
// has to write a little, and so has a start. It is empty, and missing while its blocks are lent.
const ReserveFile = "sekali.reserve"

// reserve is the state of the file. Lock gives its blocks back to a start, Open takes them again, and so do the ticks
// that find plenty of room.
type reserve struct {
	mu   sync.Mutex // held while the blocks are lent
	size int64      // of the blocks held; under mu
}

// lend gives the reserved blocks to what the caller is about to write, and keeps client appends from taking them. It
// is false if they are lent already.
func (s *Store) lend() bool {
	if !s.reserve.mu.TryLock() {
		return false
	}
	s.load.Full.Store(true)
	s.reserve.size = 0
	s.report(ReserveFile, ignoreMissing(s.c.FS.Remove(path.Join(s.c.Dir, ReserveFile))))
	return true
}

// takeBack ends lend: whatever of the blocks is free is reserved again before appends go on.
func (s *Store) takeBack() {
	s.report(ReserveFile, s.hold())
	s.load.Full.Store(false)
	s.reserve.mu.Unlock()
}

// hold reserves as many blocks as there are, up to reserveBytes; under reserve.mu.
func (s *Store) hold() error {
	name := path.Join(s.c.Dir, ReserveFile)
	f, err := s.c.FS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if vfs.IsNoSpace(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for step := int64(reserveBytes); step >= reserveLeast; step /= 2 {
		size := min(s.reserve.size+step, reserveBytes)
		if err = f.Allocate(size); err == nil {
			s.reserve.size = size
		} else if !vfs.IsNoSpace(err) {
			break
		}
	}
	if vfs.IsNoSpace(err) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// replenish makes the reserve whole again where room is plenty; of the ticker.
func (s *Store) replenish() error {
	s.reserve.mu.Lock()
	defer s.reserve.mu.Unlock()
	if s.reserve.size == reserveBytes {
		return nil
	}
	if _, usable, err := s.c.FS.Free(s.c.Dir); err != nil || usable < 4*reserveBytes {
		return err
	}
	return s.hold()
}

// needed runs a small write that has to succeed on a full disk too.
func (s *Store) needed(write func() error) error {
	err := write()
	if vfs.IsNoSpace(err) && s.lend() {
		defer s.takeBack()
		err = write()
	}
	return err
}
