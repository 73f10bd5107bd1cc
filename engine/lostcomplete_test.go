package engine

import (
	"fmt"
	"syscall"
	"testing"

	"sekali/coord"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// failJournal makes the next flush of the journal of an id fail; the function it returns opens the log again and loads
// the shard from it.
func (w *world) failJournal(fs *vfs.Mem, id string) (reload func()) {
	n := coord.Partition(id, 2)
	fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, TxnTopic, n), 1, syscall.EIO)
	at := store.TP{Topic: TxnTopic, ID: w.s.Catalog().ByName[TxnTopic].ID, Partition: n}
	return func() {
		w.t.Helper()
		if err := w.s.Reopen(at); err != nil {
			w.t.Fatal(err)
		}
		if err := w.e.Reopened(soon(w.t, "the notice", w.again)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// patiently repeats a request while its id is held back, and lets time pass.
func (w *world) patiently(what string, ask func() *kerr.Error) {
	w.t.Helper()
	eventually(w.t, what, func() bool {
		w.clk.Advance(retryEvery)
		w.e.Tick()
		code := ask()
		if code != nil && code != kerr.ConcurrentTransactions {
			w.t.Fatalf("%s: %v", what, code)
		}
		return code == nil
	})
}

// committedAll asserts that all of a partition is committed.
func (w *world) committedAll(tp coord.TP) {
	w.t.Helper()
	w.flushed(tp)
	var f plog.Fetch
	defer f.Release()
	l := w.log(tp)
	at := l.Offsets()
	err := l.Read(plog.ReadIn{From: at.Start, BytesMax: 1 << 20, Committed: true, Copy: true}, &f)
	if err != nil || at.Stable != at.End || len(f.Aborted) > 0 {
		w.t.Errorf("partition %d: stable %d of %d, aborted %+v, %v", tp.Partition, at.Stable, at.End, f.Aborted, err)
	}
}

// TestLostComplete: one failed flush takes the Complete of a transaction and the registration of the next, whose batch
// is durable. Its client tries again until the coordinator knows; its commit takes that batch along.
func TestLostComplete(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	told := make(chan *kerr.Error, 8)
	tell := func(code *kerr.Error) { told <- code }
	w.append("x", p, 0, true, tell, tps[0])
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	p, code := w.end("x", p, true)
	if code != nil {
		t.Fatal(code)
	}

	reload := w.failJournal(fs, "x")
	b := w.append("x", p, 0, true, tell, tps[0])[0]
	if code := soon(t, "the registration", told); code == nil || b.Err != nil || b.Code != nil || !b.Registering {
		t.Fatalf("registration %v; batch %v %v, registering %v", code, b.Err, b.Code, b.Registering)
	}
	w.flushed(tps[0])
	if b = w.append("x", p, 0, true, tell, tps[0])[0]; b.Code != kerr.NotCoordinator {
		t.Fatalf("the retry: %v %v, want it to ask the coordinator, which is offline", b.Err, b.Code)
	}
	reload()

	w.patiently("the retry", func() *kerr.Error {
		b = w.append("x", p, 0, true, tell, tps[0])[0]
		return b.Code
	})
	if code := soon(t, "the registration", told); code != nil || !b.Out.Duplicate || b.Err != nil {
		t.Fatalf("the retry: registration %v, %v, duplicate %v", code, b.Err, b.Out.Duplicate)
	}
	w.patiently("a write to the other partition", func() *kerr.Error {
		b = w.append("x", p, 0, true, tell, tps[1])[0]
		return b.Code
	})
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	if _, code = w.end("x", p, true); code != nil {
		t.Fatal(code)
	}
	for _, tp := range tps {
		w.committedAll(tp)
	}
}

// TestLostCompleteOffsets: so it is with the offsets of a group.
func TestLostCompleteOffsets(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	owner, _ := w.e.OffsetsTP("g")
	p := w.init("x")
	told := make(chan *kerr.Error, 8)
	tell := func(code *kerr.Error) { told <- code }
	var part coord.Part
	stage := func(offset int64) *kerr.Error {
		in := group.CommitIn{Member: group.Member{Group: "g"}, Version: 5, PID: p.PID, Epoch: p.Epoch, RetainMs: -1,
			TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: offset, LeaderEpoch: -1}}}
		code, guard := w.commit(in)
		if guard == 0 {
			return code
		}
		part = coord.Part{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TPs: []coord.TP{owner}}
		if code := w.e.Confirm(part, true, tell)[0]; code != nil {
			return code
		}
		in.Guard = guard
		code, _ = w.commit(in)
		return code
	}
	commit := func() {
		t.Helper()
		out, code := w.end("x", p, true)
		if code != nil {
			t.Fatal(code)
		}
		p = out
	}
	if code := stage(10); code != nil || soon(t, "the registration", told) != nil {
		t.Fatal(code)
	}
	commit()

	reload := w.failJournal(fs, "x")
	if code := stage(20); code != nil || soon(t, "the registration", told) == nil {
		t.Fatalf("staged: %v, and the registration is durable", code)
	}
	w.e.Doubt(part)
	if code := stage(20); code != kerr.NotCoordinator {
		t.Fatalf("the retry: %v, want it to ask the coordinator, which is offline", code)
	}
	reload()

	w.patiently("the retry", func() *kerr.Error { return stage(20) })
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	w.patiently("a write to a partition", func() *kerr.Error { return w.append("x", p, 0, true, tell, tp)[0].Code })
	if code := soon(t, "the registration", told); code != nil {
		t.Fatal(code)
	}
	commit()
	w.committedAll(tp)
	w.committedAll(owner)
	if got, code := w.committed("g", tp); got != 20 || code != nil {
		t.Errorf("the group is at %d, want 20; %v", got, code)
	}
}
