package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
)

// Open opens the data directory. The caller holds its lock (Lock), has opened the metadata store in it and raised
// the start epoch (RaiseEpoch); it closes both after Close. Everything that is shown when Open returns is durable:
// what the logs hold above their durable marks was flushed first (I7). A partition that cannot be opened is
// offline, with the reason in the catalog, and does not keep the others from serving.
func Open(c Config) (*Store, error) {
	if c.Topic.base == nil {
		c.Topic = builtin
	}
	c.Clean = c.Clean.WithDefaults()
	s := &Store{
		c: c, stop: make(chan struct{}), moved: make(chan struct{}), defaults: c.Topic,
		recoveryFile: newOffsetFile(c.FS, c.Dir, RecoveryFile),
		startFile:    newOffsetFile(c.FS, c.Dir, StartFile),
		cleanerFile:  newOffsetFile(c.FS, c.Dir, CleanerFile),
		records:      map[string]record{}, sets: map[string]map[string]string{},
		servers: map[string]map[string]string{}, prepared: map[TopicID][]*part{},
		leaving: map[TopicID]*leaving{},
	}
	s.cat.Store(&Catalog{ByName: map[string]*Topic{}, ByID: map[TopicID]*Topic{}})
	s.sync = newSyncer(s)
	s.sync.start(&s.helpers)
	rev, err := s.recover()
	if err != nil {
		s.abandon()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stopWatch = cancel
	s.reserve.mu.Lock()
	s.report(ReserveFile, s.hold())
	s.reserve.mu.Unlock()
	s.loops.Go(func() { s.watch(ctx, rev) })
	s.loops.Go(func() { s.sync.run(s.stop) })
	if !c.Clean.Off && !clock.Simulated(c.Clock) {
		s.loops.Go(s.cleanLoop)
	}
	now := c.Clock.Mono()
	s.sched.marks, s.sched.sweep, s.sched.told = now, now, map[string]string{}
	return s, nil
}

// abandon lets go of what a failed Open holds.
func (s *Store) abandon() {
	s.parts(func(p *part) {
		if l := p.log.Load(); l != nil {
			s.report("closing a partition", l.Close())
		}
	})
	close(s.sync.work)
	s.helpers.Wait()
}

func (s *Store) recover() (meta.Rev, error) {
	began := s.c.Clock.Mono()
	version, err := readFormat(s.c.FS, s.c.Dir)
	if err != nil {
		return 0, err
	}
	s.adopting = version == 0
	if err := s.identify(); err != nil {
		return 0, err
	}
	if err := s.takeCleanFile(); err != nil {
		return 0, err
	}
	names, err := s.c.FS.ReadDir(s.c.Dir)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	if s.adopting {
		if err := s.adopt(names); err != nil {
			return 0, err
		}
	}
	rev, err := s.loadCatalog()
	if err != nil {
		return 0, err
	}
	if err := s.settle(names); err != nil {
		return 0, err
	}
	s.loadOffsets()
	opened := s.openAll()
	_ = s.sync.flush(opened, false) // a log whose flush failed is offline and says so
	s.showAll()
	s.tellLoss()
	if err := s.fileOffsets(); err != nil {
		return 0, err
	}
	if s.adopting {
		if err := s.becomeOurs(opened); err != nil {
			return 0, err
		}
		s.adopting = false // what is opened from here on is ours: a file that lacks is one that was lost
	}
	s.recovery.Clean, s.recovery.Took = s.clean, s.c.Clock.Mono()-began
	return rev, nil
}

// takeCleanFile notes whether the last stop was clean and removes the file, durably, before anything is loaded: a
// crash from here on is no clean stop.
func (s *Store) takeCleanFile() error {
	name := path.Join(s.c.Dir, CleanFile)
	there, err := vfs.Exists(s.c.FS, name)
	if err == nil && there {
		err = s.c.FS.Remove(name)
	}
	if err == nil {
		err = s.c.FS.SyncDir(s.c.Dir)
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	s.clean = there
	return nil
}

// loadCatalog takes topics and settings from the metadata; no log is open yet. Metadata that passed its checksums and
// still makes no sense refuses the start.
func (s *Store) loadCatalog() (meta.Rev, error) {
	state, rev, err := s.c.Meta.Snapshot(context.Background())
	if err != nil {
		return 0, fmt.Errorf("store: metadata: %w", err)
	}
	topics, servers, err := ReadCatalog(state)
	if err != nil {
		return 0, err
	}
	for i, t := range topics {
		topics[i].Set = s.vetSet(t.Name, t.Set)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers, s.applied = servers, rev
	for _, t := range topics {
		r := record{id: t.ID, Partitions: t.Partitions, State: stateActive, Internal: t.Internal}
		if t.Deleting {
			r.State = stateDeleting
		}
		s.sets[t.Name] = t.Set
		if !t.Deleting {
			s.prepared[t.ID] = s.deadParts(t.Name, r)
		}
		s.applyTopic(t.Name, &r)
	}
	return rev, nil
}

// loadOffsets reads the offset files into the partitions. A damaged file costs a longer scan, never a start:
// without recovery points everything is scanned, without log starts the first segment begins the log, and without
// durable marks the recovery points, which were flushed too, stand in for them. So they do in a directory that
// Kafka wrote, whose high watermarks say nothing about this disk.
func (s *Store) loadOffsets() {
	read := func(name string) Offsets {
		o, err := ReadOffsets(s.c.FS, s.c.Dir, name)
		if err != nil {
			s.c.notice(Notice{Kind: NoticeCheckpoint, Path: path.Join(s.c.Dir, name), Err: err})
		}
		return o // nil after an error
	}
	recovery, start, cleaned := read(RecoveryFile), read(StartFile), read(CleanerFile)
	marks := Offsets{}
	if !s.adopting {
		marks = read(MarkFile)
	}
	s.parts(func(p *part) {
		at := p.place()
		p.recovery.Store(recovery[at])
		from, filed := start[at]
		if !filed && (start == nil || s.adopting) {
			from = s.firstBase(p.dir) // Kafka files a log start only where it lies above the first segment
		}
		p.start.Store(from)
		p.cleaned.Store(cleaned[at])
		p.seen = max(marks[at], recovery[at])
		p.filed = p.seen
		p.durable.Store(p.seen)
	})
}

// firstBase is the base offset of the first segment in a directory, -1 if there is none that can be seen.
func (s *Store) firstBase(dir string) int64 {
	names, err := s.c.FS.ReadDir(dir)
	if err != nil {
		return -1
	}
	for _, name := range names { // sorted, and the digits have one length
		if base, ok := strings.CutSuffix(name, ".log"); ok && ourFile(name) {
			if n, err := strconv.ParseInt(base, 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// openAll opens every partition, a few at a time, and returns those that are open.
func (s *Store) openAll() (opened []*part) {
	var all []*part
	s.parts(func(p *part) { all = append(all, p) })
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i].tp, all[j].tp
		return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
	})
	reports := make([]plog.Report, len(all))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(s.c.threads(), len(all)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				l, report, err := s.openLog(all[i], s.clean)
				if err == nil {
					all[i].log.Store(l)
				}
				all[i].fault, reports[i] = err, report
			}
		})
	}
	wg.Wait()
	for i, p := range all {
		s.recovery.ScannedBytes += reports[i].Scanned
		s.recovery.Batches += int64(reports[i].Batches)
		s.recovery.CutBytes += reports[i].Cut.Bytes
		s.recovery.CutBatches += reports[i].Cut.Batches
		if p.log.Load() == nil {
			s.recovery.Offline++
			continue
		}
		opened = append(opened, p)
	}
	s.recovery.Logs = len(opened)
	return opened
}

// showAll puts the logs there are, and the reasons for those there are not, into the catalog.
func (s *Store) showAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Topic
	for _, t := range s.cat.Load().ByID {
		all = append(all, s.makeTopic(t.Name, s.records[t.Name], t.parts))
	}
	s.swap(all...)
}

