package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestSyncAndHeartbeatChecks(t *testing.T) {
	base := Member{Group: "g", Generation: 1}
	for _, c := range []struct {
		name       string
		edit       func(in *SyncIn)
		sync, beat *kerr.Error
	}{
		{"no group id", func(in *SyncIn) { in.Group = "" }, kerr.InvalidGroupID, kerr.InvalidGroupID},
		{"missing group", func(in *SyncIn) { in.Group = "h" }, kerr.UnknownMemberID, kerr.UnknownMemberID},
		{"unknown member", func(in *SyncIn) { in.Member.Member = "x" }, kerr.UnknownMemberID, kerr.UnknownMemberID},
		{"unknown instance", func(in *SyncIn) { in.Instance = "x" }, kerr.UnknownMemberID, kerr.UnknownMemberID},
		{"old generation", func(in *SyncIn) { in.Generation = 0 }, kerr.IllegalGeneration, kerr.IllegalGeneration},
		{"new generation", func(in *SyncIn) { in.Generation = 2 }, kerr.IllegalGeneration, kerr.IllegalGeneration},
		{"other type", func(in *SyncIn) { in.ProtocolType = "connect" }, kerr.InconsistentGroupProtocol, nil},
		{"other protocol", func(in *SyncIn) { in.Protocol = "sticky" }, kerr.InconsistentGroupProtocol, nil},
		{"all right", func(*SyncIn) {}, nil, nil},
		{"no protocol given", func(in *SyncIn) { in.ProtocolType, in.Protocol = "", "" }, nil, nil},
	} {
		w := newWorld(t, testConfig())
		a := w.one()
		in := SyncIn{Member: base, ProtocolType: "consumer", Protocol: "range"}
		in.Member.Member = a.out.Member
		c.edit(&in)
		if s := w.syncIn(in); s.n != 1 || s.code != c.sync || (c.sync == nil) != (string(s.out.Assignment) == "all") {
			t.Errorf("%s: sync %d answers, %v, %q", c.name, s.n, s.code, s.out.Assignment)
		}
		if code := w.beatIn(in.Member); code != c.beat {
			t.Errorf("%s: heartbeat %v, want %v", c.name, code, c.beat)
		}
	}
}

func TestSyncAnswersOnlyWhatIsDurable(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.enter()
	w.j.held = true
	s := w.sync(a, map[string]string{a.out.Member: "x"})
	w.wantSync(s, 0, nil, "")
	w.wantState(stateCompleting, 1, 1)
	again := w.sync(a, map[string]string{a.out.Member: "y"}) // over another connection, while the first is written
	w.wantSync(s, 1, kerr.RebalanceInProgress, "")
	w.wantSync(again, 0, nil, "")
	w.j.flush()
	w.wantSync(again, 1, nil, "x")
	w.wantState(stateStable, 1, 1)
	w.restart()
	w.wantState(stateStable, 1, 1)
	w.wantSync(w.sync(a, nil), 1, nil, "x")
}

func TestSyncLostInACrash(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	a = w.join(asks(a.out.Member))
	w.wantJoin(a, 1, nil)
	w.j.held = true
	s := w.sync(a, map[string]string{a.out.Member: "second"})
	w.wantSync(s, 0, nil, "")
	w.restart()
	w.wantState(stateStable, 1, 1) // the generation before
	if code := w.beat(a); code != kerr.IllegalGeneration {
		t.Fatalf("heartbeat of the lost generation: %v", code)
	}
}

func TestAssignmentThatCannotBeWritten(t *testing.T) {
	for _, c := range []struct {
		err  error
		code *kerr.Error
	}{
		{ErrStorage, kerr.NotCoordinator},
		{ErrClosed, kerr.NotCoordinator},
		{ErrTooLarge, kerr.UnknownServerError},
		{errTest, kerr.CoordinatorNotAvailable},
	} {
		w := newWorld(t, testConfig())
		a, b := w.two()
		a = w.join(asks(a.out.Member))
		b = w.join(asks(b.out.Member))
		w.wantState(stateCompleting, 2, 3)
		sb := w.sync(b, nil)
		w.j.fail = c.err
		sa := w.sync(a, map[string]string{a.out.Member: "x"})
		w.wantSync(sa, 1, c.code, "")
		w.wantSync(sb, 1, c.code, "")
		w.wantState(statePreparing, 2, 3)
	}
}

