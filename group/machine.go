package group

import "github.com/twmb/franz-go/pkg/kerr"

// state of a classic group (Kafka ClassicGroupState).
type state uint8

const (
	stateEmpty state = iota
	statePreparing
	stateCompleting
	stateStable
	stateDead
)

// String is the name in DescribeGroups and ListGroups.
func (s state) String() string {
	switch s {
	case stateEmpty:
		return "Empty"
	case statePreparing:
		return "PreparingRebalance"
	case stateCompleting:
		return "CompletingRebalance"
	case stateStable:
		return "Stable"
	}
	return "Dead"
}

// legal reports whether a group may go from one state to the other (spec 1.1).
func legal(from, to state) bool {
	switch to {
	case stateEmpty:
		return from == statePreparing
	case statePreparing:
		return from == stateStable || from == stateCompleting || from == stateEmpty
	case stateCompleting:
		return from == statePreparing
	case stateStable:
		return from == stateCompleting
	}
	return true
}

// action is what becomes of a JoinGroup.
type action uint8

const (
	actPark      action = iota // wait for the generation
	actRebalance               // begin a rebalance, and wait for the generation
	actCurrent                 // answer with the current generation
	actStore                   // write the group, then answer with the current generation
	actRefuse                  // the code says why
)

// rejoin decides about a member that is known and asks to join again.
func rejoin(s state, leader, sameProtocols bool) (action, *kerr.Error) {
	switch s {
	case statePreparing:
		return actPark, nil
	case stateCompleting:
		if sameProtocols {
			return actCurrent, nil
		}
		return actRebalance, nil
	case stateStable:
		if leader || !sameProtocols {
			return actRebalance, nil
		}
		return actCurrent, nil
	case stateEmpty:
		return actRefuse, kerr.UnknownMemberID
	}
	return actRefuse, kerr.CoordinatorNotAvailable
}

// replace decides about a static member that comes back without its member id.
func replace(s state, protocolChanges bool) (action, *kerr.Error) {
	switch s {
	case statePreparing:
		return actPark, nil
	case stateCompleting:
		return actRebalance, nil
	case stateStable:
		if protocolChanges {
			return actRebalance, nil
		}
		return actStore, nil
	case stateEmpty:
		return actRefuse, kerr.UnknownMemberID
	}
	return actRefuse, kerr.CoordinatorNotAvailable
}

// accepts decides whether a group of this size takes one more JoinGroup. In Preparing the members that wait are
// counted, since those which do not come back will be removed.
func accepts(s state, known, waits bool, members, awaiting, limit int) bool {
	switch s {
	case statePreparing:
		return known && waits || awaiting < limit
	case stateCompleting, stateStable:
		return known || members < limit
	}
	return true
}

// fits decides whether a protocol type and list go with the group: common is whether one of the list is supported by
// all members.
func fits(s state, groupType, memberType string, protocols int, common bool) bool {
	if s == stateEmpty {
		return memberType != "" && protocols > 0
	}
	return groupType == memberType && common
}

// outcome is how the phase of joining ends.
type outcome uint8

const (
	outWait     outcome = iota // members are missing
	outAgain                   // nobody came back, but static members stay: arm the timer anew (G7)
	outEmpty                   // no members (G5)
	outComplete                // next generation (G4)
)

// allJoined decides whether the phase of joining may end before its timer. initial: the group was Empty before, so that
// only the delay ends it.
func allJoined(s state, initial bool, members, awaiting, pending int) bool {
	return s == statePreparing && !initial && members <= awaiting && pending == 0
}

// completion decides what the end of the phase of joining brings, once dynamic members that did not come back are gone.
func completion(members, awaiting int) outcome {
	switch {
	case members == 0:
		return outEmpty
	case awaiting == 0:
		return outAgain
	}
	return outComplete
}

// delayAgain decides about the initial delay when its timer fires: another delay of next milliseconds with remaining
// left after it, or the end (spec 1.4).
func delayAgain(delay, remaining int32, newMember bool) (next, left int32, again bool) {
	if !newMember || remaining <= 0 {
		return 0, 0, false
	}
	return min(delay, remaining), max(remaining-delay, 0), true
}

// onHeartbeat decides about a heartbeat of a valid member and generation: whether the session is renewed, and the code.
func onHeartbeat(s state) (renew bool, code *kerr.Error) {
	switch s {
	case statePreparing:
		return true, kerr.RebalanceInProgress
	case stateCompleting, stateStable:
		return true, nil
	case stateEmpty:
		return false, kerr.UnknownMemberID
	}
	return false, kerr.CoordinatorNotAvailable
}

// onSync decides about a SyncGroup of a valid member and generation.
func onSync(s state) (action, *kerr.Error) {
	switch s {
	case stateEmpty:
		return actRefuse, kerr.UnknownMemberID
	case statePreparing:
		return actRefuse, kerr.RebalanceInProgress
	case stateCompleting:
		return actPark, nil
	case stateStable:
		return actCurrent, nil
	}
	return actRefuse, kerr.CoordinatorNotAvailable
}

// claim is what a commit says about its sender.
type claim struct {
	generation int32
	member     bool // a member or instance id was given
	txn        bool
}

// onCommit decides about an offset commit before the member is looked at: check asks for the checks of member and
// generation (spec 2.1, 2.3).
func onCommit(s state, c claim) (check bool, code *kerr.Error) {
	named := c.generation >= 0 || c.member
	switch {
	case s == stateDead:
		return false, kerr.CoordinatorNotAvailable
	case c.generation < 0 && s == stateEmpty: // of a transaction too, whatever member it names: Kafka 4.4 does the same
		return false, nil
	case c.txn:
		return named, nil
	case named:
		return true, nil
	}
	return false, kerr.UnknownMemberID
}

// ballot is the protocols of one member in the order of its preference.
type ballot []Protocol

// selectProtocol picks the protocol of a generation: of those that all support, the one most members like best; between
// equals, the one the first member lists first. Empty: none is common.
func selectProtocol(members []ballot) string {
	supported := map[string]int{}
	for _, m := range members {
		seen := map[string]bool{}
		for _, p := range m {
			if !seen[p.Name] {
				seen[p.Name] = true
				supported[p.Name]++
			}
		}
	}
	votes := map[string]int{}
	for _, m := range members {
		for _, p := range m {
			if supported[p.Name] == len(members) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	if len(members) == 0 {
		return best
	}
	for _, p := range members[0] {
		if votes[p.Name] > votes[best] {
			best = p.Name
		}
	}
	return best
}
