package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sekali/compat/record"
)

// franz is github.com/twmb/franz-go. It writes idempotently unless told not to.
type franz struct{}

var franzCodecs = map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

func (franz) write(ctx context.Context, j job, in []record.Record, acks *record.Writer[record.Ack]) error {
	opts := []kgo.Opt{kgo.SeedBrokers(j.bootstrap), kgo.DefaultProduceTopic(j.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(franzCodecs[j.codec]),
		kgo.ProducerLinger(j.linger()), kgo.ProducerBatchMaxBytes(batchBytes), kgo.MaxBufferedRecords(len(in) + 1),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}
	login, err := j.login.franz()
	if err != nil {
		return err
	}
	opts = append(opts, login...)
	if j.plain {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	// A client that is not let in tries again for ever; whoever wants to be told asks first.
	if err := cl.Ping(ctx); err != nil {
		return err
	}
	for i, r := range in {
		k := &kgo.Record{Partition: r.Partition, Timestamp: time.UnixMilli(r.Time), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		cl.Produce(ctx, k, func(k *kgo.Record, err error) {
			if err != nil {
				acks.Put(record.Ack{Index: i, Error: err.Error()})
				return
			}
			acks.Put(record.Ack{Index: i, Offset: k.Offset})
		})
		j.pause(ctx, i, acks)
	}
	return cl.Flush(ctx)
}

func (franz) read(ctx context.Context, j job, out *record.Writer[record.Record]) error {
	login, err := j.login.franz()
	if err != nil {
		return err
	}
	return ReadFranz(ctx, j.bootstrap, j.topic, j.ends, func(r *kgo.Record) { out.Put(FromFranz(r)) }, login...)
}

// ReadFranz reads each partition from offset 0 up to its end and calls fn for each record, in order within a
// partition. A record behind the end is an error.
func ReadFranz(ctx context.Context, bootstrap, topic string, ends []int64, fn func(*kgo.Record), o ...kgo.Opt) error {
	from, left := map[int32]kgo.Offset{}, int64(0)
	for p, end := range ends {
		from[int32(p)] = kgo.NewOffset().At(0)
		left += end
	}
	cl, err := kgo.NewClient(append(o, kgo.SeedBrokers(bootstrap), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil { // as above
		return err
	}
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d records not read: %w", left, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset >= ends[r.Partition] {
				return errors.New("a record behind the end")
			}
			fn(r)
			left--
		}
	}
	return nil
}

// FromFranz is a record as franz-go read it.
func FromFranz(k *kgo.Record) record.Record {
	r := record.Record{Partition: k.Partition, Offset: k.Offset, Time: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// ReadAll reads a topic from its start to where it ends now, or its decided part does.
func ReadAll(ctx context.Context, bootstrap, topic string, level kgo.IsolationLevel, fn func(*kgo.Record)) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read of %s: %w", topic, err)
		}
		for _, r := range fetches.Records() {
			if !r.Attrs.IsControl() {
				fn(r)
			}
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		}
	}
	return nil
}
