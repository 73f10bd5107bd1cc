package coord

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/batch"
)

// completion is a decided transaction whose markers are under way (spec/transactions.md 8). Owner: the shard.
type completion struct {
	e         *entry
	marker    batch.Marker
	waiting   map[TP]struct{} // partitions whose marker is not durable yet
	finishing bool            // all are; the Complete record is on its way or will be tried again
	answer    func()          // nil: nobody waits, or it was answered
	answerAt  time.Duration
}

// waits reports whether the marker of a partition is still to come.
func (comp *completion) waits(tp TP) bool {
	_, yes := comp.waiting[tp]
	if !yes {
		_, yes = comp.waiting[TP{Topic: tp.Topic, Partition: tp.Partition}]
	}
	return yes
}

func (comp *completion) reply() {
	if fn := comp.answer; fn != nil {
		comp.answer = nil
		fn()
	}
}

// complete sends the markers of e, whose Prepare record is durable (I9). redo: some may be there already. answer, if
// not nil, runs when the transaction is complete, or when it has waited long enough.
func (s *shard) complete(e *entry, redo bool, answer func()) {
	comp := &completion{
		e: e, waiting: make(map[TP]struct{}, len(e.t.tps)), answer: answer,
		marker: batch.Marker{
			PID: e.t.pid, Epoch: e.t.epoch, CoordEpoch: s.epoch, Version: int8(e.t.clientTV),
			Commit: e.t.state == PrepareCommit, Time: s.c.clk.Wall(),
		},
	}
	e.comp = comp
	for _, tp := range e.t.tps {
		comp.waiting[tp] = struct{}{}
	}
	if len(comp.waiting) == 0 {
		s.finish(comp, 0)
		return
	}
	if answer != nil {
		comp.answerAt = s.c.clk.Mono() + answerAfter
		s.answers = append(s.answers, comp)
	}
	s.sendAll(comp, e.t.tps, redo)
}

// sendAll sends the first markers of a completion, some at a time: what else the shard has to do goes on between them.
// The first marker of a start costs a partition a flush, and ten thousand of them would let every other id wait.
func (s *shard) sendAll(comp *completion, tps []TP, redo bool) {
	n := min(len(tps), markersAtOnce)
	for _, tp := range tps[:n] {
		if _, waits := comp.waiting[tp]; waits { // else its topic was deleted meanwhile
			s.send(comp, tp, redo, 0)
		}
	}
	if rest := tps[n:]; len(rest) > 0 {
		s.post(func() { s.sendAll(comp, rest, redo) }) // a shard that stops drops them: Prepare sends all again
	}
}

// send writes one marker; pause is what was waited before it, 0 for the first.
func (s *shard) send(comp *completion, tp TP, redo bool, pause time.Duration) {
	s.c.sink.Marker(tp, comp.marker, redo, func(err error) {
		s.post(func() { s.marked(comp, tp, err, pause) })
	})
}

// marked takes the result of a marker.
func (s *shard) marked(comp *completion, tp TP, err error, pause time.Duration) {
	if _, waits := comp.waiting[tp]; !waits {
		return // its topic was deleted meanwhile
	}
	ev := &s.c.cfg.Events
	switch {
	case err == nil, errors.Is(err, ErrGone):
	case errors.Is(err, ErrFenced):
		if ev.GaveUp != nil {
			ev.GaveUp(tp, err)
		}
	default:
		if ev.Retried != nil {
			ev.Retried(tp, err)
		}
		pause = longer(pause)
		s.after(pause, func() {
			if _, waits := comp.waiting[tp]; waits {
				s.send(comp, tp, true, pause)
			}
		})
		return
	}
	delete(comp.waiting, tp)
	if len(comp.waiting) == 0 {
		s.finish(comp, 0)
	}
}

func longer(pause time.Duration) time.Duration {
	return min(max(2*pause, retryFirst), retryMost)
}

// finish appends the Complete record and installs it without waiting for its flush: whatever comes later for this id
// lies behind it, and if a crash takes it, Prepare repeats the markers (C7). A refusal leaves the transaction decided
// and is tried again.
func (s *shard) finish(comp *completion, pause time.Duration) {
	e := comp.e
	comp.finishing = true
	if s.busy(e) {
		e.later = append(e.later, func() { s.finish(comp, pause) })
		return
	}
	st := next(e.t, event{kind: evComplete, nowMs: s.c.clk.Wall(), fresh: -1})
	s.change(e, st, func(code *kerr.Error) {
		if code != nil {
			if pause = longer(pause); !s.offline {
				s.after(pause, func() { s.finish(comp, pause) })
			}
			return
		}
		e.comp = nil
		comp.reply()
		behind := e.behind
		e.behind = nil
		for _, fn := range behind {
			fn()
		}
	}, nothing)
}
