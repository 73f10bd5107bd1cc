package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// txnCmd groups what is asked of transactions and done to them (KIP-664).
type txnCmd struct {
	List        txnListCmd     `cmd:"" help:"List transactional ids."`
	Describe    txnDescribeCmd `cmd:"" help:"Show transactional ids and their open transactions."`
	FindHanging txnHangingCmd  `cmd:"" help:"Find open transactions that nobody will end; exit 1 if there are any."`
	Abort       txnAbortCmd    `cmd:"" help:"Abort an open transaction in one partition."`
}

// txnListCmd lists transactional ids.
type txnListCmd struct {
	clientFlags
	States    []string      `name:"state" help:"${txn_state}"`
	Producers []int64       `name:"producer-id" help:"Only this producer id; may be repeated."`
	Longer    time.Duration `name:"longer-than" help:"Only transactions that have been open for longer."`
	JSON      bool          `name:"json" help:"JSON instead of a table."`
}

// listedTxn is a line of txn list.
type listedTxn struct {
	ID         string `json:"transactional_id"`
	State      string `json:"state"`
	ProducerID int64  `json:"producer_id"`
}

// Run prints id, state and producer id of every transactional id.
func (c *txnListCmd) Run(io streams) error {
	if err := oneOf("--state", c.States, "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
		"CompleteAbort", "Dead", "PrepareEpochFence"); err != nil {
		return err
	}
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		listed, err := adm.ListTransactions(ctx, c.Producers, c.States)
		if err != nil {
			return err
		}
		keep := func(string) bool { return true }
		if c.Longer > 0 {
			open, err := openLonger(ctx, adm, listed.TransactionalIDs(), c.Longer)
			if err != nil {
				return err
			}
			keep = func(id string) bool { return open[id] }
		}
		all, rows := []listedTxn{}, [][]string{}
		for _, t := range listed.Sorted() {
			if keep(t.TxnID) {
				all = append(all, listedTxn{t.TxnID, t.State, t.ProducerID})
				rows = append(rows, []string{t.TxnID, t.State, strconv.FormatInt(t.ProducerID, 10)})
			}
		}
		if c.JSON {
			return printJSON(io.out, all)
		}
		return printTable(io.out, []string{"TRANSACTIONAL-ID", "STATE", "PRODUCER-ID"}, rows)
	})
}

// openLonger tells which ids have had a transaction open for longer than d.
func openLonger(ctx context.Context, adm *kadm.Client, ids []string, d time.Duration) (map[string]bool, error) {
	open := map[string]bool{}
	if len(ids) == 0 {
		return open, nil
	}
	described, err := adm.DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, err
	}
	limit := time.Now().Add(-d).UnixMilli()
	for id, t := range described {
		open[id] = t.Err == nil && t.State == "Ongoing" && t.StartTimestamp >= 0 && t.StartTimestamp < limit
	}
	return open, nil
}

// txnDescribeCmd shows transactional ids.
type txnDescribeCmd struct {
	clientFlags
	IDs  []string `arg:"" name:"transactional-id"`
	JSON bool     `name:"json" help:"JSON instead of text."`
}

// describedTxn is a transactional id as txn describe shows it. Started is -1 and Partitions empty where no transaction
// is open.
type describedTxn struct {
	ID            string            `json:"transactional_id"`
	State         string            `json:"state"`
	ProducerID    int64             `json:"producer_id"`
	ProducerEpoch int16             `json:"producer_epoch"`
	TimeoutMs     int32             `json:"timeout_ms"`
	Started       int64             `json:"started_ms"`
	Partitions    []topicPartitions `json:"partitions"`
	Coordinator   int32             `json:"coordinator"`
}

// topicPartitions is a topic with some of its partitions.
type topicPartitions struct {
	Name       string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

func topicsOf(set kadm.TopicsSet) []topicPartitions {
	all := []topicPartitions{}
	for _, t := range set.Sorted() {
		all = append(all, topicPartitions{t.Topic, t.Partitions})
	}
	return all
}

// Run prints each id; one that is not known is told in the error beside the others.
func (c *txnDescribeCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		described, err := adm.DescribeTransactions(ctx, c.IDs...)
		if err != nil {
			return err
		}
		all, errs := []describedTxn{}, []error(nil)
		for _, t := range described.Sorted() {
			switch {
			case errors.Is(t.Err, kerr.TransactionalIDNotFound):
				errs = append(errs, fmt.Errorf("%s: no such transactional id; see: sekali txn list", t.TxnID))
			case t.Err != nil:
				errs = append(errs, fmt.Errorf("describe %s: %w", t.TxnID, t.Err))
			default:
				all = append(all, describedTxn{ID: t.TxnID, State: t.State, ProducerID: t.ProducerID,
					ProducerEpoch: t.ProducerEpoch, TimeoutMs: t.TimeoutMillis, Started: t.StartTimestamp,
					Partitions: topicsOf(t.Topics), Coordinator: t.Coordinator})
			}
		}
		if c.JSON {
			return errors.Join(append([]error{printJSON(io.out, all)}, errs...)...)
		}
		for i, t := range all {
			if i > 0 {
				fmt.Fprintln(io.out)
			}
			t.print(io)
		}
		return errors.Join(errs...)
	})
}

