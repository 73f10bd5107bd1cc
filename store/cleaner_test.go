package store

import (
	"fmt"
	"slices"
	"testing"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/plog"
)

// compacted makes a topic whose segments hold two records.
func compactedTopic(t *testing.T, n *node, name string, set map[string]string) *plog.Log {
	t.Helper()
	all := map[string]string{"cleanup.policy": "compact", "internal.segment.bytes": "300"}
	for k, v := range set {
		all[k] = v
	}
	n.create(t, name, 1, all)
	return log(t, n, name, 0)
}

// putKey stores an acknowledged record of a key.
func putKey(t *testing.T, l *plog.Log, seq int32, key, value string) {
	t.Helper()
	b := batch.Builder{BaseTime: 1_700_000_000_000}
	b.Add(batch.Record{Key: []byte(key), Value: []byte(value)})
	if _, err := putDurable(l, b.Done(0, 1, 0, seq)); err != nil {
		t.Fatal(err)
	}
}

// TestCleanDirtiest: the log with the largest dirty share above what its topic allows is compacted, others are left
// alone; how far it came is filed and holds after a restart, and what stays is the newest of every key.
func TestCleanDirtiest(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	often := compactedTopic(t, n, "often", nil)
	lazy := compactedTopic(t, n, "lazy", map[string]string{"min.cleanable.dirty.ratio": "1"})
	plain := compactedTopic(t, n, "plain", map[string]string{"cleanup.policy": "delete"})
	for i := range 40 {
		for _, l := range []*plog.Log{often, lazy, plain} {
			putKey(t, l, int32(i), fmt.Sprint("k", i%3), fmt.Sprint(i))
		}
	}
	n.tick(70) // seals, snapshots, and files the recovery points
	if !n.s.CleanDirtiest() {
		t.Fatal("nothing was compacted")
	}
	if n.s.CleanDirtiest() {
		t.Fatal("what is clean was compacted again")
	}
	got := readAll(often)
	if len(got) > 12 || !slices.Equal(got[len(got)-3:], []string{"37", "38", "39"}) {
		t.Fatalf("stays %v", got)
	}
	if l, p := readAll(lazy), readAll(plain); len(l) != 40 || len(p) != 40 {
		t.Fatalf("%d and %d records stay in the others", len(l), len(p))
	}
	o, err := ReadOffsets(m, dataDir, CleanerFile)
	if err != nil || o[Place{"often", 0}] < 30 || len(o) != 1 {
		t.Fatalf("filed %v, %v", o, err)
	}
	mustClose(t, n)
	n = mustStart(t, m, nil)
	defer mustClose(t, n)
	if again := readAll(log(t, n, "often", 0)); !slices.Equal(again, got) {
		t.Fatalf("after a restart %v, before %v", again, got)
	}
	if n.s.CleanDirtiest() {
		t.Fatal("what is clean was compacted again after a restart")
	}
}
