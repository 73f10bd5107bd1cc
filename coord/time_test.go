package coord

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

func TestTimeoutCountsFromTheFirstPartitionOnMonotonicTime(t *testing.T) {
	var causes []Cause
	r := newRig(t, func(c *Config) { c.Events.Aborted = func(c Cause) { causes = append(causes, c) } })
	p := r.init(InitIn{TxnID: "x", TimeoutMs: 10_000, PID: -1, Epoch: -1})
	at := p.out
	r.tick(30 * time.Second) // Empty has no timeout
	r.add("x", at, 2, tp("a", 0))
	r.tick(9 * time.Second)
	r.add("x", at, 2, tp("a", 1)) // does not prolong it
	r.clk.SetWall(1 << 40)
	r.tick(900 * time.Millisecond)
	if got := r.state("x").state; got != Ongoing {
		t.Fatalf("%v after 9.9 s of 10 s: a jump of the wall clock ended it", got)
	}
	r.tick(200 * time.Millisecond)
	if got := r.state("x"); got.state != CompleteAbort || got.epoch != 1 || got.lastEpoch != 0 {
		t.Fatalf("after the timeout: %+v", got)
	}
	if m := r.sink.markers(); len(m) != 2 || m[0].m.Commit || m[0].m.Epoch != 1 {
		t.Fatalf("markers %+v, want two aborts of epoch 1", m)
	}
	if len(causes) != 1 || causes[0] != ByTimeout {
		t.Fatalf("aborts by %v", causes)
	}
	r.end("x", at, 2, true).want(t, kerr.ProducerFenced)
	r.end("x", at, 2, false).wantOut(t, at.PID, 1)
}

func TestTimeoutThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	r.tick(53 * time.Second) // the last time it is written down what is left
	r.j.refuse = []error{errors.New("full"), errors.New("full")}
	r.tick(8 * time.Second)
	if got := r.state("x"); got.state != Ongoing || got.epoch != 0 {
		t.Fatalf("%+v, want Ongoing as before", got)
	}
	r.tick(10 * time.Second)
	if got := r.state("x").state; got != CompleteAbort {
		t.Fatalf("%v, want CompleteAbort at the third attempt", got)
	}
}

func TestTimeoutWaitsForARefusedDecision(t *testing.T) {
	r := newRig(t)
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	r.j.hold = true
	p := r.end("x", at, 2, true)
	r.tick(61 * time.Second)
	if len(r.logged()) != 3 {
		t.Fatalf("journal %q: the timeout wrote beside a decision under way", r.logged())
	}
	r.j.flush()
	p.wantOut(t, at.PID, 1)
	if got := r.state("x").state; got != CompleteCommit {
		t.Fatalf("%v, want CompleteCommit", got)
	}
}

func TestTimeoutOfTwoPhaseCommitNeverFires(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TimeoutMaxMs = neverMs })
	p := r.init(InitIn{TxnID: "x", TimeoutMs: neverMs, PID: -1, Epoch: -1})
	r.add("x", p.out, 2, tp("a", 0))
	r.clk.Advance(100 * 24 * time.Hour)
	r.tick(time.Second)
	if got := r.state("x").state; got != Ongoing {
		t.Fatalf("%v, want Ongoing", got)
	}
	if rem := r.s.remaining(r.s.entries["x"]); rem != -1 {
		t.Fatalf("remaining %d, want none", rem)
	}
}

