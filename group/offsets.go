package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"math"
)

// tpKey names a partition inside a group. The name alone tells the topic: a deleted topic's offsets are gone before its
// name is free (topicsDeleted), and a commit for any but the current id of the name is refused.
type tpKey struct {
	topic     string
	partition int32
}

// committed is one committed or staged offset. at is the journal offset of its record: of two the later one holds.
type committed struct {
	offset   int64
	at       int64
	timeMs   int64 // wall time of the commit
	expireMs int64 // wall time given by the client; -1: the broker's retention
	epoch    int32
	metadata string
}

// offsetTable are the offsets of one group. It belongs to the shard of the group.
type offsetTable struct {
	live   map[tpKey]committed
	staged map[int64]map[tpKey]committed // by producer id: offsets of open transactions (I12)
	flying int                           // appended commits that are not applied yet
}

// none reports whether the group holds no offset, neither committed nor staged.
func (t *offsetTable) none() bool { return len(t.live) == 0 && len(t.staged) == 0 }

// busy reports whether commits of the group are appended and not yet applied.
func (t *offsetTable) busy() bool { return t.flying > 0 }

// isStaged reports whether an open transaction has staged an offset for k.
func (t *offsetTable) isStaged(k tpKey) bool {
	for _, keys := range t.staged {
		if _, ok := keys[k]; ok {
			return true
		}
	}
	return false
}

// commit is one OffsetCommit or TxnOffsetCommit: the accepted offsets become one batch, all or nothing.
func (s *shard) commit(in CommitIn, done func([]*kerr.Error, uint64)) {
	codes := s.checkCommit(&in)
	recs := make([]Record, 0, len(in.TPs))
	now := s.wall()
	for i, tp := range in.TPs {
		if codes[i] == nil {
			codes[i] = s.checkOffset(tp, &in.Offsets[i])
		}
		if codes[i] != nil {
			continue
		}
		o := &in.Offsets[i]
		c := committed{offset: o.Offset, timeMs: now, expireMs: -1, epoch: o.LeaderEpoch, metadata: o.Metadata}
		if in.RetainMs >= 0 && in.PID < 0 {
			c.expireMs = now + min(in.RetainMs, math.MaxInt64-now)
		}
		recs = append(recs, encodeOffset(in.Group, tpKey{tp.Topic, tp.Partition}, &c))
	}
	if len(recs) == 0 {
		done(codes, 0)
		return
	}
	s.writeCommit(&in, recs, codes, done)
}

func (s *shard) writeCommit(in *CommitIn, recs []Record, codes []*kerr.Error, done func([]*kerr.Error, uint64)) {
	g := s.groups[in.Group]
	if g != nil {
		g.offsets.flying++
	}
	transactional := in.PID >= 0
	answer := func(code *kerr.Error, guard uint64) {
		if g != nil {
			g.offsets.flying--
		}
		for i := range codes {
			if codes[i] == nil {
				codes[i] = code
			}
		}
		if told := s.m.cfg.Events.Committed; told != nil && code == nil && guard == 0 {
			told(len(recs), transactional)
		}
		done(codes, guard)
	}
	if !transactional {
		s.append(recs, func(_ int64, code *kerr.Error) { answer(code, 0) })
		return
	}
	s.stage(in, recs, answer)
}

// checkOffset tests what a commit says about one partition.
func (s *shard) checkOffset(tp TP, o *Offset) *kerr.Error {
	id, partitions, ok := s.m.topics.Lookup(tp.Topic)
	if !ok || tp.Partition < 0 || tp.Partition >= partitions || tp.ID != [16]byte{} && tp.ID != id {
		return kerr.UnknownTopicOrPartition
	}
	// Bytes are at least as many as characters: the short ones, nearly all, need no count.
	if len(o.Metadata) > s.m.cfg.MetadataMax && utf16Len(o.Metadata) > s.m.cfg.MetadataMax {
		return kerr.OffsetMetadataTooLarge
	}
	return nil
}

// checkCommit tests group and member (spec groups.md 2.1 and 2.3). It gives one code per partition, in the terms of the
// request's version.
func (s *shard) checkCommit(in *CommitIn) []*kerr.Error {
	codes := make([]*kerr.Error, len(in.TPs))
	g := s.groups[in.Group]
	switch {
	case g == nil:
		if in.Generation >= 0 {
			fill(codes, kerr.GroupIDNotFound)
		}
	case g.consumer != nil:
		copy(codes, g.consumer.checkCommit(in))
		if in.PID < 0 && in.Version < 9 && (in.Generation >= 0 || !g.empty()) {
			// The member epoch cannot be told in these versions; an unknown member is told first.
			for i, code := range codes {
				if code != kerr.UnknownMemberID {
					codes[i] = kerr.UnsupportedVersion
				}
			}
		}
	default:
		fill(codes, g.classic.checkCommit(in))
	}
	if in.PID < 0 && in.Version < 9 || in.PID >= 0 && in.Version < 6 {
		for i, code := range codes {
			if code == kerr.GroupIDNotFound || code == kerr.StaleMemberEpoch {
				codes[i] = kerr.IllegalGeneration
			}
		}
	}
	return codes
}

