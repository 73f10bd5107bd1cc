package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata asks for topics, brokers and ids.
func metadata(s *side) {
	s.topic("known", 3)
	id := s.idOf("known")
	for v := int16(0); v <= 14; v++ {
		topics := []kmsg.MetadataRequestTopic{named("known")}
		if v >= 4 { // before, unknown topics are always made
			topics = append(topics, named("unknown"))
		}
		s.metadata(fmt.Sprintf("version %d", v), v, false, topics...)
	}
	s.metadata("by id", 12, false, kmsg.MetadataRequestTopic{TopicID: id})
	s.metadata("by id, version 11", 11, false, kmsg.MetadataRequestTopic{TopicID: id, Topic: kmsg.StringPtr("known")})
	s.metadata("unknown id", 12, false, kmsg.MetadataRequestTopic{TopicID: [16]byte{3}})
	s.metadata("neither name nor id", 12, false, kmsg.MetadataRequestTopic{})
	s.metadata("none", 9, false)
	s.metadata("a topic twice", 9, false, named("known"), named("known"))
	for _, n := range []string{"a/b", "", "..", "ä", strings.Repeat("x", 250)} {
		s.metadata(fmt.Sprintf("name %.8q", n), 9, true, named(n))
	}
	s.metadata("first use", 9, true, named("used-first"))
	s.settled("used-first", 1)
	s.metadata("second use", 9, true, named("used-first"))
	s.metadata("creation not allowed", 9, false, named("not-used"))
	s.metadata("version 3 always allows creation", 3, false, named("used-by-3"))
	s.settled("used-by-3", 1)
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.IncludeClusterAuthorizedOperations, r.IncludeTopicAuthorizedOperations = 8, true, true
	r.Topics = []kmsg.MetadataRequestTopic{named("known")}
	resp, _ := ask[*kmsg.MetadataResponse](s, r)
	s.see("authorized operations", "cluster %d, topic %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
}

func named(name string) kmsg.MetadataRequestTopic { return kmsg.MetadataRequestTopic{Topic: &name} }

// metadata records what Metadata answers about topics, in the order of their names.
func (s *side) metadata(step string, version int16, create bool, topics ...kmsg.MetadataRequestTopic) {
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.AllowAutoTopicCreation, r.Topics = version, create, topics
	if topics == nil {
		r.Topics = []kmsg.MetadataRequestTopic{}
	}
	resp, ok := ask[*kmsg.MetadataResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	var all []string
	for _, t := range resp.Topics {
		text := fmt.Sprintf("%.12s: code %d, internal %v", value(t.Topic), t.ErrorCode, t.IsInternal)
		if version >= 10 {
			text += ", id of " + s.topicName(t.TopicID)
		}
		slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int {
			return int(a.Partition - b.Partition)
		})
		for _, p := range t.Partitions {
			text += fmt.Sprintf(", %d: code %d leader %d epoch %s replicas %v isr %v offline %v", p.Partition, p.ErrorCode,
				p.Leader, epochText(p.LeaderEpoch), p.Replicas, p.ISR, p.OfflineReplicas)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	cluster := "null"
	if resp.ClusterID != nil {
		cluster = fmt.Sprintf("of %d characters", len(*resp.ClusterID))
	}
	node := "no broker"
	for _, b := range resp.Brokers {
		node = fmt.Sprintf("broker %d at %s", b.NodeID, b.Host)
	}
	s.see(step, "%s, controller %d, cluster id %s, code %d; %s", node, resp.ControllerID, cluster, resp.ErrorCode,
		strings.Join(all, "; "))
}

// cluster is DescribeCluster, FindCoordinator, DescribeTopicPartitions and DescribeLogDirs.
func cluster(s *side) {
	for v := range int16(4) {
		for _, endpoint := range []int8{1, 2, 3} {
			r := kmsg.NewPtrDescribeClusterRequest()
			r.Version, r.EndpointType = v, endpoint
			step := fmt.Sprintf("DescribeCluster version %d, endpoint type %d", v, endpoint)
			resp, ok := ask[*kmsg.DescribeClusterResponse](s, r)
			if !ok {
				s.see(step, "%s", s.failure)
				continue
			}
			s.see(step, "code %d, controller %d, %d brokers, operations %d", resp.ErrorCode, resp.ControllerID,
				len(resp.Brokers), resp.ClusterAuthorizedOperations)
		}
	}
	for v := range int16(8) {
		for _, kind := range []int8{0, 1, 2, 7} {
			s.coordinator(v, kind)
		}
	}
	s.topic("pieces-b", 3)
	s.topic("pieces-a", 2)
	for _, c := range []struct {
		step   string
		limit  int32
		cursor *kmsg.DescribeTopicPartitionsRequestCursor
		topics []string
	}{
		{"all of two", 2000, nil, []string{"pieces-b", "pieces-a"}},
		{"four partitions of two", 4, nil, []string{"pieces-b", "pieces-a"}},
		{"two partitions of two", 2, nil, []string{"pieces-b", "pieces-a"}},
		{"go on", 2, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "pieces-b", Partition: 1}, []string{"pieces-b", "pieces-a"}},
		{"limit 0", 0, nil, []string{"pieces-a"}},
		{"unknown topic", 10, nil, []string{"unknown", "pieces-a"}},
		{"bad name", 10, nil, []string{"a/b"}},
		{"cursor partition -1", 10, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "pieces-a", Partition: -1}, []string{"pieces-a"}},
		{"cursor beyond", 10, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "pieces-a", Partition: 99}, []string{"pieces-a"}},
		{"cursor topic not asked", 10, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "x", Partition: 0}, []string{"pieces-a"}},
	} {
		s.topicPartitions(c.step, c.limit, c.cursor, c.topics)
	}
	s.logDirs()
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	r.TimeoutMillis = 1000
	resp, _ := ask[*kmsg.ListPartitionReassignmentsResponse](s, r)
	s.see("ListPartitionReassignments", "code %d, %d topics", resp.ErrorCode, len(resp.Topics))
}

