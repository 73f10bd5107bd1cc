package plog

import (
	"errors"
	"os"
	"path"
	"slices"
	"time"

	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// snapshotSuffix ends the name of a producer snapshot: 20 digits of the first offset it does not reflect, and this.
const snapshotSuffix = ".snapshot"

// checkpoint is the state of the housekeeper's main work: a producer snapshot on disk, complete indexes, and the
// recovery point that vouches for both. begun and at are under Log.mu, everything else belongs to the holder of
// Log.chore.
type checkpoint struct {
	begun bool  // the producer map keeps its state as of at
	at    int64 // of the snapshot that runs

	files    []int64       // offsets of the snapshots on disk, ascending
	written  int64         // newest of them made by this process, not yet vouched for; -1: none
	recovery int64         // recovery point as told to Persist
	when     time.Duration // monotonic: when the last one began
	size     int64         // bytes of the last snapshot
	wanted   bool          // retention waits for one
	prune    bool          // the recovery point has moved past snapshots since they were last pruned
}

// checkpoint moves the recovery point as far as it can go without waiting: it begins a snapshot if one is due, writes
// the one that was begun (here or by a roll), and raises the recovery point to it once the log is durable up to there.
func (l *Log) checkpoint() {
	if l.ck.prune && l.persistPoint() == nil {
		l.pruneSnapshots()
	}
	l.beginSnapshot()
	if err := l.writeSnapshot(); err != nil {
		l.o.Events.Fault("producer snapshot", err)
		return
	}
	if err := l.vouch(); err != nil {
		l.indexFailed(err)
	}
}

// beginSnapshot marks the producer state at the end of the log, if enough has been appended since the last time.
func (l *Log) beginSnapshot() {
	now := l.o.Clock.Mono()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ck.begun || l.grown == 0 && !l.ck.wanted {
		return
	}
	due := l.grown >= max(checkpointBytes, checkpointFactor*l.ck.size) || now-l.ck.when >= checkpointAge
	if !due && !l.ck.wanted {
		return
	}
	if l.pids.Begin(l.end.Load(), now.Milliseconds()) {
		l.began(l.end.Load(), now)
	}
}

// began notes a snapshot begun at an offset; under mu.
func (l *Log) began(at int64, now time.Duration) {
	l.ck.begun, l.ck.at, l.ck.when, l.ck.wanted = true, at, now, false
	l.grown = 0
}

// writeSnapshot copies the producer state that was begun, a piece at a time under mu, and writes it outside. A failed
// write costs nothing but a longer scan at the next start; the next one is due at once.
func (l *Log) writeSnapshot() error {
	l.mu.Lock()
	if !l.ck.begun {
		l.mu.Unlock()
		return nil
	}
	at := l.ck.at
	var c pidmap.Copy
	var entries, trailer []byte
	for l.pids.Copy(&c) {
		l.mu.Unlock()
		entries, trailer = c.Append(entries, trailer)
		l.mu.Lock()
	}
	l.pids.Finish()
	l.ck.begun = false
	l.mu.Unlock()
	if n := len(l.ck.files); n > 0 && l.ck.files[n-1] == at {
		l.ck.written = at
		return nil
	}
	size, err := writeSnapshot(l.o.FS, l.o.Dir, at, entries, trailer)
	if err != nil {
		l.mu.Lock()
		l.ck.wanted = true
		l.mu.Unlock()
		return err
	}
	l.ck.files, l.ck.written, l.ck.size = append(l.ck.files, at), at, size
	return nil
}

// writeSnapshot writes the file of one snapshot under a temporary name, syncs it, renames it and syncs the directory.
func writeSnapshot(fsys vfs.FS, dir string, at int64, entries, trailer []byte) (size int64, err error) {
	head, middle := pidmap.SnapshotHead(entries, trailer)
	to := path.Join(dir, segment.Name(at, snapshotSuffix))
	tmp := to + ".tmp"
	f, err := fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := f.WritevAt([][]byte{head[:], entries, middle[:], trailer}, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, to)
	}
	if err != nil {
		return 0, errors.Join(err, gone(fsys.Remove(tmp)))
	}
	return int64(n), fsys.SyncDir(dir)
}

