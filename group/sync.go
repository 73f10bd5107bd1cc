package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sync is a SyncGroup on the shard of its group (spec 1.3).
func (s *shard) sync(in SyncIn, done syncDone) {
	g := s.groups[in.Group]
	if g == nil || g.classic == nil {
		done(SyncOut{}, kerr.UnknownMemberID)
		return
	}
	c := g.classic
	m, code := c.checkMember(&in.Member)
	if code == nil && (in.ProtocolType != "" && in.ProtocolType != c.protocolType ||
		in.Protocol != "" && in.Protocol != c.protocol) {
		code = kerr.InconsistentGroupProtocol
	}
	if code != nil {
		done(SyncOut{}, code)
		return
	}
	act, code := onSync(c.state)
	switch act {
	case actRefuse:
		done(SyncOut{}, code)
	case actCurrent:
		c.synced(m)
		c.renew(m)
		done(c.assigned(m), nil)
	default:
		c.answerSync(m, SyncOut{}, kerr.RebalanceInProgress)
		m.sync = done
		c.synced(m)
		if c.leader == m.id {
			c.store(in.Assignments)
		}
	}
}

// checkMember is the common check of SyncGroup and Heartbeat: state, instance, member, generation.
func (c *classic) checkMember(in *Member) (*member, *kerr.Error) {
	if c.state == stateDead {
		return nil, kerr.CoordinatorNotAvailable
	}
	m, code := c.known(in)
	if code != nil {
		return nil, code
	}
	if in.Generation != c.generation {
		return nil, kerr.IllegalGeneration
	}
	return m, nil
}

func (c *classic) assigned(m *member) SyncOut {
	return SyncOut{ProtocolType: c.protocolType, Protocol: c.protocol, Assignment: m.assignment}
}

// synced notes that a member has sent its SyncGroup of this generation.
func (c *classic) synced(m *member) {
	delete(c.pendingSync, m.id)
	if len(c.pendingSync) == 0 {
		c.g.s.stop(c.syncTimer)
	}
}

// store writes the leader's assignment; the group is Stable once it is durable (G6). While it is on its way a repeated
// SyncGroup of the leader waits for the same write: two of them could leave another assignment on disk than was told.
func (c *classic) store(assignments map[string][]byte) {
	if c.writing {
		return
	}
	c.writing = true
	given := maps.Clone(assignments)
	for id, b := range given {
		given[id] = append([]byte(nil), b...)
	}
	generation := c.generation
	rec := encodeClassic(c.g.id, c.value(func(m *member) []byte { return given[m.id] }))
	c.g.s.append([]Record{rec}, func(_ int64, code *kerr.Error) {
		if c.state != stateCompleting || c.generation != generation {
			return
		}
		c.writing = false
		if code != nil {
			if code == kerr.MessageTooLarge {
				code = kerr.UnknownServerError
			}
			c.failSync(code)
			c.rebalanceOrComplete()
			return
		}
		c.move(stateStable)
		for _, m := range c.members {
			m.assignment = given[m.id]
		}
		for _, m := range c.members {
			if m.sync != nil {
				c.renew(m)
				c.answerSync(m, c.assigned(m), nil)
			}
		}
	})
}

// failSync answers all parked SyncGroups with a code and forgets the assignments.
func (c *classic) failSync(code *kerr.Error) {
	for _, m := range c.members {
		m.assignment = nil
		if m.sync != nil {
			c.renew(m)
			c.answerSync(m, SyncOut{}, code)
		}
	}
}

// syncExpired removes the members that took their generation and never asked for their assignment.
func (c *classic) syncExpired(generation int32) {
	if c.generation != generation || c.state != stateCompleting && c.state != stateStable || len(c.pendingSync) == 0 {
		return
	}
	for _, m := range slices.Clone(c.members) {
		if c.pendingSync[m.id] {
			c.drop(m)
		}
	}
	c.prepare()
}

// heartbeat is a Heartbeat on the shard of its group (spec 1.3).
func (s *shard) heartbeat(in Member) *kerr.Error {
	g := s.groups[in.Group]
	if g == nil || g.classic == nil {
		return kerr.UnknownMemberID
	}
	m, code := g.classic.checkMember(&in)
	if code != nil {
		return code
	}
	renew, code := onHeartbeat(g.classic.state)
	if renew {
		g.classic.renew(m)
	}
	return code
}
