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
// once they are durable. Until then the group is dead: requests for it are answered COORDINATOR_NOT_AVAILABLE. Those of
// the group itself come last, in one batch: what a failure on the way leaves is the group with fewer offsets.
func (s *shard) remove(g *group, done codeDone) {
	g.dead = true
	own := []Record{tombstoneClassic(g.id)}
	if g.consumer != nil {
		own = g.consumer.tombstones()
	}
	batches := cut(g.offsetTombstones())
	if n := len(batches); n > 0 && len(cut(slices.Concat(batches[n-1], own))) == 1 {
		batches[n-1] = slices.Concat(batches[n-1], own)
	} else {
		batches = append(batches, own)
	}
	s.appendAll(batches, func(code *kerr.Error) {
		g.dead = false
		if code == nil {
			g.stop(s)
			s.m.event(g, g.info(false).State, "")
			s.forget(g)
		}
		done(code)
	})
}

// appendAll writes batches, each when the one before it is durable, so that no later one is there without it.
func (s *shard) appendAll(batches [][]Record, done codeDone) {
	s.append(batches[0], func(_ int64, code *kerr.Error) {
		rest := batches[1:]
		switch {
		case code != nil || len(rest) == 0:
			done(code)
		case s.closing:
			done(kerr.CoordinatorNotAvailable)
		default:
			s.appendAll(rest, done)
		}
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
