package coord

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/check"
)

// eventKind is what happens to a transactional id.
type eventKind uint8

const (
	evInit     eventKind = iota // InitProducerId
	evAdd                       // AddPartitionsToTxn, AddOffsetsToTxn, an implicit add
	evEnd                       // EndTxn
	evTimeout                   // the transaction ran out of time
	evComplete                  // every marker is durable
	evExpire                    // the id was not used for too long
	evDrop                      // topics were deleted
)

// event is one input of next.
type event struct {
	kind      eventKind
	pid       int64 // of the request; evInit: -1 when none is expected
	epoch     int16
	timeoutMs int32             // evInit
	tv        int8              // evAdd, evEnd: of the request; evInit, evTimeout: of the server
	commit    bool              // evEnd
	tps       []TP              // evAdd, as sortTPs orders them
	gone      map[[16]byte]bool // evDrop: topic ids
	nowMs     int64             // wall clock
	fresh     int64             // a producer id nobody was given, -1: none at hand
}

// effect tells the shard what a step asks for.
type effect uint8

const (
	needPID   effect = 1 << iota // nothing is decided yet: call next again with a fresh producer id
	usedPID                      // fresh is part of the new metadata
	write                        // append the record of the new metadata
	lazy                         // nobody waits for its flush
	early                        // install it when it is appended; without: when it is durable
	tombstone                    // the record is a tombstone
	keepEpoch                    // if the record is refused the raised epoch stays in memory (C11)
)

// step is the outcome of next: the metadata to be written, what to do, and the answer: at once without write, else when
// the effect is done. txn equals the input, but for pending, when nothing is to be written.
type step struct {
	txn  txn
	do   effect
	code *kerr.Error
	out  InitOut
}

var noOut = InitOut{PID: -1, Epoch: -1}

// next is the transition function of a transactional id (spec/transactions.md 4 and 5): pure, the whole of the
// decisions. Its tables stand in machine_test.go row by row.
func next(t txn, ev event) step {
	var st step
	switch ev.kind {
	case evInit:
		st = nextInit(t, ev)
	case evAdd:
		st = nextAdd(t, ev)
	case evEnd:
		if ev.tv >= 2 {
			st = nextEnd2(t, ev)
		} else {
			st = nextEnd1(t, ev)
		}
	case evTimeout:
		st = nextTimeout(t, ev)
	case evComplete:
		st = nextComplete(t, ev)
	case evExpire:
		st = nextExpire(t)
	case evDrop:
		st = nextDrop(t, ev)
	}
	if st.do&write != 0 {
		verify(t, st.txn, ev.kind)
	}
	return st
}

func refuse(t txn, code *kerr.Error) step { return step{txn: t, code: code, out: noOut} }

func wantPID(t txn) step { return step{txn: t, do: needPID, out: noOut} }

// nextInit is table 5.1 from step 10 on.
func nextInit(t txn, ev event) step {
	expected := ev.pid != -1
	switch {
	case t.pending != noState:
		return refuse(t, kerr.ConcurrentTransactions)
	case expected && t.epoch != -1 && ev.pid != t.pid && (ev.pid != t.prevPID || ev.epoch < maxClientEpoch):
		return refuse(t, kerr.ProducerFenced)
	}
	switch t.state {
	case PrepareCommit, PrepareAbort:
		return refuse(t, kerr.ConcurrentTransactions)
	case Ongoing:
		// Kafka fences here whatever epoch the caller names. One that names another than the current has been replaced
		// already, and must not end the transaction of its successor.
		if expected && (ev.pid != t.pid || ev.epoch != t.epoch) {
			return refuse(t, kerr.ProducerFenced)
		}
		st := fence(t, ev)
		st.code = kerr.ConcurrentTransactions
		return st
	}
	n := t
	n.state, n.tps, n.startMs, n.clientTV = Empty, nil, -1, 0
	n.timeoutMs, n.updateMs = ev.timeoutMs, ev.nowMs
	do := write
	switch {
	case !expected || t.epoch == -1 || ev.pid == t.pid && ev.epoch == t.epoch:
		n.lastEpoch = -1
		if expected {
			n.lastEpoch = t.epoch
		}
		if t.epoch < maxClientEpoch {
			n.epoch++
			break
		}
		if ev.fresh < 0 {
			return wantPID(t)
		}
		n.prevPID, n.pid, n.epoch = t.pid, ev.fresh, 0
		do |= usedPID
	case ev.epoch == t.lastEpoch: // a retry whose answer was lost (KIP-360): nothing is raised
	default:
		return refuse(t, kerr.ProducerFenced)
	}
	return step{txn: n, do: do, out: InitOut{PID: n.pid, Epoch: n.epoch}}
}

