package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"

	"sekali/internal/vfs"
	"sekali/meta"
)

// NewTopic is a topic to be made. Config is what ParseTopic gave for its settings.
type NewTopic struct {
	Name       string
	Partitions int32
	Internal   bool
	Config     TopicConfig
}

// CreateTopics makes topics, all or none: one metadata transaction and one SyncAll. When it returns the catalog
// shows them, they are durable, and their partitions take appends. An error is a *TopicError where it concerns one
// topic, with ErrInvalidName, ErrTopicExists, ErrTwice, ErrPartitions, ErrTooMany or an *InvalidConfigError below
// it. An error that wraps meta.ErrUnknown leaves open whether the topics exist.
func (s *Store) CreateTopics(in ...NewTopic) ([]*Topic, error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	if err := s.validate(in); err != nil {
		return nil, err
	}
	var all []*part
	var conds []meta.Cond
	var ops []meta.Op
	ids := make([]TopicID, len(in))
	for i, n := range in {
		id, err := newID(s.c.Rand)
		if err != nil {
			return nil, err
		}
		ids[i] = id
		for p := range n.Partitions {
			all = append(all, s.newPart(n.Name, id, p))
		}
		conds = append(conds, meta.Cond{Key: topicPrefix + n.Name})
		rec := record{id: id, Partitions: n.Partitions, State: stateActive, Internal: n.Internal}
		ops = append(ops, meta.Op{Key: topicPrefix + n.Name, Value: encodeRecord(rec)})
		if len(n.Config.Set) > 0 {
			ops = append(ops, meta.Op{Key: configPrefix + n.Name, Value: encodeSet(n.Config.Set)})
		}
	}
	configs := make(map[string]TopicConfig, len(in))
	for _, n := range in {
		configs[n.Name] = s.overDefaults(n.Config)
	}
	if err := s.introduce(all, configs, conds, ops); err != nil {
		if errors.Is(err, errConflict) {
			err = ErrTopicExists
		}
		return nil, err
	}
	cat := s.cat.Load()
	out := make([]*Topic, len(in))
	for i, id := range ids {
		if out[i] = cat.ByID[id]; out[i] == nil {
			return nil, &TopicError{in[i].Name, ErrUnknownTopicID} // deleted again meanwhile
		}
	}
	return out, nil
}

// overDefaults puts a topic's own settings over the present defaults; they have been checked.
func (s *Store) overDefaults(c TopicConfig) TopicConfig {
	if r, err := ParseTopic(c.Set, s.Defaults()); err == nil {
		return r
	}
	return c
}

// introduce makes new partitions durable, opens them and does the transaction that shows them; under admin. What a
// refusal or an error before the transaction leaves is removed; if its outcome is unknown everything stays, and the
// next start knows.
func (s *Store) introduce(all []*part, configs map[string]TopicConfig, conds []meta.Cond, ops []meta.Op) error {
	if err := s.lay(all, configs); err != nil {
		s.unlay(all)
		return err
	}
	s.mu.Lock()
	for _, p := range all {
		s.prepared[p.tp.ID] = append(s.prepared[p.tp.ID], p)
	}
	s.mu.Unlock()
	err := s.commit(conds, ops)
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, meta.ErrUnknown) {
		return err // what the catalog may yet show stays prepared
	}
	s.mu.Lock()
	for _, p := range all {
		delete(s.prepared, p.tp.ID)
	}
	s.mu.Unlock()
	s.unlay(all)
	return err
}

// unlay takes new partitions back that nobody has seen.
func (s *Store) unlay(all []*part) {
	for _, p := range all {
		if l := p.log.Load(); l != nil {
			p.log.Store(nil)
			s.report("closing a new partition", l.Close())
		}
		if p.laid {
			s.report("removing a new partition", vfs.RemoveAll(s.c.FS, p.dir))
		}
	}
}

