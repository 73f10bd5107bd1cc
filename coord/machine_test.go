package coord

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

const (
	pidP  = 100 // the producer id of the tables
	pidO  = 90  // its predecessor
	pidQ  = 500 // the fresh one
	nowMs = 5000
)

// at is metadata in a state with an epoch; more sets what a row differs in.
func at(state State, epoch int16, more ...func(*txn)) txn {
	t := newTxn(pidP)
	t.state, t.epoch, t.timeoutMs, t.updateMs = state, epoch, 1000, 4000
	t.pending = afterInstall(state)
	switch state {
	case Ongoing, PrepareCommit, PrepareAbort:
		t.tps, t.startMs = []TP{tp("a", 0)}, 3000
	case CompleteCommit, CompleteAbort:
		t.startMs = 3000
	}
	for _, fn := range more {
		fn(&t)
	}
	return t
}

func last(epoch int16) func(*txn) { return func(t *txn) { t.lastEpoch = epoch } }
func prev(pid int64) func(*txn)   { return func(t *txn) { t.prevPID = pid } }
func tv2(t *txn)                  { t.clientTV = 2 }
func idle(t *txn)                 { t.pending = noState } // no transition under way, which a Prepare state never is
func moving(to State) func(*txn)  { return func(t *txn) { t.pending = to } }
func with(tps ...TP) func(*txn)   { return func(t *txn) { t.tps = sortTPs(tps) } }
func then(t txn, f ...func(*txn)) txn {
	for _, fn := range f {
		fn(&t)
	}
	return t
}

// row is one row of a table: what next must answer.
type row struct {
	name string
	t    txn
	ev   event
	want step
}

func code(t txn, c *kerr.Error) step { return step{txn: t, code: c, out: noOut} }

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Helper()
			before := fmt.Sprint(r.t)
			got := next(r.t, r.ev)
			if !reflect.DeepEqual(got, r.want) {
				t.Errorf("from %+v\n got %+v\nwant %+v", r.t, got, r.want)
			}
			if fmt.Sprint(r.t) != before {
				t.Errorf("next changed its argument to %+v", r.t)
			}
		})
	}
}

// initEv is InitProducerId with an expected pair, pid -1 for none.
func initEv(pid int64, epoch int16) event {
	return event{kind: evInit, pid: pid, epoch: epoch, timeoutMs: 2000, tv: 2, nowMs: nowMs, fresh: pidQ}
}

// emptied is the Empty state that an InitProducerId writes.
func emptied(from txn, pid int64, epoch, lastEpoch int16) step {
	n := from
	n.state, n.tps, n.startMs, n.clientTV, n.timeoutMs, n.updateMs = Empty, nil, -1, 0, 2000, nowMs
	do := write
	if pid != from.pid {
		n.prevPID = from.pid
		do |= usedPID
	}
	n.pid, n.epoch, n.lastEpoch = pid, epoch, lastEpoch
	return step{txn: n, do: do, out: InitOut{pid, epoch}}
}

