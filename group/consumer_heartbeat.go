package group

import (
	"maps"
	"math"
	"slices"

	"sekali/internal/match"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkConsumer tests what a ConsumerGroupHeartbeat says, before its group is looked at (spec groups 5.1, in order).
func checkConsumer(in *ConsumerIn) *kerr.Error {
	switch {
	case in.Group == "", in.InstanceGiven && in.Instance == "", in.Rack != nil && *in.Rack == "":
		return kerr.InvalidRequest
	case in.Generation < epochLeaveStatic:
		return kerr.InvalidRequest
	case in.Member.Member == "" && (in.Generation != epochJoin || in.Version >= 1):
		return kerr.InvalidRequest
	case in.Generation == epochJoin && (in.RebalanceMs == -1 || in.Owned == nil || len(in.Owned) > 0):
		return kerr.InvalidRequest
	case in.Generation == epochJoin && in.Topics == nil && (in.Regex == nil || in.Version < 1):
		return kerr.InvalidRequest
	case in.Generation == epochLeaveStatic && in.Instance == "":
		return kerr.InvalidRequest
	case tooLong(in.Group) || tooLong(in.Member.Member) || in.Regex != nil && tooLong(*in.Regex):
		return kerr.InvalidRequest // no key of a record could hold it
	}
	if code := checkAssignor(in.Assignor); code != nil {
		return code
	}
	if in.Assignor != nil && *in.Assignor == "" {
		return kerr.UnsupportedAssignor
	}
	if in.Regex != nil && *in.Regex != "" {
		if _, err := match.Whole(*in.Regex); err != nil {
			return kerr.InvalidRegularExpression
		}
	}
	return nil
}

func tooLong(s string) bool { return len(s) > math.MaxInt16 }

// consumerHeartbeat is a ConsumerGroupHeartbeat on the shard of its group. It makes the group when the first member
// joins, also of an empty classic one (spec 5.3).
func (s *shard) consumerHeartbeat(in ConsumerIn, done func(ConsumerOut, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(ConsumerOut{Member: in.Member.Member}, code) }
	if code := checkConsumer(&in); code != nil {
		refuse(code)
		return
	}
	g := s.groups[in.Group]
	switch {
	case g == nil && in.Generation != epochJoin:
		refuse(kerr.GroupIDNotFound)
		return
	case g == nil:
		g = s.newConsumer(in.Group)
	case g.consumer == nil && g.making > 0:
		refuse(kerr.CoordinatorNotAvailable) // a classic member is about to join
		return
	case g.consumer == nil && (in.Generation != epochJoin || g.classic.state != stateEmpty):
		refuse(kerr.GroupIDNotFound)
		return
	case g.consumer == nil:
		s.toConsumer(g)
	}
	c := g.consumer
	c.run(func(d *draft) codeDone { return c.answer(d, &in, done) })
}

// newConsumer puts a consumer group without members into the shard.
func (s *shard) newConsumer(id string) *group {
	g := &group{id: id, s: s}
	g.consumer = newConsumerGroup(g)
	s.groups[id] = g
	s.m.event(g, "", consumerEmpty)
	return g
}

// toConsumer makes a consumer group of an empty classic group. Its record goes with the batch that makes the first
// member durable; its offsets stay, and age on from where they were.
func (s *shard) toConsumer(g *group) {
	c := newConsumerGroup(g)
	c.was = g.classic
	if c.was.protocolType != "" {
		c.emptyMs = c.was.stateMs
	}
	g.classic, g.consumer = nil, c
}

// answer computes one heartbeat on a draft. A refused one has changed nothing.
func (c *consumerGroup) answer(d *draft, in *ConsumerIn, done func(ConsumerOut, *kerr.Error)) codeDone {
	out, code := d.heartbeat(in)
	if code == nil && in.Generation >= 0 {
		c.alive(out.Member)
	}
	return func(failed *kerr.Error) {
		if code == nil {
			code = failed
		}
		if code != nil {
			done(ConsumerOut{Member: in.Member.Member}, code)
			return
		}
		done(out, nil)
	}
}

func (d *draft) heartbeat(in *ConsumerIn) (ConsumerOut, *kerr.Error) {
	if in.Generation < 0 {
		return d.leave(in)
	}
	id := in.Member.Member
	if id == "" {
		id = d.c.g.s.m.uuid()
	}
	if d.full(id, in.Instance) {
		return ConsumerOut{}, kerr.GroupMaxSizeReached
	}
	old, code := d.find(in, id)
	if code != nil {
		return ConsumerOut{}, code
	}
	resubscribed := d.join(old, in, id)
	d.refresh(id, resubscribed)
	if d.state.targetEpoch < d.state.epoch {
		d.retarget()
	}
	before := d.state.members[id]
	after := d.reconcile(before, in.Owned, resubscribed)
	out := ConsumerOut{Member: id, Epoch: after.epoch, HeartbeatMs: d.c.g.s.m.cfg.ConsumerHeartbeatMs}
	full := in.Generation == epochJoin ||
		in.RebalanceMs != -1 && (in.Topics != nil || in.Regex != nil) && in.Owned != nil
	if full || !samePartitions(before.assigned, after.assigned) {
		out.Changed, out.Assigned = true, assignedTPs(after.assigned)
	}
	return out, nil
}

func samePartitions(a, b epochMap) bool {
	if len(a) != len(b) {
		return false
	}
	for p := range a {
		if _, is := b[p]; !is {
			return false
		}
	}
	return true
}

func assignedTPs(m epochMap) []TP {
	tps := make([]TP, 0, len(m))
	for _, p := range m.sorted() {
		tps = append(tps, TP{ID: p.id, Partition: p.partition})
	}
	return tps
}

// full reports whether the group takes no further member; those it has pass, and so do static ones that come back.
func (d *draft) full(id, instance string) bool {
	if len(d.state.members) < d.c.g.s.m.cfg.ConsumerSizeMax || d.state.members[id] != nil {
		return false
	}
	_, back := d.state.instances[instance]
	return !back
}

// find gives the member a heartbeat is from: nil for a new one, another one's for a static member that comes back under
// a new id.
func (d *draft) find(in *ConsumerIn, id string) (*consumerMember, *kerr.Error) {
	joins := in.Generation == epochJoin
	if in.Instance == "" {
		m := d.state.members[id]
		if m == nil && !joins {
			return nil, kerr.UnknownMemberID
		}
		return m, checkEpoch(m, in)
	}
	holder, known := d.state.instances[in.Instance]
	m := d.state.members[holder]
	switch {
	case !known && joins:
		return d.state.members[id], nil
	case !known:
		return nil, kerr.UnknownMemberID
	case joins && holder != id && m.epoch != epochLeaveStatic:
		return nil, kerr.UnreleasedInstanceID
	case joins:
		return m, nil
	case holder != id:
		return nil, kerr.FencedInstanceID
	}
	return m, checkEpoch(m, in)
}

// checkEpoch tests the epoch of a member: its own, or the one before if it does not claim more than it was given,
// because then the answer that told the new one was lost. Epoch 0 joins anew.
func checkEpoch(m *consumerMember, in *ConsumerIn) *kerr.Error {
	switch {
	case in.Generation == epochJoin || in.Generation == m.epoch:
		return nil
	case in.Generation > m.epoch || in.Generation != m.previousEpoch || in.Owned == nil:
		return kerr.FencedMemberEpoch
	}
	for _, tp := range in.Owned {
		if _, is := m.assigned[partitionKey{tp.ID, tp.Partition}]; !is {
			return kerr.FencedMemberEpoch
		}
	}
	return nil
}

// join brings what a heartbeat says about its member into the draft: a new member, a static one that comes back, or one
// whose metadata changed. It reports whether the member wants other topics than before.
func (d *draft) join(old *consumerMember, in *ConsumerIn, id string) (resubscribed bool) {
	m := consumerMember{id: id, previousEpoch: -1}
	if old != nil {
		m = *old
	}
	m.id, m.clientID, m.host = id, in.ClientID, in.Host
	if in.Instance != "" {
		m.instance = in.Instance
	}
	if in.Rack != nil {
		m.rack = *in.Rack
	}
	if in.RebalanceMs != -1 {
		m.rebalanceMs = in.RebalanceMs
	}
	if in.Assignor != nil {
		m.assignor = *in.Assignor
	}
	if in.Topics != nil {
		m.topics = slices.Sorted(slices.Values(in.Topics))
		m.topics = slices.Compact(m.topics)
	}
	if in.Regex != nil {
		m.regex, m.hasRegex = *in.Regex, true
	}
	switch {
	case old == nil:
		d.do(memberChange{id, &m})
		return true
	case old.epoch == epochLeaveStatic:
		d.replace(old, &m)
	case !m.sameMetadata(old):
		d.do(memberChange{id, &m})
	}
	return !m.sameSubscription(old)
}

// replace puts a static member that comes back into the place of what it left: same partitions, epoch 0.
func (d *draft) replace(old, m *consumerMember) {
	m.epoch, m.previousEpoch = 0, 0
	target := d.state.target[old.id]
	if old.id != m.id {
		if d.state.members[m.id] != nil {
			d.remove(m.id) // it was a member without the instance: its partitions are to be given to somebody
		}
		d.do(currentChange{id: old.id})
		d.do(targetChange{id: old.id})
		d.do(memberChange{id: old.id})
	}
	d.do(memberChange{m.id, m})
	if target != nil {
		d.do(targetChange{m.id, target})
	}
	d.do(currentChange{m.id, m})
}

// leave is a heartbeat with which a member goes: for good, or (static) to come back.
func (d *draft) leave(in *ConsumerIn) (ConsumerOut, *kerr.Error) {
	id := in.Member.Member
	if in.Instance != "" {
		holder, known := d.state.instances[in.Instance]
		if !known {
			return ConsumerOut{}, kerr.UnknownMemberID
		}
		if holder != id {
			return ConsumerOut{}, kerr.FencedInstanceID
		}
	}
	m := d.state.members[id]
	if m == nil {
		return ConsumerOut{}, kerr.UnknownMemberID
	}
	if in.Generation == epochLeave {
		d.remove(id)
		return ConsumerOut{Member: id, Epoch: epochLeave}, nil
	}
	away := *m
	away.epoch, away.revoking, away.assigned = epochLeaveStatic, nil, epochMap{}
	for p := range m.assigned {
		away.assigned[p] = 0
	}
	if !away.sameCurrent(m) {
		d.do(currentChange{id, &away})
	}
	return ConsumerOut{Member: id, Epoch: epochLeaveStatic}, nil
}

// remove takes a member out of the group; the next heartbeat of another one finds a new target for its partitions.
func (d *draft) remove(id string) {
	d.do(currentChange{id: id})
	d.do(targetChange{id: id})
	d.do(memberChange{id: id})
	d.dropRegexes()
	d.bump()
}

// bump raises the group epoch.
func (d *draft) bump() {
	d.do(groupChange{epoch: d.state.epoch + 1, hash: topicsHash(d.topics())})
}

// refresh resolves regular expressions and raises the group epoch if members, subscriptions or topics are not those of
// the last epoch.
func (d *draft) refresh(id string, resubscribed bool) {
	stale := d.c.stale
	d.c.stale = false
	m := d.state.members[id]
	changed := resubscribed
	if stale {
		changed = d.resolveAll() || changed
	} else if m.regex != "" && d.state.regexes[m.regex] == nil {
		changed = d.resolve(m.regex) || changed
	}
	if resubscribed {
		d.dropRegexes()
	}
	if changed || stale && topicsHash(d.topics()) != d.state.hash {
		d.bump()
	}
}

// retarget computes the target of every member for the present group epoch.
func (d *draft) retarget() {
	topics := d.topics()
	index := make(map[string]int, len(topics))
	for i, t := range topics {
		index[t.name] = i
	}
	ids := slices.Sorted(maps.Keys(d.state.members))
	members := make([]assignMember, 0, len(ids))
	for _, id := range ids {
		m := d.state.members[id]
		a := assignMember{id: id, instance: m.instance, current: d.state.target[id]}
		for _, name := range d.state.topicsOf(m) {
			if i, known := index[name]; known {
				a.topics = append(a.topics, i)
			}
		}
		members = append(members, a)
	}
	next := assignors[d.state.preferredAssignor()](topics, members)
	for _, id := range ids {
		if old := d.state.target[id]; old == nil || !maps.Equal(old, next[id]) {
			d.do(targetChange{id, next[id]})
		}
	}
	d.do(targetEpochChange{epoch: d.state.epoch})
}

// reconcile takes a member a step towards its target.
func (d *draft) reconcile(m *consumerMember, owned []TP, resubscribed bool) *consumerMember {
	if m.reconciled(d.state.targetEpoch) && !resubscribed {
		return m
	}
	wanted := map[[16]byte]bool{}
	for _, name := range d.state.topicsOf(m) {
		if id, _, ok := d.c.g.s.m.topics.Lookup(name); ok {
			wanted[id] = true
		}
	}
	in := reconcileIn{member: m, target: d.state.target[m.id], targetEpoch: d.state.targetEpoch,
		resubscribed: resubscribed,
		wants:        func(id [16]byte) bool { return wanted[id] },
		taken:        func(p partitionKey) bool { _, is := d.state.owner[p]; return is },
	}
	if owned != nil {
		in.owned = make([]partitionKey, len(owned))
		for i, tp := range owned {
			in.owned[i] = partitionKey{tp.ID, tp.Partition}
		}
	}
	next := reconcile(in)
	if next != m {
		d.do(currentChange{m.id, next})
	}
	return next
}
