package group

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// joined is a JoinGroup and its answer; n counts the answers.
type joined struct {
	in   JoinIn
	out  JoinOut
	code *kerr.Error
	n    int
}

// synced is a SyncGroup and its answer.
type synced struct {
	out  SyncOut
	code *kerr.Error
	n    int
}

// sub is the subscription metadata of a consumer.
func sub(topics ...string) []byte {
	b := []byte{0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return binary.BigEndian.AppendUint32(b, 0xffffffff)
}

// asks is the JoinGroup of a dynamic consumer of version 9 with a session of 10 s and a rebalance timeout of 60 s.
func asks(id string, topics ...string) JoinIn {
	if len(topics) == 0 {
		topics = []string{"orders"}
	}
	return JoinIn{
		Member: Member{Group: "g", Member: id, Generation: -1}, Version: 9, ClientID: "app", Host: "/10.0.0.1",
		ProtocolType: "consumer", SessionMs: 10000, RebalanceMs: 60000,
		Protocols: []Protocol{{Name: "range", Metadata: sub(topics...)}},
	}
}

// static is asks for a static member.
func static(instance, id string) JoinIn {
	in := asks(id)
	in.Instance = instance
	return in
}

func (w *world) join(in JoinIn) *joined {
	r := &joined{in: in}
	w.m.Join(in, func(out JoinOut, code *kerr.Error) { r.out, r.code = out, code; r.n++ })
	return r
}

// enter joins a dynamic member: the first answer is its id, the second call parks or completes.
func (w *world) enter(topics ...string) *joined {
	w.t.Helper()
	first := w.join(asks("", topics...))
	if first.n != 1 || first.code != kerr.MemberIDRequired || first.out.Member == "" || first.out.Generation != -1 {
		w.t.Fatalf("first join: %+v %v", first.out, first.code)
	}
	return w.join(asks(first.out.Member, topics...))
}

func (w *world) sync(j *joined, assign map[string]string) *synced {
	in := SyncIn{Member: Member{Group: "g", Member: j.out.Member, Instance: j.in.Instance, Generation: j.out.Generation},
		ProtocolType: "consumer", Protocol: "range", Assignments: map[string][]byte{}}
	for k, v := range assign {
		in.Assignments[k] = []byte(v)
	}
	return w.syncIn(in)
}

func (w *world) syncIn(in SyncIn) *synced {
	r := &synced{}
	w.m.Sync(in, func(out SyncOut, code *kerr.Error) { r.out, r.code = out, code; r.n++ })
	return r
}

func (w *world) beat(j *joined) *kerr.Error {
	return w.beatIn(Member{Group: "g", Member: j.out.Member, Instance: j.in.Instance, Generation: j.out.Generation})
}

func (w *world) beatIn(in Member) (code *kerr.Error) {
	n := 0
	w.m.Heartbeat(in, func(c *kerr.Error) { code = c; n++ })
	if n != 1 {
		w.t.Fatalf("heartbeat answered %d times", n)
	}
	return code
}

func (w *world) leave(members ...Member) []*kerr.Error {
	var codes []*kerr.Error
	w.m.Leave("g", members, func(c []*kerr.Error, code *kerr.Error) {
		if code != nil {
			w.t.Fatalf("leave: %v", code)
		}
		codes = c
	})
	return codes
}

// want checks an answer: how often it was given and its code.
func (w *world) wantJoin(j *joined, n int, code *kerr.Error) {
	w.t.Helper()
	if j.n != n || j.code != code {
		w.t.Fatalf("join of %q: %d answers, code %v, want %d and %v", j.in.Member.Member, j.n, j.code, n, code)
	}
}

func (w *world) wantSync(s *synced, n int, code *kerr.Error, assignment string) {
	w.t.Helper()
	if s.n != n || s.code != code || string(s.out.Assignment) != assignment {
		w.t.Fatalf("sync: %d answers, code %v, assignment %q, want %d, %v, %q", s.n, s.code, s.out.Assignment, n, code,
			assignment)
	}
}

func (w *world) wantState(s state, members int, generation int32) {
	w.t.Helper()
	c := w.group("g").classic
	if c.state != s || len(c.members) != members || c.generation != generation {
		w.t.Fatalf("%v with %d members in generation %d, want %v, %d, %d", c.state, len(c.members), c.generation, s, members,
			generation)
	}
}

// one makes a stable group of one member.
func (w *world) one() *joined {
	w.t.Helper()
	a := w.enter()
	w.wantJoin(a, 1, nil)
	w.wantSync(w.sync(a, map[string]string{a.out.Member: "all"}), 1, nil, "all")
	w.wantState(stateStable, 1, 1)
	return a
}

// two makes a stable group of two members in generation 2; the first is the leader.
func (w *world) two() (a, b *joined) {
	w.t.Helper()
	a = w.one()
	b = w.enter()
	w.wantJoin(b, 0, nil)
	if code := w.beat(a); code != kerr.RebalanceInProgress {
		w.t.Fatalf("heartbeat %v, want a rebalance", code)
	}
	a = w.join(asks(a.out.Member))
	w.wantJoin(a, 1, nil)
	w.wantJoin(b, 1, nil)
	sb := w.sync(b, nil)
	w.wantSync(sb, 0, nil, "")
	sa := w.sync(a, map[string]string{a.out.Member: "one", b.out.Member: "two"})
	w.wantSync(sa, 1, nil, "one")
	w.wantSync(sb, 1, nil, "two")
	w.wantState(stateStable, 2, 2)
	return a, b
}

func TestFirstMember(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.enter()
	w.wantJoin(a, 1, nil)
	if a.out.Generation != 1 || a.out.Leader != a.out.Member || a.out.Protocol != "range" ||
		a.out.ProtocolType != "consumer" || len(a.out.Members) != 1 || a.out.SkipAssignment {
		t.Fatalf("%+v", a.out)
	}
	if !strings.HasPrefix(a.out.Member, "app-") || len(a.out.Member) != len("app-")+36 {
		t.Fatalf("member id %q", a.out.Member)
	}
	w.wantState(stateCompleting, 1, 1)
	w.wantSync(w.sync(a, map[string]string{a.out.Member: "x"}), 1, nil, "x")
	w.wantState(stateStable, 1, 1)
	if code := w.beat(a); code != nil {
		t.Fatal(code)
	}
}

func TestFollowerGetsNoMembers(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	if len(a.out.Members) != 2 || len(b.out.Members) != 0 || b.out.Leader != a.out.Member ||
		a.out.Generation != 2 || b.out.Generation != 2 {
		t.Fatalf("leader %+v follower %+v", a.out, b.out)
	}
	if string(a.out.Members[1].Metadata) != string(sub("orders")) {
		t.Fatalf("metadata %q", a.out.Members[1].Metadata)
	}
}

func TestJoinBeforeTheGroup(t *testing.T) {
	w := newWorld(t, testConfig())
	for _, c := range []struct {
		name string
		edit func(*JoinIn)
		code *kerr.Error
	}{
		{"no group", func(in *JoinIn) { in.Group = "" }, kerr.InvalidGroupID},
		{"short session", func(in *JoinIn) { in.SessionMs = 5999 }, kerr.InvalidSessionTimeout},
		{"long session", func(in *JoinIn) { in.SessionMs = 1800001 }, kerr.InvalidSessionTimeout},
		{"missing group, member id given", func(in *JoinIn) { in.Member.Member = "x" }, kerr.UnknownMemberID},
		{"no protocol type", func(in *JoinIn) { in.ProtocolType = "" }, kerr.InconsistentGroupProtocol},
		{"no protocols", func(in *JoinIn) { in.Protocols = nil }, kerr.InconsistentGroupProtocol},
	} {
		in := asks("")
		c.edit(&in)
		j := w.join(in)
		if j.n != 1 || j.code != c.code || j.out.Generation != -1 || j.out.Member != in.Member.Member {
			t.Errorf("%s: %d answers, %+v, %v", c.name, j.n, j.out, j.code)
		}
	}
	if w.group("g") != nil || w.j.batches != 0 {
		t.Fatal("a refused join made a group")
	}
}

func TestJoinWithMemberID(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  func(a *joined) JoinIn
		code *kerr.Error
	}{
		{"unknown member id", func(*joined) JoinIn { return asks("nobody") }, kerr.UnknownMemberID},
		{"instance not mapped", func(a *joined) JoinIn { return static("i9", a.out.Member) }, kerr.UnknownMemberID},
		{"other protocol type", func(a *joined) JoinIn {
			in := asks(a.out.Member)
			in.ProtocolType = "connect"
			return in
		}, kerr.InconsistentGroupProtocol},
	} {
		w := newWorld(t, testConfig())
		j := w.join(c.ask(w.one()))
		if j.n != 1 || j.code != c.code || j.out.Generation != -1 {
			t.Errorf("%s: %d answers %v", c.name, j.n, j.code)
		}
		w.wantState(stateStable, 1, 1)
	}
}

