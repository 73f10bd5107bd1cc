package broker

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tally counts how often each record was handed out.
type tally struct {
	mu    sync.Mutex
	seen  map[string]int
	total int
}

func (s *tally) add(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[v]++
	s.total++
}

func (s *tally) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// write produces records "from" to "to"-1 over all partitions.
func write(ctx context.Context, t *testing.T, addr, topic string, from, to int) {
	t.Helper()
	w, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := from; i < to; i++ {
		w.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// worker is one member of a group that commits what it has handed out before it gives partitions away.
type worker struct {
	cl   *kgo.Client
	done chan struct{}
}

func newWorker(ctx context.Context, t *testing.T, addr string, s *tally, opts ...kgo.Opt) *worker {
	t.Helper()
	opts = append(opts, kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("readers"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cl: cl, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			fs := cl.PollFetches(ctx)
			if fs.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fs.EachRecord(func(r *kgo.Record) { s.add(string(r.Value)) })
			if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("commit: %v", err)
			}
			cl.AllowRebalance()
		}
	}()
	return w
}

func (w *worker) close() {
	w.cl.CloseAllowingRebalance()
	<-w.done
}

// TestFranzGroup: members of a stock client come and go while records are written; every record is handed out exactly
// once, since all rebalances are orderly, and the positions hold over a restart.
func TestFranzGroup(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"cooperative": kgo.CooperativeStickyBalancer(), "eager": kgo.RangeBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			dir := t.TempDir()
			onDisk := func(c *Config) {
				c.Store.FS, c.Store.Dir = vfs.OS(), dir
				c.Groups.InitialDelayMs, c.OffsetsPartitions = 0, 8
			}
			n := start(t, onDisk)
			n.topic("events", 6, nil)
			seen := &tally{}
			one := func() *worker { return newWorker(ctx, t, n.addr, seen, kgo.Balancers(balancer)) }
			write(ctx, t, n.addr, "events", 0, 300)
			a := one()
			eventually(t, "the first member reads all", func() bool { return seen.distinct() == 300 })
			b := one()
			eventually(t, "two members share", func() bool { return members(ctx, t, n.addr) == 2 })
			write(ctx, t, n.addr, "events", 300, 600)
			eventually(t, "both read all", func() bool { return seen.distinct() == 600 })
			c := one()
			a.close()
			write(ctx, t, n.addr, "events", 600, 900)
			eventually(t, "the others read all", func() bool { return seen.distinct() == 900 })
			b.close()
			c.close()
			n.stop()
			n = start(t, onDisk)
			write(ctx, t, n.addr, "events", 900, 1000)
			d := one()
			eventually(t, "one goes on after the restart", func() bool { return seen.distinct() == 1000 })
			d.close()
			if seen.total != 1000 {
				t.Fatalf("%d records were handed out %d times", seen.distinct(), seen.total)
			}
		})
	}
}

// members is how many members the stable group has; 0 while it is not stable.
func members(ctx context.Context, t *testing.T, addr string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	gs, err := kadm.NewClient(cl).DescribeGroups(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	if g := gs["readers"]; g.Err == nil && g.State == "Stable" {
		return len(g.Members)
	}
	return 0
}

// TestFranzExactlyOnce: two members read, change and write in transactions, with their positions in the same
// transaction; one is replaced in the middle, every third transaction is aborted. The output holds each input once.
func TestFranzExactlyOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n, _ := grouped(t, nil)
	n.topic("events", 4, nil)
	n.topic("results", 4, nil)
	const records = 600
	write(ctx, t, n.addr, "events", 0, records)
	done := map[string]func(){}
	stage := func(id string) {
		c, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { transact(c, t, n.addr, id); close(ended) }()
		done[id] = func() { stop(); <-ended }
	}
	stage("a")
	stage("b")
	results := func() map[string]int { return readCommitted(ctx, t, n.addr) }
	eventually(t, "some output", func() bool { return len(results()) >= records/4 })
	done["a"]()
	delete(done, "a")
	stage("c")
	eventually(t, "all output", func() bool { return len(results()) == records })
	for _, stop := range maps.Clone(done) {
		stop()
	}
	for v, times := range results() {
		if times != 1 {
			t.Errorf("result of %s was written %d times", v, times)
		}
	}
}

// transact is one process of the read-process-write loop; what a transaction did is thrown away at every third one.
func transact(ctx context.Context, t *testing.T, addr, id string) {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(addr), kgo.TransactionalID("worker-"+id),
		kgo.ConsumerGroup("workers"), kgo.ConsumeTopics("events"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	for i := 0; ; i++ {
		fs := s.PollRecords(ctx, 20)
		if ctx.Err() != nil {
			return
		}
		if fs.Empty() {
			continue
		}
		if err := s.Begin(); err != nil {
			t.Error(err)
			return
		}
		fs.EachRecord(func(r *kgo.Record) {
			// Not ctx: its end would drop records of a transaction that is committed all the same.
			s.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: "results", Key: r.Value, Value: r.Value}, nil)
		})
		if _, err := s.End(context.WithoutCancel(ctx), kgo.TransactionEndTry(i%3 != 2)); err != nil {
			t.Errorf("end: %v", err)
			return
		}
	}
}

// readCommitted counts the records of results that a read_committed reader sees up to the present end.
func readCommitted(ctx context.Context, t *testing.T, addr string) map[string]int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("results"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, "results")
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	out := map[string]int{}
	for len(left) > 0 {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fs := cl.PollFetches(short)
		cancel()
		fs.EachRecord(func(r *kgo.Record) {
			out[string(r.Value)]++
			if r.Offset+2 >= left[r.Partition] { // the marker follows
				delete(left, r.Partition)
			}
		})
		if short.Err() != nil {
			break // only markers are left
		}
	}
	return out
}
