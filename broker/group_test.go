package broker

import (
	"slices"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// grouped starts a node whose groups have no initial delay and whose internal topics are made.
func grouped(t *testing.T, change func(*Config)) (*node, *rawclient.Client) {
	t.Helper()
	n := start(t, func(c *Config) {
		c.Groups.InitialDelayMs = 0
		c.TxnPartitions, c.OffsetsPartitions = 4, 4
		if change != nil {
			change(c)
		}
	})
	c := n.dial()
	coordinate(t, c)
	return n, c
}

// coordinate asks for a coordinator, which makes the internal topics.
func coordinate(t *testing.T, c *rawclient.Client) {
	t.Helper()
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.Version, r.CoordinatorKey = 3, "g"
	if resp := call[*kmsg.FindCoordinatorResponse](t, c, r); resp.ErrorCode != 0 {
		t.Fatalf("coordinator: code %d", resp.ErrorCode)
	}
}

func joinRequest(version int16, group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.ProtocolType = version, group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10000, 60000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 1, 0, 2, 't', '1', 0xff, 0xff, 0xff, 0xff}
	r.Protocols = append(r.Protocols, p)
	return r
}

// joinAlone makes the only member of a group, whose generation the answer bears.
func joinAlone(t *testing.T, c *rawclient.Client, version int16, group string) *kmsg.JoinGroupResponse {
	t.Helper()
	resp := call[*kmsg.JoinGroupResponse](t, c, joinRequest(version, group, ""))
	if version >= 4 {
		if resp.ErrorCode != kerr.MemberIDRequired.Code || resp.MemberID == "" || resp.Generation != -1 {
			t.Fatalf("version %d: first join: %+v", version, resp)
		}
		resp = call[*kmsg.JoinGroupResponse](t, c, joinRequest(version, group, resp.MemberID))
	}
	if resp.ErrorCode != 0 {
		t.Fatalf("version %d: join: code %d", version, resp.ErrorCode)
	}
	return resp
}

func syncRequest(version int16, group string, j *kmsg.JoinGroupResponse, assign string) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = version, group, j.MemberID, j.Generation
	r.ProtocolType, r.Protocol = text("consumer"), text("range")
	if assign != "" {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = j.MemberID, []byte(assign)
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	return r
}

// stable makes a stable group of one member.
func stable(t *testing.T, c *rawclient.Client, group string) *kmsg.JoinGroupResponse {
	t.Helper()
	j := joinAlone(t, c, 9, group)
	s := call[*kmsg.SyncGroupResponse](t, c, syncRequest(5, group, j, "mine"))
	if s.ErrorCode != 0 || string(s.MemberAssignment) != "mine" {
		t.Fatalf("sync: %+v", s)
	}
	return j
}

func beat(t *testing.T, c *rawclient.Client, version int16, group string, j *kmsg.JoinGroupResponse) int16 {
	t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.Generation = version, group, j.MemberID, j.Generation
	return call[*kmsg.HeartbeatResponse](t, c, r).ErrorCode
}

func TestMembershipInAllVersions(t *testing.T) {
	_, c := grouped(t, nil)
	for v := range int16(10) {
		group := "g" + itoa(int32(v))
		j := joinAlone(t, c, v, group)
		if j.LeaderID != j.MemberID || j.Generation != 1 || len(j.Members) != 1 || j.Protocol == nil ||
			*j.Protocol != "range" || (v >= 7) != (j.ProtocolType != nil) ||
			!slices.Equal(j.Members[0].ProtocolMetadata, joinRequest(v, group, "").Protocols[0].Metadata) {
			t.Fatalf("version %d: %+v", v, j)
		}
		s := call[*kmsg.SyncGroupResponse](t, c, syncRequest(min(v, 5), group, j, "mine"))
		if s.ErrorCode != 0 || string(s.MemberAssignment) != "mine" || (v >= 5) != (s.Protocol != nil) {
			t.Fatalf("version %d: sync %+v", v, s)
		}
		if code := beat(t, c, min(v, 4), group, j); code != 0 {
			t.Fatalf("version %d: heartbeat %d", v, code)
		}
		l := kmsg.NewPtrLeaveGroupRequest()
		l.Version, l.Group, l.MemberID = min(v, 5), group, j.MemberID
		l.Members = []kmsg.LeaveGroupRequestMember{{MemberID: j.MemberID}, {MemberID: "nobody"}}
		left := call[*kmsg.LeaveGroupResponse](t, c, l)
		if left.ErrorCode != 0 || v >= 3 && (left.Members[0].ErrorCode != 0 || left.Members[0].MemberID != j.MemberID ||
			left.Members[1].ErrorCode != kerr.UnknownMemberID.Code) {
			t.Fatalf("version %d: leave %+v", v, left)
		}
		left = call[*kmsg.LeaveGroupResponse](t, c, l)
		if v < 3 && left.ErrorCode != kerr.UnknownMemberID.Code {
			t.Fatalf("version %d: second leave %+v", v, left)
		}
	}
}