// TestInitProducerIdTable is spec/transactions.md 5.1, steps 10 to 12, with E1 to E5.
func TestInitProducerIdTable(t *testing.T) {
	created := newTxn(pidP)
	rows := []row{
		{"E1 created", created, initEv(-1, -1), emptied(created, pidP, 0, -1)},
		{"E1 expired id revived with its old pair", created, initEv(7, 12), emptied(created, pidP, 0, -1)},
		{"created, transition under way", then(created, moving(Empty)), initEv(-1, -1),
			code(then(created, moving(Empty)), kerr.ConcurrentTransactions)},
	}
	for _, state := range []State{Empty, CompleteCommit, CompleteAbort} {
		s := func(epoch int16, more ...func(*txn)) txn { return at(state, epoch, more...) }
		n := state.String() + ": "
		busy := s(5, moving(Ongoing))
		rows = append(rows,
			row{n + "under way", busy, initEv(-1, -1), code(busy, kerr.ConcurrentTransactions)},
			row{n + "under way before the expected pair", busy, initEv(1, 1), code(busy, kerr.ConcurrentTransactions)},
			row{n + "E2 none expected", s(5, last(4)), initEv(-1, -1), emptied(s(5), pidP, 6, -1)},
			row{n + "E2 at 32765", s(32765), initEv(-1, -1), emptied(s(32765), pidP, 32766, -1)},
			row{n + "E3 expected", s(5, last(4)), initEv(pidP, 5), emptied(s(5), pidP, 6, 5)},
			row{n + "E3 at 32765", s(32765), initEv(pidP, 32765), emptied(s(32765), pidP, 32766, 32765)},
			row{n + "E4 retry", s(6, last(5)), initEv(pidP, 5), emptied(s(6), pidP, 6, 5)},
			row{n + "E4 retry at 32766", s(32766, last(32765)), initEv(pidP, 32765), emptied(s(32766), pidP, 32766, 32765)},
			row{n + "E5 none expected, 32766", s(32766), initEv(-1, -1), emptied(s(32766), pidQ, 0, -1)},
			row{n + "E5 none expected, 32767", s(32767), initEv(-1, -1), emptied(s(32767), pidQ, 0, -1)},
			row{n + "E5 expected, 32766", s(32766), initEv(pidP, 32766), emptied(s(32766), pidQ, 0, 32766)},
			row{n + "E5 expected, 32767", s(32767), initEv(pidP, 32767), emptied(s(32767), pidQ, 0, 32767)},
			row{n + "E4 retry of a rotation", s(0, prev(pidO), last(32766)), initEv(pidO, 32766),
				emptied(s(0, prev(pidO)), pidP, 0, 32766)},
			row{n + "rotation by somebody else", s(0, prev(pidO)), initEv(pidO, 32766),
				code(s(0, prev(pidO)), kerr.ProducerFenced)},
			row{n + "predecessor's epoch meets the current one", s(32766, prev(pidO), last(32765)), initEv(pidO, 32766),
				code(s(32766, prev(pidO), last(32765)), kerr.ProducerFenced)},
			row{n + "predecessor below 32766", s(0, prev(pidO), last(5)), initEv(pidO, 5),
				code(s(0, prev(pidO), last(5)), kerr.ProducerFenced)},
			row{n + "older epoch", s(6, last(5)), initEv(pidP, 4), code(s(6, last(5)), kerr.ProducerFenced)},
			row{n + "newer epoch", s(6, last(5)), initEv(pidP, 7), code(s(6, last(5)), kerr.ProducerFenced)},
			row{n + "older epoch at 32766", s(32766), initEv(pidP, 4), code(s(32766), kerr.ProducerFenced)},
			row{n + "other producer id", s(6), initEv(7, 6), code(s(6), kerr.ProducerFenced)},
		)
		none := initEv(-1, -1)
		none.fresh = -1
		rows = append(rows, row{n + "no fresh id at hand", s(32766), none, step{txn: s(32766), do: needPID, out: noOut}})
	}
	for _, state := range []State{PrepareCommit, PrepareAbort} {
		for _, ev := range []event{initEv(-1, -1), initEv(pidP, 5)} {
			rows = append(rows,
				row{state.String(), at(state, 5, idle), ev, code(at(state, 5, idle), kerr.ConcurrentTransactions)},
				row{state.String() + " under way", at(state, 5), ev, code(at(state, 5), kerr.ConcurrentTransactions)})
		}
	}
	run(t, rows)
}

