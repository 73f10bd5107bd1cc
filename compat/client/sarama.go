package client

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"sekali/compat/record"
)

// saramaLib is github.com/IBM/sarama, its idempotent producer.
type saramaLib struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "compat"
	c.Version = sarama.MaxVersion
	c.Metadata.Retry.Max = 100
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	return c
}

func (saramaLib) write(ctx context.Context, j job, in []record.Record, acks *record.Writer[record.Ack]) error {
	c := saramaConfig()
	if err := j.login.sarama(c); err != nil {
		return err
	}
	c.Producer.Idempotent, c.Net.MaxOpenRequests = !j.plain, 1 // the one needs the other
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Compression = saramaCodecs[j.codec]
	c.Producer.MaxMessageBytes = batchBytes
	c.Producer.Flush.Frequency = j.linger()
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 100, 100*time.Millisecond
	p, err := sarama.NewAsyncProducer([]string{j.bootstrap}, c)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range in {
			select {
			case m := <-p.Successes():
				acks.Put(record.Ack{Index: m.Metadata.(int), Offset: m.Offset})
			case e := <-p.Errors():
				acks.Put(record.Ack{Index: e.Msg.Metadata.(int), Error: e.Err.Error()})
			case <-ctx.Done():
				return
			}
		}
	}()
	for i, r := range in {
		m := &sarama.ProducerMessage{Topic: j.topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Time), Metadata: i}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		p.Input() <- m
		j.pause(ctx, i, acks)
	}
	<-done
	return p.Close()
}

func (saramaLib) read(ctx context.Context, j job, out *record.Writer[record.Record]) error {
	config := saramaConfig()
	if err := j.login.sarama(config); err != nil {
		return err
	}
	config.Consumer.Return.Errors = true // else it only logs them, and tries again for ever
	c, err := sarama.NewConsumer([]string{j.bootstrap}, config)
	if err != nil {
		return err
	}
	for p, end := range j.ends {
		pc, err := c.ConsumePartition(j.topic, int32(p), 0)
		if err != nil {
			return err
		}
		for n := int64(0); n < end; n++ {
			select {
			case m := <-pc.Messages():
				out.Put(fromSarama(m))
			case err := <-pc.Errors():
				return fmt.Errorf("partition %d: %d records not read: %w", p, end-n, err)
			case <-ctx.Done():
				return fmt.Errorf("partition %d: %d records not read", p, end-n)
			}
		}
		if err := pc.Close(); err != nil {
			return err
		}
	}
	return c.Close()
}

func fromSarama(m *sarama.ConsumerMessage) record.Record {
	r := record.Record{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, record.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}