// coordinator asks FindCoordinator. Kafka makes the topic of the coordinator first, so it is asked until it knows.
func (s *side) coordinator(version int16, kind int8) {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.Version, r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = version, kind, "a", []string{"a", "b"}
	step := fmt.Sprintf("FindCoordinator version %d, key type %d", version, kind)
	var resp *kmsg.FindCoordinatorResponse
	s.until(func() (done bool) {
		var ok bool
		if resp, ok = ask[*kmsg.FindCoordinatorResponse](s, r); !ok {
			return true
		}
		return resp.ErrorCode != 15 && (len(resp.Coordinators) == 0 || resp.Coordinators[0].ErrorCode != 15)
	})
	if resp == nil {
		s.see(step, "%s", s.failure)
		return
	}
	text := fmt.Sprintf("code %d, node %d", resp.ErrorCode, resp.NodeID)
	for _, c := range resp.Coordinators {
		text += fmt.Sprintf("; %s: code %d, node %d", c.Key, c.ErrorCode, c.NodeID)
	}
	s.see(step, "%s", text)
}

func (s *side) topicPartitions(step string, limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor,
	topics []string) {
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit, r.Cursor = limit, cursor
	for _, t := range topics {
		r.Topics = append(r.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
	}
	resp, ok := ask[*kmsg.DescribeTopicPartitionsResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	text := "next none"
	if c := resp.NextCursor; c != nil {
		text = fmt.Sprintf("next %s %d", c.Topic, c.Partition)
	}
	for _, t := range resp.Topics {
		text += fmt.Sprintf("; %s: code %d, operations %d,", value(t.Topic), t.ErrorCode, t.AuthorizedOperations)
		for _, p := range t.Partitions {
			text += fmt.Sprintf(" %d (code %d leader %d replicas %v isr %v elr %v offline %v)", p.Partition, p.ErrorCode,
				p.LeaderID, p.Replicas, p.ISR, p.EligibleLeaderReplicas, p.OfflineReplicas)
		}
	}
	s.see(step, "%s", text)
}

// logDirs is DescribeLogDirs; sizes of logs are the same on both sides, sizes of the disk are not.
func (s *side) logDirs() {
	s.topic("sized", 1)
	s.produce("sized: produce", 9, "sized", 0, plain(3).bytes())
	for v := int16(1); v <= 6; v++ {
		r := kmsg.NewPtrDescribeLogDirsRequest()
		r.Version = v
		r.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "sized", Partitions: []int32{0, 5}},
			{Topic: "unknown", Partitions: []int32{0}}}
		step := fmt.Sprintf("DescribeLogDirs version %d", v)
		resp, ok := ask[*kmsg.DescribeLogDirsResponse](s, r)
		if !ok {
			s.see(step, "%s", s.failure)
			continue
		}
		text := fmt.Sprintf("code %d, %d dirs", resp.ErrorCode, len(resp.Dirs))
		for _, d := range resp.Dirs {
			text += fmt.Sprintf(", code %d, sizes known %v", d.ErrorCode, d.TotalBytes > 0 && d.UsableBytes > 0)
			slices.SortFunc(d.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int {
				return strings.Compare(a.Topic, b.Topic)
			})
			for _, t := range d.Topics {
				for _, p := range t.Partitions {
					text += fmt.Sprintf(", %s %d: %d bytes, lag %d, future %v", t.Topic, p.Partition, p.Size, p.OffsetLag, p.IsFuture)
				}
			}
		}
		s.see(step, "%s", text)
	}
}
