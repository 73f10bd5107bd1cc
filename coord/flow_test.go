package coord

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// logged decodes the states in the journal, in order.
func (r *rig) logged() []string {
	r.t.Helper()
	var got []string
	err := r.j.Replay(0, func(_ int64, rec Record) error {
		l, err := DecodeRecord(rec)
		if err != nil {
			return err
		}
		if rec.Value == nil {
			got = append(got, "tombstone")
			return nil
		}
		got = append(got, fmt.Sprintf("%v %d/%d", l.State, l.PID, l.Epoch))
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) wantLog(want ...string) {
	r.t.Helper()
	if got := r.logged(); !slices.Equal(got, want) {
		r.t.Fatalf("journal holds %q, want %q", got, want)
	}
}

func TestCommitTV2IsDecidedBeforeMarkersAndAnsweredAfter(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.j.hold, r.sink.hold = true, true
	written, done := r.add("x", at, 2, tp("a", 0), tp("b", 1))
	written.want(t, nil)
	done.wantNone(t)
	r.j.flush()
	done.want(t, nil)

	p := r.end("x", at, 2, true)
	p.wantNone(t)
	if n := len(r.sink.markers()); n != 0 {
		t.Fatalf("%d markers before the decision is durable (I9)", n)
	}
	r.j.flush()
	sent := r.sink.markers()
	if len(sent) != 2 || sent[0].tp != tp("a", 0) || sent[1].tp != tp("b", 1) {
		t.Fatalf("markers %v, want one for each of two partitions", sent)
	}
	for _, m := range sent {
		if m.m.PID != at.PID || m.m.Epoch != 1 || m.m.Version != 2 || !m.m.Commit || m.m.CoordEpoch != 7 || m.redo {
			t.Fatalf("marker %+v, want commit of the raised epoch by coordinator epoch 7", m)
		}
	}
	p.wantNone(t)
	r.wantLog("Empty 4000/0", "Ongoing 4000/0", "PrepareCommit 4000/1")
	r.end("x", at, 2, true).want(t, kerr.ConcurrentTransactions)
	r.sink.flush()
	p.wantOut(t, 4000, 1) // Complete is installed, its flush is not waited for
	r.wantLog("Empty 4000/0", "Ongoing 4000/0", "PrepareCommit 4000/1", "CompleteCommit 4000/1")
	r.end("x", at, 2, true).wantOut(t, 4000, 1) // the retry
	if got := r.state("x"); got.state != CompleteCommit || got.tps != nil || got.pending != noState {
		t.Fatalf("after the commit: %+v", got)
	}
	r.j.flush()
}

func TestCommitTV1KeepsTheEpoch(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	for range 2 {
		_, done := r.add("x", at, 0, tp("a", 0))
		done.want(t, nil)
		r.end("x", at, 0, true).wantOut(t, at.PID, at.Epoch)
		r.end("x", at, 0, true).wantOut(t, at.PID, at.Epoch)
		r.end("x", at, 0, false).want(t, kerr.InvalidTxnState)
	}
	for _, m := range r.sink.markers() {
		if m.m.Epoch != 0 || m.m.Version != 0 {
			t.Fatalf("marker %+v, want epoch 0 of version 0", m.m)
		}
	}
}

func TestEndIsAnsweredWithinASecondOfTheDecision(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	r.sink.hold = true
	p := r.end("x", at, 2, true)
	r.tick(800 * time.Millisecond)
	p.wantNone(t)
	r.tick(200 * time.Millisecond)
	p.wantOut(t, at.PID, 1)
	if got := r.state("x"); got.state != PrepareCommit {
		t.Fatalf("state %v, want PrepareCommit while the marker is awaited", got.state)
	}
	r.add("x", InitOut{at.PID, 1}, 2, tp("a", 0))
	r.sink.flush()
	p.wantOut(t, at.PID, 1)
	if got := r.state("x"); got.state != CompleteCommit {
		t.Fatalf("state %v, want CompleteCommit", got.state)
	}
}

func TestPartitionsOfOneFlushRoundShareIt(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.j.hold = true
	w1, d1 := r.add("x", at, 2, tp("a", 0))
	w2, d2 := r.add("x", at, 2, tp("a", 1))
	w3, d3 := r.add("x", at, 2, tp("a", 0)) // there already, not durable yet
	for _, w := range []*reply{w1, w2, w3} {
		w.want(t, nil)
	}
	verified := 0
	r.c.Verify(Part{"x", at.PID, at.Epoch, 0, []TP{tp("a", 0), tp("a", 9)}}, func(codes []*kerr.Error) {
		verified++
		if !slices.Equal(codes, []*kerr.Error{nil, kerr.TransactionAbortable}) {
			t.Errorf("verified %v", codes)
		}
	})
	for _, d := range []*reply{d1, d2, d3} {
		d.wantNone(t) // I8: nothing is acknowledged before the registration is durable
	}
	if verified != 0 {
		t.Fatal("verified before the registration is durable")
	}
	if got := r.logged(); len(got) != 3 {
		t.Fatalf("journal %q, want one record for each new partition and none for the known one", got)
	}
	p := r.end("x", at, 2, true)
	r.j.flush()
	for _, d := range []*reply{d1, d2, d3} {
		d.want(t, nil)
	}
	if verified != 1 {
		t.Fatalf("verified %d times", verified)
	}
	p.wantOut(t, at.PID, 1)
}

func TestInitFencesTheOpenTransaction(t *testing.T) {
	var causes []Cause
	r := newRig(t, func(c *Config) { c.Events.Aborted = func(c Cause) { causes = append(causes, c) } })
	old := r.fresh("x")
	r.add("x", old, 2, tp("a", 0))
	r.j.hold, r.sink.hold = true, true
	p := r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1})
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
	p.wantNone(t)
	r.j.flush()
	p.want(t, kerr.ConcurrentTransactions)
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
	if m := r.sink.markers(); len(m) != 1 || m[0].m.Commit || m[0].m.Epoch != 1 {
		t.Fatalf("markers %v, want one abort of epoch 1", m)
	}
	r.sink.flush()
	r.j.hold, r.sink.hold = false, false
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).wantOut(t, old.PID, 2) // the fenced epoch is told to nobody
	r.end("x", old, 2, true).want(t, kerr.ProducerFenced)
	_, done := r.add("x", old, 2, tp("a", 0))
	done.want(t, kerr.ProducerFenced)
	r.init(InitIn{TxnID: "x", PID: old.PID, Epoch: old.Epoch}).want(t, kerr.ProducerFenced)
	if !slices.Equal(causes, []Cause{ByFence}) {
		t.Fatalf("aborts by %v, want one by a fence", causes)
	}
}