func TestNoCommonProtocol(t *testing.T) {
	w := newWorld(t, testConfig())
	w.one()
	in := asks("")
	in.Protocols[0].Name = "sticky"
	w.wantJoin(w.join(in), 1, kerr.InconsistentGroupProtocol)
}

func TestOldJoinVersionsNeedNoMemberID(t *testing.T) {
	w := newWorld(t, testConfig())
	in := asks("")
	in.Version, in.RebalanceMs = 0, -1
	j := w.join(in)
	w.wantJoin(j, 1, nil)
	if m := w.group("g").classic.members[0]; m.rebalanceMs != 10000 || m.id != j.out.Member {
		t.Fatalf("%+v", m)
	}
}

func TestGroupIsDurableBeforeTheFirstAnswer(t *testing.T) {
	w := newWorld(t, testConfig())
	w.j.held = true
	j := w.join(asks(""))
	w.wantJoin(j, 0, nil)
	w.j.flush()
	w.wantJoin(j, 1, kerr.MemberIDRequired)
	w.restart()
	if g := w.group("g"); g == nil || g.classic.state != stateEmpty || g.classic.generation != 0 {
		t.Fatalf("%+v", g)
	}
}

func TestGroupThatCannotBeMade(t *testing.T) {
	w := newWorld(t, testConfig())
	w.j.fail = ErrStorage
	w.wantJoin(w.join(asks("")), 1, kerr.NotCoordinator)
	if w.group("g") != nil {
		t.Fatal("the group stayed")
	}
}