// gone makes it no error that a file to be removed is not there.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// sealRolled completes the indexes of rolled segments whose bytes are durable. They are this housekeeper's alone: no
// append comes to them any more.
func (l *Log) sealRolled() error {
	l.mu.Lock()
	var ready []*segment.Segment
	for _, s := range l.unsealed {
		if s.NextOffset() <= l.durable {
			ready = append(ready, s)
		}
	}
	l.mu.Unlock()
	for _, s := range ready {
		if err := s.Seal(); err != nil {
			return err
		}
		l.mu.Lock()
		l.unsealed = without(l.unsealed, []*segment.Segment{s})
		l.mu.Unlock()
	}
	return nil
}

// vouch raises the recovery point to the newest snapshot, once everything below it is durable: the log, the indexes of
// the segments before, the index entries of the active one.
func (l *Log) vouch() error {
	if err := l.sealRolled(); err != nil {
		return err
	}
	to := l.ck.written
	l.mu.Lock()
	ready := to > l.ck.recovery && to <= l.durable
	for _, s := range l.unsealed {
		ready = ready && s.ID().Base >= to
	}
	active := l.active
	l.mu.Unlock()
	if !ready {
		return nil
	}
	if active.ID().Base < to {
		if err := active.FlushIndex(); err != nil {
			return err
		}
	}
	if l.persist(MarkRecovery, to) == nil {
		l.ck.recovery, l.ck.prune = to, true
	}
	return nil
}

// persistPoint returns when the recovery point is durable: only then may go what an older one needs. Telling the log
// start again makes it so, and costs nothing where it is already.
func (l *Log) persistPoint() error { return l.persist(MarkStart, l.lim.start.Load()) }

// indexFailed handles an index that could not be completed. For lack of space the recovery point just stays where it
// is; otherwise the log goes offline and recovery makes the index anew.
func (l *Log) indexFailed(err error) {
	if vfs.IsNoSpace(err) {
		l.o.Events.Fault("index", err)
		return
	}
	l.fail("index", err)
}

// persist stores an offset in the files of the data directory, one call at a time; mu is free. A failure is told and
// leaves the old value, which is always safe: marks may lag.
func (l *Log) persist(kind MarkKind, offset int64) error {
	l.marks.Lock()
	defer l.marks.Unlock()
	return l.persistLocked(kind, offset)
}

func (l *Log) persistLocked(kind MarkKind, offset int64) error {
	if l.o.Persist == nil {
		return nil
	}
	err := l.o.Persist(kind, offset)
	if err != nil {
		l.o.Events.Fault("checkpoint", err)
	}
	return err
}

// dropSnapshots removes the snapshots of offsets below one up to which compaction is about to rewrite the log: a scan
// from one that knows of an open transaction would wait for a marker that may be gone. The recovery point lies at or
// above it; chore is held.
func (l *Log) dropSnapshots(below int64) error {
	kept := l.ck.files[:0:0]
	var err error
	for _, at := range l.ck.files {
		if at >= below || err != nil {
			kept = append(kept, at)
			continue
		}
		if err = gone(l.o.FS.Remove(path.Join(l.o.Dir, segment.Name(at, snapshotSuffix)))); err != nil {
			l.o.Events.Fault("producer snapshot", err)
			kept = append(kept, at)
		}
	}
	l.ck.files = kept
	if err == nil {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	return err
}

// pruneSnapshots removes the snapshots no start can use any more (spec: producer state, 7): those below the first
// segment, and of those on no segment border all but the newest two at or below the recovery point. What lies above it
// is not vouched for yet, and must not push out what is. The recovery point is durable (persistPoint).
func (l *Log) pruneSnapshots() {
	l.ck.prune = false
	segs := l.view.Load().segs
	var aligned []int64
	for _, s := range segs {
		aligned = append(aligned, s.ID().Base)
	}
	kept := l.ck.files[:0:0]
	loose := 0
	for _, at := range slices.Backward(l.ck.files) {
		_, border := slices.BinarySearch(aligned, at)
		if !border && at <= l.ck.recovery {
			loose++
		}
		if at >= aligned[0] && (border || loose <= snapshotsKept) {
			kept = append(kept, at)
			continue
		}
		if err := gone(l.o.FS.Remove(path.Join(l.o.Dir, segment.Name(at, snapshotSuffix)))); err != nil {
			l.o.Events.Fault("producer snapshot", err)
			kept = append(kept, at)
		}
	}
	slices.Reverse(kept)
	l.ck.files = kept
}
