package segment

import (
	"errors"
	"strconv"
)

// CorruptError tells that bytes which must be whole are not: below the durable mark, or in published data. The
// partition goes offline; nothing is repaired by itself.
type CorruptError struct {
	Path string
	Pos  int64 // byte position in the file
	Err  error // what is wrong there
}

// Error names file, position and reason.
func (e *CorruptError) Error() string {
	return "segment: " + e.Path + " at " + strconv.FormatInt(e.Pos, 10) + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Err }

// IndexError tells that index files are missing, damaged or of another segment. No record is lost by it: Recover with
// From at the segment's base makes them anew, with the producer state of the newest snapshot at or below the base
// (the aborted transactions cannot be found without it).
type IndexError struct {
	Path string
	Err  error
}

// Error names file and reason.
func (e *IndexError) Error() string { return "segment: " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *IndexError) Unwrap() error { return e.Err }

// Why a batch is not accepted by a scan, a walk or Append. Compare with errors.Is.
var (
	ErrShort    = errors.New("segment: batch is cut short")
	ErrLength   = errors.New("segment: impossible batch length")
	ErrMagic    = errors.New("segment: magic is not 2")
	ErrBase     = errors.New("segment: base offset is not the next one")
	ErrEpoch    = errors.New("segment: leader epoch falls")
	ErrDelta    = errors.New("segment: last offset does not fit the segment")
	ErrLimit    = errors.New("segment: batch is beyond what the segment may hold")
	ErrChecksum = errors.New("segment: CRC-32C mismatch")
	ErrZero     = errors.New("segment: zeros")
	ErrEnds     = errors.New("segment: log ends below the durable mark")
	ErrFault    = errors.New("segment: page of the mapping cannot be read")
	errMissing  = errors.New("segment: entries are missing")
	errForeign  = errors.New("segment: entry does not agree with the batch it names")
)
