package broker

import (
	"maps"
	"slices"

	"sekali/pidmap"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicNameValid reports whether a topic could bear this name.
func topicNameValid(name string) bool { return store.CheckName(name) == nil }

// handleDescribeLogDirs tells the one data directory, the size of each log in it and the room on its file system. No
// topics (null) means all; what does not exist is left out.
func (s *Server) handleDescribeLogDirs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.DescribeLogDirsResponseDir{Dir: s.store.Dir(), TotalBytes: -1, UsableBytes: -1}
	if total, usable, err := s.cfg.Store.FS.Free(s.store.Dir()); err == nil {
		dir.TotalBytes, dir.UsableBytes = total, usable
	}
	catalog := s.store.Catalog()
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(catalog.ByName)) {
			t := catalog.ByName[name]
			dir.Topics = append(dir.Topics, logSizes(t, wholeTopic(t)))
		}
	}
	for _, want := range req.Topics {
		if t := catalog.ByName[want.Topic]; t != nil {
			dir.Topics = append(dir.Topics, logSizes(t, want.Partitions))
		}
	}
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{dir}
	return resp
}

func wholeTopic(t *store.Topic) []int32 {
	all := make([]int32, len(t.Partitions))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// logSizes tells the sizes of the named partitions whose logs are open. Nothing lags: this node is the leader.
func logSizes(t *store.Topic, partitions []int32) kmsg.DescribeLogDirsResponseDirTopic {
	out := kmsg.DescribeLogDirsResponseDirTopic{Topic: t.Name}
	for _, i := range partitions {
		if i < 0 || int(i) >= len(t.Partitions) || t.Partitions[i] == nil {
			continue
		}
		out.Partitions = append(out.Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{
			Partition: i, Size: t.Partitions[i].Size()})
	}
	return out
}

// handleDescribeProducers tells what is known of the producers of partitions (KIP-664).
func (s *Server) handleDescribeProducers(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	seen := map[partitionKey]bool{}
	for _, t := range req.Topics {
		topic := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			at := partitionKey{t.Topic, p}
			if no := again(seen[at]); no != nil {
				topic.Partitions = append(topic.Partitions, kmsg.DescribeProducersResponseTopicPartition{
					Partition: p, ErrorCode: no.code, ErrorMessage: text(no.why)})
				continue
			}
			seen[at] = true
			topic.Partitions = append(topic.Partitions, s.describeProducers(t.Topic, p))
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func (s *Server) describeProducers(topic string, partition int32) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.DescribeProducersResponseTopicPartition{Partition: partition}
	if !topicNameValid(topic) {
		out.ErrorCode, out.ErrorMessage = kerr.InvalidTopicException.Code, text(kerr.InvalidTopicException.Description)
		return out
	}
	l, err := s.store.Partition(store.TP{Topic: topic, Partition: partition})
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = codeOf(err), text(err.Error())
		return out
	}
	l.Producers(func(p pidmap.Producer) bool {
		active := kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			ProducerID: p.PID, ProducerEpoch: int32(p.Epoch), LastSequence: -1, LastTimestamp: p.LastTime,
			CoordinatorEpoch: p.CoordEpoch, CurrentTxnStartOffset: p.TxnFirst}
		if p.N > 0 {
			active.LastSequence = p.Stamps[p.N-1].LastSeq
		}
		out.ActiveProducers = append(out.ActiveProducers, active)
		return true
	})
	return out
}

// handleListPartitionReassignments answers that nothing moves: partitions have one place.
func (s *Server) handleListPartitionReassignments(r *request) kmsg.Response {
	return r.msg.ResponseKind()
}

// handleDescribeTopicPartitions tells topics and partitions in pieces (KIP-966): topics sorted by name, at most so many
// partitions as the request and the node allow, and a cursor where to go on. No topics mean all. A cursor that cannot
// be is answered with 42 for each topic asked for.
func (s *Server) handleDescribeTopicPartitions(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	catalog := s.store.Catalog()
	all := len(req.Topics) == 0
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if c := req.Cursor; c != nil && (c.Partition < 0 || !all && !slices.Contains(names, c.Topic)) {
		for _, name := range names {
			resp.Topics = append(resp.Topics, kmsg.DescribeTopicPartitionsResponseTopic{
				Topic: text(name), ErrorCode: kerr.InvalidRequest.Code, AuthorizedOperations: noOperations})
		}
		return resp
	}
	if all {
		names = slices.Collect(maps.Keys(catalog.ByName))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	left := int(max(min(req.ResponsePartitionLimit, describePartitionsMax), 1))
	for _, name := range names {
		first := 0
		if c := req.Cursor; c != nil {
			if name < c.Topic {
				continue
			}
			if name == c.Topic {
				first = int(c.Partition)
			}
		}
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(first)}
			return resp
		}
		t := catalog.ByName[name]
		if t == nil {
			resp.Topics = append(resp.Topics, unknownTopicPartitions(name))
			continue
		}
		out, next := s.topicPartitions(t, first, left)
		resp.Topics = append(resp.Topics, out)
		if next < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(next)}
			return resp
		}
		left -= len(out.Partitions)
	}
	return resp
}

func unknownTopicPartitions(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	code := kerr.UnknownTopicOrPartition.Code
	if !topicNameValid(name) {
		code = kerr.InvalidTopicException.Code
	}
	return kmsg.DescribeTopicPartitionsResponseTopic{Topic: &name, ErrorCode: code,
		IsInternal: store.IsInternalName(name), AuthorizedOperations: topicOperations}
}

// topicPartitions tells at most most partitions of a topic from first on, and where to go on.
func (s *Server) topicPartitions(t *store.Topic, first, most int) (kmsg.DescribeTopicPartitionsResponseTopic, int) {
	meta := s.topicMetadata(t)
	out := kmsg.DescribeTopicPartitionsResponseTopic{Topic: meta.Topic, TopicID: meta.TopicID,
		IsInternal: meta.IsInternal, AuthorizedOperations: topicOperations}
	first = min(first, len(meta.Partitions))
	next := min(first+most, len(meta.Partitions))
	for _, p := range meta.Partitions[first:next] {
		out.Partitions = append(out.Partitions, kmsg.DescribeTopicPartitionsResponseTopicPartition{
			ErrorCode: p.ErrorCode, Partition: p.Partition, LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch,
			Replicas: p.Replicas, ISR: p.ISR, OfflineReplicas: p.OfflineReplicas,
			EligibleLeaderReplicas: []int32{}, LastKnownELR: []int32{}})
	}
	return out, next
}
