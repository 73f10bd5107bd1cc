package fuzz

import (
	"errors"
	"fmt"
	"testing"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
)

// FuzzMeta puts arbitrary bytes in the place of the metadata log and snapshot. Properties: opening gives a store or a
// CorruptError, never a panic; a refusal changes nothing that a second start would see; a store that opens takes a
// transaction, and a power loss after that keeps exactly what it showed.
func FuzzMeta(f *testing.F) {
	empty, filled := metaFiles(f, 0), metaFiles(f, 3)
	f.Add(empty[0], empty[1])
	f.Add(filled[0], filled[1])
	f.Add(filled[0][:len(filled[0])-1], []byte{})
	f.Add([]byte("SKML"), []byte("SKMS"))
	f.Fuzz(func(t *testing.T, log, snapshot []byte) {
		m := vfs.NewMem()
		must(t, vfs.MkdirAllSync(m, "/d", 0o755))
		must(t, vfs.WriteFileAtomic(m, "/d", meta.LogName, log))
		if len(snapshot) > 0 {
			must(t, vfs.WriteFileAtomic(m, "/d", meta.SnapshotName, snapshot))
		}
		s, c, err := meta.Open("/d", m, clock.Real())
		if err != nil {
			var damage *meta.CorruptError
			if !errors.As(err, &damage) {
				t.Fatalf("refused without a place: %v", err)
			}
			if _, _, again := meta.Open("/d", m, clock.Real()); again == nil || again.Error() != err.Error() {
				t.Fatalf("first start: %v, second: %v", err, again)
			}
			return
		}
		out, err := s.Txn(t.Context(), nil, []meta.Op{{Key: "fuzz", Value: []byte("v")}})
		if err != nil || !out.Applied {
			t.Fatalf("%+v, %v", out, err)
		}
		want, rev, err := s.Snapshot(t.Context())
		must(t, err)
		must(t, c.Close())
		s, c, err = meta.Open("/d", m.Crash(vfs.CrashPlan{SectorSize: 512}), clock.Real())
		if err != nil {
			t.Fatalf("after a power loss: %v", err)
		}
		got, at, err := s.Snapshot(t.Context())
		must(t, err)
		must(t, c.Close())
		if at != rev || got.Len() != want.Len() {
			t.Fatalf("%d keys at revision %d, want %d at %d", got.Len(), at, want.Len(), rev)
		}
		want.Range("", func(it meta.Item) bool {
			if have, ok := got.Get(it.Key); !ok || string(have.Value) != string(it.Value) || have.Rev != it.Rev {
				t.Fatalf("%+v became %+v", it, have)
			}
			return true
		})
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// metaFiles gives log and snapshot of a store with some changes.
func metaFiles(f *testing.F, changes int) [2][]byte {
	m := vfs.NewMem()
	must(f, vfs.MkdirAllSync(m, "/d", 0o755))
	s, c, err := meta.Open("/d", m, clock.Real())
	must(f, err)
	for i := range changes {
		ops := []meta.Op{{Key: "k", Value: make([]byte, i)}}
		for n := range 1100 * (i % 2) { // large enough for a snapshot, which stays small
			ops = append(ops, meta.Op{Key: fmt.Sprintf("%01000d", n)})
		}
		_, err := s.Txn(f.Context(), nil, ops)
		must(f, err)
	}
	must(f, c.Close())
	log, err := vfs.ReadFile(m, "/d/"+meta.LogName)
	must(f, err)
	snapshot, err := vfs.ReadFile(m, "/d/"+meta.SnapshotName)
	if err != nil {
		snapshot = nil
	}
	return [2][]byte{log, snapshot}
}
