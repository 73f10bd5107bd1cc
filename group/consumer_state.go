package group

import (
	"maps"
	"slices"
)

// memberState is how far a member has come towards its target; the values are those of the record.
type memberState int8

const (
	memberStable     memberState = 0 // owns its target as of its epoch
	memberUnrevoked  memberState = 1 // must first give up partitions that it owns
	memberUnreleased memberState = 2 // waits for partitions that others still own
)

// Member epochs with a meaning of their own.
const (
	epochJoin        = 0
	epochLeave       = -1
	epochLeaveStatic = -2
)

// epochMap says of partitions since which member epoch its member has had them (KIP-1251). Once it is part of a
// consumerState it never changes.
type epochMap map[partitionKey]int32

// consumerMember is one member of a consumer group. A consumerMember in a consumerState never changes: it is replaced.
type consumerMember struct {
	id, instance, clientID, host string
	rack, regex, assignor        string
	hasRegex                     bool     // a regular expression was given, perhaps the empty one
	topics                       []string // sorted, each once
	rebalanceMs                  int32

	epoch, previousEpoch int32
	state                memberState
	assigned, revoking   epochMap
}

// reconciled reports whether the member owns all of its target as of assignment epoch at.
func (m *consumerMember) reconciled(at int32) bool { return m.state == memberStable && m.epoch == at }

// sameSubscription reports whether two versions of a member want the same topics.
func (m *consumerMember) sameSubscription(o *consumerMember) bool {
	return m.regex == o.regex && slices.Equal(m.topics, o.topics)
}

// sameMetadata reports whether two versions of a member have one metadata record.
func (m *consumerMember) sameMetadata(o *consumerMember) bool {
	return m.sameSubscription(o) && m.hasRegex == o.hasRegex && m.instance == o.instance && m.clientID == o.clientID &&
		m.host == o.host && m.rack == o.rack && m.assignor == o.assignor && m.rebalanceMs == o.rebalanceMs
}

// sameCurrent reports whether two versions of a member have one assignment record.
func (m *consumerMember) sameCurrent(o *consumerMember) bool {
	return m.epoch == o.epoch && m.previousEpoch == o.previousEpoch && m.state == o.state &&
		maps.Equal(m.assigned, o.assigned) && maps.Equal(m.revoking, o.revoking)
}

// resolvedRegex is what a regular expression matched.
type resolvedRegex struct {
	topics  []string // sorted
	version int64    // of the topics, unused here, kept for Kafka
	at      int64    // wall milliseconds
}

// consumerState is what the records of one consumer group say: the same whether it was built live or by replay (I14).
// Changes are applied to a clone, which replaces the state of the group once their records are durable.
type consumerState struct {
	epoch       int32
	hash        int64 // of the subscribed topics' ids and partition counts as of epoch
	targetEpoch int32
	members     map[string]*consumerMember
	instances   map[string]string // instance id -> member id
	target      map[string]partitionSet
	regexes     map[string]*resolvedRegex
	owner       map[partitionKey]string // who owns a partition or still has to revoke it
}

func newConsumerState() *consumerState {
	return &consumerState{members: map[string]*consumerMember{}, instances: map[string]string{},
		target: map[string]partitionSet{}, regexes: map[string]*resolvedRegex{}, owner: map[partitionKey]string{}}
}

func (st *consumerState) clone() *consumerState {
	c := *st
	c.members, c.instances = maps.Clone(st.members), maps.Clone(st.instances)
	c.target, c.regexes, c.owner = maps.Clone(st.target), maps.Clone(st.regexes), maps.Clone(st.owner)
	return &c
}

// change is one record of a group: applied to a state, and written as what key and value give.
type change interface {
	apply(st *consumerState)
	record(group string) Record
}

// The changes, one per record type. A nil member, set or resolution is a tombstone.
type (
	groupChange struct { // key 3
		epoch int32
		hash  int64
		gone  bool
	}
	memberChange struct { // key 5
		id     string
		member *consumerMember // its metadata counts
	}
	targetEpochChange struct { // key 6
		epoch int32
		gone  bool
	}
	targetChange struct { // key 7
		id  string
		set partitionSet
	}
	currentChange struct { // key 8
		id     string
		member *consumerMember // its epochs and assignment count
	}
	regexChange struct { // key 16
		regex    string
		resolved *resolvedRegex
	}
	// partitionMetadataChange is key 4, which nobody writes any more: it is dropped with its group.
	partitionMetadataChange struct{}
)

func (c groupChange) apply(st *consumerState) { st.epoch, st.hash = c.epoch, c.hash }

