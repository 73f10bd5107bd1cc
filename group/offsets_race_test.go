package group

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
	"sekali/internal/clock"
)

// TestOffsetsConcurrent: clients, transactions, ticks, rewrites and snapshots together, with a goroutine per shard;
// what was answered is there, before and after a restart, and Close leaves nothing behind.
func TestOffsetsConcurrent(t *testing.T) {
	const clients, rounds, parts = 6, 60, 2
	cfg := Defaults()
	cfg.RewriteEvery, cfg.SnapshotEvery = 25, 15
	clk, topics, snaps := clock.NewSim(1_700_000_000_000), newFakeTopics(), newFakeSnaps()
	topics.set("orders", 1, 1)
	journals := make([]*fakeJournal, parts)
	list := make([]Journal, parts)
	for i := range journals {
		journals[i] = newFakeJournal()
		list[i] = journals[i]
	}
	m := New(cfg, topics, snaps, clk)
	if err := m.Load(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var ticks, wg sync.WaitGroup
	ticks.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				clk.Advance(100 * time.Millisecond)
				m.Tick()
			}
		}
	})
	want := make([]int64, clients)
	for c := range clients {
		wg.Go(func() {
			want[c] = commitRounds(m, journals, fmt.Sprint("group-", c), int64(c), rounds)
		})
	}
	wg.Wait()
	// Every shard has records enough for a rewrite and a snapshot; how far they have come depends on the scheduler.
	upkept := func() bool {
		rewritten := false
		for _, j := range journals {
			rewritten = rewritten || j.Start() > 0
		}
		return rewritten && snaps.count() == parts
	}
	for range 10_000 {
		if upkept() {
			break
		}
		clock.Sleep(clock.Real(), time.Millisecond)
	}
	close(stop)
	ticks.Wait()
	read := func(when string) {
		for c := range clients {
			got := make(chan int64, 1)
			tp := TP{Topic: "orders"}
			in := FetchIn{Member: Member{Group: fmt.Sprint("group-", c), Generation: -1}, TPs: []TP{tp}, StableOnly: true}
			m.Fetch(in, func(all map[TP]Fetched, _ *kerr.Error) { got <- all[tp].Offset.Offset })
			if at := <-got; at != want[c] {
				t.Errorf("%s: group %d holds %d, want %d", when, c, at, want[c])
			}
		}
	}
	read("running")
	m.Close()
	if !upkept() {
		t.Fatalf("%d snapshots, want %d, and one journal rewritten at least", snaps.count(), parts)
	}
	m = New(cfg, topics, snaps, clk)
	if err := m.Load(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	read("restarted")
	m.Close()
}

// commitRounds commits in turn plainly, in a transaction that commits and in one that aborts, and gives the offset that
// must hold at the end.
func commitRounds(m *Manager, journals []*fakeJournal, id string, pid int64, rounds int) (last int64) {
	type answer struct {
		codes []*kerr.Error
		guard uint64
	}
	at := Partition(id, int32(len(journals)))
	for i := range rounds {
		in := plain(id, 0, int64(i))
		if i%3 > 0 {
			in = staged(id, pid, 0, int64(i))
		}
		for {
			got := make(chan answer, 1)
			m.Commit(in, func(codes []*kerr.Error, guard uint64) { got <- answer{codes, guard} })
			a := <-got
			if a.guard != 0 {
				in.Guard = a.guard
				continue
			}
			if a.codes[0] != nil {
				return -100
			}
			break
		}
		if i%3 > 0 {
			mk := batch.Marker{PID: pid, Epoch: 3, Commit: i%3 == 1}
			m.OnMarker(at, journals[at].marker(mk), mk)
		}
		if i%3 < 2 {
			last = int64(i)
		}
	}
	return last
}
