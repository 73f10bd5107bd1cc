package coord

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
	"sekali/batch"
)

// TP is a partition that takes part in a transaction. The topic id belongs to it: a topic deleted and created again
// under the same name is another participant. A TP is a plain value and may be a map key.
type TP struct {
	Topic     string
	ID        [16]byte
	Partition int32
}

// State is the state of a transactional id (spec/transactions.md 4; Kafka TransactionState). The numbers are those of
// the record in __transaction_state.
type State uint8

// The states. Dead and PrepareEpochFence are never written; they exist as targets of a transition in memory only.
const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence

	noState State = 0xff // pending: no transition under way
)

var stateNames = [...]string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

// String is the name that DescribeTransactions and ListTransactions return; "Unknown" for no state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "Unknown"
}

// ParseState finds the state of a name as String gives it. Any goroutine may call it.
func ParseState(name string) (State, bool) {
	for i, n := range stateNames {
		if n == name {
			return State(i), true
		}
	}
	return 0, false
}

// txn is the metadata of one transactional id (spec/transactions.md 3). It is a value: next takes one and returns
// another, and tps is never changed in place, so that copies may share it.
type txn struct {
	pid       int64
	prevPID   int64 // -1: none
	nextPID   int64 // -1: none; reserved at Prepare when the epoch is exhausted
	epoch     int16 // -1: created in memory, nothing written yet
	lastEpoch int16 // -1: none (private tag 1000)
	nextEpoch int16 // -1; KIP-939 only, kept as read
	timeoutMs int32
	state     State
	tps       []TP  // ordered by sortTPs, without repetition; nil in Empty and Complete*
	startMs   int64 // wall clock; -1: none
	updateMs  int64 // wall clock
	clientTV  int16 // 0 or 2

	unknown kmsg.Tags // tags of a record that this version does not know; written back as read

	pending     State // in memory: target of the transition under way, noState: none
	fenceFailed bool  // in memory: a fence raised the epoch and its record was refused (C11)
}

// newTxn is the metadata of an id nobody has used: no epoch yet.
func newTxn(pid int64) txn {
	return txn{
		pid: pid, prevPID: -1, nextPID: -1, epoch: -1, lastEpoch: -1, nextEpoch: -1,
		state: Empty, startMs: -1, updateMs: -1, pending: noState,
	}
}

// Record is one record of the transaction log; a nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Journal is one partition of the transaction log. Append takes one batch, all or nothing: written runs when it is
// appended, with the offset of the first record, or refused; then, unless refused, done runs once it is durable, or
// with the error that leaves that open. Both may run before Append returns and on any goroutine; of two calls that are
// not concurrent the first is the first in the log, and its callbacks run first. Errors: ErrTooLarge, ErrClosed,
// ErrStorage, else temporary. Replay calls fn in offset order for every record from offset from on and stops at fn's
// error, which it returns; offset is that of the record, not of its batch. Start is the log start, End the offset the
// next record gets. DropBefore raises the log start to offset, durably; it may be called only when nothing live lies
// below. With lazy nobody waits for the flush: it may come with that of a later Append, or after a second or so; what
// waits for it after all calls Flush.
type Journal interface {
	Append(recs []Record, lazy bool, written func(base int64, err error), done func(error))
	Replay(from int64, fn func(offset int64, r Record) error) error
	Flush()
	Start() int64
	End() int64
	DropBefore(offset int64) error
}

// Sink writes a marker into a partition and calls done, on any goroutine, also before Marker returns, once it is
// durable. redo means it may already be there; then a partition that has it may skip it. Errors: ErrGone, ErrFenced;
// after any other the coordinator sends the marker again later.
type Sink interface {
	Marker(tp TP, m batch.Marker, redo bool, done func(error))
}

// Snapshots accelerate a start; any of them may be missing. asOf is a journal offset: the bytes hold the effect of
// every record below it.
type Snapshots interface {
	Save(shard int, asOf int64, b []byte) error
	Load(shard int) (asOf int64, b []byte, err error)
}

