package coord

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// End is EndTxn (spec/transactions.md 5.6). The decision is the durable Prepare record. done gets the pair for the next
// transaction when every marker is durable and Complete is installed, at the latest 1 s after the decision (D5) and
// never before it; or 48, 49, 51, 90, 10 and the codes of 5.0.
func (c *Coordinator) End(in EndIn, done func(InitOut, *kerr.Error)) {
	fail := func(code *kerr.Error) { done(noOut, c.told(code)) }
	began := c.clk.Mono()
	c.to(in.TxnID, func(s *shard) {
		s.end(in, s.newAsk(fail), func(out InitOut) {
			if in.Commit && c.cfg.Events.Committed != nil {
				c.cfg.Events.Committed((c.clk.Mono() - began).Seconds())
			}
			done(out, nil)
		})
	}, fail)
}

func (s *shard) end(in EndIn, a *ask, done func(InitOut)) {
	e := s.entries[in.TxnID]
	if e == nil {
		a.refuse(kerr.InvalidProducerIDMapping)
		return
	}
	st := e.next(event{
		kind: evEnd, pid: in.PID, epoch: in.Epoch, tv: in.TV, commit: in.Commit,
		nowMs: s.c.clk.Wall(), fresh: s.spare,
	})
	if st.do&needPID != 0 {
		s.withPID(func(code *kerr.Error) {
			if code != nil {
				a.refuse(code)
				return
			}
			s.end(in, a, done)
		})
		return
	}
	s.took(st)
	answer := func() {
		if a.close() {
			done(st.out)
		}
	}
	switch {
	case st.code != nil:
		a.refuse(st.code)
	case st.do&write == 0:
		answer()
	default:
		s.change(e, st, nothing, func(code *kerr.Error) {
			if code != nil {
				a.refuse(code)
				return
			}
			if !in.Commit {
				s.aborted(ByClient)
			}
			s.complete(e, false, answer)
		})
	}
}

// answerDue sends the answers of EndTxn that have waited long enough for their markers.
func (s *shard) answerDue(now time.Duration) {
	for len(s.answers) > 0 && s.answers[0].answerAt <= now {
		comp := s.answers[0]
		s.answers[0] = nil
		s.answers = s.answers[1:]
		comp.reply()
	}
}
