package meta

import (
	"errors"

	"sekali/internal/vfs"
)

// plan sets the size of the log at which the next snapshot is worth its bytes.
func (s *local) plan() { s.snapAt = s.size + max(logBytesMin, 2*s.snapLen) }

// compact writes a snapshot and begins a new log once the log is large beside the snapshot. It runs between two
// transactions, in the goroutine of the store. A full disk postpones it; any other failure is final, since it comes
// from the file system that holds the log.
func (s *local) compact() {
	if s.fault != nil || s.size < s.snapAt {
		return
	}
	err := s.snapshot()
	if errors.Is(err, errNoRoom) {
		s.plan()
		return
	}
	if err != nil {
		s.fail(err)
	}
}

func (s *local) snapshot() error {
	v := s.cur.Load()
	b := appendSnapshot(nil, v.state, v.rev)
	// Durable before the records it stands for may go. Whichever snapshot an error leaves, the log covers it.
	if err := vfs.WriteFileAtomic(s.fs, s.dir, SnapshotName, b); err != nil {
		return writeError(s.snapPath(), err)
	}
	s.snapLen = int64(len(b))
	return s.swapLog(v.rev)
}
