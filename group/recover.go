package group

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// load makes the state of the shard from its snapshot, where there is one that fits, and the journal behind it. Live
// records and replayed ones go through apply, so both give the same state (I14).
func (s *shard) load(j Journal) error {
	s.offsetsShard = offsetsShard{
		loading: true, open: map[int64]map[string]bool{}, others: map[string]other{}, flyingBy: map[string]int{},
	}
	s.groups = map[string]*group{}
	from := j.Start()
	stale := s.loadSnapshot(j, &from)
	s.applied = from
	err := j.Replay(from, func(r Replayed) error {
		if r.Marker != nil {
			s.decide(decided{pid: r.Marker.PID, offset: r.Offset, commit: r.Marker.Commit})
		} else if err := s.apply(r.Offset, r.PID, &r.Record); err != nil {
			return fmt.Errorf("group: partition %d, offset %d: %w", s.id, r.Offset, err)
		}
		s.applied = r.Offset + 1
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.restore(); err != nil {
		return err
	}
	s.loading = false
	s.consumersLoaded()
	return s.beginMaintenance(stale)
}

// restore makes the groups of the replayed records.
func (s *shard) restore() error {
	bare := s.groups
	s.groups = map[string]*group{}
	consumers := map[string][]Record{}
	for _, key := range sortedStrings(s.others) {
		k, err := parseKey([]byte(key))
		if err != nil {
			return err
		}
		value := s.others[key].value
		switch {
		case k.version == keyClassic:
			v, err := decodeClassic(value)
			if err != nil {
				return fmt.Errorf("group: partition %d, group %q: %w", s.id, k.group, err)
			}
			s.restoreClassic(k.group, v)
		case isConsumerKey(k.version):
			consumers[k.group] = append(consumers[k.group], Record{Key: []byte(key), Value: value})
		}
	}
	for _, id := range sortedStrings(consumers) {
		if err := s.restoreConsumer(id, consumers[id]); err != nil {
			return fmt.Errorf("group: partition %d: %w", s.id, err)
		}
	}
	for _, id := range sortedStrings(bare) {
		b := bare[id]
		if b.offsets.none() {
			continue
		}
		g := s.groups[id]
		if g == nil {
			g = s.newClassic(id)
		}
		g.offsets = b.offsets
	}
	return nil
}

// apply takes one durable record into the state. Which of two records of a key holds is decided by their offsets alone,
// so a record applied twice, or after a later one, changes nothing.
func (s *shard) apply(at, pid int64, r *Record) error {
	k, err := parseKey(r.Key)
	if err != nil {
		return err
	}
	if k.version != keyOffset && k.version != keyOffset0 {
		s.applyOther(at, &k, r)
		return nil
	}
	tp := tpKey{k.topic, k.partition}
	if r.Value == nil {
		if g := s.groups[k.group]; g != nil {
			s.unset(g, tp, at)
		}
		return nil
	}
	v, err := decodeOffset(r.Value)
	if err != nil {
		return err
	}
	c := committed{
		offset: v.Offset, at: at, timeMs: v.CommitTimestamp, expireMs: v.ExpireTimestamp, epoch: v.LeaderEpoch,
		metadata: v.Metadata,
	}
	g := s.groups[k.group]
	if g == nil {
		g = s.simple(k.group)
	}
	if pid >= 0 {
		s.addStaged(g, pid, tp, c)
	} else {
		s.set(g, tp, c)
	}
	return nil
}

// simple makes a group for offsets without a group record.
func (s *shard) simple(id string) *group {
	if !s.loading {
		return s.newClassic(id)
	}
	g := &group{id: id, s: s}
	s.groups[id] = g
	return g
}

// set installs an offset unless a later record holds.
func (s *shard) set(g *group, k tpKey, c committed) {
	old, ok := g.offsets.live[k]
	if ok && old.at > c.at {
		return
	}
	if !ok {
		s.count++
		if g.offsets.live == nil {
			g.offsets.live = map[tpKey]committed{}
		}
	}
	g.offsets.live[k] = c
}

// unset is a tombstone at offset at: it removes the installed offset and every staged one.
func (s *shard) unset(g *group, k tpKey, at int64) {
	if old, ok := g.offsets.live[k]; ok && old.at <= at {
		delete(g.offsets.live, k)
		s.count--
	}
	s.dropStaged(g, k, at)
}

// applyOther keeps the last record of any other key: it is what a rewrite and a snapshot hold.
func (s *shard) applyOther(at int64, k *recordKey, r *Record) {
	old, ok := s.others[string(r.Key)]
	if ok && old.at > at {
		return
	}
	if r.Value == nil {
		delete(s.others, string(r.Key))
		return
	}
	value := r.Value
	if k.foreign() && len(value) == 0 {
		value = []byte{}
	}
	s.others[string(r.Key)] = other{at: at, value: value}
}

func sortedStrings[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func sortedKeys[V any](m map[tpKey]V) []tpKey {
	keys := make([]tpKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b tpKey) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.partition) - int(b.partition)
	})
	return keys
}

// tail is a reader of bytes that remembers that they ended early.
type tail struct {
	b   []byte
	bad bool
}

func (t *tail) take(n int) []byte {
	if n < 0 || n > len(t.b) {
		t.bad, t.b = true, nil
		return nil
	}
	p := t.b[:n]
	t.b = t.b[n:]
	return p
}

func (t *tail) uvarint() int {
	x, n := binary.Uvarint(t.b)
	if n <= 0 || x > uint64(maxSnapshot) {
		t.bad, t.b = true, nil
		return 0
	}
	t.b = t.b[n:]
	return int(x)
}