func fill(codes []*kerr.Error, code *kerr.Error) {
	for i := range codes {
		codes[i] = code
	}
}

// fetch is one OffsetFetch. What is not known has offset -1. Where only stable offsets are wanted the read comes after
// every commit accepted before it.
func (s *shard) fetch(in FetchIn, done func(map[TP]Fetched, *kerr.Error)) {
	if !in.StableOnly {
		done(s.read(&in))
		return
	}
	s.settled(func() { done(s.read(&in)) })
}

func (s *shard) read(in *FetchIn) (map[TP]Fetched, *kerr.Error) {
	g := s.groups[in.Group]
	if g != nil && g.consumer != nil {
		if code := g.consumer.checkFetch(in); code != nil {
			return nil, code
		}
	}
	var t offsetTable
	if g != nil {
		t = g.offsets
	}
	if in.TPs == nil {
		out, ids := make(map[TP]Fetched, len(t.live)), map[string][16]byte{}
		for k := range t.live {
			id, met := ids[k.topic]
			if !met { // once: a topic that is made anew meanwhile has one id in this answer
				id, _, _ = s.m.topics.Lookup(k.topic)
				ids[k.topic] = id
			}
			out[TP{k.topic, id, k.partition}] = t.read(k, in.StableOnly)
		}
		return out, nil
	}
	out := make(map[TP]Fetched, len(in.TPs))
	for _, tp := range in.TPs {
		out[tp] = t.read(tpKey{tp.Topic, tp.Partition}, in.StableOnly)
	}
	return out, nil
}

func (t *offsetTable) read(k tpKey, stable bool) Fetched {
	if stable && t.isStaged(k) {
		return Fetched{Offset: Offset{Offset: -1, LeaderEpoch: -1}, Unstable: true}
	}
	c, ok := t.live[k]
	if !ok {
		return Fetched{Offset: Offset{Offset: -1, LeaderEpoch: -1}}
	}
	return Fetched{Offset: Offset{Offset: c.offset, LeaderEpoch: c.epoch, Metadata: c.metadata}}
}

// offsetDelete is one OffsetDelete. Whether the topics exist is tested before.
func (s *shard) offsetDelete(id string, tps []TP, done codesDone) {
	g := s.groups[id]
	if g == nil {
		done(nil, kerr.GroupIDNotFound)
		return
	}
	if g.consumer == nil && g.classic.state != stateEmpty && g.classic.protocolType != typeConsumer {
		done(nil, kerr.NonEmptyGroup)
		return
	}
	codes := make([]*kerr.Error, len(tps))
	held := s.heldKeys(g)
	var recs []Record
	for i, tp := range tps {
		k := tpKey{tp.Topic, tp.Partition}
		switch {
		case g.subscribed(tp.Topic):
			codes[i] = kerr.GroupSubscribedToTopic
		case held[k]:
			recs = append(recs, Record{Key: offsetKey(id, k)})
			delete(held, k) // named twice: one tombstone
		}
	}
	if len(recs) == 0 {
		done(codes, nil)
		return
	}
	s.append(recs, func(_ int64, code *kerr.Error) {
		for i := range codes {
			if codes[i] == nil {
				codes[i] = code
			}
		}
		done(codes, nil)
	})
}

// subscribed reports whether a member of the group reads topic, as far as that is known.
func (g *group) subscribed(topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribed(topic)
	}
	return g.classic.subscribed(topic)
}

// heldKeys are the partitions a group holds an offset for: committed, staged, or on the way to the disk.
func (s *shard) heldKeys(g *group) map[tpKey]bool {
	held := make(map[tpKey]bool, len(g.offsets.live))
	for k := range g.offsets.live {
		held[k] = true
	}
	for _, keys := range g.offsets.staged {
		for k := range keys {
			held[k] = true
		}
	}
	if !s.flyingOf(g.id) {
		return held
	}
	s.flyingOffsets(func(k *recordKey) {
		if k.group == g.id {
			held[tpKey{k.topic, k.partition}] = true
		}
	})
	return held
}

// offsetTombstones removes every offset of the group, staged ones and those on the way included.
func (g *group) offsetTombstones() []Record {
	held := g.s.heldKeys(g)
	recs := make([]Record, 0, len(held))
	for _, k := range sortedKeys(held) {
		recs = append(recs, Record{Key: offsetKey(g.id, k)})
	}
	return recs
}

// forget drops a group from memory; what it staged is gone with it.
func (s *shard) forget(g *group) {
	for pid := range g.offsets.staged {
		s.closeStaged(pid, g.id)
	}
	s.count -= len(g.offsets.live)
	g.offsets = offsetTable{}
	delete(s.groups, g.id)
}
