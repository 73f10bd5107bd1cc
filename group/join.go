package group

import (
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// freshTimeout is how long a member that has not seen a generation may wait: it cannot heartbeat, so nothing else
// notices that its client is gone (Kafka classicGroupNewMemberJoinTimeoutMs).
const freshTimeout = 5 * time.Minute

// join is a JoinGroup on the shard of its group (spec 1.2).
func (s *shard) join(in JoinIn, done joinDone) {
	if in.RebalanceMs < 0 {
		in.RebalanceMs = in.SessionMs
	}
	g := s.groups[in.Group]
	switch {
	case g == nil && in.Member.Member != "":
		refuseJoin(&in, done, kerr.UnknownMemberID)
	case g == nil:
		s.create(in, done)
	case g.consumer != nil && !g.consumer.empty():
		refuseJoin(&in, done, kerr.InconsistentGroupProtocol)
	case g.consumer != nil && in.Member.Member != "":
		refuseJoin(&in, done, kerr.UnknownMemberID)
	case g.consumer != nil:
		s.toClassic(g, in, done)
	default:
		g.classic.join(&in, done)
	}
}

// refuseJoin answers with a code: generation -1 and the id the member gave.
func refuseJoin(in *JoinIn, done joinDone, code *kerr.Error) {
	done(JoinOut{Member: in.Member.Member, Generation: -1}, code)
}

// create makes a group durable before its first member joins.
func (s *shard) create(in JoinIn, done joinDone) {
	if in.ProtocolType == "" || len(in.Protocols) == 0 {
		refuseJoin(&in, done, kerr.InconsistentGroupProtocol)
		return
	}
	g := s.newClassic(in.Group)
	g.making++
	s.append([]Record{encodeClassic(g.id, g.classic.value(nil))}, func(_ int64, code *kerr.Error) {
		g.making--
		switch {
		case code == nil && (g.dead || s.closing):
			refuseJoin(&in, done, kerr.CoordinatorNotAvailable)
			return
		case code == nil:
			s.join(in, done)
			return
		}
		if s.groups[g.id] == g && !g.dead && g.making == 0 && g.empty() && g.offsets.none() && !g.offsets.busy() {
			s.m.event(g, stateEmpty.String(), "")
			s.forget(g)
		}
		refuseJoin(&in, done, code)
	})
}

// toClassic makes a classic group of an empty consumer group (spec 5.3), durably before the first member joins.
func (s *shard) toClassic(g *group, in JoinIn, done joinDone) {
	old := g.consumer
	c := &classic{g: g, stateMs: s.wall(), protocolType: typeConsumer} // offsets age from here, not from their commit
	c.reset()
	recs := append(old.tombstones(), encodeClassic(g.id, c.value(nil)))
	g.dead = true
	s.append(recs, func(_ int64, code *kerr.Error) {
		g.dead = false
		if code == nil && s.closing {
			code = kerr.CoordinatorNotAvailable
		}
		if code != nil {
			refuseJoin(&in, done, code)
			return
		}
		s.m.event(g, old.info().State, "")
		old.closing()
		g.consumer, g.classic = nil, c
		s.m.event(g, "", stateEmpty.String())
		s.join(in, done)
	})
}

// join decides about a JoinGroup for a group that exists.
func (c *classic) join(in *JoinIn, done joinDone) {
	id := in.Member.Member
	if c.state == stateDead {
		refuseJoin(in, done, kerr.CoordinatorNotAvailable)
		return
	}
	m := c.byID[id]
	if id == "" && in.Instance != "" {
		m = c.statics[in.Instance]
	}
	if !accepts(c.state, m != nil, m != nil && m.join != nil, len(c.members), c.awaiting, c.g.s.m.cfg.SizeMax) {
		if m != nil {
			c.removeMember(m)
		}
		done(JoinOut{Generation: -1}, kerr.GroupMaxSizeReached)
		return
	}
	if !fits(c.state, c.protocolType, in.ProtocolType, len(in.Protocols), c.common(in.Protocols)) {
		refuseJoin(in, done, kerr.InconsistentGroupProtocol)
		return
	}
	switch {
	case id == "" && m != nil:
		c.replaceStatic(m, in, done)
	case id == "" && in.Instance == "" && in.Version >= 4:
		c.issue(in, done)
	case id == "":
		c.add(c.newMemberID(in), in, done)
	case c.pending[id] != nil && in.Instance == "":
		c.g.s.stop(c.pending[id])
		delete(c.pending, id)
		c.add(id, in, done)
	default:
		c.rejoin(in, done)
	}
}

// issue hands a member id to a new member, which has to come back with it (KIP-394). The group waits for it as long as
// its session would last.
func (c *classic) issue(in *JoinIn, done joinDone) {
	id := c.newMemberID(in)
	session := time.Duration(in.SessionMs) * time.Millisecond
	c.pending[id] = c.g.s.after(session, func() {
		delete(c.pending, id)
		c.complete()
	})
	done(JoinOut{Member: id, Generation: -1}, kerr.MemberIDRequired)
}

// newMemberID is the instance or client id and a random UUID. The start of an id that would be too long for a string of
// the protocol, and so for the record of the group, is cut: the UUID alone makes it unique.
func (c *classic) newMemberID(in *JoinIn) string {
	prefix := in.ClientID
	if in.Instance != "" {
		prefix = in.Instance
	}
	suffix := "-" + c.g.s.m.uuid()
	if room := math.MaxInt16 - len(suffix); len(prefix) > room {
		prefix = strings.ToValidUTF8(prefix[:room], "")
	}
	return prefix + suffix
}

// uuid is a random UUID (version 4) in its usual form.
func (m *Manager) uuid() string {
	var b [16]byte
	if m.cfg.Random != nil {
		m.cfg.Random(b[:])
	} else {
		rand.Read(b[:])
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// add makes a member of a JoinGroup and parks it.
func (c *classic) add(id string, in *JoinIn, done joinDone) {
	m := &member{id: id, instance: in.Instance, clientID: in.ClientID, host: in.Host, fresh: true}
	m.update(in)
	if len(c.members) == 0 {
		c.protocolType = in.ProtocolType
	}
	if c.state == statePreparing && c.initial {
		c.newMember = true
	}
	c.insert(m)
	c.park(m, done)
	c.expireIn(m, freshTimeout)
	c.rebalanceOrComplete()
}

// rejoin is a JoinGroup of a member that says it is known.
func (c *classic) rejoin(in *JoinIn, done joinDone) {
	m, code := c.known(&in.Member)
	if code != nil {
		refuseJoin(in, done, code)
		return
	}
	act, code := rejoin(c.state, c.leader == m.id, m.matches(in.Protocols))
	switch act {
	case actRefuse:
		refuseJoin(in, done, code)
	case actCurrent:
		c.renew(m)
		done(c.current(m, c.state == stateCompleting), nil)
	default:
		m.update(in)
		c.park(m, done)
		c.rebalanceOrComplete()
	}
}

// replaceStatic gives the place of a static member to its next incarnation, which has a new member id.
func (c *classic) replaceStatic(m *member, in *JoinIn, done joinDone) {
	was, oldID, oldLeader := *m, m.id, c.leader
	c.answerJoin(m, JoinOut{Member: oldID, Generation: -1}, kerr.FencedInstanceID)
	c.answerSync(m, SyncOut{}, kerr.FencedInstanceID)
	c.rename(m, c.newMemberID(in))
	m.update(in)
	m.clientID, m.host = in.ClientID, in.Host
	act, code := replace(c.state, c.state == stateStable && c.selected() != c.protocol)
	switch act {
	case actRefuse:
		c.rename(m, oldID)
		refuseJoin(in, done, code)
		return
	case actStore:
		c.renew(m)
		c.storeStatic(m, &was, in, oldLeader, done)
		return
	}
	c.park(m, done)
	c.renew(m)
	c.rebalanceOrComplete()
}

// rename gives a member another id; leadership goes with it.
func (c *classic) rename(m *member, id string) {
	if c.leader == m.id {
		c.leader = id
	}
	delete(c.byID, m.id)
	if c.pendingSync[m.id] {
		delete(c.pendingSync, m.id)
		c.pendingSync[id] = true
	}
	m.id = id
	c.byID[id] = m
}

// storeStatic writes the group with the new id of a static member and answers with the running generation. A failed
// write gives the old id back.
func (c *classic) storeStatic(m, was *member, in *JoinIn, oldLeader string, done joinDone) {
	id, generation, version := m.id, c.generation, in.Version
	c.park(m, done)
	rec := encodeClassic(c.g.id, c.value(func(m *member) []byte { return m.assignment }))
	c.g.s.append([]Record{rec}, func(_ int64, code *kerr.Error) {
		if m.id != id || c.byID[id] != m {
			return
		}
		if code != nil {
			c.answerJoin(m, JoinOut{Generation: -1}, code)
			c.rename(m, was.id)
			m.protocols, m.sessionMs, m.rebalanceMs = was.protocols, was.sessionMs, was.rebalanceMs
			m.clientID, m.host = was.clientID, was.host
			c.renew(m)
			return
		}
		if c.state != stateStable || c.generation != generation {
			return
		}
		c.renew(m)
		out := c.current(m, version >= 9)
		out.SkipAssignment = version >= 9 && c.leader == m.id
		if version < 9 {
			out.Leader = oldLeader
		}
		c.answerJoin(m, out, nil)
	})
}

// current is the answer with the running generation; the leader gets the members if list is set.
func (c *classic) current(m *member, list bool) JoinOut {
	out := JoinOut{
		Member: m.id, Leader: c.leader, ProtocolType: c.protocolType, Protocol: c.protocol, Generation: c.generation,
	}
	if !list || c.leader != m.id {
		return out
	}
	out.Members = make([]JoinMember, len(c.members))
	for i, o := range c.members {
		out.Members[i] = JoinMember{Member: o.id, Instance: o.instance, Metadata: o.metadata(c.protocol)}
	}
	return out
}

// rebalanceOrComplete begins a rebalance, or ends its phase of joining if nobody is missing any more.
func (c *classic) rebalanceOrComplete() {
	if c.state == stateEmpty && len(c.members) == 0 {
		return
	}
	if legal(c.state, statePreparing) {
		c.prepare()
		return
	}
	c.complete()
}

// prepare begins a rebalance (G1, G2, G3).
func (c *classic) prepare() {
	s := c.g.s
	if c.state == stateCompleting {
		c.failSync(kerr.RebalanceInProgress)
	}
	s.stop(c.syncTimer)
	c.pendingSync = map[string]bool{}
	c.writing = false
	c.initial = c.state == stateEmpty
	c.began = s.now()
	c.move(statePreparing)
	if c.initial {
		c.newMember = false
		delay := s.m.cfg.InitialDelayMs
		left := max(int32(c.rebalanceMs()/time.Millisecond)-delay, 0)
		c.armInitial(delay, left)
		return
	}
	if allJoined(c.state, c.initial, len(c.members), c.awaiting, len(c.pending)) {
		c.finish()
		return
	}
	c.armRebalance()
}

// armInitial waits delay milliseconds for more members; without a delay the phase ends at once.
func (c *classic) armInitial(delay, left int32) {
	if delay <= 0 {
		c.finish()
		return
	}
	c.rebalance = c.g.s.after(time.Duration(delay)*time.Millisecond, func() {
		next, left, again := delayAgain(c.g.s.m.cfg.InitialDelayMs, left, c.newMember)
		c.newMember = false
		if again {
			c.armInitial(next, left)
			return
		}
		c.finish()
	})
}

func (c *classic) armRebalance() {
	c.g.s.stop(c.rebalance)
	c.rebalance = c.g.s.after(max(c.rebalanceMs(), time.Millisecond), c.finish) // a client may say 0
}

// complete ends the phase of joining if nobody is missing.
func (c *classic) complete() {
	if allJoined(c.state, c.initial, len(c.members), c.awaiting, len(c.pending)) {
		c.finish()
	}
}

// finish ends the phase of joining: by all being there, or by the timer (G4, G5, G7).
func (c *classic) finish() {
	s := c.g.s
	s.stop(c.rebalance)
	c.rebalance = nil
	for _, m := range slices.Clone(c.members) {
		if m.join == nil && m.instance == "" {
			c.drop(m)
		}
	}
	switch completion(len(c.members), c.awaiting) {
	case outAgain:
		c.armRebalance()
	case outEmpty:
		c.initial = false
		c.generation++
		c.protocol, c.leader = "", ""
		c.subscribe()
		c.move(stateEmpty)
		s.append([]Record{encodeClassic(c.g.id, c.value(nil))}, func(int64, *kerr.Error) {})
	case outComplete:
		c.generate()
	}
}

// generate makes the next generation and answers the parked JoinGroups.
func (c *classic) generate() {
	s := c.g.s
	c.initial = false
	if m := c.byID[c.leader]; m == nil || m.join == nil {
		for _, m := range c.members {
			if m.join != nil {
				c.leader = m.id
				break
			}
		}
	}
	c.generation++
	c.protocol = c.selected()
	c.subscribe()
	c.move(stateCompleting)
	c.pendingSync = map[string]bool{}
	for _, m := range c.members {
		c.pendingSync[m.id] = true
	}
	if f := s.m.cfg.Events.Rebalanced; f != nil {
		f(TypeClassic, s.now()-c.began, len(c.members))
	}
	generation := c.generation
	c.syncTimer = s.after(c.rebalanceMs(), func() { c.syncExpired(generation) })
	for _, m := range c.members {
		if m.join != nil {
			m.fresh = false
			c.renew(m)
			c.answerJoin(m, c.current(m, true), nil)
		}
	}
}
