package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"sekali/compat/record"
)

// kafkaGo is github.com/segmentio/kafka-go. It has no idempotent producer: it writes with acks=all, and what it sends
// again after a lost acknowledgement is written again.
type kafkaGo struct{}

var kafkaGoCodecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4,
	"zstd": kafka.Zstd}

func (kafkaGo) write(ctx context.Context, j job, in []record.Record, acks *record.Writer[record.Ack]) error {
	transport, err := j.login.kafkaGoWriting()
	if err != nil {
		return err
	}
	w := &kafka.Writer{Addr: kafka.TCP(j.bootstrap), Transport: transport, Topic: j.topic, RequiredAcks: kafka.RequireAll,
		Compression: kafkaGoCodecs[j.codec], BatchTimeout: j.linger(), BatchBytes: batchBytes, BatchSize: batchCount,
		MaxAttempts: 100, WriteBackoffMax: 200 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return int(in[m.WriterData.(int)].Partition) }),
		Completion: func(ms []kafka.Message, err error) {
			for _, m := range ms {
				if err == nil {
					acks.Put(record.Ack{Index: m.WriterData.(int), Offset: m.Offset})
				}
			}
		}}
	defer w.Close()
	var ms []kafka.Message
	for i, r := range in {
		m := kafka.Message{Time: time.UnixMilli(r.Time), Key: r.Key, Value: r.Value, WriterData: i}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		ms = append(ms, m)
		if j.pace > 0 && len(ms) < paceEvery && i+1 < len(in) || j.pace == 0 && i+1 < len(in) {
			continue
		}
		for len(ms) > 0 {
			err := w.WriteMessages(ctx, ms...)
			if err != nil && (j.pace == 0 || ctx.Err() != nil) {
				return err
			}
			ms = failed(ms, err)
		}
		j.pause(ctx, i, acks)
	}
	return nil
}

// failed are the messages that the application has to write again: the library gives up on errors that another attempt
// would cure.
func failed(ms []kafka.Message, err error) []kafka.Message {
	var each kafka.WriteErrors
	if err == nil {
		return nil
	}
	time.Sleep(100 * time.Millisecond)
	if !errors.As(err, &each) {
		return ms
	}
	var out []kafka.Message
	for i, m := range ms {
		if each[i] != nil {
			out = append(out, m)
		}
	}
	return out
}

func (kafkaGo) read(ctx context.Context, j job, out *record.Writer[record.Record]) error {
	dialer, err := j.login.kafkaGoReading()
	if err != nil {
		return err
	}
	for p, end := range j.ends {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{j.bootstrap}, Topic: j.topic, Partition: p,
			Dialer: dialer, MaxWait: 200 * time.Millisecond, MinBytes: 1, MaxBytes: 10 << 20})
		for n := int64(0); n < end; n++ {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return fmt.Errorf("partition %d: %d records not read: %w", p, end-n, err)
			}
			out.Put(fromKafkaGo(m))
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

func fromKafkaGo(m kafka.Message) record.Record {
	r := record.Record{Partition: int32(m.Partition), Offset: m.Offset, Time: m.Time.UnixMilli(), Key: m.Key,
		Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return r
}
