package plog

import (
	"errors"
	"fmt"

	"sekali/pidmap"
	"sekali/segment"
)

// The errors of a log. They come wrapped; test with errors.Is.
var (
	// ErrRange: an offset below the log start or above the end (or, for DeleteBefore, above the high watermark).
	ErrRange = errors.New("plog: offset out of range")
	// ErrOffline: a storage fault has taken the log out of service. It comes back by Close and Open only (I15).
	ErrOffline = errors.New("plog: partition offline")
	// ErrFull: the disk is full. Nothing was stored; the same append may succeed later.
	ErrFull = errors.New("plog: no space")
	// ErrUnsettled: the log serves again, but its open transactions are not reconciled yet (HoldTxns). Try again.
	ErrUnsettled = errors.New("plog: open transactions not reconciled yet")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("plog: closed")
	// ErrDeleted: the topic was deleted.
	ErrDeleted = errors.New("plog: topic deleted")
	// ErrTooLarge: one batch is larger than a whole segment may be.
	ErrTooLarge = errors.New("plog: batch larger than a segment")
	// ErrMarker: a marker was refused; the wrapped pidmap error says why. Nothing was changed.
	ErrMarker = errors.New("plog: marker refused")
	// ErrFollow: bytes handed to AppendAsFollower do not continue this log. Nothing of the faulty batch was stored.
	ErrFollow = errors.New("plog: batch does not continue the log")
)

// RejectError is a batch refused by the producer state. Nothing was stored. The verdict decides the code of the answer.
type RejectError struct{ Decision pidmap.Decision }

// Error names the verdict.
func (e *RejectError) Error() string {
	switch e.Decision.Verdict {
	case pidmap.DuplicateOld:
		return "plog: batch stored before, its offset is no longer known"
	case pidmap.OutOfOrder:
		return "plog: sequence number out of order"
	case pidmap.Fenced:
		return "plog: producer epoch is fenced"
	case pidmap.TxnOpen:
		return "plog: plain batch inside an open transaction"
	case pidmap.TxnUnverified:
		return "plog: transaction not verified"
	case pidmap.Full:
		return "plog: every known producer has an open transaction"
	}
	return "plog: batch refused"
}

// errHead: the first segment of a log begins above its log start.
var errHead = errors.New("segments before it are missing")

// CorruptError is acknowledged data that is not there any more or damaged: the log does not open, nothing was changed.
type CorruptError struct {
	Dir         string
	End, Mark   int64 // offsets: where the readable log ends, and up to which it was known to be on disk
	Path        string
	Pos         int64 // position in Path
	Err         error // nil: the log just ends
	HelpCommand string
}

// Error names the place, the offsets and the command that helps.
func (e *CorruptError) Error() string {
	what := "ends"
	if e.Err != nil {
		what = "is damaged (" + e.Err.Error() + ")"
	}
	return fmt.Sprintf("plog: %s: the log %s at offset %d, %s position %d, but offsets below %d were acknowledged; "+
		"nothing was cut; run: %s", e.Dir, what, e.End, e.Path, e.Pos, e.Mark, e.HelpCommand)
}

// Unwrap is what the segment found.
func (e *CorruptError) Unwrap() error { return e.Err }

// down is why a log serves no more: its error wraps ErrOffline, ErrClosed or ErrDeleted.
type down struct{ err error }

func offline(op string, err error) *down {
	return &down{fmt.Errorf("%w: %s: %w", ErrOffline, op, err)}
}

// Corrupt reports whether an error, of Open or why a log is offline (Log.Err), means that stored bytes are damaged:
// such a log does not come back by opening it again, only by a repair.
func Corrupt(err error) bool {
	var opening *CorruptError
	var reading *segment.CorruptError
	return errors.As(err, &opening) || errors.As(err, &reading)
}
