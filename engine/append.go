package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"sekali/coord"
	"sekali/pidmap"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Batch is one transactional batch of AppendTxn. Log, TP and In are the caller's, the rest is the answer.
type Batch struct {
	Log *plog.Log
	TP  coord.TP
	In  plog.AppendIn // In.Guard is set here

	Out  plog.AppendOut
	Err  error       // of the log, as of plog.Append
	Code *kerr.Error // the coordinator's refusal: the batch was not appended; Out and Err tell of the last attempt

	// Registering: the batch waits for the durable function of AppendTxn, beside its own flush. It is set before the
	// coordinator is asked.
	Registering bool
}

// AppendTxn appends transactional batches of one producer to different partitions. A batch that its log takes for the
// first one of the transaction there is only appended with the coordinator's consent: verified to be registered, or,
// with add, registered by this very call (KIP-890), all of them with one question (I8). It returns when everything is
// written or refused, and waits for nothing that is to become durable.
//
// durable is called once, at any time and on any goroutine, if and only if add registered something: when that is
// durable, or with why it never will be. Batches with Registering set may be acknowledged after it only. Between the
// coordinator's answer and the append a marker may end the transaction; the guard of the log notices, and the batch
// comes back with the log's verdict.
func (e *Engine) AppendTxn(in coord.Part, add bool, bs []*Batch, durable func(*kerr.Error)) {
	var left []*Batch
	for _, b := range bs {
		if b.append() {
			left = append(left, b)
		}
	}
	for try := 0; len(left) > 0 && try < admitTries; try++ {
		if try > 0 && add {
			// Registered, and a marker since the guard was given: it ended the transaction before this one, which the
			// registration had waited for, or this one. The client's next try tells them apart: its epoch is fenced by
			// the second (KIP-890), and it is registered after the first.
			for _, b := range left {
				b.Code = kerr.ConcurrentTransactions
			}
			return
		}
		left = e.admit(in, add, left, durable)
	}
}

// admit asks once for all batches and appends those that may go on; it returns those that must be asked for again.
func (e *Engine) admit(in coord.Part, add bool, bs []*Batch, durable func(*kerr.Error)) (again []*Batch) {
	in.TPs = make([]coord.TP, len(bs))
	for i, b := range bs {
		in.TPs[i], b.Registering = b.TP, add
	}
	// A registration that is lost leaves open what was appended behind it. Until the coordinator has agreed again nothing
	// of it may be answered for, not even a batch that is stored: it could be left out of the commit.
	var lost atomic.Bool
	doubt := func() {
		for _, b := range bs {
			if b.Registering {
				b.Log.Doubt(in.PID)
			}
		}
	}
	codes := e.confirm(in, add, true, func(code *kerr.Error) {
		if code != nil {
			lost.Store(true)
			doubt()
		}
		durable(code)
	})
	defer func() {
		if lost.Load() { // perhaps before they were appended
			doubt()
		}
	}()
	if add && codes[0] == nil {
		defer e.st.Arrived()
	}
	for i, b := range bs {
		if b.Code = codes[i]; b.Code != nil {
			b.Registering = false
			continue
		}
		if b.append() {
			again = append(again, b)
		}
	}
	return again
}

// append tries one batch; true: the log wants the coordinator asked, and has given a guard.
func (b *Batch) append() bool {
	b.Out, b.Err = b.Log.Append(b.In)
	r, ok := errors.AsType[*plog.RejectError](b.Err)
	if !ok || r.Decision.Verdict != pidmap.TxnUnverified {
		return false
	}
	b.In.Guard = r.Decision.Guard
	return true
}

// Doubt is to be called for what a registration that was lost leaves open in the partitions: nothing of it is answered
// for, not even a retry, until the coordinator has agreed again.
func (e *Engine) Doubt(in coord.Part) {
	for _, tp := range in.TPs {
		if l, err := e.st.Partition(store.TP{Topic: tp.Topic, ID: tp.ID, Partition: tp.Partition}); err == nil {
			l.Doubt(in.PID)
		}
	}
}

// Confirm asks the coordinator about partitions of a transaction: whether they are registered, or, with add, to
// register them. There is one code for each of in.TPs, nil: append now. It waits for the answer; an Add that meets the
// end of the transaction before (51) is repeated for a while. durable is as in AppendTxn.
func (e *Engine) Confirm(in coord.Part, add bool, durable func(*kerr.Error)) []*kerr.Error {
	return e.confirm(in, add, false, durable)
}

// confirm is Confirm. follows: after a registration the caller appends at once, then calls Store.Arrived.
func (e *Engine) confirm(in coord.Part, add, follows bool, durable func(*kerr.Error)) []*kerr.Error {
	if !add {
		if e.c.VerifyOff {
			return make([]*kerr.Error, len(in.TPs))
		}
		answer := make(chan []*kerr.Error, 1)
		e.txns.Verify(in, func(codes []*kerr.Error) { answer <- codes })
		return <-answer
	}
	in.TV = 2
	code := e.add(in, follows, durable)
	for ends := e.clk.Mono() + e.c.RetryFor; code == kerr.ConcurrentTransactions && e.clk.Mono() < ends; {
		if !e.sleep(retryEvery) {
			break
		}
		code = e.add(in, follows, durable)
	}
	codes := make([]*kerr.Error, len(in.TPs))
	for i := range codes {
		codes[i] = code
	}
	return codes
}

// add registers partitions and returns once that is appended. durable is handed on only if it is. If data follows, the
// flush of the registration is to take it along.
func (e *Engine) add(in coord.Part, follows bool, durable func(*kerr.Error)) *kerr.Error {
	answer := make(chan *kerr.Error, 1)
	if follows {
		e.st.Expect()
	}
	written := false
	e.txns.Add(in, func(code *kerr.Error) {
		written = code == nil
		answer <- code
	}, func(code *kerr.Error) {
		if written {
			durable(code)
		}
	})
	code := <-answer
	if follows && code != nil {
		e.st.Arrived()
	}
	return code
}

// sleep waits; false: the engine closes.
func (e *Engine) sleep(d time.Duration) bool {
	done := make(chan struct{})
	t := e.clk.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-e.stopping.Done():
		return false
	}
}

// Add registers partitions and returns once that is durable (AddPartitionsToTxn, AddOffsetsToTxn).
func (e *Engine) Add(in coord.Part) *kerr.Error {
	answer := make(chan *kerr.Error, 2)
	e.txns.Add(in, func(code *kerr.Error) {
		if code != nil {
			answer <- code
		}
	}, func(code *kerr.Error) { answer <- code })
	return <-answer
}