// lay makes the directories of new partitions with their topic ids, opens their logs and makes all of it durable.
func (s *Store) lay(all []*part, configs map[string]TopicConfig) error {
	for _, p := range all {
		if err := s.layOne(p, configs[p.tp.Topic]); err != nil {
			return &TopicError{p.tp.Topic, err}
		}
	}
	if err := s.sync.flush(all, true); err != nil {
		return fmt.Errorf("store: flush of new partitions: %w", err)
	}
	for _, p := range all {
		if err := p.log.Load().Err(); err != nil {
			return &TopicError{p.tp.Topic, err}
		}
	}
	return nil
}

func (s *Store) layOne(p *part, c TopicConfig) error {
	if there, err := vfs.Exists(s.c.FS, p.dir); err != nil {
		return fmt.Errorf("store: %w", err)
	} else if there {
		names, err := s.c.FS.ReadDir(p.dir)
		if err != nil || len(names) > 0 {
			return errors.Join(fmt.Errorf("store: %s is in the way: it belongs to no topic", p.dir), err)
		}
	}
	p.laid = true
	if err := s.c.FS.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := writePlain(s.c.FS, path.Join(p.dir, TopicIDFile), encodeTopicID(p.tp.ID)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	l, _, err := s.openWith(p, c, false)
	if err != nil {
		return err
	}
	p.log.Store(l)
	return nil
}

// writePlain creates a file; the caller flushes it.
func writePlain(fs vfs.FS, name string, b []byte) error {
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// Validate makes every check of CreateTopics and nothing else.
func (s *Store) Validate(in ...NewTopic) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	return s.validate(in)
}

func (s *Store) validate(in []NewTopic) error {
	if s.closing.Load() {
		return ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	total := 0
	for _, n := range in {
		err := CheckName(n.Name)
		if err == nil && seen[n.Name] {
			err = ErrTwice
		}
		if err == nil {
			err = s.nameFree(n.Name, seen)
		}
		if err == nil && (n.Partitions < 1 || n.Partitions > PartitionsMax) {
			err = fmt.Errorf("%w: %d, it must lie between 1 and %d", ErrPartitions, n.Partitions, PartitionsMax)
		}
		if err == nil {
			_, err = ParseTopic(n.Config.Set, s.defaults)
		}
		total += int(n.Partitions)
		if err == nil {
			err = s.room(total)
		}
		if err != nil {
			return &TopicError{n.Name, err}
		}
		seen[n.Name] = true
	}
	return nil
}

// nameFree tests a name against the topics there are, those in deletion included, and against others of the same
// call; under mu.
func (s *Store) nameFree(name string, others map[string]bool) error {
	if _, ok := s.records[name]; ok {
		return ErrTopicExists
	}
	clash := func(other string) error {
		return fmt.Errorf("%w: %q differs from the topic %q only by '.' and '_'", ErrInvalidName, name, other)
	}
	for other := range others {
		if collides(name, other) {
			return clash(other)
		}
	}
	for other := range s.records {
		if collides(name, other) {
			return clash(other)
		}
	}
	return nil
}

// room tests whether so many more partitions fit under the limit of open files; under mu.
func (s *Store) room(more int) error {
	if s.c.FilesMax <= 0 {
		return nil
	}
	have := 0
	for _, r := range s.records {
		have += int(r.Partitions)
	}
	if need := (have+more)*filesPerPartition + filesReserved; need > s.c.FilesMax {
		return fmt.Errorf("%w: %d partitions need %d open files, the limit is %d", ErrTooMany, have+more, need, s.c.FilesMax)
	}
	return nil
}

// AddPartitions raises the number of partitions of a topic to total. Errors: ErrUnknownTopic, ErrPartitions,
// ErrTooMany.
func (s *Store) AddPartitions(name string, total int32) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	t, rec, cond, err := s.activeTopic(name)
	if err != nil {
		return err
	}
	if total <= rec.Partitions || total > PartitionsMax {
		return fmt.Errorf("%w: the topic has %d, %d were asked for", ErrPartitions, rec.Partitions, total)
	}
	s.mu.Lock()
	err = s.room(int(total - rec.Partitions))
	s.mu.Unlock()
	if err != nil {
		return err
	}
	var all []*part
	for n := rec.Partitions; n < total; n++ {
		all = append(all, s.newPart(name, t.ID, n))
	}
	rec.Partitions = total
	err = s.introduce(all, map[string]TopicConfig{name: t.Config}, []meta.Cond{cond},
		[]meta.Op{{Key: topicPrefix + name, Value: encodeRecord(rec)}})
	if errors.Is(err, errConflict) {
		return ErrUnknownTopic
	}
	return err
}

// ValidatePartitions makes every check of AddPartitions and nothing else.
func (s *Store) ValidatePartitions(name string, total int32) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	_, rec, _, err := s.activeTopic(name)
	if err != nil {
		return err
	}
	if total <= rec.Partitions || total > PartitionsMax {
		return fmt.Errorf("%w: the topic has %d, %d were asked for", ErrPartitions, rec.Partitions, total)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room(int(total - rec.Partitions))
}

// activeTopic finds a topic with its record and the condition that the record has not changed; under admin.
func (s *Store) activeTopic(name string) (*Topic, record, meta.Cond, error) {
	t, ok := s.cat.Load().ByName[name]
	if !ok {
		return nil, record{}, meta.Cond{}, ErrUnknownTopic
	}
	state, _, err := s.c.Meta.Snapshot(context.Background())
	if err != nil {
		return nil, record{}, meta.Cond{}, fmt.Errorf("store: metadata: %w", err)
	}
	it, ok := state.Get(topicPrefix + name)
	if !ok {
		return nil, record{}, meta.Cond{}, ErrUnknownTopic
	}
	rec, err := decodeRecord(it)
	if err != nil {
		return nil, rec, meta.Cond{}, err
	}
	if rec.id != t.ID || rec.State != stateActive {
		return nil, rec, meta.Cond{}, ErrUnknownTopic
	}
	return t, rec, meta.Cond{Key: it.Key, Rev: it.Rev}, nil
}

// Alter replaces what is set for a topic. When it returns the running logs have it. Errors: ErrUnknownTopicID,
// *InvalidConfigError.
func (s *Store) Alter(id TopicID, set map[string]string) error {
	return s.Update(id, func(map[string]string) (map[string]string, error) { return set, nil })
}

// Update is Alter with what fn makes of the present settings, one call at a time. fn may change the map it is
// given; an error of fn is returned as it is.
func (s *Store) Update(id TopicID, fn func(old map[string]string) (map[string]string, error)) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	t, set, err := s.resolveUpdate(id, fn)
	if err != nil {
		return err
	}
	_, _, cond, err := s.activeTopic(t.Name)
	if err != nil {
		return ErrUnknownTopicID
	}
	op := meta.Op{Key: configPrefix + t.Name}
	if len(set) > 0 {
		op.Value = encodeSet(set)
	}
	err = s.commit([]meta.Cond{cond}, []meta.Op{op})
	if errors.Is(err, errConflict) {
		return ErrUnknownTopicID
	}
	return err
}

