package meta

import (
	"errors"
	"fmt"
)

var (
	// ErrCompacted tells a watcher that the changes it asks for are no longer kept.
	ErrCompacted = errors.New("meta: revision compacted")
	// ErrUnknown wraps an outcome that only a later look can tell.
	ErrUnknown = errors.New("meta: may or may not have happened")
	// ErrFailed refuses changes after a failed flush or write: the descriptor is not used again (I15). Reads go on.
	ErrFailed = errors.New("meta: no changes after a storage failure, restart needed")
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("meta: closed")
	// ErrInvalid refuses a transaction that breaks a limit or names a key twice.
	ErrInvalid = errors.New("meta: invalid transaction")

	// errNoRoom wraps a full disk that was met before anything was replaced.
	errNoRoom = errors.New("meta: no room for a new file")
)

// CorruptError refuses a start: the file at Path cannot be read from byte Pos on, and what was acknowledged may be
// lost.
type CorruptError struct {
	Path string
	Pos  int64
	Err  error
}

// Error names the path and the position.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("meta: %s at byte %d: %v", e.Path, e.Pos, e.Err)
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
