package plog

import (
	"context"
	"encoding/hex"
	"path"
	"strings"
)

// Close ends the service in order: what was written is flushed and its waiters are fired, indexes are completed, the
// producer state is snapshotted at the end of the log, and the marks are stored. A log closed without an error opens
// without a scan. The caller has taken the log out of commit rounds first. An offline log is let go of without a
// write, and so is one that was deleted; closing twice is no error. When it returns, the descriptors and mappings are
// gone, but for those that fetches not yet released hold.
func (l *Log) Close() error {
	defer l.endCleaning()()
	l.chore.Lock()
	defer l.chore.Unlock()
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	var err error
	if l.down.Load() == nil {
		err = l.finish()
	}
	l.shut(&down{ErrClosed})
	return err
}

// endCleaning ends a compaction that runs and keeps others away until the function it returns is called.
func (l *Log) endCleaning() func() {
	l.quit.Add(1)
	l.cleaner.Lock()
	return func() {
		l.cleaner.Unlock()
		l.quit.Add(-1)
	}
}

// shut ends the service whatever its state, and lets go of the segments; chore is held.
func (l *Log) shut(d *down) {
	l.mu.Lock()
	l.takeDown(d, "")
	segs := l.segs
	l.segs = nil
	l.unlock()
	for _, s := range segs {
		s.Retire(false)
	}
}

// finish brings everything to the disk that a clean stop promises; appends are refused already. A flush that fails
// takes the log offline; its error is that of Close.
func (l *Log) finish() error {
	var r Round
	l.BeginSync(&r)
	l.EndSync(&r, r.Datasync())
	if d := l.down.Load(); d != nil {
		return d.err
	}
	end := l.end.Load()
	if err := l.finishSnapshot(end); err != nil {
		return err
	}
	if err := l.sealRolled(); err != nil {
		return err
	}
	if err := l.active.Seal(); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	if err := l.persist(MarkDurable, end); err != nil {
		return err
	}
	if err := l.persist(MarkRecovery, end); err != nil {
		return err
	}
	l.ck.recovery = end
	return nil
}

// finishSnapshot writes a producer snapshot at the end of the log, unless there is one. One that runs is ended first.
func (l *Log) finishSnapshot(end int64) error {
	if err := l.writeSnapshot(); err != nil {
		return err
	}
	if n := len(l.ck.files); n > 0 && l.ck.files[n-1] == end || end == 0 {
		return nil
	}
	now := l.o.Clock.Mono()
	l.mu.Lock()
	if l.pids.Begin(end, now.Milliseconds()) {
		l.began(end, now)
	}
	l.mu.Unlock()
	return l.writeSnapshot()
}

// Delete ends the service because the topic is gone: waiters are fired with ErrDeleted, fetches not yet released are
// waited for until ctx ends, and the directory is renamed to <topic>-<partition>.<topic id>-delete, durably; the caller
// removes it. Mappings that are still held keep their bytes. The caller has taken the log out of commit rounds first.
// It may follow Close, and be repeated after an error.
func (l *Log) Delete(ctx context.Context) error {
	defer l.endCleaning()()
	l.chore.Lock()
	defer l.chore.Unlock()
	l.shut(&down{ErrDeleted})
	for l.readers.Load() > 0 && ctx.Err() == nil {
		select {
		case <-l.drained:
		case <-ctx.Done():
		}
	}
	dir, name := path.Split(strings.TrimSuffix(l.o.Dir, "/"))
	dir = path.Clean(dir)
	if err := l.o.FS.Rename(l.o.Dir, path.Join(dir, deletedName(name, l.o.TopicID))); err != nil {
		return err
	}
	return l.o.FS.SyncDir(dir)
}

// deletedName is the name of a directory on its way out; the topic is cut where the whole would be too long for a file
// name.
func deletedName(name string, id [16]byte) string {
	suffix := "." + hex.EncodeToString(id[:]) + "-delete"
	if len(name)+len(suffix) <= nameMax {
		return name + suffix
	}
	dash := strings.LastIndexByte(name, '-')
	partition := name[dash:]
	return name[:nameMax-len(suffix)-len(partition)] + partition + suffix
}

// lockForWrite takes mu for a change of the log, unless it takes none any more.
func (l *Log) lockForWrite() error {
	l.mu.Lock()
	if d := l.down.Load(); d != nil {
		l.mu.Unlock()
		return d.err
	}
	if l.stopped {
		l.mu.Unlock()
		return ErrClosed
	}
	return nil
}
