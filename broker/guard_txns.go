package broker

import (
	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// guardInitProducerID: Write of the transactional id; without one IdempotentWrite, or Write of any topic (KIP-679).
func guardInitProducerID(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.InitProducerIDRequest)
	code := noTxn.Code
	if req.TransactionalID == nil {
		if g.quietly(auth.IdempotentWrite, auth.Cluster, auth.ClusterName) ||
			g.s.authorizer.MaySomewhere(g.who, auth.Write, auth.Topic) {
			return nil
		}
		g.s.metrics.denied(auth.IdempotentWrite)
		code = noCluster.Code
	} else if g.txn(auth.Write, *req.TransactionalID) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
	return resp
}

// guardAddPartitionsToTxn: Write of the transactional id and of each topic; where one is refused nothing of the
// transaction is registered. From version 4 on only nodes may ask.
func guardAddPartitionsToTxn(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version >= 4 {
		if g.cluster(auth.ClusterAction) {
			return nil
		}
		resp.ErrorCode = noCluster.Code
		return resp
	}
	mine, any := g.txn(auth.Write, req.TransactionalID), false
	for _, t := range req.Topics {
		out := kmsg.AddPartitionsToTxnResponseTopic{Topic: t.Topic}
		code := kerr.OperationNotAttempted.Code
		switch {
		case !mine:
			code, any = noTxn.Code, true
		case !g.topic(auth.Write, t.Topic):
			code, any = noTopic.Code, true
		}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions,
				kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, out)
	}
	if any {
		return resp
	}
	return nil
}

// guardAddOffsetsToTxn: Write of the transactional id, Read of the group.
func guardAddOffsetsToTxn(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	switch {
	case !g.txn(auth.Write, req.TransactionalID):
		resp.ErrorCode = noTxn.Code
	case !g.group(auth.Read, req.Group):
		resp.ErrorCode = noGroup.Code
	default:
		return nil
	}
	return resp
}

func guardEndTxn(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.EndTxnRequest)
	if g.txn(auth.Write, req.TransactionalID) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = noTxn.Code, -1, -1
	return resp
}

// guardWriteTxnMarkers: Alter of the cluster, for administrators, or ClusterAction, for nodes.
func guardWriteTxnMarkers(g *guarded) kmsg.Response {
	if g.quietly(auth.Alter, auth.Cluster, auth.ClusterName) || g.cluster(auth.ClusterAction) {
		return nil
	}
	req := g.msg.(*kmsg.WriteTxnMarkersRequest)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, m := range req.Markers {
		out := kmsg.WriteTxnMarkersResponseMarker{ProducerID: m.ProducerID}
		for _, t := range m.Topics {
			topic := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions,
					kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: noCluster.Code})
			}
			out.Topics = append(out.Topics, topic)
		}
		resp.Markers = append(resp.Markers, out)
	}
	return resp
}

// guardTxnOffsetCommit: Write of the transactional id, Read of the group and of each topic.
func guardTxnOffsetCommit(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.TxnOffsetCommitRequest)
	answer := func(t *kmsg.TxnOffsetCommitRequestTopic, code int16) kmsg.TxnOffsetCommitResponseTopic {
		out := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions,
				kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		return out
	}
	code := int16(0)
	switch {
	case !g.txn(auth.Write, req.TransactionalID):
		code = noTxn.Code
	case !g.group(auth.Read, req.Group):
		code = noGroup.Code
	}
	if code != 0 {
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, answer(&req.Topics[i], code))
		}
		return resp
	}
	req.Topics = hold(g, req.Topics, func(t *kmsg.TxnOffsetCommitRequestTopic) bool {
		name, known := g.nameOf(req.Version >= txnCommitByID, t.Topic, t.TopicID)
		return !known || g.topic(auth.Read, name)
	},
		func(resp *kmsg.TxnOffsetCommitResponse, t *kmsg.TxnOffsetCommitRequestTopic) {
			resp.Topics = append(resp.Topics, answer(t, noTopic.Code))
		})
	return nil
}

// guardDescribeTransactions: Describe of the transactional id; topics that may not be seen are left out.
func guardDescribeTransactions(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DescribeTransactionsRequest)
	var no []string
	req.TransactionalIDs, no = split(req.TransactionalIDs, func(id *string) bool { return g.txn(auth.Describe, *id) })
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.DescribeTransactionsResponse)
		for i := range resp.TransactionStates {
			st := &resp.TransactionStates[i]
			st.Topics, _ = split(st.Topics, func(t *kmsg.DescribeTransactionsResponseTransactionStateTopic) bool {
				return g.quietly(auth.Describe, auth.Topic, t.Topic)
			})
		}
		for _, id := range no {
			resp.TransactionStates = append(resp.TransactionStates,
				kmsg.DescribeTransactionsResponseTransactionState{TransactionalID: id, ErrorCode: noTxn.Code})
		}
	})
	return nil
}

// guardListTransactions leaves out what may not be seen.
func guardListTransactions(g *guarded) kmsg.Response {
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.ListTransactionsResponse)
		resp.TransactionStates, _ = split(resp.TransactionStates,
			func(t *kmsg.ListTransactionsResponseTransactionState) bool {
				return g.quietly(auth.Describe, auth.TransactionalID, t.TransactionalID)
			})
	})
	return nil
}
