package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"sekali/meta"
	"sekali/plog"
)

// leaving is a deletion that has begun: the topic is in no catalog any more.
type leaving struct {
	topic *Topic
	busy  bool // a call of DeleteTopic works on it; under Store.mu
}

// swap publishes a catalog in which topics take the place of those of their ids; under mu.
func (s *Store) swap(topics ...*Topic) {
	old := s.cat.Load()
	n := &Catalog{ByName: maps.Clone(old.ByName), ByID: maps.Clone(old.ByID)}
	for _, t := range topics {
		n.ByName[t.Name], n.ByID[t.ID] = t, t
	}
	s.cat.Store(n)
}

// drop publishes a catalog without a topic; under mu.
func (s *Store) drop(t *Topic) {
	old := s.cat.Load()
	n := &Catalog{ByName: maps.Clone(old.ByName), ByID: maps.Clone(old.ByID)}
	delete(n.ByID, t.ID)
	if n.ByName[t.Name] == t {
		delete(n.ByName, t.Name)
	}
	s.cat.Store(n)
}

// newPart is a partition before its log is open.
func (s *Store) newPart(topic string, id TopicID, n int32) *part {
	tp := TP{Topic: topic, ID: id, Partition: n}
	return &part{s: s, tp: tp, dir: path.Join(s.c.Dir, tp.String())}
}

// makeTopic builds the immutable form of a topic over its parts; under mu.
func (s *Store) makeTopic(name string, r record, parts []*part) *Topic {
	t := &Topic{ID: r.id, Name: name, Internal: r.Internal, Config: s.configOf(name), parts: parts,
		Partitions: make([]*plog.Log, len(parts)), Faults: make([]error, len(parts))}
	for i, p := range parts {
		t.Partitions[i], t.Faults[i] = p.log.Load(), p.fault
	}
	return t
}

// configOf resolves the settings of a topic; under mu. What this version does not take is left out, with a notice
// given by vetSet when the settings came in.
func (s *Store) configOf(name string) TopicConfig {
	c, err := ParseTopic(s.sets[name], s.defaults)
	if err != nil {
		c, _ = ParseTopic(nil, s.defaults) // vetSet has left only what parses; lags alone may still contradict
		c.Set = s.sets[name]
	}
	return c
}

// vetSet takes out of stored settings what this version does not know or take.
func (s *Store) vetSet(name string, set map[string]string) map[string]string {
	set = maps.Clone(set)
	for range len(set) {
		_, err := ParseTopic(set, s.c.Topic)
		var invalid *InvalidConfigError
		if !errors.As(err, &invalid) {
			break
		}
		s.c.notice(Notice{Kind: NoticeSetting, TP: TP{Topic: name}, Text: invalid.Name + "=" + set[invalid.Name], Err: err})
		delete(set, invalid.Name)
	}
	return set
}

// watch follows the metadata store from revision after on, until ctx ends.
func (s *Store) watch(ctx context.Context, after meta.Rev) {
	for ctx.Err() == nil {
		ch, err := s.c.Meta.Watch(ctx, after)
		if errors.Is(err, meta.ErrCompacted) {
			after, err = s.reload(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				s.report("watching the metadata", err)
			}
			return
		}
		for c := range ch {
			s.apply(c)
			after = c.Rev
		}
	}
}

// reload brings the catalog to the present state of the metadata after changes were missed.
func (s *Store) reload(ctx context.Context) (meta.Rev, error) {
	state, rev, err := s.c.Meta.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	c := meta.Change{Rev: rev}
	s.mu.Lock()
	lost := func(key string) {
		if _, ok := state.Get(key); !ok {
			c.Ops = append(c.Ops, meta.Op{Key: key})
		}
	}
	for name := range s.records {
		lost(topicPrefix + name)
	}
	for name := range s.sets {
		lost(configPrefix + name)
	}
	for node := range s.servers {
		lost(serverPrefix + node)
	}
	s.mu.Unlock()
	state.Range("", func(it meta.Item) bool {
		c.Ops = append(c.Ops, meta.Op{Key: it.Key, Value: it.Value})
		return true
	})
	s.apply(c)
	return rev, nil
}

// apply shows one revision in the catalog: settings first, then topics, then what changed settings mean for topics
// that were there already.
func (s *Store) apply(c meta.Change) {
	changed := map[string]map[string]string{}
	topics := map[string]*record{}
	for _, op := range c.Ops {
		it := meta.Item{Key: op.Key, Value: op.Value, Rev: c.Rev}
		var err error
		if name, ok := strings.CutPrefix(op.Key, configPrefix); ok {
			set := map[string]string{}
			if op.Value != nil {
				set, err = decodeSet(it)
			}
			changed[name] = s.vetSet(name, set)
		} else if name, ok := strings.CutPrefix(op.Key, topicPrefix); ok {
			topics[name] = nil
			if op.Value != nil {
				var r record
				r, err = decodeRecord(it)
				topics[name] = &r
			}
		} else if node, ok := strings.CutPrefix(op.Key, serverPrefix); ok {
			err = s.applyServer(node, it)
		}
		s.report("metadata", err)
	}
	s.openForeign(topics)
	s.mu.Lock()
	for name, set := range changed {
		s.sets[name] = set
	}
	for name, r := range topics {
		s.applyTopic(name, r)
	}
	s.reconfigure(maps.Keys(changed))
	s.applied = c.Rev
	close(s.moved)
	s.moved = make(chan struct{})
	watchers := s.watchers
	s.mu.Unlock()
	if len(topics) > 0 {
		names := slices.Sorted(maps.Keys(topics))
		for _, fn := range watchers {
			fn(names)
		}
	}
}

