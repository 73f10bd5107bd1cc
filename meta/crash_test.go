package meta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
)

var errDead = errors.New("the process is dead")

// worker runs the same transactions again and again: number i sets "n" to i, and a pad that makes snapshots come
// soon.
type worker struct {
	acked   int // highest number acknowledged
	unknown int // highest number begun without an answer that denies it
}

func (w *worker) run(s meta.MetadataStore, from, to, pad int) error {
	for i := from; i <= to; i++ {
		w.unknown = i
		ops := []meta.Op{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "copy", Value: fmt.Append(nil, i)},
			{Key: "pad", Value: make([]byte, pad)}}
		if _, err := s.Txn(context.Background(), nil, ops); err != nil {
			return err
		}
		w.acked = i
	}
	return nil
}

// found returns the number that a reopened store holds and checks that no revision is there in part.
func found(t *testing.T, fs vfs.FS) int {
	t.Helper()
	s, c, err := meta.Open("/d", fs, clock.Real())
	if err != nil {
		t.Fatalf("open after a crash: %v", err)
	}
	defer c.Close()
	state, rev, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, _ := state.Get("n")
	other, _ := state.Get("copy")
	if !bytes.Equal(n.Value, other.Value) || n.Rev != other.Rev || n.Rev != rev {
		t.Fatalf("revision %d is torn: n %s at %d, copy %s at %d", rev, n.Value, n.Rev, other.Value, other.Rev)
	}
	if rev == 0 {
		return 0
	}
	got := 0
	if _, err := fmt.Sscan(string(n.Value), &got); err != nil || got != int(rev) {
		t.Fatalf("n is %s at revision %d", n.Value, rev)
	}
	return got
}

// TestReadBesideTheStore: tools see what the store holds and change nothing, a torn record included.
func TestReadBesideTheStore(t *testing.T) {
	m := newMem(t)
	if st, rev, err := meta.Read("/d", m); err != nil || rev != 0 || st.Len() != 0 {
		t.Fatalf("an empty directory: %d keys at %d, %v", st.Len(), rev, err)
	}
	s, c, err := meta.Open("/d", m, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	var w worker
	for i := 1; i <= 7; i++ {
		if err := w.run(s, i, i, 500_000); err != nil {
			t.Fatal(err)
		}
		st, rev, err := meta.Read("/d", m)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := st.Get("n"); rev != meta.Rev(i) || string(n.Value) != fmt.Sprint(i) {
			t.Fatalf("n is %s at revision %d, want %d", n.Value, rev, i)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadFile(m, "/d/"+meta.LogName)
	if err != nil {
		t.Fatal(err)
	}
	torn := b[:len(b)-1]
	if err := vfs.WriteFileAtomic(m, "/d", meta.LogName, torn); err != nil {
		t.Fatal(err)
	}
	if _, rev, err := meta.Read("/d", m); err != nil || rev != 6 {
		t.Fatalf("with a torn record: revision %d, %v", rev, err)
	}
	if after, err := vfs.ReadFile(m, "/d/"+meta.LogName); err != nil || !bytes.Equal(after, torn) {
		t.Fatal("reading changed the log")
	}
}

func newMem(t *testing.T) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	if err := vfs.MkdirAllSync(m, "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	return m
}

var plans = []vfs.CrashPlan{
	{KeepUnsynced: 0, SectorSize: 512},
	{KeepUnsynced: 50, SectorSize: 512},
	{KeepUnsynced: 50, SectorSize: 512, Garble: true},
	{KeepUnsynced: 100, SectorSize: 4096},
}

// TestCrashAtEveryStep stops the store before its n-th operation on the file system, for every n of a run that
// opens, writes, takes snapshots and closes, lets the machine die, and opens again: every acknowledged transaction
// is there, at most the one in doubt beside them, and none in part. A second crash after the first is survived too.
func TestCrashAtEveryStep(t *testing.T) {
	const txns, pad = 5, 600_000
	for _, plan := range plans {
		for step := 1; ; step++ {
			m := newMem(t)
			fs := vfs.Inject(m, vfs.Rule{Nth: step, Times: -1, Err: errDead})
			var w worker
			s, c, err := meta.Open("/d", fs, clock.Real())
			if err == nil {
				err = w.run(s, 1, txns, pad)
				if cerr := c.Close(); err == nil {
					err = cerr
				}
			}
			plan.Seed = uint64(step)
			after := m.Crash(plan)
			if got := found(t, after); got < w.acked || got > w.unknown {
				t.Fatalf("plan %+v, step %d: found %d of %d to %d", plan, step, got, w.acked, w.unknown)
			}
			first := found(t, after)
			if again := found(t, after.Crash(plan)); again != first {
				t.Fatalf("plan %+v, step %d: found %d, after another crash %d", plan, step, first, again)
			}
			if err == nil {
				if w.acked != txns {
					t.Fatalf("%d acknowledged", w.acked)
				}
				if step < 25 {
					t.Fatalf("only %d steps: no snapshot was taken", step)
				}
				break
			}
		}
	}
}

// TestKillThenPowerLoss: a record that a killed process left in the page cache is durable before it is shown, also
// when the cache holds bytes that a failed flush has lost, and when the pages cannot be dropped.
func TestKillThenPowerLoss(t *testing.T) {
	for name, mark := range map[string]func(fs *vfs.Injector){
		"killed before the flush": func(fs *vfs.Injector) {
			fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Times: -1, Err: errDead})
			fs.Add(vfs.Rule{Op: "close", Nth: 1, Times: -1, Err: errDead})
		},
		"failed flush": func(fs *vfs.Injector) { fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Err: syscall.EIO}) },
	} {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pinned %v", name, pinned), func(t *testing.T) { killThenLoss(t, mark, pinned) })
		}
	}
}

