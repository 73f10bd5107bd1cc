package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFranzIdempotent is the first end-to-end path: a stock client with idempotence on, which is its default, writes
// to a topic made on first use, over the real engine on a real disk; after a restart a reader gets every record once,
// in order.
func TestFranzIdempotent(t *testing.T) {
	dir := t.TempDir()
	onDisk := func(c *Config) { c.Store.FS, c.Store.Dir = vfs.OS(), dir }
	n := start(t, onDisk)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const records = 2000
	w, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("events"),
		kgo.ProducerLinger(time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		w.Produce(ctx, &kgo.Record{Key: fmt.Append(nil, i%7), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for range 2 {
		readBack(ctx, t, n.addr, records)
		n.stop()
		n = start(t, onDisk)
	}
}

func readBack(ctx context.Context, t *testing.T, addr string, records int) {
	t.Helper()
	r, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := 0; i < records; {
		fs := r.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(rec *kgo.Record) {
			if want := fmt.Sprint(i); string(rec.Value) != want || rec.Offset != int64(i) {
				t.Fatalf("record %d has value %q at offset %d", i, rec.Value, rec.Offset)
			}
			i++
		})
	}
}