func (c memberChange) apply(st *consumerState) {
	old := st.members[c.id]
	if old != nil && old.instance != "" && st.instances[old.instance] == c.id {
		delete(st.instances, old.instance)
	}
	if c.member == nil {
		if old != nil {
			st.disown(old)
			delete(st.members, c.id)
		}
		return
	}
	m := *c.member
	m.epoch, m.previousEpoch, m.state, m.assigned, m.revoking = 0, -1, memberStable, nil, nil
	if old != nil {
		m.epoch, m.previousEpoch, m.state = old.epoch, old.previousEpoch, old.state
		m.assigned, m.revoking = old.assigned, old.revoking
	}
	st.members[c.id] = &m
	if m.instance != "" {
		st.instances[m.instance] = c.id
	}
}

func (c targetEpochChange) apply(st *consumerState) { st.targetEpoch = c.epoch }

func (c targetChange) apply(st *consumerState) {
	if c.set == nil {
		delete(st.target, c.id)
		return
	}
	st.target[c.id] = c.set
}

func (c currentChange) apply(st *consumerState) {
	old := st.members[c.id]
	if c.member == nil {
		if old != nil {
			st.disown(old)
			m := *old
			m.epoch, m.previousEpoch, m.state, m.assigned, m.revoking = 0, -1, memberStable, nil, nil
			st.members[c.id] = &m
		}
		return
	}
	m := consumerMember{id: c.id}
	if old != nil { // else its metadata comes later in the log
		st.disown(old)
		m = *old
	}
	m.epoch, m.previousEpoch, m.state = c.member.epoch, c.member.previousEpoch, c.member.state
	m.assigned, m.revoking = c.member.assigned, c.member.revoking
	st.members[c.id] = &m
	for _, owned := range []epochMap{m.assigned, m.revoking} {
		for p := range owned {
			st.owner[p] = c.id
		}
	}
}

// disown takes a member's partitions from it, those that have not gone to another one since.
func (st *consumerState) disown(m *consumerMember) {
	for _, owned := range []epochMap{m.assigned, m.revoking} {
		for p := range owned {
			if st.owner[p] == m.id {
				delete(st.owner, p)
			}
		}
	}
}

func (c regexChange) apply(st *consumerState) {
	if c.resolved == nil {
		delete(st.regexes, c.regex)
		return
	}
	st.regexes[c.regex] = c.resolved
}

func (partitionMetadataChange) apply(*consumerState) {}

// topicsOf are the names a member wants: those it names and those its regular expression matched.
func (st *consumerState) topicsOf(m *consumerMember) []string {
	r := st.regexes[m.regex]
	if m.regex == "" || r == nil {
		return m.topics
	}
	all := slices.Concat(m.topics, r.topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// subscribed are the names that any member wants, sorted.
func (st *consumerState) subscribed() []string {
	all := map[string]struct{}{}
	for _, m := range st.members {
		for _, name := range m.topics {
			all[name] = struct{}{}
		}
		if r := st.regexes[m.regex]; m.regex != "" && r != nil {
			for _, name := range r.topics {
				all[name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// The states of a consumer group as ListGroups and ConsumerGroupDescribe name them.
const (
	consumerEmpty       = "Empty"
	consumerAssigning   = "Assigning"
	consumerReconciling = "Reconciling"
	consumerStable      = "Stable"
)

// name is the state of the group: Assigning while the target is older than the group, Reconciling until every member
// has it.
func (st *consumerState) name() string {
	switch {
	case len(st.members) == 0:
		return consumerEmpty
	case st.epoch > st.targetEpoch:
		return consumerAssigning
	}
	for _, m := range st.members {
		if !m.reconciled(st.targetEpoch) {
			return consumerReconciling
		}
	}
	return consumerStable
}

// preferredAssignor is the one most members ask for; of equals the first by name, uniform where nobody asks.
func (st *consumerState) preferredAssignor() string {
	votes := map[string]int{}
	for _, m := range st.members {
		if m.assignor != "" && assignors[m.assignor] != nil {
			votes[m.assignor]++
		}
	}
	best := AssignorUniform
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// tombstones delete every record of the state.
func (st *consumerState) tombstones() []change {
	var all []change
	for _, id := range slices.Sorted(maps.Keys(st.members)) {
		all = append(all, currentChange{id: id})
	}
	for _, id := range slices.Sorted(maps.Keys(st.target)) {
		all = append(all, targetChange{id: id})
	}
	for _, regex := range slices.Sorted(maps.Keys(st.regexes)) {
		all = append(all, regexChange{regex: regex})
	}
	for _, id := range slices.Sorted(maps.Keys(st.members)) {
		all = append(all, memberChange{id: id})
	}
	return append(all, targetEpochChange{gone: true}, partitionMetadataChange{}, groupChange{gone: true})
}
