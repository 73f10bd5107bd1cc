package store

import (
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/plog"
)

// schedule is the state of Tick; of the goroutine that calls it.
type schedule struct {
	marks, sweep time.Duration // when they were last done
	of           *Catalog      // order is of it
	order        []*part       // by topic and number
	turn         int           // who had the last turn
	told         map[string]string
	reopening    bool // under Store.mu
	purge        bool // a deleted directory waits; under Store.mu
}

// Tick does the housekeeping that is due. One goroutine calls it about once a second until Close; it may take a few
// flushes. In durability=written it also starts the flush of what was written since the last one. If something found
// no room on the disk since the last call, client appends are refused meanwhile and the reserved blocks are lent: what
// is done here can give room again.
func (s *Store) Tick() {
	if s.closing.Load() {
		return
	}
	if s.load.Short.Swap(false) && s.lend() {
		defer s.takeBack()
	} else {
		s.repeat(ReserveFile, s.replenish())
	}
	now := s.c.Clock.Mono()
	if now-s.sched.marks >= markEvery {
		s.sched.marks = now
		s.repeat("durable marks", s.fileMarks())
		if s.c.Written {
			s.repeat("high watermarks", s.fileHighs())
		}
	}
	if now-s.sched.sweep >= sweepEvery {
		s.sched.sweep = now
		s.c.Shared.Sweep()
	}
	s.tickLogs()
	s.repeat("recovery points", s.filePoints())
	s.watchFaults(now)
	s.repeat("deleted directories", s.purgeSome(purgePerTick))
	s.sync.due()
	s.sync.kick()
}

// repeat reports an error of recurring work once, until it changes or goes away; of the ticker.
func (s *Store) repeat(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if vfs.IsNoSpace(err) {
		s.load.Short.Store(true)
	}
	if s.sched.told[what] != text {
		s.sched.told[what] = text
		s.report(what, err)
	}
}

func (s *Store) report(what string, err error) {
	if err != nil {
		s.c.notice(Notice{Kind: NoticeFault, Path: s.c.Dir, Text: what, Err: err})
	}
}

// tickLogs gives a share of the logs their turn, one after the other in a fixed order: all of them within a few
// ticks, if the disk keeps up with the files they write.
func (s *Store) tickLogs() {
	order := s.order()
	if len(order) == 0 {
		return
	}
	wall, until := s.c.Clock.Wall(), s.c.Clock.Mono()+tickTime
	for range min(max(tickLogsMin, (len(order)+tickShare-1)/tickShare), len(order)) {
		s.sched.turn = (s.sched.turn + 1) % len(order)
		if l := order[s.sched.turn].log.Load(); l != nil {
			l.Tick(wall)
		}
		if s.c.Clock.Mono() > until {
			return
		}
	}
}

// order lists the partitions of the catalog by topic and number.
func (s *Store) order() []*part {
	if cat := s.cat.Load(); cat != s.sched.of {
		s.sched.of, s.sched.order = cat, s.sched.order[:0]
		for _, name := range slices.Sorted(maps.Keys(cat.ByName)) {
			s.sched.order = append(s.sched.order, cat.ByName[name].parts...)
		}
	}
	return s.sched.order
}

// watchFaults tells of partitions that went offline and reopens those whose time has come, one after the other,
// beside the ticks. One that goes offline again soon after is left alone longer each time.
func (s *Store) watchFaults(now time.Duration) {
	var due []*part
	s.parts(func(p *part) {
		err := s.faultOf(p)
		if err == nil {
			p.told = false
			if now-p.badAt >= reopenMax { // it has kept well since
				p.retries = 0
			}
			return
		}
		p.badAt = now
		if !p.told {
			p.told = true
			p.retryAt = now + min(reopenFirst<<min(p.retries, 10), reopenMax)
			s.c.notice(Notice{Kind: NoticeOffline, TP: p.tp, Path: p.dir, Err: err})
		}
		if now >= p.retryAt && !hopeless(err) {
			p.retries++
			p.retryAt = now + min(reopenFirst<<min(p.retries, 10), reopenMax)
			due = append(due, p)
		}
	})
	if len(due) == 0 {
		return
	}
	s.mu.Lock()
	busy := s.sched.reopening || s.closing.Load()
	if !busy {
		s.sched.reopening = true
		if !clock.Simulated(s.c.Clock) {
			s.loops.Add(1)
		}
	}
	s.mu.Unlock()
	if busy {
		return
	}
	if clock.Simulated(s.c.Clock) {
		s.reopenAll(due)
		return
	}
	go func() {
		defer s.loops.Done()
		s.reopenAll(due)
	}()
}

