// Command loop reads payments, and writes them processed, each exactly once: go run loop.go HOST:PORT.
package main

import (
	"bytes"
	"context"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Args[1]),
		kgo.TransactionalID("processor-0"), // the same after a restart: it fences what was before
		kgo.ConsumerGroup("processors"),
		kgo.InstanceID("processor-0"), // a restart takes over at once
		kgo.ConsumeTopics("payments"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	ctx := context.Background()
	for {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		var failed kgo.FirstErrPromise
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: "processed", Partition: r.Partition, Key: r.Key,
				Value: bytes.ToUpper(r.Value)}, failed.Promise())
		})
		written := failed.Err() == nil
		if !written {
			log.Print(failed.Err())
		}
		// End commits the offsets of what was polled in the same transaction. If it aborts, the records are polled again.
		if _, err := session.End(ctx, kgo.TransactionEndTry(written)); err != nil {
			log.Fatal(err) // fenced: another instance has taken over
		}
	}
}
