package broker

import (
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps of ListOffsets that are questions of their own, each from the version that knows it on.
const (
	latestOffset   = -1
	earliestOffset = -2
	maxTimestamp   = -3 // version 7 (KIP-734)
	earliestLocal  = -4 // version 8 (KIP-405)
	latestTiered   = -5 // version 9 (KIP-1005)
	earliestUpload = -6 // version 11 (KIP-1023)
)

// timestampSince maps the questions to the first version that knows them.
var timestampSince = map[int64]int16{
	latestOffset: 1, earliestOffset: 1, maxTimestamp: 7, earliestLocal: 8, latestTiered: 9, earliestUpload: 11,
}

// partitionKey names a partition within one request.
type partitionKey struct {
	topic     string
	partition int32
}

// handleListOffsets finds offsets by time, or the ends of logs. What is not visible to the request's isolation level is
// not told.
func (s *Server) handleListOffsets(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	count := map[partitionKey]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			count[partitionKey{t.Topic, p.Partition}]++
		}
	}
	for _, t := range req.Topics {
		topic := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out := kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
			switch since, known := timestampSince[p.Timestamp]; {
			case count[partitionKey{t.Topic, p.Partition}] > 1:
				out.ErrorCode = kerr.InvalidRequest.Code
			case p.Timestamp < 0 && (!known || req.Version < since):
				out.ErrorCode = kerr.UnsupportedVersion.Code
			default:
				s.listOffset(&out, t.Topic, &p, req.IsolationLevel != 0)
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// leaderLog finds the log of a partition and holds the leader epoch a client believes in against ours: 74 below it, 75
// above it, -1 is not tested (KIP-320).
func (s *Server) leaderLog(topic string, partition, epoch int32) (*plog.Log, int16) {
	l, err := s.store.Partition(store.TP{Topic: topic, Partition: partition})
	switch {
	case err != nil:
		return nil, codeOf(err)
	case epoch >= 0 && epoch < s.epoch:
		return nil, kerr.FencedLeaderEpoch.Code
	case epoch > s.epoch:
		return nil, kerr.UnknownLeaderEpoch.Code
	}
	return l, 0
}

// listOffset answers one partition. Nothing found is no error: offset and timestamp stay -1.
func (s *Server) listOffset(out *kmsg.ListOffsetsResponseTopicPartition, topic string,
	p *kmsg.ListOffsetsRequestTopicPartition, committed bool) {
	l, code := s.leaderLog(topic, p.Partition, p.CurrentLeaderEpoch)
	if code != 0 {
		out.ErrorCode = code
		return
	}
	if err := l.Err(); err != nil {
		out.ErrorCode = codeOf(err)
		return
	}
	at := l.Offsets()
	limit := at.High
	if committed {
		limit = at.Stable
	}
	var offset, ms int64
	var err error
	switch p.Timestamp {
	case latestOffset:
		out.Offset, out.LeaderEpoch = limit, s.epoch
		return
	case earliestOffset, earliestLocal:
		// Nothing is tiered: all that there is, is local.
		out.Offset, out.LeaderEpoch = at.Start, s.epochOf(l, at.Start, at.End)
		return
	case latestTiered, earliestUpload:
		return
	case maxTimestamp:
		offset, ms, err = l.OffsetOfMaxTime()
	default:
		offset, ms, err = l.OffsetForTime(p.Timestamp)
	}
	if err != nil {
		out.ErrorCode = codeOf(err)
		return
	}
	if offset >= 0 && offset < limit {
		out.Offset, out.Timestamp, out.LeaderEpoch = offset, ms, s.epochOf(l, offset, at.End)
	}
}

// epochOf is the leader epoch under which the record at offset was written; of the log end the present one.
func (s *Server) epochOf(l *plog.Log, offset, end int64) int32 {
	if offset < end {
		return l.EpochAt(offset)
	}
	return s.epoch
}

// handleOffsetForLeaderEpoch tells the end of an epoch: the largest epoch not above the one asked for and the start of
// the next one, or the log end (KIP-101, KIP-279). Consumers learn by it that a log was cut.
func (s *Server) handleOffsetForLeaderEpoch(r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		topic := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out := kmsg.OffsetForLeaderEpochResponseTopicPartition{Partition: p.Partition, LeaderEpoch: -1, EndOffset: -1}
			l, code := s.leaderLog(t.Topic, p.Partition, p.CurrentLeaderEpoch)
			if code == 0 {
				code = codeOf(l.Err())
			}
			if out.ErrorCode = code; code == 0 {
				out.LeaderEpoch, out.EndOffset = l.EpochEnd(p.LeaderEpoch)
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// deleteToHigh asks DeleteRecords for everything that is visible.
const deleteToHigh = -1

// handleDeleteRecords raises log starts (KIP-107). The new start is durable before the answer; segments go later.
func (s *Server) handleDeleteRecords(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, t := range req.Topics {
		topic := kmsg.DeleteRecordsResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out := kmsg.DeleteRecordsResponseTopicPartition{Partition: p.Partition, LowWatermark: -1}
			low, code := s.deleteRecords(t.Topic, p.Partition, p.Offset)
			if out.ErrorCode = code; code == 0 {
				out.LowWatermark = low
			}
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func (s *Server) deleteRecords(topic string, partition int32, offset int64) (low int64, code int16) {
	l, code := s.leaderLog(topic, partition, -1)
	if code != 0 {
		return 0, code
	}
	t := s.store.Catalog().ByName[topic]
	switch {
	case t == nil:
		return 0, kerr.UnknownTopicOrPartition.Code // deleted meanwhile
	case t.Internal:
		return 0, kerr.InvalidTopicException.Code
	case t.Config.Compact && !t.Config.Delete:
		return 0, kerr.PolicyViolation.Code
	case l.Err() != nil:
		return 0, codeOf(l.Err())
	}
	at := l.Offsets()
	if offset == deleteToHigh {
		offset = at.High
	}
	if offset < 0 || offset > at.High {
		return 0, kerr.OffsetOutOfRange.Code
	}
	if offset > at.Start {
		if err := l.DeleteBefore(offset); err != nil {
			return 0, codeOf(err)
		}
	}
	return l.Offsets().Start, 0
}
