package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// member is one member of the group of a row, on a connection of its own: a JoinGroup may wait.
type member struct {
	a          *actor
	c          *rawclient.Client
	name       string
	id         string // member id, as the broker gave it
	instance   *string
	generation int32
	joining    *kmsg.JoinGroupRequest // sent and not answered
}

// member begins a connection.
func (a *actor) member(name string) *member {
	c, err := rawclient.Dial(a.s.addr)
	a.s.must(err)
	return &member{a: a, c: c, name: name, generation: -1}
}

// static makes it a static member.
func (m *member) static(instance string) *member {
	m.instance = &instance
	return m
}

// memberText names member ids in the order in which they were met.
func (s *side) memberText(id string) string {
	if id == "" {
		return "none"
	}
	if s.members == nil {
		s.members = map[string]string{}
	}
	if s.members[id] == "" {
		s.members[id] = fmt.Sprintf("M%d", len(s.members)+1)
	}
	return s.members[id]
}

// call sends a request on the member's connection. An answer that does not come is a failure of the script.
func call[T kmsg.Response](m *member, r kmsg.Request) T {
	resp, err := m.c.Call(r)
	m.a.s.must(err)
	return resp.(T)
}

// joinRequest is a JoinGroup with these protocols.
func (m *member) joinRequest(version int16, id string, protocols ...string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.ProtocolType = version, m.a.id, id, m.instance, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 30_000, 30_000
	for _, name := range protocols {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscription(m.a.topic)
		r.Protocols = append(r.Protocols, p)
	}
	return r
}

// subscription is the metadata of a consumer that wants one topic, by the schema of the consumer's protocol, version 0.
func subscription(topic string) []byte {
	b := []byte{0, 0, 0, 0, 0, 1, byte(len(topic) >> 8), byte(len(topic))}
	b = append(b, topic...)
	return append(b, 0xff, 0xff, 0xff, 0xff)
}

// join joins, with the id that the broker asks for where it asks for one, and records the last answer.
func (m *member) join(protocols ...string) *member {
	r := m.joinRequest(9, m.id, protocols...)
	resp := call[*kmsg.JoinGroupResponse](m, r)
	if resp.ErrorCode == 79 {
		r.MemberID = resp.MemberID
		resp = call[*kmsg.JoinGroupResponse](m, r)
	}
	m.joined("join", r.Version, resp)
	return m
}

// joinAs sends one JoinGroup as it is and records the answer.
func (m *member) joinAs(what string, r *kmsg.JoinGroupRequest) {
	m.joined(what, r.Version, call[*kmsg.JoinGroupResponse](m, r))
}

// begin sends a JoinGroup that may wait for others.
func (m *member) begin(protocols ...string) *member {
	m.joining = m.joinRequest(9, m.id, protocols...)
	if m.id == "" && m.instance == nil {
		resp := call[*kmsg.JoinGroupResponse](m, m.joining)
		m.joining.MemberID = resp.MemberID
		m.a.s.memberText(resp.MemberID) // it has its name before others see it
	}
	m.a.s.must(m.c.Send(m.joining))
	return m
}

// end waits for the answer to begin.
func (m *member) end() *member {
	resp, err := m.c.Receive(m.joining)
	m.a.s.must(err)
	m.joined("join", m.joining.Version, resp.(*kmsg.JoinGroupResponse))
	return m
}

func (m *member) joined(what string, version int16, resp *kmsg.JoinGroupResponse) {
	orNull := func(s *string) string {
		if s == nil {
			return "null"
		}
		return fmt.Sprintf("%q", *s)
	}
	text := fmt.Sprintf("code %d, generation %d, protocol %s", resp.ErrorCode, resp.Generation, orNull(resp.Protocol))
	if version >= 7 {
		text += " of " + orNull(resp.ProtocolType)
	}
	s := m.a.s
	text += fmt.Sprintf(", member %s, leader %s", s.memberText(resp.MemberID), s.memberText(resp.LeaderID))
	if resp.SkipAssignment {
		text += ", skip the assignment"
	}
	var all []string
	for _, x := range resp.Members {
		one := fmt.Sprintf("%s %s %d bytes", s.memberText(x.MemberID), orNull(x.InstanceID), len(x.ProtocolMetadata))
		all = append(all, one)
	}
	slices.Sort(all)
	m.a.see(m.name+" "+what, "%s, members %v", text, all)
	if resp.ErrorCode == 0 {
		m.id, m.generation = resp.MemberID, resp.Generation
	}
}

