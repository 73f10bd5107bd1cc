package sim

import (
	"fmt"
	"math/rand/v2"
	"syscall"

	"sekali/coord"
	"sekali/engine"
	"sekali/store"
)

// sick lets one flush of the journal of an id fail, and only that: what its owner writes meanwhile becomes durable in
// the partitions. The owner may have ended a transaction right before, whose Complete is lost with what follows, and
// tries again before the journal is opened anew.
func (w *txnWorld) sick(id *txnID, r *rand.Rand) {
	w.idle()
	c := id.owner
	if w.node.dead() || c == nil || !c.ready || c.fenced || c.waiting > 0 {
		return
	}
	if c.v2 && c.cur != nil && !c.cur.failed && c.unresolved == nil && c.begun() && r.IntN(4) != 0 {
		c.end(true, false)
		w.idle()
	}
	n := coord.Partition(id.name, 2)
	heal := w.node.mem.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, engine.TxnTopic, n), 1, syscall.EIO)
	defer heal()
	for range 1 + r.IntN(3) {
		if w.node.dead() {
			return
		}
		w.act(id, r, false)
		w.idle()
	}
	heal()
	at := store.TP{Topic: engine.TxnTopic, Partition: n}
	if t := w.node.store.Catalog().ByName[engine.TxnTopic]; t != nil {
		at.ID = t.ID
	}
	l, err := w.node.store.Partition(at)
	if w.node.dead() || err == nil && l.Err() == nil {
		return
	}
	w.stats.Sick++
	w.node.through(func() {
		if err = w.node.store.Reopen(at); err == nil {
			err = w.engine.Reopened(at)
		}
	})
	if err != nil && !w.node.dead() {
		w.fail("the journal of %s opened anew: %v", id.name, err)
	}
	w.idle()
}
