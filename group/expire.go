package group

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A pass over the groups of a shard goes in steps of so many groups, and so many tombstones in a batch, or as many as
// rewriteBytes takes.
const (
	expireGroups = 1000
	expireBatch  = 1000
)

// expiry is a pass over the groups that removes what is too old (spec groups.md 2.4). Owner: the shard.
type expiry struct {
	todo []string // groups not looked at yet
}

func (s *shard) beginExpiry() {
	s.after(time.Duration(s.m.cfg.RetainCheckMs)*time.Millisecond, s.beginExpiry)
	if len(s.expiry.todo) > 0 {
		return // the pass before goes on
	}
	s.expiry.todo = sortedStrings(s.groups)
	s.expireStep()
}

func (s *shard) expireStep() {
	n := min(expireGroups, len(s.expiry.todo))
	step := s.expiry.todo[:n]
	s.expiry.todo = s.expiry.todo[n:]
	flying := s.flyingKeys()
	for _, id := range step {
		if g := s.groups[id]; g != nil && !g.dead {
			s.expire(g, flying)
		}
	}
	if len(s.expiry.todo) > 0 {
		s.after(0, s.expireStep)
	}
}

// expire removes the offsets of a group that are too old, and the group with its last one.
func (s *shard) expire(g *group, flying map[string]bool) {
	now := s.wall()
	var keys []tpKey
	more := false
	for k, c := range g.offsets.live {
		if !s.expired(g, k, &c, now) || flying[string(offsetKey(g.id, k))] {
			continue
		}
		if more = len(keys) == expireBatch; more {
			break
		}
		keys = append(keys, k)
	}
	recs := make([]Record, len(keys))
	for i, k := range keys {
		recs[i].Key = offsetKey(g.id, k)
	}
	removed := len(keys)
	told := func(code *kerr.Error) {
		if f := s.m.cfg.Events.Expired; f != nil && code == nil && removed > 0 {
			f(removed)
		}
	}
	if removed == len(g.offsets.live) && len(g.offsets.staged) == 0 && g.making == 0 &&
		!g.offsets.busy() && g.empty() && !s.flyingOf(g.id) {
		s.remove(g, told)
		return
	}
	if removed == 0 {
		return
	}
	if batches := cut(recs); len(batches) > 1 { // the id of the group is long
		recs, removed, more = batches[0], len(batches[0]), true
	}
	s.append(recs, func(_ int64, code *kerr.Error) {
		told(code)
		if more && code == nil {
			// The rest of a large group, in the same pass.
			if len(s.expiry.todo) == 0 {
				s.after(0, s.expireStep)
			}
			s.expiry.todo = append(s.expiry.todo, g.id)
		}
	})
}

// expired decides whether an offset is too old: the table of spec groups.md 2.4.
func (s *shard) expired(g *group, k tpKey, c *committed, now int64) bool {
	since, may := g.expiresSince(k.topic, c)
	if !may || g.offsets.isStaged(k) {
		return false
	}
	if c.expireMs >= 0 {
		return now >= c.expireMs
	}
	retain := s.m.cfg.RetainMs
	return retain >= 0 && since <= math.MaxInt64-retain && now >= since+retain
}

// expiresSince is the wall time from which an offset of topic ages; may is false while it does not.
func (g *group) expiresSince(topic string, c *committed) (since int64, may bool) {
	if g.consumer != nil {
		if g.consumer.empty() {
			return sinceOr(g.consumer.emptySince(), c.timeMs), true
		}
		return c.timeMs, !g.consumer.subscribed(topic)
	}
	switch {
	case g.classic.state == stateEmpty && g.classic.protocolType == "":
		return c.timeMs, true
	case g.classic.state == stateEmpty:
		return sinceOr(g.classic.stateMs, c.timeMs), g.empty()
	case g.classic.state == stateStable && g.classic.protocolType == typeConsumer:
		return c.timeMs, !g.classic.subscribed(topic)
	}
	return 0, false
}

func sinceOr(ms, otherwise int64) int64 {
	if ms <= 0 {
		return otherwise
	}
	return ms
}

// topicsDeleted removes every offset of deleted topics, committed, staged or on the way, by name: a name belongs to the
// topic until its deletion has ended. done runs once that is durable.
func (s *shard) topicsDeleted(topics []TP, done func(error)) {
	gone := make(map[string]bool, len(topics))
	for _, tp := range topics {
		gone[tp.Topic] = true
	}
	recs := s.offsetsOf(gone)
	if len(recs) == 0 {
		done(nil)
		return
	}
	batches := cut(recs)
	all := newGather(len(batches), done)
	for _, recs := range batches {
		s.append(recs, func(_ int64, code *kerr.Error) {
			var err error
			if code != nil {
				err = code
			}
			all.one(err)
		})
	}
	all.one(nil)
}

// cut divides tombstones into batches that a journal takes.
func cut(recs []Record) (batches [][]Record) {
	first, bytes := 0, 0
	for i := range recs {
		n := sizeOf(recs[i : i+1])
		if i-first == expireBatch || i > first && bytes+n > rewriteBytes {
			batches = append(batches, recs[first:i:i])
			first, bytes = i, 0
		}
		bytes += n
	}
	if first < len(recs) {
		batches = append(batches, recs[first:])
	}
	return batches
}

// offsetsOf gives a tombstone for every offset of the topics.
func (s *shard) offsetsOf(topics map[string]bool) (recs []Record) {
	type owned struct {
		group string
		k     tpKey
	}
	seen := map[owned]bool{}
	add := func(id string, k tpKey) {
		if topics[k.topic] && !seen[owned{id, k}] {
			seen[owned{id, k}] = true
			recs = append(recs, Record{Key: offsetKey(id, k)})
		}
	}
	for _, id := range sortedStrings(s.groups) {
		g := s.groups[id]
		of := map[tpKey]bool{}
		for k := range g.offsets.live {
			if topics[k.topic] {
				of[k] = true
			}
		}
		for _, keys := range g.offsets.staged {
			for k := range keys {
				if topics[k.topic] {
					of[k] = true
				}
			}
		}
		for _, k := range sortedKeys(of) {
			add(id, k)
		}
	}
	s.flyingOffsets(func(k *recordKey) { add(k.group, tpKey{k.topic, k.partition}) })
	return recs
}
