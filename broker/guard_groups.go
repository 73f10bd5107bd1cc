package broker

import (
	"slices"

	"sekali/auth"
	"sekali/group"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func guardFindCoordinator(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.FindCoordinatorRequest)
	may := func(key string) (bool, int16) {
		switch {
		case req.Version >= 1 && req.CoordinatorType == coordinatorTxn:
			return g.txn(auth.Describe, key), noTxn.Code
		case req.Version == 0 || req.CoordinatorType == coordinatorGroup:
			return g.group(auth.Describe, key), noGroup.Code
		}
		return true, 0 // refused by the handler
	}
	if req.Version < 4 {
		ok, code := may(req.CoordinatorKey)
		if ok {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.ErrorCode, resp.NodeID, resp.Port = code, -1, -1
		return resp
	}
	var refused []kmsg.FindCoordinatorResponseCoordinator
	req.CoordinatorKeys, _ = split(req.CoordinatorKeys, func(key *string) bool {
		ok, code := may(*key)
		if !ok {
			refused = append(refused,
				kmsg.FindCoordinatorResponseCoordinator{Key: *key, NodeID: -1, Port: -1, ErrorCode: code})
		}
		return ok
	})
	if len(req.CoordinatorKeys) == 0 && len(refused) > 0 {
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.Coordinators = refused
		return resp
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.FindCoordinatorResponse)
		resp.Coordinators = append(resp.Coordinators, refused...)
	})
	return nil
}

func guardJoinGroup(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.JoinGroupRequest)
	if g.group(auth.Read, req.Group) {
		return nil
	}
	return joinAnswer(req, &group.JoinOut{Generation: -1}, noGroup)
}

func guardHeartbeat(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.HeartbeatRequest)
	if g.group(auth.Read, req.Group) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = noGroup.Code
	return resp
}

func guardLeaveGroup(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.LeaveGroupRequest)
	if g.group(auth.Read, req.Group) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	resp.ErrorCode = noGroup.Code
	return resp
}

func guardSyncGroup(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.SyncGroupRequest)
	if g.group(auth.Read, req.Group) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.ErrorCode, resp.MemberAssignment = noGroup.Code, []byte{}
	return resp
}

// guardOffsetCommit: Read of the group and of each topic.
func guardOffsetCommit(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.OffsetCommitRequest)
	ids := req.Version >= commitByID
	answer := func(t *kmsg.OffsetCommitRequestTopic, code int16) kmsg.OffsetCommitResponseTopic {
		out := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions,
				kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		return out
	}
	if !g.group(auth.Read, req.Group) {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for i := range req.Topics {
			resp.Topics = append(resp.Topics, answer(&req.Topics[i], noGroup.Code))
		}
		return resp
	}
	req.Topics = hold(g, req.Topics, func(t *kmsg.OffsetCommitRequestTopic) bool {
		name, known := g.nameOf(ids, t.Topic, t.TopicID)
		return !known || g.topic(auth.Read, name)
	}, func(resp *kmsg.OffsetCommitResponse, t *kmsg.OffsetCommitRequestTopic) {
		resp.Topics = append(resp.Topics, answer(t, noTopic.Code))
	})
	return nil
}

// guardOffsetFetch: Describe of the group and of each topic. Of all topics those that may not be seen are left out.
func guardOffsetFetch(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.OffsetFetchRequest)
	if req.Version < 8 {
		return guardFetchOne(g, req)
	}
	var no []kmsg.OffsetFetchRequestGroup
	req.Groups, no = split(req.Groups, func(f *kmsg.OffsetFetchRequestGroup) bool {
		return g.group(auth.Describe,
			f.Group)
	})
	ids := req.Version >= commitByID
	hidden := make([][]kmsg.OffsetFetchRequestGroupTopic, len(req.Groups))
	all := make([]bool, len(req.Groups))
	for i := range req.Groups {
		f := &req.Groups[i]
		if all[i] = f.Topics == nil; all[i] {
			continue
		}
		f.Topics, hidden[i] = split(f.Topics, func(t *kmsg.OffsetFetchRequestGroupTopic) bool {
			name, known := g.nameOf(ids, t.Topic, t.TopicID)
			return !known || g.topic(auth.Describe, name)
		})
		if f.Topics == nil {
			f.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.OffsetFetchResponse)
		for i := range resp.Groups {
			out := &resp.Groups[i]
			if all[i] {
				out.Topics, _ = split(out.Topics, func(t *kmsg.OffsetFetchResponseGroupTopic) bool {
					name, known := g.nameOf(ids, t.Topic, t.TopicID)
					return known && g.quietly(auth.Describe, auth.Topic, name)
				})
			}
			for _, t := range hidden[i] {
				h := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
				for _, p := range t.Partitions {
					h.Partitions = append(h.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p,
						Offset:      -1,
						LeaderEpoch: -1, Metadata: text(""), ErrorCode: noTopic.Code})
				}
				if out.ErrorCode == 0 {
					out.Topics = append(out.Topics, h)
				}
			}
		}
		for _, f := range no {
			resp.Groups = append(resp.Groups, kmsg.OffsetFetchResponseGroup{Group: f.Group, ErrorCode: noGroup.Code})
		}
	})
	return nil
}

