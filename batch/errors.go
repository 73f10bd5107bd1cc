package batch

import "errors"

// Kafka's error codes for what this package refuses. The package knows the numbers, not their names in a library.
const (
	codeNone        = 0
	codeUnknown     = -1
	codeCorrupt     = 2
	codeTooLarge    = 10
	codeTimestamp   = 32
	codeCompression = 76
	codeInvalid     = 87
)

// Fault is an error of a whole batch together with the code a client is told. Faults are fixed values: compare with
// errors.Is. Some are kinds of another one (ErrCRC is an ErrCorrupt).
type Fault struct {
	code int16
	text string
	kind error
}

// Error returns the text, which may go to a client.
func (f *Fault) Error() string { return f.text }

// Code returns Kafka's error code (spec/batch.md 7).
func (f *Fault) Code() int16 { return f.code }

// Unwrap returns the more general fault, or nil.
func (f *Fault) Unwrap() error { return f.kind }

func fault(code int16, text string, kind error) error { return &Fault{code, "batch: " + text, kind} }

// Faults of the frame. The CRC covers bytes 21 to the end, so a fault in front of it may also be a damaged header.
var (
	// ErrShort: fewer bytes than one batch, or fewer than its length field claims. 87.
	ErrShort = fault(codeInvalid, "short", nil)
	// ErrCorrupt: the length field is impossible or differs from the bytes given. 2.
	ErrCorrupt = fault(codeCorrupt, "corrupt", nil)
	// ErrCRC is an ErrCorrupt: the checksum does not match. 2.
	ErrCRC = fault(codeCorrupt, "CRC-32C mismatch", ErrCorrupt)
	// ErrMagic: a format nobody defined. 2.
	ErrMagic = fault(codeCorrupt, "unsupported magic", nil)
	// ErrOldMagic is an ErrMagic: a message set of magic 0 or 1. 87, for 2 makes clients retry for ever.
	ErrOldMagic = fault(codeInvalid, "message sets of magic 0 and 1 are not supported", ErrMagic)
	// ErrTooLarge: above Limits.BytesMax. 10.
	ErrTooLarge = fault(codeTooLarge, "larger than the limit", nil)
)

// Faults of a client's header.
var (
	// ErrZstdVersion: zstd where Limits.AllowZstd is false. 76.
	ErrZstdVersion = fault(codeCompression, "zstd needs Produce version 7", nil)
	// ErrBaseOffset: a client's base offset is not 0. 87.
	ErrBaseOffset = fault(codeInvalid, "base offset is not 0", nil)
	// ErrCodec: compression 5, 6 or 7. 87.
	ErrCodec = fault(codeInvalid, "unknown compression codec", nil)
	// ErrDelta: last offset delta below 0. 87.
	ErrDelta = fault(codeInvalid, "last offset delta is negative", nil)
	// ErrCount: record count not above 0, or not last offset delta + 1 (in a log: above that). 87.
	ErrCount = fault(codeInvalid, "record count does not fit the last offset delta", nil)
	// ErrControl: the control bit set by a client. 87.
	ErrControl = fault(codeInvalid, "clients may not write control batches", nil)
	// ErrAppendTime: the LogAppendTime bit set by a client. 32.
	ErrAppendTime = fault(codeTimestamp, "clients may not set the append time type", nil)
	// ErrHorizon: the delete horizon bit set by a client. 87.
	ErrHorizon = fault(codeInvalid, "clients may not set a delete horizon", nil)
	// ErrSequence: a producer id without a sequence number. 87.
	ErrSequence = fault(codeInvalid, "producer id without sequence number", nil)
	// ErrProducer: producer id, epoch, sequence and the transactional bit contradict each other. 87.
	ErrProducer = fault(codeInvalid, "producer id, epoch and sequence do not fit together", nil)
)

// Faults of the records.
var (
	// ErrDecode: the compressed records are not a stream of their codec. 87.
	ErrDecode = fault(codeInvalid, "records cannot be decompressed", nil)
	// ErrDecoderPanic is an ErrDecode: the decompressor gave up by a panic, which is worth a report to its makers. 87.
	ErrDecoderPanic = fault(codeInvalid, "records cannot be decompressed: decompressor failed", ErrDecode)
	// ErrDecodedSize: the records expand to more than the limit. 10.
	ErrDecodedSize = fault(codeTooLarge, "records decompress to more than the limit", nil)
	// ErrTrailing: bytes behind the last record. 87.
	ErrTrailing = fault(codeInvalid, "bytes behind the last record", nil)
	// ErrNoMarker: a control batch that is no transaction marker: empty after compaction, or of another type.
	// Readers skip it; it still takes its offsets.
	ErrNoMarker = fault(codeInvalid, "control batch without a transaction marker", nil)
)

// RecordError names the first record a client must be told about (record_errors of the Produce response). A refused
// timestamp (32) is told before a missing key (87), as it decides the partition's code.
type RecordError struct {
	Index int32
	Code  int16
	Text  string
}

// Error returns the text, which may go to a client.
func (e *RecordError) Error() string { return e.Text }

const (
	textStructure = "batch: record is malformed"
	textOffset    = "batch: offset deltas of the records do not count up from 0"
	textHole      = "batch: offset deltas of the records do not rise within the batch"
	textMissing   = "batch: fewer records than the record count"
	textKey       = "batch: compacted topics need a key in every record"
	textTime      = "batch: timestamp is out of range"
)

// Code returns Kafka's error code for an error of this package, wrapped or not: 0 for nil, -1 for a foreign error.
func Code(err error) int16 {
	if err == nil {
		return codeNone
	}
	if r, ok := errors.AsType[*RecordError](err); ok {
		return r.Code
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.code
	}
	return codeUnknown
}