// TestJoinErrorsLeaveTheProtocolOut: Java throws on an empty name from version 7 on and on a null one before.
func TestJoinErrorsLeaveTheProtocolOut(t *testing.T) {
	_, c := grouped(t, nil)
	for v := range int16(10) {
		j := call[*kmsg.JoinGroupResponse](t, c, joinRequest(v, "g", "nobody"))
		if j.ErrorCode != kerr.UnknownMemberID.Code || j.Generation != -1 || (j.Protocol == nil) != (v >= 7) ||
			j.Protocol != nil && *j.Protocol != "" || j.MemberID != "nobody" {
			t.Fatalf("version %d: %+v", v, j)
		}
	}
	for _, c := range []struct {
		edit func(r *kmsg.SyncGroupRequest)
		code int16
	}{
		{func(r *kmsg.SyncGroupRequest) { r.Protocol = nil }, kerr.InconsistentGroupProtocol.Code},
		{func(r *kmsg.SyncGroupRequest) { r.ProtocolType = nil }, kerr.InconsistentGroupProtocol.Code},
		{func(r *kmsg.SyncGroupRequest) { r.Group = "" }, kerr.InvalidGroupID.Code},
		{func(*kmsg.SyncGroupRequest) {}, kerr.UnknownMemberID.Code},
	} {
		_, cl := grouped(t, nil)
		r := syncRequest(5, "g", &kmsg.JoinGroupResponse{MemberID: "x"}, "")
		c.edit(r)
		if s := call[*kmsg.SyncGroupResponse](t, cl, r); s.ErrorCode != c.code || s.Protocol != nil {
			t.Errorf("%+v, want code %d", s, c.code)
		}
	}
}

func TestMetadataOfMembersOutlivesTheirFrames(t *testing.T) {
	n, c := grouped(t, nil)
	stable(t, c, "g")
	for range 50 { // the buffers of frames go round
		other := joinRequest(9, "h", "nobody")
		for i := range other.Protocols[0].Metadata {
			other.Protocols[0].Metadata[i] = 0xee
		}
		call[*kmsg.JoinGroupResponse](t, c, other)
	}
	for range 2 {
		d := kmsg.NewPtrDescribeGroupsRequest()
		d.Version, d.Groups = 6, []string{"g"}
		g := call[*kmsg.DescribeGroupsResponse](t, c, d).Groups[0]
		if g.State != "Stable" || len(g.Members) != 1 || string(g.Members[0].MemberAssignment) != "mine" ||
			!slices.Equal(g.Members[0].ProtocolMetadata, joinRequest(9, "g", "").Protocols[0].Metadata) {
			t.Fatalf("%+v", g)
		}
		n.stop()
		fs := n.cfg.Store.FS
		n = start(t, func(c *Config) { c.Store.FS = fs })
		c = n.dial()
		coordinate(t, c)
	}
}

// TestParkedJoin: a client that goes away while its JoinGroup is parked leaves nothing behind but a member, whose group
// goes on without it; a parked request is not idleness.
func TestParkedJoin(t *testing.T) {
	n, a := grouped(t, func(c *Config) { c.IdleMax = 400 * time.Millisecond })
	ja := stable(t, a, "g")
	b := n.dial()
	if err := b.Send(joinRequest(3, "g", "")); err != nil {
		t.Fatal(err)
	}
	for range 12 { // three times as long as an idle connection lives
		if code := beat(t, a, 4, "g", ja); code != kerr.RebalanceInProgress.Code && code != 0 {
			t.Fatalf("heartbeat %d", code)
		}
		if !silent(b, 100*time.Millisecond) {
			t.Fatal("the parked join was answered or closed")
		}
	}
	before := len(n.Server.open())
	b.Close()
	eventually(t, "the connection of the vanished client ends", func() bool { return len(n.Server.open()) < before })
	j := call[*kmsg.JoinGroupResponse](t, a, joinRequest(9, "g", ja.MemberID))
	if j.ErrorCode != 0 || j.Generation != 2 || len(j.Members) != 2 {
		t.Fatalf("%+v", j)
	}
}

