package group

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

var errTest = errors.New("passing failure")

// statics makes a stable group of two static members, i1 the leader, in generation 2.
func (w *world) statics() (a, b *joined) {
	w.t.Helper()
	a = w.join(static("i1", ""))
	w.wantJoin(a, 1, nil)
	w.sync(a, map[string]string{a.out.Member: "all"})
	b = w.join(static("i2", ""))
	w.wantJoin(b, 0, nil)
	a = w.join(static("i1", a.out.Member))
	w.wantJoin(a, 1, nil)
	w.wantJoin(b, 1, nil)
	sb := w.sync(b, nil)
	w.wantSync(w.sync(a, map[string]string{a.out.Member: "one", b.out.Member: "two"}), 1, nil, "one")
	w.wantSync(sb, 1, nil, "two")
	w.wantState(stateStable, 2, 2)
	return a, b
}

func TestStaticMemberNeedsNoSecondJoin(t *testing.T) {
	w := newWorld(t, testConfig())
	a, _ := w.statics()
	if len(a.out.Member) != len("i1-")+36 || a.out.Member[:3] != "i1-" {
		t.Fatalf("member id %q", a.out.Member)
	}
	if a.out.Members[1].Instance != "i2" {
		t.Fatalf("%+v", a.out.Members)
	}
}

func TestStaticFollowerComesBack(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.statics()
	batches := w.j.batches
	w.j.held = true
	again := static("i2", "")
	again.ClientID, again.Host = "moved", "/10.0.0.2"
	b2 := w.join(again)
	w.wantJoin(b2, 0, nil) // the new id must be durable
	w.j.flush()
	w.wantJoin(b2, 1, nil)
	w.wantState(stateStable, 2, 2)
	if b2.out.Member == b.out.Member || b2.out.Generation != 2 || b2.out.Leader != a.out.Member || b2.out.SkipAssignment ||
		len(b2.out.Members) != 0 || w.j.batches != batches+1 {
		t.Fatalf("%+v, %d batches", b2.out, w.j.batches-batches)
	}
	if code := w.beat(a); code != nil {
		t.Fatal(code)
	}
	old := Member{Group: "g", Member: b.out.Member, Instance: "i2", Generation: 2}
	if code := w.beatIn(old); code != kerr.FencedInstanceID {
		t.Fatalf("the old incarnation: %v", code)
	}
	w.wantJoin(w.join(static("i2", b.out.Member)), 1, kerr.FencedInstanceID)
	w.j.held = false
	w.wantSync(w.sync(b2, nil), 1, nil, "two")
	w.restart()
	w.wantSync(w.sync(b2, nil), 1, nil, "two")
	if m := w.group("g").classic.statics["i2"]; m.clientID != "moved" || m.host != "/10.0.0.2" {
		t.Fatalf("%+v", m)
	}
}

func TestStaticLeaderComesBack(t *testing.T) {
	for _, c := range []struct {
		version int16
		skip    bool
		members int
	}{{9, true, 2}, {8, false, 0}, {5, false, 0}} {
		w := newWorld(t, testConfig())
		a, _ := w.statics()
		in := static("i1", "")
		in.Version = c.version
		a2 := w.join(in)
		w.wantJoin(a2, 1, nil)
		w.wantState(stateStable, 2, 2)
		leader := a2.out.Member
		if c.version < 9 {
			leader = a.out.Member // so that it does not run an assignment
		}
		if a2.out.SkipAssignment != c.skip || len(a2.out.Members) != c.members || a2.out.Leader != leader {
			t.Fatalf("version %d: %+v", c.version, a2.out)
		}
		if w.group("g").classic.leader != a2.out.Member {
			t.Fatal("leadership did not go with the instance")
		}
	}
}

func TestStaticReplacementThatCannotBeWritten(t *testing.T) {
	w := newWorld(t, testConfig())
	a, _ := w.statics()
	w.j.fail = errTest
	in := static("i1", "")
	in.ClientID = "other"
	a2 := w.join(in)
	w.wantJoin(a2, 1, kerr.CoordinatorNotAvailable)
	w.j.fail = nil
	c := w.group("g").classic
	if c.leader != a.out.Member || c.byID[a.out.Member].clientID != "app" {
		t.Fatalf("leader %q", c.leader)
	}
	if code := w.beat(a); code != nil {
		t.Fatalf("the old id is valid again, got %v", code)
	}
}

func TestStaticReplacementFencesWhatIsParked(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.statics()
	b2 := w.join(func() JoinIn { in := static("i2", b.out.Member); in.Protocols[0].Metadata = sub("x"); return in }())
	w.wantState(statePreparing, 2, 2)
	b3 := w.join(static("i2", ""))
	w.wantJoin(b2, 1, kerr.FencedInstanceID)
	w.wantJoin(b3, 0, nil) // parked: the group is in Preparing
	a = w.join(static("i1", a.out.Member))
	w.wantJoin(b3, 1, nil)
	s := w.sync(b3, nil)
	w.wantState(stateCompleting, 2, 3)
	b4 := w.join(static("i2", "")) // in Completing a known static member begins a rebalance
	w.wantSync(s, 1, kerr.FencedInstanceID, "")
	w.wantJoin(b4, 0, nil)
	w.wantState(statePreparing, 2, 3)
	if code := w.beat(a); code != kerr.RebalanceInProgress {
		t.Fatal(code)
	}
}

