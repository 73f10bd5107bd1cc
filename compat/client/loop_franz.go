package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// loop is the loop with a GroupTransactSession, which commits the offsets of what was polled when it ends a
// transaction, so that there is no step between the two.
func (franz) loop(ctx context.Context, l loopJob, s *steps) error {
	opts := []kgo.Opt{kgo.SeedBrokers(l.bootstrap), kgo.ConsumerGroup(l.group), kgo.ConsumeTopics(l.in),
		kgo.TransactionalID(l.id), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(l.out),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(pollTime), kgo.ProducerLinger(0),
		kgo.SessionTimeout(sessionTime), kgo.HeartbeatInterval(beatTime), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}
	if l.instance != "" {
		opts = append(opts, kgo.InstanceID(l.instance))
	}
	session, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		return err
	}
	defer session.Close()
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		return franzError(err)
	}
	s.at("ready")
	for !s.stopped() {
		wait, cancel := context.WithTimeout(ctx, pollTime)
		fetches := session.PollRecords(wait, perTransaction)
		cancel()
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return franzError(err)
		}
		if records := fetches.Records(); len(records) > 0 {
			s.at("polled")
			if err := franzTransaction(ctx, session, s, records); err != nil {
				return franzError(err)
			}
		}
	}
	return nil
}

func franzTransaction(ctx context.Context, session *kgo.GroupTransactSession, s *steps, in []*kgo.Record) error {
	if err := session.Begin(); err != nil {
		return err
	}
	var out []*kgo.Record
	for _, r := range in {
		out = append(out, &kgo.Record{Partition: r.Partition, Key: r.Key, Value: bytes.ToUpper(r.Value)})
	}
	failed := session.ProduceSync(ctx, out[0]).FirstErr()
	commit := failed == nil && s.at("first")
	if commit {
		failed = session.ProduceSync(ctx, out[1:]...).FirstErr()
		commit = failed == nil && s.at("sent")
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err != nil:
		return err
	case committed:
		s.at("committed")
	case failed != nil:
		s.say("retry", failed)
	case commit:
		s.say("retry", errors.New("aborted for a rebalance"))
	default:
		s.at("aborted")
	}
	return nil
}

func franzError(err error) error {
	for _, fatal := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedInstanceID} {
		if errors.Is(err, fatal) {
			return fmt.Errorf("%w: %w", errFenced, err)
		}
	}
	return err
}
