package segment

import (
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sekali/index"
	"sekali/internal/vfs"
)

func TestNames(t *testing.T) {
	if got := Name(4711, LogSuffix); got != "00000000000000004711.log" {
		t.Fatal(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")
		suffix := rapid.SampledFrom([]string{"", ".log", ".index.cleaned", ".snapshot", "x"}).Draw(t, "suffix")
		name := Name(base, suffix)
		if want := strconv.FormatInt(base, 10); !strings.HasSuffix(name[:20], want) ||
			strings.Trim(name[:20-len(want)], "0") != "" {
			t.Fatalf("Name(%d) = %s", base, name)
		}
		if b, s, ok := ParseName(name); b != base || s != suffix || !ok {
			t.Fatalf("ParseName(%s) = %d %s %v", name, b, s, ok)
		}
	})
	for _, name := range []string{"", "4711.log", "0000000000000000471.log", "0000000000000000471x.log",
		"-0000000000000004711.log", "99999999999999999999.log", "leader-epoch-checkpoint-file"} {
		if _, _, ok := ParseName(name); ok {
			t.Errorf("%q was taken for a segment file", name)
		}
	}
}

// cleaned makes a cleaned segment from g's batches [from, to).
func cleaned(t *testing.T, o Options, base int64, g *maker, keep ...int) *Segment {
	t.Helper()
	s, err := CreateCleaned(testDir, ID{base}, o)
	ok(t, err)
	for _, i := range keep {
		_, err := s.Append(g.list[i].v)
		ok(t, err)
	}
	ok(t, s.Seal())
	ok(t, s.Sync())
	return s
}

// swapDir is a log of three segments, the first two to be replaced by one.
func swapDir(t *testing.T, fs vfs.FS) (g *maker, o Options, old []*Segment) {
	t.Helper()
	o = options(fs)
	o.Size = 96 << 10
	g = newMaker(8, 0)
	for range 3 {
		s := created(t, testDir, g.next, o)
		g.fill(t, s, 10)
		ok(t, s.Seal())
		ok(t, s.Sync())
		old = append(old, s)
	}
	ok(t, fs.SyncDir(testDir))
	return g, o, old
}

// TestSwapProtocol: whatever moment a crash picks during the replacement of two segments by one, the directory comes
// back with either the old two or the new one, and the third as it was (spec/on-disk.md 7 step 1).
func TestSwapProtocol(t *testing.T) {
	// run does the swap up to the given operation of the file system.
	run := func(fs *vfs.Mem, in *vfs.Injector, die int) (g *maker, want [2][]byte, bases [2][]int64, done bool) {
		g, o, old := swapDir(t, in)
		bases[0] = []int64{0, old[1].ID().Base, old[2].ID().Base}
		bases[1] = []int64{0, old[2].ID().Base}
		keep := []int{2, 5, 11, 14, 19}
		for _, i := range keep {
			want[1] = append(want[1], g.list[i].v...)
		}
		for _, m := range g.list[:10] {
			want[0] = append(want[0], m.v...)
		}
		c := cleaned(t, o, 0, g, keep...)
		stopped := errors.New("power is gone")
		in.Add(vfs.Rule{Op: "rename", Nth: die, Times: -1, Err: stopped})
		in.Add(vfs.Rule{Op: "syncdir", Nth: die, Times: -1, Err: stopped})
		err := c.Promote(Swap)
		if err == nil {
			old[0].Retire(true)
			old[1].Retire(true)
			err = c.Promote(Final)
		}
		if err != nil && !errors.Is(err, stopped) {
			t.Fatal(err)
		}
		return g, want, bases, err == nil
	}
	swapped, kept := 0, 0
	for die := 1; ; die++ {
		finished := false
		for seed := range uint64(60) {
			fs := newMem(t)
			_, want, bases, done := run(fs, vfs.Inject(fs), die)
			finished = done
			after := fs.Crash(vfs.CrashPlan{Seed: seed, KeepUnsynced: int(seed%4) * 30})
			before, _ := after.ReadDir(testDir)
			// The first two starts die, too.
			for start := range uint64(2) {
				op := []string{"rename", "remove", "syncdir"}[seed%3]
				in := vfs.Inject(after, vfs.Rule{Op: op, Nth: 1 + int(seed/3)%4, Times: -1, Err: os.ErrDeadlineExceeded})
				in.Add(vfs.Rule{Op: "syncdir", Nth: 1 + int(seed/3)%4, Times: -1, Err: os.ErrDeadlineExceeded})
				if _, err := List(testDir, in); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				after = after.Crash(vfs.CrashPlan{Seed: seed + start, KeepUnsynced: 50})
			}
			got, err := List(testDir, after)
			ok(t, err)
			which := 0
			if slices.Equal(got, bases[1]) {
				which = 1
				swapped++
			} else {
				kept++
			}
			if !slices.Equal(got, bases[which]) {
				t.Fatalf("die %d seed %d: segments %v", die, seed, got)
			}
			if !bytes.Equal(logFile(t, after, 0), want[which]) {
				t.Fatalf("die %d seed %d: neither the old segment nor the new one", die, seed)
			}
			for _, base := range got {
				s, err := OpenSealed(testDir, ID{base}, options(after))
				if err != nil {
					t.Fatalf("die %d seed %d: %v; the crash left %v", die, seed, err, before)
				}
				s.Retire(false)
			}
			again, err := List(testDir, after.Crash(vfs.CrashPlan{Seed: seed}))
			if err != nil || !slices.Equal(again, got) {
				t.Fatalf("die %d seed %d: not durable: %v %v", die, seed, again, err)
			}
		}
		if finished {
			break
		}
	}
	if swapped == 0 || kept == 0 {
		t.Fatalf("%d swapped, %d kept: the crash missed the protocol", swapped, kept)
	}
}