func TestEpochRunsOutInEveryWay(t *testing.T) {
	start := func(r *rig) InitOut {
		at := r.fresh("x")
		e := r.s.entries["x"]
		e.t.epoch = 32766
		at.Epoch = 32766
		return at
	}
	const fresh = 4001
	for _, commit := range []bool{true, false} {
		r := newRig(t)
		at := start(r)
		r.add("x", at, 2, tp("a", 0))
		r.end("x", at, 2, commit).wantOut(t, fresh, 0)
		if m := r.sink.markers(); len(m) != 1 || m[0].m.Epoch != 32767 || m[0].m.PID != at.PID || m[0].m.Commit != commit {
			t.Fatalf("commit %v: markers %+v, want one of (%d, 32767)", commit, m, at.PID)
		}
		r.end("x", at, 2, commit).wantOut(t, fresh, 0)
		if got := r.state("x"); got.pid != fresh || got.epoch != 0 || got.prevPID != at.PID || got.nextPID != -1 {
			t.Fatalf("commit %v: %+v", commit, got)
		}
		r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: 32766}).wantOut(t, fresh, 0) // and its KIP-360 retry
	}
	for _, fence := range []bool{true, false} {
		r := newRig(t)
		at := start(r)
		r.add("x", at, 2, tp("a", 0))
		if fence {
			r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
			r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).wantOut(t, fresh, 1)
		} else {
			r.tick(61 * time.Second)
			if got := r.state("x"); got.state != CompleteAbort || got.pid != fresh || got.epoch != 0 {
				t.Fatalf("after the timeout: %+v", got)
			}
			r.end("x", at, 2, true).want(t, kerr.ProducerFenced) // KAFKA-20785
			r.end("x", at, 2, false).wantOut(t, fresh, 0)
			r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: 32766}).wantOut(t, fresh, 0)
		}
		if m := r.sink.markers(); len(m) != 1 || m[0].m.Epoch != 32767 || m[0].m.Commit {
			t.Fatalf("fence %v: markers %+v, want one abort of 32767", fence, m)
		}
	}
	r := newRig(t)
	at := start(r)
	r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: 32766}).wantOut(t, fresh, 0)
	r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: 32766}).wantOut(t, fresh, 0)
	r.end("x", at, 2, false).want(t, kerr.InvalidProducerIDMapping)
}

