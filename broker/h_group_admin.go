package broker

import (
	"fmt"

	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOperations is the bit field of KIP-430 for a group, with everything allowed: read, delete, describe, describe
// and alter configs.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// stateDead is what DescribeGroups calls a group that is not there.
const stateDead = "Dead"

// describeGroup tells of a group; there is none while there are no internal topics.
func (s *Server) describeGroup(id string) (group.Info, *kerr.Error) {
	if s.engine.Idle() {
		return group.Info{Group: id}, kerr.GroupIDNotFound
	}
	return await(func(done func(group.Info, *kerr.Error)) { s.engine.Groups().Describe(id, done) })
}

// handleDescribeGroups tells of groups of the classic protocol. Any other is "Dead", which is no error before version
// 6.
func (s *Server) handleDescribeGroups(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	seen := map[string]bool{}
	for _, id := range req.Groups {
		out := kmsg.DescribeGroupsResponseGroup{Group: id, AuthorizedOperations: noOperations}
		if no := again(seen[id]); no != nil {
			out.ErrorCode = no.code
			resp.Groups = append(resp.Groups, out)
			continue
		}
		seen[id] = true
		info, code := s.describeGroup(id)
		why := fmt.Sprintf("Group %s not found.", id)
		if code == nil && info.Type != group.TypeClassic {
			code, why = kerr.GroupIDNotFound, fmt.Sprintf("Group %s is not a classic group.", id)
		}
		switch {
		case code == kerr.GroupIDNotFound:
			out.State = stateDead
			if req.Version >= 6 {
				out.ErrorCode, out.ErrorMessage = code.Code, &why
			}
		case code != nil:
			out.ErrorCode = code.Code
		default:
			describeClassic(&out, &info)
		}
		if req.IncludeAuthorizedOperations && out.ErrorCode == 0 {
			out.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func describeClassic(out *kmsg.DescribeGroupsResponseGroup, info *group.Info) {
	out.State, out.ProtocolType, out.Protocol = info.State, info.ProtocolType, info.Protocol
	for _, m := range info.Members {
		out.Members = append(out.Members, kmsg.DescribeGroupsResponseGroupMember{
			MemberID: m.Member, InstanceID: nonEmpty(m.Instance), ClientID: m.ClientID, ClientHost: m.Host,
			ProtocolMetadata: orBytes(m.Metadata), MemberAssignment: orBytes(m.Assignment)})
	}
}

// orBytes is b, or an empty slice for nil, which is encoded as null otherwise.
func orBytes(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// handleListGroups lists all groups, of the states and types asked for.
func (s *Server) handleListGroups(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	if s.engine.Idle() {
		return resp
	}
	all, code := await(func(done func([]group.Info, *kerr.Error)) {
		s.engine.Groups().List(req.StatesFilter, req.TypesFilter, done)
	})
	resp.ErrorCode = codeNumber(code)
	for _, g := range all {
		resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{
			Group: g.Group, ProtocolType: g.ProtocolType, GroupState: g.State, GroupType: g.Type})
	}
	return resp
}

// handleDeleteGroups deletes groups without members, durably. Version 3 says why it did not.
func (s *Server) handleDeleteGroups(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		out := kmsg.DeleteGroupsResponseGroup{Group: id}
		code := kerr.GroupIDNotFound
		if !s.engine.Idle() {
			_, code = await(func(done func(struct{}, *kerr.Error)) {
				s.engine.Groups().Delete(id, func(code *kerr.Error) { done(struct{}{}, code) })
			})
		}
		if out.ErrorCode = codeNumber(code); code != nil && req.Version >= 3 {
			out.ErrorMessage = text(code.Description)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// handleOffsetDelete removes committed offsets of topics that no member of the group reads.
func (s *Server) handleOffsetDelete(r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	cat := s.store.Catalog()
	var tps []group.TP
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if _, code := logOf(cat.ByName[t.Topic], p.Partition, false); code != kerr.UnknownTopicOrPartition.Code {
				tps = append(tps, group.TP{Topic: t.Topic, Partition: p.Partition})
			}
		}
	}
	codes, code := []*kerr.Error(nil), kerr.GroupIDNotFound
	if !s.engine.Idle() {
		codes, code = await(func(done func([]*kerr.Error, *kerr.Error)) {
			s.engine.Groups().OffsetDelete(req.Group, tps, done)
		})
	}
	if code != nil {
		resp.ErrorCode = code.Code
		return resp
	}
	for _, t := range req.Topics {
		out := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			part := kmsg.OffsetDeleteResponseTopicPartition{
				Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code}
			if len(tps) > 0 && tps[0] == (group.TP{Topic: t.Topic, Partition: p.Partition}) {
				part.ErrorCode = codeNumber(codes[0])
				tps, codes = tps[1:], codes[1:]
			}
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