// TestPromoteKeepsReaders: a cleaned segment is read before, between and after its renames.
func TestPromoteKeepsReaders(t *testing.T) {
	fs := newMem(t)
	g, o, old := swapDir(t, fs)
	o.Handles = NewHandles(1)
	c := cleaned(t, o, 0, g, 1, 12, 19)
	check := func(stage string) {
		o.Handles.Sweep()
		o.Handles.Sweep() // so that it is opened by its present name
		if got := content(t, c); !bytes.Equal(got, slices.Concat(g.list[1].v, g.list[12].v, g.list[19].v)) {
			t.Fatalf("%s: other bytes", stage)
		}
		c.TryPin()
		defer c.Unpin()
		if pos, err := c.Find(g.list[5].first); err != nil || pos != int64(len(g.list[1].v)) {
			t.Fatalf("%s: Find in a hole: %d %v", stage, pos, err)
		}
	}
	check("cleaned")
	ok(t, c.Promote(Swap))
	check("swap")
	old[0].Retire(true)
	old[1].Retire(true)
	ok(t, c.Promote(Final))
	check("final")
	c.Retire(false)
	old[2].Retire(false)
	bases, err := List(testDir, fs)
	if err != nil || !slices.Equal(bases, []int64{0, old[2].ID().Base}) {
		t.Fatal(bases, err)
	}
}

func TestListRemovesLeftovers(t *testing.T) {
	fs := newMem(t)
	g := newMaker(1, 0)
	v := g.any()
	for _, name := range []string{
		Name(0, ".log"), Name(0, ".index"), Name(0, ".timeindex"), // a segment
		Name(50, ".log"),                          // one without index files
		Name(90, ".index"), Name(90, ".txnindex"), // no log
		Name(10, ".log.7.deleted"), Name(10, ".index.deleted"), Name(10, ".snapshot.deleted"),
		Name(20, ".log.cleaned"), Name(20, ".txnindex.cleaned"),
		Name(20, ".log.swap"), Name(30, ".index.swap"), Name(30, ".log.swap"), // void: a .cleaned at or below
		Name(0, ".index.tmp"), Name(0, ".cut"), Name(0, ".snapshot"),
		"partition.metadata", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "x.log", Name(0, ".logx"),
	} {
		writeFile(t, fs, testDir, name, v)
	}
	bases, err := List(testDir, fs)
	if err != nil || !slices.Equal(bases, []int64{0, 50}) {
		t.Fatal(bases, err)
	}
	names, err := fs.Crash(vfs.CrashPlan{}).ReadDir(testDir)
	ok(t, err)
	want := []string{Name(0, ".cut"), Name(0, ".index"), Name(0, ".log"), Name(0, ".logx"), Name(0, ".snapshot"),
		Name(0, ".timeindex"), Name(50, ".log"), "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp",
		"partition.metadata", "x.log"}
	if !slices.Equal(names, want) {
		t.Fatalf("left:\n%v\nwant:\n%v", names, want)
	}
}

