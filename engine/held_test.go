package engine

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// abortedAt reports whether a read_committed reader of the whole partition drops the batches of pid that begin at base.
func (w *world) abortedAt(tp coord.TP, pid, base int64) bool {
	w.t.Helper()
	w.flushed(tp)
	var f plog.Fetch
	defer f.Release()
	l := w.log(tp)
	if err := l.Read(plog.ReadIn{From: 0, BytesMax: 1 << 20, Committed: true, Copy: true}, &f); err != nil {
		w.t.Fatal(err)
	}
	for _, a := range f.Aborted {
		if a.PID == pid && a.First <= base && base <= a.Last {
			return true
		}
	}
	return false
}

// lostRegistration is a world in which the flush of the journal has failed that took the registration of p's open
// transaction; its batch in the first partition is durable. reload loads the journal anew.
func lostRegistration(t *testing.T) (w *world, fs *vfs.Mem, tps []coord.TP, p coord.InitOut, reload func()) {
	fs = vfs.NewMem()
	w = start(t, fs, nil)
	w.ensure()
	tps = w.topic("a", 2)
	p = w.init("x")
	told := make(chan *kerr.Error, 1)
	reload = w.failJournal(fs, "x")
	b := w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tps[0])[0]
	if code := soon(t, "the registration", told); code == nil || b.Err != nil || b.Code != nil {
		t.Fatalf("registration %v; batch %v %v", code, b.Err, b.Code)
	}
	w.flushed(tps[0])
	return w, fs, tps, p, reload
}

// breaks lets the next flush of a partition fail; reopen opens it anew, and its NoticeReopened waits in w.again.
func (w *world) breaks(fs *vfs.Mem, tp coord.TP) (reopen func()) {
	w.t.Helper()
	at := store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition}
	fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, tp.Topic, tp.Partition), 1, syscall.EIO)
	stranger := batch.Marker{PID: 1 << 40, Epoch: 1, CoordEpoch: 1, Commit: true, Time: 1_700_000_000_000}
	if _, err := w.log(tp).AppendMarker(stranger, false); err != nil { // anything that is flushed
		w.t.Fatal(err)
	}
	eventually(w.t, "the failure", func() bool { l, err := w.s.Partition(at); return err != nil || l.Err() != nil })
	return func() {
		w.t.Helper()
		if err := w.s.Reopen(at); err != nil {
			w.t.Fatal(err)
		}
	}
}

// served brings a world to where a partition serves again and its NoticeReopened waits for the engine's ticker: the
// registration of its open transaction was lost with a failed flush of the journal, which is loaded anew already.
func served(t *testing.T) (w *world, tps []coord.TP, p coord.InitOut) {
	w, fs, tps, p, reload := lostRegistration(t)
	reopen := w.breaks(fs, tps[0]) // the same disk fails under the partition, too
	reload()
	reopen()
	return w, tps, p
}

// client appends one batch as a client does: what is retriable it sends again.
func (w *world) client(p coord.InitOut, seq int32, tp coord.TP) {
	w.t.Helper()
	told := make(chan *kerr.Error, 4)
	eventually(w.t, "a write", func() bool {
		b := w.append("x", p, seq, true, func(code *kerr.Error) { told <- code }, tp)[0]
		if b.Registering && b.Code == nil && b.Err == nil {
			return soon(w.t, "the registration", told) == nil
		}
		if b.Err != nil || b.Code != nil {
			w.t.Logf("told to try again: %v %v", b.Err, b.Code)
			w.hear()
			w.clk.Advance(retryEvery)
			w.e.Tick()
			return false
		}
		return true
	})
}

// clientEnd ends a transaction as a client does.
func (w *world) clientEnd(p coord.InitOut, commit bool) (q coord.InitOut) {
	w.t.Helper()
	w.patiently("the end", func() (code *kerr.Error) { q, code = w.end("x", p, commit); return code })
	return q
}

// hear is what the server's ticker does.
func (w *world) hear() {
	w.t.Helper()
	for len(w.again) > 0 {
		if err := w.e.Reopened(<-w.again); err != nil {
			w.t.Fatal(err)
		}
	}
}

// decided waits until all of partition 0 is decided.
func (w *world) decided(tp coord.TP) {
	w.t.Helper()
	w.flushed(tp)
	eventually(w.t, "the decision of the partition", func() bool {
		w.clk.Advance(retryEvery)
		w.e.Tick()
		at := w.log(tp).Offsets()
		return at.Stable == at.End
	})
}

// TestServedBeforeReconciled: a client goes on in the time between a partition serving again and its
// reconciliation. Its commit is answered; what it had written must be committed.
func TestServedBeforeReconciled(t *testing.T) {
	for name, next := range map[string]int{"next transaction in the same partition": 0, "in another": 1} {
		t.Run(name, func(t *testing.T) {
			w, tps, p := served(t)
			w.client(p, 0, tps[0]) // the retry: the batch is there already
			w.client(p, 0, tps[1])
			q := w.clientEnd(p, true)
			t.Logf("commit answered; partition 0: %+v", w.log(tps[0]).Offsets())
			w.client(q, 0, tps[next])
			if next == 0 {
				w.clientEnd(q, false)
			}
			w.hear()
			w.decided(tps[0])
			for i, tp := range tps {
				if w.abortedAt(tp, p.PID, 0) {
					t.Errorf("partition %d: acknowledged and committed, but dropped by read_committed readers: %+v",
						i, w.log(tp).Offsets())
				}
			}
		})
	}
}