func TestRecordsCarryTheRemainingTime(t *testing.T) {
	r := newRig(t)
	remaining := func() int64 {
		t.Helper()
		l, err := DecodeRecord(r.j.recs[len(r.j.recs)-1])
		if err != nil {
			t.Fatal(err)
		}
		return l.RemainingMs
	}
	at := r.fresh("x")
	if got := remaining(); got != 604_800_000 {
		t.Fatalf("Empty: %d ms, want the whole expiry", got)
	}
	r.add("x", at, 2, tp("a", 0))
	if got := remaining(); got != 60_000 {
		t.Fatalf("Ongoing: %d ms, want the whole timeout", got)
	}
	r.tick(20 * time.Second)
	r.add("x", at, 2, tp("a", 1))
	if got := remaining(); got != 40_000 {
		t.Fatalf("after 20 s: %d ms, want 40000", got)
	}
	r.sink.hold = true
	r.end("x", at, 2, true)
	if got := remaining(); got != -1 {
		t.Fatalf("PrepareCommit: %d ms, want none", got)
	}
	r.sink.flush()
	if got := remaining(); got != 604_800_000 {
		t.Fatalf("CompleteCommit: %d ms, want the whole expiry", got)
	}
}

func TestLoadGoesOnWithTheRemainingTime(t *testing.T) {
	r := newRig(t)
	r.s.loading = true
	now := func(t *txn) { t.updateMs = r.clk.Wall() }
	ongoing := at(Ongoing, 5, func(t *txn) { t.timeoutMs = 60_000 }, now)
	r.s.load("short", ongoing, 1_000, 0)
	r.s.load("fresh", ongoing, -1, 1)
	r.s.load("beyond", ongoing, 1<<50, 2) // never more than the timeout itself
	r.s.load("idle", at(Empty, 5, now), 30_000, 3)
	r.s.load("gone", at(Empty, 5), 30_000, 4)
	r.s.unload("gone")
	r.s.load("decided", at(PrepareCommit, 5, tv2), -1, 5)
	r.s.load("later", at(Empty, 9), 1, 6)
	r.s.load("later", at(CompleteCommit, 9, now), 100_000, 7) // the later record counts
	r.s.live()
	if m := r.sink.markers(); len(m) != 1 || !m[0].redo || m[0].m.Epoch != 5 || m[0].m.Version != 2 || !m[0].m.Commit {
		t.Fatalf("markers %+v, want one commit with redo", m)
	}
	if got := r.state("decided").state; got != CompleteCommit {
		t.Fatalf("%v, want CompleteCommit", got)
	}
	r.tick(1100 * time.Millisecond)
	if got := r.state("short").state; got != CompleteAbort {
		t.Fatalf("short: %v, want CompleteAbort after 1 s", got)
	}
	r.tick(29 * time.Second)
	if r.s.entries["idle"] != nil || r.s.entries["later"] == nil {
		t.Fatal("idle should be expired, later not")
	}
	for _, id := range []string{"fresh", "beyond"} {
		if got := r.state(id).state; got != Ongoing {
			t.Fatalf("%s: %v after 30 s of 60 s", id, got)
		}
	}
	r.tick(31 * time.Second)
	for _, id := range []string{"fresh", "beyond"} {
		if got := r.state(id).state; got != CompleteAbort {
			t.Fatalf("%s: %v after 61 s of 60 s", id, got)
		}
	}
}

func TestExpiryWritesATombstoneFirst(t *testing.T) {
	var moved []string
	r := newRig(t, func(c *Config) {
		c.IDExpireMs = 60_000
		c.Events.Moved = func(from, to State) { moved = append(moved, fmt.Sprint(from, ">", to)) }
	})
	at := r.fresh("x")
	r.tick(50 * time.Second)
	r.add("x", at, 2, tp("a", 0))
	r.end("x", at, 2, true)
	r.tick(59 * time.Second) // counted from the last transition
	r.j.hold = true
	r.tick(2 * time.Second)
	if got := r.state("x").pending; got != Dead {
		t.Fatalf("pending %v, want Dead", got)
	}
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
	r.j.flush()
	if len(r.s.entries) != 0 || len(r.s.deadlines) != 0 || len(r.s.open) != 0 {
		t.Fatal("the id is still there")
	}
	if got := r.logged(); got[len(got)-1] != "tombstone" {
		t.Fatalf("journal %q", got)
	}
	r.j.hold = false
	_, done := r.add("x", InitOut{at.PID, 1}, 2, tp("a", 0))
	done.want(t, kerr.InvalidProducerIDMapping)
	r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: 1}).wantOut(t, at.PID+1, 0)
	want := "[Dead>Empty Empty>Ongoing Ongoing>PrepareCommit PrepareCommit>CompleteCommit CompleteCommit>Dead Dead>Empty]"
	if got := fmt.Sprint(moved); got != want {
		t.Fatalf("moves %v, want %v", got, want)
	}
}

