package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// typeConsumer is the protocol type of consumers; others are Connect and what people make up.
const typeConsumer = "consumer"

// classic is the membership of a group of the classic protocol, of a simple group (no protocol type), or of an empty
// one. It belongs to the shard of its group.
type classic struct {
	g            *group
	state        state
	stateMs      int64 // wall time at which the state began
	protocolType string
	protocol     string // selected; empty: none
	leader       string
	generation   int32

	members []*member // in the order in which they joined
	byID    map[string]*member
	statics map[string]*member // by instance id
	pending map[string]*timer  // member ids issued that have not joined yet

	awaiting    int // parked JoinGroups
	initial     bool
	newMember   bool // one joined since the last firing of the initial delay
	rebalance   *timer
	began       time.Duration // of the rebalance
	pendingSync map[string]bool
	syncTimer   *timer
	writing     bool            // the leader's assignment of this generation is on its way to the disk
	topics      map[string]bool // subscribed; nil: not known
}

// member is one member of a classic group.
type member struct {
	id, instance, clientID, host string
	protocols                    []Protocol
	sessionMs, rebalanceMs       int32
	assignment                   []byte
	join                         joinDone // parked JoinGroup
	sync                         syncDone // parked SyncGroup
	fresh                        bool     // has not seen a generation: it cannot heartbeat
	deadline                     time.Duration
	timer                        *timer
}

// newClassic puts a group without members into the shard.
func (s *shard) newClassic(id string) *group {
	g := &group{id: id, s: s}
	g.classic = &classic{g: g, stateMs: s.wall()}
	g.classic.reset()
	s.groups[id] = g
	s.m.event(g, "", stateEmpty.String())
	return g
}

func (c *classic) reset() {
	c.byID, c.statics = map[string]*member{}, map[string]*member{}
	c.pending, c.pendingSync = map[string]*timer{}, map[string]bool{}
	c.topics = map[string]bool{}
}

// restoreClassic puts a group into the shard as its last record says: Stable with members, else Empty.
func (s *shard) restoreClassic(id string, v *kmsg.GroupMetadataValue) *group {
	g := s.newClassic(id)
	c := g.classic
	c.protocolType, c.generation, c.stateMs = v.ProtocolType, v.Generation, v.CurrentStateTimestamp
	if v.Protocol != nil {
		c.protocol = *v.Protocol
	}
	if v.Leader != nil {
		c.leader = *v.Leader
	}
	if v.Version < 2 || c.stateMs < 0 {
		c.stateMs = s.wall()
	}
	if len(v.Members) == 0 {
		c.protocol, c.leader = "", ""
		return g
	}
	c.state = stateStable
	for i := range v.Members {
		r := &v.Members[i]
		m := &member{
			id: r.MemberID, clientID: r.ClientID, host: r.ClientHost,
			protocols: []Protocol{{Name: c.protocol, Metadata: r.Subscription}},
			sessionMs: r.SessionTimeoutMillis, rebalanceMs: r.RebalanceTimeoutMillis, assignment: r.Assignment,
		}
		if r.InstanceID != nil {
			m.instance = *r.InstanceID
		}
		if v.Version < 1 {
			m.rebalanceMs = m.sessionMs
		}
		c.insert(m)
		c.renew(m)
	}
	s.m.event(g, stateEmpty.String(), stateStable.String())
	c.subscribe()
	if len(c.members) > s.m.cfg.SizeMax {
		c.prepare()
	}
	return g
}

// value is the group record of the present members with these assignments.
func (c *classic) value(assigned func(*member) []byte) *kmsg.GroupMetadataValue {
	v := new(kmsg.NewGroupMetadataValue())
	v.ProtocolType, v.Generation, v.CurrentStateTimestamp = c.protocolType, c.generation, c.stateMs
	if c.protocol != "" {
		v.Protocol = &c.protocol
	}
	if c.leader != "" {
		v.Leader = &c.leader
	}
	for _, m := range c.members {
		r := kmsg.NewGroupMetadataValueMember()
		r.MemberID, r.ClientID, r.ClientHost = m.id, m.clientID, m.host
		if m.instance != "" {
			r.InstanceID = &m.instance
		}
		r.RebalanceTimeoutMillis, r.SessionTimeoutMillis = m.rebalanceMs, m.sessionMs
		r.Subscription, r.Assignment = m.metadata(c.protocol), assigned(m)
		v.Members = append(v.Members, r)
	}
	return v
}

// move changes the state.
func (c *classic) move(to state) {
	if !legal(c.state, to) {
		return
	}
	c.g.s.m.event(c.g, c.state.String(), to.String())
	c.state, c.stateMs = to, c.g.s.wall()
}

func (c *classic) empty() bool {
	return len(c.members) == 0 && len(c.pending) == 0 && c.state == stateEmpty
}

// insert adds a member that is not there yet.
func (c *classic) insert(m *member) {
	if c.leader == "" {
		c.leader = m.id
	}
	c.members = append(c.members, m)
	c.byID[m.id] = m
	if m.instance != "" {
		c.statics[m.instance] = m
	}
}