// Watch registers fn to be called with the names of topics that came, went or grew, after the catalog shows it.
// Calls come one after the other, from a goroutine of the store; fn must not block, nor call administrative methods.
// There is no way to take it back.
func (s *Store) Watch(fn func(names []string)) {
	s.mu.Lock()
	s.watchers = append(slices.Clip(s.watchers), fn)
	s.mu.Unlock()
}

func (s *Store) applyServer(node string, it meta.Item) error {
	set, err := map[string]string{}, error(nil)
	if it.Value != nil {
		set, err = decodeSet(it)
	}
	if err == nil {
		s.mu.Lock()
		s.servers[node] = set
		s.mu.Unlock()
	}
	return err
}

// applyTopic shows one topic record, nil: the topic is gone; under mu.
func (s *Store) applyTopic(name string, r *record) {
	cat := s.cat.Load()
	t := cat.ByName[name]
	if r == nil {
		if old, ok := s.records[name]; ok {
			delete(s.leaving, old.id)
		}
		if t != nil {
			s.drop(t)
		}
		delete(s.records, name)
		delete(s.sets, name)
		return
	}
	s.records[name] = *r
	if r.State == stateDeleting {
		if t != nil {
			s.drop(t)
		} else if s.leaving[r.id] == nil {
			t = s.makeTopic(name, *r, s.deadParts(name, *r))
		}
		if t != nil && s.leaving[r.id] == nil {
			s.leaving[r.id] = &leaving{topic: t}
		}
		return
	}
	var parts []*part
	if t != nil && t.ID == r.id {
		parts = t.parts
	} else if t != nil {
		s.drop(t)
	}
	if int(r.Partitions) > len(parts) {
		parts = append(append([]*part{}, parts...), s.prepared[r.id]...)
		delete(s.prepared, r.id)
		s.swap(s.makeTopic(name, *r, parts))
	}
}

// deadParts are the partitions of a topic found in deletion: their logs are not opened any more.
func (s *Store) deadParts(name string, r record) (parts []*part) {
	for n := range r.Partitions {
		parts = append(parts, s.newPart(name, r.id, n))
	}
	return parts
}

// reconfigure resolves the settings of topics anew and hands them to the running logs; under mu (lock order: Log.mu
// below).
func (s *Store) reconfigure(names iter.Seq[string]) {
	var changed []*Topic
	for name := range names {
		t, ok := s.cat.Load().ByName[name]
		if !ok {
			continue
		}
		n := *t
		n.Config = s.configOf(name)
		for _, p := range t.parts {
			if l := p.log.Load(); l != nil {
				l.Configure(n.Config.forLog(p.tp))
			}
		}
		changed = append(changed, &n)
	}
	if len(changed) > 0 {
		s.swap(changed...)
	}
}

// openForeign opens partitions that appear in the metadata without having been prepared here.
func (s *Store) openForeign(topics map[string]*record) {
	for name, r := range topics {
		if r == nil || r.State != stateActive {
			continue
		}
		s.mu.Lock()
		have := len(s.prepared[r.id])
		if t, ok := s.cat.Load().ByID[r.id]; ok {
			have += len(t.parts)
		}
		s.mu.Unlock()
		var parts []*part
		for n := int32(have); n < r.Partitions; n++ {
			p := s.newPart(name, r.id, n)
			l, _, err := s.openLog(p, false)
			if err == nil {
				p.log.Store(l)
				_ = s.sync.flush([]*part{p}, false)
			}
			p.fault = err
			parts = append(parts, p)
		}
		if len(parts) > 0 {
			s.mu.Lock()
			s.prepared[r.id] = append(s.prepared[r.id], parts...)
			s.mu.Unlock()
		}
	}
}

// await returns when the catalog shows a revision.
func (s *Store) await(rev meta.Rev) error {
	for {
		s.mu.Lock()
		done, moved := s.applied >= rev, s.moved
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-s.stop:
			return ErrClosed
		}
	}
}

// Defaults are the settings of topics that set nothing themselves.
func (s *Store) Defaults() TopicConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defaults
}

// SetDefaults replaces them, in the catalog and in the running logs. d comes from ParseServer.
func (s *Store) SetDefaults(d TopicConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.defaults = d
	s.reconfigure(maps.Keys(s.cat.Load().ByName))
}

// BrokerConfig returns the server settings that were stored for a node at run time; "" are those of all nodes.
func (s *Store) BrokerConfig(node string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := maps.Clone(s.servers[node])
	if set == nil {
		set = map[string]string{}
	}
	return set
}

// UpdateBroker replaces the stored server settings of a node, "" those of all nodes, by what fn makes of the present
// ones. It returns when they are durable and BrokerConfig shows them; putting them into effect is the caller's work.
func (s *Store) UpdateBroker(node string, fn func(old map[string]string) (map[string]string, error)) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	set, err := fn(s.BrokerConfig(node))
	if err != nil {
		return err
	}
	return s.commit(nil, []meta.Op{{Key: serverPrefix + node, Value: encodeSet(set)}})
}

// commit does an administrative transaction and waits until the catalog shows it.
func (s *Store) commit(conds []meta.Cond, ops []meta.Op) error {
	out, err := s.c.Meta.Txn(context.Background(), conds, ops)
	if err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	if !out.Applied {
		return errConflict
	}
	return s.await(out.Rev)
}

// errConflict: a condition of a transaction did not hold.
var errConflict = errors.New("store: the metadata changed meanwhile")
