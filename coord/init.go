package coord

import "github.com/twmb/franz-go/pkg/kerr"

// Init is InitProducerId with a transactional id (spec/transactions.md 5.1, KIP-98, KIP-360). done gets the pair to use
// once its record is durable, or 42, 50, 51, 90, 10 and the codes of 5.0. An open transaction of an earlier holder is
// aborted; 51 then says that the request is to be sent again.
func (c *Coordinator) Init(in InitIn, done func(InitOut, *kerr.Error)) {
	fail := func(code *kerr.Error) { done(noOut, c.told(code)) }
	switch {
	case (in.PID == -1) != (in.Epoch == -1), in.TxnID == "":
		fail(kerr.InvalidRequest)
		return
	case in.TimeoutMs <= 0 || int64(in.TimeoutMs) > c.cfg.TimeoutMaxMs:
		fail(kerr.InvalidTransactionTimeout)
		return
	}
	c.to(in.TxnID, func(s *shard) { s.init(in, s.newAsk(fail), done) }, fail)
}

func (s *shard) init(in InitIn, a *ask, done func(InitOut, *kerr.Error)) {
	again := func(code *kerr.Error) {
		if code != nil {
			a.refuse(code)
			return
		}
		s.init(in, a, done)
	}
	e := s.entries[in.TxnID]
	if e == nil {
		if s.spare < 0 {
			s.withPID(again)
			return
		}
		e = &entry{id: in.TxnID, t: newTxn(s.spare), offset: -1, slot: -1}
	}
	st := e.next(event{
		kind: evInit, pid: in.PID, epoch: in.Epoch, timeoutMs: in.TimeoutMs, tv: s.c.cfg.TV,
		nowMs: s.c.clk.Wall(), fresh: s.spare,
	})
	if st.do&needPID != 0 {
		s.withPID(again)
		return
	}
	s.took(st)
	if st.do&write == 0 {
		a.refuse(st.code)
		return
	}
	if e.t.epoch == -1 {
		s.entries[e.id] = e
		s.spare = -1
	}
	s.change(e, st, nothing, func(code *kerr.Error) {
		if code == nil && st.txn.state == PrepareAbort {
			s.aborted(ByFence)
			s.complete(e, false, nil)
		}
		switch {
		case code != nil:
			a.refuse(code)
		case st.code != nil:
			a.refuse(st.code)
		case a.close():
			done(st.out, nil)
		}
	})
}

// nothing is a callback nobody needs.
func nothing(*kerr.Error) {}

// aborted counts an abort that is decided.
func (s *shard) aborted(cause Cause) {
	if s.c.cfg.Events.Aborted != nil {
		s.c.cfg.Events.Aborted(cause)
	}
}
