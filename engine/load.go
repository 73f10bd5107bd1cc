package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"sekali/coord"
	"sekali/group"
	"sekali/store"
)

// Load reads the journals if the internal topics exist, as a start does: groups first, then transactions, whose
// reconciliation may write markers that the groups must see (spec: transactions, 8). Without topics it does nothing.
func (e *Engine) Load(ctx context.Context) error {
	e.making.Lock()
	defer e.making.Unlock()
	byName := e.st.Catalog().ByName
	if byName[TxnTopic] == nil && byName[OffsetsTopic] == nil {
		return nil
	}
	return e.ensure(ctx)
}

// Ensure makes the internal topics that are missing, in one metadata transaction and one flush, and loads them. When it
// returns nil the coordinators take requests. A caller that finds another one at it waits for that.
func (e *Engine) Ensure(ctx context.Context) error {
	if e.loaded.Load() {
		return nil
	}
	e.making.Lock()
	defer e.making.Unlock()
	return e.ensure(ctx)
}

// ensure is Ensure under making.
func (e *Engine) ensure(ctx context.Context) error {
	if e.loaded.Load() {
		return nil
	}
	if err := e.create(); err != nil {
		return err
	}
	byName := e.st.Catalog().ByName
	offsets, txns := e.partitions(byName[OffsetsTopic]), e.partitions(byName[TxnTopic])
	e.offsetsParts.Store(&offsets)
	e.txnParts.Store(&txns)
	groupJournals := make([]group.Journal, len(offsets))
	for i, p := range offsets {
		groupJournals[i] = offsetsJournal{p}
	}
	if err := e.groups.Load(ctx, groupJournals); err != nil {
		if ctx.Err() != nil || errors.Is(err, group.ErrClosed) {
			return fmt.Errorf("engine: load groups: %w", err)
		}
		e.c.Fault("load groups", err) // of one partition; the others serve
	}
	txnJournals := make([]coord.Journal, len(txns))
	for i, p := range txns {
		txnJournals[i] = txnJournal{p}
	}
	if err := e.txns.Recover(ctx, txnJournals, e.st.Epoch(), e.openTxns()); err != nil {
		if ctx.Err() != nil || errors.Is(err, coord.ErrClosed) {
			return fmt.Errorf("engine: load transactions: %w", err)
		}
		e.c.Fault("load transactions", err)
	}
	e.loaded.Store(true)
	return nil
}

// create makes the internal topics that do not exist.
func (e *Engine) create() error {
	var fresh []store.NewTopic
	for _, t := range []struct {
		name       string
		partitions int32
		segment    int64
	}{
		{OffsetsTopic, e.c.OffsetsPartitions, e.c.OffsetsSegmentBytes},
		{TxnTopic, e.c.TxnPartitions, e.c.TxnSegmentBytes},
	} {
		if e.st.Catalog().ByName[t.name] != nil {
			continue
		}
		c, err := store.ParseTopic(map[string]string{
			"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": strconv.FormatInt(t.segment, 10),
		}, e.st.Defaults())
		if err != nil {
			return fmt.Errorf("engine: settings of %s: %w", t.name, err)
		}
		fresh = append(fresh, store.NewTopic{Name: t.name, Partitions: t.partitions, Internal: true, Config: c})
	}
	if len(fresh) == 0 {
		return nil
	}
	if _, err := e.st.CreateTopics(fresh...); err != nil && !errors.Is(err, store.ErrTopicExists) {
		return fmt.Errorf("engine: create internal topics: %w", err)
	}
	return nil
}

// partitions are the journals of a topic.
func (e *Engine) partitions(t *store.Topic) []*partition {
	out := make([]*partition, len(t.Partitions))
	for i := range out {
		out[i] = e.partition(store.TP{Topic: t.Name, ID: t.ID, Partition: int32(i)})
	}
	return out
}

func (e *Engine) partition(tp store.TP) *partition { return &partition{st: e.st, clk: e.clk, tp: tp} }

// OffsetsTP is the partition of __consumer_offsets that keeps a group: what a transaction registers that commits
// offsets of it. ok is false while the topic does not exist.
func (e *Engine) OffsetsTP(groupID string) (tp coord.TP, ok bool) {
	ps := e.offsetsParts.Load()
	if ps == nil {
		return tp, false
	}
	n := group.Partition(groupID, int32(len(*ps)))
	return coord.TP{Topic: OffsetsTopic, ID: (*ps)[n].tp.ID, Partition: n}, true
}