// TestAbortedBecomesVisible: the same gap, and the client gave its transaction up.
func TestAbortedBecomesVisible(t *testing.T) {
	w, tps, p := served(t)
	q := w.clientEnd(p, false)
	w.client(q, 0, tps[0])
	w.clientEnd(q, true)
	w.hear()
	w.decided(tps[0])
	if !w.abortedAt(tps[0], p.PID, 0) {
		t.Errorf("the batch of an aborted transaction is shown to read_committed readers: %+v", w.log(tps[0]).Offsets())
	}
}

// TestGuardOutlivesReload: a batch is held up between its registration and its append while the journal fails
// and is loaded anew.
func TestGuardOutlivesReload(t *testing.T) {
	mem := vfs.NewMem()
	fs := vfs.Inject(mem)
	w := start(t, fs, nil)
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	told := make(chan *kerr.Error, 16)
	tell := func(code *kerr.Error) { told <- code }
	reload := w.failJournal(mem, "x")

	// What AppendTxn does, with the append delayed (by a slow flush of the leader epoch, say).
	l := w.log(tps[0])
	v := records(p, 0, 1)
	b := &Batch{Log: l, TP: tps[0], In: plog.AppendIn{Batch: v, Origin: plog.Client, Version: 12}}
	b.In.Checked.MaxTime = v.MaxTime()
	if !b.append() {
		t.Fatalf("no question: %v", b.Err)
	}
	part := coord.Part{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TPs: tps[:1]}
	if code := w.e.confirm(part, true, true, tell)[0]; code != nil {
		t.Fatal(code)
	}
	if code := soon(t, "the registration", told); code == nil {
		t.Fatal("the registration is durable")
	}
	reload()
	again := b.append()
	w.e.st.Arrived()
	t.Logf("the late append: again %v, err %v, at %d", again, b.Err, b.Out.Base)
	if again || b.Err != nil {
		return // refused: well
	}
	w.flushed(tps[0])
	r := w.append("x", p, 0, true, tell, tps[0])[0]
	t.Logf("the client's retry: %v %v, duplicate %v, registering %v", r.Err, r.Code, r.Out.Duplicate, r.Registering)
	w.append("x", p, 0, true, tell, tps[1])
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	q, code := w.end("x", p, true)
	if code != nil {
		t.Fatal(code)
	}
	if at := w.log(tps[0]).Offsets(); at.Stable == 0 {
		t.Errorf("commit answered, and partition 0 holds its stable offset: %+v", at)
	}
	w.append("x", q, 0, true, tell, tps[0])
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	if _, code := w.end("x", q, false); code != nil {
		t.Fatal(code)
	}
	if w.abortedAt(tps[0], p.PID, 0) {
		t.Error("the committed batch went with the abort of the next transaction")
	}
}

// TestMarkerLostWritten: durability=written. A partition loses a marker with a failed flush while another
// partition of the transaction still waits for its own.
func TestMarkerLostWritten(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil, func(c *store.Config) { c.Written = true })
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	told := make(chan *kerr.Error, 16)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tps...)
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	for _, tp := range tps {
		if err := w.log(tp).Flush(1); err != nil {
			t.Fatal(err)
		}
	}
	down := func(n int32) store.TP { return store.TP{Topic: "a", ID: tps[n].ID, Partition: n} }
	offline := func(n int32) bool { l, err := w.s.Partition(down(n)); return err != nil || l.Err() != nil }
	// Partition 1 goes offline before the decision.
	fs.FailSync(dataDir+"/a-1/*.log", 1, syscall.EIO)
	w.append("x", p, 1, true, func(*kerr.Error) {}, tps[1])
	eventually(t, "the failure of 1", func() bool { w.s.Tick(); return offline(1) })
	time.Sleep(50 * time.Millisecond) // the round of the last Tick
	ended := make(chan *kerr.Error, 1)
	w.e.Txns().End(coord.EndIn{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TV: 2, Commit: true},
		func(_ coord.InitOut, code *kerr.Error) { ended <- code })
	eventually(t, "the marker of 0", func() bool { at := w.log(tps[0]).Offsets(); return at.Stable == 2 })
	fs.FailSync(dataDir+"/a-0/*.log", 1, syscall.EIO)
	eventually(t, "the failure of 0", func() bool { w.s.Tick(); return offline(0) })
	for _, n := range []int32{0, 1} {
		if err := w.s.Reopen(down(n)); err != nil {
			t.Fatal(err)
		}
		t.Logf("reopened %d: %+v", n, w.log(tps[n]).Offsets())
		if err := w.e.Reopened(soon(t, "the notice", w.again)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the end", func() bool {
		w.clk.Advance(retryEvery * 10)
		w.e.Tick()
		return len(ended) == 1
	})
	if code := <-ended; code != nil {
		t.Fatal(code)
	}
	for range 2000 {
		w.clk.Advance(retryEvery * 10)
		w.e.Tick()
	}
	for _, tp := range tps {
		if at := w.log(tp).Offsets(); at.Stable != at.High {
			t.Errorf("partition %d: %+v: its stable offset is stuck", tp.Partition, at)
		}
	}
}
