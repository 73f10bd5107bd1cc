package cases

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// D1. The LSO is an exclusive bound.
func TestD1ExclusiveBound(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d1", 1)
		n.want("plain", n.P(p, n.init(), 0, 1), codeNone, 0)
		x := n.INIT(g, "d1")
		n.oneOf("ADD", x.ADD(p), 0)
		if base := x.must(p, 2); base != 1 {
			t.Fatalf("the transaction begins at %d", base)
		}
		if got := n.committed(p, 0, 1<<20); n.stable(p) != 1 || len(got) != 1 {
			t.Errorf("open: LSO %d, read %v; want 1 and the plain one", n.stable(p), got)
		}
		x.ended(false)
		n.decided(p)
		n.holds(p, 1)
	})
}

// D2, with a transaction: the only content is an open one at the log start.
func TestD2OpenAtStart(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d2", 1)
		n.want("plain", n.P(p, n.init(), 0, 3), codeNone, 0)
		x := n.INIT(g, "d2")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 2)
		if code, low := n.deleteRecords(p, 3); code != 0 || low != 3 {
			t.Fatalf("DeleteRecords: code %d, low watermark %d", code, low)
		}
		look := func(when string) {
			t.Helper()
			f := n.F(p, 3, committed)
			if f.ErrorCode != 0 || len(f.RecordBatches) != 0 || f.HighWatermark != 5 || f.LastStableOffset != 3 ||
				f.LogStartOffset != 3 {
				t.Errorf("%s: %+v", when, f)
			}
		}
		look("open")
		n.restart("KILL")
		look("after KILL")
	})
}

// D3. read_uncommitted sees everything.
func TestD3Uncommitted(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d3", 1)
		x := n.INIT(g, "d3")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 5)
		x.ended(false)
		n.decided(p)
		look := func(want int) {
			t.Helper()
			f := n.F(p, 0, uncommitted)
			if len(f.AbortedTransactions) != 0 {
				t.Errorf("aborted transactions told: %+v", f.AbortedTransactions)
			}
			data := 0
			for _, v := range n.read(p).batches() {
				if !v.Attrs().Control() {
					data += int(v.Count())
				}
			}
			if data != want {
				t.Errorf("%d records, want %d", data, want)
			}
		}
		look(5)
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 4)
		look(9)
	})
}

// D4. The list of aborted transactions.
func TestD4AbortedList(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d4", 1, "segment.bytes", "1048576", "index.interval.bytes", "200")
		a, b := n.INIT(g, "d4-a"), n.INIT(g, "d4-b")
		var want []int64
		for _, commit := range []bool{true, false, true, false, false, true} {
			n.oneOf("ADD", a.ADD(p), 0)
			n.oneOf("ADD", b.ADD(p), 0)
			for range 3 {
				at, bt := a.must(p, 1), b.must(p, 1)
				if commit {
					want = append(want, at)
				} else {
					want = append(want, bt)
				}
			}
			a.ended(commit)
			b.ended(!commit)
		}
		n.decided(p)
		look := func() {
			t.Helper()
			for o := range n.high(p) + 1 {
				for _, most := range []int32{1, 300, 1 << 20} {
					var left []int64
					for _, w := range want {
						if w >= o {
							left = append(left, w)
						}
					}
					got := n.committed(p, o, most)
					if len(got) != len(left) {
						t.Fatalf("from %d with %d bytes: %v; want the offsets %v", o, most, got, left)
					}
					for i := range got {
						if got[i].offset != left[i] {
							t.Fatalf("from %d with %d bytes: %v; want the offsets %v", o, most, got, left)
						}
					}
				}
			}
		}
		look()
		n.restart("KILL")
		look()
		n.restart("STOP")
		look()
	})
}

// D5. ListOffsets honours isolation.
func TestD5ListOffsets(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d5", 1)
		n.want("plain", n.P(p, n.init(), 0, 10, shape{time: 1_000_000}), codeNone, 0)
		x := n.INIT(g, "d5")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 10)
		if ru, rc := n.offset(p, -1, uncommitted), n.offset(p, -1, committed); ru != 20 || rc != 10 {
			t.Errorf("latest: %d and %d, want 20 and 10", ru, rc)
		}
		if ru, rc := n.offset(p, 1_000_001, uncommitted), n.offset(p, 1_000_001, committed); ru != 10 || rc != -1 {
			t.Errorf("by time: %d and %d, want 10 and none", ru, rc)
		}
		if ru, rc := n.offset(p, 1, uncommitted), n.offset(p, 1, committed); ru != 0 || rc != 0 {
			t.Errorf("by an early time: %d and %d, want 0 and 0", ru, rc)
		}
		x.ended(true)
		n.decided(p)
		if rc := n.offset(p, -1, committed); rc != 21 {
			t.Errorf("latest after the commit: %d", rc)
		}
	})
}