func TestGroupMaxSize(t *testing.T) {
	c := testConfig()
	c.SizeMax = 2
	w := newWorld(t, c)
	a, b := w.two()
	w.wantJoin(w.join(asks("")), 1, kerr.GroupMaxSizeReached)
	w.wantState(stateStable, 2, 2)
	again := w.join(asks(a.out.Member, "other")) // a member passes
	w.wantJoin(again, 0, nil)
	w.wantState(statePreparing, 2, 2)
	third := w.enter() // one awaits: there is room, b is not back
	w.wantJoin(third, 0, nil)
	late := w.join(asks(b.out.Member))
	w.wantJoin(late, 1, kerr.GroupMaxSizeReached)
	w.wantJoin(again, 1, nil)
	w.wantJoin(third, 1, nil)
	w.wantState(stateCompleting, 2, 3)
}

func TestRejoinInCompletingAndStable(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	same := w.join(asks(b.out.Member))
	w.wantJoin(same, 1, nil)
	if same.out.Generation != 2 || len(same.out.Members) != 0 {
		t.Fatalf("%+v", same.out)
	}
	w.wantState(stateStable, 2, 2)
	lead := w.join(asks(a.out.Member)) // the leader asks for a new assignment
	w.wantJoin(lead, 0, nil)
	w.wantState(statePreparing, 2, 2)
	follow := w.join(asks(b.out.Member))
	w.wantState(stateCompleting, 2, 3)
	lost := w.join(asks(a.out.Member)) // its answer was lost
	w.wantJoin(lost, 1, nil)
	if lost.out.Generation != 3 || len(lost.out.Members) != 2 {
		t.Fatalf("%+v", lost.out)
	}
	changed := w.join(asks(b.out.Member, "orders", "more"))
	w.wantJoin(changed, 0, nil)
	w.wantState(statePreparing, 2, 3) // G3
	if code := w.beat(follow); code != kerr.RebalanceInProgress {
		t.Fatal(code)
	}
}