// fence starts the abort of an Ongoing transaction by somebody else than its producer (E10, E11). The epoch it raises
// is never told to anybody.
func fence(t txn, ev event) step {
	n := t
	n.state, n.updateMs, n.fenceFailed = PrepareAbort, ev.nowMs, false
	do := write
	switch {
	case t.epoch == math.MaxInt16:
		// Nothing lies above it. The abort goes through with the epoch as it is, which a marker of version 2 may not
		// carry; the next InitProducerId gives a new producer id.
		n.clientTV = 0
	case ev.tv < 2:
		n.clientTV, n.lastEpoch = 0, -1
		if !t.fenceFailed {
			n.epoch++
		}
		do |= keepEpoch
	default:
		if t.epoch >= maxClientEpoch {
			if ev.fresh < 0 {
				return wantPID(t)
			}
			n.nextPID = ev.fresh
			do |= usedPID
		}
		n.clientTV, n.lastEpoch = 2, t.epoch
		n.epoch++
	}
	return step{txn: n, do: do, out: noOut}
}

// nextAdd is table 5.2 for verifyOnly = false.
func nextAdd(t txn, ev event) step {
	switch {
	case t.pending != noState:
		return refuse(t, kerr.ConcurrentTransactions)
	case ev.pid != t.pid:
		return refuse(t, kerr.InvalidProducerIDMapping)
	case ev.epoch != t.epoch:
		return refuse(t, kerr.ProducerFenced)
	case t.state == PrepareCommit || t.state == PrepareAbort:
		return refuse(t, kerr.ConcurrentTransactions)
	case t.state == Ongoing && contains(t.tps, ev.tps):
		return step{txn: t, out: noOut}
	}
	n := t
	n.state, n.tps, n.updateMs = Ongoing, union(t.tps, ev.tps), ev.nowMs
	if t.state != Ongoing {
		n.startMs = ev.nowMs
	}
	n.clientTV = 0
	if ev.tv >= 2 {
		n.clientTV = 2
	}
	return step{txn: n, do: write | early, out: noOut}
}

// verifyAdd is table 5.2 for verifyOnly = true and one partition; known is false without metadata. A transition under
// way does not matter to it.
func verifyAdd(t txn, known bool, pid int64, epoch int16, tp TP) *kerr.Error {
	switch {
	case !known || pid != t.pid:
		return kerr.InvalidProducerIDMapping
	case epoch != t.epoch:
		return kerr.ProducerFenced
	case t.state == PrepareCommit || t.state == PrepareAbort:
		return kerr.ConcurrentTransactions
	case !hasTP(t.tps, tp):
		return kerr.TransactionAbortable
	}
	return nil
}

// nextEnd1 is table 5.6 for EndTxn v0-4.
func nextEnd1(t txn, ev event) step {
	switch {
	case ev.pid != t.pid:
		return refuse(t, kerr.InvalidProducerIDMapping)
	case ev.epoch != t.epoch:
		return refuse(t, kerr.ProducerFenced)
	case t.pending != noState:
		return refuse(t, kerr.ConcurrentTransactions)
	}
	same := InitOut{PID: t.pid, Epoch: t.epoch}
	switch t.state {
	case Ongoing:
		n := t
		n.state, n.updateMs, n.clientTV = prepared(ev.commit), ev.nowMs, 0
		return step{txn: n, do: write, out: same}
	case PrepareCommit, PrepareAbort:
		if t.state == prepared(ev.commit) {
			return refuse(t, kerr.ConcurrentTransactions)
		}
	case CompleteCommit, CompleteAbort:
		if t.state == completed(ev.commit) {
			return step{txn: t, out: same}
		}
	}
	return refuse(t, kerr.InvalidTxnState)
}