func TestRebalanceWhileTheAssignmentIsWritten(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	a = w.join(asks(a.out.Member))
	b = w.join(asks(b.out.Member))
	w.j.held = true
	sa := w.sync(a, map[string]string{a.out.Member: "x"})
	b2 := w.join(asks(b.out.Member, "more")) // G3 while the record is on its way
	w.wantSync(sa, 1, kerr.RebalanceInProgress, "")
	a = w.join(asks(a.out.Member))
	w.wantJoin(b2, 1, nil)
	w.wantState(stateCompleting, 2, 4)
	w.j.flush() // the record of generation 3 must not make generation 4 stable
	w.wantState(stateCompleting, 2, 4)
	w.j.held = false
	sa = w.sync(a, map[string]string{a.out.Member: "new"})
	w.wantSync(sa, 1, nil, "new")
	w.wantSync(w.sync(b2, nil), 1, nil, "")
}

func TestSyncAndHeartbeatInPreparing(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	w.enter()
	w.wantState(statePreparing, 2, 1)
	w.wantSync(w.sync(a, nil), 1, kerr.RebalanceInProgress, "")
	w.advance(9 * time.Second)
	if code := w.beat(a); code != kerr.RebalanceInProgress {
		t.Fatal(code)
	}
	w.advance(9 * time.Second) // the heartbeat renewed the session
	w.wantState(statePreparing, 2, 1)
}

func TestSessionExpiry(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	for range 5 {
		w.advance(9 * time.Second)
		if code := w.beat(a); code != nil {
			t.Fatalf("%v", code)
		}
		if code := w.beat(b); code != nil {
			t.Fatalf("%v", code)
		}
	}
	w.advance(9 * time.Second)
	w.beat(a)
	w.wantState(stateStable, 2, 2)
	w.advance(1100 * time.Millisecond) // b said nothing for 10 s
	w.wantState(statePreparing, 1, 2)
	if code := w.beat(b); code != kerr.UnknownMemberID {
		t.Fatal(code)
	}
	a = w.join(asks(a.out.Member))
	w.wantJoin(a, 1, nil)
	w.wantState(stateCompleting, 1, 3)
}

func TestLastMemberExpires(t *testing.T) {
	w := newWorld(t, testConfig())
	w.one()
	w.advance(10100 * time.Millisecond)
	w.wantState(stateEmpty, 0, 2) // G5
	w.restart()
	w.wantState(stateEmpty, 0, 2)
}

func TestRebalanceTimeoutRemovesDynamicMembers(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	b2 := w.join(asks(b.out.Member, "more"))
	for range 12 { // a only heartbeats
		w.wantJoin(b2, 0, nil)
		w.beat(a)
		w.advance(5 * time.Second)
	}
	w.advance(100 * time.Millisecond)
	w.wantJoin(b2, 1, nil)
	w.wantState(stateCompleting, 1, 3)
	if b2.out.Leader != b.out.Member { // a was the leader and is gone
		t.Fatalf("leader %q", b2.out.Leader)
	}
	if code := w.beat(a); code != kerr.UnknownMemberID {
		t.Fatal(code)
	}
}

func TestParkedMembersDoNotExpire(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	b2 := w.join(asks(b.out.Member, "more"))
	for range 10 { // longer than the session of b
		w.advance(5 * time.Second)
		w.beat(a)
	}
	w.wantJoin(b2, 0, nil)
	a = w.join(asks(a.out.Member))
	w.wantJoin(b2, 1, nil)
	sb := w.sync(b2, nil)
	w.advance(11 * time.Second) // a gone, b awaits its assignment
	w.wantSync(sb, 1, kerr.RebalanceInProgress, "")
	w.wantState(statePreparing, 1, 3)
	if code := w.beat(a); code != kerr.UnknownMemberID {
		t.Fatal(code)
	}
}

func TestFreshMemberMayWaitFiveMinutes(t *testing.T) {
	w := newWorld(t, testConfig())
	in := static("i1", "")
	in.RebalanceMs = 1800000
	a := w.join(in)
	w.wantJoin(a, 1, nil)
	w.wantSync(w.sync(a, map[string]string{a.out.Member: "x"}), 1, nil, "x")
	b := w.enter()
	for range 59 {
		w.advance(5 * time.Second)
		w.beat(a)
	}
	w.wantJoin(b, 0, nil)
	w.advance(5100 * time.Millisecond)
	w.wantJoin(b, 1, kerr.UnknownMemberID)
	if b.out.Member != "" || b.out.Generation != -1 {
		t.Fatalf("%+v", b.out)
	}
}

