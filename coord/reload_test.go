package coord

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

// A log that went offline and was opened again: what waited is refused, and the shard goes on from what the log holds.
func TestReload(t *testing.T) {
	r := newRig(t)
	open, decided := r.fresh("open"), r.fresh("decided")
	r.add("open", open, 2, tp("x", 0))
	r.add("decided", decided, 2, tp("x", 1))
	r.sink.hold = true
	r.end("decided", decided, 2, true).wantNone(t)
	before := len(r.sink.markers())

	r.j.hold = true
	written, done := r.add("open", open, 2, tp("x", 2))
	written.want(t, nil)
	done.wantNone(t)
	kept := r.j.prefix(5) // the flush fails: the last registration is lost
	r.j.broken = errTest
	r.j.flush()
	done.want(t, kerr.NotCoordinator)
	r.init(InitIn{TxnID: "open", PID: -1, Epoch: -1}).want(t, kerr.NotCoordinator)

	unregistered := found(open, tp("x", 2))
	stranger := OpenTxn{TP: tp("y", 0), PID: 12345, Epoch: 3}
	if err := r.c.Reload(0, kept, append(unregistered, stranger)); err != nil {
		t.Fatal(err)
	}
	r.s, r.j = r.c.all()[0], kept
	if x := r.state("open"); x.state != Ongoing || len(x.tps) != 2 {
		t.Fatalf("%+v", x)
	}
	again := r.sink.markers()[before:]
	if len(again) != 1 || !again[0].redo || again[0].m.CoordEpoch != 7 || again[0].tp != tp("x", 1) {
		t.Fatalf("%+v", again)
	}
	r.sink.flush()
	if x := r.state("decided"); x.state != CompleteCommit {
		t.Fatalf("%+v", x)
	}
	r.sink.hold = false
	r.end("open", open, 2, true).want(t, nil)
}

// What an old shard still hears of after it was replaced changes nothing.
func TestReloadOldShardIsDeaf(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.sink.hold = true
	ended := r.end("a", at, 2, true)
	old, oldSink := r.j, r.sink.markers()[0]
	kept := r.j.prefix(3)
	if err := r.c.Reload(0, kept, nil); err != nil {
		t.Fatal(err)
	}
	ended.want(t, kerr.NotCoordinator)
	r.s, r.j = r.c.all()[0], kept
	records := old.End()
	oldSink.done(nil)
	r.tick(10 * time.Second)
	if old.End() != records || r.state("a").state != PrepareCommit || kept.End() != 3 {
		t.Fatalf("%d records in the old journal, want %d; %+v", old.End(), records, r.state("a"))
	}
	r.sink.markers()[1].done(nil)
	if r.state("a").state != CompleteCommit || kept.End() != 4 {
		t.Fatalf("%+v, %d records", r.state("a"), kept.End())
	}
}

// From the moment a shard is sealed, what is still in its queue ends without a record.
func TestSealedShardAppendsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery, c.IDExpireMs = 100, 60_000 })
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.sink.hold = true
	r.end("a", at, 2, true)
	for range 20 {
		r.fresh("b")
	}
	end := r.j.End()
	r.s.seal()
	r.sink.flush() // the last marker: Complete would follow
	r.tick(2 * time.Minute)
	if r.j.End() != end || r.j.Start() != 0 || r.state("a").state != PrepareCommit {
		t.Fatalf("%d records, want %d; log start %d; %+v", r.j.End(), end, r.j.Start(), r.state("a"))
	}
	r.init(InitIn{TxnID: "b", PID: -1, Epoch: -1}).want(t, kerr.NotCoordinator)
}

func TestReloadRefused(t *testing.T) {
	r := newRig(t)
	r.fresh("a")
	damaged := r.j.prefix(1)
	damaged.recs = append(damaged.recs, Record{encodeKey("b"), []byte{0, 5}})
	err := r.c.Reload(0, damaged, nil)
	if at, ok := errors.AsType[*LoadError](err); !ok || at.Offset != 1 || !errors.Is(err, ErrVersion) {
		t.Fatalf("%v", err)
	}
	r.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, kerr.NotCoordinator)
	if err := r.c.Reload(0, r.j, nil); err != nil {
		t.Fatal(err)
	}
	r.init(InitIn{TxnID: "a", PID: -1, Epoch: -1}).want(t, nil)
	for _, index := range []int{-1, 1} {
		if err := r.c.Reload(index, r.j, nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("shard %d: %v", index, err)
		}
	}
	r.c.Close()
	if err := r.c.Reload(0, r.j, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}

// With goroutines: requests, ticks with rewrites and snapshots, reloads of a shard, and a Close in the middle. Every
// request is answered once, and nothing is left running.
func TestRecoverReloadCloseConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{
			TimeoutMaxMs: 900_000, IDExpireMs: 604_800_000, SnapshotEvery: 2000, RewriteEvery: 2000, TV: 2,
		}
		ids := NewProducerIDs(&counter{}, 100)
		snaps := newSnapshots()
		c := New(cfg, ids, &fakeSink{}, snaps, clock.Real())
		js := make([]Journal, 4)
		for i := range js {
			js[i] = &fakeJournal{}
		}
		if err := c.Recover(t.Context(), js, 1, nil); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		answered := make([]int, 8)
		for w := range answered {
			wg.Go(func() {
				for i := range 400 {
					told := make(chan InitOut, 1)
					in := InitIn{TxnID: fmt.Sprintf("id-%d", (w+i)%20), PID: -1, Epoch: -1, TimeoutMs: 1000}
					c.Init(in, func(out InitOut, _ *kerr.Error) { told <- out })
					at := <-told
					added := make(chan struct{}, 1)
					c.Add(Part{in.TxnID, at.PID, at.Epoch, 2, []TP{tp("x", int32(w))}}, func(*kerr.Error) {},
						func(*kerr.Error) { added <- struct{}{} })
					<-added
					answered[w] += 2
					clock.Sleep(clock.Real(), 60*time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for i := range 200 {
				clock.Sleep(clock.Real(), 100*time.Millisecond)
				c.Tick()
				if i%50 == 49 {
					shard := i % 4
					if err := c.Reload(shard, js[shard], nil); err != nil {
						t.Error(err)
					}
				}
			}
			c.Close()
		})
		wg.Wait()
		c.Close()
		ids.Close()
		for w, n := range answered {
			if n != 800 {
				t.Errorf("worker %d: %d answers, want 800", w, n)
			}
		}
		if snaps.saved == 0 {
			t.Error("no snapshot was saved")
		}
	})
}

// A journal that could not be read at the start, or that was replaced, may know producer ids above those given out.
func TestReloadKeepsIDsAbove(t *testing.T) {
	r := newRig(t)
	v := newTxn(700_000)
	v.state, v.epoch, v.timeoutMs, v.nextPID = PrepareCommit, maxClientEpoch, 1000, 700_005
	j := &fakeJournal{}
	j.Append([]Record{r.s.record("b", &v, -1)}, false, func(int64, error) {}, func(error) {})
	if err := r.c.Reload(0, j, nil); err != nil {
		t.Fatal(err)
	}
	if at := r.fresh("c"); at.PID <= 700_005 {
		t.Fatalf("producer id %d, and 700005 is known", at.PID)
	}
}