// nextEnd2 is table 5.6 for EndTxn v5 and above.
func nextEnd2(t txn, ev event) step {
	if t.pending != noState {
		return refuse(t, kerr.ConcurrentTransactions)
	}
	// Only a transaction that ended with a raised epoch can have a retry one below: after one that ended without, the
	// epoch below is a fenced producer's, which must not be told the current pair.
	raised := t.clientTV == 2
	overflow := raised && ev.pid == t.prevPID && ev.epoch == maxClientEpoch && t.epoch == 0
	if ev.pid != t.pid && !overflow {
		return refuse(t, kerr.InvalidProducerIDMapping)
	}
	current := ev.pid == t.pid && ev.epoch == t.epoch
	retry := overflow || raised && int(ev.epoch)+1 == int(t.epoch)
	switch t.state {
	case Ongoing:
		if current {
			return prepare2(t, ev)
		}
	case Empty:
		if current {
			return endNothing(t, ev)
		}
	case PrepareCommit, PrepareAbort:
		if retry {
			return retried(t, ev, t.state == prepared(ev.commit))
		}
	case CompleteCommit, CompleteAbort:
		switch {
		case current:
			return endNothing(t, ev)
		case retry:
			return retried(t, ev, t.state == completed(ev.commit))
		}
	}
	return refuse(t, kerr.ProducerFenced)
}

// retried answers an EndTxn v5 of a transaction that is decided; same: with the outcome the request asks for.
func retried(t txn, ev event, same bool) step {
	switch {
	case same && (t.state == CompleteCommit || t.state == CompleteAbort):
		return step{txn: t, out: InitOut{PID: t.pid, Epoch: t.epoch}}
	case same:
		return refuse(t, kerr.ConcurrentTransactions)
	case ev.commit:
		// The coordinator aborted under a commit on its way. INVALID_TXN_STATE would be fatal for the client, the fence
		// is something it handles (KAFKA-20785).
		return refuse(t, kerr.ProducerFenced)
	}
	return refuse(t, kerr.InvalidTxnState)
}

// endNothing ends a transaction that has no partition. A producer that adds implicitly cannot know whether its first
// batch opened one and always sends the abort (E9); a commit is a mistake.
func endNothing(t txn, ev event) step {
	if ev.commit {
		return refuse(t, kerr.InvalidTxnState)
	}
	st := prepare2(t, ev)
	if st.do&write != 0 {
		st.txn.startMs, st.txn.tps = ev.nowMs, nil
	}
	return st
}

// prepare2 decides a transaction at the request of its producer and raises the epoch (E8, E9).
func prepare2(t txn, ev event) step {
	n := t
	n.state, n.updateMs, n.clientTV, n.lastEpoch = prepared(ev.commit), ev.nowMs, 2, t.epoch
	if t.epoch < maxClientEpoch {
		n.epoch++
		return step{txn: n, do: write, out: InitOut{PID: n.pid, Epoch: n.epoch}}
	}
	if t.epoch == math.MaxInt16 {
		// No producer was ever told this epoch; an abort goes through with it, which a marker of version 2 may not
		// carry.
		if ev.commit {
			return refuse(t, kerr.ProducerFenced)
		}
		n.clientTV = 0
	} else {
		n.epoch++
	}
	if ev.fresh < 0 {
		return wantPID(t)
	}
	n.nextPID = ev.fresh
	return step{txn: n, do: write | usedPID, out: InitOut{PID: ev.fresh, Epoch: 0}}
}

// nextTimeout aborts an Ongoing transaction; in any other state somebody else moved it.
func nextTimeout(t txn, ev event) step {
	if t.pending != noState || t.state != Ongoing {
		return step{txn: t, out: noOut}
	}
	return fence(t, ev)
}