func TestRefusedRecordsLeaveEverythingAsItWas(t *testing.T) {
	disk := errors.New("no space")
	for _, c := range []struct {
		err  error
		want *kerr.Error
	}{
		{ErrTooLarge, kerr.MessageTooLarge}, {ErrStorage, kerr.NotCoordinator}, {ErrClosed, kerr.NotCoordinator},
		{disk, kerr.CoordinatorNotAvailable}, {fmt.Errorf("append: %w", ErrTooLarge), kerr.MessageTooLarge},
	} {
		r := newRig(t)
		refuse := func() { r.j.refuse = []error{c.err} }
		refuse()
		r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, c.want)
		if len(r.s.entries) != 0 {
			t.Fatal("an id whose first record was refused is there")
		}
		at := r.fresh("x")
		if at.PID == 4000 {
			t.Fatal("a producer id of a refused record was handed out again")
		}
		for _, step := range []func() *reply{
			func() *reply { w, d := r.add("x", at, 2, tp("a", 0)); w.want(t, c.want); return d },
			func() *reply { return r.end("x", at, 2, false) },
			func() *reply { return r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}) },
		} {
			before := r.state("x")
			refuse()
			step().want(t, c.want)
			if got := r.state("x"); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Fatalf("%v: %+v became %+v", c.err, before, got)
			}
		}
		r.add("x", at, 2, tp("a", 0))
		refuse()
		r.end("x", at, 2, true).want(t, c.want)
		r.end("x", at, 2, true).wantOut(t, at.PID, at.Epoch+1)
	}
}

func TestRefusedFenceTV1RaisesOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TV = 1 })
	at := r.fresh("x")
	r.add("x", at, 0, tp("a", 0))
	for range 3 {
		r.j.refuse = []error{errors.New("no space")}
		r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.CoordinatorNotAvailable)
		if got := r.state("x"); got.state != Ongoing || got.epoch != 1 || !got.fenceFailed {
			t.Fatalf("%+v, want Ongoing with the epoch raised once (C11)", got)
		}
	}
	r.end("x", at, 0, true).want(t, kerr.ProducerFenced)
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
	if m := r.sink.markers(); len(m) != 1 || m[0].m.Epoch != 1 || m[0].m.Version != 0 {
		t.Fatalf("markers %+v", m)
	}
	if r.state("x").fenceFailed {
		t.Fatal("the mark of the failed fence stays")
	}
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).wantOut(t, at.PID, 2)
}

