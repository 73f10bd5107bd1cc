package store

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sekali/internal/vfs"
	"sekali/plog"
)

// fillDisk appends to a partition until nothing fits any more, not even a file of one block.
func fillDisk(t *testing.T, n *node, m *vfs.Mem, pid int64, seq int32) int32 {
	t.Helper()
	for first := seq; ; seq++ {
		if _, err := putDurable(log(t, n, "t", 0), oneBatch(pid, seq, strings.Repeat("x", 5000))); err != nil {
			if !errors.Is(err, plog.ErrFull) {
				t.Fatal(err)
			}
			m.SetCapacity(m.Used()) // what is left is too small for a batch: it goes too
			return seq
		}
		if seq > first+10_000 {
			t.Fatal("the disk does not fill up")
		}
	}
}

// TestRetentionFreesFullDisk: a disk on which not one block is free gets room by retention, with nothing done to it
// from outside; appends go on, and no record above the log start is lost.
func TestRetentionFreesFullDisk(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	topic := n.create(t, "t", 1, map[string]string{"internal.segment.bytes": "200000"})
	m.SetCapacity(m.Used() + 1<<20)
	seq := fillDisk(t, n, m, 1, 0)
	for range 3 { // the ticks give back what rolled segments had reserved and no more
		n.tick(1)
		seq = fillDisk(t, n, m, 1, seq)
	}
	if got := log(t, n, "t", 0).Offsets(); got.Start != 0 || got.High != int64(seq) {
		t.Fatalf("before retention: %+v, %d appended", got, seq)
	}
	if err := n.s.Alter(topic.ID, map[string]string{
		"internal.segment.bytes": "200000", "retention.bytes": "400000"}); err != nil {
		t.Fatalf("a setting on a full disk: %v", err)
	}
	n.tick(5)
	at := log(t, n, "t", 0).Offsets()
	if at.Start == 0 || at.High != int64(seq) {
		t.Fatalf("after retention: %+v", at)
	}
	for k := range int32(3) {
		if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, seq+k, "room")); err != nil {
			t.Fatalf("after retention: %v", err)
		}
	}
	if ok, _ := vfs.Exists(m, dataDir+"/"+ReserveFile); !ok || n.s.reserve.size < reserveLeast || n.s.load.Full.Load() {
		t.Errorf("reserve: there %v, %d bytes, appends refused %v", ok, n.s.reserve.size, n.s.load.Full.Load())
	}
	mustClose(t, n)
}

// TestFullDiskTakesLogStart: DeleteRecords works where not one block is free.
func TestFullDiskTakesLogStart(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "t", 1, map[string]string{"internal.segment.bytes": "200000"})
	m.SetCapacity(m.Used() + 1<<20)
	seq := fillDisk(t, n, m, 1, 0)
	if err := log(t, n, "t", 0).DeleteBefore(int64(seq)); err != nil {
		t.Fatal(err)
	}
	n.tick(8)
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, seq, "room")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
}

// TestStartOnFullDisk: a process that died on a full disk, or stopped on one, starts again on it and serves what it
// had.
func TestStartOnFullDisk(t *testing.T) {
	for _, orderly := range []bool{false, true} {
		m := vfs.NewMem()
		n := mustStart(t, m, nil)
		n.create(t, "t", 1, nil)
		m.SetCapacity(m.Used() + 300_000)
		seq := fillDisk(t, n, m, 1, 0)
		n.tick(2)
		want := readAll(log(t, n, "t", 0))
		if orderly {
			mustClose(t, n)
		} else {
			old := n
			m = m.Kill()
			_ = old.close()
		}
		for range 3 {
			n = mustStart(t, m, nil)
			if got := readAll(log(t, n, "t", 0)); len(got) != int(seq) || !slices.Equal(got, want) {
				t.Fatalf("%d records, %d were acknowledged", len(got), seq)
			}
			out, err := put(log(t, n, "t", 0), oneBatch(1, seq-1, strings.Repeat("x", 5000)))
			if err != nil && !errors.Is(err, plog.ErrFull) || err == nil && (!out.Duplicate || out.Base != int64(seq-1)) {
				t.Fatalf("a retry: %+v, %v", out, err)
			}
			old := n
			m = m.Kill()
			_ = old.close()
		}
	}
}
