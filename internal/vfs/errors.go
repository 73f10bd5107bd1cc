package vfs

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"syscall"
)

var (
	// ErrLocked: another process (or another holder in this one) has the lock file.
	ErrLocked = errors.New("vfs: locked")
	// ErrCached: pages that Uncache was to drop are still cached.
	ErrCached = errors.New("vfs: pages still cached")
	// ErrDead: the file belongs to a Mem whose process died (Kill, Crash).
	ErrDead = errors.New("vfs: process is dead")
)

// LockedError tells who holds a lock file, if its holder left its process id there (else PID is 0). It is ErrLocked.
type LockedError struct {
	Path string
	PID  int
}

// Error names the file and the holder.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return "vfs: " + e.Path + " is locked by another process"
	}
	return "vfs: " + e.Path + " is locked by process " + strconv.Itoa(e.PID)
}

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }

// IsNoSpace reports whether a write or a reservation failed because the disk or a quota is full, or ended short.
// That is no failed flush: the caller may cut back to what was published and try again later.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, io.ErrShortWrite)
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
