package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

var allStates = []state{stateEmpty, statePreparing, stateCompleting, stateStable, stateDead}

func TestStateNames(t *testing.T) {
	want := []string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
	for i, s := range allStates {
		if s.String() != want[i] {
			t.Errorf("state %d is %q, want %q", s, s, want[i])
		}
	}
}

func TestLegalTransitions(t *testing.T) {
	want := map[[2]state]bool{
		{statePreparing, stateEmpty}:      true, // G5
		{stateEmpty, statePreparing}:      true, // G1
		{stateStable, statePreparing}:     true, // G2
		{stateCompleting, statePreparing}: true, // G3
		{statePreparing, stateCompleting}: true, // G4
		{stateCompleting, stateStable}:    true, // G6
	}
	for _, from := range allStates {
		want[[2]state{from, stateDead}] = true
		for _, to := range allStates {
			if legal(from, to) != want[[2]state{from, to}] {
				t.Errorf("%v -> %v: %v", from, to, legal(from, to))
			}
		}
	}
}

func TestRejoinTable(t *testing.T) {
	for _, c := range []struct {
		s            state
		leader, same bool
		act          action
		code         *kerr.Error
	}{
		{statePreparing, false, true, actPark, nil},
		{statePreparing, true, false, actPark, nil},
		{stateCompleting, false, true, actCurrent, nil},
		{stateCompleting, true, true, actCurrent, nil},
		{stateCompleting, false, false, actRebalance, nil},
		{stateStable, true, true, actRebalance, nil},
		{stateStable, false, false, actRebalance, nil},
		{stateStable, false, true, actCurrent, nil},
		{stateEmpty, false, true, actRefuse, kerr.UnknownMemberID},
		{stateDead, false, true, actRefuse, kerr.CoordinatorNotAvailable},
	} {
		if act, code := rejoin(c.s, c.leader, c.same); act != c.act || code != c.code {
			t.Errorf("%+v: got %d %v", c, act, code)
		}
	}
}

func TestReplaceTable(t *testing.T) {
	for _, c := range []struct {
		s       state
		changes bool
		act     action
		code    *kerr.Error
	}{
		{statePreparing, false, actPark, nil},
		{statePreparing, true, actPark, nil},
		{stateCompleting, false, actRebalance, nil},
		{stateStable, true, actRebalance, nil},
		{stateStable, false, actStore, nil},
		{stateEmpty, false, actRefuse, kerr.UnknownMemberID},
		{stateDead, false, actRefuse, kerr.CoordinatorNotAvailable},
	} {
		if act, code := replace(c.s, c.changes); act != c.act || code != c.code {
			t.Errorf("%+v: got %d %v", c, act, code)
		}
	}
}