// TestTruncateTo: after a cut on any border the segment is what it would be had the rest never been appended, sealed
// or not before, and takes appends again.
func TestTruncateTo(t *testing.T) {
	for seed := range uint64(60) {
		fs := newMem(t)
		o := options(fs)
		o.IndexEvery = []int{1, 900, 4096}[seed%3]
		o.Cache = newCache(t)
		o.Handles = NewHandles(2)
		s := created(t, testDir, 70, o)
		g := newMaker(seed, 70)
		marker := func() {
			g.add(t, s, g.abort(3))
			s.AddAborted(abortedAt(g.next - 1))
		}
		for i := range 20 + g.r.IntN(100) {
			g.fill(t, s, 1)
			if i%9 == 8 {
				marker()
			}
			if i%30 == 29 {
				ok(t, s.FlushIndex())
			}
		}
		if seed%2 == 0 {
			ok(t, s.Sync())
			ok(t, s.Seal())
			if seed%4 == 0 {
				s.Retire(false)
				var err error
				s, err = OpenSealed(testDir, ID{70}, o)
				ok(t, err)
			}
		}
		cut := g.r.IntN(len(g.list) + 1)
		if cut < len(g.list) {
			g.next = g.list[cut].first
		}
		g.list = g.list[:cut]
		ok(t, s.TruncateTo(g.next))
		if s.Size() != int64(len(g.bytes())) || s.NextOffset() != g.next || s.Sealed() {
			t.Fatalf("seed %d: size %d, next %d after a cut to %d", seed, s.Size(), s.NextOffset(), g.next)
		}
		if b := logFile(t, fs, 70); !bytes.Equal(b, g.bytes()) || !bytes.Equal(content(t, s), b) {
			t.Fatalf("seed %d: other bytes", seed)
		}
		x, files := s.active.Load(), indexFiles(t, fs, testDir, 70)
		if !bytes.Equal(files.offset, index.AppendOffsetIndex(nil, x, 0, x.Len())) ||
			!bytes.Equal(files.time, index.AppendTimeIndex(nil, x, 0, x.Len())) ||
			!bytes.Equal(files.txn, index.AppendTxnIndex(nil, s.aborted.Load().All())) {
			t.Fatalf("seed %d: the index files hold what was cut", seed)
		}
		g.fill(t, s, 30)
		marker()
		if got := content(t, s); !bytes.Equal(got, g.bytes()) {
			t.Fatalf("seed %d: other bytes after appending again", seed)
		}
		ok(t, s.Sync())
		ok(t, s.Seal())
		b := indexFiles(t, fs, testDir, 70)
		offsets, times, err := Reindex(bytes.NewReader(g.bytes()), 70, s.Size(), o.IndexEvery)
		ok(t, err)
		if !bytes.Equal(b.offset, offsets) || !bytes.Equal(b.time, times) {
			t.Fatalf("seed %d: the index differs from a fresh build", seed)
		}
		dumpable(t, 70, g.bytes(), b)
		s.TryPin()
		list, _, err := s.Aborted(nil, 0, math.MaxInt64)
		ok(t, err)
		markers := 0
		for _, m := range g.list {
			if m.v.Attrs().Control() {
				if list[markers].Last != m.first {
					t.Fatalf("seed %d: marker %d of %v", seed, m.first, list)
				}
				markers++
			}
		}
		if len(list) != markers {
			t.Fatalf("seed %d: %d aborted, %d markers", seed, len(list), markers)
		}
		s.Unpin()
		s.Retire(false)
	}
}