// TestFenceTable is E10 and E11: InitProducerId on Ongoing, and the timeout, of a server at both levels (KAFKA-20090).
// One who names another epoch than the current is refused and ends nothing, other than at Kafka.
func TestFenceTable(t *testing.T) {
	var rows []row
	for _, r := range []struct {
		tv              int8
		epoch, want     int16
		wantLast, wantC int16
		wantNext        int64
		do              effect
	}{
		{tv: 0, epoch: 0, want: 1, wantLast: -1, wantC: 0, wantNext: -1, do: write | keepEpoch},
		{tv: 1, epoch: 5, want: 6, wantLast: -1, wantC: 0, wantNext: -1, do: write | keepEpoch},
		{tv: 1, epoch: 32765, want: 32766, wantLast: -1, wantC: 0, wantNext: -1, do: write | keepEpoch},
		{tv: 1, epoch: 32766, want: 32767, wantLast: -1, wantC: 0, wantNext: -1, do: write | keepEpoch},
		{tv: 1, epoch: 32767, want: 32767, wantLast: 3, wantC: 0, wantNext: -1, do: write},
		{tv: 2, epoch: 0, want: 1, wantLast: 0, wantC: 2, wantNext: -1, do: write},
		{tv: 2, epoch: 5, want: 6, wantLast: 5, wantC: 2, wantNext: -1, do: write},
		{tv: 2, epoch: 32765, want: 32766, wantLast: 32765, wantC: 2, wantNext: -1, do: write},
		{tv: 2, epoch: 32766, want: 32767, wantLast: 32766, wantC: 2, wantNext: pidQ, do: write | usedPID},
		{tv: 2, epoch: 32767, want: 32767, wantLast: 3, wantC: 0, wantNext: -1, do: write},
	} {
		from := at(Ongoing, r.epoch, last(3), tv2)
		n := from
		n.state, n.updateMs = PrepareAbort, nowMs
		n.epoch, n.lastEpoch, n.clientTV, n.nextPID = r.want, r.wantLast, r.wantC, r.wantNext
		want := step{txn: n, do: r.do, out: noOut}
		name := fmt.Sprintf("TV%d at %d: ", r.tv, r.epoch)
		timeout := event{kind: evTimeout, tv: r.tv, nowMs: nowMs, fresh: pidQ}
		rows = append(rows, row{name + "timeout", from, timeout, want})
		want.code = kerr.ConcurrentTransactions
		for _, ev := range []event{initEv(-1, -1), initEv(pidP, r.epoch)} {
			ev.tv = r.tv
			rows = append(rows, row{name + "InitProducerId", from, ev, want})
		}
		for _, other := range []int16{1, 3, r.epoch + 1} {
			rows = append(rows, row{name + "another epoch", from, initEv(pidP, other), code(from, kerr.ProducerFenced)})
		}
		rows = append(rows, row{name + "other producer id", from, initEv(7, r.epoch), code(from, kerr.ProducerFenced)})
		if r.do&usedPID != 0 {
			timeout.fresh = -1
			rows = append(rows, row{name + "no fresh id", from, timeout, step{txn: from, do: needPID, out: noOut}})
		}
	}
	for _, epoch := range []int16{6, 32766} {
		failed := at(Ongoing, epoch, func(t *txn) { t.fenceFailed = true })
		once := failed
		once.state, once.updateMs, once.fenceFailed = PrepareAbort, nowMs, false
		rows = append(rows, row{"TV1: a fence whose record was refused is not raised twice (C11)", failed,
			event{kind: evTimeout, tv: 1, nowMs: nowMs}, step{txn: once, do: write | keepEpoch, out: noOut}})
	}
	for _, state := range []State{Empty, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort} {
		rows = append(rows, row{"timeout in " + state.String(), at(state, 5, idle),
			event{kind: evTimeout, tv: 2, nowMs: nowMs}, step{txn: at(state, 5, idle), out: noOut}})
	}
	busy := at(Ongoing, 5, moving(PrepareCommit))
	rows = append(rows, row{"timeout while the decision is under way", busy,
		event{kind: evTimeout, tv: 2, nowMs: nowMs}, step{txn: busy, out: noOut}})
	run(t, rows)
}

func addEv(pid int64, epoch int16, tv int8, tps ...TP) event {
	return event{kind: evAdd, pid: pid, epoch: epoch, tv: tv, tps: sortTPs(tps), nowMs: nowMs, fresh: -1}
}

