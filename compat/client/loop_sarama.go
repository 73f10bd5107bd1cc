package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

// saramaLoop is a consumer group's handler. Its partitions share the producer, so their transactions take turns.
type saramaLoop struct {
	l        loopJob
	s        *steps
	turn     sync.Mutex
	producer sarama.SyncProducer
	failed   error // the producer is of no more use
}

func (saramaLib) loop(ctx context.Context, l loopJob, s *steps) error {
	c := saramaConfig()
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Transaction.ID = l.id
	c.Producer.Transaction.Retry.Max = 100
	c.Producer.Retry.Max = 100
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.MaxWaitTime = pollTime
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = sessionTime, beatTime
	c.Consumer.Group.InstanceId = l.instance
	producer, err := sarama.NewSyncProducer([]string{l.bootstrap}, c)
	if err != nil {
		return saramaError(err)
	}
	h := &saramaLoop{l: l, s: s, producer: producer}
	defer producer.Close()
	group, err := sarama.NewConsumerGroup([]string{l.bootstrap}, l.group, c)
	if err != nil {
		return err
	}
	defer group.Close()
	s.at("ready")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil && h.failed == nil {
		if err := group.Consume(ctx, []string{l.in}, h); err != nil && ctx.Err() == nil {
			return saramaError(err)
		}
	}
	return h.failed
}

// Setup and Cleanup have nothing to do: positions are those committed.
func (h *saramaLoop) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *saramaLoop) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim ends with the first transaction that is not committed: the next session begins at the offsets committed.
func (h *saramaLoop) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		in := []*sarama.ConsumerMessage{m}
		for len(in) < perTransaction {
			select {
			case m := <-claim.Messages():
				if m != nil {
					in = append(in, m)
					continue
				}
			default:
			}
			break
		}
		if more := h.take(session, in); !more {
			return nil
		}
	}
	return nil
}

// take runs one transaction and says whether the claim can go on.
func (h *saramaLoop) take(session sarama.ConsumerGroupSession, in []*sarama.ConsumerMessage) bool {
	h.turn.Lock()
	defer h.turn.Unlock()
	if h.failed != nil || session.Context().Err() != nil {
		return false
	}
	h.s.at("polled")
	commit, err := h.transaction(session, in)
	if commit && err == nil {
		h.s.at("committed")
		return true
	}
	status := h.producer.TxnStatus()
	if status&sarama.ProducerTxnFlagFatalError == 0 && status&sarama.ProducerTxnFlagReady == 0 {
		if aborting := h.producer.AbortTxn(); aborting != nil {
			h.failed = saramaError(errors.Join(err, aborting))
		}
	} else if err != nil && status&sarama.ProducerTxnFlagFatalError != 0 {
		h.failed = saramaError(err)
	}
	switch {
	case h.failed != nil:
	case err != nil:
		h.s.say("retry", err)
	default:
		h.s.at("aborted")
	}
	return false
}

func (h *saramaLoop) transaction(session sarama.ConsumerGroupSession, in []*sarama.ConsumerMessage) (bool, error) {
	if err := h.producer.BeginTxn(); err != nil {
		return false, err
	}
	var out []*sarama.ProducerMessage
	for _, m := range in {
		out = append(out, &sarama.ProducerMessage{Topic: h.l.out, Partition: m.Partition,
			Key: sarama.ByteEncoder(m.Key), Value: sarama.ByteEncoder(bytes.ToUpper(m.Value))})
	}
	if _, _, err := h.producer.SendMessage(out[0]); err != nil || !h.s.at("first") {
		return false, err
	}
	if err := h.producer.SendMessages(out[1:]); err != nil || !h.s.at("sent") {
		return false, err
	}
	var instance *string
	if h.l.instance != "" {
		instance = &h.l.instance
	}
	last := in[len(in)-1]
	offsets := map[string][]*sarama.PartitionOffsetMetadata{h.l.in: {{Partition: last.Partition, Offset: last.Offset + 1,
		LeaderEpoch: -1}}}
	member := sarama.NewConsumerGroupMetadataFromSession(session, h.l.group, instance)
	if err := h.producer.AddOffsetsToTxnWithGroupMetadata(offsets, member); err != nil || !h.s.at("offsets") {
		return false, err
	}
	return true, h.producer.CommitTxn()
}

func saramaError(err error) error {
	for _, fatal := range []error{sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch, sarama.ErrFencedInstancedId} {
		if errors.Is(err, fatal) {
			return fmt.Errorf("%w: %w", errFenced, err)
		}
	}
	return err
}
