package store

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"

	"sekali/internal/vfs"
	"sekali/meta"
)

// DeleteTopic deletes a topic, step by step: a durable record that it goes (from here on the catalog does not show
// it, and a crash cannot bring it back); before, which tells the coordinators and returns when what they wrote is
// durable; the logs are taken out of service and the directories renamed, durably; what the offset files say about
// it is removed; the record is deleted, and the name is free. The space is given back by later Ticks.
//
// An error after the first step leaves the topic in deletion: DeleteTopic with the same id goes on, as it does for
// those in Interrupted. Errors: ErrUnknownTopicID, also while another call works on the same topic.
func (s *Store) DeleteTopic(id TopicID, before func(Topic) error) error {
	l, err := s.beginDelete(id)
	if err != nil {
		return err
	}
	err = s.finishDelete(l.topic, before)
	s.mu.Lock()
	l.busy = false
	s.mu.Unlock()
	return err
}

// Interrupted lists topics whose deletion has begun and not ended, and that no call works on.
func (s *Store) Interrupted() (out []Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leaving {
		if !l.busy {
			out = append(out, *l.topic)
		}
	}
	return out
}

// beginDelete makes the deletion durable, or takes one up that was begun.
func (s *Store) beginDelete(id TopicID) (*leaving, error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	if t, ok := s.cat.Load().ByID[id]; ok {
		_, rec, cond, err := s.activeTopic(t.Name)
		if err != nil {
			return nil, ErrUnknownTopicID
		}
		rec.State = stateDeleting
		err = s.commit([]meta.Cond{cond}, []meta.Op{{Key: topicPrefix + t.Name, Value: encodeRecord(rec)}})
		if errors.Is(err, errConflict) {
			return nil, ErrUnknownTopicID
		}
		if err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leaving[id]
	if !ok || l.busy {
		return nil, ErrUnknownTopicID
	}
	l.busy = true
	return l, nil
}

func (s *Store) finishDelete(t *Topic, before func(Topic) error) error {
	if before != nil {
		if err := before(*t); err != nil {
			return err
		}
	}
	s.sync.keepOut(t.parts...)
	// Answers on their way to clients hold mappings, which outlive the files: a client that takes none of its answer
	// does not keep the name of the topic.
	ctx, enough := context.WithCancel(context.Background())
	defer enough()
	defer s.c.Clock.AfterFunc(deleteWait, enough).Stop()
	for _, p := range t.parts {
		if err := s.putAway(ctx, p); err != nil {
			return &TopicError{t.Name, err}
		}
	}
	if err := s.c.FS.SyncDir(s.c.Dir); err != nil {
		return &TopicError{t.Name, fmt.Errorf("store: %w", err)}
	}
	s.mu.Lock()
	s.sched.purge = true
	s.mu.Unlock()
	err := s.forget()
	if vfs.IsNoSpace(err) { // deleting is how a full disk gets room again
		s.report("deleted directories", s.purgeSome(len(t.parts)))
		err = s.forget()
	}
	if err != nil {
		return &TopicError{t.Name, err}
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	state, _, err := s.c.Meta.Snapshot(context.Background())
	if err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	it, ok := state.Get(topicPrefix + t.Name)
	if !ok {
		return nil
	}
	ops := []meta.Op{{Key: topicPrefix + t.Name}}
	if _, ok := state.Get(configPrefix + t.Name); ok {
		ops = append(ops, meta.Op{Key: configPrefix + t.Name})
	}
	return s.commit([]meta.Cond{{Key: it.Key, Rev: it.Rev}}, ops)
}

// forget files the offsets of what is in the catalog, and nothing else.
func (s *Store) forget() error {
	if s.c.Written {
		if err := s.fileHighs(); err != nil {
			return err
		}
	}
	return s.fileOffsets()
}

// putAway takes a partition's log out of service and renames its directory; fetches under way are waited for until ctx
// ends. A directory that is not there any more was renamed before a crash.
func (s *Store) putAway(ctx context.Context, p *part) error {
	p.chore.Lock()
	defer p.chore.Unlock()
	p.gone = true
	l := p.log.Load()
	if l != nil {
		if err := l.Delete(ctx); err != nil {
			return err
		}
		p.log.Store(nil)
	}
	return s.moveAside(p.tp, p.dir, dirDelete)
}

// moveAside renames a partition directory, if it is there; the caller syncs the data directory.
func (s *Store) moveAside(tp TP, dir string, kind dirKind) error {
	uuid, err := newID(s.c.Rand)
	if err != nil {
		return err
	}
	to := path.Join(s.c.Dir, movedName(tp.Topic, tp.Partition, uuid, kind))
	if err := s.c.FS.Rename(dir, to); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