// sync sends SyncGroup, as the leader with an assignment of one byte for each of these members.
func (m *member) sync(to ...*member) *member {
	m.syncAs("sync", m.syncRequest(5, to...))
	return m
}

func (m *member) syncRequest(version int16, to ...*member) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.Generation, r.MemberID, r.InstanceID = version, m.a.id, m.generation, m.id, m.instance
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for i, other := range to {
		x := kmsg.NewSyncGroupRequestGroupAssignment()
		x.MemberID, x.MemberAssignment = other.id, []byte{byte('a' + i)}
		r.GroupAssignment = append(r.GroupAssignment, x)
	}
	return r
}

func (m *member) syncAs(what string, r *kmsg.SyncGroupRequest) {
	m.synced(what, r.Version, call[*kmsg.SyncGroupResponse](m, r))
}

func (m *member) synced(what string, version int16, resp *kmsg.SyncGroupResponse) {
	text := fmt.Sprintf("code %d, assignment %q", resp.ErrorCode, resp.MemberAssignment)
	if version >= 5 {
		for _, p := range []*string{resp.ProtocolType, resp.Protocol} {
			if p == nil {
				text += ", null"
			} else {
				text += fmt.Sprintf(", %q", *p)
			}
		}
	}
	m.a.see(m.name+" "+what, "%s", text)
}

// stable joins alone and syncs.
func (m *member) stable() *member {
	m.join("range")
	return m.sync(m)
}

// beat sends Heartbeat.
func (m *member) beat() *member {
	m.beatAs(4, m.id, m.generation)
	return m
}

func (m *member) beatAs(version int16, id string, generation int32) {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = version, m.a.id, id, m.instance, generation
	resp := call[*kmsg.HeartbeatResponse](m, r)
	m.a.see(fmt.Sprintf("%s heartbeat v%d %s", m.name, version, m.pair(id, generation)), "code %d", resp.ErrorCode)
}

// pair tells how a member id and a generation differ from those of the member.
func (m *member) pair(id string, generation int32) string {
	var all []string
	if id != m.id {
		all = append(all, fmt.Sprintf("as %q", id))
	}
	if generation != m.generation {
		all = append(all, fmt.Sprintf("generation %+d", generation-m.generation))
	}
	return strings.Join(all, ", ")
}

// leave sends LeaveGroup of these pairs of member id and instance id.
func (m *member) leave(version int16, who ...[2]string) {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = version, m.a.id
	for _, w := range who {
		x := kmsg.NewLeaveGroupRequestMember()
		x.MemberID, r.MemberID = w[0], w[0]
		if w[1] != "" {
			x.InstanceID = &w[1]
		}
		r.Members = append(r.Members, x)
	}
	resp := call[*kmsg.LeaveGroupResponse](m, r)
	text := fmt.Sprintf("code %d", resp.ErrorCode)
	for _, x := range resp.Members {
		text += fmt.Sprintf(", %s code %d", m.a.s.memberText(x.MemberID), x.ErrorCode)
	}
	m.a.see(fmt.Sprintf("%s leave v%d", m.name, version), "%s", text)
}

// group records what DescribeGroups tells, waiting until no rebalance is under way if settled.
func (a *actor) group(version int16) *actor {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = version, []string{a.id}
	resp, ok := ask[*kmsg.DescribeGroupsResponse](a.s, r)
	if !ok {
		a.see(fmt.Sprintf("describe v%d", version), "%s", a.s.failure)
		return a
	}
	g := resp.Groups[0]
	text := fmt.Sprintf("code %d, %s, type %q, protocol %q", g.ErrorCode, g.State, g.ProtocolType, g.Protocol)
	var all []string
	for _, m := range g.Members {
		all = append(all, fmt.Sprintf("%s client %q, %d bytes, assignment %q", a.s.memberText(m.MemberID), m.ClientID,
			len(m.ProtocolMetadata), m.MemberAssignment))
	}
	slices.Sort(all)
	a.see(fmt.Sprintf("describe v%d", version), "%s, members %v, operations %d", text, all, g.AuthorizedOperations)
	return a
}
