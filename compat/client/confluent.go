package client

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"sekali/compat/record"
)

// confluent is github.com/confluentinc/confluent-kafka-go, that is librdkafka, its idempotent producer.
type confluent struct{}

func (confluent) write(ctx context.Context, j job, in []record.Record, acks *record.Writer[record.Ack]) error {
	p, err := kafka.NewProducer(j.login.librdkafka(kafka.ConfigMap{"bootstrap.servers": j.bootstrap, "client.id": "compat",
		"broker.address.family": "v4", "enable.idempotence": !j.plain, "compression.type": j.codec,
		"linger.ms": int(j.linger().Milliseconds()), "batch.size": batchBytes, "batch.num.messages": batchCount,
		"reconnect.backoff.max.ms": 500, "delivery.timeout.ms": int(giveUp.Milliseconds()), "log_level": 0}))
	if err != nil {
		return err
	}
	defer p.Close()
	reports := make(chan kafka.Event, len(in))
	done := make(chan error, 1)
	go func() { done <- answers(ctx, p, len(in), reports, acks) }()
	for i, r := range in {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &j.topic, Partition: r.Partition},
			Timestamp: time.UnixMilli(r.Time), Key: r.Key, Value: r.Value, Opaque: i}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		if err := p.Produce(m, reports); err != nil {
			return err
		}
		j.pause(ctx, i, acks)
	}
	return <-done
}

// answers takes the reports of n records. The library tries again for ever to log in, and leaves it to the program to end
// with the event that says why it cannot.
func answers(
	ctx context.Context, p *kafka.Producer, n int, reports chan kafka.Event, acks *record.Writer[record.Ack],
) error {
	for n > 0 {
		select {
		case e := <-reports:
			m := e.(*kafka.Message)
			ack := record.Ack{Index: m.Opaque.(int), Offset: int64(m.TopicPartition.Offset)}
			if m.TopicPartition.Error != nil {
				ack.Error = m.TopicPartition.Error.Error()
			}
			acks.Put(ack)
			n--
		case e := <-p.Events():
			if err, ok := e.(kafka.Error); ok && err.Code() == kafka.ErrAuthentication {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (confluent) read(ctx context.Context, j job, out *record.Writer[record.Record]) error {
	// The library wants a group id even from a reader that assigns itself and never joins.
	c, err := kafka.NewConsumer(j.login.librdkafka(kafka.ConfigMap{"bootstrap.servers": j.bootstrap, "client.id": "compat",
		"broker.address.family": "v4", "group.id": "unused", "enable.auto.commit": false, "fetch.wait.max.ms": 200,
		"auto.offset.reset": "error", "log_level": 0}))
	if err != nil {
		return err
	}
	defer c.Close()
	var from []kafka.TopicPartition
	for p := range j.ends {
		from = append(from, kafka.TopicPartition{Topic: &j.topic, Partition: int32(p), Offset: 0})
	}
	if err := c.Assign(from); err != nil {
		return err
	}
	for left := j.left(); left > 0 && ctx.Err() == nil; {
		switch e := c.Poll(200).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				return e.TopicPartition.Error
			}
			out.Put(fromConfluent(e))
			left--
		case kafka.Error:
			return fmt.Errorf("%d records not read: %w", left, e)
		}
	}
	return ctx.Err()
}

func fromConfluent(m *kafka.Message) record.Record {
	r := record.Record{Partition: m.TopicPartition.Partition, Offset: int64(m.TopicPartition.Offset),
		Time: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return r
}
