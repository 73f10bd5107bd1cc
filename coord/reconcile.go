package coord

import (
	"errors"
	"math"
	"time"

	"sekali/batch"
)

// verdict is what becomes of an open transaction that was found in a partition at start.
type verdict uint8

const (
	leaveOpen verdict = iota // its id knows of it, or will be asked once its journal can be read
	register                 // the partition belongs to the id's transaction: it is added to it (Ongoing, start = now)
	join                     // the id's transaction is decided: the partition gets its marker with the others
	mark                     // a marker is written for it alone
)

// finding is a verdict and, for mark, the outcome, the epoch and the version of the marker.
type finding struct {
	do      verdict
	commit  bool
	epoch   int16
	version int8
}

// reconcile decides about an open transaction by the state of the id that has, had or will have its producer id; t is
// nil if there is none. whole: every journal was read, so that none means none. It is the table of
// spec/transactions.md 8, pure, with a test for each of its rows.
func reconcile(o OpenTxn, t *txn, whole bool) finding {
	if t == nil {
		if !whole {
			return finding{do: leaveOpen}
		}
		return hanging(o, t)
	}
	current := t.pid == o.PID
	belongs := current && t.epoch == o.Epoch
	registered := hasTP(t.tps, o.TP)
	switch t.state {
	case Ongoing:
		if belongs && registered {
			return finding{do: leaveOpen}
		}
	case PrepareCommit, PrepareAbort:
		if current && prepares(t, o.Epoch) {
			if registered {
				return finding{do: leaveOpen}
			}
			return finding{do: join}
		}
		belongs = t.clientTV == 2 && follows(o, t)
	case CompleteCommit, CompleteAbort:
		if ended(o, t) {
			return finding{do: mark, commit: t.state == CompleteCommit, epoch: o.Epoch + 1, version: 2}
		}
	}
	if belongs {
		return finding{do: register}
	}
	return hanging(o, t)
}

// follows reports whether the open transaction is the one after a decided one. Its pair was told with a Complete, and
// neither that record nor the registration behind it is in the journal: one flush, which failed, was to take both.
func follows(o OpenTxn, t *txn) bool {
	if t.nextPID != -1 { // it ended at the highest epoch
		return t.nextPID == o.PID && o.Epoch == 0
	}
	return t.pid == o.PID && t.epoch == o.Epoch
}

// ended reports whether a completed transaction is the one that is open: its end raised the epoch under transaction
// version 2. One that ended at the highest epoch has installed another producer id.
func ended(o OpenTxn, t *txn) bool {
	return t.clientTV == 2 && (t.pid == o.PID && int(t.epoch) == int(o.Epoch)+1 ||
		t.prevPID == o.PID && o.Epoch == maxClientEpoch && t.epoch == 0)
}

// prepares reports whether a decided transaction is the one that wrote with the epoch open: its decision raised the
// epoch under transaction version 2, and as a fence; else it kept it.
func prepares(t *txn, open int16) bool {
	raised := int(t.epoch) == int(open)+1
	if t.clientTV == 2 {
		return raised
	}
	return t.epoch == open || raised && t.state == PrepareAbort
}

// hanging aborts what no coordinator will ever end, with an epoch above the open one, so that a late retry is fenced:
// with the same one, the retry of an aborted batch would be taken for a duplicate. At the highest epoch nothing lies
// above (spec/transactions.md 4.1); that one no producer was ever told.
func hanging(o OpenTxn, t *txn) finding {
	if o.Epoch == math.MaxInt16 {
		return finding{do: mark, epoch: o.Epoch}
	}
	f := finding{do: mark, epoch: o.Epoch + 1, version: 2}
	if t != nil && t.pid == o.PID {
		f.epoch = max(f.epoch, t.epoch)
	}
	return f
}