func TestAcceptsTable(t *testing.T) {
	for _, c := range []struct {
		s                        state
		known, waits             bool
		members, awaiting, limit int
		want                     bool
	}{
		{stateEmpty, false, false, 0, 0, 1, true},
		{statePreparing, false, false, 5, 1, 2, true}, // four of five may not come back
		{statePreparing, false, false, 5, 2, 2, false},
		{statePreparing, true, true, 2, 2, 2, true},
		{statePreparing, true, false, 2, 2, 2, false},
		{stateCompleting, false, false, 1, 0, 2, true},
		{stateCompleting, false, false, 2, 0, 2, false},
		{stateCompleting, true, false, 3, 0, 2, true},
		{stateStable, false, false, 1, 0, 2, true},
		{stateStable, false, false, 2, 0, 2, false},
		{stateStable, true, false, 3, 0, 2, true},
	} {
		if got := accepts(c.s, c.known, c.waits, c.members, c.awaiting, c.limit); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestFitsTable(t *testing.T) {
	for _, c := range []struct {
		s                     state
		groupType, memberType string
		protocols             int
		common, want          bool
	}{
		{stateEmpty, "connect", "consumer", 1, false, true},
		{stateEmpty, "", "", 1, true, false},
		{stateEmpty, "", "consumer", 0, true, false},
		{stateStable, "consumer", "consumer", 1, true, true},
		{stateStable, "consumer", "consumer", 1, false, false},
		{stateStable, "consumer", "connect", 1, true, false},
		{statePreparing, "consumer", "connect", 1, true, false},
		{stateCompleting, "consumer", "consumer", 1, false, false},
	} {
		if got := fits(c.s, c.groupType, c.memberType, c.protocols, c.common); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestAllJoinedTable(t *testing.T) {
	for _, c := range []struct {
		s                          state
		initial                    bool
		members, awaiting, pending int
		want                       bool
	}{
		{statePreparing, false, 2, 2, 0, true},
		{statePreparing, true, 2, 2, 0, false}, // only the delay ends it
		{statePreparing, false, 2, 1, 0, false},
		{statePreparing, false, 2, 2, 1, false}, // an id was issued and not used yet
		{statePreparing, false, 0, 0, 0, true},
		{stateStable, false, 1, 1, 0, false},
		{stateCompleting, false, 1, 1, 0, false},
	} {
		if got := allJoined(c.s, c.initial, c.members, c.awaiting, c.pending); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestCompletionTable(t *testing.T) {
	for _, c := range []struct {
		members, awaiting int
		want              outcome
	}{
		{0, 0, outEmpty},    // G5
		{2, 0, outAgain},    // G7
		{2, 1, outComplete}, // G4
		{1, 1, outComplete},
	} {
		if got := completion(c.members, c.awaiting); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestDelayAgainTable(t *testing.T) {
	for _, c := range []struct {
		delay, remaining int32
		newMember        bool
		next, left       int32
		again            bool
	}{
		{3000, 57000, true, 3000, 54000, true},
		{3000, 2000, true, 2000, 0, true},
		{3000, 0, true, 0, 0, false},
		{3000, 57000, false, 0, 0, false},
	} {
		next, left, again := delayAgain(c.delay, c.remaining, c.newMember)
		if next != c.next || left != c.left || again != c.again {
			t.Errorf("%+v: got %d %d %v", c, next, left, again)
		}
	}
}

func TestHeartbeatAndSyncTables(t *testing.T) {
	for i, c := range []struct {
		renew bool
		beat  *kerr.Error
		act   action
		sync  *kerr.Error
	}{
		{false, kerr.UnknownMemberID, actRefuse, kerr.UnknownMemberID},
		{true, kerr.RebalanceInProgress, actRefuse, kerr.RebalanceInProgress},
		{true, nil, actPark, nil},
		{true, nil, actCurrent, nil},
		{false, kerr.CoordinatorNotAvailable, actRefuse, kerr.CoordinatorNotAvailable},
	} {
		s := allStates[i]
		if renew, code := onHeartbeat(s); renew != c.renew || code != c.beat {
			t.Errorf("heartbeat in %v: %v %v", s, renew, code)
		}
		if act, code := onSync(s); act != c.act || code != c.sync {
			t.Errorf("sync in %v: %v %v", s, act, code)
		}
	}
}

func TestCommitTable(t *testing.T) {
	for _, c := range []struct {
		s     state
		c     claim
		check bool
		code  *kerr.Error
	}{
		{stateDead, claim{generation: -1}, false, kerr.CoordinatorNotAvailable},
		{stateDead, claim{generation: 1, member: true, txn: true}, false, kerr.CoordinatorNotAvailable},
		{stateEmpty, claim{generation: -1}, false, nil},
		{stateEmpty, claim{generation: -1, member: true}, false, nil},
		{stateEmpty, claim{generation: 3, member: true}, true, nil},
		{stateStable, claim{generation: -1}, false, kerr.UnknownMemberID},
		{stateStable, claim{generation: -1, member: true}, true, nil},
		{statePreparing, claim{generation: 1}, true, nil},
		{stateCompleting, claim{generation: 1, member: true}, true, nil},
		{stateStable, claim{generation: -1, txn: true}, false, nil},
		{stateCompleting, claim{generation: -1, txn: true}, false, nil},
		{stateStable, claim{generation: 4, txn: true}, true, nil},
		{stateEmpty, claim{generation: -1, member: true, txn: true}, false, nil},
		{stateStable, claim{generation: -1, member: true, txn: true}, true, nil},
	} {
		if check, code := onCommit(c.s, c.c); check != c.check || code != c.code {
			t.Errorf("%v %+v: got %v %v", c.s, c.c, check, code)
		}
	}
}

func TestSelectProtocol(t *testing.T) {
	b := func(names ...string) (out ballot) {
		for _, n := range names {
			out = append(out, Protocol{Name: n})
		}
		return out
	}
	for _, c := range []struct {
		members []ballot
		want    string
	}{
		{nil, ""},
		{[]ballot{b("range")}, "range"},
		{[]ballot{b("sticky", "range"), b("range")}, "range"},
		{[]ballot{b("a", "b"), b("b", "a"), b("b", "a")}, "b"},
		{[]ballot{b("a", "b"), b("b", "a")}, "a"},
		{[]ballot{b("x", "a", "b"), b("b", "a"), b("b", "a")}, "b"},
		{[]ballot{b("a"), b("b")}, ""},
		{[]ballot{b("a", "a", "b"), b("b")}, "b"},
	} {
		if got := selectProtocol(c.members); got != c.want {
			t.Errorf("%v: got %q, want %q", c.members, got, c.want)
		}
	}
}