func TestShutdownAnswersParkedJoin(t *testing.T) {
	n, a := grouped(t, nil)
	stable(t, a, "g")
	b := n.dial()
	r := joinRequest(3, "g", "")
	if err := b.Send(r); err != nil {
		t.Fatal(err)
	}
	if !silent(b, 50*time.Millisecond) {
		t.Fatal("not parked")
	}
	go n.stop()
	resp := receive[*kmsg.JoinGroupResponse](t, b, r)
	if resp.ErrorCode != kerr.CoordinatorNotAvailable.Code {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	eventually(t, "the server stops", func() bool { return len(n.Server.open()) == 0 })
}

// TestMemberSurvivesRestart: the generation and the assignment are there after a restart.
func TestMemberSurvivesRestart(t *testing.T) {
	n, c := grouped(t, nil)
	j := stable(t, c, "g")
	n.stop()
	fs := n.cfg.Store.FS
	n = start(t, func(c *Config) { c.Store.FS = fs })
	c = n.dial()
	if code := beat(t, c, 4, "g", j); code != 0 {
		t.Fatalf("heartbeat %d", code)
	}
	s := call[*kmsg.SyncGroupResponse](t, c, syncRequest(5, "g", j, ""))
	if s.ErrorCode != 0 || string(s.MemberAssignment) != "mine" {
		t.Fatalf("%+v", s)
	}
}

func TestDescribeListDelete(t *testing.T) {
	n := start(t, func(c *Config) { c.Groups.InitialDelayMs, c.OffsetsPartitions = 0, 4 })
	c := n.dial()
	describeAll := func(v int16, id string) kmsg.DescribeGroupsResponseGroup {
		d := kmsg.NewPtrDescribeGroupsRequest()
		d.Version, d.Groups, d.IncludeAuthorizedOperations = v, []string{id}, true
		return call[*kmsg.DescribeGroupsResponse](t, c, d).Groups[0]
	}
	list := func(v int16, states, types []string) *kmsg.ListGroupsResponse {
		r := kmsg.NewPtrListGroupsRequest()
		r.Version, r.StatesFilter, r.TypesFilter = v, states, types
		return call[*kmsg.ListGroupsResponse](t, c, r)
	}
	remove := func(v int16, id string) kmsg.DeleteGroupsResponseGroup {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Version, r.Groups = v, []string{id}
		return call[*kmsg.DeleteGroupsResponse](t, c, r).Groups[0]
	}
	for range 2 { // before and after the internal topics are made
		for v := range int16(7) {
			want := int16(0)
			if v >= 6 {
				want = kerr.GroupIDNotFound.Code
			}
			if g := describeAll(v, "none"); g.State != "Dead" || g.ErrorCode != want || (g.ErrorMessage != nil) != (v >= 6) {
				t.Fatalf("version %d: %+v", v, g)
			}
		}
		if l := list(5, nil, nil); l.ErrorCode != 0 || len(l.Groups) != 0 {
			t.Fatalf("%+v", l)
		}
		if g := remove(2, "none"); g.ErrorCode != kerr.GroupIDNotFound.Code {
			t.Fatalf("%+v", g)
		}
		coordinate(t, c)
	}
	j := stable(t, c, "g")
	joinAlone(t, c, 3, "h")
	for v := range int16(7) {
		g := describeAll(v, "g")
		if g.State != "Stable" || g.ProtocolType != "consumer" || g.Protocol != "range" || len(g.Members) != 1 ||
			g.Members[0].MemberID != j.MemberID || g.Members[0].ClientHost != "/127.0.0.1" ||
			v >= 3 && g.AuthorizedOperations != groupOperations {
			t.Fatalf("version %d: %+v", v, g)
		}
	}
	for v := range int16(6) {
		l := list(v, nil, nil)
		if len(l.Groups) != 2 || l.Groups[0].Group != "g" || v >= 4 && l.Groups[0].GroupState != "Stable" ||
			v >= 5 && l.Groups[0].GroupType != "classic" {
			t.Fatalf("version %d: %+v", v, l)
		}
	}
	if l := list(5, []string{"completingREBALANCE"}, []string{"Classic"}); len(l.Groups) != 1 || l.Groups[0].Group != "h" {
		t.Fatalf("%+v", l)
	}
	if l := list(5, nil, []string{"consumer"}); len(l.Groups) != 0 {
		t.Fatalf("%+v", l)
	}
	if g := remove(3, "g"); g.ErrorCode != kerr.NonEmptyGroup.Code || g.ErrorMessage == nil {
		t.Fatalf("%+v", g)
	}
	l := kmsg.NewPtrLeaveGroupRequest()
	l.Version, l.Group, l.Members = 5, "g", []kmsg.LeaveGroupRequestMember{{MemberID: j.MemberID}}
	call[*kmsg.LeaveGroupResponse](t, c, l)
	if g := remove(3, "g"); g.ErrorCode != 0 || g.ErrorMessage != nil {
		t.Fatalf("%+v", g)
	}
	if l := list(5, nil, nil); len(l.Groups) != 1 {
		t.Fatalf("%+v", l)
	}
}
