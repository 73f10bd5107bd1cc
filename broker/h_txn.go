package broker

import (
	"context"

	"sekali/coord"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleInitProducerID gives a producer an id and an epoch. An idempotent one gets an id that nobody else has or had,
// with epoch 0, every time it asks; one with a transactional id gets that of the transactional id, with an epoch that
// fences whoever had it before (KIP-98, KIP-360).
func (s *Server) handleInitProducerID(r *request) kmsg.Response {
	req := r.msg.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	in := coord.InitIn{TimeoutMs: req.TransactionTimeoutMillis, PID: -1, Epoch: -1}
	if req.Version >= 3 {
		in.PID, in.Epoch = req.ProducerID, req.ProducerEpoch
	}
	if (in.PID == -1) != (in.Epoch == -1) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	if req.TransactionalID == nil {
		id, err := s.engine.PIDs().Next()
		if err != nil {
			// Retriable in every client: the next attempt reserves anew.
			s.log.Error("no producer id could be reserved", "err", err)
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
		return resp
	}
	in.TxnID = *req.TransactionalID
	out, code := await(func(done func(coord.InitOut, *kerr.Error)) { s.engine.Txns().Init(in, done) })
	if code != nil {
		resp.ErrorCode = txnCode(req.Key(), req.Version, code)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = out.PID, out.Epoch
	return resp
}

// await turns a call with a callback into one that waits.
func await[T any](call func(done func(T, *kerr.Error))) (T, *kerr.Error) {
	type answer struct {
		v    T
		code *kerr.Error
	}
	ch := make(chan answer, 1)
	call(func(v T, code *kerr.Error) { ch <- answer{v, code} })
	a := <-ch
	return a.v, a.code
}

// handleAddPartitionsToTxn registers partitions in a transaction: of one client up to version 3, of many, verified or
// added, from version 4 on, which brokers and test tools send. If a partition does not exist, nothing of its
// transaction is registered.
func (s *Server) handleAddPartitionsToTxn(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	txns := req.Transactions
	if req.Version < 4 {
		txns = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: req.TransactionalID,
			ProducerID: req.ProducerID, ProducerEpoch: req.ProducerEpoch}}
		for _, t := range req.Topics {
			txns[0].Topics = append(txns[0].Topics,
				kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: t.Topic, Partitions: t.Partitions})
		}
	}
	for i := range txns {
		t := &txns[i]
		out := kmsg.AddPartitionsToTxnResponseTransaction{TransactionalID: t.TransactionalID}
		codes := s.addPartitions(req.Version, t)
		for _, topic := range t.Topics {
			o := kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: topic.Topic}
			for _, p := range topic.Partitions {
				o.Partitions = append(o.Partitions,
					kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p, ErrorCode: codes[0]})
				codes = codes[1:]
			}
			out.Topics = append(out.Topics, o)
		}
		resp.Transactions = append(resp.Transactions, out)
	}
	if req.Version < 4 {
		resp.Topics, resp.Transactions = oneTransaction(resp.Transactions[0].Topics), nil
	}
	return resp
}

// oneTransaction is the answer in the form of the versions that know one transaction.
func oneTransaction(in []kmsg.AddPartitionsToTxnResponseTransactionTopic) []kmsg.AddPartitionsToTxnResponseTopic {
	out := make([]kmsg.AddPartitionsToTxnResponseTopic, len(in))
	for i, t := range in {
		out[i].Topic = t.Topic
		for _, p := range t.Partitions {
			out[i].Partitions = append(out[i].Partitions,
				kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p.Partition, ErrorCode: p.ErrorCode})
		}
	}
	return out
}