// openLog opens the log of a partition whose directory must be there and bear the topic's id.
func (s *Store) openLog(p *part, clean bool) (*plog.Log, plog.Report, error) {
	there, err := vfs.Exists(s.c.FS, p.dir)
	if err == nil && !there {
		err = fmt.Errorf("%w: %s: put it back from a copy and reopen the partition, or delete the topic", ErrMissing, p.dir)
	}
	if err != nil {
		return nil, plog.Report{}, err
	}
	id, err := ReadPartitionID(s.c.FS, p.dir)
	if err != nil {
		return nil, plog.Report{}, err
	}
	if id != p.tp.ID {
		return nil, plog.Report{}, fmt.Errorf("%w: %s is of topic id %s, not %s", ErrIdentity, p.dir, id, p.tp.ID)
	}
	s.mu.Lock()
	c := s.configOf(p.tp.Topic)
	s.mu.Unlock()
	return s.openWith(p, c, clean)
}

func (s *Store) openWith(p *part, c TopicConfig, clean bool) (*plog.Log, plog.Report, error) {
	o := plog.Options{
		Dir: p.dir, TopicID: p.tp.ID, Epoch: s.c.Epoch, Config: c.forLog(p.tp), Written: s.c.Written,
		FS: s.c.FS, Clock: s.c.Clock, Shared: s.c.Shared, Load: &s.load,
		Dirty:    func() { s.sync.mark(p) },
		Lazy:     func() { s.sync.later(p) },
		Hurry:    func() { s.sync.mark(p); s.sync.kick() },
		Recovery: p.recovery.Load(), LogStart: p.start.Load(), Mark: p.durable.Load(), FirstDirty: p.cleaned.Load(),
		Clean: clean, Adopt: s.adopting, Persist: p.persist,
	}
	o.Pids.ProducersMax, o.Pids.ExpireAfter = s.c.ProducersMax, s.c.ProducerExpire
	if s.c.Events != nil {
		o.Events = s.c.Events(p.tp)
	}
	l, report, err := plog.Open(o)
	if err != nil {
		return nil, report, fmt.Errorf("store: partition %s: %w", p.tp, err)
	}
	for _, name := range report.Removed {
		s.c.notice(Notice{Kind: NoticeRemoved, TP: p.tp, Path: path.Join(p.dir, name), Text: "unfinished or damaged"})
	}
	if p.start.Load() < 0 {
		p.start.Store(l.Offsets().Start)
	}
	return l, report, nil
}

