package coord

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/batch"
)

func always(OpenTxn) bool { return true }

// Open transactions of a partition that comes back while requests are served: row by row, what its id knows stays, what
// it does not know is registered or ended, and what is not open any more is left alone.
func TestReconcileServing(t *testing.T) {
	r := newRig(t)
	stays, lost, ended := r.fresh("stays"), r.fresh("lost"), r.fresh("ended")
	r.add("stays", stays, 2, tp("x", 0))
	r.add("ended", ended, 2, tp("x", 1))
	r.end("ended", ended, 2, true).want(t, nil)
	before := len(r.sink.markers())
	stranger := OpenTxn{TP: tp("x", 0), PID: 77, Epoch: 5}
	closed := OpenTxn{TP: tp("x", 2), PID: 78, Epoch: 5}
	open := append(found(stays, tp("x", 0)), found(lost, tp("y", 3))...)
	open = append(append(open, found(ended, tp("x", 1))...), stranger, closed)
	r.c.Reconcile(open, func(o OpenTxn) bool { return o != closed }, func() {})

	if x := r.state("stays"); x.state != Ongoing || len(x.tps) != 1 {
		t.Errorf("registered: %+v", x)
	}
	if x := r.state("lost"); x.state != Ongoing || len(x.tps) != 1 || x.tps[0] != tp("y", 3) {
		t.Errorf("not registered: %+v", x)
	}
	got := map[TP]batch.Marker{}
	for _, s := range r.sink.markers()[before:] {
		if !s.redo {
			t.Errorf("%+v: not a repetition", s)
		}
		got[s.tp] = s.m
	}
	now := r.clk.Wall()
	want := map[TP]batch.Marker{
		tp("x", 1): {PID: ended.PID, Epoch: ended.Epoch + 1, CoordEpoch: 7, Version: 2, Commit: true, Time: now},
		tp("x", 0): {PID: 77, Epoch: 6, CoordEpoch: 7, Version: 2, Time: now},
	}
	if len(got) != 2 || got[tp("x", 1)] != want[tp("x", 1)] || got[tp("x", 0)] != want[tp("x", 0)] {
		t.Errorf("markers %+v, want %+v", got, want)
	}
	for id, at := range map[string]InitOut{"stays": stays, "lost": lost} {
		r.end(id, at, 2, true).want(t, nil)
	}
}

// A decided transaction whose markers are under way does not wait for the partition it did not know: that gets its own,
// of the same outcome, and the id does not go on before it is there.
func TestReconcileServingDecided(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.sink.hold = true
	r.end("a", at, 2, true)
	r.c.Reconcile(found(at, tp("x", 0), tp("z", 1)), always, func() {})
	m := r.sink.markers()
	if len(m) != 2 || m[1].tp != tp("z", 1) || m[1].m != m[0].m {
		t.Fatalf("%+v", m)
	}
	m[0].done(nil)
	if x := r.state("a"); x.state != CompleteCommit {
		t.Fatalf("%+v", x)
	}
	at.Epoch++
	_, done := r.add("a", at, 2, tp("x", 0))
	done.want(t, kerr.ConcurrentTransactions)
	m[1].done(nil)
	_, done = r.add("a", at, 2, tp("x", 0))
	done.want(t, nil)
}

// Nothing is decided while a record of the id is on its way, nor about a stranger while a shard does not serve: it may
// know him.
func TestReconcileServingWaits(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.j.hold, r.sink.hold = true, true
	r.end("a", at, 2, false) // Prepare is written, not durable
	r.c.Reconcile(found(at, tp("x", 0), tp("x", 1)), always, func() {})
	if m := r.sink.markers(); len(m) != 0 {
		t.Fatalf("decided early: %+v", m)
	}
	r.j.flush()
	m := r.sink.markers()
	if len(m) != 2 || m[0].m.Commit || m[1].m.Commit || m[0].m.Epoch != at.Epoch+1 || m[1].m.Epoch != at.Epoch+1 {
		t.Fatalf("%+v", m)
	}

	stranger := OpenTxn{TP: tp("y", 0), PID: 12345, Epoch: 3}
	other := newShard(r.c, 1, &fakeJournal{})
	r.c.shards.Store(&[]*shard{r.s, other})
	r.c.Reconcile([]OpenTxn{stranger}, always, func() {})
	if n := len(r.sink.markers()); n != 2 {
		t.Fatalf("%d markers beside a shard that is loading", n)
	}
	other.live()
	r.sink.fail[tp("y", 0)] = []error{errTest}
	r.c.Reconcile([]OpenTxn{stranger}, always, func() {})
	r.tick(100 * time.Millisecond)
	if m := r.sink.markers(); len(m) != 4 || m[3].tp != tp("y", 0) || m[3].m.Epoch != 4 || m[3].m.Commit {
		t.Fatalf("%+v", m)
	}
	other.post(func() { other.fail(errTest) })
	r.c.Reconcile([]OpenTxn{stranger}, always, func() {})
	if n := len(r.sink.markers()); n != 4 {
		t.Fatalf("%d markers beside a shard that is offline", n)
	}
	r.c.Close()
	r.c.Reconcile([]OpenTxn{stranger}, always, func() {})
}
