package engine

import (
	"errors"
	"testing"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/plog"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestImplicitAdd: the batches of a request register their partitions with one question, are told when that is durable,
// once, and the second batch of the transaction asks nobody.
func TestImplicitAdd(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	w.ensure()
	tps := w.topic("a", 3)
	p := w.init("x")
	told := make(chan *kerr.Error, 10)
	durable := func(code *kerr.Error) { told <- code }
	for i, b := range w.append("x", p, 0, true, durable, tps...) {
		if b.Code != nil || b.Err != nil || b.Out.Base != 0 || !b.Registering {
			t.Errorf("partition %d: %v %v at %d, registering %v", i, b.Code, b.Err, b.Out.Base, b.Registering)
		}
	}
	if code := soon(t, "the registration", told); code != nil {
		t.Errorf("registration: %v", code)
	}
	for i, b := range w.append("x", p, 1, true, durable, tps...) {
		if b.Code != nil || b.Err != nil || b.Out.Base != 1 || b.Registering {
			t.Errorf("second batch, partition %d: %v %v at %d, registering %v", i, b.Code, b.Err, b.Out.Base, b.Registering)
		}
	}
	w.flushed(tps[0])
	if at := w.log(tps[0]).Offsets(); at.Stable != 0 || at.High != 2 {
		t.Errorf("open: stable %d, high %d, want 0 and 2", at.Stable, at.High)
	}
	next, code := w.end("x", p, true)
	if code != nil || next.PID != p.PID || next.Epoch != p.Epoch+1 {
		t.Fatalf("end: %+v %v", next, code)
	}
	for i, tp := range tps {
		if at := w.log(tp).Offsets(); at.Stable != 3 || at.End != 3 {
			t.Errorf("partition %d after the commit: stable %d of %d, want 3", i, at.Stable, at.End)
		}
	}
	if len(told) != 0 {
		t.Errorf("told of %d more registrations", len(told))
	}
}

// TestVerify: with an explicit transaction the batch goes in where the partition was registered, and only there; a
// retry of a stored batch is a duplicate even when its transaction has ended.
func TestVerify(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	never := func(*kerr.Error) { t.Error("nothing was registered") }
	for i, b := range w.append("x", p, 0, false, never, tps...) {
		if b.Code != kerr.TransactionAbortable {
			t.Errorf("partition %d before the registration: %v", i, b.Code)
		}
	}
	part := coord.Part{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TPs: tps[:1]}
	if code := w.e.Add(part); code != nil {
		t.Fatal(code)
	}
	bs := w.append("x", p, 0, false, never, tps...)
	if bs[0].Code != nil || bs[0].Err != nil || bs[0].Out.Base != 0 {
		t.Errorf("registered: %v %v", bs[0].Code, bs[0].Err)
	}
	if bs[1].Code != kerr.TransactionAbortable || w.log(tps[1]).Offsets().End != 0 {
		t.Errorf("not registered: %v", bs[1].Code)
	}
	if _, code := w.end("x", p, false); code != nil {
		t.Fatal(code)
	}
	if b := w.append("x", p, 0, false, never, tps[0])[0]; !errors.As(b.Err, new(*plog.RejectError)) {
		t.Errorf("the fenced epoch goes on: %v %v", b.Code, b.Err)
	}
	if at := w.log(tps[0]).Offsets(); at.Stable != 2 || at.End != 2 {
		t.Errorf("after the abort: stable %d of %d, want 2", at.Stable, at.End)
	}
}

// TestStaleVerification is the race of the guard: verified, then the transaction ends, then the batch arrives.
func TestStaleVerification(t *testing.T) {
	w := start(t, vfs.NewMem(), func(c *Config) { c.VerifyOff = true }) // the answer is yes, whenever it was given
	w.ensure()
	tp := w.topic("a", 1)[0]
	p := w.init("x")
	v := records(p, 0, 1)
	in := plog.AppendIn{Batch: v, Checked: batch.Checked{MaxTime: v.MaxTime()}, Version: 11}
	l := w.log(tp)
	_, err := l.Append(in)
	r, ok := errors.AsType[*plog.RejectError](err)
	if !ok || r.Decision.Verdict != pidmap.TxnUnverified {
		t.Fatalf("first try: %v", err)
	}
	in.Guard = r.Decision.Guard
	for _, redo := range []bool{false, true} { // the second finds the first, and is void all the same
		done := make(chan error, 1)
		w.e.WriteMarker(tp, batch.Marker{PID: p.PID, Epoch: p.Epoch, Version: 1}, redo, func(err error) { done <- err })
		if err := soon(t, "the marker", done); err != nil {
			t.Fatal(err)
		}
		_, err = l.Append(in)
		if r, ok = errors.AsType[*plog.RejectError](err); !ok || r.Decision.Verdict != pidmap.TxnUnverified {
			t.Fatalf("redo %v: the late batch: %v", redo, err)
		}
		in.Guard = r.Decision.Guard
	}
	if at := l.Offsets(); at.End != 1 || at.Stable != 1 {
		t.Errorf("stable %d of %d, want 1: the redone marker is not written twice", at.Stable, at.End)
	}
}

// TestAddIsRepeated: an implicit add that meets the end of the last transaction waits for it.
func TestAddIsRepeated(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	if got := w.e.Confirm(coord.Part{TxnID: "x", TPs: make([]coord.TP, 2)}, true, nil); got[0] != got[1] ||
		got[0] != kerr.CoordinatorLoadInProgress {
		t.Errorf("before the topics exist: %v", got)
	}
	if got := w.e.Confirm(coord.Part{TxnID: "x", TPs: make([]coord.TP, 2)}, false, nil); got[0] != got[1] ||
		got[0] != kerr.CoordinatorLoadInProgress {
		t.Errorf("verified before the topics exist: %v", got)
	}
	w.ensure()
	tps := w.topic("a", 1)
	p := w.init("x")
	told := make(chan *kerr.Error, 1)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tps...)
	soon(t, "the registration", told)
	stale := w.append("x", coord.InitOut{PID: p.PID, Epoch: p.Epoch + 1}, 0, true, nil, tps...)[0]
	if stale.Code != kerr.ProducerFenced {
		t.Errorf("an epoch from the future: %v", stale.Code)
	}
}