// D6. Readers get past batches with nothing for the application. (Other client families read the same in compat.)
func TestD6PastNothing(t *testing.T) {
	generations(t, options{realTime: true}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d6", 1)
		x := n.INIT(g, "d6")
		aborts := size(60, 1000)
		for i := range aborts {
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 1)
			x.ended(false)
			if i == 0 || i == aborts-1 {
				n.reachesEnd(p, 0)
			}
		}
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 1)
		x.ended(true)
		n.reachesEnd(p, 1)
	})
}

// reachesEnd reads with a client library, read_committed, until it stands at the high watermark.
func (n *node) reachesEnd(p tp, want int) {
	n.t.Helper()
	n.decided(p)
	high := n.high(p)
	if got := n.committed(p, 0, 200); len(got) != want {
		n.t.Errorf("raw: %v, want %d", got, want)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.address()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.topic: {p.partition: kgo.NewOffset().AtStart()}}),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	n.must(err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, at := 0, int64(0)
	for at < high {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			n.t.Fatalf("stands at %d of %d: %v", at, high, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if !r.Attrs.IsControl() {
				got++
			}
		})
	}
	if got != want {
		n.t.Errorf("franz-go: %d records, want %d", got, want)
	}
}

// D7. Plain data behind an open transaction waits, its producer does not.
func TestD7PlainBehindOpen(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d7", 1)
		plain := n.init()
		n.want("before", n.P(p, plain, 0, 5), codeNone, 0)
		x := n.INIT(g, "d7")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 1)
		for i := range int32(5) {
			n.want("behind", n.P(p, plain, 5+i, 1), codeNone, 6+int64(i))
		}
		if got := n.committed(p, 0, 1<<20); len(got) != 5 || n.stable(p) != 5 {
			t.Errorf("open: LSO %d, read %v", n.stable(p), got)
		}
		x.ended(true)
		n.decided(p)
		got := n.committed(p, 0, 1<<20)
		for i := range got {
			if got[i].offset != int64(i) {
				t.Fatalf("record %d at %d", i, got[i].offset)
			}
		}
		if len(got) != 11 {
			t.Errorf("decided: %v", got)
		}
	})
}

// D8. One marker is one offset.
func TestD8MarkerIsOneOffset(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		ps := []tp{n.topic("d8", 3), {"d8", 1}, {"d8", 2}}
		x := n.INIT(g, "d8")
		var want [3]int64
		look := func(when string) {
			t.Helper()
			for i, p := range ps {
				if n.wantHigh(p, want[i]); n.stable(p) != want[i] {
					t.Errorf("%s: LSO of %v is %d, want %d", when, p, n.stable(p), want[i])
				}
			}
		}
		end := func(commit bool) {
			x.ended(commit)
			n.decided(ps...)
		}
		for _, commit := range []bool{false, true} {
			n.oneOf("ADD", x.ADD(ps[0]), 0)
			x.must(ps[0], 4)
			end(commit)
			want[0] += 5
			look(fmt.Sprint("commit ", commit))
		}
		n.oneOf("ADD", x.ADD(ps...), 0)
		for i, p := range ps {
			x.must(p, i+1)
			want[i] += int64(i) + 2
		}
		end(true)
		look("three partitions")
		n.restart("STOP")
		look("after STOP")
		n.restart("KILL")
		look("after KILL")
	})
}

// D9. Fetching inside the unstable stretch.
func TestD9UnstableStretch(t *testing.T) {
	generations(t, options{realTime: true}, func(t *testing.T, n *node, g generation) {
		p := n.topic("d9", 1)
		n.want("plain", n.P(p, n.init(), 0, 10), codeNone, 0)
		x := n.INIT(g, "d9")
		n.oneOf("ADD", x.ADD(p), 0)
		for range 9 {
			x.must(p, 10)
		}
		c := n.dial()
		fetch := func(at int64, wait int32) *kmsg.FetchRequest {
			r := rawclient.Fetch(fetchVersion, p.topic, p.partition, at)
			r.IsolationLevel, r.MaxWaitMillis, r.MinBytes = committed, wait, 1
			return r
		}
		for _, at := range []int64{50, 10, 100} {
			begin := time.Now()
			f := askOn[*kmsg.FetchResponse](n, c, fetch(at, 500)).Topics[0].Partitions[0]
			took := time.Since(begin)
			if f.ErrorCode != 0 || len(f.RecordBatches) != 0 || f.LastStableOffset != 10 || f.HighWatermark != 100 {
				t.Errorf("at %d: %+v", at, f)
			}
			if took < 450*time.Millisecond {
				t.Errorf("at %d: answered after %v", at, took)
			}
		}
		if f := n.F(p, 101, committed); f.ErrorCode != 1 {
			t.Errorf("at 101: code %d, want 1", f.ErrorCode)
		}
		r := fetch(10, 20_000)
		begin := time.Now()
		n.must(c.Send(r))
		x.ended(true)
		resp, err := c.Receive(r)
		n.must(err)
		f := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if len(f.RecordBatches) == 0 || time.Since(begin) > 15*time.Second {
			t.Errorf("after the end: %d bytes after %v", len(f.RecordBatches), time.Since(begin))
		}
	})
}
