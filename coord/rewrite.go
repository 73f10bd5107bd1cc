package coord

import "time"

// Bounds of one step of the rolling rewrite and of a snapshot; a shard takes a step a Tick.
const (
	rewriteRecords = 256
	rewriteBytes   = 64 << 10 // one batch, far below max.message.bytes
	rewritePause   = 10 * time.Second
	rewriteAge     = 5 * time.Minute // after the last round less is enough for the next: rewriteBytes
	recordOverhead = 12              // of a record in a batch, about
)

// recordSize is what a record takes in the journal, about; RewriteEvery and SnapshotEvery count it.
func recordSize(r Record) int64 { return int64(len(r.Key)+len(r.Value)) + recordOverhead }

// rewriteLink is an entry's place in the list of its shard, which the last records of the ids order.
type rewriteLink struct {
	prev, next *entry
	listed     bool
	pos        int64 // bytes of the journal before its last record, as rewriteState counts them
	size       int64 // bytes of its last record
}

// rewriteState is what a shard knows of the journal as a file: where the last record of each id lies, and what the dead
// ones take. It belongs to the shard.
//
// The journal is kept short by a rolling rewrite: when dead records take more than RewriteEvery bytes and more than the
// live ones, the ids whose last record lies nearest to the log start are appended again until all of what was there is
// dead or copied; then the log start is raised. Some minutes after the last round few dead bytes are enough, still more
// than the live ones: ids that expired leave the disk although nothing else happens. So a journal stays below
// RewriteEvery plus two to three times the live state, and each byte is copied once for each dead one at most. Open
// transactions are copied like all others, hence no log start passes one. A crash in between leaves records twice, of
// which the later counts.
type rewriteState struct {
	head, tail *entry // by offset of the last record
	written    int64  // bytes up to the journal's end
	start      int64  // bytes up to the log start
	live       int64  // bytes of the last records
	end        int64  // one above the last record seen
	durable    int64  // all below is on disk

	goal       int64 // a round is under way up to this offset; 0: none
	moving     bool  // a batch of the round is on its way
	batchBytes int64 // most bytes of its next batch
	pauseUntil time.Duration
	rounded    time.Duration // when the last round ended

	drop     dropPoint
	dropping bool
	snap     snapshotState
}

// dropPoint is a log start to be: to may be dropped up to once everything below after is durable.
type dropPoint struct {
	set            bool
	to, pos, after int64
}

// link puts e, whose last record is the newest of the journal, at the end of the list.
func (rw *rewriteState) link(e *entry, pos, size int64) {
	rw.unlink(e)
	e.link = rewriteLink{prev: rw.tail, listed: true, pos: pos, size: size}
	if rw.tail == nil {
		rw.head = e
	} else {
		rw.tail.link.next = e
	}
	rw.tail = e
	rw.live += size
}

func (rw *rewriteState) unlink(e *entry) {
	if !e.link.listed {
		return
	}
	if rw.snap.cursor == e {
		rw.snap.cursor = e.link.next
	}
	if e.link.prev == nil {
		rw.head = e.link.next
	} else {
		e.link.prev.link.next = e.link.next
	}
	if e.link.next == nil {
		rw.tail = e.link.prev
	} else {
		e.link.next.link.prev = e.link.prev
	}
	rw.live -= e.link.size
	e.link = rewriteLink{}
}

// appended is told, on the shard, of each record of an id that was written, tombstones included; size is its
// recordSize, and e.offset is base already.
func (s *shard) appended(e *entry, base, size int64) {
	rw := &s.rw
	rw.link(e, rw.written, size)
	rw.written += size
	rw.end = max(rw.end, base+1)
}

// forgot is told that the tombstone of e is durable.
func (s *shard) forgot(e *entry) { s.rw.unlink(e) }

// flushed is told that every record below end is durable.
func (s *shard) flushed(end int64) { s.rw.durable = max(s.rw.durable, end) }

// tickJournal takes one bounded step of each: the rolling rewrite, the raising of the log start, the snapshot.
func (s *shard) tickJournal() {
	if now := s.c.clk.Mono(); now >= s.rw.pauseUntil {
		s.rewriteStep(now)
		s.dropStep()
	}
	s.snapshotStep()
}

// rewriteStep appends the records nearest to the log start again, one batch of them.
func (s *shard) rewriteStep(now time.Duration) {
	rw, every := &s.rw, s.c.cfg.RewriteEvery
	if rw.moving || every <= 0 {
		return
	}
	if now-rw.rounded >= rewriteAge {
		every = min(every, rewriteBytes)
	}
	if rw.goal == 0 {
		if rw.drop.set || rw.written-rw.start-rw.live <= max(every, rw.live) {
			return
		}
		if s.wantDrop(every); rw.drop.set {
			rw.rounded = now
			return
		}
		rw.goal = rw.end
	}
	recs, moved := s.heads()
	if len(recs) == 0 {
		if rw.head == nil || rw.head.offset >= rw.goal {
			rw.goal, rw.rounded = 0, now
			s.wantDrop(1)
		}
		return
	}
	rw.moving = true
	s.append(recs, false, func(base int64, err error) {
		if err != nil {
			rw.moving, rw.pauseUntil = false, now+rewritePause
			rw.batchBytes = max(rw.batchBytes/2, 1) // the log may take less than it did
			return
		}
		rw.batchBytes = rewriteBytes
		for i, e := range moved {
			if s.entries[e.id] == e {
				e.offset = base + int64(i)
				s.appended(e, e.offset, recordSize(recs[i]))
			}
		}
		s.wantDrop(every)
	}, func(error) { rw.moving = false })
}

// heads gathers the next batch of a round. An entry with a record on its way is left out: that record is newer than
// what is in memory and will itself lie behind the goal.
func (s *shard) heads() (recs []Record, moved []*entry) {
	rw := &s.rw
	most := int64(rewriteBytes)
	if rw.batchBytes > 0 {
		most = min(most, rw.batchBytes)
	}
	bytes, looked := int64(0), 0
	for e := rw.head; e != nil && e.offset < rw.goal && looked < rewriteRecords; e = e.link.next {
		looked++
		if s.busy(e) {
			continue
		}
		r := s.record(e.id, &e.t, s.remaining(e))
		if bytes += recordSize(r); bytes > most && len(recs) > 0 {
			break
		}
		recs, moved = append(recs, r), append(moved, e)
	}
	return recs, moved
}

// wantDrop asks for the log start to be raised to the first live record, if least bytes or more lie below it. What is
// live there may have its last record still on the way to the disk, so the raise waits for all of them.
func (s *shard) wantDrop(least int64) {
	rw := &s.rw
	if rw.drop.set {
		return
	}
	to, pos := rw.end, rw.written
	if rw.head != nil {
		to, pos = rw.head.offset, rw.head.link.pos
	}
	if pos-rw.start >= least {
		rw.drop = dropPoint{set: true, to: to, pos: pos, after: rw.end}
	}
}

// dropStep raises the log start once that is safe.
func (s *shard) dropStep() {
	rw := &s.rw
	if !rw.drop.set || rw.dropping || rw.durable < rw.drop.after {
		return
	}
	rw.dropping = true
	j, to, pos := s.journal, rw.drop.to, rw.drop.pos
	s.c.background(func() {
		err := j.DropBefore(to)
		s.post(func() {
			rw.dropping, rw.drop = false, dropPoint{}
			if err != nil {
				rw.pauseUntil = s.c.clk.Mono() + rewritePause
				return
			}
			rw.start = pos
		})
	})
}
