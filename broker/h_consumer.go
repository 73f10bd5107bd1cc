package broker

import (
	"fmt"

	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// memberTypeConsumer is a member that speaks the consumer protocol, in ConsumerGroupDescribe version 1.
const memberTypeConsumer = 1

// handleConsumerGroupHeartbeat is all that a member of the consumer protocol says and hears (KIP-848). The answer comes
// when what the heartbeat changed is durable.
func (s *Server) handleConsumerGroupHeartbeat(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	in := group.ConsumerIn{
		Member: group.Member{Group: req.Group, Member: req.MemberID, Instance: orEmpty(req.InstanceID),
			Generation: req.MemberEpoch},
		Version: req.Version, ClientID: r.hdr.ClientID, Host: r.conn.host(), Rack: req.RackID,
		RebalanceMs: req.RebalanceTimeoutMillis, Topics: req.SubscribedTopicNames, Assignor: req.ServerAssignor,
		InstanceGiven: req.InstanceID != nil,
	}
	if req.Version >= 1 {
		in.Regex = req.SubscribedTopicRegex
	}
	if req.Topics != nil {
		in.Owned = []group.TP{}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			in.Owned = append(in.Owned, group.TP{ID: t.TopicID, Partition: p})
		}
	}
	answer := r.later()
	s.engine.Groups().ConsumerHeartbeat(in, func(out group.ConsumerOut, code *kerr.Error) {
		if code != nil {
			resp.ErrorCode, resp.ErrorMessage = code.Code, text(code.Description)
			answer(resp)
			return
		}
		resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = text(out.Member), out.Epoch, out.HeartbeatMs
		if out.Changed {
			resp.Assignment = assignmentOf(out.Assigned)
		}
		answer(resp)
	})
	return nil
}

// assignmentOf puts partitions, which are sorted, under their topics. None is an empty list, which is not null: null
// means that nothing changed.
func assignmentOf(tps []group.TP) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
	for i, tp := range tps {
		if i == 0 || tps[i-1].ID != tp.ID {
			a.Topics = append(a.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: tp.ID})
		}
		t := &a.Topics[len(a.Topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	return a
}

// handleConsumerGroupDescribe tells of groups of the consumer protocol. Any other is GROUP_ID_NOT_FOUND, upon which
// administration clients ask DescribeGroups.
func (s *Server) handleConsumerGroupDescribe(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ConsumerGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	seen := map[string]bool{}
	for _, id := range req.Groups {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group = id
		if no := again(seen[id]); no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
			resp.Groups = append(resp.Groups, out)
			continue
		}
		seen[id] = true
		info, code := s.describeGroup(id)
		why := fmt.Sprintf("Group %s not found.", id)
		switch {
		case id == "":
			code, why = kerr.InvalidGroupID, kerr.InvalidGroupID.Description
		case code == nil && info.Type != group.TypeConsumer:
			code, why = kerr.GroupIDNotFound, fmt.Sprintf("Group %s is not a consumer group.", id)
		case code != nil && code != kerr.GroupIDNotFound:
			why = code.Description
		}
		if code != nil {
			out.ErrorCode, out.ErrorMessage = code.Code, &why
		} else {
			describeConsumer(&out, &info)
			if req.IncludeAuthorizedOperations {
				out.AuthorizedOperations = groupOperations
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func describeConsumer(out *kmsg.ConsumerGroupDescribeResponseGroup, info *group.Info) {
	out.State, out.Epoch, out.AssignmentEpoch = info.State, info.Generation, info.AssignmentEpoch
	out.AssignorName = info.Assignor
	for _, m := range info.Members {
		member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		member.MemberID, member.InstanceID = m.Member, nonEmpty(m.Instance)
		member.ClientID, member.ClientHost = m.ClientID, m.Host
		member.MemberType = memberTypeConsumer
		if c := m.Consumer; c != nil {
			member.RackID, member.MemberEpoch = nonEmpty(c.Rack), c.Epoch
			member.SubscribedTopics, member.SubscribedTopicRegex = c.Topics, nonEmpty(c.Regex)
			member.Assignment.TopicPartitions = topicPartitions(c.Assigned)
			member.TargetAssignment.TopicPartitions = topicPartitions(c.Target)
		}
		out.Members = append(out.Members, member)
	}
}

// topicPartitions puts partitions, which are sorted by topic id, under their topics.
func topicPartitions(tps []group.TP) []kmsg.AssignmentTopicPartition {
	var all []kmsg.AssignmentTopicPartition
	for i, tp := range tps {
		if i == 0 || tps[i-1].ID != tp.ID {
			all = append(all, kmsg.AssignmentTopicPartition{TopicID: tp.ID, Topic: tp.Topic})
		}
		t := &all[len(all)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	return all
}
