package broker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"sekali/pidmap"
	"sekali/plog"
	"sekali/segment"
	"sekali/store"
)

// events turns what one log tells into counters and, where an operator must know, into one structured log line. It is
// called outside Log.mu by any goroutine and does not block. It implements plog.Events.
type events struct {
	m   *metrics
	log *slog.Logger // names the partition
}

var _ plog.Events = (*events)(nil)

// events returns what the store hands to the log of tp. It needs s.metrics and s.log alone, so it may be used while
// the store is being opened.
func (s *Server) events(tp store.TP) plog.Events {
	return &events{m: s.metrics, log: s.log.With("topic", tp.Topic, "partition", tp.Partition)}
}

// Fault counts a failed operation on storage and logs it with the path, position and errno the error carries.
func (e *events) Fault(op string, err error) {
	e.m.faults.WithLabelValues(op).Inc()
	attrs := []any{"op", op, "err", err}
	var path *fs.PathError
	var corrupt *segment.CorruptError
	if errors.As(err, &corrupt) {
		attrs = append(attrs, "path", corrupt.Path, "position", corrupt.Pos)
	} else if errors.As(err, &path) {
		attrs = append(attrs, "path", path.Path)
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		attrs = append(attrs, "errno", int(no))
	}
	e.log.Error("storage fault", attrs...)
}

// Cut counts what recovery removed from the end of a log and says so, if it was anything.
func (e *events) Cut(c segment.Cut) {
	if c.Bytes == 0 {
		return
	}
	e.m.cutBytes.Add(float64(c.Bytes))
	e.m.cutBatches.Add(float64(c.Batches))
	attrs := []any{"position", c.At, "bytes", c.Bytes, "batches", c.Batches, "reason", c.Reason}
	if c.Copy != "" {
		attrs = append(attrs, "copy", c.Copy)
	}
	e.log.Warn("recovery cut the unacknowledged end of a log", attrs...)
}

// Rolled counts a new segment.
func (e *events) Rolled(int64) { e.m.rolled.Inc() }

// Synced counts one flush of the log: how long it took and how many bytes it made durable.
func (e *events) Synced(d time.Duration, bytes int64) {
	e.m.fsync.Observe(d.Seconds())
	e.m.flushedBytes.Add(float64(bytes))
}

// Duplicate counts a batch that is stored already.
func (e *events) Duplicate(old bool) {
	if old {
		e.m.duplicateOld.Inc()
	} else {
		e.m.duplicateWindow.Inc()
	}
}

// Reject counts a batch refused by producer state.
func (e *events) Reject(v pidmap.Verdict) { e.m.rejected(v) }

// Evicted counts producers forgotten over the cap; early ones are never forgotten silently.
func (e *events) Evicted(producers int, early bool) {
	if !early {
		e.m.evictedIdle.Add(float64(producers))
		return
	}
	e.m.evictedEarly.Add(float64(producers))
	e.log.Warn("producers idle for less than 24 hours were forgotten: their retries are no longer recognised",
		"producers", producers)
}

// Cleaned counts what one turn of compaction did to the log.
func (e *events) Cleaned(c plog.Cleaned) {
	e.m.cleanedRead.Add(float64(c.Read))
	e.m.cleanedWritten.Add(float64(c.Written))
	e.m.cleanedRecords.Add(float64(c.Removed))
	e.log.Debug("compacted", "read", c.Read, "written", c.Written, "removed", c.Removed, "segments", c.Segments,
		"first_dirty", c.FirstDirty)
}

// noticeKinds says what each kind of notice of the data directory is called and how loud it is.
var noticeKinds = map[store.NoticeKind]struct {
	name  string
	level slog.Level
}{
	store.NoticeFileSystem: {"unsafe file system", slog.LevelWarn},
	store.NoticeForeign:    {"a name that is not ours was left alone", slog.LevelWarn},
	store.NoticeStray:      {"stray partition", slog.LevelWarn},
	store.NoticeRemoved:    {"leftover removed", slog.LevelInfo},
	store.NoticeAdopted:    {"topic adopted", slog.LevelInfo},
	store.NoticeCheckpoint: {"offset file unreadable or not written", slog.LevelWarn},
	store.NoticeSetting:    {"stored setting left out", slog.LevelWarn},
	store.NoticeLoss:       {"data loss", slog.LevelError},
	store.NoticeOffline:    {"partition offline", slog.LevelError},
	store.NoticeReopened:   {"partition serves again", slog.LevelInfo},
	store.NoticeFault:      {"housekeeping failed and will be tried again", slog.LevelError},
}

// notice logs what the data directory wants an operator to read, one line each. It needs s.log alone, so it may be used
// while the store is being opened.
func (s *Server) notice(n store.Notice) {
	if n.Kind == store.NoticeReopened {
		s.reopened.put(n.TP)
	}
	kind := noticeKinds[n.Kind]
	attrs := make([]slog.Attr, 0, 6)
	if n.Text != "" {
		attrs = append(attrs, slog.String("what", n.Text))
	}
	if n.TP.Topic != "" {
		attrs = append(attrs, slog.String("topic", n.TP.Topic), slog.Int("partition", int(n.TP.Partition)))
	}
	if n.Path != "" {
		attrs = append(attrs, slog.String("path", n.Path))
	}
	if n.Kind == store.NoticeLoss {
		attrs = append(attrs, slog.Int64("records", n.N))
	}
	if n.Err != nil {
		attrs = append(attrs, slog.Any("err", n.Err))
	}
	s.log.LogAttrs(context.Background(), kind.level, kind.name, attrs...)
}
