package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkCommit tests the member of an OffsetCommit or TxnOffsetCommit, one code per partition: UNKNOWN_MEMBER_ID, or
// STALE_MEMBER_EPOCH for an epoch above the member's, or below it for a partition the member has been given since
// (KIP-1251). Without members or a member (transactions) anybody may commit.
func (c *consumerGroup) checkCommit(in *CommitIn) []*kerr.Error {
	codes := make([]*kerr.Error, len(in.TPs))
	if in.Generation < 0 && len(c.state.members) == 0 {
		return codes
	}
	id := in.Member.Member
	if in.PID >= 0 && in.Generation == -1 && id == "" && in.Instance == "" {
		return codes
	}
	m := c.state.members[id]
	switch {
	case m == nil:
		fill(codes, kerr.UnknownMemberID)
	case in.Generation == m.epoch:
	case in.Generation > m.epoch:
		fill(codes, kerr.StaleMemberEpoch)
	default:
		for i, tp := range in.TPs {
			if since, held := c.heldSince(m, tp); !held || in.Generation < since {
				codes[i] = kerr.StaleMemberEpoch
			}
		}
	}
	return codes
}

// heldSince is the member epoch with which a partition was given to the member that has it, or still has to revoke it.
func (c *consumerGroup) heldSince(m *consumerMember, tp TP) (epoch int32, held bool) {
	if tp.ID == ([16]byte{}) {
		tp.ID, _, _ = c.g.s.m.topics.Lookup(tp.Topic)
	}
	p := partitionKey{tp.ID, tp.Partition}
	if epoch, held = m.assigned[p]; held {
		return epoch, true
	}
	epoch, held = m.revoking[p]
	return epoch, held
}

// checkFetch tests the member of an OffsetFetch, where one is named.
func (c *consumerGroup) checkFetch(in *FetchIn) *kerr.Error {
	if in.Member.Member == "" && in.Generation < 0 {
		return nil
	}
	m := c.state.members[in.Member.Member]
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case in.Generation != m.epoch:
		return kerr.StaleMemberEpoch
	}
	return nil
}

// info tells what ConsumerGroupDescribe and ListGroups show; members sorted by id.
func (c *consumerGroup) info() Info {
	st := c.state
	in := Info{Group: c.g.id, Type: TypeConsumer, State: st.name(), ProtocolType: typeConsumer,
		Generation: st.epoch, AssignmentEpoch: st.targetEpoch, Assignor: st.preferredAssignor()}
	names := map[[16]byte]string{}
	for _, name := range st.subscribed() {
		if id, _, ok := c.g.s.m.topics.Lookup(name); ok {
			names[id] = name
		}
	}
	for _, id := range slices.Sorted(maps.Keys(st.members)) {
		m := st.members[id]
		target := epochMap{}
		for p := range st.target[id] {
			target[p] = 0
		}
		in.Members = append(in.Members, MemberInfo{
			Member: id, Instance: m.instance, ClientID: m.clientID, Host: m.host,
			Consumer: &ConsumerMemberInfo{Epoch: m.epoch, Rack: m.rack, Regex: m.regex, Topics: slices.Clone(m.topics),
				Assigned: namedTPs(m.assigned, names), Target: namedTPs(target, names)},
		})
	}
	return in
}

// namedTPs leaves out topics that are not subscribed to any more: they may be gone, and their names are not known.
func namedTPs(m epochMap, names map[[16]byte]string) []TP {
	tps := assignedTPs(m)
	for i := range tps {
		tps[i].Topic = names[tps[i].ID]
	}
	return slices.DeleteFunc(tps, func(tp TP) bool { return tp.Topic == "" })
}

// restoreConsumer makes a group from the last record of each of its keys. Errors: errRecord.
func (s *shard) restoreConsumer(id string, recs []Record) error {
	st := newConsumerState()
	for _, r := range recs {
		_, c, err := decodeConsumer(r.Key, r.Value)
		if err != nil {
			return err
		}
		c.apply(st)
	}
	s.newConsumer(id).consumer.state = st
	return nil
}

// consumersLoaded starts the sessions of all members once the shard is replayed: each has the full time to be heard of.
func (s *shard) consumersLoaded() {
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		c := s.groups[id].consumer
		if c == nil {
			continue
		}
		for _, member := range slices.Sorted(maps.Keys(c.state.members)) {
			c.watch(c.state.members[member])
		}
		if len(c.state.members) == 0 {
			c.emptyMs = s.wall() // no record tells since when; offsets must not go early
		}
		c.began = s.now()
		s.m.event(c.g, consumerEmpty, c.state.name())
	}
}
