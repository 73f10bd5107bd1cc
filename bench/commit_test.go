package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/clock"
)

// instantJournal is a transaction log that keeps nothing and is durable at once: what is left is the coordinator's
// work.
type instantJournal struct {
	mu    sync.Mutex
	end   int64
	bytes int64
}

func (j *instantJournal) Append(recs []coord.Record, _ bool, written func(int64, error), done func(error)) {
	j.mu.Lock()
	base := j.end
	j.end += int64(len(recs))
	for _, r := range recs {
		j.bytes += int64(len(r.Key) + len(r.Value))
	}
	j.mu.Unlock()
	written(base, nil)
	done(nil)
}

func (j *instantJournal) Replay(int64, func(int64, coord.Record) error) error { return nil }

func (j *instantJournal) Flush()                 {}
func (j *instantJournal) Start() int64           { return 0 }
func (j *instantJournal) DropBefore(int64) error { return nil }
func (j *instantJournal) End() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// instantSink has every marker durable at once.
type instantSink struct{ n atomic.Int64 }

func (k *instantSink) Marker(_ coord.TP, _ batch.Marker, _ bool, done func(error)) {
	k.n.Add(1)
	done(nil)
}

type pidCounter struct{ next int64 }

func (c *pidCounter) Reserve(n int64) (int64, error) {
	c.next += n
	return c.next - n, nil
}

// commits is a coordinator over instant fakes.
type commits struct {
	c    *coord.Coordinator
	js   []*instantJournal
	sink *instantSink
}

func newCommits(b *testing.B, shards int, inline bool) *commits {
	k := &commits{sink: &instantSink{}}
	ids := coord.NewProducerIDs(&pidCounter{}, 1000)
	cfg := coord.Config{TimeoutMaxMs: 900_000, IDExpireMs: 604_800_000, TV: 2, Inline: inline}
	k.c = coord.New(cfg, ids, k.sink, nil, clock.Real())
	journals := make([]coord.Journal, shards)
	for i := range journals {
		k.js = append(k.js, &instantJournal{})
		journals[i] = k.js[i]
	}
	if err := k.c.Recover(b.Context(), journals, 1, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ids.Close(); k.c.Close() })
	return k
}

// producer is one transactional id and what it waits on.
type producer struct {
	id   string
	at   coord.InitOut
	tps  []coord.TP
	told chan *kerr.Error
}

func (k *commits) producer(b *testing.B, id string, partitions int) *producer {
	p := &producer{id: id, told: make(chan *kerr.Error, 1)}
	for i := range partitions {
		p.tps = append(p.tps, coord.TP{Topic: "orders", ID: [16]byte{1}, Partition: int32(i)})
	}
	k.c.Init(coord.InitIn{TxnID: id, TimeoutMs: 60_000, PID: -1, Epoch: -1}, p.moved)
	if code := <-p.told; code != nil {
		b.Fatal(code)
	}
	return p
}

func (p *producer) moved(out coord.InitOut, code *kerr.Error) {
	if code == nil {
		p.at = out
	}
	p.told <- code
}

// commit runs one transaction: registration, decision, markers, completion.
func (k *commits) commit(b *testing.B, p *producer) {
	k.c.Add(coord.Part{TxnID: p.id, PID: p.at.PID, Epoch: p.at.Epoch, TV: 2, TPs: p.tps}, nil,
		func(code *kerr.Error) { p.told <- code })
	code := <-p.told
	if code == nil {
		k.c.End(coord.EndIn{TxnID: p.id, PID: p.at.PID, Epoch: p.at.Epoch, TV: 2, Commit: true}, p.moved)
		code = <-p.told
	}
	if code != nil {
		b.Fatal(code)
	}
}

// BenchmarkCommitState is the coordinator alone, one transaction an operation: three records and a marker for each
// partition, with nothing below it. The epoch of a producer is used up every 32766 transactions, which is part of it.
func BenchmarkCommitState(b *testing.B) {
	for _, partitions := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("inline/partitions=%d", partitions), func(b *testing.B) {
			k := newCommits(b, 1, true)
			p := k.producer(b, "payments", partitions)
			b.ReportAllocs()
			for b.Loop() {
				k.commit(b, p)
			}
			k.report(b, partitions)
		})
	}
	b.Run("goroutines/partitions=1", func(b *testing.B) {
		k := newCommits(b, 50, false)
		var n atomic.Int64
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			p := k.producer(b, fmt.Sprintf("payments-%d", n.Add(1)), 1)
			for pb.Next() {
				k.commit(b, p)
			}
		})
		k.report(b, 1)
	})
}

// report checks that every transaction had its markers and tells what it wrote.
func (k *commits) report(b *testing.B, partitions int) {
	if want := int64(b.N * partitions); k.sink.n.Load() != want {
		b.Fatalf("%d markers, want %d", k.sink.n.Load(), want)
	}
	bytes := int64(0)
	for _, j := range k.js {
		bytes += j.bytes
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "journal-B/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
}

// BenchmarkTxnRecord encodes and decodes the record of a transaction of ten partitions.
func BenchmarkTxnRecord(b *testing.B) {
	l := coord.Logged{
		Info:    coord.Info{TxnID: "payments-worker-17", State: coord.Ongoing, PID: 4711, Epoch: 3, TimeoutMs: 60_000},
		PrevPID: -1, NextPID: -1, LastEpoch: 2, NextEpoch: -1, ClientTV: 2, RemainingMs: 60_000,
	}
	for i := range int32(10) {
		l.TPs = append(l.TPs, coord.TP{Topic: "orders", ID: [16]byte{1}, Partition: i})
	}
	r := l.Record()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r = l.Record()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := coord.DecodeRecord(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