// Errors of a Sink.
var (
	// ErrGone: the topic id no longer exists. The partition is dropped from the transaction.
	ErrGone = errors.New("coord: topic of the participant is gone")
	// ErrFenced: the partition has seen a newer epoch of the producer or of the coordinator (47, 52). The partition is
	// dropped from this completion: what was open there was decided by whoever wrote the newer epoch.
	ErrFenced = errors.New("coord: marker fenced at the partition")
)

// Errors of a Journal beside ErrClosed; wrapped ones count.
var (
	// ErrTooLarge: the record is above max.message.bytes of the transaction log; nothing was appended (10).
	ErrTooLarge = errors.New("coord: record too large for the transaction log")
	// ErrStorage: the disk failed; the partition of the log is offline (16).
	ErrStorage = errors.New("coord: transaction log offline")
)

// Cause says why a transaction was aborted.
type Cause uint8

// The causes: EndTxn of its producer, its timeout, an InitProducerId of the same transactional id.
const (
	ByClient Cause = iota
	ByTimeout
	ByFence
)

// Events are told as they happen, for metrics; any of them may be nil. They are called on a shard, several at a time by
// different shards, and must not block.
type Events struct {
	Moved     func(from, to State)     // an id is installed in a state; Dead: it is new, or expired
	Aborted   func(Cause)              // a PrepareAbort is durable
	Fenced    func()                   // a request was answered PRODUCER_FENCED
	Committed func(seconds float64)    // EndTxn(commit) from arrival to its answer
	Busy      func()                   // a request was answered CONCURRENT_TRANSACTIONS
	Retried   func(tp TP, err error)   // a marker failed and will be sent again
	GaveUp    func(tp TP, err error)   // ErrFenced: the partition was dropped from a completion
	Failed    func(shard int, e error) // a flush of the journal failed: the shard answers 16 from now on

	// Skipped: at the load, a record of a key version that is not known was left out, or a damaged snapshot (offset
	// -1).
	Skipped func(shard int, offset int64, err error)
}

// Config holds the settings of a coordinator. Times are milliseconds.
type Config struct {
	TimeoutMaxMs  int64 // transaction.max.timeout.ms
	IDExpireMs    int64 // transactional.id.expiration.ms
	SnapshotEvery int64 // journal bytes
	RewriteEvery  int64 // journal bytes beyond the live state before the live keys are appended again
	TV            int8  // finalized transaction.version of the server: 0, 1 or 2
	Inline        bool  // no goroutines: whoever posts to an idle shard runs it (simulator, tests)
	Events        Events
}

// OpenTxn is an open transaction found in a partition at start. First is its first offset there.
type OpenTxn struct {
	TP    TP
	PID   int64
	Epoch int16
	First int64
}

// InitIn is an InitProducerId request with a transactional id. PID and Epoch are -1, or the producer's current ones
// (KIP-360); exactly one of them being -1 is INVALID_REQUEST.
type InitIn struct {
	TxnID     string
	TimeoutMs int32
	PID       int64
	Epoch     int16
}

// InitOut is the producer id and epoch a producer is to use from now on; both are -1 beside an error.
type InitOut struct {
	PID   int64
	Epoch int16
}

// Part names partitions of a transaction, to be added or verified. TV is the transaction version of the request: 2 for
// Produce v12+, TxnOffsetCommit v5+ and AddPartitionsToTxn v4+, else 0.
type Part struct {
	TxnID string
	PID   int64
	Epoch int16
	TV    int8
	TPs   []TP
}

// EndIn is an EndTxn request. TV 2 (EndTxn v5+): the epoch is raised with the end of the transaction and the answer
// carries the pair for the next one (KIP-890); below that the answer repeats the request's.
type EndIn struct {
	TxnID  string
	PID    int64
	Epoch  int16
	TV     int8
	Commit bool
}

// Filter selects transactional ids; empty fields select all. LongerMs < 0: any duration. Pattern is an RE2 expression
// that the whole id has to match (KIP-1152).
type Filter struct {
	States   []State
	PIDs     []int64
	LongerMs int64
	Pattern  string
}

// Info describes a transactional id. In PrepareCommit and PrepareAbort TPs are those whose marker is still awaited.
type Info struct {
	TxnID     string
	State     State
	PID       int64
	Epoch     int16
	TimeoutMs int32
	StartedMs int64 // wall clock; -1: none
	TPs       []TP
}
