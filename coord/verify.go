package coord

import "github.com/twmb/franz-go/pkg/kerr"

// Verify answers for each partition, in the order of in.TPs, whether it belongs to the open transaction of (PID,
// Epoch): nil, 49, 51, 90 or 120 (spec/transactions.md 5.2, verifyOnly; I8). It changes nothing. An answer that some
// partition belongs to it waits until its registration is durable.
func (c *Coordinator) Verify(in Part, done func([]*kerr.Error)) {
	fail := func(code *kerr.Error) {
		codes := make([]*kerr.Error, len(in.TPs))
		for i := range codes {
			codes[i] = code
		}
		done(codes)
	}
	c.to(in.TxnID, func(s *shard) { s.verify(in, s.newAsk(fail), done) }, fail)
}

func (s *shard) verify(in Part, a *ask, done func([]*kerr.Error)) {
	e := s.entries[in.TxnID]
	var t txn
	if e != nil {
		t = e.t
	}
	codes := make([]*kerr.Error, len(in.TPs))
	registered := false
	for i, tp := range in.TPs {
		codes[i] = s.c.told(verifyAdd(t, e != nil, in.PID, in.Epoch, tp))
		registered = registered || codes[i] == nil
	}
	finish := func(code *kerr.Error) {
		switch {
		case code != nil:
			a.refuse(code)
		case a.close():
			done(codes)
		}
	}
	if !registered {
		finish(nil)
		return
	}
	s.whenDurable(e, finish)
}