func TestSilentMembersAreRemovedAfterTheGeneration(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	a = w.join(asks(a.out.Member))
	b = w.join(asks(b.out.Member))
	sa := w.sync(a, map[string]string{a.out.Member: "x", b.out.Member: "y"})
	w.wantSync(sa, 1, nil, "x")
	for range 12 { // b heartbeats and never asks for its assignment
		w.wantState(stateStable, 2, 3)
		w.beat(a)
		w.beat(b)
		w.advance(5 * time.Second)
	}
	w.advance(100 * time.Millisecond)
	w.wantState(statePreparing, 1, 3)
	if code := w.beat(b); code != kerr.UnknownMemberID {
		t.Fatal(code)
	}
}

func TestLeave(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	codes := w.leave(Member{Member: "nobody"}, Member{Member: b.out.Member}, Member{}, Member{Instance: "i"})
	if codes[0] != kerr.UnknownMemberID || codes[1] != nil || codes[2] != kerr.UnknownMemberID ||
		codes[3] != kerr.UnknownMemberID {
		t.Fatal(codes)
	}
	w.wantState(statePreparing, 1, 2)
	if code := w.beat(a); code != kerr.RebalanceInProgress {
		t.Fatal(code)
	}
}

func TestLeaveOfNobodyChangesNothing(t *testing.T) {
	w := newWorld(t, testConfig())
	w.two()
	w.leave(Member{Member: "nobody"})
	w.wantState(stateStable, 2, 2)
	var got *kerr.Error
	w.m.Leave("missing", []Member{{Member: "x"}}, func(c []*kerr.Error, _ *kerr.Error) { got = c[0] })
	if got != kerr.UnknownMemberID {
		t.Fatal(got)
	}
	w.m.Leave("", nil, func(_ []*kerr.Error, c *kerr.Error) { got = c })
	if got != kerr.InvalidGroupID {
		t.Fatal(got)
	}
}

func TestLastMemberLeaves(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	w.leave(Member{Member: a.out.Member})
	w.wantState(stateEmpty, 0, 2)
	b := w.enter() // the generation goes on
	w.wantJoin(b, 1, nil)
	w.wantState(stateCompleting, 1, 3)
}

func TestLeaveWhileParked(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	b2 := w.join(asks(b.out.Member, "more"))
	w.leave(Member{Member: b.out.Member})
	w.wantJoin(b2, 1, kerr.UnknownMemberID)
	a = w.join(asks(a.out.Member))
	w.wantJoin(a, 1, nil)
	w.wantState(stateCompleting, 1, 3)
	s := w.sync(a, nil)
	w.wantSync(s, 1, nil, "")
}

func TestLeaveWhileTheAssignmentIsAwaited(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	w.join(asks(a.out.Member))
	b = w.join(asks(b.out.Member))
	s := w.sync(b, nil)
	w.leave(Member{Member: b.out.Member})
	w.wantSync(s, 1, kerr.UnknownMemberID, "")
	w.wantState(statePreparing, 1, 3)
}

// TestHeartbeatsMoveNoTimer: a heartbeat only sets the deadline; the timer of the member finds it when it fires.
func TestHeartbeatsMoveNoTimer(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	s := (*w.m.shards.Load())[0]
	timers, seq := len(s.timers), s.timerSeq
	for range 90 {
		w.clk.Advance(100 * time.Millisecond)
		w.beat(a)
	}
	if len(s.timers) != timers || s.timerSeq != seq {
		t.Fatalf("%d timers and %d armed by 90 heartbeats", len(s.timers)-timers, s.timerSeq-seq)
	}
	w.advance(9900 * time.Millisecond)
	w.wantState(stateStable, 1, 1)
	w.advance(200 * time.Millisecond)
	w.wantState(stateEmpty, 0, 2)
}

// TestCommitKeepsTheSession in Stable and Preparing, as a heartbeat does.
func TestCommitKeepsTheSession(t *testing.T) {
	w := newWorld(t, testConfig())
	w.topics.set("orders", 1, 1)
	a := w.one()
	commit := func() (code *kerr.Error) {
		w.m.Commit(CommitIn{Member: Member{Group: "g", Member: a.out.Member, Generation: 1}, Version: 8, PID: -1,
			RetainMs: -1, TPs: []TP{{Topic: "orders"}}, Offsets: make([]Offset, 1)},
			func(codes []*kerr.Error, _ uint64) { code = codes[0] })
		return code
	}
	for range 3 {
		w.advance(9 * time.Second)
		if code := commit(); code != nil {
			t.Fatal(code)
		}
	}
	w.enter()
	w.wantState(statePreparing, 2, 1)
	for range 3 {
		w.advance(9 * time.Second)
		if code := commit(); code != nil {
			t.Fatal(code)
		}
	}
	w.wantState(statePreparing, 2, 1)
}
