package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/internal/clock"
)

// nullJournal takes everything at once and keeps nothing.
type nullJournal struct {
	*fakeJournal
	next int64
}

func (j *nullJournal) Append(recs []Record, _ int64, _ int16, _ uint64, done func(int64, error)) {
	base := j.next
	j.next += int64(len(recs))
	done(base, nil)
}

// BenchmarkCommit is an OffsetCommit of ten partitions without its journal.
func BenchmarkCommit(b *testing.B) {
	cfg := testConfig()
	cfg.RewriteEvery, cfg.SnapshotEvery = 0, 0
	topics := newFakeTopics()
	topics.set("orders", 1, 10)
	m := New(cfg, topics, newFakeSnaps(), clock.NewSim(0))
	if err := m.Load(b.Context(), []Journal{&nullJournal{fakeJournal: newFakeJournal()}}); err != nil {
		b.Fatal(err)
	}
	in := plain("g", 0, 0)
	for p := int32(1); p < 10; p++ {
		in.TPs = append(in.TPs, TP{Topic: "orders", ID: [16]byte{1}, Partition: p})
		in.Offsets = append(in.Offsets, Offset{LeaderEpoch: -1})
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Commit(in, func(codes []*kerr.Error, _ uint64) {
			if codes[0] != nil {
				b.Fatal(codes[0])
			}
		})
	}
}
