package coord

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

var errTest = errors.New("no room")

// The crash points of spec/transactions.md 8, as far as they lie in the coordinator: what is on disk, and what the next
// start makes of it. C0 is in pids_test.go, C2b, C10 in reconcile_test.go; C3, C9, C13 and C14 lie in partitions and
// groups.

// C1: InitProducerId appended, no answer.
func TestCrashAfterInit(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.init(InitIn{TxnID: "a", PID: at.PID, Epoch: at.Epoch}).wantOut(t, at.PID, 1)
	n := r.restart(t, nil, r.j.prefix(2))
	n.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).wantOut(t, at.PID, 2) // a harmless gap
	n = r.restart(t, nil, r.j.prefix(2))
	n.init(InitIn{TxnID: "a", PID: at.PID, Epoch: at.Epoch}).wantOut(t, at.PID, 1) // the retry (KIP-360), over the restart
	n = r.restart(t, nil, r.j.prefix(1))
	n.init(InitIn{TxnID: "a", PID: at.PID, Epoch: at.Epoch}).wantOut(t, at.PID, 1) // its record was lost
	n = r.restart(t, nil, r.j.prefix(0))
	n.init(InitIn{TxnID: "a", PID: at.PID, Epoch: at.Epoch}).wantOut(t, 9000, 0)
}

// C2: Ongoing appended, the data not. The registration may be repeated, and an end closes nothing.
func TestCrashAfterAdd(t *testing.T) {
	for _, tv := range []int8{0, 2} {
		r := newRig(t)
		at := r.fresh("a")
		r.add("a", at, tv, tp("x", 0))
		n := r.restart(t, nil, r.j.prefix(2))
		_, done := n.add("a", at, tv, tp("x", 0))
		done.want(t, nil)
		if n.j.End() != 2 {
			t.Fatalf("TV%d: registered again", tv)
		}
		n.end("a", at, tv, true).want(t, nil)
		if m := n.sink.markers(); len(m) != 1 || m[0].redo {
			t.Fatalf("TV%d: %+v", tv, m)
		}
	}
}

// C4: PrepareCommit torn. The transaction is Ongoing; the client's retry decides, or else what is left of the timeout.
func TestCrashBeforePrepare(t *testing.T) {
	for _, tv := range []int8{0, 2} {
		r := newRig(t)
		at := r.fresh("a")
		r.add("a", at, tv, tp("x", 0))
		r.tick(20 * time.Second)
		r.add("a", at, tv, tp("x", 1))
		r.j.hold = true
		r.end("a", at, tv, true).wantNone(t)
		crashed := r.j.crash(0)
		crashed.hold = false
		if len(r.sink.markers()) != 0 {
			t.Fatal("a marker before the decision was durable (I9)")
		}
		n := r.restart(t, nil, crashed.prefix(5))
		if len(n.sink.markers()) != 0 || n.state("a").state != Ongoing {
			t.Fatalf("TV%d: %+v", tv, n.state("a"))
		}
		n.end("a", at, tv, true).want(t, nil)
		if m := n.sink.markers(); len(m) != 2 || !m[0].m.Commit {
			t.Fatalf("TV%d: %+v", tv, m)
		}
		n = r.restart(t, nil, crashed.prefix(5))
		n.tick(39 * time.Second)
		if x := n.state("a"); x.state != Ongoing {
			t.Fatalf("TV%d: aborted before its time: %+v", tv, x)
		}
		n.tick(2 * time.Second)
		if m := n.sink.markers(); len(m) != 2 || m[0].m.Commit || n.state("a").state != CompleteAbort {
			t.Fatalf("TV%d: %+v", tv, n.state("a"))
		}
	}
}

// C5, C6, C7: Prepare durable; none, some or all markers durable; Complete lost. All markers are sent again, with redo;
// the client hears CONCURRENT_TRANSACTIONS and later the result; the outcome is the same (I10).
func TestCrashAfterPrepare(t *testing.T) {
	for _, tv := range []int8{0, 2} {
		for _, commit := range []bool{false, true} {
			for durable := range 4 {
				r := newRig(t)
				at := r.fresh("a")
				r.add("a", at, tv, tp("x", 0), tp("x", 1), tp("y", 0))
				r.sink.hold = true
				r.end("a", at, tv, commit).wantNone(t)
				first := r.sink.markers()
				for _, s := range first[:durable] {
					s.done(nil)
				}
				n := r.restart(t, nil, r.j.prefix(3))
				again := n.sink.markers()
				if len(again) != 3 {
					t.Fatalf("%d markers sent again, want 3", len(again))
				}
				for i, s := range again {
					s.m.CoordEpoch, first[i].m.CoordEpoch = 0, 0
					if !s.redo || s.tp != first[i].tp || s.m != first[i].m {
						t.Fatalf("%+v of the first run became %+v", first[i], s)
					}
				}
				n.end("a", at, tv, commit).want(t, kerr.ConcurrentTransactions)
				n.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
				n.sink.flush()
				n.end("a", at, tv, commit).wantOut(t, at.PID, at.Epoch+int16(tv/2))
				if got := n.state("a"); got.state != completed(commit) || n.j.End() != 4 {
					t.Fatalf("%+v, %d records", got, n.j.End())
				}
			}
		}
	}
}

