package engine

import (
	"testing"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"
)

// TestSnapshotWritten: with durability=written, too, a power cut takes no record that lies below a snapshot, nor any
// that was there when it was saved.
func TestSnapshotWritten(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil, func(c *store.Config) { c.Written = true })
	w.ensure()
	p := (*w.e.txnParts.Load())[0]
	v := p.encode(3, func(int) ([]byte, []byte) { return []byte("k"), []byte("v") }, -1, -1)
	in := plog.AppendIn{Batch: v, Checked: batch.Checked{MaxTime: v.MaxTime()}, Origin: plog.Coordinator}
	if _, err := w.log(coord.TP{Topic: TxnTopic, ID: p.tp.ID}).Append(in); err != nil {
		t.Fatal(err)
	}
	s := &snapshots{fs: fs, dir: dataDir, prefix: TxnSnapshotPrefix, fault: w.e.c.Fault,
		journal: func(n int) *partition { return nth(w.e.txnParts.Load(), n) }}
	if err := s.Save(0, 1, []byte("state")); err != nil {
		t.Fatal(err)
	}
	at := store.TP{Topic: TxnTopic, ID: p.tp.ID}
	after := fs.Crash(vfs.CrashPlan{})
	w.stop()
	w = start(t, after, nil)
	if l, err := w.s.Partition(at); err != nil || l.Offsets().End != 3 {
		t.Errorf("%v, want 3 records", err)
	}
}