func killThenLoss(t *testing.T, mark func(*vfs.Injector), pinned bool) {
	m := newMem(t)
	fs := vfs.Inject(m)
	s, c, err := meta.Open("/d", fs, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	var w worker
	if err := w.run(s, 1, 3, 0); err != nil {
		t.Fatal(err)
	}
	mark(fs)
	if err := w.run(s, 4, 4, 0); !errors.Is(err, meta.ErrUnknown) {
		t.Fatalf("a transaction whose flush failed: %v", err)
	}
	_ = c.Close()
	killed := m.Kill()
	var second vfs.FS = killed
	if pinned {
		second = vfs.Inject(killed, vfs.Rule{Op: "uncache", Err: vfs.ErrCached})
	}
	shown := found(t, second)
	if after := found(t, killed.Crash(vfs.CrashPlan{SectorSize: 512})); after != shown || shown < 3 {
		t.Fatalf("shown %d after the kill, %d after the power loss", shown, after)
	}
}

// TestFailedFlushIsFinal: after a failed flush nothing is written to the descriptor any more, whatever the disk says.
func TestFailedFlushIsFinal(t *testing.T) {
	m := newMem(t)
	fs := vfs.Inject(m)
	s, c, err := meta.Open("/d", fs, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := s.OpenSession(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var w worker
	if err := w.run(s, 1, 1, 0); err != nil {
		t.Fatal(err)
	}
	fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Err: syscall.EIO})
	if err := w.run(s, 2, 2, 0); !errors.Is(err, meta.ErrUnknown) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	<-session.Lost()
	writes := fs.Add(vfs.Rule{Op: "writeat"})
	for range 3 {
		if err := w.run(s, 3, 3, 0); !errors.Is(err, meta.ErrFailed) || errors.Is(err, meta.ErrUnknown) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := s.OpenSession(t.Context(), time.Minute); !errors.Is(err, meta.ErrFailed) {
		t.Fatalf("a session of a failed store: %v", err)
	}
	if writes.Hits() != 0 {
		t.Fatalf("%d writes after the failed flush", writes.Hits())
	}
	if _, rev, err := s.Snapshot(t.Context()); err != nil || rev != 1 {
		t.Fatalf("reads go on: revision %d, %v", rev, err)
	}
}

// TestFullDisk: a transaction that does not fit is refused and leaves nothing; with room again the next one succeeds.
func TestFullDisk(t *testing.T) {
	m := newMem(t)
	fs := vfs.Inject(m)
	s, c, err := meta.Open("/d", fs, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	var w worker
	if err := w.run(s, 1, 2, 100); err != nil {
		t.Fatal(err)
	}
	for short := range 60 {
		full := fs.Add(vfs.Rule{Op: "writeat", Err: syscall.ENOSPC, Short: short})
		if err := w.run(s, 3, 3, 100); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, meta.ErrUnknown) {
			t.Fatalf("%v", err)
		}
		full.Remove()
	}
	if err := w.run(s, 3, 5, 100); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := found(t, m.Crash(vfs.CrashPlan{SectorSize: 512})); got != 5 {
		t.Fatalf("found %d, want 5", got)
	}
}

// TestFullDiskDuringSnapshot: a snapshot that does not fit is put off, transactions go on.
func TestFullDiskDuringSnapshot(t *testing.T) {
	for _, name := range []string{"sekali.meta.snapshot.tmp", "sekali.meta.tmp"} {
		m := newMem(t)
		fs := vfs.Inject(m)
		found(t, fs) // makes the log, so that it bears its own name in what follows
		s, c, err := meta.Open("/d", fs, clock.Real())
		if err != nil {
			t.Fatal(err)
		}
		full := fs.Add(vfs.Rule{Op: "writeat", Match: name, Err: syscall.ENOSPC})
		var w worker
		if err := w.run(s, 1, 8, 600_000); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if full.Hits() < 2 {
			t.Fatalf("%s: a snapshot was tried %d times", name, full.Hits())
		}
		full.Remove()
		if err := w.run(s, 9, 12, 600_000); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if st, err := m.Stat("/d/sekali.meta"); err != nil || st.Size > 3_000_000 {
			t.Fatalf("%s: the log was not replaced: %d bytes, %v", name, st.Size, err)
		}
		if got := found(t, m.Crash(vfs.CrashPlan{SectorSize: 512})); got != 12 {
			t.Fatalf("found %d, want 12", got)
		}
	}
}

// TestDamageRefusesTheStart: damage that is no torn tail names path and position and changes nothing.
func TestDamageRefusesTheStart(t *testing.T) {
	build := func(t *testing.T, pad int) *vfs.Mem {
		m := newMem(t)
		s, c, err := meta.Open("/d", m, clock.Real())
		if err != nil {
			t.Fatal(err)
		}
		var w worker
		if err := errors.Join(w.run(s, 1, 10, pad), c.Close()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	edit := func(t *testing.T, m *vfs.Mem, name string, fn func([]byte) []byte) {
		b, err := vfs.ReadFile(m, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(m, "/d", strings.TrimPrefix(name, "/d/"), fn(b)); err != nil {
			t.Fatal(err)
		}
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	const log, snap = "/d/sekali.meta", "/d/sekali.meta.snapshot"
	for _, c := range []struct {
		name string
		pad  int
		do   func(t *testing.T, m *vfs.Mem)
		path string
	}{
		{"header", 0, func(t *testing.T, m *vfs.Mem) { edit(t, m, log, flip(9)) }, log},
		{"first record", 0, func(t *testing.T, m *vfs.Mem) { edit(t, m, log, flip(40)) }, log},
		{"empty log", 0, func(t *testing.T, m *vfs.Mem) { edit(t, m, log, func([]byte) []byte { return nil }) }, log},
		{"snapshot", 600_000, func(t *testing.T, m *vfs.Mem) { edit(t, m, snap, flip(60)) }, snap},
		{"no snapshot", 600_000, func(t *testing.T, m *vfs.Mem) { _ = m.Remove(snap) }, snap},
		{"no log", 600_000, func(t *testing.T, m *vfs.Mem) { _ = m.Remove(log) }, log},
	} {
		m := build(t, c.pad)
		c.do(t, m)
		_, _, err := meta.Open("/d", m, clock.Real())
		var damage *meta.CorruptError
		if !errors.As(err, &damage) || damage.Path != c.path {
			t.Errorf("%s: %v, want damage of %s", c.name, err, c.path)
		}
		if _, _, again := meta.Open("/d", m, clock.Real()); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: the second start says %v, the first said %v", c.name, again, err)
		}
	}
}

// TestUnknownAfterCancel: a caller that gives up while its transaction is at work is told that the outcome is open.
func TestUnknownAfterCancel(t *testing.T) {
	m := newMem(t)
	fs := vfs.Inject(m)
	s, c, err := meta.Open("/d", fs, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	fs.Add(vfs.Rule{Op: "datasync", Nth: 1, Do: func() { cancel(); <-release }})
	_, err = s.Txn(ctx, nil, []meta.Op{{Key: "k", Value: []byte("v")}})
	close(release)
	if !errors.Is(err, meta.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	out, err := s.Txn(t.Context(), []meta.Cond{{Key: "k", Rev: 1}}, nil)
	if err != nil || !out.Applied {
		t.Fatalf("a later look: %+v, %v", out, err)
	}
}
