package group

import (
	"maps"
	"testing"
)

func held(epoch int32, topic byte, partitions ...int32) epochMap {
	m := epochMap{}
	for p := range setOf(topic, partitions...) {
		m[p] = epoch
	}
	return m
}

func owned(topic byte, partitions ...int32) []partitionKey {
	return append([]partitionKey{}, setOf(topic, partitions...).sorted()...)
}

// TestReconcile: every row of the member's state machine (spec groups 5.2). The target is of epoch 7; topic 9 is not
// subscribed to.
func TestReconcile(t *testing.T) {
	for _, c := range []struct {
		name         string
		state        memberState
		epoch        int32
		assigned     epochMap
		revoking     epochMap
		target       partitionSet
		taken        partitionSet
		owned        []partitionKey
		resubscribed bool

		wantState    memberState
		wantEpoch    int32
		wantAssigned epochMap
		wantRevoking epochMap
		same         bool
	}{
		{name: "stable at the target's epoch", epoch: 7, assigned: held(6, 1, 0), target: setOf(1, 0, 1), same: true},
		{name: "new member, all free", target: setOf(1, 0, 1), owned: []partitionKey{},
			wantEpoch: 7, wantAssigned: held(7, 1, 0, 1)},
		{name: "new member, nothing for it", wantEpoch: 7, wantAssigned: epochMap{}},
		{name: "new member, some are taken", target: setOf(1, 0, 1), taken: setOf(1, 1),
			wantState: memberUnreleased, wantEpoch: 7, wantAssigned: held(7, 1, 0)},
		{name: "new member, all are taken", target: setOf(1, 0), taken: setOf(1, 0),
			wantState: memberUnreleased, wantEpoch: 7, wantAssigned: epochMap{}},
		{name: "keeps what it had, with its epoch", epoch: 6, assigned: held(4, 1, 0), target: setOf(1, 0, 1),
			taken: setOf(1, 0), wantEpoch: 7, wantAssigned: union2(held(4, 1, 0), held(7, 1, 1))},
		{name: "must revoke, has not said what it owns", epoch: 6, assigned: held(4, 1, 0, 1), target: setOf(1, 0),
			taken: setOf(1, 0, 1), wantState: memberUnrevoked, wantEpoch: 6, wantAssigned: held(4, 1, 0),
			wantRevoking: held(4, 1, 1)},
		{name: "must revoke before it is given more", epoch: 6, assigned: held(4, 1, 0), target: setOf(1, 1),
			taken: setOf(1, 0), wantState: memberUnrevoked, wantEpoch: 6, wantAssigned: epochMap{},
			wantRevoking: held(4, 1, 0)},
		{name: "has revoked already", epoch: 6, assigned: held(4, 1, 0), target: setOf(1, 1), taken: setOf(1, 0),
			owned: []partitionKey{}, wantEpoch: 7, wantAssigned: held(7, 1, 1)},
		{name: "unrevoked, no report", state: memberUnrevoked, epoch: 6, assigned: held(4, 1, 0), revoking: held(4, 1, 1),
			target: setOf(1, 0), taken: setOf(1, 0, 1), same: true},
		{name: "unrevoked, still owns one", state: memberUnrevoked, epoch: 6, assigned: held(4, 1, 0),
			revoking: held(4, 1, 1, 2), target: setOf(1, 0), taken: setOf(1, 0, 1, 2), owned: owned(1, 0, 2), same: true},
		{name: "unrevoked, has revoked", state: memberUnrevoked, epoch: 6, assigned: held(4, 1, 0), revoking: held(4, 1, 1),
			target: setOf(1, 0), taken: setOf(1, 0, 1), owned: owned(1, 0), wantEpoch: 7, wantAssigned: held(4, 1, 0)},
		{name: "unrevoked, has revoked, must revoke more", state: memberUnrevoked, epoch: 6, assigned: held(4, 1, 0, 2),
			revoking: held(4, 1, 1), target: setOf(1, 0), taken: setOf(1, 0, 1, 2), owned: owned(1, 0, 2),
			wantState: memberUnrevoked, wantEpoch: 7, wantAssigned: held(4, 1, 0), wantRevoking: held(4, 1, 2)},
		{name: "unrevoked, gets back what it gave up", state: memberUnrevoked, epoch: 6, assigned: held(4, 1, 0),
			revoking: held(4, 1, 1), target: setOf(1, 0, 1), taken: setOf(1, 0, 1), owned: owned(1, 0),
			wantEpoch: 7, wantAssigned: union2(held(4, 1, 0), held(7, 1, 1))},
		{name: "unreleased, still taken", state: memberUnreleased, epoch: 7, assigned: held(4, 1, 0), target: setOf(1, 0, 1),
			taken: setOf(1, 0, 1), wantState: memberUnreleased, wantEpoch: 7, wantAssigned: held(4, 1, 0)},
		{name: "unreleased, free now", state: memberUnreleased, epoch: 7, assigned: held(4, 1, 0), target: setOf(1, 0, 1),
			taken: setOf(1, 0), wantEpoch: 7, wantAssigned: union2(held(4, 1, 0), held(7, 1, 1))},
		{name: "unreleased, a newer target takes one away", state: memberUnreleased, epoch: 6, assigned: held(4, 1, 0),
			target: setOf(1, 1), taken: setOf(1, 0, 1), wantState: memberUnrevoked, wantEpoch: 6, wantAssigned: epochMap{},
			wantRevoking: held(4, 1, 0)},
		{name: "target of a topic it does not want", target: union(setOf(1, 0), setOf(9, 0)),
			wantEpoch: 7, wantAssigned: held(7, 1, 0)},
		{name: "stable, wants a topic no more", epoch: 7, assigned: union2(held(4, 1, 0), held(4, 9, 0)),
			target: union(setOf(1, 0), setOf(9, 0)), resubscribed: true, wantState: memberUnrevoked, wantEpoch: 7,
			wantAssigned: held(4, 1, 0), wantRevoking: held(4, 9, 0)},
		{name: "stable, wants a topic no more and has given it up", epoch: 7, assigned: union2(held(4, 1, 0), held(4, 9, 0)),
			target: setOf(1, 0), resubscribed: true, owned: owned(1, 0), wantEpoch: 7, wantAssigned: held(4, 1, 0)},
		{name: "stable, wants other topics but keeps all", epoch: 7, assigned: held(4, 1, 0), target: setOf(1, 0),
			resubscribed: true, same: true},
		{name: "unrevoked, wants another topic no more", state: memberUnrevoked, epoch: 6,
			assigned: union2(held(4, 1, 0), held(5, 9, 0)), revoking: held(4, 1, 1), target: setOf(1, 0),
			taken: setOf(1, 0, 1), resubscribed: true, wantState: memberUnrevoked, wantEpoch: 6, wantAssigned: held(4, 1, 0),
			wantRevoking: union2(held(4, 1, 1), held(5, 9, 0))},
		{name: "static member that comes back", epoch: 0, assigned: held(0, 1, 0), target: setOf(1, 0), taken: setOf(1, 0),
			owned: []partitionKey{}, wantEpoch: 7, wantAssigned: held(0, 1, 0)},
	} {
		m := &consumerMember{id: "m", state: c.state, epoch: c.epoch, previousEpoch: c.epoch - 1, assigned: c.assigned,
			revoking: c.revoking}
		got := reconcile(reconcileIn{member: m, target: c.target, targetEpoch: 7, owned: c.owned,
			resubscribed: c.resubscribed,
			wants:        func(id [16]byte) bool { return id[0] != 9 },
			taken:        func(p partitionKey) bool { _, is := c.taken[p]; return is }})
		if c.same {
			if got != m {
				t.Errorf("%s: %+v, want no change", c.name, got)
			}
			continue
		}
		if got.state != c.wantState || got.epoch != c.wantEpoch || !maps.Equal(got.assigned, c.wantAssigned) ||
			!maps.Equal(got.revoking, c.wantRevoking) {
			t.Errorf("%s: state %d, epoch %d, assigned %v, revoking %v; want %d, %d, %v, %v", c.name, got.state, got.epoch,
				got.assigned, got.revoking, c.wantState, c.wantEpoch, c.wantAssigned, c.wantRevoking)
		}
		if got != m && got.previousEpoch != c.epoch {
			t.Errorf("%s: previous epoch %d, want %d", c.name, got.previousEpoch, c.epoch)
		}
	}
}

func union2(sets ...epochMap) epochMap {
	all := epochMap{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}
