package group

import (
	"maps"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// consumerBatchBytes bounds the records of one batch of a group: what waits beyond it goes into the next one.
const consumerBatchBytes = 256 << 10

// consumerGroup is the membership of a group of the consumer protocol (KIP-848). It belongs to the shard of its group.
//
// state is what durable records say, and what is answered from. Requests that came together are computed one after the
// other on a draft; its records are appended as one batch, and the draft becomes the state once they are durable. Until
// then further requests wait: nothing is told to anybody that a crash could take back.
type consumerGroup struct {
	g     *group
	state *consumerState

	queue   []consumerOp
	writing bool
	closed  bool

	sessions map[string]*consumerSession // by member id
	stale    bool                        // topics may have changed since the hash was computed
	emptyMs  int64                       // wall time since when there is no member; 0: not known
	began    time.Duration               // Mono when the group was last not Stable
	compiled map[string]*regexp.Regexp
	alone    int             // so many operations of the queue are computed one by one
	topics   map[string]bool // subscribed in state; nil: not computed yet

	was *classic // the empty classic group that the first durable batch replaces; nil: none
}

// consumerSession is what is known of a member that no record tells. Its timers belong to the shard.
type consumerSession struct {
	deadline  time.Duration // Mono; without a heartbeat the member is removed then
	timer     *timer
	revoke    *timer   // runs while the member has to give up partitions
	revokeFor int32    // the member epoch it runs for
	revoking  epochMap // and the partitions
}

// consumerOp is one request to a group, or one timer. It changes the draft and returns what answers it: answer runs
// when the changes are durable, with nil, or when they failed, with a code. A nil answer answers nobody.
type consumerOp func(d *draft) (answer codeDone)

// draft is the state of a group while a batch is computed. It is the durable one until the first change.
type draft struct {
	c       *consumerGroup
	state   *consumerState
	cloned  bool
	records []Record
	bytes   int
}

// do applies a change and keeps its record.
func (d *draft) do(c change) {
	if !d.cloned {
		d.state, d.cloned = d.state.clone(), true
	}
	c.apply(d.state)
	r := c.record(d.c.g.id)
	d.records = append(d.records, r)
	d.bytes += len(r.Key) + len(r.Value)
}

// last is the records without those that a later one of the same key replaces.
func (d *draft) last() []Record {
	at := make(map[string]int, len(d.records))
	for i, r := range d.records {
		at[string(r.Key)] = i
	}
	kept := make([]Record, 0, len(at))
	for i, r := range d.records {
		if at[string(r.Key)] == i {
			kept = append(kept, r)
		}
	}
	return kept
}

func newConsumerGroup(g *group) *consumerGroup {
	return &consumerGroup{g: g, state: newConsumerState(), sessions: map[string]*consumerSession{}, stale: true,
		compiled: map[string]*regexp.Regexp{}}
}

// run queues an operation and computes what waits, unless a batch is on its way.
func (c *consumerGroup) run(op consumerOp) {
	c.queue = append(c.queue, op)
	c.proceed()
}

func (c *consumerGroup) proceed() {
	for !c.writing && !c.closed && len(c.queue) > 0 {
		d := &draft{c: c, state: c.state}
		var answers []codeDone
		taken := 0
		for taken < len(c.queue) && d.bytes < consumerBatchBytes && (taken == 0 || c.alone == 0) {
			if answer := c.queue[taken](d); answer != nil {
				answers = append(answers, answer)
			}
			taken++
		}
		ops := c.queue[:taken:taken]
		c.queue = append([]consumerOp(nil), c.queue[taken:]...)
		c.alone = max(c.alone-1, 0)
		if len(d.records) == 0 {
			answerAll(answers, nil)
			continue
		}
		c.write(d, ops, answers)
	}
}

// write makes a draft durable and then the state. Where the journal does not take so much at once, the operations are
// computed again one by one, so that one of them that is too large fails alone.
func (c *consumerGroup) write(d *draft, ops []consumerOp, answers []codeDone) {
	c.writing = true
	recs := d.last()
	if c.was != nil {
		recs = append([]Record{tombstoneClassic(c.g.id)}, recs...)
	}
	c.g.s.append(recs, func(_ int64, code *kerr.Error) {
		c.writing = false
		if code == kerr.MessageTooLarge && len(ops) > 1 && !c.closed {
			c.queue, c.alone = append(ops, c.queue...), len(ops)
			c.stale = true
			c.proceed()
			return
		}
		if code == nil {
			if c.was != nil {
				c.was.close(kerr.UnknownMemberID) // the ids it issued
				c.was = nil
			}
			c.install(d.state)
		} else {
			c.stale = true // what the draft found out about topics is lost with it
		}
		answerAll(answers, code)
		c.proceed()
		if code != nil {
			c.abandon()
		}
	})
}

func answerAll(answers []codeDone, code *kerr.Error) {
	for _, answer := range answers {
		answer(code)
	}
}

// install makes st the state and sets timers and metrics after it.
func (c *consumerGroup) install(st *consumerState) {
	before := c.state
	c.state, c.topics = st, nil
	if c.closed {
		return
	}
	s := c.g.s
	for id := range before.members {
		if st.members[id] == nil {
			c.endSession(id)
		}
	}
	for id, m := range st.members {
		if before.members[id] != m {
			c.watch(m)
		}
	}
	if len(st.members) > 0 {
		c.emptyMs = 0
	} else if len(before.members) > 0 {
		c.emptyMs = s.wall()
	}
	c.tell(before.name(), st.name())
}

// tell counts a change of the group's state, and a rebalance when it ends: every member has its target.
func (c *consumerGroup) tell(from, to string) {
	if from == to {
		return
	}
	s := c.g.s
	s.m.event(c.g, from, to)
	if from == consumerStable || from == consumerEmpty {
		c.began = s.now()
	}
	if f := s.m.cfg.Events.Rebalanced; f != nil && to == consumerStable {
		f(TypeConsumer, s.now()-c.began, len(c.state.members))
	}
}

// abandon removes a group that was never written and that nothing else needs.
func (c *consumerGroup) abandon() {
	g := c.g
	if c.was != nil && !c.closed && c.empty() && g.s.groups[g.id] == g && g.consumer == c {
		c.closing()
		g.classic, g.consumer = c.was, nil
		return
	}
	if c.closed || !c.empty() || c.state.epoch != 0 || !g.offsets.none() || g.offsets.busy() ||
		g.s.groups[g.id] != g || g.consumer != c {
		return
	}
	c.closing()
	g.s.forget(g)
}

// empty reports whether the group has no members and none is about to join.
func (c *consumerGroup) empty() bool { return len(c.state.members) == 0 && !c.busy() }

// busy reports whether records of the group are on their way to the journal.
func (c *consumerGroup) busy() bool { return c.writing || len(c.queue) > 0 }

// emptySince is the wall time in ms since when the group has no members; 0: since before the start, or it has some.
func (c *consumerGroup) emptySince() int64 {
	if len(c.state.members) > 0 {
		return 0
	}
	return c.emptyMs
}

// subscribed reports whether a member wants the topic.
func (c *consumerGroup) subscribed(topic string) bool {
	if c.topics == nil {
		c.topics = map[string]bool{}
		for _, name := range c.state.subscribed() {
			c.topics[name] = true
		}
	}
	return c.topics[topic]
}

// tombstones remove every record of the group.
func (c *consumerGroup) tombstones() []Record {
	changes := c.state.tombstones()
	recs := make([]Record, 0, len(changes)+1)
	if c.was != nil {
		recs = append(recs, tombstoneClassic(c.g.id))
	}
	for _, ch := range changes {
		recs = append(recs, ch.record(c.g.id))
	}
	return recs
}

// closing stops the timers and answers what waits in the queue; what is on its way to the journal answers itself.
func (c *consumerGroup) closing() {
	c.closed = true
	for id := range c.sessions {
		c.endSession(id)
	}
	queue := c.queue
	c.queue = nil
	for _, op := range queue {
		if answer := op(&draft{c: c, state: c.state}); answer != nil {
			answer(kerr.CoordinatorNotAvailable)
		}
	}
	c.writing = false
}

// endSession forgets what is known of a member beside its records.
func (c *consumerGroup) endSession(id string) {
	if session := c.sessions[id]; session != nil {
		c.g.s.stop(session.timer)
		c.g.s.stop(session.revoke)
		delete(c.sessions, id)
	}
}

// alive moves the end of a member's session: called with each of its heartbeats. The timer itself is moved only when it
// fires, so that a heartbeat costs no work in the timer queue.
func (c *consumerGroup) alive(id string) {
	if c.closed || c.state.members[id] == nil {
		return
	}
	s := c.g.s
	session := c.sessions[id]
	if session == nil {
		session = &consumerSession{}
		c.sessions[id] = session
	}
	length := time.Duration(s.m.cfg.ConsumerSessionMs) * time.Millisecond
	session.deadline = s.now() + length
	if session.timer == nil {
		session.timer = s.after(length, func() { c.sessionDue(id, session) })
	}
}

// sessionDue removes the member, or waits on if it was heard of meanwhile.
func (c *consumerGroup) sessionDue(id string, session *consumerSession) {
	s := c.g.s
	session.timer = nil
	if c.sessions[id] != session {
		return
	}
	if left := session.deadline - s.now(); left > 0 {
		session.timer = s.after(left, func() { c.sessionDue(id, session) })
		return
	}
	c.run(func(d *draft) codeDone {
		if d.state.members[id] == nil || c.sessions[id] != session || session.deadline > s.now() {
			if session.timer == nil && c.sessions[id] == session {
				session.timer = s.after(max(session.deadline-s.now(), 0), func() { c.sessionDue(id, session) })
			}
			return nil
		}
		d.remove(id)
		return func(code *kerr.Error) {
			if f := s.m.cfg.Events.SessionExpired; f != nil && code == nil {
				f(TypeConsumer)
			}
			if code != nil && c.sessions[id] == session && session.timer == nil {
				session.timer = s.after(consumerRetry, func() { c.sessionDue(id, session) })
			}
		}
	})
}

// consumerRetry is how long the removal of a member waits after the journal refused it.
const consumerRetry = time.Second

// watch starts or stops the time a member has for giving up partitions, and its session if it has none.
func (c *consumerGroup) watch(m *consumerMember) {
	s := c.g.s
	if c.sessions[m.id] == nil {
		c.alive(m.id)
	}
	session := c.sessions[m.id]
	if m.state != memberUnrevoked || m.epoch == epochLeaveStatic { // who is away has given up all there was to give up
		s.stop(session.revoke)
		session.revoke = nil
		return
	}
	if session.revoke != nil && session.revokeFor == m.epoch && maps.Equal(session.revoking, m.revoking) {
		return
	}
	s.stop(session.revoke)
	session.revokeFor, session.revoking = m.epoch, m.revoking
	session.revoke = s.after(time.Duration(m.rebalanceMs)*time.Millisecond, func() { c.revokeDue(m.id, session) })
}

// revokeDue removes a member that has not given up its partitions in time.
func (c *consumerGroup) revokeDue(id string, session *consumerSession) {
	session.revoke = nil
	epoch, revoking := session.revokeFor, session.revoking
	c.run(func(d *draft) codeDone {
		m := d.state.members[id]
		if m == nil || c.sessions[id] != session || m.state != memberUnrevoked || m.epoch != epoch ||
			!maps.Equal(m.revoking, revoking) {
			return nil
		}
		d.remove(id)
		return func(code *kerr.Error) {
			if code != nil && c.sessions[id] == session && session.revoke == nil {
				session.revoke = c.g.s.after(consumerRetry, func() { c.revokeDue(id, session) })
			}
		}
	})
}
