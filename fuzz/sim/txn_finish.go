package sim

import (
	"time"

	"sekali/internal/vfs"
)

// finish ends a run: every id gets a new owner, who commits a transaction over everything; then nothing is open, what
// was answered is so, and it survives a power cut that leaves nothing unflushed, and a clean stop.
func (w *txnWorld) finish() {
	w.node.plant(0, nil)
	w.idle()
	w.look()
	w.late, w.setup.Timeout = nil, 15*time.Minute
	for _, id := range w.ids {
		w.succession(id)
		w.lastTransaction(id)
	}
	w.decided()
	for _, t := range w.all {
		if t.committed {
			w.stats.Committed++
		}
		if t.denied {
			w.stats.Aborted++
		}
	}
	w.kill(&vfs.CrashPlan{Seed: w.seed}, nil)
	w.idle()
	w.look()
	w.decided()
	w.restart()
	w.look()
	w.decided()
	w.shut()
	if err := w.node.stop(); err != nil {
		w.fail("stop: %v", err)
	}
}

// pause lets a second pass, with everything that is due in it.
func (w *txnWorld) pause() {
	w.idle()
	w.node.clk.Advance(time.Second)
	w.engine.Tick()
	w.idle()
}

// succession puts a new owner in for an id. It may have to wait for the end of a transaction, not for ever.
func (w *txnWorld) succession(id *txnID) {
	id.contender = &txnClient{id: id, v2: id.owner == nil || !id.owner.v2}
	for range 60 {
		id.takeOver(false)
		w.idle()
		if id.contender == nil {
			return
		}
		w.pause()
	}
	w.fail("%s has no owner after a minute: stuck", id.name)
}

// lastTransaction is one transaction over every partition and group. It must go through.
func (w *txnWorld) lastTransaction(id *txnID) {
	c := id.owner
	step := func(what string, done func() bool, do func()) {
		for range 60 {
			if c.fenced || c.cur != nil && c.cur.failed {
				w.fail("%s: refused at the end, at %s", id.name, what)
			}
			if done() {
				return
			}
			if c.waiting == 0 {
				do()
			}
			w.pause()
		}
		w.fail("%s: %s is not done after a minute: stuck", id.name, what)
	}
	for _, p := range w.parts {
		sent := false
		step("write to "+p.key(), func() bool { return sent && c.unresolved == nil && c.waiting == 0 }, func() {
			if c.unresolved != nil {
				c.send(c.unresolved, false)
				return
			}
			c.produce(p, false)
			sent = c.v2 || c.added[p.key()]
		})
	}
	for _, g := range w.groups {
		step("offset of "+g.name, func() bool {
			return len(g.log) > 0 && g.log[len(g.log)-1].t == c.cur &&
				g.log[len(g.log)-1].acked
		}, func() { c.stage(g, false) })
	}
	t := c.cur
	step("end", func() bool { return t.answered }, func() { c.end(true, false) })
}

// decided: a while later nothing is open, every transaction is as it was answered, and every group is where it must be.
func (w *txnWorld) decided() {
	for range 5 {
		w.pause()
	}
	w.look()
	for _, p := range w.parts {
		l := w.log(p)
		o := l.Offsets()
		if o.Stable != o.End {
			w.fail("%s: stable offset %d, end %d: a transaction hangs", p.key(), o.Stable, o.End)
		}
		seen := w.walk(p, l, o.Stable).seen
		for _, t := range w.all {
			for _, b := range t.batches {
				if b.part == p && b.acked && !seen[b.value] {
					w.fail("%s: %s was acknowledged and is gone", p.key(), b.value)
				}
			}
		}
	}
	for _, t := range w.all {
		if t.answered && t.asked == askedCommit && !t.committed && t.hasData(w) {
			w.fail("transaction %d was answered as committed, and no marker says so", t.n)
		}
	}
	for _, g := range w.groups {
		w.fetch(g)
	}
}

// hasData: something acknowledged of it lies in a partition that still exists.
func (t *txnRec) hasData(w *txnWorld) bool {
	for _, b := range t.batches {
		if b.acked && w.exists(b.part) {
			return true
		}
	}
	return false
}