// nextComplete is E12. Whoever calls it has seen every marker durable.
func nextComplete(t txn, ev event) step {
	n := t
	n.state, n.tps, n.updateMs = completed(t.state == PrepareCommit), nil, ev.nowMs
	if t.nextPID != -1 {
		n.prevPID, n.pid, n.epoch, n.nextPID = t.pid, t.nextPID, 0, -1
	}
	return step{txn: n, do: write | early | lazy, out: InitOut{PID: n.pid, Epoch: n.epoch}}
}

// nextExpire is E13.
func nextExpire(t txn) step {
	if t.pending != noState || !expirable(t.state) {
		return step{txn: t, out: noOut}
	}
	n := t
	n.state = Dead
	return step{txn: n, do: write | tombstone, out: noOut}
}

// nextDrop takes the partitions of deleted topics out of a transaction, decided or not.
func nextDrop(t txn, ev event) step {
	rest := slices.DeleteFunc(slices.Clone(t.tps), func(tp TP) bool { return ev.gone[tp.ID] })
	if len(rest) == len(t.tps) {
		return step{txn: t, out: noOut}
	}
	n := t
	n.tps = rest
	return step{txn: n, do: write | early, out: noOut}
}

func prepared(commit bool) State {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func completed(commit bool) State {
	if commit {
		return CompleteCommit
	}
	return CompleteAbort
}

func expirable(s State) bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

// legal lists the states from which a state may be entered (spec/transactions.md 4).
var legal = [...][]State{
	Empty:          {Empty, CompleteCommit, CompleteAbort},
	Ongoing:        {Ongoing, Empty, CompleteCommit, CompleteAbort},
	PrepareCommit:  {Ongoing},
	PrepareAbort:   {Ongoing, PrepareEpochFence, Empty, CompleteCommit, CompleteAbort},
	CompleteCommit: {PrepareCommit},
	CompleteAbort:  {PrepareAbort},
	Dead:           {Empty, CompleteCommit, CompleteAbort},
}

// verify stops the process at a transition that cannot be right: its record would decide a transaction wrongly.
func verify(old, n txn, kind eventKind) {
	if kind == evDrop {
		check.That(n.state == old.state, "transition: a deleted topic changes no state")
		return
	}
	check.That(slices.Contains(legal[n.state], old.state), "transition: illegal edge")
	check.That(n.pid == old.pid && (n.epoch == old.epoch || n.epoch == old.epoch+1) || n.pid != old.pid && n.epoch == 0,
		"transition: epoch neither kept nor raised by one nor of a new producer id")
	check.That(n.epoch >= 0, "transition: epoch below 0")
	check.That(n.state == Empty || n.timeoutMs == old.timeoutMs, "transition: timeout changed outside Empty")
	switch n.state {
	case Ongoing:
		check.That(len(n.tps) >= len(old.tps), "transition: a participant was lost")
	case PrepareCommit, PrepareAbort:
		check.That(len(n.tps) == len(old.tps) || old.state != Ongoing, "transition: participants changed at the decision")
	case CompleteCommit, CompleteAbort:
		check.That(n.startMs != -1, "transition: complete without a start")
	}
}

func compareTPs(a, b TP) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Or(slices.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Partition, b.Partition))
}

// sortTPs returns tps by topic, id and partition, without repetition; the argument stays as it is.
func sortTPs(tps []TP) []TP {
	s := slices.Clone(tps)
	slices.SortFunc(s, compareTPs)
	return slices.Compact(s)
}

// contains reports whether all of sub are in set; both as sortTPs returns them.
func contains(set, sub []TP) bool {
	for _, tp := range sub {
		if _, ok := slices.BinarySearchFunc(set, tp, compareTPs); !ok {
			return false
		}
	}
	return true
}

// union merges two lists that sortTPs returned into a new one.
func union(a, b []TP) []TP {
	u := make([]TP, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := compareTPs(a[0], b[0]); {
		case c < 0:
			u, a = append(u, a[0]), a[1:]
		case c > 0:
			u, b = append(u, b[0]), b[1:]
		default:
			u, a, b = append(u, a[0]), a[1:], b[1:]
		}
	}
	return append(append(u, a...), b...)
}
