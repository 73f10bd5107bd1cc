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
)

// hangingGrace is added to the longest transaction timeout before an open transaction is looked at (KIP-664).
const hangingGrace = 5 * time.Minute

// txnHangingCmd finds transactions that hold the last stable offset of a partition for good.
type txnHangingCmd struct {
	clientFlags
	Topics     []string      `name:"topic" help:"Topic to search; may be repeated. All topics, if none is named."`
	Partitions []int32       `name:"partition" short:"p" help:"Partition of the one topic; may be repeated."`
	MaxTimeout time.Duration `name:"max-transaction-timeout" default:"15m" help:"${txn_max_timeout}"`
	JSON       bool          `name:"json" help:"JSON instead of a table."`
}

// hangingTxn is a line of txn find-hanging.
type hangingTxn struct {
	Topic            string `json:"topic"`
	Partition        int32  `json:"partition"`
	ProducerID       int64  `json:"producer_id"`
	ProducerEpoch    int16  `json:"producer_epoch"`
	CoordinatorEpoch int32  `json:"coordinator_epoch"`
	StartOffset      int64  `json:"start_offset"`
	LastWritten      int64  `json:"last_written_ms"`
}

// Run prints the hanging transactions, and how to abort the first one.
func (c *txnHangingCmd) Run(io streams) error {
	if len(c.Partitions) > 0 && len(c.Topics) != 1 {
		return errors.New("--partition goes with exactly one --topic")
	}
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		found, err := c.find(ctx, adm)
		if err != nil {
			return err
		}
		if err := c.print(io, found); err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		if h := found[0]; !c.JSON {
			fmt.Fprintf(io.err, "To abort the first one: sekali txn abort -b %s --topic %s --partition %d --start-offset %d\n",
				strings.Join(c.Bootstrap, ","), h.Topic, h.Partition, h.StartOffset)
		}
		return exitError{exitFailed}
	})
}

func (c *txnHangingCmd) print(io streams, found []hangingTxn) error {
	if c.JSON {
		return printJSON(io.out, found)
	}
	var rows [][]string
	for _, h := range found {
		rows = append(rows, []string{h.Topic, strconv.Itoa(int(h.Partition)), strconv.FormatInt(h.ProducerID, 10),
			strconv.Itoa(int(h.ProducerEpoch)), strconv.Itoa(int(h.CoordinatorEpoch)),
			strconv.FormatInt(h.StartOffset, 10), timeOf(h.LastWritten), age(h.LastWritten).String()})
	}
	return printTable(io.out, []string{"TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH",
		"START-OFFSET", "LAST-WRITTEN", "AGE"}, rows)
}

// find looks at transactions whose last record is older than any timeout allows, and asks the coordinator for each.
func (c *txnHangingCmd) find(ctx context.Context, adm *kadm.Client) ([]hangingTxn, error) {
	set, err := c.partitions(ctx, adm)
	if err != nil || len(set) == 0 {
		return []hangingTxn{}, err
	}
	open, err := openTransactions(ctx, adm, set)
	if err != nil {
		return nil, err
	}
	limit := time.Now().Add(-c.MaxTimeout - hangingGrace).UnixMilli()
	open = slices.DeleteFunc(open, func(p kadm.DescribedProducer) bool { return p.LastTimestamp > limit })
	var ids []int64
	for _, p := range open {
		ids = append(ids, p.ProducerID)
	}
	known, err := knownTransactions(ctx, adm, ids)
	if err != nil {
		return nil, err
	}
	found := []hangingTxn{}
	for _, p := range open {
		if hanging(p, known[p.ProducerID]) {
			found = append(found, hangingTxn{p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.CoordinatorEpoch,
				p.CurrentTxnStartOffset, p.LastTimestamp})
		}
	}
	return found, nil
}

func (c *txnHangingCmd) partitions(ctx context.Context, adm *kadm.Client) (kadm.TopicsSet, error) {
	set := kadm.TopicsSet{}
	if len(c.Partitions) > 0 {
		for _, p := range c.Partitions {
			set.Add(c.Topics[0], p)
		}
		return set, nil
	}
	list := adm.ListTopicsWithInternal
	if len(c.Topics) > 0 {
		list = adm.ListTopics
	}
	details, err := list(ctx, c.Topics...)
	if err != nil {
		return nil, err
	}
	for _, t := range details.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
		for p := range t.Partitions {
			set.Add(t.Topic, p)
		}
	}
	return set, nil
}

// openTransactions are the producers with an open transaction in the partitions, in order of topic, partition and
// offset.
func openTransactions(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet) ([]kadm.DescribedProducer, error) {
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return nil, err
	}
	var open []kadm.DescribedProducer
	var errs []error
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("%s-%d: %w", p.Topic, p.Partition, explain(p.Err, p.ErrMessage)))
			continue
		}
		at := len(open)
		p.ActiveProducers.Each(func(d kadm.DescribedProducer) {
			if d.CurrentTxnStartOffset >= 0 {
				open = append(open, d)
			}
		})
		slices.SortFunc(open[at:], func(a, b kadm.DescribedProducer) int {
			return int(a.CurrentTxnStartOffset - b.CurrentTxnStartOffset)
		})
	}
	return open, errors.Join(errs...)
}

// knownTransactions asks the coordinator which transactional ids have the producer ids, and for what it knows of them.
func knownTransactions(ctx context.Context, adm *kadm.Client,
	ids []int64) (map[int64]*kadm.DescribedTransaction, error) {
	known := map[int64]*kadm.DescribedTransaction{}
	if len(ids) == 0 {
		return known, nil
	}
	slices.Sort(ids)
	listed, err := adm.ListTransactions(ctx, slices.Compact(ids), nil)
	if err != nil || len(listed) == 0 {
		return known, err
	}
	described, err := adm.DescribeTransactions(ctx, listed.TransactionalIDs()...)
	if err != nil {
		return nil, err
	}
	for _, t := range described {
		if t.Err == nil {
			known[t.ProducerID] = &t
		}
	}
	return known, nil
}

// hanging decides whether nobody will end an open transaction of a partition: no transactional id has its producer id,
// or the one that has it does not count the partition as part of its transaction, or began a later one.
func hanging(p kadm.DescribedProducer, t *kadm.DescribedTransaction) bool {
	if t == nil {
		return true
	}
	if _, part := t.Topics[p.Topic][p.Partition]; !part {
		return true
	}
	ending := strings.HasPrefix(t.State, "Prepare") // its markers bear the next epoch
	return t.ProducerEpoch > p.ProducerEpoch && !ending
}
