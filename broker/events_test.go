package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"sekali/pidmap"
	"sekali/segment"
	"sekali/store"
)

// logLines keeps what is logged as JSON.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// with returns the lines in which key has the value.
func (l *logLines) with(key string, value any) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range bytes.Lines(l.buf.Bytes()) {
		m := map[string]any{}
		if err := json.Unmarshal(line, &m); err == nil && fmt.Sprint(m[key]) == fmt.Sprint(value) {
			found = append(found, m)
		}
	}
	return found
}

func TestEventsCountAndTell(t *testing.T) {
	var lines logLines
	s := &Server{metrics: newMetrics(), log: lines.logger()}
	e := s.events(store.TP{Topic: "orders", Partition: 7})

	disk := fmt.Errorf("append: %w", &os.PathError{Op: "pwrite", Path: "/data/orders-7/x.log", Err: syscall.EIO})
	e.Fault("write", disk)
	e.Fault("open", fmt.Errorf("recover: %w", &segment.CorruptError{Path: "/data/orders-7/y.log", Pos: 4711,
		Err: errors.New("crc")}))
	e.Cut(segment.Cut{})
	e.Cut(segment.Cut{At: 100, Bytes: 300, Batches: 2, Copy: "/data/orders-7/0.cut", Reason: errors.New("crc")})
	e.Rolled(1000)
	e.Synced(3*time.Millisecond, 4096)
	e.Duplicate(false)
	e.Duplicate(false)
	e.Duplicate(true)
	e.Reject(pidmap.OutOfOrder)
	e.Reject(pidmap.Fenced)
	e.Reject(pidmap.TxnOpen)
	e.Evicted(3, false)
	e.Evicted(2, true)

	got := scrape(t, s.metrics)
	for series, want := range map[string]float64{
		`sekali_storage_faults_total{op="write"}`:             1,
		`sekali_storage_faults_total{op="open"}`:              1,
		`sekali_recovery_cut_bytes_total`:                     300,
		`sekali_recovery_cut_batches_total`:                   2,
		`sekali_segments_rolled_total`:                        1,
		`sekali_fsync_seconds_count`:                          1,
		`sekali_fsync_seconds_bucket{le="0.0016"}`:            0,
		`sekali_fsync_seconds_bucket{le="0.0032"}`:            1,
		`sekali_flushed_bytes_total`:                          4096,
		`sekali_duplicates_dropped_total{found="window"}`:     2,
		`sekali_duplicates_dropped_total{found="old"}`:        1,
		`sekali_batches_refused_total{reason="out_of_order"}`: 1,
		`sekali_batches_refused_total{reason="fenced"}`:       1,
		`sekali_batches_refused_total{reason="txn_state"}`:    1,
		`sekali_producers_evicted_total{early="false"}`:       3,
		`sekali_producers_evicted_total{early="true"}`:        2,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}

	faults := lines.with("msg", "storage fault")
	if len(faults) != 2 {
		t.Fatalf("%d lines about storage faults, want one each", len(faults))
	}
	for key, want := range map[string]any{"level": "ERROR", "topic": "orders", "partition": 7, "op": "write",
		"path": "/data/orders-7/x.log", "errno": int(syscall.EIO)} {
		if fmt.Sprint(faults[0][key]) != fmt.Sprint(want) {
			t.Errorf("fault: %s is %v, want %v", key, faults[0][key], want)
		}
	}
	if faults[1]["path"] != "/data/orders-7/y.log" || faults[1]["position"] != 4711.0 {
		t.Errorf("corruption: %v, want path and position", faults[1])
	}
	if cuts := lines.with("bytes", 300); len(cuts) != 1 || cuts[0]["copy"] != "/data/orders-7/0.cut" ||
		cuts[0]["batches"] != 2.0 {
		t.Errorf("cuts: %v", cuts)
	}
	if early := lines.with("producers", 2); len(early) != 1 {
		t.Errorf("lines about producers forgotten early: %v, want one", early)
	}
	if quiet := lines.with("producers", 3); len(quiet) != 0 {
		t.Errorf("lines about producers idle for long: %v, want none", quiet)
	}
}

// TestNotices: every kind says what it is, whether or not the notice has a text of its own.
func TestNotices(t *testing.T) {
	var lines logLines
	s := &Server{log: lines.logger()}
	s.notice(store.Notice{Kind: store.NoticeForeign, Path: "/data/odd"})
	s.notice(store.Notice{Kind: store.NoticeLoss, TP: store.TP{Topic: "t", Partition: 3}, Text: "at least", N: 7})
	s.notice(store.Notice{Kind: store.NoticeOffline, TP: store.TP{Topic: "t"}, Err: errors.New("crc")})
	got := lines.with("msg", "a name that is not ours was left alone")
	if len(got) != 1 || got[0]["level"] != "WARN" || got[0]["path"] != "/data/odd" {
		t.Errorf("foreign: %v", got)
	}
	if got := lines.with("msg", "data loss"); len(got) != 1 || got[0]["level"] != "ERROR" || got[0]["records"] != 7.0 ||
		got[0]["partition"] != 3.0 || got[0]["what"] != "at least" {
		t.Errorf("loss: %v", got)
	}
	if got := lines.with("msg", "partition offline"); len(got) != 1 || got[0]["level"] != "ERROR" ||
		got[0]["err"] != "crc" {
		t.Errorf("offline: %v", got)
	}
	for k := store.NoticeFileSystem; k <= store.NoticeFault; k++ {
		if noticeKinds[k].name == "" {
			t.Errorf("a notice of kind %d says nothing", k)
		}
	}
}
