package coord

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func endEv(pid int64, epoch int16, tv int8, commit bool) event {
	return event{kind: evEnd, pid: pid, epoch: epoch, tv: tv, commit: commit, nowMs: nowMs, fresh: pidQ}
}

func result(commit bool) string {
	if commit {
		return "COMMIT"
	}
	return "ABORT"
}

// TestEndTxnTV1Table is spec/transactions.md 5.6 for EndTxn v0-4, with E7.
func TestEndTxnTV1Table(t *testing.T) {
	var rows []row
	type cell struct{ commit, abort any } // a code, Ongoing for E7, nil for the retry's NONE
	table := map[State]cell{
		Empty:          {kerr.InvalidTxnState, kerr.InvalidTxnState},
		Ongoing:        {Ongoing, Ongoing},
		PrepareCommit:  {kerr.ConcurrentTransactions, kerr.InvalidTxnState},
		PrepareAbort:   {kerr.InvalidTxnState, kerr.ConcurrentTransactions},
		CompleteCommit: {nil, kerr.InvalidTxnState},
		CompleteAbort:  {kerr.InvalidTxnState, nil},
	}
	for state, c := range table {
		for _, commit := range []bool{true, false} {
			want := c.abort
			if commit {
				want = c.commit
			}
			for _, epoch := range []int16{5, 32765, 32766, 32767} {
				for _, tv := range []int8{0, 1} {
					s := at(state, epoch, idle, last(4), tv2)
					r := row{name: fmt.Sprintf("%v %s at %d", state, result(commit), epoch), t: s, ev: endEv(pidP, epoch, tv, commit)}
					switch w := want.(type) {
					case *kerr.Error:
						r.want = code(s, w)
					case State:
						n := s
						n.state, n.updateMs, n.clientTV = prepared(commit), nowMs, 0
						r.want = step{txn: n, do: write, out: InitOut{pidP, epoch}}
					case nil:
						r.want = step{txn: s, out: InitOut{pidP, epoch}}
					}
					rows = append(rows, r)
				}
			}
			s, busy := at(state, 5, idle), at(state, 5, moving(Ongoing))
			n := fmt.Sprintf("%v %s: ", state, result(commit))
			rows = append(rows,
				row{n + "other pid", s, endEv(7, 5, 0, commit), code(s, kerr.InvalidProducerIDMapping)},
				row{n + "lower epoch", s, endEv(pidP, 4, 0, commit), code(s, kerr.ProducerFenced)},
				row{n + "higher epoch", s, endEv(pidP, 6, 0, commit), code(s, kerr.ProducerFenced)},
				row{n + "under way", busy, endEv(pidP, 5, 0, commit), code(busy, kerr.ConcurrentTransactions)},
				row{n + "under way, other pid", busy, endEv(7, 5, 0, commit), code(busy, kerr.InvalidProducerIDMapping)},
				row{n + "under way, other epoch", busy, endEv(pidP, 4, 0, commit), code(busy, kerr.ProducerFenced)},
			)
		}
	}
	run(t, rows)
}

// decided is the Prepare record of an EndTxn v5 (E8), or of one that ends nothing (E9).
func decided(from txn, commit bool) step {
	n := from
	if from.state != Ongoing {
		n.startMs, n.tps = nowMs, nil
	}
	n.state, n.updateMs, n.clientTV, n.lastEpoch = prepared(commit), nowMs, 2, from.epoch
	n.epoch++
	if from.epoch < 32766 {
		return step{txn: n, do: write, out: InitOut{pidP, n.epoch}}
	}
	n.nextPID = pidQ
	return step{txn: n, do: write | usedPID, out: InitOut{pidQ, 0}}
}

