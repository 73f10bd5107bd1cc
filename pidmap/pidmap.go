// Package pidmap remembers, for one partition, who wrote what last: per producer id the epoch, the last five batches
// and how many sequence numbers are proven written, and over all of them the open transactions. From that it decides in
// constant time whether a batch is new, a duplicate, a gap or from a fenced producer (invariants I5, I6, I8, I11), and
// it makes and reads the exact snapshots from which a restart continues (I14).
//
// The rules are those of Apache Kafka's ProducerStateManager, ProducerAppendInfo and VerificationStateEntry, except
// where a proven duplicate older than the window is told apart from a gap (DuplicateOld).
//
// Nothing here has a lock: every method of Map runs under the lock of the partition that owns it. Offsets are record
// offsets of the partition, last offsets are inclusive; Time is milliseconds of the wall clock as written in batches;
// Touch is milliseconds of the process's monotonic clock.
package pidmap

import "time"

// Batch is what the decision needs of one record batch. PID is at least 0; batches without a producer id never come
// here.
type Batch struct {
	PID   int64
	Epoch int16
	// FirstSeq and LastSeq are -1 for writes of a coordinator, whose sequence is not tested.
	FirstSeq, LastSeq int32
	CRC               uint32 // as received; tells a reused number from a retry; 0 unknown
	Txn               bool
	FromZero          bool   // an unknown PID must begin at 0: the log end is 0, or Produce >= 12 and transactional
	Guard             uint64 // 0, or the guard of an earlier TxnUnverified decision
	Touch             int64  // monotonic ms; drives expiry and eviction
}

// Verdict is the outcome of Check.
type Verdict uint8

// The verdicts, in the order in which the tests are made where it matters: fenced, duplicate, unverified, sequence,
// transaction (spec: producer state, sections 3 and 4). The codes are those of a Produce answer.
const (
	Accept        Verdict = iota
	Duplicate             // in the window: Decision.Stamp tells where it is (0)
	DuplicateOld          // proven by the span, no longer in the window: Decision.Seek tells what to look for (0 or 46)
	OutOfOrder            // gap, not proven, or the first sequence of a new epoch is not 0 (45)
	Fenced                // lower epoch than stored (47)
	TxnOpen               // non-transactional batch while a transaction is open (48)
	TxnUnverified         // transactional, none open here: ask the coordinator, then check again with Decision.Guard
	Full                  // unknown PID, and all ProducersLimit producers have open transactions (56)
)

// Stamp is a window slot: one batch as it was written. Base offset and first sequence follow from it.
type Stamp struct {
	LastSeq, Delta int32 // last sequence; last offset less base offset
	Last, Time     int64 // last offset; largest timestamp of the batch
	CRC            uint32
}

// FirstSeq is the sequence of the batch's first record, modulo 2^31.
func (s Stamp) FirstSeq() int32 { return modulus(seqMod-1).first(s.LastSeq, s.Delta) }

// Base is the offset of the batch's first record.
func (s Stamp) Base() int64 { return s.Last - int64(s.Delta) }

// At is where a batch or marker was written. Pos, the position in its segment, is kept with an open transaction alone:
// it gives the last stable offset its read limit.
type At struct{ Base, Last, Time, Pos int64 }

// Seek describes a proven duplicate that is not a window slot: walk batch headers back from Before, at most to the
// batch with exactly these numbers.
type Seek struct {
	PID               int64
	Epoch             int16
	FirstSeq, LastSeq int32
	Before            int64 // base offset of the oldest slot
	Until             int64 // last offset of the entry: what the answer vouches for
}

// Decision is what Check found. Stamp is set for Duplicate, Seek for DuplicateOld, Guard for TxnUnverified.
type Decision struct {
	Verdict Verdict
	// Unproven is set on an Accept of an unknown PID that does not begin at 0: its state expired or was lost.
	Unproven bool
	Stamp    Stamp
	Seek     Seek
	// Guard names the pending verification of the PID. There is one per PID; it is void as soon as any marker for the
	// PID is written or its transaction has begun here, so an answer of the coordinator from before cannot open a
	// transaction nobody will close (I8).
	Guard uint64
}

// Marker is a control record that ends a transaction. Version is the transaction version; from 2 on the epoch must lie
// above the stored one.
type Marker struct {
	PID        int64
	Epoch      int16
	CoordEpoch int32
	Version    int8
	Commit     bool
	Time       int64
}

// Ended is what a marker ends.
type Ended struct {
	First  int64 // first offset of the transaction; -1 without one
	Had    bool  // there was an open transaction
	Stable int64 // lowest first offset of any other open transaction, -1: none (then the marker offset + 1)
	Same   bool  // the PID's entry has the marker's epoch already and no open transaction: a redo may be skipped
	// Stale is set by ReplayMarker alone: the log holds a marker whose epoch lies below the stored one, which was kept.
	Stale bool
}

// Producer is one entry as Each, Decode and the describe APIs see it.
type Producer struct {
	PID        int64
	TxnFirst   int64 // first offset of the open transaction; -1: none
	LastTime   int64 // timestamp of the last batch or marker
	Touch      int64 // monotonic ms of the last append, in steps of 100; negative: before this start
	Epoch      int16
	CoordEpoch int32         // of the last marker; -1: none
	Span       uint32        // sequence numbers up to the last one that are proven written in this epoch
	Stamps     [Window]Stamp // the first N, oldest first
	N          uint8
}

// Options are fixed for the life of a Map.
type Options struct {
	// ProducersMax caps the producers of the partition; beyond it the least recently touched one without an open
	// transaction goes. 0 or less, or more than ProducersLimit, means ProducersLimit.
	ProducersMax int
	// ExpireAfter is the idle time after which Expire removes a producer; 0 or less: never.
	ExpireAfter time.Duration
}
