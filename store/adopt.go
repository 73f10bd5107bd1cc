package store

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sekali/internal/vfs"
	"sekali/meta"
)

var errNotExist = iofs.ErrNotExist

// kraftTopic is the directory Kafka keeps its own metadata in; it is never a topic of ours.
const kraftTopic = "__cluster_metadata"

// content tells what a directory that is named like a partition holds.
type content uint8

const (
	contentForeign   content = iota // other files alone, or it is no directory
	contentNone                     // nothing: a creation that a crash cut short leaves no more
	contentPartition                // files of a partition, if only in part
)

func (s *Store) look(name string) (content, error) {
	dir := path.Join(s.c.Dir, name)
	st, err := s.c.FS.Stat(dir)
	if err != nil || !st.IsDir {
		return contentForeign, ignoreMissing(err)
	}
	names, err := s.c.FS.ReadDir(dir)
	switch {
	case err != nil:
		return contentForeign, fmt.Errorf("store: %w", err)
	case len(names) == 0:
		return contentNone, nil
	case slices.ContainsFunc(names, ourFile):
		return contentPartition, nil
	}
	return contentForeign, nil
}

func ignoreMissing(err error) error {
	if err == nil || errors.Is(err, errNotExist) {
		return nil
	}
	return fmt.Errorf("store: %w", err)
}

// ourFile knows the files of a partition directory by their names.
func ourFile(name string) bool {
	if name == TopicIDFile || strings.HasPrefix(name, "leader-epoch-checkpoint") {
		return true
	}
	digits, suffix, _ := strings.Cut(name, ".")
	if len(digits) != 20 || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	switch suffix {
	case "log", "index", "timeindex", "txnindex", "snapshot":
		return true
	}
	return false
}

