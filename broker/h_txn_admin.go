package broker

import (
	"errors"
	"sync"

	"sekali/batch"
	"sekali/coord"
	"sekali/engine"
	"sekali/pidmap"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleWriteTxnMarkers writes markers into partitions without asking the coordinator: so an administrator ends a
// hanging transaction (KIP-664). The rules of the partition decide (KIP-1228): an older producer epoch is 47, an older
// coordinator epoch 52. Every code is given once the marker is durable.
func (s *Server) handleWriteTxnMarkers(r *request) kmsg.Response {
	req := r.msg.(*kmsg.WriteTxnMarkersRequest)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	at := map[int64]int{} // producer id to its place in the answer
	var wait sync.WaitGroup
	for i := range req.Markers {
		m := &req.Markers[i]
		n, ok := at[m.ProducerID]
		if !ok {
			n = len(resp.Markers)
			at[m.ProducerID] = n
			resp.Markers = append(resp.Markers, kmsg.WriteTxnMarkersResponseMarker{ProducerID: m.ProducerID})
		}
		for _, t := range m.Topics {
			out := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic,
				Partitions: make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))}
			for j, p := range t.Partitions {
				out.Partitions[j].Partition = p
				wait.Add(1)
				s.writeMarker(m, t.Topic, p, func(code int16) {
					out.Partitions[j].ErrorCode = code
					wait.Done()
				})
			}
			resp.Markers[n].Topics = append(resp.Markers[n].Topics, out)
		}
	}
	wait.Wait()
	return resp
}

// writeMarker writes one marker and calls done with its code, perhaps later and on another goroutine.
func (s *Server) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, topic string, partition int32, done func(int16)) {
	if m.ProducerID < 0 || m.ProducerEpoch < 0 {
		done(kerr.InvalidRequest.Code)
		return
	}
	if topic == engine.OffsetsTopic && !s.engine.Loaded() {
		done(kerr.NotLeaderForPartition.Code)
		return
	}
	tp := coord.TP{Topic: topic, Partition: partition}
	marker := batch.Marker{PID: m.ProducerID, Epoch: m.ProducerEpoch, CoordEpoch: m.CoordinatorEpoch,
		Version: m.TransactionVersion, Commit: m.Committed, Time: s.clk.Wall()}
	s.engine.WriteMarker(tp, marker, false, func(err error) {
		switch {
		case errors.Is(err, pidmap.ErrFenced):
			done(kerr.InvalidProducerEpoch.Code)
		case errors.Is(err, pidmap.ErrCoordFenced):
			done(kerr.TransactionCoordinatorFenced.Code)
		default:
			done(codeOf(err))
		}
	})
}

// handleDescribeTransactions tells the state of transactional ids (KIP-664). Before there are internal topics there is
// none.
func (s *Server) handleDescribeTransactions(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	seen := map[string]bool{}
	for _, id := range req.TransactionalIDs {
		out := kmsg.DescribeTransactionsResponseTransactionState{TransactionalID: id}
		if no := again(seen[id]); no != nil {
			out.ErrorCode = no.code
			resp.TransactionStates = append(resp.TransactionStates, out)
			continue
		}
		seen[id] = true
		var info coord.Info
		code := kerr.TransactionalIDNotFound
		switch {
		case id == "":
			code = kerr.InvalidRequest
		case !s.engine.Idle():
			info, code = await(func(done func(coord.Info, *kerr.Error)) { s.engine.Txns().Describe(id, done) })
		}
		if code != nil {
			out.ErrorCode = code.Code
			resp.TransactionStates = append(resp.TransactionStates, out)
			continue
		}
		out.State, out.TimeoutMillis, out.StartTimestamp = info.State.String(), info.TimeoutMs, info.StartedMs
		out.ProducerID, out.ProducerEpoch = info.PID, info.Epoch
		for _, tp := range info.TPs {
			n := len(out.Topics)
			if n == 0 || out.Topics[n-1].Topic != tp.Topic {
				out.Topics = append(out.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: tp.Topic})
				n++
			}
			out.Topics[n-1].Partitions = append(out.Topics[n-1].Partitions, tp.Partition)
		}
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp
}

// handleListTransactions lists transactional ids (KIP-664, filters of KIP-994 and KIP-1152). Names of states nobody
// knows match nothing and are told.
func (s *Server) handleListTransactions(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	f := coord.Filter{PIDs: req.ProducerIDFilters, LongerMs: -1}
	for _, name := range req.StateFilters {
		if state, ok := coord.ParseState(name); ok {
			f.States = append(f.States, state)
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	if req.Version >= 1 {
		f.LongerMs = req.DurationFilterMillis
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil {
		f.Pattern = *req.TransactionalIDPattern
	}
	if s.engine.Idle() || len(req.StateFilters) > 0 && len(f.States) == 0 {
		return resp
	}
	all, code := await(func(done func([]coord.Info, *kerr.Error)) { s.engine.Txns().List(f, done) })
	if code != nil {
		resp.ErrorCode = code.Code
		return resp
	}
	for _, info := range all {
		resp.TransactionStates = append(resp.TransactionStates, kmsg.ListTransactionsResponseTransactionState{
			TransactionalID: info.TxnID, ProducerID: info.PID, TransactionState: info.State.String()})
	}
	return resp
}