// tellLoss compares what had been visible under durability=written with what is there. It is a lower bound: what
// became visible after the last second's note is not counted.
func (s *Store) tellLoss() {
	highs, err := ReadOffsets(s.c.FS, s.c.Dir, HighFile)
	if err != nil {
		s.c.notice(Notice{Kind: NoticeCheckpoint, Path: path.Join(s.c.Dir, HighFile), Err: err})
		return
	}
	s.parts(func(p *part) {
		l := p.log.Load()
		if l == nil {
			return
		}
		if lost := highs[p.place()] - l.Offsets().End; lost > 0 {
			s.c.notice(Notice{Kind: NoticeLoss, TP: p.tp, Path: p.dir, N: lost,
				Text: "records that had been visible were lost with the last power failure, at least"})
		}
	})
	switch {
	case s.c.Written:
		s.report(HighFile, s.fileHighs())
	case len(highs) > 0:
		s.report(HighFile, ignoreMissing(s.c.FS.Remove(path.Join(s.c.Dir, HighFile))))
	}
}

// identify reads the directory's identity or gives it one. The metadata store keeps the cluster's id too: a lost
// meta.properties is written again, one of another cluster refuses the start.
func (s *Store) identify() error {
	id, err := ReadIdentity(s.c.FS, s.c.Dir)
	fresh := errors.Is(err, errNotExist)
	if err != nil && !fresh {
		return fmt.Errorf("%w (without the file it is written again)", err)
	}
	if fresh {
		id.NodeID = -1
	}
	old := id
	if id.ClusterID, err = s.clusterID(id.ClusterID); err != nil {
		return err
	}
	if id.NodeID < 0 {
		id.NodeID = max(s.c.NodeID, 1)
	}
	if s.c.NodeID != 0 && s.c.NodeID != id.NodeID {
		return fmt.Errorf("%w: %s is of node %d, the settings say %d", ErrIdentity, s.c.Dir, id.NodeID, s.c.NodeID)
	}
	if id.DirectoryID == "" {
		dir, err := newID(s.c.Rand)
		if err != nil {
			return err
		}
		id.DirectoryID = dir.String()
	}
	s.id = id
	if id == old && !fresh {
		return nil
	}
	if err := vfs.WriteFileAtomic(s.c.FS, s.c.Dir, PropertiesFile, encodeProperties(id)); err != nil {
		return fmt.Errorf("store: %s: %w", PropertiesFile, err)
	}
	return nil
}

// clusterID agrees on the cluster's id between file and metadata; whichever is there first decides.
func (s *Store) clusterID(file string) (string, error) {
	ctx := context.Background()
	state, _, err := s.c.Meta.Snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("store: metadata: %w", err)
	}
	it, ok := state.Get(clusterKey)
	stored := string(it.Value)
	switch {
	case ok && file != "" && stored != file:
		return "", fmt.Errorf("%w: %s is of cluster %s, the metadata of %s", ErrIdentity, s.c.Dir, file, stored)
	case ok:
		return stored, nil
	case file == "":
		id, err := newID(s.c.Rand)
		if err != nil {
			return "", err
		}
		file = id.String()
	}
	out, err := s.c.Meta.Txn(ctx, []meta.Cond{{Key: clusterKey}}, []meta.Op{{Key: clusterKey, Value: []byte(file)}})
	if err == nil && !out.Applied {
		err = errConflict
	}
	if err != nil {
		return "", fmt.Errorf("store: metadata: %w", err)
	}
	return file, nil
}
