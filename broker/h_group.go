package broker

import (
	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// codeNumber is the number of a code; nil is 0.
func codeNumber(code *kerr.Error) int16 {
	if code == nil {
		return 0
	}
	return code.Code
}

// orEmpty is the text, or "" where a request gives none.
func orEmpty(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// nonEmpty is the text where an answer has null for "".
func nonEmpty(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// host is how groups name the machine of a member: as Java prints an address that has no name.
func (c *conn) host() string { return "/" + c.ip }

// handleJoinGroup makes a client a member of a group, or tells a member about the next generation. The answer comes
// when the rebalance ends, which may be minutes later.
func (s *Server) handleJoinGroup(r *request) kmsg.Response {
	req := r.msg.(*kmsg.JoinGroupRequest)
	in := group.JoinIn{
		Member:  group.Member{Group: req.Group, Member: req.MemberID, Generation: -1, Reason: orEmpty(req.Reason)},
		Version: req.Version, ClientID: r.hdr.ClientID, Host: r.conn.host(), ProtocolType: req.ProtocolType,
		SessionMs: req.SessionTimeoutMillis, RebalanceMs: -1,
	}
	if req.Version >= 1 {
		in.RebalanceMs = req.RebalanceTimeoutMillis
	}
	if req.Version >= 5 {
		in.Instance = orEmpty(req.InstanceID)
	}
	for _, p := range req.Protocols {
		in.Protocols = append(in.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	answer := r.later()
	s.engine.Groups().Join(in, func(out group.JoinOut, code *kerr.Error) { answer(joinAnswer(req, &out, code)) })
	return nil
}

// joinAnswer is the answer to a JoinGroup. An error leaves the protocol out: empty up to version 6, null above, since
// clients throw on the other form.
func joinAnswer(req *kmsg.JoinGroupRequest, out *group.JoinOut, code *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode, resp.Generation, resp.MemberID = codeNumber(code), out.Generation, out.Member
	if code != nil {
		if req.Version < 7 {
			resp.Protocol = text("")
		}
		return resp
	}
	resp.ProtocolType, resp.Protocol = text(out.ProtocolType), text(out.Protocol)
	resp.LeaderID, resp.SkipAssignment = out.Leader, out.SkipAssignment
	for _, m := range out.Members {
		resp.Members = append(resp.Members, kmsg.JoinGroupResponseMember{
			MemberID: m.Member, InstanceID: nonEmpty(m.Instance), ProtocolMetadata: m.Metadata})
	}
	return resp
}

// handleSyncGroup takes the assignment from the leader and gives every member its own. The answer comes when the
// leader's is durable.
func (s *Server) handleSyncGroup(r *request) kmsg.Response {
	req := r.msg.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	in := group.SyncIn{
		Member:       group.Member{Group: req.Group, Member: req.MemberID, Generation: req.Generation},
		ProtocolType: orEmpty(req.ProtocolType), Protocol: orEmpty(req.Protocol),
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	if req.Version >= 3 {
		in.Instance = orEmpty(req.InstanceID)
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return resp
	}
	for _, a := range req.GroupAssignment {
		in.Assignments[a.MemberID] = a.MemberAssignment
	}
	answer := r.later()
	s.engine.Groups().Sync(in, func(out group.SyncOut, code *kerr.Error) {
		resp.ErrorCode, resp.MemberAssignment = codeNumber(code), out.Assignment
		if code == nil {
			resp.ProtocolType, resp.Protocol = text(out.ProtocolType), text(out.Protocol)
		}
		answer(resp)
	})
	return nil
}

// handleHeartbeat keeps the session of a member and tells it of a rebalance.
func (s *Server) handleHeartbeat(r *request) kmsg.Response {
	req := r.msg.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	in := group.Member{Group: req.Group, Member: req.MemberID, Generation: req.Generation}
	if req.Version >= 3 {
		in.Instance = orEmpty(req.InstanceID)
	}
	answer := r.later()
	s.engine.Groups().Heartbeat(in, func(code *kerr.Error) {
		resp.ErrorCode = codeNumber(code)
		answer(resp)
	})
	return nil
}

// handleLeaveGroup lets members go: one up to version 2, with its code at the top, any number above.
func (s *Server) handleLeaveGroup(r *request) kmsg.Response {
	req := r.msg.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	members := []group.Member{{Group: req.Group, Member: req.MemberID}}
	if req.Version >= 3 {
		members = members[:0]
		for _, m := range req.Members {
			members = append(members, group.Member{
				Group: req.Group, Member: m.MemberID, Instance: orEmpty(m.InstanceID), Reason: orEmpty(m.Reason)})
		}
	}
	answer := r.later()
	s.engine.Groups().Leave(req.Group, members, func(codes []*kerr.Error, code *kerr.Error) {
		resp.ErrorCode = codeNumber(code)
		for i, code := range codes {
			if req.Version < 3 {
				resp.ErrorCode = codeNumber(code)
				break
			}
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{
				MemberID: req.Members[i].MemberID, InstanceID: req.Members[i].InstanceID, ErrorCode: codeNumber(code)})
		}
		answer(resp)
	})
	return nil
}
