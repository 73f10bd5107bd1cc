package engine

import (
	"maps"
	"slices"

	"sekali/coord"
	"sekali/plog"
	"sekali/store"
)

// Reopened tells that the store has opened the log of a partition again after it was offline, or for the first time
// since the start (store.NoticeReopened). If it is one of an internal topic, the shard behind it is loaded anew: its
// clients were answered errors meanwhile, and what became of the last records only the log knows. It waits for that.
// Then the transactions that are open in the partition, or after a partition of the coordinator those of all
// partitions, are reconciled with what the coordinator knows, as at a start; that goes on behind the return. One caller
// at a time; before the journals are loaded the start does all this. After an error the shard answers NOT_COORDINATOR,
// and the partition is among those of Unloaded.
func (e *Engine) Reopened(tp store.TP) error {
	e.making.Lock()
	defer e.making.Unlock()
	l, err := e.st.Partition(tp)
	if err == nil {
		e.pids.Above(l.MaxProducerID(coord.FoundPIDsBelow))
	}
	release := func() {
		if l != nil {
			l.HoldTxns(false)
		}
	}
	if !e.loaded.Load() {
		release()
		return nil
	}
	var open []coord.OpenTxn
	switch err := e.reload(tp); {
	case err != nil:
		return err
	case tp.Topic == TxnTopic:
		open = e.openTxns()
	case l != nil:
		open = openIn(l, coord.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition})
	}
	e.txns.Reconcile(open, e.stillOpen, release)
	return nil
}

// Unloaded lists the partitions of the internal topics that serve while the shard behind them does not, since its
// journal could not be read, at the start or by Reopened: no handle was left, say. The caller gives each to Reopened
// again, after a while. Any goroutine may call it.
func (e *Engine) Unloaded() (tps []store.TP) {
	for _, parts := range []*[]*partition{e.offsetsParts.Load(), e.txnParts.Load()} {
		if parts == nil || !e.loaded.Load() {
			continue
		}
		for _, p := range *parts {
			if !p.unloaded.Load() {
				continue
			}
			if l, err := e.st.Partition(p.tp); err == nil && l.Err() == nil {
				tps = append(tps, p.tp)
			}
		}
	}
	return tps
}

// reload loads the shard of a partition of an internal topic anew; others have none.
func (e *Engine) reload(tp store.TP) error {
	of := &e.offsetsParts
	switch tp.Topic {
	case OffsetsTopic:
	case TxnTopic:
		of = &e.txnParts
	default:
		return nil
	}
	n := int(tp.Partition)
	if nth(of.Load(), n) == nil {
		return nil
	}
	p := e.partition((*of.Load())[n].tp)
	parts := slices.Clone(*of.Load())
	parts[n] = p
	of.Store(&parts)
	if tp.Topic == OffsetsTopic {
		return e.groups.Reload(n, offsetsJournal{p})
	}
	// What the old shard agreed to may not be in the journal. A batch that has not been appended by now must ask again:
	// none may open a transaction behind this look at them that the new shard does not know.
	e.eachLog(func(_ coord.TP, l *plog.Log) { l.VoidGuards() })
	return e.txns.Reload(n, txnJournal{p}, e.openTxns())
}

// stillOpen reports whether a transaction that was found open is open yet.
func (e *Engine) stillOpen(o coord.OpenTxn) (yes bool) {
	l, err := e.st.Partition(store.TP{Topic: o.TP.Topic, ID: o.TP.ID, Partition: o.TP.Partition})
	if err != nil {
		return false
	}
	l.OpenTxns(func(pid int64, epoch int16, first int64) bool {
		yes = pid == o.PID && epoch == o.Epoch && first == o.First
		return !yes
	})
	return yes
}

// usedPIDs is the highest producer id that a partition which serves remembers, -1 for none.
func (e *Engine) usedPIDs() int64 {
	highest := int64(-1)
	e.eachLog(func(_ coord.TP, l *plog.Log) { highest = max(highest, l.MaxProducerID(coord.FoundPIDsBelow)) })
	return highest
}

// openTxns lists the open transactions of all partitions that serve, for the reconciliation.
func (e *Engine) openTxns() (open []coord.OpenTxn) {
	e.eachLog(func(tp coord.TP, l *plog.Log) { open = append(open, openIn(l, tp)...) })
	return open
}

// eachLog calls fn for the log of every partition that serves, in the order of their names: a simulated run must come
// out the same again.
func (e *Engine) eachLog(fn func(coord.TP, *plog.Log)) {
	byName := e.st.Catalog().ByName
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		t := byName[name]
		for i, l := range t.Partitions {
			if l != nil && l.Err() == nil {
				fn(coord.TP{Topic: t.Name, ID: t.ID, Partition: int32(i)}, l)
			}
		}
	}
}

func openIn(l *plog.Log, tp coord.TP) (open []coord.OpenTxn) {
	l.OpenTxns(func(pid int64, epoch int16, first int64) bool {
		open = append(open, coord.OpenTxn{TP: tp, PID: pid, Epoch: epoch, First: first})
		return true
	})
	return open
}