// C8: Complete durable, not installed, at the highest epoch: pair and retry come from the record.
func TestCrashAfterCompleteOfOverflow(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	x := r.state("a")
	x.epoch = 32766
	start := &fakeJournal{recs: []Record{{encodeKey("a"), encodeValue(&x, -1)}}, synced: 1}
	m := r.restart(t, nil, start)
	at.Epoch = 32766
	m.add("a", at, 2, tp("x", 0))
	p := m.end("a", at, 2, true)
	p.want(t, nil)
	next := p.out
	if next.Epoch != 0 || next.PID == at.PID {
		t.Fatalf("%+v", next)
	}
	for n := int64(3); n <= 4; n++ { // PrepareCommit; CompleteCommit
		c := r.restart(t, nil, m.j.prefix(n))
		got := c.state("a")
		if got.state != CompleteCommit || got.pid != next.PID || got.epoch != 0 || got.prevPID != at.PID {
			t.Fatalf("%d records: %+v", n, got)
		}
		c.end("a", at, 2, true).wantOut(t, next.PID, 0)
		_, done := c.add("a", next, 2, tp("x", 0))
		done.want(t, nil)
	}
}

// C11: the record of a fence is refused. TV1 keeps the raised epoch, and does not raise it again; after a crash it
// raises the stored one.
func TestCrashAfterFailedFence(t *testing.T) {
	for _, tv := range []int8{1, 2} {
		r := newRig(t, func(c *Config) { c.TV = tv })
		at := r.fresh("a")
		r.add("a", at, 0, tp("x", 0))
		r.j.refuse = []error{errTest, errTest}
		r.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.CoordinatorNotAvailable)
		r.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.CoordinatorNotAvailable)
		crashed := r.j.prefix(2)
		r.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
		if m := r.sink.markers(); len(m) != 1 || m[0].m.Epoch != 1 {
			t.Fatalf("TV%d: %+v", tv, m)
		}
		n := r.restart(t, nil, crashed)
		if x := n.state("a"); x.state != Ongoing || x.epoch != 0 {
			t.Fatalf("TV%d: %+v", tv, x)
		}
		n.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
		if m := n.sink.markers(); len(m) != 1 || m[0].m.Epoch != 1 {
			t.Fatalf("TV%d: %+v", tv, m)
		}
	}
}

// C12: the tombstone is durable, the id not removed from memory; or it is lost, and the id is there.
func TestCrashAfterTombstone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IDExpireMs = 1000 })
	r.fresh("a")
	r.j.hold = true
	r.tick(2 * time.Second)
	if r.j.End() != 2 || r.j.recs[1].Value != nil {
		t.Fatalf("%d records", r.j.End())
	}
	if n := r.restart(t, nil, r.j.prefix(2)); len(n.s.entries) != 0 {
		t.Fatalf("%v", stateOf(n.s))
	}
	n := r.restart(t, nil, r.j.prefix(1))
	n.state("a")
	n.tick(2 * time.Second)
	if len(n.s.entries) != 0 || n.j.End() != 2 {
		t.Fatalf("%v, %d records", stateOf(n.s), n.j.End())
	}
}

// The loading mark is gone before markers are sent again: a sink that answers at once has its Complete accepted.
func TestResendAfterLoading(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.sink.hold = true
	r.add("a", at, 2, tp("x", 0))
	r.end("a", at, 2, true)
	r.sink.hold = false
	n := &rig{t: t, j: r.j.prefix(3), clk: r.clk, ids: r.ids}
	loading := true
	n.sink = &fakeSink{before: func(sent) { loading = n.c.all()[0].loading }}
	n.c = New(r.c.cfg, n.ids, n.sink, nil, n.clk)
	defer n.c.Close()
	if err := n.c.Recover(t.Context(), []Journal{n.j}, 8, nil); err != nil {
		t.Fatal(err)
	}
	if n.s = n.c.all()[0]; loading || n.state("a").state != CompleteCommit || n.j.End() != 4 {
		t.Fatalf("loading %v, %+v", loading, n.state("a"))
	}
}