func TestFailedFlushTakesTheShardOffline(t *testing.T) {
	var failed []error
	r := newRig(t, func(c *Config) { c.Events.Failed = func(_ int, err error) { failed = append(failed, err) } })
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	other := r.fresh("y")
	r.j.hold = true
	_, added := r.add("y", other, 2, tp("b", 0))
	_, again := r.add("y", other, 2, tp("b", 0))
	p := r.end("x", at, 2, true)
	r.j.broken = errors.New("fsync")
	r.j.flush()
	for _, q := range []*reply{p, added, again} {
		q.want(t, kerr.NotCoordinator)
	}
	if len(r.sink.markers()) != 0 {
		t.Fatal("a marker after a decision that may not be on disk")
	}
	r.end("x", at, 2, true).want(t, kerr.NotCoordinator)
	r.init(InitIn{TxnID: "z", PID: -1, Epoch: -1}).want(t, kerr.NotCoordinator)
	r.tick(70 * time.Second) // no timeout may abort what may be committed
	if len(r.sink.markers()) != 0 || len(failed) != 1 {
		t.Fatalf("%d markers, %d failures told; want 0 and 1", len(r.sink.markers()), len(failed))
	}
	dropped := 0
	r.c.TopicsDeleted([][16]byte{tp("a", 0).ID}, func(err error) {
		if dropped++; !errors.Is(err, ErrStorage) {
			t.Errorf("TopicsDeleted: %v, want ErrStorage", err)
		}
	})
	if dropped != 1 {
		t.Fatal("TopicsDeleted did not answer once")
	}
}

func TestMarkersAreSentAgainWithGrowingPauses(t *testing.T) {
	var retried, gave int
	r := newRig(t, func(c *Config) {
		c.Events.Retried = func(TP, error) { retried++ }
		c.Events.GaveUp = func(TP, error) { gave++ }
	})
	busy := errors.New("offline")
	r.sink.fail[tp("a", 0)] = slices.Repeat([]error{busy}, 9)
	r.sink.fail[tp("b", 0)] = []error{ErrGone}
	r.sink.fail[tp("c", 0)] = []error{fmt.Errorf("marker: %w", ErrFenced)}
	var at []time.Duration
	r.sink.before = func(s sent) {
		if s.tp == tp("a", 0) {
			at = append(at, r.clk.Mono())
		}
		if s.redo != (s.tp == tp("a", 0) && len(at) > 1) {
			t.Errorf("marker %d of %v with redo %v", len(at), s.tp, s.redo)
		}
	}
	x := r.fresh("x")
	r.add("x", x, 2, tp("a", 0), tp("b", 0), tp("c", 0), tp("d", 0))
	p := r.end("x", x, 2, false)
	r.tick(40 * time.Second)
	var pauses []time.Duration
	for i := 1; i < len(at); i++ {
		pauses = append(pauses, (at[i]-at[i-1])/time.Millisecond)
	}
	if want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000}; !slices.Equal(pauses, want) {
		t.Fatalf("pauses %v ms, want %v", pauses, want)
	}
	p.wantOut(t, x.PID, 1)
	if n := len(r.sink.markers()); n != 13 || retried != 9 || gave != 1 {
		t.Fatalf("%d markers, %d retries, %d given up; want 13, 9, 1", n, retried, gave)
	}
	if got := r.state("x").state; got != CompleteAbort {
		t.Fatalf("state %v", got)
	}
}

func TestCompleteIsWrittenAgainWhenRefused(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	r.sink.hold = true
	p := r.end("x", at, 2, true)
	r.j.refuse = []error{errors.New("full"), errors.New("full"), errors.New("full")}
	r.sink.flush()
	p.wantNone(t)
	r.end("x", at, 2, true).want(t, kerr.ConcurrentTransactions)
	r.tick(time.Second)
	p.wantOut(t, at.PID, 1)
	if got := r.state("x").state; got != CompleteCommit {
		t.Fatalf("state %v, want CompleteCommit", got)
	}
	r.wantLog("Empty 4000/0", "Ongoing 4000/0", "PrepareCommit 4000/1", "CompleteCommit 4000/1")
}

