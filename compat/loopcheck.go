package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	library "sekali/compat/client"
)

// loopRecord is one record of the loop.
type loopRecord struct {
	partition  int32
	key, value string
}

const (
	loopPartitions = 2
	settleLimit    = 10 * time.Second
)

// begin makes the topics of a run and fills the input: two partitions of n records each, in transactions of five, with
// others between them that were aborted.
func (b *bench) begin(ctx context.Context, c *client, name string, n int) (*journey, error) {
	base := strings.Join([]string{"loop", b.run, c.name, name}, "-")
	j := &journey{b: b, c: c}
	j.args = loopArgs{in: base + "-in", out: base + "-out", group: base, id: base, protocol: c.protocol}
	if !c.dynamic {
		j.args.instance = base
	}
	if _, err := b.ref.admin.CreateTopics(ctx, loopPartitions, 1, nil, j.args.in, j.args.out); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.ref.bootstrap), kgo.TransactionalID(base+"-fill"), kgo.ProducerLinger(0),
		kgo.DefaultProduceTopic(j.args.in), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	j.ends = make([]int64, loopPartitions)
	for i := 0; i < n; i += 5 {
		for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := j.fill(ctx, cl, i, min(i+5, n), end); err != nil {
				return nil, fmt.Errorf("fill the input: %w", err)
			}
		}
	}
	return j, nil
}

// fill writes one transaction of the input.
func (j *journey) fill(ctx context.Context, cl *kgo.Client, from, to int, end kgo.TransactionEndTry) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	for p := range int32(loopPartitions) {
		for i := from; i < to; i++ {
			r := &kgo.Record{Partition: p, Key: fmt.Appendf(nil, "%d-%d", p, i), Value: fmt.Appendf(nil, "value %d of %d", i, p)}
			if end == kgo.TryAbort {
				r.Value = []byte("aborted")
			}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				return err
			}
			if end == kgo.TryCommit {
				j.want = append(j.want, loopRecord{p, string(r.Key), strings.ToUpper(string(r.Value))})
				j.ends[p] = r.Offset + 1
			}
		}
	}
	return cl.EndTransaction(ctx, end)
}

// done tells whether the group has committed all of the input, as far as the broker can say now.
func (j *journey) done(ctx context.Context) bool {
	var committed kadm.OffsetResponses
	if committed, j.unread = j.b.ref.admin.FetchOffsets(ctx, j.args.group); j.unread != nil {
		return false
	}
	for p, end := range j.ends {
		if o, ok := committed.Lookup(j.args.in, int32(p)); !ok || o.Err != nil || o.At < end {
			return false
		}
	}
	return true
}

// output is what the output topic holds.
type output struct {
	committed, all []loopRecord
	sessions       map[[2]int64]bool // producer id and epoch of what is committed
}

// check says what is wrong with the output: read committed, it has each record of the input once and in order, and
// nothing is undecided.
func (j *journey) check(ctx context.Context) (*output, error) {
	if err := j.settled(ctx); err != nil {
		return nil, err
	}
	o := &output{sessions: map[[2]int64]bool{}}
	for _, isolation := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		var got []loopRecord
		clear(o.sessions)
		err := library.ReadAll(ctx, j.b.ref.bootstrap, j.args.out, isolation, func(r *kgo.Record) {
			got = append(got, loopRecord{r.Partition, string(r.Key), string(r.Value)})
			o.sessions[[2]int64{r.ProducerID, int64(r.ProducerEpoch)}] = true
		})
		if err != nil {
			return nil, err
		}
		o.all, o.committed = o.committed, got
	}
	want, got := split(j.want), split(o.committed)
	for p := range want {
		for i := range max(len(want[p]), len(got[p])) {
			switch {
			case i >= len(got[p]):
				return nil, fmt.Errorf("partition %d: %d records, want %d", p, len(got[p]), len(want[p]))
			case i >= len(want[p]) || got[p][i] != want[p][i]:
				return nil, fmt.Errorf("partition %d: record %d of %d is %v, want the %d of the input in order", p, i, len(got[p]),
					got[p][i], len(want[p]))
			}
		}
	}
	return o, nil
}

func split(all []loopRecord) (out [loopPartitions][]loopRecord) {
	for _, r := range all {
		out[r.partition] = append(out[r.partition], r)
	}
	return out
}

// settled waits until no transaction of the output is open.
func (j *journey) settled(ctx context.Context) error {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		ends, err1 := j.b.ref.admin.ListEndOffsets(ctx, j.args.out)
		stable, err2 := j.b.ref.admin.ListCommittedOffsets(ctx, j.args.out)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("end of the output: %w, %w", err1, err2)
		}
		open := 0
		ends.Each(func(end kadm.ListedOffset) {
			if at, ok := stable.Lookup(end.Topic, end.Partition); !ok || at.Offset != end.Offset {
				open++
			}
		})
		if open == 0 {
			return nil
		}
		if time.Since(began) > settleLimit {
			return fmt.Errorf("%d partitions of the output have an open transaction", open)
		}
	}
}
