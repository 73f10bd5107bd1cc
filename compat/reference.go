package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	library "sekali/compat/client"
	"sekali/compat/corpus"
	"sekali/compat/record"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"} // the index is the number in a batch

// reference is what every client is measured against: topics are made, and their contents read, by franz-go.
type reference struct {
	bootstrap string
	admin     *kadm.Client
}

func newReference(bootstrap string) (*reference, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	return &reference{bootstrap: bootstrap, admin: kadm.NewClient(cl)}, nil
}

func (r *reference) close() { r.admin.Close() }

// transactions tells whether the broker ends transactions and has groups.
func (r *reference) transactions(ctx context.Context) (bool, error) {
	versions, err := r.admin.ApiVersions(ctx)
	if err != nil {
		return false, err
	}
	all := true
	for _, key := range []kmsg.Key{kmsg.EndTxn, kmsg.JoinGroup} {
		for _, broker := range versions {
			_, has := broker.KeyMaxVersion(key.Int16())
			all = all && has
		}
	}
	return all, nil
}

// create makes a topic that keeps its records, old as their timestamps are.
func (r *reference) create(ctx context.Context, topic string) error {
	forever := "-1"
	made, err := r.admin.CreateTopic(ctx, corpus.Partitions, 1, map[string]*string{"retention.ms": &forever}, topic)
	if err != nil {
		return err
	}
	return made.Err
}

// contents is all that a topic holds, by partition.
type contents struct {
	ends    []int64
	records []record.Record
	batches int
	largest int // records of the largest batch
	codecs  [5]int
	ids     map[int64]bool // producer ids
}

// OnFetchBatchRead counts batches; it is franz-go's hook.
func (c *contents) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	c.batches++
	c.largest = max(c.largest, m.NumRecords)
}

// read reads a topic from its start to its end.
func (r *reference) read(ctx context.Context, topic string) (*contents, error) {
	listed, err := r.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	c := &contents{ids: map[int64]bool{}}
	for p := range int32(corpus.Partitions) {
		end, ok := listed.Lookup(topic, p)
		if !ok || end.Err != nil {
			return nil, fmt.Errorf("no end of partition %d: %w", p, end.Err)
		}
		c.ends = append(c.ends, end.Offset)
	}
	return c, library.ReadFranz(ctx, r.bootstrap, topic, c.ends, func(k *kgo.Record) {
		c.records = append(c.records, library.FromFranz(k))
		c.codecs[k.Attrs.CompressionType()]++
		c.ids[k.ProducerID] = true
	}, kgo.WithHooks(c))
}

// endsText is the ENDS argument of a reader.
func (c *contents) endsText() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(c.ends), " ", ","), "[]")
}

// check says what is wrong with the form in which the client wrote. A client may leave a batch as it is where
// compression does not pay, but no batch may be of a third codec.
func (c *contents) check(codec string, idempotent bool) error {
	for i, n := range c.codecs {
		switch {
		case codecs[i] == codec && n == 0:
			return fmt.Errorf("no record is stored with codec %s", codec)
		case codecs[i] != codec && i != 0 && n != 0:
			return fmt.Errorf("%d records are stored with codec %s, not %s", n, codecs[i], codec)
		}
	}
	if c.ids[-1] == idempotent || len(c.ids) != 1 {
		return fmt.Errorf("stored under producer ids %v, idempotent: %v", c.ids, idempotent)
	}
	return nil
}
