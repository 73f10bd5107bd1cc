package store

import (
	"errors"
	"syscall"
	"testing"

	"sekali/internal/vfs"
	"sekali/plog"
)

// TestFailedLogStart: a log start that could not be stored does not come into force by a reopening of the partition,
// for the next power loss would take it back after readers have seen it (F6).
func TestFailedLogStart(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "t", 1, nil)
	want := fill(t, log(t, n, "t", 0), 5)
	heal := m.FailSync(StartFile+".*", 0, syscall.EIO)
	if err := log(t, n, "t", 0).DeleteBefore(3); !errors.Is(err, syscall.EIO) {
		t.Fatalf("deletion on a disk that cannot flush: %v", err)
	}
	heal()
	m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, 5, "5")); !errors.Is(err, plog.ErrOffline) {
		t.Fatal(err)
	}
	if err := n.s.Reopen(TP{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(log(t, n, "t", 0)); len(got) < 5 || got[0] != want[0] {
		t.Fatalf("after the reopening: %v", got)
	}
	after := m.Crash(vfs.CrashPlan{})
	_ = n.close()
	n = mustStart(t, after, nil)
	defer mustClose(t, n)
	if got := readAll(log(t, n, "t", 0)); len(got) < 5 || got[0] != want[0] {
		t.Fatalf("after the power loss: %v", got)
	}
}