// TestAddPartitionsTable is spec/transactions.md 5.2, verifyOnly = false, with E6.
func TestAddPartitionsTable(t *testing.T) {
	var rows []row
	for state := Empty; state <= CompleteAbort; state++ {
		n := state.String() + ": "
		s := at(state, 5, idle)
		busy := at(state, 5, moving(Dead))
		rows = append(rows,
			row{n + "under way", busy, addEv(pidP, 5, 0, tp("a", 0)), code(busy, kerr.ConcurrentTransactions)},
			row{n + "under way, other pid", busy, addEv(7, 5, 0, tp("a", 0)), code(busy, kerr.ConcurrentTransactions)},
			row{n + "other pid", s, addEv(7, 5, 0, tp("a", 0)), code(s, kerr.InvalidProducerIDMapping)},
			row{n + "lower epoch", s, addEv(pidP, 4, 0, tp("a", 0)), code(s, kerr.ProducerFenced)},
			row{n + "higher epoch", s, addEv(pidP, 6, 0, tp("a", 0)), code(s, kerr.ProducerFenced)},
		)
		if state == PrepareCommit || state == PrepareAbort {
			rows = append(rows, row{n + "decided", s, addEv(pidP, 5, 2, tp("a", 0)), code(s, kerr.ConcurrentTransactions)})
			continue
		}
		for _, tv := range []int8{0, 2} {
			want := s
			want.state, want.updateMs, want.clientTV = Ongoing, nowMs, int16(tv)
			want.tps = []TP{tp("b", 0), tp("b", 1)}
			if state == Ongoing {
				want.tps = []TP{tp("a", 0), tp("b", 0), tp("b", 1)}
			} else {
				want.startMs = nowMs
			}
			rows = append(rows, row{fmt.Sprintf("%sE6 TV%d", n, tv), s, addEv(pidP, 5, tv, tp("b", 1), tp("b", 0)),
				step{txn: want, do: write | early, out: noOut}})
		}
	}
	two := at(Ongoing, 5, with(tp("a", 0), tp("b", 3)))
	again := tp("a", 0)
	again.ID[0]++
	more := two
	more.tps, more.updateMs = sortTPs([]TP{tp("a", 0), again, tp("b", 3)}), nowMs
	rows = append(rows,
		row{"all there: no write, no time", two, addEv(pidP, 5, 2, tp("b", 3)), step{txn: two, out: noOut}},
		row{"the topic made anew is another one", two, addEv(pidP, 5, 0, again),
			step{txn: more, do: write | early, out: noOut}})
	run(t, rows)
}

// TestVerifyTable is spec/transactions.md 5.2, verifyOnly = true.
func TestVerifyTable(t *testing.T) {
	in, out := tp("a", 0), tp("a", 1)
	anew := in
	anew.ID[0]++
	for _, r := range []struct {
		name  string
		t     txn
		known bool
		pid   int64
		epoch int16
		tp    TP
		want  *kerr.Error
	}{
		{"no metadata", txn{}, false, pidP, 5, in, kerr.InvalidProducerIDMapping},
		{"other pid", at(Ongoing, 5), true, 7, 5, in, kerr.InvalidProducerIDMapping},
		{"lower epoch", at(Ongoing, 5), true, pidP, 4, in, kerr.ProducerFenced},
		{"higher epoch", at(Ongoing, 5), true, pidP, 6, in, kerr.ProducerFenced},
		{"PrepareCommit", at(PrepareCommit, 5), true, pidP, 5, in, kerr.ConcurrentTransactions},
		{"PrepareAbort", at(PrepareAbort, 5), true, pidP, 5, in, kerr.ConcurrentTransactions},
		{"there", at(Ongoing, 5), true, pidP, 5, in, nil},
		{"there, a transition under way", at(Ongoing, 5, moving(PrepareCommit)), true, pidP, 5, in, nil},
		{"not there", at(Ongoing, 5), true, pidP, 5, out, kerr.TransactionAbortable},
		{"the topic made anew", at(Ongoing, 5), true, pidP, 5, anew, kerr.TransactionAbortable},
		{"Empty", at(Empty, 5), true, pidP, 5, in, kerr.TransactionAbortable},
		{"CompleteCommit", at(CompleteCommit, 5), true, pidP, 5, in, kerr.TransactionAbortable},
		{"CompleteAbort", at(CompleteAbort, 5), true, pidP, 5, in, kerr.TransactionAbortable},
	} {
		if got := verifyAdd(r.t, r.known, r.pid, r.epoch, r.tp); got != r.want {
			t.Errorf("%s: %v, want %v", r.name, got, r.want)
		}
	}
}