func TestRefusedTombstoneKeepsTheID(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IDExpireMs = 1000 })
	at := r.fresh("x")
	r.j.refuse = []error{errors.New("full")}
	r.tick(1100 * time.Millisecond)
	if got := r.state("x"); got.pending != noState || got.state != Empty {
		t.Fatalf("%+v", got)
	}
	r.init(InitIn{TxnID: "x", PID: at.PID, Epoch: at.Epoch}).wantOut(t, at.PID, 1)
}

func TestTopicsDeletedInEveryState(t *testing.T) {
	r := newRig(t)
	gone := [][16]byte{tp("a", 0).ID}
	deleted := func() *int {
		n := new(int)
		r.c.TopicsDeleted(gone, func(err error) {
			if *n++; err != nil {
				t.Errorf("TopicsDeleted: %v", err)
			}
		})
		return n
	}
	ongoing, only := r.fresh("ongoing"), r.fresh("only")
	decided, waits := r.fresh("decided"), r.fresh("waits")
	r.add("ongoing", ongoing, 2, tp("a", 0), tp("a", 7), tp("b", 0))
	r.add("only", only, 2, tp("a", 0))
	r.add("decided", decided, 2, tp("a", 0), tp("b", 0))
	r.add("waits", waits, 2, tp("a", 0))
	r.sink.hold = true
	pd := r.end("decided", decided, 2, true)
	r.j.hold = true
	pw := r.end("waits", waits, 2, true) // its decision is not durable yet
	n := deleted()
	r.j.flush() // the decision; then the drop behind it
	if *n != 0 {
		t.Fatal("told before the records are durable")
	}
	r.j.flush()
	if *n != 1 {
		t.Fatalf("told %d times, want once", *n)
	}
	if got := r.state("ongoing").tps; len(got) != 1 || got[0] != tp("b", 0) {
		t.Fatalf("ongoing holds %v", got)
	}
	if got := r.state("only"); got.state != Ongoing || len(got.tps) != 0 {
		t.Fatalf("only: %+v", got)
	}
	pw.wantOut(t, waits.PID, 1) // nothing left to wait for
	pd.wantNone(t)
	r.sink.flush()
	pd.wantOut(t, decided.PID, 1)
	r.j.hold, r.sink.hold = false, false
	if n := deleted(); *n != 1 {
		t.Fatal("a second call did not answer")
	}
	r.end("only", only, 2, true).wantOut(t, only.PID, 1)
	r.end("ongoing", ongoing, 2, true).wantOut(t, ongoing.PID, 1)
	for _, m := range r.sink.markers()[2:] {
		if m.tp.Topic == "a" && m.m.PID != waits.PID {
			t.Fatalf("marker for %v after its deletion", m.tp)
		}
	}
}

