package coord

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

// TestTopicsDeletedBesideAFailedFlush: TopicsDeleted waits behind a decision whose flush fails.
func TestTopicsDeletedBesideAFailedFlush(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0))
	r.j.hold = true
	ended := r.end("a", at, 2, true)
	n, got := 0, error(nil)
	r.c.TopicsDeleted([][16]byte{tp("other", 0).ID}, func(err error) { n, got = n+1, err })
	if n != 0 {
		t.Fatal("answered before the record under way")
	}
	r.j.broken = errTest
	r.j.flush()
	ended.want(t, kerr.NotCoordinator)
	r.tick(10 * time.Minute)
	if n != 1 {
		t.Errorf("TopicsDeleted: %d answers (%v) ten minutes after the flush failed, want 1", n, got)
	}
}

type gated struct{ open chan struct{} }

func (g *gated) Reserve(n int64) (int64, error) { <-g.open; return 90_000, nil }

// TestTimeoutForgotten: a transaction whose epoch is exhausted runs out of time while its next producer id is
// being reserved, and a partition is added at the moment it comes.
func TestTimeoutForgotten(t *testing.T) {
	cfg := Config{TimeoutMaxMs: 900_000, IDExpireMs: 604_800_000, SnapshotEvery: 1 << 40, RewriteEvery: 1 << 40, TV: 2}
	gate := &gated{make(chan struct{})}
	ids := NewProducerIDs(gate, 1000)
	clk := clock.NewSim(1_000_000)
	j := &fakeJournal{}
	c := New(cfg, ids, &fakeSink{fail: map[TP][]error{}}, nil, clk)
	s := newShard(c, 0, j)
	c.shards.Store(&[]*shard{s})
	var once sync.Once
	defer func() { once.Do(func() { close(gate.open) }); c.Close(); ids.Close() }()
	on := func(fn func()) {
		done := make(chan struct{})
		s.post(func() { fn(); close(done) })
		<-done
	}
	on(func() {
		s.load("x", at(Ongoing, maxClientEpoch, func(t *txn) {
			t.timeoutMs, t.tps = 60_000, []TP{tp("a", 0)}
		}), 1000, 0)
	})
	s.live()
	clk.Advance(2 * time.Second)
	c.Tick()
	on(func() {}) // the timeout waits for its producer id
	pid := int64(0)
	on(func() { pid = s.entries["x"].t.pid })

	hold := make(chan struct{})
	on(func() { go s.post(func() { <-hold }) })
	busy := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.running && len(s.queue) == 0 }
	for !busy() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	added := make(chan *kerr.Error, 1)
	c.Add(Part{"x", pid, maxClientEpoch, 2, []TP{tp("a", 1)}}, nil, func(code *kerr.Error) { added <- code })
	once.Do(func() { close(gate.open) })
	queued := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.queue) }
	for queued() < 2 {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	if code := <-added; code != nil {
		t.Fatal(code)
	}
	on(func() {
		e := s.entries["x"]
		t.Logf("after the add: %v pending %v slot %d flight %d spare %d", e.t.state, e.t.pending, e.slot, e.flight,
			s.spare)
	})
	for range 3600 {
		clk.Advance(time.Second)
		c.Tick()
		on(func() {})
	}
	on(func() {
		e := s.entries["x"]
		if e.t.state == Ongoing {
			t.Errorf("an hour after its timeout of 1 s: %v, armed %v: it never ends", e.t.state, e.slot >= 0)
		}
	})
}
func TestVerifyAdopted(t *testing.T) {
	r := newRig(t)
	r.s.loading = true
	r.s.load("x", at(Ongoing, 5, func(t *txn) { t.timeoutMs, t.tps = 60_000, []TP{{Topic: "a", Partition: 0}} }), -1, 0)
	r.s.live()
	var got []*kerr.Error
	r.c.Verify(Part{"x", pidP, 5, 0, []TP{tp("a", 0)}}, func(codes []*kerr.Error) { got = codes })
	if len(got) != 1 || got[0] != nil {
		t.Errorf("a registered partition: %v, want nil", got)
	}
}