func TestStaticMemberWithAnotherProtocolRebalances(t *testing.T) {
	w := newWorld(t, testConfig())
	two := []Protocol{{Name: "range", Metadata: sub("a")}, {Name: "sticky", Metadata: sub("a")}}
	in := static("i1", "")
	in.Protocols = two
	a := w.join(in)
	w.sync(a, nil)
	w.wantState(stateStable, 1, 1)
	in = static("i1", "")
	in.Protocols = []Protocol{two[1], two[0]}
	b := w.join(in)
	w.wantJoin(b, 1, nil)
	if b.out.Protocol != "sticky" || b.out.Generation != 2 {
		t.Fatalf("%+v", b.out)
	}
	w.wantState(stateCompleting, 1, 2)
}

func TestStaticMembersStayAtTheRebalanceTimeout(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.statics()
	b2 := w.join(func() JoinIn { in := static("i2", b.out.Member); in.Protocols[0].Metadata = sub("x"); return in }())
	for range 12 {
		w.beat(a)
		w.advance(5 * time.Second)
	}
	w.advance(100 * time.Millisecond)
	w.wantJoin(b2, 1, nil)
	w.wantState(stateCompleting, 2, 3)
	if b2.out.Leader != b.out.Member || len(b2.out.Members) != 2 {
		t.Fatalf("a waiting member leads instead of the one that is away: %+v", b2.out)
	}
}

func TestNobodyComesBack(t *testing.T) {
	c := testConfig()
	w := newWorld(t, c)
	in := static("i1", "")
	in.SessionMs = 300000
	a := w.join(in)
	w.sync(a, nil)
	dyn := w.enter()
	w.leave(Member{Member: dyn.in.Member.Member})
	w.wantJoin(dyn, 1, kerr.UnknownMemberID)
	w.advance(61 * time.Second)
	w.wantState(statePreparing, 1, 1) // G7
	w.advance(60 * time.Second)
	w.wantState(statePreparing, 1, 1)
	in.Member.Member = a.out.Member
	a2 := w.join(in)
	w.wantJoin(a2, 1, nil)
	w.wantState(stateCompleting, 1, 2)
}

func TestAdministratorRemovesStaticMember(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.statics()
	codes := w.leave(Member{Instance: "i2"}, Member{Instance: "i1", Member: "wrong"})
	if codes[0] != nil || codes[1] != kerr.FencedInstanceID {
		t.Fatal(codes)
	}
	w.wantState(statePreparing, 1, 2)
	if code := w.beat(b); code != kerr.UnknownMemberID {
		t.Fatal(code)
	}
	if code := w.beat(a); code != kerr.RebalanceInProgress {
		t.Fatal(code)
	}
}

func TestReturningStaticMemberPassesAFullGroup(t *testing.T) {
	c := testConfig()
	c.SizeMax = 2
	w := newWorld(t, c)
	w.statics()
	w.wantJoin(w.join(static("i1", "")), 1, nil)
	w.wantJoin(w.join(static("i3", "")), 1, kerr.GroupMaxSizeReached)
}

func TestInstanceIDOfAnother(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.statics()
	in := Member{Group: "g", Member: a.out.Member, Instance: "i2", Generation: 2}
	if code := w.beatIn(in); code != kerr.FencedInstanceID {
		t.Fatal(code)
	}
	w.wantSync(w.syncIn(SyncIn{Member: in}), 1, kerr.FencedInstanceID, "")
	w.wantSync(w.sync(b, nil), 1, nil, "two")
}

// TestRebalanceWhileTheReplacementIsWritten: the returning member waits for the generation that has begun meanwhile.
func TestRebalanceWhileTheReplacementIsWritten(t *testing.T) {
	w := newWorld(t, testConfig())
	a, _ := w.statics()
	issued := w.join(asks("")) // holds the rebalance
	w.j.held = true
	b2 := w.join(static("i2", ""))
	in := static("i1", a.out.Member)
	in.Protocols[0].Metadata = sub("more")
	a2 := w.join(in)
	w.wantState(statePreparing, 2, 2)
	w.j.flush()
	w.wantJoin(b2, 0, nil)
	w.leave(Member{Member: issued.out.Member})
	w.wantJoin(a2, 1, nil)
	w.wantJoin(b2, 1, nil)
	if b2.out.Generation != 3 {
		t.Fatalf("%+v", b2.out)
	}
}

// The longest client and instance ids give member ids that still fit a string of the protocol. A longer one would come
// cut off in answers, and the record of its group could not be read again.
func TestLongestIDsGiveMemberIDsThatFit(t *testing.T) {
	w := newWorld(t, testConfig())
	longest := strings.Repeat("é", 16383) + "i"
	client := asks("")
	client.ClientID, client.Version = longest, 3
	a := w.join(static(longest, ""))
	w.sync(a, map[string]string{a.out.Member: "all"})
	b := w.join(client)
	a = w.join(static(longest, a.out.Member))
	for _, j := range []*joined{a, b} {
		w.wantJoin(j, 1, nil)
		if n := len(j.out.Member); n > 32767 || n < 32765 || !utf8.ValidString(j.out.Member) {
			t.Errorf("member id of %d bytes", n)
		}
	}
	w.wantSync(w.sync(a, map[string]string{a.out.Member: "one", b.out.Member: "two"}), 1, nil, "one")
	w.restart()
	w.wantState(stateStable, 2, 2)
}
