package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluentSession is long, for a static member whose session has timed out while the broker was down forgets its member
// id and is fenced by itself.
const confluentSession = 6 * time.Second

// confluentLoop is one life of the loop.
type confluentLoop struct {
	l        loopJob
	s        *steps
	consumer *kafka.Consumer
	producer *kafka.Producer
}

func (confluent) loop(ctx context.Context, l loopJob, s *steps) error {
	common := func(more kafka.ConfigMap) *kafka.ConfigMap {
		more["bootstrap.servers"], more["broker.address.family"], more["log_level"] = l.bootstrap, "v4", 0
		more["reconnect.backoff.max.ms"] = 200
		return &more
	}
	c := kafka.ConfigMap{"group.id": l.group, "isolation.level": "read_committed", "enable.auto.commit": false,
		"auto.offset.reset": "earliest", "fetch.wait.max.ms": int(pollTime.Milliseconds()),
		"session.timeout.ms": int(confluentSession.Milliseconds()), "heartbeat.interval.ms": int(beatTime.Milliseconds())}
	if l.instance != "" {
		c["group.instance.id"] = l.instance
	}
	h := &confluentLoop{l: l, s: s}
	var err error
	if h.producer, err = kafka.NewProducer(common(kafka.ConfigMap{"transactional.id": l.id, "linger.ms": 0})); err != nil {
		return err
	}
	defer h.producer.Close()
	if h.consumer, err = kafka.NewConsumer(common(c)); err != nil {
		return err
	}
	defer h.consumer.Close()
	if err := h.consumer.Subscribe(l.in, nil); err != nil {
		return err
	}
	if err := insist(func() error { return h.producer.InitTransactions(ctx) }); err != nil {
		return confluentError(err)
	}
	s.at("ready")
	for !s.stopped() {
		in, err := h.poll()
		if err != nil {
			return confluentError(err)
		}
		if len(in) == 0 {
			continue
		}
		s.at("polled")
		if err := h.transaction(ctx, in); err != nil {
			return confluentError(err)
		}
	}
	return nil
}

// poll takes up to ten records.
func (h *confluentLoop) poll() (in []*kafka.Message, err error) {
	wait := int(pollTime.Milliseconds())
	for len(in) < perTransaction {
		switch e := h.consumer.Poll(wait).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				return nil, e.TopicPartition.Error
			}
			in, wait = append(in, e), 0
		case kafka.Error:
			if e.IsFatal() || e.Code() == kafka.ErrFatal {
				return nil, e
			}
		case nil:
			return in, nil
		}
	}
	return in, nil
}

// transaction runs one transaction. An error that only an abort can heal is healed here.
func (h *confluentLoop) transaction(ctx context.Context, in []*kafka.Message) error {
	commit, err := h.fill(ctx, in)
	if commit && err == nil {
		if err = insist(func() error { return h.producer.CommitTransaction(ctx) }); err == nil {
			h.s.at("committed")
			return nil
		}
	}
	var k kafka.Error
	if errors.As(err, &k) && k.IsFatal() {
		return err
	}
	if aborting := insist(func() error { return h.producer.AbortTransaction(ctx) }); aborting != nil {
		return errors.Join(err, aborting)
	}
	if rewinding := h.rewind(); rewinding != nil {
		return rewinding
	}
	if err != nil {
		h.s.say("retry", err)
	} else {
		h.s.at("aborted")
	}
	return nil
}

// fill does all of a transaction but its end.
func (h *confluentLoop) fill(ctx context.Context, in []*kafka.Message) (commit bool, err error) {
	if err := h.producer.BeginTransaction(); err != nil {
		return false, err
	}
	reports := make(chan kafka.Event, len(in))
	send := func(all []*kafka.Message) error {
		for _, m := range all {
			to := kafka.TopicPartition{Topic: &h.l.out, Partition: m.TopicPartition.Partition}
			err := h.producer.Produce(&kafka.Message{TopicPartition: to, Key: m.Key, Value: bytes.ToUpper(m.Value)}, reports)
			if err != nil {
				return err
			}
		}
		for range all {
			if m := (<-reports).(*kafka.Message); m.TopicPartition.Error != nil {
				return m.TopicPartition.Error
			}
		}
		return nil
	}
	if err := send(in[:1]); err != nil || !h.s.at("first") {
		return false, err
	}
	if err := send(in[1:]); err != nil || !h.s.at("sent") {
		return false, err
	}
	next := map[int32]kafka.TopicPartition{}
	for _, m := range in {
		p := m.TopicPartition
		p.Offset++
		next[p.Partition] = p
	}
	var offsets []kafka.TopicPartition
	for _, p := range next {
		offsets = append(offsets, p)
	}
	member, err := h.consumer.GetConsumerGroupMetadata()
	if err != nil {
		return false, err
	}
	err = insist(func() error { return h.producer.SendOffsetsToTransaction(ctx, offsets, member) })
	return err == nil && h.s.at("offsets"), err
}

// rewind goes back to where the last committed transaction ended.
func (h *confluentLoop) rewind() error {
	assigned, err := h.consumer.Assignment()
	if err != nil {
		return err
	}
	committed, err := h.consumer.Committed(assigned, int(giveUp.Milliseconds()))
	if err != nil {
		return err
	}
	for _, p := range committed {
		if p.Offset < 0 {
			p.Offset = kafka.OffsetBeginning
		}
		if err := h.consumer.Seek(p, 0); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats what may be repeated.
func insist(do func() error) error {
	for {
		err := do()
		var k kafka.Error
		if !errors.As(err, &k) || !k.IsRetriable() {
			return err
		}
	}
}

func confluentError(err error) error {
	var k kafka.Error
	if errors.As(err, &k) && (k.Code() == kafka.ErrFenced || k.Code() == kafka.ErrProducerFenced ||
		k.Code() == kafka.ErrInvalidProducerEpoch) {
		return fmt.Errorf("%w: %w", errFenced, err)
	}
	return err
}
