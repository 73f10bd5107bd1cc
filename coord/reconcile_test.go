package coord

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/batch"
)

// The table of spec/transactions.md 8, each row with the cases on its borders. The open transaction is that of producer
// 7, epoch 3, in x-0.
func TestReconcileTable(t *testing.T) {
	x0 := tp("x", 0)
	at := func(state State, pid int64, epoch, clientTV int16, tps ...TP) *txn {
		v := newTxn(pid)
		v.state, v.epoch, v.clientTV, v.tps = state, epoch, clientTV, tps
		return &v
	}
	prev := func(v *txn, pid int64) *txn { v.prevPID = pid; return v }
	following := func(v *txn, pid int64) *txn { v.nextPID = pid; return v }
	unnamed := TP{Topic: "x"}
	recreated := TP{Topic: "x", ID: [16]byte{9}}
	abort := func(epoch int16) finding { return finding{do: mark, epoch: epoch, version: 2} }
	outcome := func(commit bool, epoch int16) finding { return finding{mark, commit, epoch, 2} }
	for _, c := range []struct {
		name string
		open int16
		t    *txn
		want finding
	}{
		{"Ongoing, same epoch, registered", 3, at(Ongoing, 7, 3, 2, x0), finding{do: leaveOpen}},
		{"the same among others", 3, at(Ongoing, 7, 3, 0, tp("a", 1), x0, tp("x", 1)), finding{do: leaveOpen}},
		{"the same, known by name only", 3, at(Ongoing, 7, 3, 0, unnamed), finding{do: leaveOpen}},

		{"Ongoing, same epoch, another partition registered", 3, at(Ongoing, 7, 3, 2, tp("x", 1)), finding{do: register}},
		{"Ongoing, same epoch, a topic of that name recreated", 3, at(Ongoing, 7, 3, 2, recreated), finding{do: register}},
		{"Empty, same epoch", 3, at(Empty, 7, 3, 0), finding{do: register}},
		{"CompleteCommit, same epoch, TV2", 3, at(CompleteCommit, 7, 3, 2), finding{do: register}},
		{"CompleteAbort, same epoch, TV2", 3, at(CompleteAbort, 7, 3, 2), finding{do: register}},
		{"CompleteCommit, same epoch, TV1", 3, at(CompleteCommit, 7, 3, 0), finding{do: register}},

		{"PrepareCommit, TV2, registered", 3, at(PrepareCommit, 7, 4, 2, x0), finding{do: leaveOpen}},
		{"PrepareCommit, TV2, not registered", 3, at(PrepareCommit, 7, 4, 2), finding{do: join}},
		{"PrepareAbort, TV2, not registered", 3, at(PrepareAbort, 7, 4, 2), finding{do: join}},
		{"PrepareCommit, TV1, not registered", 3, at(PrepareCommit, 7, 3, 0), finding{do: join}},
		{"PrepareAbort, TV1, by its client", 3, at(PrepareAbort, 7, 3, 0), finding{do: join}},
		{"PrepareAbort, TV1, by a fence", 3, at(PrepareAbort, 7, 4, 0), finding{do: join}},
		{"PrepareCommit, TV2, overflow", 32766, at(PrepareCommit, 7, 32767, 2), finding{do: join}},
		{"PrepareCommit of a later transaction, TV2", 3, at(PrepareCommit, 7, 5, 2, x0), abort(5)},
		{"PrepareCommit of a later transaction, TV1", 3, at(PrepareCommit, 7, 4, 0, x0), abort(4)},
		{"PrepareAbort of a later transaction", 3, at(PrepareAbort, 7, 9, 2, x0), abort(9)},
		{"PrepareCommit of the producer id after it", 3, prev(at(PrepareCommit, 8, 4, 2), 7), abort(4)},

		{"PrepareCommit of the one before, TV2", 3, at(PrepareCommit, 7, 3, 2, tp("x", 1)), finding{do: register}},
		{"the same, with this partition in it", 3, at(PrepareCommit, 7, 3, 2, x0), finding{do: register}},
		{"PrepareAbort of the one before, TV2", 3, at(PrepareAbort, 7, 3, 2), finding{do: register}},
		{"PrepareCommit of the one before the overflow", 0, following(at(PrepareCommit, 6, 32767, 2, x0), 7),
			finding{do: register}},
		{"PrepareAbort of the one before the overflow", 0, following(at(PrepareAbort, 6, 32767, 2), 7),
			finding{do: register}},
		{"the same, by the producer id before", 32767, following(at(PrepareCommit, 7, 32767, 2), 8),
			finding{do: mark, epoch: 32767}},
		{"the same, an epoch nobody was given", 1, following(at(PrepareCommit, 6, 32767, 2), 7), abort(2)},
		{"the same, TV1", 0, following(at(PrepareAbort, 6, 32767, 0), 7), abort(1)},

		{"CompleteCommit, TV2, next epoch", 3, at(CompleteCommit, 7, 4, 2), outcome(true, 4)},
		{"CompleteAbort, TV2, next epoch", 3, at(CompleteAbort, 7, 4, 2), outcome(false, 4)},
		{"CompleteCommit, TV2, overflow", 32766, prev(at(CompleteCommit, 8, 0, 2), 7), outcome(true, 32767)},
		{"CompleteAbort, TV2, overflow", 32766, prev(at(CompleteAbort, 8, 0, 2), 7), outcome(false, 32767)},

		{"CompleteCommit, TV1, next epoch", 3, at(CompleteCommit, 7, 4, 0), abort(4)},
		{"CompleteCommit, TV2, two epochs on", 3, at(CompleteCommit, 7, 5, 2), abort(5)},
		{"CompleteCommit of a transaction after the overflow", 32766, prev(at(CompleteCommit, 8, 1, 2), 7), abort(32767)},
		{"CompleteCommit after the overflow, an older epoch", 32765, prev(at(CompleteCommit, 8, 0, 2), 7), abort(32766)},
		{"Ongoing, the epoch after", 3, at(Ongoing, 7, 4, 2, x0), abort(4)},
		{"Ongoing, far above", 3, at(Ongoing, 7, 30, 2, x0), abort(30)},
		{"Ongoing, below the open one", 3, at(Ongoing, 7, 2, 2, x0), abort(4)},
		{"Empty, the epoch after", 3, at(Empty, 7, 4, 0), abort(4)},
		{"of the producer id before, which had another epoch", 3, prev(at(Ongoing, 8, 900, 2), 7), abort(4)},
		{"of the producer id before, same epoch by chance", 3, prev(at(Empty, 8, 3, 0), 7), abort(4)},
		{"nothing found", 3, nil, abort(4)},
		{"nothing found, highest epoch a client has", 32766, nil, abort(32767)},
		{"nothing found, highest epoch", 32767, nil, finding{do: mark, epoch: 32767}},
		{"highest epoch, Ongoing at it, registered", 32767, at(Ongoing, 7, 32767, 2, x0), finding{do: leaveOpen}},
		{"highest epoch, Complete with another producer id", 32767, prev(at(CompleteAbort, 8, 0, 2), 7),
			finding{do: mark, epoch: 32767}},
	} {
		if got := reconcile(OpenTxn{TP: x0, PID: 7, Epoch: c.open}, c.t, true); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := reconcile(OpenTxn{TP: x0, PID: 7, Epoch: 3}, nil, false); got != (finding{do: leaveOpen}) {
		t.Errorf("nothing found, but not everything was read: %+v", got)
	}
}

// No verdict commits what its id did not decide to commit, and an abort always lies above the open epoch, as long as
// one does.
func TestReconcileProperties(t *testing.T) {
	x0 := tp("x", 0)
	n := 0
	for state := Empty; state <= CompleteAbort; state++ {
		for _, pid := range []int64{7, 8} {
			for _, prevPID := range []int64{-1, 7} {
				for _, clientTV := range []int16{0, 2} {
					for _, epoch := range []int16{0, 1, 2, 3, 4, 5, 32765, 32766, 32767} {
						for _, open := range []int16{0, 1, 2, 3, 4, 32765, 32766, 32767} {
							v := newTxn(pid)
							v.state, v.prevPID, v.clientTV, v.epoch = state, prevPID, clientTV, epoch
							f := reconcile(OpenTxn{TP: x0, PID: 7, Epoch: open}, &v, true)
							n++
							switch {
							case f.commit && state != CompleteCommit:
								t.Fatalf("%+v: commits in %s", v, state)
							case f.do == mark && f.epoch <= open && open != math.MaxInt16:
								t.Fatalf("%+v: marker of epoch %d over %d", v, f.epoch, open)
							case f.do == mark && f.version == 2 && f.epoch == open:
								t.Fatalf("%+v: a marker of version 2 must lie above", v)
							case (f.do == register || f.do == join) && pid != 7:
								t.Fatalf("%+v: registered with another producer id", v)
							case f.do == register && epoch != open:
								t.Fatalf("%+v: registered with epoch %d", v, open)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d cases", n)
}

// found is an open transaction of a pair.
func found(at InitOut, tps ...TP) (open []OpenTxn) {
	for _, tp := range tps {
		open = append(open, OpenTxn{TP: tp, PID: at.PID, Epoch: at.Epoch})
	}
	return open
}

// C2b: the batch reached the disk, its registration did not, and nothing was answered. Its owner ends it, or the
// timeout.
func TestReconcileRegisters(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	n := r.restart(t, found(at, tp("x", 0), tp("x", 1), tp("y", 0)), r.j.prefix(1)) // Empty
	x := n.state("a")
	want := []TP{tp("x", 0), tp("x", 1), tp("y", 0)}
	if x.state != Ongoing || !reflect.DeepEqual(x.tps, want) || x.startMs != n.clk.Wall() {
		t.Fatalf("%+v", x)
	}
	l, err := DecodeRecord(n.j.recs[len(n.j.recs)-1])
	if err != nil || l.State != Ongoing || len(l.TPs) != 3 {
		t.Fatalf("last record %+v, %v", l, err)
	}
	n.end("a", at, 2, true).wantOut(t, at.PID, at.Epoch+1)
	if m := n.sink.markers(); len(m) != 3 || !m[0].m.Commit {
		t.Fatalf("%+v", m)
	}

	n = r.restart(t, found(at, tp("x", 1)), r.j.prefix(2)) // Ongoing with x-0
	if x := n.state("a"); len(x.tps) != 2 {
		t.Fatalf("%+v", x)
	}
	n.tick(61 * time.Second)
	if m := n.sink.markers(); len(m) != 2 || m[0].m.Commit || m[0].m.Epoch != at.Epoch+1 {
		t.Fatalf("after the timeout: %+v", m)
	}
}

// Complete and the registration of the next transaction were lost in one flush: its partition is registered once the
// decided one is completed, and gets nothing before. So it is at a start, and while requests are served, also where the
// decided one had no epoch left.
func TestReconcileRegistersBehindDecided(t *testing.T) {
	for _, high := range []bool{false, true} {
		for _, serving := range []bool{false, true} {
			r := newRig(t)
			at := r.fresh("a")
			if high {
				r.s.entries["a"].t.epoch, at.Epoch = maxClientEpoch, maxClientEpoch
			}
			r.add("a", at, 2, tp("x", 0))
			after := r.end("a", at, 2, true).out
			if high != (after.PID != at.PID) {
				t.Fatalf("behind %+v comes %+v", at, after)
			}
			open := found(after, tp("x", 0))
			n := &rig{t: t, j: r.j.prefix(3), clk: r.clk, ids: r.ids, sink: &fakeSink{hold: true}}
			n.c = New(r.c.cfg, n.ids, n.sink, nil, n.clk)
			t.Cleanup(n.c.Close)
			atStart := open
			if serving {
				atStart = nil
			}
			if err := n.c.Recover(t.Context(), []Journal{n.j}, 8, atStart); err != nil {
				t.Fatal(err)
			}
			if n.s = n.c.all()[0]; serving {
				n.c.Reconcile(open, always, func() {})
			}
			n.tick(300 * time.Millisecond)
			m := n.sink.markers()
			if x := n.state("a"); x.state != PrepareCommit || len(m) != 1 || m[0].m.PID != at.PID {
				t.Fatalf("high %v, serving %v: %+v, markers %+v", high, serving, x, m)
			}
			n.j.refuse = []error{nil, errTest}
			n.sink.flush()
			if x := n.state("a"); x.state != CompleteCommit {
				t.Fatalf("high %v, serving %v: %+v", high, serving, x)
			}
			_, done := n.add("a", after, 2, tp("x", 1))
			done.want(t, kerr.ConcurrentTransactions) // held back
			n.tick(100 * time.Millisecond)
			if x := n.state("a"); x.state != Ongoing || !reflect.DeepEqual(x.tps, []TP{tp("x", 0)}) {
				t.Fatalf("high %v, serving %v: %+v", high, serving, x)
			}
			ended := n.end("a", after, 2, true)
			n.sink.flush()
			ended.want(t, nil)
			if m := n.sink.markers(); len(m) != 2 || !m[1].m.Commit || m[1].m.PID != after.PID {
				t.Fatalf("high %v, serving %v: %+v", high, serving, m)
			}
		}
	}
}

// A registration that the journal refuses for a while is made later.
func TestReconcileRegistersAgain(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	j := r.j.prefix(1)
	j.refuse = []error{errTest, errTest, errTest}
	n := r.restart(t, found(at, tp("x", 0)), j)
	if x := n.state("a"); x.state != Empty {
		t.Fatalf("%+v", x)
	}
	n.tick(100 * time.Millisecond)
	n.tick(200 * time.Millisecond)
	if x := n.state("a"); x.state != Empty {
		t.Fatalf("before the third try: %+v", x)
	}
	n.tick(400 * time.Millisecond)
	if x := n.state("a"); x.state != Ongoing || len(x.tps) != 1 {
		t.Fatalf("%+v", x)
	}
	// Until then its owner must not go on: what it wrote next would get one outcome with what is open.
	j = r.j.prefix(1)
	j.refuse = []error{errTest}
	n = r.restart(t, found(at, tp("x", 0)), j)
	n.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
	n.end("a", at, 2, false).want(t, kerr.ConcurrentTransactions)
	_, done := n.add("a", at, 2, tp("x", 1))
	done.want(t, kerr.ConcurrentTransactions)
	if j.End() != 1 {
		t.Fatalf("%d records while the id is held back", j.End())
	}
	n.tick(100 * time.Millisecond)
	n.end("a", at, 2, false).want(t, nil)
	if m := n.sink.markers(); len(m) != 1 || m[0].tp != tp("x", 0) || m[0].m.Commit {
		t.Fatalf("%+v", m)
	}
}

// So it is with a marker that belongs to no completion: the id goes on when it is there.
func TestReconcileHoldsBackUntilMarked(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IDExpireMs = 1000 })
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.end("a", at, 2, true).want(t, nil)
	n := &rig{t: t, j: r.j.prefix(4), clk: r.clk, ids: r.ids, sink: &fakeSink{hold: true}}
	n.c = New(r.c.cfg, n.ids, n.sink, nil, n.clk)
	defer n.c.Close()
	if err := n.c.Recover(t.Context(), []Journal{n.j}, 8, found(at, tp("x", 0))); err != nil {
		t.Fatal(err)
	}
	n.s = n.c.all()[0]
	at.Epoch++
	_, done := n.add("a", at, 2, tp("x", 0))
	done.want(t, kerr.ConcurrentTransactions)
	n.tick(3 * time.Second) // its expiry waits too
	if n.state("a").state != CompleteCommit || n.j.End() != 4 {
		t.Fatalf("%+v", n.state("a"))
	}
	n.sink.flush()
	_, done = n.add("a", at, 2, tp("x", 0))
	done.want(t, nil)
}

// An unregistered partition of a decided transaction gets its marker with the others.
func TestReconcileJoins(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.sink.hold = true
	r.add("a", at, 2, tp("x", 0))
	r.end("a", at, 2, true)
	n := r.restart(t, found(at, tp("x", 0), tp("z", 5)), r.j.prefix(3)) // PrepareCommit with x-0
	m := n.sink.markers()
	if len(m) != 2 || m[0].tp != tp("x", 0) || m[1].tp != tp("z", 5) {
		t.Fatalf("%+v", m)
	}
	for _, s := range m {
		want := batch.Marker{PID: at.PID, Epoch: at.Epoch + 1, CoordEpoch: 8, Version: 2, Commit: true, Time: n.clk.Wall()}
		if s.m != want || !s.redo {
			t.Fatalf("marker %+v, redo %v", s.m, s.redo)
		}
	}
	if n.sink.flush(); n.state("a").state != CompleteCommit {
		t.Fatalf("%+v", n.state("a"))
	}
}

// C10, and what nobody owns: a marker of its own, repeated until it is there.
func TestReconcileMarks(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.end("a", at, 2, true).want(t, nil)
	orphan := OpenTxn{TP: tp("y", 1), PID: 77, Epoch: 5}
	n := &rig{t: t, j: r.j.prefix(4), clk: r.clk, ids: r.ids}
	n.sink = &fakeSink{fail: map[TP][]error{tp("x", 0): {errTest, errTest}, tp("y", 1): {ErrFenced}}}
	gaveUp := 0
	cfg := r.c.cfg
	cfg.Events.GaveUp = func(tp TP, err error) { gaveUp++ }
	n.c = New(cfg, n.ids, n.sink, nil, n.clk)
	if err := n.c.Recover(t.Context(), []Journal{n.j}, 8, append(found(at, tp("x", 0)), orphan)); err != nil {
		t.Fatal(err)
	}
	n.tick(100 * time.Millisecond)
	n.tick(200 * time.Millisecond)
	n.tick(10 * time.Second)
	var x, y []sent
	for _, s := range n.sink.markers() {
		if s.tp == tp("x", 0) {
			x = append(x, s)
		} else {
			y = append(y, s)
		}
	}
	if len(x) != 3 || len(y) != 1 || gaveUp != 1 {
		t.Fatalf("%d markers to x-0, %d to y-1, gave up %d; want 3, 1, 1", len(x), len(y), gaveUp)
	}
	want := batch.Marker{PID: at.PID, Epoch: at.Epoch + 1, CoordEpoch: 8, Version: 2, Commit: true, Time: x[0].m.Time}
	if x[2].m != want || !x[2].redo {
		t.Errorf("the missing marker is %+v, redo %v; want %+v", x[2].m, x[2].redo, want)
	}
	want = batch.Marker{PID: 77, Epoch: 6, CoordEpoch: 8, Version: 2, Time: y[0].m.Time}
	if y[0].m != want {
		t.Errorf("the orphan's marker is %+v, want %+v", y[0].m, want)
	}
	if got := n.c.all()[0].entries["a"].t.state; got != CompleteCommit {
		t.Errorf("a is %s", got)
	}
	n.c.Close()
}