// guardFetchOne is guardOffsetFetch for the versions that ask for one group.
func guardFetchOne(g *guarded, req *kmsg.OffsetFetchRequest) kmsg.Response {
	answer := func(t *kmsg.OffsetFetchRequestTopic, code int16) kmsg.OffsetFetchResponseTopic {
		out := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p, Offset: -1,
				LeaderEpoch: -1, Metadata: text(""), ErrorCode: code})
		}
		return out
	}
	if !g.group(auth.Describe, req.Group) {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		if resp.ErrorCode = noGroup.Code; req.Version < 2 {
			for i := range req.Topics {
				resp.Topics = append(resp.Topics, answer(&req.Topics[i], noGroup.Code))
			}
		}
		return resp
	}
	all := req.Topics == nil
	var no []kmsg.OffsetFetchRequestTopic
	if !all {
		req.Topics, no = split(req.Topics, func(t *kmsg.OffsetFetchRequestTopic) bool {
			return g.topic(auth.Describe,
				t.Topic)
		})
		if req.Topics == nil {
			req.Topics = []kmsg.OffsetFetchRequestTopic{}
		}
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.OffsetFetchResponse)
		if all {
			resp.Topics, _ = split(resp.Topics, func(t *kmsg.OffsetFetchResponseTopic) bool {
				return g.quietly(auth.Describe, auth.Topic, t.Topic)
			})
		}
		for i := range no {
			resp.Topics = append(resp.Topics, answer(&no[i], noTopic.Code))
		}
	})
	return nil
}

func guardDescribeGroups(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DescribeGroupsRequest)
	var no []string
	req.Groups, no = split(req.Groups, func(id *string) bool { return g.group(auth.Describe, *id) })
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.DescribeGroupsResponse)
		for i := range resp.Groups {
			if out := &resp.Groups[i]; out.AuthorizedOperations != noOperations {
				out.AuthorizedOperations = g.operations(auth.Group, out.Group)
			}
		}
		for _, id := range no {
			resp.Groups = append(resp.Groups, kmsg.DescribeGroupsResponseGroup{
				Group: id, ErrorCode: noGroup.Code, AuthorizedOperations: noOperations})
		}
	})
	return nil
}

// guardListGroups leaves out what may not be seen, unless the whole cluster may.
func guardListGroups(g *guarded) kmsg.Response {
	if g.quietly(auth.Describe, auth.Cluster, auth.ClusterName) {
		return nil
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.ListGroupsResponse)
		resp.Groups, _ = split(resp.Groups, func(l *kmsg.ListGroupsResponseGroup) bool {
			return g.quietly(auth.Describe, auth.Group, l.Group)
		})
	})
	return nil
}

func guardDeleteGroups(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DeleteGroupsRequest)
	req.Groups = hold(g, req.Groups, func(id *string) bool { return g.group(auth.Delete, *id) },
		func(resp *kmsg.DeleteGroupsResponse, id *string) {
			out := kmsg.DeleteGroupsResponseGroup{Group: *id, ErrorCode: noGroup.Code}
			if req.Version >= 3 {
				out.ErrorMessage = text(noGroup.Description)
			}
			resp.Groups = append(resp.Groups, out)
		})
	return nil
}

// guardOffsetDelete: Delete of the group, Read of each topic.
func guardOffsetDelete(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.OffsetDeleteRequest)
	if !g.group(auth.Delete, req.Group) {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = noGroup.Code
		return resp
	}
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.OffsetDeleteRequestTopic) bool { return g.topic(auth.Read, t.Topic) },
		func(resp *kmsg.OffsetDeleteResponse, t *kmsg.OffsetDeleteRequestTopic) {
			if resp.ErrorCode != 0 {
				return
			}
			out := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions,
					kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: noTopic.Code})
			}
			resp.Topics = append(resp.Topics, out)
		})
	return nil
}

// guardConsumerGroupHeartbeat: Read of the group, Describe of the topics subscribed to by name. What an expression
// finds is not held against the rules here: to fetch it is.
func guardConsumerGroupHeartbeat(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if !g.group(auth.Read, req.Group) {
		resp.ErrorCode, resp.ErrorMessage = noGroup.Code, text(noGroup.Description)
		return resp
	}
	for _, name := range req.SubscribedTopicNames {
		if !g.topic(auth.Describe, name) {
			resp.ErrorCode, resp.ErrorMessage = noTopic.Code, text(noTopic.Description)
			return resp
		}
	}
	return nil
}

// guardConsumerGroupDescribe: Describe of the group, and of every topic a member has to do with: a group with another
// is told without its members.
func guardConsumerGroupDescribe(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.ConsumerGroupDescribeRequest)
	var no []string
	req.Groups, no = split(req.Groups, func(id *string) bool { return g.group(auth.Describe, *id) })
	refuse := func(out *kmsg.ConsumerGroupDescribeResponseGroup, code int16, why string) {
		id := out.Group
		*out = kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group, out.ErrorCode, out.ErrorMessage = id, code, &why
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.ConsumerGroupDescribeResponse)
		for i := range resp.Groups {
			out := &resp.Groups[i]
			if out.AuthorizedOperations != noOperations {
				out.AuthorizedOperations = g.operations(auth.Group, out.Group)
			}
			if slices.ContainsFunc(out.Members, func(m kmsg.ConsumerGroupDescribeResponseGroupMember) bool {
				return !g.seesAll(&m)
			}) {
				refuse(out, noTopic.Code,
					"The group has described topic(s) that the client is not authorized to describe.")
			}
		}
		for _, id := range no {
			out := kmsg.ConsumerGroupDescribeResponseGroup{Group: id}
			refuse(&out, noGroup.Code, noGroup.Description)
			resp.Groups = append(resp.Groups, out)
		}
	})
	return nil
}

// seesAll reports whether the sender may see every topic that a member has to do with.
func (g *guarded) seesAll(m *kmsg.ConsumerGroupDescribeResponseGroupMember) bool {
	for _, a := range [][]kmsg.AssignmentTopicPartition{m.Assignment.TopicPartitions,
		m.TargetAssignment.TopicPartitions} {
		for _, t := range a {
			if !g.quietly(auth.Describe, auth.Topic, t.Topic) {
				return false
			}
		}
	}
	return true
}