func (t *describedTxn) print(io streams) {
	fmt.Fprintf(io.out, "%s  %s\n", t.ID, t.State)
	fmt.Fprintf(io.out, "producer id %d, epoch %d, timeout %v\n", t.ProducerID, t.ProducerEpoch,
		time.Duration(t.TimeoutMs)*time.Millisecond)
	if t.Started >= 0 && len(t.Partitions) > 0 {
		fmt.Fprintf(io.out, "open since %s (%v)\n", timeOf(t.Started), age(t.Started))
	}
	for _, p := range t.Partitions {
		fmt.Fprintf(io.out, "  %s: %s\n", p.Name, joinInts(p.Partitions))
	}
}

// timeOf is a time in milliseconds as people read it.
func timeOf(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// age is how long ago a time in milliseconds was, to the second.
func age(ms int64) time.Duration { return time.Since(time.UnixMilli(ms)).Round(time.Second) }

func joinInts(all []int32) string {
	words := make([]string, len(all))
	for i, n := range all {
		words[i] = strconv.Itoa(int(n))
	}
	return strings.Join(words, ",")
}

// txnAbortCmd aborts one transaction in one partition.
type txnAbortCmd struct {
	clientFlags
	Topic     string `name:"topic" required:"" help:"Topic with the open transaction."`
	Partition int32  `name:"partition" short:"p" required:"" help:"Partition with the open transaction."`
	Start     int64  `name:"start-offset" required:"" help:"${txn_start}"`
	Force     bool   `name:"force" help:"${txn_force}"`
}

// Run writes an ABORT marker for the transaction that starts at the offset. A transaction whose coordinator still knows
// it is left alone: its producer or its timeout ends it, in all of its partitions.
func (c *txnAbortCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		producers, err := openTransactions(ctx, adm, kadm.TopicsSet{c.Topic: {c.Partition: {}}})
		if err != nil {
			return fmt.Errorf("open transactions of %s-%d: %w", c.Topic, c.Partition, unwrapShards(err))
		}
		at := slices.IndexFunc(producers, func(p kadm.DescribedProducer) bool { return p.CurrentTxnStartOffset == c.Start })
		if at < 0 {
			return c.notFound(producers)
		}
		p := producers[at]
		known, err := knownTransactions(ctx, adm, []int64{p.ProducerID})
		if err != nil {
			return err
		}
		if t := known[p.ProducerID]; t != nil && !hanging(p, t) && !c.Force {
			return fmt.Errorf("the transaction belongs to transactional id %s, which is %s: its producer or its timeout "+
				"(%v) ends it\nTo write the marker nevertheless, in this partition alone, add --force",
				t.TxnID, t.State, time.Duration(t.TimeoutMillis)*time.Millisecond)
		}
		answers, err := adm.WriteTxnMarkers(ctx, kadm.TxnMarkers{ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch,
			CoordinatorEpoch: max(p.CoordinatorEpoch, 0), Topics: kadm.TopicsSet{c.Topic: {c.Partition: {}}}})
		if err != nil {
			return err
		}
		for _, a := range answers.SortedPartitions() {
			if a.Err != nil {
				return fmt.Errorf("abort in %s-%d: %w", a.Topic, a.Partition, a.Err)
			}
		}
		fmt.Fprintf(io.out, "aborted the transaction of producer %d, epoch %d, at offset %d of %s-%d\n",
			p.ProducerID, p.ProducerEpoch, c.Start, c.Topic, c.Partition)
		return nil
	})
}

func (c *txnAbortCmd) notFound(producers []kadm.DescribedProducer) error {
	if len(producers) == 0 {
		return fmt.Errorf("no transaction is open in %s-%d; see: sekali txn find-hanging", c.Topic, c.Partition)
	}
	var starts []string
	for _, p := range producers {
		starts = append(starts, strconv.FormatInt(p.CurrentTxnStartOffset, 10))
	}
	return fmt.Errorf("no open transaction of %s-%d starts at offset %d; those that are open start at %s",
		c.Topic, c.Partition, c.Start, strings.Join(starts, ", "))
}
