package coord

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

// TestClientsBesideTicksDeletionsAndReload runs clients of their own ids, each transaction after the other, while
// ticks, deletions of a topic and a Reload of each shard go on and completions come late and from other goroutines.
// Every call is answered, every transaction ends, and what clients were told adds up with the markers.
func TestClientsBesideTicksDeletionsAndReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, clients, each = 3, 8, 30
		ids := NewProducerIDs(&counter{next: 1, delay: time.Millisecond}, 5)
		sink := &fakeSink{fail: map[TP][]error{}, hold: true}
		cfg := Config{TimeoutMaxMs: 600_000, IDExpireMs: 1 << 40, SnapshotEvery: 1 << 40, RewriteEvery: 2000, TV: 2}
		c := New(cfg, ids, sink, nil, clock.Real())
		var mu sync.Mutex
		var journals []Journal
		for range shards {
			journals = append(journals, &fakeJournal{hold: true})
		}
		if err := c.Recover(context.Background(), journals, 1, nil); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var beside, work sync.WaitGroup
		every := func(d time.Duration, fn func()) {
			beside.Go(func() {
				tick := time.NewTicker(d)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						fn()
					}
				}
			})
		}
		every(time.Millisecond, func() {
			mu.Lock()
			js := append([]Journal(nil), journals...)
			mu.Unlock()
			for _, j := range js {
				j.(*fakeJournal).flush()
			}
		})
		every(time.Millisecond, func() { sink.flush() })
		every(100*time.Millisecond, c.Tick)
		every(30*time.Millisecond, func() { c.TopicsDeleted([][16]byte{tp("gone", 0).ID}, func(error) {}) })
		n := 0
		every(150*time.Millisecond, func() {
			i := n % shards
			n++
			mu.Lock()
			j := journals[i].(*fakeJournal).crash(0)
			journals[i] = j
			mu.Unlock()
			if err := c.Reload(i, j, nil); err != nil {
				t.Errorf("reload of shard %d: %v", i, err)
			}
		})
		for i := range clients {
			work.Go(func() { runClient(t, c, fmt.Sprint("client ", i), each) })
		}
		work.Wait()
		close(stop)
		beside.Wait()
		ids.Close()
		c.Close()
		commits := 0
		for _, s := range sink.markers() {
			if s.m.Commit {
				commits++
			}
		}
		if commits < clients*each {
			t.Fatalf("%d commit markers for %d transactions", commits, clients*each)
		}
	})
}

// runClient commits n transactions one after the other, sending each request again until it is answered.
func runClient(t *testing.T, c *Coordinator, id string, n int) {
	again := func(send func(done func(InitOut, *kerr.Error))) (InitOut, *kerr.Error) {
		for {
			type answer struct {
				out  InitOut
				code *kerr.Error
			}
			got := make(chan answer, 1)
			send(func(out InitOut, code *kerr.Error) { got <- answer{out, code} })
			a := <-got
			switch a.code {
			case kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.CoordinatorNotAvailable:
				time.Sleep(3 * time.Millisecond)
				continue
			}
			return a.out, a.code
		}
	}
	at, code := again(func(f func(InitOut, *kerr.Error)) { c.Init(InitIn{id, 60_000, -1, -1}, f) })
	for i := range n {
		if code == nil {
			_, code = again(func(f func(InitOut, *kerr.Error)) {
				c.Add(Part{id, at.PID, at.Epoch, 2, []TP{tp("a", int32(i)), tp("gone", 0)}}, nil,
					func(code *kerr.Error) { f(noOut, code) })
			})
		}
		if code == nil {
			at, code = again(func(f func(InitOut, *kerr.Error)) { c.End(EndIn{id, at.PID, at.Epoch, 2, true}, f) })
		}
		if code != nil {
			t.Errorf("%s: transaction %d: %v", id, i, code)
			return
		}
	}
}

// TestRequestBehindStop: a request that has passed the test for Close, and is in the queue behind the end of its shard,
// is answered.
func TestRequestBehindStop(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	var replies []*reply
	dropped := new(reply)
	r.s.post(func() {
		r.s.stop(kerr.CoordinatorNotAvailable)
		_, done := r.add("a", at, 2, tp("x", 0))
		replies = append(replies, r.init(InitIn{TxnID: "b", PID: -1, Epoch: -1}), r.end("a", at, 2, false), done)
		r.c.TopicsDeleted([][16]byte{tp("x", 0).ID}, func(error) { dropped.n++ })
	})
	for i, p := range replies {
		if p.n != 1 || p.code != kerr.NotCoordinator {
			t.Errorf("request %d: %d answers, %v", i, p.n, p.code)
		}
	}
	if dropped.n != 1 {
		t.Errorf("TopicsDeleted: %d answers", dropped.n)
	}
}