// drop removes a member; what it has parked is answered UNKNOWN_MEMBER_ID with an empty id, so that a client which is
// still there joins anew.
func (c *classic) drop(m *member) {
	c.answerJoin(m, JoinOut{Generation: -1}, kerr.UnknownMemberID)
	c.answerSync(m, SyncOut{}, kerr.UnknownMemberID)
	c.g.s.stop(m.timer)
	m.timer = nil
	if c.byID[m.id] != m {
		return
	}
	delete(c.byID, m.id)
	delete(c.pendingSync, m.id)
	if c.statics[m.instance] == m {
		delete(c.statics, m.instance)
	}
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	if c.leader == m.id {
		c.leader = ""
		if len(c.members) > 0 {
			c.leader = c.members[0].id
		}
	}
}

// park keeps the JoinGroup of a member until the generation is made. One that the member parked before was lost with
// its connection.
func (c *classic) park(m *member, done joinDone) {
	c.answerJoin(m, JoinOut{Member: m.id, Generation: -1}, kerr.RebalanceInProgress)
	m.join = done
	c.awaiting++
}

func (c *classic) answerJoin(m *member, out JoinOut, code *kerr.Error) {
	if m.join == nil {
		return
	}
	done := m.join
	m.join = nil
	c.awaiting--
	done(out, code)
}

func (c *classic) answerSync(m *member, out SyncOut, code *kerr.Error) {
	if m.sync == nil {
		return
	}
	done := m.sync
	m.sync = nil
	done(out, code)
}

// metadata is the subscription of the member for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) matches(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && slices.Equal(a.Metadata, b.Metadata)
	})
}

func (m *member) update(in *JoinIn) {
	m.protocols, m.sessionMs, m.rebalanceMs = in.Protocols, in.SessionMs, in.RebalanceMs
}

// renew gives the member another session from now.
func (c *classic) renew(m *member) { c.expireIn(m, time.Duration(m.sessionMs)*time.Millisecond) }

// expireIn sets the deadline of the member. The timer is moved only when it would come too late: a heartbeat costs no
// work in the heap.
func (c *classic) expireIn(m *member, d time.Duration) {
	s := c.g.s
	m.deadline = s.now() + d
	if m.timer != nil && m.timer.index >= 0 && m.timer.at <= m.deadline {
		return
	}
	s.stop(m.timer)
	m.timer = s.after(d, func() { c.expired(m) })
}

// expired is the timer of a member: an early one is armed again, a member that waits for a join or an assignment is
// alive unless it never saw a generation.
func (c *classic) expired(m *member) {
	s := c.g.s
	m.timer = nil
	if left := m.deadline - s.now(); left > 0 {
		m.timer = s.after(left, func() { c.expired(m) })
		return
	}
	if !m.fresh && (m.join != nil || m.sync != nil) {
		return
	}
	if f := s.m.cfg.Events.SessionExpired; f != nil {
		f(TypeClassic)
	}
	c.removeMember(m)
}

// removeMember drops a member and lets the others rebalance.
func (c *classic) removeMember(m *member) {
	c.drop(m)
	c.rebalanceOrComplete()
}

func (c *classic) rebalanceMs() time.Duration {
	var ms int32
	for _, m := range c.members {
		ms = max(ms, m.rebalanceMs)
	}
	return time.Duration(ms) * time.Millisecond
}

func (c *classic) selected() string {
	all := make([]ballot, len(c.members))
	for i, m := range c.members {
		all[i] = m.protocols
	}
	return selectProtocol(all)
}

// common reports whether one of the protocols is supported by every member.
func (c *classic) common(protocols []Protocol) bool {
	shared := make(map[string]bool, len(protocols))
	for _, p := range protocols {
		shared[p.Name] = true
	}
	for _, m := range c.members {
		left := map[string]bool{}
		for _, p := range m.protocols {
			if shared[p.Name] {
				left[p.Name] = true
			}
		}
		shared = left
	}
	return len(shared) > 0
}

// known finds the member a request names, by the rules for instance ids.
func (c *classic) known(in *Member) (*member, *kerr.Error) {
	if in.Instance != "" {
		m := c.statics[in.Instance]
		if m == nil {
			return nil, kerr.UnknownMemberID
		}
		if m.id != in.Member {
			return nil, kerr.FencedInstanceID
		}
		return m, nil
	}
	m := c.byID[in.Member]
	if m == nil {
		return nil, kerr.UnknownMemberID
	}
	return m, nil
}

// checkCommit decides whether the sender of a commit may commit to this group, and renews its session.
func (c *classic) checkCommit(in *CommitIn) *kerr.Error {
	check, code := onCommit(c.state, claim{
		generation: in.Generation, member: in.Member.Member != "" || in.Instance != "", txn: in.PID >= 0,
	})
	if code != nil || !check {
		return code
	}
	m, code := c.known(&in.Member)
	if code != nil {
		return code
	}
	if in.Generation != c.generation {
		return kerr.IllegalGeneration
	}
	if in.PID >= 0 {
		return nil
	}
	switch c.state {
	case stateCompleting:
		return kerr.RebalanceInProgress
	case statePreparing, stateStable:
		c.renew(m)
		return nil
	}
	return kerr.UnknownMemberID
}

// subscribed reports whether a member of the generation subscribes the topic; true also where that is not known.
func (c *classic) subscribed(topic string) bool { return c.topics == nil || c.topics[topic] }

// subscribe works out the subscribed topics of the generation.
func (c *classic) subscribe() {
	c.topics = map[string]bool{}
	if c.protocolType != typeConsumer {
		return
	}
	for _, m := range c.members {
		names, ok := subscription(m.metadata(c.protocol))
		if !ok {
			c.topics = nil
			return
		}
		for _, n := range names {
			c.topics[n] = true
		}
	}
}