func TestBeforeRecoverAndAfterClose(t *testing.T) {
	ids := NewProducerIDs(&counter{}, 10)
	defer ids.Close()
	c := New(Config{TimeoutMaxMs: 1000, TV: 2}, ids, &fakeSink{}, nil, clock.NewSim(0))
	ask := func(want *kerr.Error) {
		t.Helper()
		n := 0
		one := func(code *kerr.Error) {
			if n++; code != want {
				t.Errorf("%v, want %v", code, want)
			}
		}
		out := func(_ InitOut, code *kerr.Error) { one(code) }
		c.Init(InitIn{"x", 1000, -1, -1}, out)
		c.End(EndIn{TxnID: "x"}, out)
		c.Add(Part{TxnID: "x"}, one, one)
		c.Verify(Part{TxnID: "x", TPs: []TP{tp("a", 0)}}, func(codes []*kerr.Error) { one(codes[0]) })
		if n != 5 {
			t.Errorf("%d answers, want 5", n)
		}
	}
	ask(kerr.CoordinatorLoadInProgress)
	c.Tick()
	told := 0
	c.TopicsDeleted(nil, func(err error) {
		if told++; err != nil {
			t.Error(err)
		}
	})
	c.Close()
	ask(kerr.CoordinatorNotAvailable)
	c.TopicsDeleted(nil, func(err error) {
		if told++; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	if told != 2 {
		t.Fatalf("TopicsDeleted answered %d times of 2", told)
	}
}

// TestGoroutinesServeAndEnd runs a coordinator as it runs in the daemon: a goroutine for each shard, a slow block of
// producer ids, and a Close with requests waiting.
func TestGoroutinesServeAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := NewProducerIDs(&counter{next: 1, delay: time.Second}, 10)
		sink := &fakeSink{fail: map[TP][]error{}}
		c := New(Config{TimeoutMaxMs: 60_000, IDExpireMs: 1 << 40, TV: 2}, ids, sink, nil, clock.Real())
		var shards []*shard
		var journals []*fakeJournal
		for i := range 4 {
			j := &fakeJournal{}
			journals = append(journals, j)
			shards = append(shards, newShard(c, i, j))
		}
		c.shards.Store(&shards)
		for _, s := range shards {
			s.live()
		}
		pids := make(map[int64]bool)
		answers := make(chan InitOut, 100)
		for i := range 100 {
			c.Init(InitIn{fmt.Sprint("id ", i), 1000, -1, -1}, func(out InitOut, code *kerr.Error) {
				if code != nil {
					t.Errorf("id %d: %v", i, code)
				}
				answers <- out
			})
		}
		for range 100 {
			out := <-answers
			if pids[out.PID] || out.Epoch != 0 {
				t.Fatalf("(%d, %d) handed out twice", out.PID, out.Epoch)
			}
			pids[out.PID] = true
		}
		for _, j := range journals {
			j.mu.Lock()
			j.hold = true
			j.mu.Unlock()
		}
		waiting := make(chan *kerr.Error, 10)
		for i := range 10 {
			c.Init(InitIn{fmt.Sprint("id ", i), 1000, -1, -1}, func(_ InitOut, code *kerr.Error) { waiting <- code })
		}
		synctest.Wait()
		ids.Close()
		c.Close()
		c.Close()
		for range 10 {
			if code := <-waiting; code != kerr.CoordinatorNotAvailable {
				t.Errorf("a waiting request was answered %v", code)
			}
		}
		for _, j := range journals {
			j.flush() // late completions find nobody
		}
	})
}

func TestNoProducerIDs(t *testing.T) {
	src := &counter{next: 4000, fail: []error{errors.New("disk")}}
	cfg := Config{TimeoutMaxMs: 900_000, IDExpireMs: 1 << 40, TV: 2, Inline: true}
	r := &rig{t: t, j: &fakeJournal{}, sink: &fakeSink{fail: map[TP][]error{}}, clk: clock.NewSim(0)}
	r.ids = NewProducerIDs(src, 10)
	defer r.ids.Close()
	r.c = New(cfg, r.ids, r.sink, nil, r.clk)
	defer r.c.Close()
	r.s = newShard(r.c, 0, r.j)
	r.c.shards.Store(&[]*shard{r.s})
	r.s.live()
	r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.CoordinatorLoadInProgress)
	if len(r.s.entries) != 0 {
		t.Fatal("an id without a producer id")
	}
	at := r.fresh("x")
	r.add("x", at, 2, tp("a", 0))
	r.s.entries["x"].t.epoch, at.Epoch = 32766, 32766
	src.mu.Lock()
	src.fail = slices.Repeat([]error{errors.New("disk")}, 1000) // more than there are attempts
	src.mu.Unlock()
	for {
		if _, err := r.ids.Next(); err != nil { // use up what is reserved
			break
		}
	}
	r.end("x", at, 2, true).want(t, kerr.CoordinatorLoadInProgress)
	r.tick(61 * time.Second)
	if got := r.state("x"); got.state != Ongoing || got.epoch != 32766 {
		t.Fatalf("%+v, want the transaction as it was", got)
	}
	src.mu.Lock()
	src.fail = nil
	src.mu.Unlock()
	r.tick(6 * time.Second)
	if got := r.state("x"); got.state != CompleteAbort || got.epoch != 0 {
		t.Fatalf("%+v, want the timeout to go through once there are ids again", got)
	}
}