// ValidateUpdate makes every check of Update and nothing else.
func (s *Store) ValidateUpdate(id TopicID, fn func(old map[string]string) (map[string]string, error)) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	_, _, err := s.resolveUpdate(id, fn)
	return err
}

func (s *Store) resolveUpdate(id TopicID, fn func(map[string]string) (map[string]string, error)) (
	*Topic, map[string]string, error) {
	t, ok := s.cat.Load().ByID[id]
	if !ok {
		return nil, nil, ErrUnknownTopicID
	}
	old := maps.Clone(t.Config.Set)
	if old == nil {
		old = map[string]string{}
	}
	set, err := fn(old)
	if err != nil {
		return nil, nil, err
	}
	_, err = ParseTopic(set, s.Defaults())
	return t, set, err
}

// removeLaid removes a partition directory that no topic has and that holds no record: the rest of a call that a
// crash cut short. False: it holds something.
func removeLaid(fs vfs.FS, dir string) (bool, error) {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	for _, n := range names {
		if path.Ext(n) != ".log" {
			continue
		}
		st, err := fs.Stat(path.Join(dir, n))
		if err != nil {
			return false, fmt.Errorf("store: %w", err)
		}
		if st.Size > 0 {
			return false, nil
		}
	}
	if err := vfs.RemoveAll(fs, dir); err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	return true, nil
}