// hasTP reports whether tp is among tps. A participant without a topic id, from a journal of Kafka's, is known by its
// name.
func hasTP(tps []TP, tp TP) bool {
	if contains(tps, []TP{tp}) {
		return true
	}
	tp.ID = [16]byte{}
	return contains(tps, []TP{tp})
}

// reconcileAll acts on all open transactions, on the shards, before live. They are told of effects that take a while by
// posts; who serves a request later finds registrations made.
func reconcileAll(shards []*shard, open []OpenTxn, whole bool) {
	if len(open) == 0 {
		return
	}
	asked, known := make(map[int64]struct{}, len(open)), make(map[int64]owner)
	for _, o := range open {
		asked[o.PID] = struct{}{}
	}
	for _, s := range shards {
		s.find(asked, known)
	}
	for _, o := range open {
		own := known[o.PID]
		if own.e == nil {
			own.s = shards[uint64(o.PID)%uint64(len(shards))]
		}
		own.s.post(func() { own.s.reconcile(o, own.e, whole) })
	}
}

// reconcile acts on one open transaction; e is nil if no id is known to be its owner.
func (s *shard) reconcile(o OpenTxn, e *entry, whole bool) {
	f := judge(o, e, whole)
	if f.do == join {
		s.register(e, o.TP, func(error) {})
		return
	}
	s.act(o, e, f)
}

// judge is the verdict about an open transaction by what its owner is now; e may be nil.
func judge(o OpenTxn, e *entry, whole bool) finding {
	if e == nil {
		return reconcile(o, nil, whole)
	}
	return reconcile(o, &e.t, whole)
}

// act does what a verdict other than join asks for.
func (s *shard) act(o OpenTxn, e *entry, f finding) {
	switch f.do {
	case register:
		s.registerOpen(o, e, 0, s.holdBack(e))
	case mark:
		s.markOpen(o.TP, batch.Marker{
			PID: o.PID, Epoch: f.epoch, CoordEpoch: s.epoch, Version: f.version, Commit: f.commit, Time: s.c.clk.Wall(),
		}, 0, s.holdBack(e))
	}
}

// holdBack keeps an id where it is, requests get CONCURRENT_TRANSACTIONS, until the function it returns is called: what
// its producer wrote next into a partition that still holds the old transaction would get one outcome with it. e may be
// nil.
func (s *shard) holdBack(e *entry) (release func()) {
	if e == nil {
		return func() {}
	}
	e.held++
	return func() { e.held-- }
}

// registerOpen registers a partition, and tries again for as long as that is what its transaction needs. A decided
// transaction of the id is completed first: the open one comes after it, and must not get its outcome.
func (s *shard) registerOpen(o OpenTxn, e *entry, pause time.Duration, release func()) {
	again := func() {
		if s.entries[e.id] != e || reconcile(o, &e.t, true).do != register {
			release()
			return
		}
		s.registerOpen(o, e, pause, release)
	}
	if e.t.state == PrepareCommit || e.t.state == PrepareAbort {
		e.behind = append(e.behind, again)
		return
	}
	s.register(e, o.TP, func(err error) {
		if err == nil || s.offline {
			release()
			return
		}
		pause = longer(pause)
		s.after(pause, again)
	})
}

// markOpen writes a marker that belongs to no id's completion until it is there, or until the partition knows better.
func (s *shard) markOpen(tp TP, m batch.Marker, pause time.Duration, release func()) {
	ev := &s.c.cfg.Events
	s.c.sink.Marker(tp, m, true, func(err error) {
		s.post(func() {
			switch {
			case err == nil, errors.Is(err, ErrGone):
				release()
			case errors.Is(err, ErrFenced):
				if ev.GaveUp != nil {
					ev.GaveUp(tp, err)
				}
				release()
			default:
				if ev.Retried != nil {
					ev.Retried(tp, err)
				}
				pause = longer(pause)
				s.after(pause, func() { s.markOpen(tp, m, pause, release) })
			}
		})
	})
}