// TestAnOpenTransactionFoundAtStartHoldsItsID: until its marker, or its registration, is through, the id does not move,
// or the next transaction would be written behind the old one and share its outcome.
func TestAnOpenTransactionFoundAtStartHoldsItsID(t *testing.T) {
	for _, c := range []struct {
		name    string
		t       txn
		open    int16
		wait    func(*rig)
		state   State
		markers int
	}{
		{"missing marker of a complete transaction", at(CompleteCommit, 6, tv2, last(5)), 5,
			func(r *rig) { r.sink.fail[tp("a", 0)] = []error{errors.New("offline"), errors.New("offline")} }, CompleteCommit, 3},
		{"hanging", at(Empty, 6), 4,
			func(r *rig) { r.sink.fail[tp("a", 0)] = []error{errors.New("offline"), errors.New("offline")} }, Empty, 3},
		{"not registered", at(CompleteAbort, 6, tv2), 6,
			func(r *rig) { r.j.refuse = []error{errors.New("full"), errors.New("full")} }, Ongoing, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.s.loading = true
			r.s.load("x", c.t, 1, 0) // its time is nearly up, too
			c.wait(r)
			reconcileAll([]*shard{r.s}, []OpenTxn{{TP: tp("a", 0), PID: pidP, Epoch: c.open}}, true)
			r.s.live()
			now := InitOut{pidP, 6}
			for range 2 {
				_, added := r.add("x", now, 2, tp("a", 0))
				added.want(t, kerr.ConcurrentTransactions)
				r.end("x", now, 2, false).want(t, kerr.ConcurrentTransactions)
				r.init(InitIn{TxnID: "x", PID: -1, Epoch: -1}).want(t, kerr.ConcurrentTransactions)
				if r.tick(100 * time.Millisecond); r.s.entries["x"] == nil {
					t.Fatal("expired while held back")
				}
			}
			r.tick(200 * time.Millisecond)
			if e := r.s.entries["x"]; e != nil && (e.held != 0 || e.t.state != c.state) || e == nil && c.state == Ongoing {
				t.Fatalf("%+v", e)
			}
			if c.state == Ongoing {
				r.add("x", now, 2, tp("a", 1))
				r.end("x", now, 2, true).wantOut(t, pidP, 7)
			}
			if n := len(r.sink.markers()); n != c.markers {
				t.Fatalf("%d markers, want %d", n, c.markers)
			}
		})
	}
}

// TestTickCostsWhatIsDue: with a hundred thousand ids of which none is due, a tick looks at none of them (case H2).
func TestTickCostsWhatIsDue(t *testing.T) {
	r := newRig(t)
	r.s.loading = true
	now := func(t *txn) { t.updateMs = r.clk.Wall() }
	for i := range 100_000 {
		r.s.load(fmt.Sprint("id ", i), at(Empty, 5, now), int64(60_000+i), int64(i))
	}
	r.s.live()
	if n := testing.AllocsPerRun(100, r.s.tick); n > 4 {
		t.Errorf("%v allocations in a tick with nothing due", n)
	}
	began := r.clk.Mono()
	r.clk.Advance(60*time.Second + 9*time.Millisecond)
	r.c.Tick()
	if n := 100_000 - len(r.s.entries); n != 10 || len(r.logged()) != 10 {
		t.Fatalf("%d ids expired after %v, want the 10 that were due", n, r.clk.Mono()-began)
	}
}