// TestEndTxnTV2Table is spec/transactions.md 5.6 for EndTxn v5, every cell; E8 and E9.
func TestEndTxnTV2Table(t *testing.T) {
	const (
		decide = "decide" // E8, E9
		none   = "none"   // the retry's success
	)
	F, I, C := kerr.ProducerFenced, kerr.InvalidTxnState, kerr.ConcurrentTransactions
	table := map[State]struct{ abortRetry, abortCurrent, commitRetry, commitCurrent any }{
		Empty:          {F, decide, F, I},
		Ongoing:        {F, decide, F, decide},
		PrepareCommit:  {I, F, C, F},
		PrepareAbort:   {C, F, F, F}, // KAFKA-20785, here too
		CompleteCommit: {I, decide, none, I},
		CompleteAbort:  {none, decide, F, I}, // KAFKA-20785
	}
	var rows []row
	for state, c := range table {
		for _, r := range []struct {
			commit, retry bool
			want          any
		}{
			{false, true, c.abortRetry}, {false, false, c.abortCurrent},
			{true, true, c.commitRetry}, {true, false, c.commitCurrent},
		} {
			for _, epoch := range []int16{5, 32765, 32766} {
				stored := at(state, epoch, idle, last(epoch-1), tv2)
				if state == Empty {
					stored.clientTV = 0
				}
				ev := endEv(pidP, epoch, 2, r.commit)
				if r.retry {
					ev.epoch = epoch - 1
				}
				var want step
				switch w := r.want.(type) {
				case *kerr.Error:
					want = code(stored, w)
				case string:
					if want = decided(stored, r.commit); w == none {
						want = step{txn: stored, out: InitOut{pidP, epoch}}
					}
				}
				name := fmt.Sprintf("%v %s at %d, retry %v", state, result(r.commit), epoch, r.retry)
				rows = append(rows, row{name, stored, ev, want})
			}
		}
		for _, commit := range []bool{true, false} {
			s, busy := at(state, 5, idle, tv2), at(state, 5, moving(CompleteCommit), tv2)
			n := fmt.Sprintf("%v %s: ", state, result(commit))
			rows = append(rows,
				row{n + "under way", busy, endEv(pidP, 5, 2, commit), code(busy, C)},
				row{n + "under way before pid", busy, endEv(7, 5, 2, commit), code(busy, C)},
				row{n + "under way before epoch", busy, endEv(pidP, 1, 2, commit), code(busy, C)},
				row{n + "other pid", s, endEv(7, 5, 2, commit), code(s, kerr.InvalidProducerIDMapping)},
				row{n + "two below", s, endEv(pidP, 3, 2, commit), code(s, F)},
				row{n + "above", s, endEv(pidP, 6, 2, commit), code(s, F)},
			)
		}
	}
	run(t, rows)
}

// TestEndTxnTV2Edges: exhausted epochs, the lost answer of a rotation, and the two generations on one id.
func TestEndTxnTV2Edges(t *testing.T) {
	F := kerr.ProducerFenced
	var rows []row
	for _, commit := range []bool{true, false} {
		n := result(commit) + ": "
		done := at(completed(commit), 0, tv2, prev(pidO), last(32766))
		undone := at(completed(!commit), 0, tv2, prev(pidO), last(32766))
		opposite := kerr.InvalidTxnState
		if commit {
			opposite = F
		}
		rows = append(rows,
			row{n + "retry of a rotation", done, endEv(pidO, 32766, 2, commit), step{txn: done, out: InitOut{pidP, 0}}},
			row{n + "retry of a rotation with the other outcome", undone, endEv(pidO, 32766, 2, commit),
				code(undone, opposite)},
			row{n + "predecessor below 32766", done, endEv(pidO, 32765, 2, commit), code(done, kerr.InvalidProducerIDMapping)},
			row{n + "predecessor, one transaction later", at(completed(commit), 1, tv2, prev(pidO)),
				endEv(pidO, 32766, 2, commit),
				code(at(completed(commit), 1, tv2, prev(pidO)), kerr.InvalidProducerIDMapping)},
			row{n + "predecessor against a running transaction", at(Ongoing, 0, tv2, prev(pidO)), endEv(pidO, 32766, 2, commit),
				code(at(Ongoing, 0, tv2, prev(pidO)), F)},
			row{n + "the epoch below one that ended without a bump is a fenced producer's",
				at(completed(commit), 6, last(5)), endEv(pidP, 5, 2, commit), code(at(completed(commit), 6, last(5)), F)},
			row{n + "the same over a rotation", at(completed(commit), 0, prev(pidO)), endEv(pidO, 32766, 2, commit),
				code(at(completed(commit), 0, prev(pidO)), kerr.InvalidProducerIDMapping)},
			row{n + "retry of the prepared overflow", at(prepared(commit), 32767, idle, tv2), endEv(pidP, 32766, 2, commit),
				code(at(prepared(commit), 32767, idle, tv2), kerr.ConcurrentTransactions)},
			row{n + "32767 does not wrap", at(completed(commit), -32768, tv2), endEv(pidP, 32767, 2, commit),
				code(at(completed(commit), -32768, tv2), F)},
		)
		for _, state := range []State{Ongoing, CompleteCommit, CompleteAbort} {
			ev := endEv(pidP, 32766, 2, false)
			ev.fresh = -1
			rows = append(rows, row{n + "no fresh id at hand in " + state.String(), at(state, 32766, tv2), ev,
				step{txn: at(state, 32766, tv2), do: needPID, out: noOut}})
		}
	}
	top := at(Ongoing, 32767)
	through := top
	through.state, through.updateMs, through.lastEpoch, through.nextPID = PrepareAbort, nowMs, 32767, pidQ
	rows = append(rows,
		row{"32767 found on load: abort goes through without a bump", top, endEv(pidP, 32767, 2, false),
			step{txn: through, do: write | usedPID, out: InitOut{pidQ, 0}}},
		row{"32767 found on load: nobody can commit with it", top, endEv(pidP, 32767, 2, true), code(top, F)})
	run(t, rows)
}
