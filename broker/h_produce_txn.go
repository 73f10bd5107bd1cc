package broker

import (
	"sekali/batch"
	"sekali/coord"
	"sekali/engine"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// implicitAddVersion is the Produce version from which on a write registers its partition in the transaction (KIP-890).
const implicitAddVersion = 12

// abortableVersion is the Produce version from which on clients know that a transaction can be aborted (KIP-890).
const abortableVersion = 11

// txnPart is one transactional batch of a Produce request. It belongs to the execution of the request.
type txnPart struct {
	q    *part
	b    engine.Batch
	view batch.View
}

func newTxnPart(q *part, log *plog.Log, t *store.Topic, partition int32, in plog.AppendIn) *txnPart {
	p := &txnPart{q: q, view: in.Batch}
	p.b.Log, p.b.In, p.b.TP = log, in, coord.TP{Topic: t.Name, ID: t.ID, Partition: partition}
	q.waits.Add(1) // taken back below where nothing was registered
	return p
}

// produceTxn appends the transactional batches of a request (spec/transactions.md 5.4). They are of one producer. The
// executor waits for the coordinator's answer, so that what the client has pipelined stays in order; what is to become
// durable is waited for by the answer alone.
func (s *Server) produceTxn(p *produce, req *kmsg.ProduceRequest) {
	pid, epoch := p.txn[0].view.Producer()
	in := coord.Part{TxnID: *req.TransactionID, PID: pid, Epoch: epoch}
	bs := make([]*engine.Batch, len(p.txn))
	for i, t := range p.txn {
		bs[i] = &t.b
	}
	txn := p.txn
	s.engine.AppendTxn(in, req.Version >= implicitAddVersion, bs, func(code *kerr.Error) {
		for _, t := range txn {
			if t.b.Registering {
				t.q.registered(code)
			}
		}
	})
	for _, t := range p.txn {
		q := t.q
		if !t.b.Registering {
			q.waits.Add(-1)
		}
		if t.b.Code != nil {
			q.unconfirmed(t, produceTxnCode(req.Version, t.b.Code))
			continue
		}
		q.out = t.b.Out
		q.appended(s, t.b.Log, t.view, store.TP{Topic: t.b.TP.Topic, Partition: t.b.TP.Partition}, t.b.Err)
	}
}

// registered is told once the registration of the part is durable, or never will be: then the batch may be in the log,
// and the retry of it is a duplicate.
func (q *part) registered(code *kerr.Error) {
	if code == nil {
		q.landed()
	} else {
		q.fail(produceTxnCode(q.p.version, code))
	}
}

// unconfirmed answers a batch that the coordinator did not let into its transaction. After a retriable code the batches
// behind it must not be taken for the producer's first.
func (q *part) unconfirmed(t *txnPart, code int16) {
	if code == kerr.NotEnoughReplicas.Code || code == kerr.ConcurrentTransactions.Code {
		t.b.Log.Refuse(t.view)
	} else {
		q.p.c.s.metrics.unconfirmed()
	}
	q.refuse(code, t.b.Log.Offsets().Start)
}

// produceTxnCode is what a version of Produce is told of the coordinator's refusal (spec/transactions.md 5.0, 5.4).
func produceTxnCode(version int16, code *kerr.Error) int16 {
	switch code {
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch:
		return kerr.InvalidProducerEpoch.Code
	case kerr.TransactionAbortable, kerr.InvalidTxnState, kerr.MessageTooLarge:
		// The last: the record of the transaction does not fit the transaction log with one partition more.
		if version < abortableVersion {
			return kerr.InvalidTxnState.Code
		}
		return kerr.TransactionAbortable.Code
	case kerr.ConcurrentTransactions:
		if version >= implicitAddVersion {
			return code.Code
		}
		return kerr.NotEnoughReplicas.Code
	case kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		return kerr.NotEnoughReplicas.Code
	}
	return code.Code
}
