package engine

import (
	"bytes"
	"errors"
	"testing"

	"sekali/internal/vfs"
)

func TestSnapshotForm(t *testing.T) {
	body := []byte("state")
	file := EncodeSnapshot(TxnSnapshotPrefix, 7, 42, body)
	asOf, got, err := DecodeSnapshot(TxnSnapshotPrefix, 7, file)
	if err != nil || asOf != 42 || !bytes.Equal(got, body) {
		t.Fatalf("%d %q %v", asOf, got, err)
	}
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 0x10
		if _, _, err := DecodeSnapshot(TxnSnapshotPrefix, 7, bad); !errors.Is(err, ErrSnapshot) {
			t.Errorf("byte %d damaged: %v", i, err)
		}
	}
	for i := range file {
		if _, _, err := DecodeSnapshot(TxnSnapshotPrefix, 7, file[:i]); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, _, err := DecodeSnapshot(GroupSnapshotPrefix, 7, file); !errors.Is(err, ErrSnapshot) {
		t.Errorf("of the other kind: %v", err)
	}
	if _, _, err := DecodeSnapshot(TxnSnapshotPrefix, 8, file); !errors.Is(err, ErrSnapshot) {
		t.Errorf("of another shard: %v", err)
	}
}

// TestSnapshotFiles: a snapshot above the durable end is not written, and one outside the journal is removed, so that a
// journal which was cut and has grown again is not taken for the one it was made of.
func TestSnapshotFiles(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	p := (*w.e.txnParts.Load())[1]
	s := &snapshots{fs: fs, dir: dataDir, prefix: TxnSnapshotPrefix, fault: w.e.c.Fault,
		journal: func(n int) *partition { return nth(w.e.txnParts.Load(), n) }}
	if asOf, b, err := s.Load(1); asOf != -1 || b != nil || err != nil {
		t.Fatalf("no file: %d %q %v", asOf, b, err)
	}
	if err := s.Save(1, 1, []byte("early")); err == nil {
		t.Error("saved what is not durable")
	}
	if err := s.Save(5, 0, nil); err == nil {
		t.Error("saved for a shard that does not exist")
	}
	v := p.encode(3, func(int) ([]byte, []byte) { return []byte("k"), []byte("v") }, -1, -1)
	done := make(chan error, 1)
	p.append(v, 0, false, func(base int64, err error) {
		if base != 0 || err != nil {
			t.Errorf("written at %d, %v", base, err)
		}
	}, func(err error) { done <- err })
	if err := soon(t, "the flush", done); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(1, 3, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if asOf, b, err := s.Load(1); asOf != 3 || string(b) != "state" || err != nil {
		t.Fatalf("%d %q %v", asOf, b, err)
	}
	name := dataDir + "/" + TxnSnapshotPrefix + "1"
	for what, file := range map[string][]byte{
		"behind the end": EncodeSnapshot(TxnSnapshotPrefix, 1, 4, nil),
		"damaged":        []byte("SKCS"),
	} {
		if err := vfs.WriteFileAtomic(fs, dataDir, TxnSnapshotPrefix+"1", file); err != nil {
			t.Fatal(err)
		}
		if asOf, _, err := s.Load(1); asOf != -1 || err != nil {
			t.Errorf("%s: %d %v", what, asOf, err)
		}
		if there, err := vfs.Exists(fs, name); there || err != nil {
			t.Errorf("%s: the file stays, %v", what, err)
		}
	}
	if len(w.faults) != 2 {
		t.Errorf("told %q, want two faults", w.faults)
	}
}