// faultOf is why a partition does not serve.
func (s *Store) faultOf(p *part) error {
	if l := p.log.Load(); l != nil {
		return l.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.fault
}

// hopeless is true for what time alone does not heal: damaged or missing data waits for an administrator.
func hopeless(err error) bool {
	var damage *plog.CorruptError
	return errors.As(err, &damage) || errors.Is(err, ErrMissing)
}

func (s *Store) reopenAll(parts []*part) {
	for _, p := range parts {
		if !s.closing.Load() {
			_ = s.reopen(p) // told by reopen
		}
	}
	s.mu.Lock()
	s.sched.reopening = false
	s.mu.Unlock()
}

// purgeSome removes up to n directories of deleted partitions.
func (s *Store) purgeSome(n int) error {
	s.mu.Lock()
	due := s.sched.purge
	s.sched.purge = false
	s.mu.Unlock()
	if !due {
		return nil
	}
	until := s.c.Clock.Mono() + purgeTime
	names, err := s.c.FS.ReadDir(s.c.Dir)
	for _, name := range names {
		if _, _, kind := parseDir(name); kind != dirDelete || err != nil {
			continue
		}
		if n--; n < 0 || s.c.Clock.Mono() > until {
			n = -1
			break
		}
		full := path.Join(s.c.Dir, name)
		if err = vfs.RemoveAll(s.c.FS, full); err == nil {
			s.c.notice(Notice{Kind: NoticeRemoved, Path: full, Text: "a deleted partition"})
		}
	}
	if err != nil || n < 0 {
		s.mu.Lock()
		s.sched.purge = true
		s.mu.Unlock()
	}
	return err
}

// Reopen tries at once to bring a partition back that is offline; nil: it serves. Errors are those of Partition.
func (s *Store) Reopen(tp TP) error {
	t, err := s.topic(tp)
	if err != nil {
		return err
	}
	if tp.Partition < 0 || int(tp.Partition) >= len(t.parts) {
		return ErrUnknownPartition
	}
	return s.reopen(t.parts[tp.Partition])
}

// reopen closes what is left of the log and opens it again through recovery, which does not trust the page cache
// (I15). The partition is invisible until its first flush has returned.
func (s *Store) reopen(p *part) error {
	p.chore.Lock()
	defer p.chore.Unlock()
	if p.gone || s.closing.Load() {
		return ErrClosed
	}
	if l := p.log.Load(); l != nil {
		err := l.Err()
		if err == nil {
			return nil
		}
		s.show(p, nil, err)
		s.sync.keepOut(p)
		p.log.Store(nil)
		if err := l.Close(); err != nil {
			s.c.notice(Notice{Kind: NoticeFault, TP: p.tp, Path: p.dir, Text: "closing an offline partition", Err: err})
		}
	}
	l, _, err := s.openLog(p, false)
	if err == nil {
		p.log.Store(l)
		p.flag.Store(idle)
		_ = s.sync.flush([]*part{p}, false)
		if err = l.Err(); err != nil {
			p.log.Store(nil)
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		s.show(p, nil, err)
		s.c.notice(Notice{Kind: NoticeOffline, TP: p.tp, Path: p.dir, Err: err})
		return &OfflineError{TP: p.tp, Err: err}
	}
	s.sync.bringBack(p)
	if s.c.HoldTxns {
		l.HoldTxns(true)
	}
	s.show(p, l, nil)
	s.c.notice(Notice{Kind: NoticeReopened, TP: p.tp, Path: p.dir})
	return nil
}

// show puts a log, or the reason for its absence, into the catalog.
func (s *Store) show(p *part, l *plog.Log, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.fault = fault
	t, ok := s.cat.Load().ByID[p.tp.ID]
	if !ok {
		return
	}
	n := *t
	n.Partitions, n.Faults = append([]*plog.Log{}, t.Partitions...), append([]error{}, t.Faults...)
	n.Partitions[p.tp.Partition], n.Faults[p.tp.Partition] = l, fault
	s.swap(&n)
}