// adopt takes over the topics of a directory that Apache Kafka wrote: names from the directories, ids from
// partition.metadata, settings from the defaults. It can be cut short and begun again: what is in the metadata is not
// taken twice.
func (s *Store) adopt(names []string) error {
	state, _, err := s.c.Meta.Snapshot(context.Background())
	if err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	found := map[string]record{}
	for _, name := range names {
		topic, n, kind := parseDir(name)
		if kind != dirLive || topic == kraftTopic || n >= PartitionsMax {
			continue
		}
		if _, known := state.Get(topicPrefix + topic); known {
			continue
		}
		holds, err := s.look(name)
		if err != nil {
			return err
		}
		if holds != contentPartition {
			continue
		}
		rec, seen := found[topic]
		if !seen {
			rec = record{State: stateActive, Internal: IsInternalName(topic)}
			if rec.id, err = s.adoptedID(path.Join(s.c.Dir, name)); err != nil {
				return err
			}
		}
		rec.Partitions = max(rec.Partitions, n+1)
		found[topic] = rec
	}
	var ops []meta.Op
	for _, topic := range slices.Sorted(maps.Keys(found)) {
		rec := found[topic]
		if err := s.fillGaps(topic, rec); err != nil {
			return err
		}
		ops = append(ops, meta.Op{Key: topicPrefix + topic, Value: encodeRecord(rec)})
		if rec.Internal {
			set := map[string]string{"cleanup.policy": "compact"}
			ops = append(ops, meta.Op{Key: configPrefix + topic, Value: encodeSet(set)})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := s.c.FS.SyncDir(s.c.Dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for chunk := range slices.Chunk(ops, 10_000) {
		if _, err := s.c.Meta.Txn(context.Background(), nil, chunk); err != nil {
			return fmt.Errorf("store: metadata: %w", err)
		}
	}
	for topic, rec := range found {
		s.c.notice(Notice{Kind: NoticeAdopted, TP: TP{Topic: topic, ID: rec.id, Partition: rec.Partitions}, Path: s.c.Dir,
			Text: "a topic written by Apache Kafka; its settings are the defaults"})
	}
	return nil
}

// adoptedID reads the id of a directory's topic; an old one that bears none gets one.
func (s *Store) adoptedID(dir string) (TopicID, error) {
	id, err := ReadPartitionID(s.c.FS, dir)
	if !errors.Is(err, errNotExist) {
		return id, err
	}
	return newID(s.c.Rand)
}

// fillGaps writes ids where they are missing and makes the partitions that this directory does not hold, as a
// member of a larger cluster has only some.
func (s *Store) fillGaps(topic string, rec record) error {
	for n := range rec.Partitions {
		dir := path.Join(s.c.Dir, dirName(topic, n))
		if err := s.c.FS.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		_, err := ReadPartitionID(s.c.FS, dir)
		if errors.Is(err, errNotExist) {
			err = vfs.WriteFileAtomic(s.c.FS, dir, TopicIDFile, encodeTopicID(rec.id))
		}
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// becomeOurs ends the adoption: producer ids of the past will not be given out again, the durable marks are filed,
// and the format marker says from now on whose directory this is.
func (s *Store) becomeOurs(opened []*part) error {
	last := int64(-1)
	for _, p := range opened {
		last = max(last, p.log.Load().MaxProducerID(pidsFoundBelow))
	}
	if last >= 0 {
		if err := raisePIDs(context.Background(), s.c.Meta, last+pidGap); err != nil {
			return err
		}
	}
	if err := vfs.WriteFileAtomic(s.c.FS, s.c.Dir, FormatFile, encodeFormat(FormatVersion)); err != nil {
		return fmt.Errorf("store: %s: %w", FormatFile, err)
	}
	return nil
}

// settle matches the directories with the catalog. What a deletion left is removed; a partition directory that
// belongs to no topic, or to another one of the same name, is set aside, or removed if it holds no record (the rest
// of a creation that a crash cut short); anything else is left alone and told.
func (s *Store) settle(names []string) error {
	for _, name := range names {
		topic, n, kind := parseDir(name)
		full := path.Join(s.c.Dir, name)
		switch {
		case kind == dirDelete:
			s.sched.purge = true
		case ownName(name):
		case strings.HasSuffix(name, ".tmp") && ownName(strings.TrimSuffix(name, ".tmp")):
			if err := s.c.FS.Remove(full); err != nil {
				return fmt.Errorf("store: %w", err)
			}
			s.c.notice(Notice{Kind: NoticeRemoved, Path: full, Text: "an unfinished file"})
		case kind == dirLive && topic != kraftTopic:
			if err := s.settleLive(name, topic, n); err != nil {
				return err
			}
		default:
			s.c.notice(Notice{Kind: NoticeForeign, Path: full})
		}
	}
	if err := s.c.FS.SyncDir(s.c.Dir); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// ownName knows the files at the top of a data directory, ours and Kafka's.
func ownName(name string) bool {
	switch name {
	case FormatFile, PropertiesFile, CleanFile, LockFile, RecoveryFile, StartFile, MarkFile, CleanerFile, HighFile,
		ReserveFile, meta.LogName, meta.SnapshotName:
		return true
	}
	return strings.HasPrefix(name, "sekali.coord-") || strings.HasPrefix(name, "sekali.group-")
}

func (s *Store) settleLive(name, topic string, n int32) error {
	full := path.Join(s.c.Dir, name)
	holds, err := s.look(name)
	if err != nil {
		return err
	}
	if holds == contentForeign {
		s.c.notice(Notice{Kind: NoticeForeign, Path: full})
		return nil
	}
	s.mu.Lock()
	rec, known := s.records[topic]
	s.mu.Unlock()
	id, err := ReadPartitionID(s.c.FS, full)
	if known && n < rec.Partitions && (err != nil || id == rec.id) {
		return nil // an id that cannot be read is told when the log is opened
	}
	removed, err := removeLaid(s.c.FS, full)
	if err != nil {
		return err
	}
	if removed {
		s.c.notice(Notice{Kind: NoticeRemoved, Path: full, Text: "an empty partition of no known topic"})
		return nil
	}
	if err := s.moveAside(TP{Topic: topic, Partition: n}, full, dirStray); err != nil {
		return err
	}
	s.c.notice(Notice{Kind: NoticeStray, TP: TP{Topic: topic, ID: id, Partition: n}, Path: full,
		Text: "a partition with records of no known topic was set aside as -stray"})
	return nil
}
