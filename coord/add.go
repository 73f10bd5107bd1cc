package coord

import "github.com/twmb/franz-go/pkg/kerr"

// Add registers partitions in the transaction of (PID, Epoch), beginning it if need be (spec/transactions.md 5.2).
// written runs when the registration is in the log: data may follow (I8); done runs after it, when the registration is
// durable, also that of partitions which were there before. Both run once, in this order; a refusal (49, 51, 90, 10 and
// the codes of 5.0) goes to both. written may be nil.
func (c *Coordinator) Add(in Part, written, done func(*kerr.Error)) {
	if written == nil {
		written = nothing
	}
	told := false
	wrote := func(code *kerr.Error) {
		if !told {
			told = true
			written(code)
		}
	}
	fail := func(code *kerr.Error) {
		c.told(code)
		wrote(code)
		done(code)
	}
	in.TPs = sortTPs(in.TPs)
	c.to(in.TxnID, func(s *shard) { s.add(in, s.newAsk(fail), wrote, done) }, fail)
}

func (s *shard) add(in Part, a *ask, written, done func(*kerr.Error)) {
	e := s.entries[in.TxnID]
	if e == nil {
		a.refuse(kerr.InvalidProducerIDMapping)
		return
	}
	st := e.next(event{
		kind: evAdd, pid: in.PID, epoch: in.Epoch, tv: in.TV, tps: in.TPs, nowMs: s.c.clk.Wall(), fresh: -1,
	})
	finish := func(code *kerr.Error) {
		switch {
		case code != nil:
			a.refuse(code)
		case a.close():
			done(nil)
		}
	}
	switch {
	case st.code != nil:
		a.refuse(st.code)
	case st.do&write == 0:
		written(nil)
		s.whenDurable(e, finish)
	case e.durable < e.seq && sameEpochAgain(&e.t, &in):
		s.whenDurable(e, func(code *kerr.Error) {
			if code != nil {
				a.refuse(code)
				return
			}
			s.add(in, a, written, done)
		})
	default:
		s.change(e, st, func(code *kerr.Error) {
			if code == nil {
				written(nil)
			}
		}, finish)
	}
}

// sameEpochAgain reports whether data of the new transaction could not be told from data of the completed one by its
// epoch, and would come before the answer: the client has changed from transaction version 1 to 2. If one failed flush
// took Complete and this registration, the journal would say Prepare, and its repeated marker would end what came after
// it. So the registration waits until Complete is durable. Under version 1 data comes behind a durable registration
// only, and under version 2 the epoch tells (reconcile).
func sameEpochAgain(t *txn, in *Part) bool {
	return in.TV >= 2 && t.clientTV < 2 && (t.state == CompleteCommit || t.state == CompleteAbort)
}
