package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFranzTransactions is the path of transactions from end to end with a stock client, on a real disk: of six
// transactions every second one is aborted; a read_committed consumer sees the others, whole and in order, a
// read_uncommitted one sees all of them, and both do after a restart.
func TestFranzTransactions(t *testing.T) {
	dir := t.TempDir()
	onDisk := func(c *Config) { c.Store.FS, c.Store.Dir = vfs.OS(), dir }
	n := start(t, onDisk)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n.topic("events", 3, nil)
	w, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.DefaultProduceTopic("events"),
		kgo.TransactionalID("payments"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	const txns, each = 6, 9
	for i := range txns {
		if err := w.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for j := range each {
			r := &kgo.Record{Value: fmt.Append(nil, i*each+j), Partition: int32(j % 3)}
			w.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatalf("end of transaction %d: %v", i, err)
		}
	}
	w.Close()
	for range 2 {
		want := map[int32][]string{}
		all := map[int32][]string{}
		for i := range txns {
			for j := range each {
				p, v := int32(j%3), fmt.Sprint(i*each+j)
				all[p] = append(all[p], v)
				if i%2 == 0 {
					want[p] = append(want[p], v)
				}
			}
		}
		consumeAll(ctx, t, n.addr, kgo.ReadCommitted(), want)
		consumeAll(ctx, t, n.addr, kgo.ReadUncommitted(), all)
		n.stop()
		n = start(t, onDisk)
	}
}

// consumeAll reads topic events until it has as many records as want and compares.
func consumeAll(ctx context.Context, t *testing.T, addr string, level kgo.IsolationLevel, want map[int32][]string) {
	t.Helper()
	r, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	left := 0
	for _, vs := range want {
		left += len(vs)
	}
	got := map[int32][]string{}
	for left > 0 {
		fs := r.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d records missing: %v", left, err)
		}
		fs.EachRecord(func(rec *kgo.Record) {
			got[rec.Partition] = append(got[rec.Partition], string(rec.Value))
			left--
		})
	}
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("read %s, want %s", g, w)
	}
}