func TestFollowerWithOtherProtocolsRebalances(t *testing.T) {
	w := newWorld(t, testConfig())
	_, b := w.two()
	j := w.join(asks(b.out.Member, "more"))
	w.wantJoin(j, 0, nil)
	w.wantState(statePreparing, 2, 2)
}

func TestPendingMemberHoldsTheGeneration(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	issued := w.join(asks(""))
	w.wantJoin(issued, 1, kerr.MemberIDRequired)
	again := w.join(asks(a.out.Member))
	w.wantJoin(again, 0, nil) // the id that was issued is waited for
	w.wantState(statePreparing, 1, 1)
	b := w.join(asks(issued.out.Member))
	w.wantJoin(b, 1, nil)
	w.wantJoin(again, 1, nil)
	w.wantState(stateCompleting, 2, 2)
}

func TestPendingMemberExpires(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	issued := w.join(asks(""))
	again := w.join(asks(a.out.Member))
	w.advance(9900 * time.Millisecond)
	w.wantJoin(again, 0, nil)
	w.advance(200 * time.Millisecond)
	w.wantJoin(again, 1, nil)
	w.wantState(stateCompleting, 1, 2)
	w.wantJoin(w.join(asks(issued.out.Member)), 1, kerr.UnknownMemberID)
}

func TestPendingMemberLeaves(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	issued := w.join(asks(""))
	again := w.join(asks(a.out.Member))
	w.wantJoin(again, 0, nil)
	if codes := w.leave(Member{Member: issued.out.Member}); codes[0] != nil {
		t.Fatal(codes[0])
	}
	w.wantJoin(again, 1, nil)
	w.wantState(stateCompleting, 1, 2)
}

func TestInitialDelay(t *testing.T) {
	c := testConfig()
	c.InitialDelayMs = 3000
	w := newWorld(t, c)
	a := w.enter()
	w.advance(2500 * time.Millisecond)
	w.wantJoin(a, 0, nil)
	b := w.enter() // extends it
	w.advance(600 * time.Millisecond)
	w.wantJoin(a, 0, nil)
	w.advance(2800 * time.Millisecond)
	w.wantJoin(b, 0, nil)
	w.advance(200 * time.Millisecond)
	w.wantJoin(a, 1, nil)
	w.wantJoin(b, 1, nil)
	w.wantState(stateCompleting, 2, 1)
}

func TestInitialDelayEndsWithTheRebalanceTimeout(t *testing.T) {
	c := testConfig()
	c.InitialDelayMs = 3000
	w := newWorld(t, c)
	in := asks("")
	in.Version, in.RebalanceMs = 3, 7000
	var all []*joined
	for range 8 {
		all = append(all, w.join(in))
		w.advance(time.Second)
		if len(all) <= 6 {
			w.wantJoin(all[0], 0, nil)
		}
	}
	w.wantJoin(all[0], 1, nil) // 7 s after the first, though members kept coming
	if n := all[0].out.Generation; n != 1 {
		t.Fatalf("generation %d", n)
	}
}

func TestAllLeaveDuringInitialDelay(t *testing.T) {
	c := testConfig()
	c.InitialDelayMs = 3000
	w := newWorld(t, c)
	a := w.enter()
	w.leave(Member{Member: a.in.Member.Member})
	w.wantJoin(a, 1, kerr.UnknownMemberID)
	w.advance(3100 * time.Millisecond)
	w.wantState(stateEmpty, 0, 1) // G5
}
