package sim

import (
	"slices"

	"sekali/coord"
	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
)

// stage is TxnOffsetCommit of the group's next offset. A v1 client adds the group first.
func (c *txnClient) stage(g *txnGroup, lose bool) {
	w := c.id.w
	tp, ok := w.engine.OffsetsTP(g.name)
	if !ok {
		w.fail("no partition for group %s", g.name)
	}
	if !c.v2 && !c.added[g.name] {
		c.add(g.name, tp, lose)
		return
	}
	g.next++
	e := &txnEntry{g: g, t: c.begin(), offset: g.next}
	e.t.entries = append(e.t.entries, e)
	c.staging = e
	c.waiting++
	w.commitOffset(e, c, tp, 0, lose)
}

// commitOffset sends an entry of a client to its group, once more with the guard where the coordinator is to be asked.
func (w *txnWorld) commitOffset(e *txnEntry, c *txnClient, tp coord.TP, guard uint64, lose bool) {
	kept := w.topics[keptTopic]
	in := group.CommitIn{
		Member: group.Member{Group: e.g.name, Generation: -1}, Version: 8, PID: -1, Epoch: -1, Guard: guard, RetainMs: -1,
		TPs:     []group.TP{{Topic: keptTopic, ID: kept.id}},
		Offsets: []group.Offset{{Offset: e.offset, LeaderEpoch: -1}},
	}
	if c != nil {
		in.Version, in.PID, in.Epoch = 3, c.pid, c.epoch
		if c.v2 {
			in.Version = 5
		}
	}
	e.g.log = append(slices.DeleteFunc(e.g.log, func(o *txnEntry) bool { return o == e }), e)
	n, owed, good := w.node, 1, true
	part := func(bad bool) {
		good = good && !bad
		if owed--; owed == 0 {
			w.committed(e, c, good, lose)
		}
	}
	if guard != 0 {
		var no *kerr.Error
		w.wait(func() {
			no = w.engine.Confirm(c.part(tp), c.v2, func(code *kerr.Error) {
				w.calls.put(n, func() { part(code != nil) })
			})[0]
		})
		if no != nil {
			w.staged(e, c, no)
			return
		}
		if c.v2 {
			owed++
		}
	}
	w.engine.Groups().Commit(in, func(codes []*kerr.Error, guard uint64) {
		w.calls.put(n, func() {
			switch {
			case guard != 0 && in.Guard == 0:
				w.commitOffset(e, c, tp, guard, lose)
			case guard != 0:
				w.staged(e, c, kerr.InvalidTxnState)
			case codes[0] != nil:
				w.staged(e, c, codes[0])
			default:
				part(false)
			}
		})
	})
}

// committed is the answer to a commit that was appended.
func (w *txnWorld) committed(e *txnEntry, c *txnClient, good, lose bool) {
	if c != nil {
		c.waiting--
	}
	switch {
	case good && !lose:
		e.acked = true
	case c != nil:
		e.t.failed = true
	}
}

// staged is a refusal of a commit: nothing was appended.
func (w *txnWorld) staged(e *txnEntry, c *txnClient, code *kerr.Error) {
	w.tell("offset %d of %s refused: %v", e.offset, e.g.name, code)
	e.g.log = slices.DeleteFunc(e.g.log, func(o *txnEntry) bool { return o == e })
	if c == nil {
		return
	}
	e.t.entries = slices.DeleteFunc(e.t.entries, func(o *txnEntry) bool { return o == e })
	c.waiting--
	if !mayPass(code) {
		c.refused(e.t, code)
	}
}