// addPartitions answers one transaction of the request: a code for every partition in its order.
func (s *Server) addPartitions(version int16, t *kmsg.AddPartitionsToTxnRequestTransaction) []int16 {
	var codes []int16
	in := coord.Part{TxnID: t.TransactionalID, PID: t.ProducerID, Epoch: t.ProducerEpoch}
	if version >= 4 {
		in.TV = 2
	}
	failed := false
	cat := s.store.Catalog()
	for _, topic := range t.Topics {
		for _, p := range topic.Partitions {
			tp, code := participant(cat.ByName[topic.Topic], p, version)
			failed = failed || code != 0
			in.TPs, codes = append(in.TPs, tp), append(codes, code)
		}
	}
	const key = 24
	switch {
	case failed:
		for i := range codes {
			if codes[i] == 0 {
				codes[i] = kerr.OperationNotAttempted.Code
			}
		}
	case t.VerifyOnly:
		all, _ := await(func(done func([]*kerr.Error, *kerr.Error)) {
			s.engine.Txns().Verify(in, func(codes []*kerr.Error) { done(codes, nil) })
		})
		for i, code := range all {
			codes[i] = txnCode(key, version, code)
		}
	default:
		code := txnCode(key, version, s.engine.Add(in))
		for i := range codes {
			codes[i] = code
		}
	}
	return codes
}

// participant finds a partition that is to take part in a transaction. Clients (up to version 3) may not write to
// internal topics.
func participant(t *store.Topic, partition int32, version int16) (coord.TP, int16) {
	switch {
	case t == nil || partition < 0 || int(partition) >= len(t.Partitions):
		return coord.TP{}, kerr.UnknownTopicOrPartition.Code
	case t.Internal && version < 4:
		return coord.TP{}, kerr.TopicAuthorizationFailed.Code
	}
	return coord.TP{Topic: t.Name, ID: t.ID, Partition: partition}, 0
}

// handleAddOffsetsToTxn registers the partition that keeps a group's offsets in a transaction.
func (s *Server) handleAddOffsetsToTxn(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	tp, ok := s.engine.OffsetsTP(req.Group)
	if !ok {
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		return resp
	}
	resp.ErrorCode = txnCode(req.Key(), req.Version, s.engine.Add(coord.Part{
		TxnID: req.TransactionalID, PID: req.ProducerID, Epoch: req.ProducerEpoch, TPs: []coord.TP{tp}}))
	return resp
}

// handleEndTxn commits or aborts a transaction. From version 5 on the answer carries the producer id and epoch of the
// next one (KIP-890).
func (s *Server) handleEndTxn(r *request) kmsg.Response {
	req := r.msg.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	in := coord.EndIn{TxnID: req.TransactionalID, PID: req.ProducerID, Epoch: req.ProducerEpoch, Commit: req.Commit}
	if req.Version >= 5 {
		in.TV = 2
	}
	out, code := await(func(done func(coord.InitOut, *kerr.Error)) { s.engine.Txns().End(in, done) })
	if resp.ErrorCode = txnCode(req.Key(), req.Version, code); code == nil {
		resp.ProducerID, resp.ProducerEpoch = out.PID, out.Epoch
	}
	return resp
}

// The key types of FindCoordinator.
const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
)

// handleFindCoordinator answers this node for groups and transactional ids, 42 for any other key type. The first one
// makes the internal topics; while that fails the answer is 15, which clients repeat.
func (s *Server) handleFindCoordinator(r *request) kmsg.Response {
	req := r.msg.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	found := kmsg.FindCoordinatorResponseCoordinator{NodeID: -1, Port: -1}
	if req.Version >= 1 && req.CoordinatorType != coordinatorGroup && req.CoordinatorType != coordinatorTxn {
		found.ErrorCode, found.ErrorMessage = kerr.InvalidRequest.Code, text("no coordinator of this key type")
	} else if err := s.engine.Ensure(context.Background()); err != nil {
		s.complaints.warn("coordinators are not available", "err", err)
		found.ErrorCode = kerr.CoordinatorNotAvailable.Code
		found.ErrorMessage = text(kerr.CoordinatorNotAvailable.Description)
	} else {
		found.NodeID = s.nodeID
		found.Host, found.Port = r.conn.advertised()
	}
	if req.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = found.ErrorCode, found.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = found.NodeID, found.Host, found.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		found.Key = key
		resp.Coordinators = append(resp.Coordinators, found)
	}
	return resp
}
