package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Delete is a DeleteGroups of one group: NON_EMPTY_GROUP with members, GROUP_ID_NOT_FOUND if there is none. Its
// offsets, also those staged by transactions, go with it; done runs when that is durable.
func (m *Manager) Delete(id string, done func(*kerr.Error)) {
	m.on(id, done, func(s *shard) {
		g := s.groups[id]
		switch {
		case g == nil:
			done(kerr.GroupIDNotFound)
		case g.consumer != nil && !g.consumer.empty(), g.classic != nil && g.classic.state != stateEmpty:
			done(kerr.NonEmptyGroup)
		default:
			s.remove(g, done)
		}
	})
}

// remove writes the tombstones of a group without members, also those of commits that are on their way, and forgets it
// once they are durable. Until then the group is dead: requests for it are answered COORDINATOR_NOT_AVAILABLE.
func (s *shard) remove(g *group, done codeDone) {
	g.dead = true
	recs := g.offsetTombstones()
	if g.consumer != nil {
		recs = append(recs, g.consumer.tombstones()...)
	} else {
		recs = append(recs, tombstoneClassic(g.id))
	}
	s.append(recs, func(_ int64, code *kerr.Error) {
		g.dead = false
		if code == nil {
			g.stop(s)
			s.m.event(g, g.info(false).State, "")
			s.forget(g)
		}
		done(code)
	})
}

// stop ends the timers of a group that is removed and answers what it has parked.
func (g *group) stop(s *shard) {
	if g.consumer != nil {
		g.consumer.closing()
		return
	}
	g.classic.close(kerr.CoordinatorNotAvailable)
}

// close ends the membership: everything parked is answered with the code.
func (c *classic) close(code *kerr.Error) {
	s := c.g.s
	for _, t := range c.pending {
		s.stop(t)
	}
	s.stop(c.rebalance)
	s.stop(c.syncTimer)
	for _, m := range c.members {
		s.stop(m.timer)
		c.answerJoin(m, JoinOut{Member: m.id, Generation: -1}, code)
		c.answerSync(m, SyncOut{}, code)
	}
	c.state = stateDead
}

// close answers everything that waits on the shard and lets its goroutine end.
func (s *shard) close(code *kerr.Error) {
	if s.closing {
		return
	}
	s.closing = true
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[id]
		if g.consumer != nil {
			g.consumer.closing()
			continue
		}
		g.classic.close(code)
	}
}

// event reports a change of state.
func (m *Manager) event(g *group, from, to string) {
	f := m.cfg.Events.State
	if f == nil {
		return
	}
	kind := TypeClassic
	if g.consumer != nil {
		kind = TypeConsumer
	}
	f(kind, from, to)
}