// TestCompleteTable is E12, the pair of the next transaction included.
func TestCompleteTable(t *testing.T) {
	for _, r := range []struct {
		from, want State
	}{{PrepareCommit, CompleteCommit}, {PrepareAbort, CompleteAbort}} {
		from := at(r.from, 6, last(5), tv2, prev(pidO))
		n := from
		n.state, n.tps, n.updateMs = r.want, nil, nowMs
		over := at(r.from, 32767, last(32766), tv2, func(t *txn) { t.nextPID = pidQ })
		o := over
		o.state, o.tps, o.updateMs = r.want, nil, nowMs
		o.pid, o.epoch, o.prevPID, o.nextPID = pidQ, 0, pidP, -1
		ev := event{kind: evComplete, nowMs: nowMs, fresh: -1}
		run(t, []row{
			{r.from.String(), from, ev, step{txn: n, do: write | early | lazy, out: InitOut{pidP, 6}}},
			{r.from.String() + " with overflow", over, ev, step{txn: o, do: write | early | lazy, out: InitOut{pidQ, 0}}},
		})
	}
}

// TestExpireTable is E13.
func TestExpireTable(t *testing.T) {
	for state := Empty; state <= CompleteAbort; state++ {
		s := at(state, 5, idle)
		want := step{txn: s, out: noOut}
		if state == Empty || state == CompleteCommit || state == CompleteAbort {
			want.txn.state, want.do = Dead, write|tombstone
		}
		busy := at(state, 5, moving(Empty))
		run(t, []row{
			{state.String(), s, event{kind: evExpire, nowMs: nowMs}, want},
			{state.String() + " under way", busy, event{kind: evExpire, nowMs: nowMs}, step{txn: busy, out: noOut}},
		})
	}
}

// TestDropTable: partitions of deleted topics leave a transaction in whatever state, and nothing else changes.
func TestDropTable(t *testing.T) {
	gone := map[[16]byte]bool{tp("a", 0).ID: true}
	ev := event{kind: evDrop, gone: gone, nowMs: nowMs}
	for _, state := range []State{Ongoing, PrepareCommit, PrepareAbort} {
		both, other := at(state, 5, with(tp("a", 0), tp("b", 0), tp("a", 2))), at(state, 5, with(tp("b", 0)))
		run(t, []row{
			{state.String(), both, ev, step{txn: other, do: write | early, out: noOut}},
			{state.String() + " untouched", other, ev, step{txn: other, out: noOut}},
		})
	}
}

// TestSetsOfPartitions compares union and contains with maps.
func TestSetsOfPartitions(t *testing.T) {
	gen := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) TP {
		p := tp(rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "topic"), rapid.Int32Range(0, 4).Draw(t, "partition"))
		p.ID[15] = byte(rapid.IntRange(0, 1).Draw(t, "id"))
		return p
	}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		a, b := sortTPs(gen.Draw(t, "a")), sortTPs(gen.Draw(t, "b"))
		set := make(map[TP]bool)
		for _, p := range slices.Concat(a, b) {
			set[p] = true
		}
		u := union(a, b)
		if len(u) != len(set) || !slices.IsSortedFunc(u, compareTPs) {
			t.Fatalf("union of %v and %v is %v", a, b, u)
		}
		for _, p := range u {
			if !set[p] {
				t.Fatalf("%v is in neither", p)
			}
		}
		if !contains(u, a) || !contains(u, b) || contains(a, b) != (len(u) == len(a)) {
			t.Fatalf("contains is wrong for %v and %v", a, b)
		}
	})
}