func TestTenThousandPartitionsCommit(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	tps := make([]TP, 10_000)
	for i := range tps {
		tps[i] = tp(fmt.Sprintf("topic %d", i%7), int32(i))
	}
	_, done := r.add("x", at, 2, tps...)
	done.want(t, nil)
	r.end("x", at, 2, true).wantOut(t, at.PID, 1)
	seen := make(map[TP]bool)
	for _, m := range r.sink.markers() {
		seen[m.tp] = true
	}
	if len(seen) != 10_000 || len(r.sink.markers()) != 10_000 {
		t.Fatalf("%d markers in %d partitions", len(r.sink.markers()), len(seen))
	}
}

func TestInitChecksItsArguments(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		in   InitIn
		want *kerr.Error
	}{
		{InitIn{"", 1000, -1, -1}, kerr.InvalidRequest},
		{InitIn{"x", 1000, 5, -1}, kerr.InvalidRequest},
		{InitIn{"x", 1000, -1, 5}, kerr.InvalidRequest},
		{InitIn{"x", 0, -1, -1}, kerr.InvalidTransactionTimeout},
		{InitIn{"x", -1, -1, -1}, kerr.InvalidTransactionTimeout},
		{InitIn{"x", 900_001, -1, -1}, kerr.InvalidTransactionTimeout},
		{InitIn{"x", math.MaxInt32, -1, -1}, kerr.InvalidTransactionTimeout},
		{InitIn{"x", 900_000, -1, -1}, nil},
	} {
		p := new(reply)
		r.c.Init(c.in, p.set)
		p.want(t, c.want)
		if c.want != nil && p.out != noOut {
			t.Errorf("%+v: %+v beside an error", c.in, p.out)
		}
	}
	_, done := r.add("nobody", InitOut{1, 1}, 2, tp("a", 0))
	done.want(t, kerr.InvalidProducerIDMapping)
	r.end("nobody", InitOut{1, 1}, 2, true).want(t, kerr.InvalidProducerIDMapping)
	r.end("", InitOut{1, 1}, 2, true).want(t, kerr.InvalidRequest)
	r.c.Verify(Part{"nobody", 1, 1, 0, []TP{tp("a", 0), tp("a", 1)}}, func(codes []*kerr.Error) {
		if !slices.Equal(codes, []*kerr.Error{kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping}) {
			t.Errorf("verified %v", codes)
		}
	})
}

// A commit asks for the flush of two records, the registration and the decision; the third, that all is done, waits for
// nobody. Whoever waits for it after all asks for its flush.
func TestCompleteIsLazy(t *testing.T) {
	for _, tv := range []int8{1, 2} {
		r := newRig(t)
		at := r.fresh("x")
		r.j.lazy = nil
		r.add("x", at, tv, tp("a", 0))
		r.end("x", at, tv, true)
		if want := []bool{false, false, true}; !slices.Equal(r.j.lazy, want) || r.state("x").state != CompleteCommit {
			t.Errorf("TV%d: lazy %v, want %v; %v", tv, r.j.lazy, want, r.state("x").state)
		}
		at = InitOut{PID: r.state("x").pid, Epoch: r.state("x").epoch}
		r.add("x", at, tv, tp("a", 0))
		r.j.hold = true
		r.end("x", at, tv, true)
		r.j.hold = false
		e, told := r.s.entries["x"], 0
		r.s.whenDurable(e, func(code *kerr.Error) {
			if told++; code != nil {
				t.Error(code)
			}
		})
		if r.j.flushes != 1 || told != 0 {
			t.Errorf("TV%d: %d flushes asked for, told %d times", tv, r.j.flushes, told)
		}
		r.j.flush()
		if told != 1 {
			t.Errorf("TV%d: told %d times", tv, told)
		}
	}
}
