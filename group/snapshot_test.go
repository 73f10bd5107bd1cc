package group

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sekali/batch"
)

// snapshotWorld takes a snapshot every 5 records and never rewrites.
func snapshotWorld(t *testing.T) *world {
	cfg := testConfig()
	cfg.RewriteEvery, cfg.SnapshotEvery = 0, 5
	w := newWorld(t, cfg)
	w.topics.set("orders", 1, 4)
	return w
}

// replayed counts the records a start reads.
type countingJournal struct {
	*fakeJournal
	n int
}

func (j *countingJournal) Replay(from int64, fn func(Replayed) error) error {
	return j.fakeJournal.Replay(from, func(r Replayed) error { j.n++; return fn(r) })
}

// start is a start after a crash; it gives the number of records read.
func (w *world) start() int {
	w.t.Helper()
	w.j = w.j.crash()
	j := &countingJournal{fakeJournal: w.j}
	w.m = New(w.cfg, w.topics, w.snaps, w.clk)
	if err := w.m.Load(w.t.Context(), []Journal{j}); err != nil {
		w.t.Fatal(err)
	}
	return j.n
}

// TestSnapshotShortensTheReplay: with a snapshot only the tail is read, and what is missing, damaged, of another
// partition or outside the journal is not used.
func TestSnapshotShortensTheReplay(t *testing.T) {
	w := snapshotWorld(t)
	for i := int64(0); i < 23; i++ {
		w.mustCommit(plain("g", int32(i%4), i))
		w.advance(100 * time.Millisecond)
	}
	whole := w.dump()
	if n := w.start(); n != 3 {
		t.Fatalf("%d records read, want the 3 behind the snapshot", n)
	}
	good, asOf := slices.Clone(w.snaps.data[0]), w.snaps.asOf[0]
	same := func(what string, want int) {
		t.Helper()
		n := w.start()
		if got := w.dump(); n != want || len(got.live["g"]) != 4 || got.count != whole.count {
			t.Fatalf("%s: %d records read, want %d: %+v", what, n, want, got)
		}
	}
	delete(w.snaps.data, 0)
	same("missing", 23)
	for i := range good {
		b := slices.Clone(good)
		b[i] ^= 0x40
		if _, _, err := decodeSnapshot(b, 0, asOf); !errors.Is(err, errSnapshot) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, _, err := decodeSnapshot(good[:i], 0, asOf); !errors.Is(err, errSnapshot) {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
	w.snaps.data[0] = append(slices.Clone(good[:len(good)-1]), good[len(good)-1]^1)
	same("damaged", 23)
	if w.snaps.asOf[0] != 23 {
		t.Fatalf("the damaged one was not replaced: as of %d", w.snaps.asOf[0])
	}
	same("replaced", 0)
	if _, _, err := decodeSnapshot(good, 1, asOf); !errors.Is(err, errSnapshot) {
		t.Fatalf("of another partition: %v", err)
	}
	if _, _, err := decodeSnapshot(good, 0, asOf+1); !errors.Is(err, errSnapshot) {
		t.Fatalf("under another offset: %v", err)
	}
	w.snaps.data[0], w.snaps.asOf[0] = good, asOf
	w.j.DropBefore(asOf + 1)
	w.start()
	if got := w.dump(); len(got.live["g"]) != 2 {
		t.Fatalf("a snapshot below the log start was used: %+v", got.live)
	}
}

// TestSnapshotBeyondTheJournal: after a loss of the tail a snapshot of the lost state is replaced before anything is
// served; it must not come back when the journal has grown past it.
func TestSnapshotBeyondTheJournal(t *testing.T) {
	w := snapshotWorld(t)
	for i := int64(0); i < 5; i++ {
		w.mustCommit(plain("g", 3, i))
	}
	w.advance(100 * time.Millisecond)
	if w.snaps.asOf[0] != 5 {
		t.Fatalf("snapshot as of %d", w.snaps.asOf[0])
	}
	w.j = newFakeJournal() // everything lost
	w.open()
	if w.snaps.asOf[0] != 0 {
		t.Fatalf("snapshot as of %d after the loss", w.snaps.asOf[0])
	}
	w.cfg.SnapshotEvery = 0
	for i := int64(0); i < 9; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.restart()
	if got := w.offset("g", 3, false); got != -1 {
		t.Fatalf("the lost offset %d is back", got)
	}
}

// TestSnapshotWithOpenTransaction: what is staged is never in a snapshot; it is replayed, and decided by the marker
// behind it.
func TestSnapshotWithOpenTransaction(t *testing.T) {
	w := snapshotWorld(t)
	w.mustCommit(plain("g", 0, 1))
	w.mustStage(staged("g", 9, 0, 5))
	for i := int64(0); i < 20; i++ {
		w.mustCommit(plain("h", 0, i))
	}
	w.advance(time.Second)
	if w.snaps.asOf[0] != 1 {
		t.Fatalf("snapshot as of %d, want that of the first staged record", w.snaps.asOf[0])
	}
	w.start()
	w.want("open", 1, -2)
	w.j.marker(batch.Marker{PID: 9, Epoch: 3, Commit: true})
	w.start()
	w.want("decided", 5, 5)
}

// TestSnapshotBesideFlights: a marker that lies behind a batch on its way does not move the snapshot past that batch.
func TestSnapshotBesideFlights(t *testing.T) {
	w := snapshotWorld(t)
	for i := int64(0); i < 4; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.j.held = true
	w.commit(plain("g", 3, 7))
	w.end(8, true)
	w.advance(100 * time.Millisecond)
	w.j.flush()
	w.cfg.SnapshotEvery = 0
	w.start()
	if got := w.offset("g", 3, true); got != 7 {
		t.Fatalf("holds %d, snapshot as of %d", got, w.snaps.asOf[0])
	}
}

// TestSnapshotFails: it is tried again, and nothing else suffers.
func TestSnapshotFails(t *testing.T) {
	w := snapshotWorld(t)
	w.snaps.fail = errors.New("full")
	for i := int64(0); i < 20; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.advance(time.Second)
	w.snaps.fail = nil
	w.advance(snapshotRetry + time.Second)
	if w.snaps.asOf[0] != 20 {
		t.Fatalf("snapshot as of %d", w.snaps.asOf[0])
	}
}
