package segment

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"syscall"
	"testing"

	"sekali/batch"
	"sekali/internal/check"
	"sekali/internal/vfs"
)

func TestAppendShowsInTheMapping(t *testing.T) {
	for name, fs := range map[string]func(t *testing.T) (vfs.FS, string){
		"mem":  func(t *testing.T) (vfs.FS, string) { return newMem(t), testDir },
		"disk": func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, dir := fs(t)
			s := created(t, dir, 7, options(fsys))
			defer s.Retire(false)
			g := newMaker(1, 7)
			for range 50 {
				g.fill(t, s, 1)
				vs := []batch.View{g.any(), g.any(), g.any()}
				pos, err := s.AppendAll([]int64{-5}, vs)
				ok(t, err)
				if len(pos) != 4 || pos[0] != -5 {
					t.Fatalf("positions %v", pos)
				}
				for _, piece := range s.w.iov[:len(vs)] {
					if piece != nil {
						t.Fatal("a batch of the caller is held on to")
					}
				}
				for i := range vs {
					g.list[len(g.list)-3+i].pos = pos[1+i]
				}
			}
			want := g.bytes()
			if s.Size() != int64(len(want)) || s.NextOffset() != g.next || s.Sealed() || s.ID().Base != 7 {
				t.Fatalf("size %d next %d, want %d %d", s.Size(), s.NextOffset(), len(want), g.next)
			}
			if !bytes.Equal(content(t, s), want) {
				t.Fatal("mapping differs from what was appended")
			}
			at := int64(0)
			for i, m := range g.list {
				if m.pos != at {
					t.Fatalf("batch %d at %d, want %d", i, m.pos, at)
				}
				at += int64(len(m.v))
			}
			ok(t, s.Sync())
			ok(t, s.StartWrite(0, s.Size()))
			s.TryPin()
			s.WillNeed(0, s.Size())
			p := make([]byte, 100)
			if n, err := s.ReadAt(p, s.Size()-60); n != 60 || err != io.EOF || !bytes.Equal(p[:n], want[len(want)-60:]) {
				t.Fatalf("ReadAt across the end: %d %v", n, err)
			}
			if n, err := s.ReadAt(p, 33); n != 100 || err != nil || !bytes.Equal(p, want[33:133]) {
				t.Fatalf("ReadAt: %d %v", n, err)
			}
			s.Unpin()
		})
	}
}

// TestRollRules is the table of spec/on-disk.md 5.
func TestRollRules(t *testing.T) {
	one := func(ms int64, size int) batch.View {
		b := batch.Builder{BaseTime: ms}
		b.Add(batch.Record{Value: make([]byte, size)})
		return b.Done(0, -1, -1, -1)
	}
	many := func(last int32) batch.View {
		var b batch.Builder
		b.Add(batch.Record{})
		b.Add(batch.Record{OffsetDelta: last})
		return b.Done(0, -1, -1, -1)
	}
	small := int64(len(one(0, 0)))
	for _, c := range []struct {
		name  string
		limit int64
		roll  int64
		have  []batch.View // appended before
		next  batch.View
		want  bool
	}{
		{"empty takes the limit", small, 0, nil, one(0, 0), true},
		{"empty refuses more than the limit", small - 1, 0, nil, one(0, 0), false},
		{"exactly full", 3 * small, 0, []batch.View{one(0, 0), one(0, 0)}, one(0, 0), true},
		{"one byte too many", 3*small - 1, 0, []batch.View{one(0, 0), one(0, 0)}, one(0, 0), false},
		{"at the time limit", 1 << 20, 100, []batch.View{one(1000, 0), one(5000, 0)}, one(1100, 0), true},
		{"beyond it", 1 << 20, 100, []batch.View{one(1000, 0), one(1000, 0)}, one(1101, 0), false},
		{"earlier record", 1 << 20, 100, []batch.View{one(1000, 0)}, one(1, 0), true},
		{"no time, no rule", 1 << 20, 100, []batch.View{one(-1, 0)}, one(math.MaxInt64, 0), true},
		{"no time limit", 1 << 20, 0, []batch.View{one(1000, 0)}, one(math.MaxInt64, 0), true},
		{"a far negative time", 1 << 20, 100, []batch.View{one(1000, 0)}, one(math.MinInt64+1, 0), true},
		{"empty has no time rule", 1 << 20, 100, nil, one(math.MaxInt64, 0), true},
		{"31-bit offsets, the last that fits", 1 << 20, 0, []batch.View{one(0, 0)}, many(math.MaxInt32 - 1), true},
		{"31-bit offsets, one too far", 1 << 20, 0, []batch.View{one(0, 0)}, many(math.MaxInt32), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := created(t, testDir, 1000, options(newMem(t)))
			defer s.Retire(false)
			s.Limit(c.limit, c.roll)
			for _, v := range c.have {
				v.Stamp(s.NextOffset(), 0)
				_, err := s.Append(v)
				ok(t, err)
			}
			if got := s.Fits(c.next); got != c.want {
				t.Fatalf("Fits: %v", got)
			}
			n := 0
			if c.want {
				n = 1
			}
			if got := s.FitsAll([]batch.View{c.next}); got != n {
				t.Fatalf("FitsAll: %d", got)
			}
		})
	}
}

// TestFitsAllIsFitsOneByOne: the plan of a group agrees with appending its batches singly, whatever limit ends it.
func TestFitsAllIsFitsOneByOne(t *testing.T) {
	for seed := range uint64(60) {
		g := newMaker(seed, 50)
		o := options(newMem(t))
		o.IndexEvery = 1 + g.r.IntN(3000)
		o.IndexBytes = 8 * (20 + g.r.IntN(40))
		o.RollMs = int64(1 + g.r.IntN(2000))
		s := created(t, testDir, 50, o)
		s.Limit(int64(10_000+g.r.IntN(60_000)), o.RollMs)
		var vs []batch.View
		for range 150 {
			vs = append(vs, g.any())
		}
		skip := g.r.IntN(3)
		for _, v := range vs[:skip] {
			_, err := s.Append(v)
			ok(t, err)
		}
		n := s.FitsAll(vs[skip:])
		for i, v := range vs[skip:] {
			if fits := s.Fits(v); fits != (i < n) {
				// The group counts one time entry for each offset entry, so it may end a little early.
				if i >= n && s.active.Load().Times() < s.active.Load().Len() {
					break
				}
				t.Fatalf("seed %d: batch %d fits %v, FitsAll says %d", seed, i, fits, n)
			}
			if i >= n {
				break
			}
			_, err := s.Append(v)
			ok(t, err)
		}
		if n == len(vs)-skip {
			t.Fatalf("seed %d: no limit was met", seed)
		}
		s.Retire(false)
	}
}

func TestAppendRefusesWhatBreaksTheFormat(t *testing.T) {
	violates := func(fn func()) (is bool) {
		defer func() { _, is = recover().(*check.Violation) }()
		fn()
		return false
	}
	s := created(t, testDir, 100, options(newMem(t)))
	defer s.Retire(false)
	g := newMaker(1, 100)
	g.fill(t, s, 3)
	v := g.any()
	v.Stamp(s.NextOffset()-1, 0)
	if !violates(func() { _, _ = s.Append(v) }) {
		t.Error("an offset was given twice")
	}
	v.Stamp(100+math.MaxInt32, 0)
	if v.LastOffset() == v.BaseOffset() {
		v = g.batch(2, 1)
		v.Stamp(100+math.MaxInt32, 0)
	}
	if _, err := s.Append(v); !errors.Is(err, ErrLimit) {
		t.Errorf("relative offset beyond 31 bits: %v", err)
	}
	big := g.batch(1, 1<<20)
	big.Stamp(s.NextOffset(), 0)
	if _, err := s.AppendAll(nil, []batch.View{big}); !errors.Is(err, ErrLimit) {
		t.Errorf("batch beyond the mapping: %v", err)
	}
	size := s.Size()
	g.next = s.NextOffset()
	ok(t, s.Seal())
	if !violates(func() { _, _ = s.Append(g.any()) }) {
		t.Error("a sealed segment took an append")
	}
	if s.Size() != size {
		t.Errorf("size went from %d to %d", size, s.Size())
	}
}

// TestFailedWrites: a write refused for space or short publishes nothing, is told apart from other failures, and the
// next append begins where the last published one ended. Bytes of the failed one are gone from the file.
func TestFailedWrites(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  vfs.Rule
		group bool
		space bool
	}{
		{"no space", vfs.Rule{Op: "writeat", Err: syscall.ENOSPC}, false, true},
		{"part, then no space", vfs.Rule{Op: "writeat", Err: syscall.ENOSPC, Short: 80}, false, true},
		{"short", vfs.Rule{Op: "writeat", Short: 80}, false, true},
		{"quota", vfs.Rule{Op: "writevat", Err: syscall.EDQUOT, Short: 200}, true, true},
		{"short group", vfs.Rule{Op: "writevat", Short: 200}, true, true},
		{"I/O error", vfs.Rule{Op: "writeat", Err: syscall.EIO, Short: 100}, false, false},
		{"I/O error in a group", vfs.Rule{Op: "writevat", Err: syscall.EIO}, true, false},
	} {
		for _, unwrite := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				fs := vfs.Inject(newMem(t))
				s := created(t, testDir, 0, options(fs))
				defer s.Retire(false)
				g := newMaker(3, 0)
				g.fill(t, s, 20)
				size, next, have := s.Size(), s.NextOffset(), g.bytes()
				rule := fs.Add(c.rule)
				v := g.batch(3, 500)
				var err error
				if c.group {
					_, err = s.AppendAll(nil, []batch.View{v, g.batch(1, 100)})
				} else {
					_, err = s.Append(v)
				}
				if err == nil || vfs.IsNoSpace(err) != c.space {
					t.Fatalf("error %v, no space: %v", err, vfs.IsNoSpace(err))
				}
				rule.Remove()
				if s.Size() != size || s.NextOffset() != next || !bytes.Equal(content(t, s), have) {
					t.Fatalf("something was published: size %d, next %d", s.Size(), s.NextOffset())
				}
				if unwrite {
					ok(t, s.Unwrite())
					if b := readFile(t, fs, testDir+"/"+Name(0, LogSuffix)); !bytes.Equal(b, have) {
						t.Fatalf("%d bytes in the file after Unwrite, want %d", len(b), len(have))
					}
				}
				g.list, g.next = g.list[:20], next
				g.add(t, s, g.batch(1, 10)) // shorter than what failed
				if b := readFile(t, fs, testDir+"/"+Name(0, LogSuffix)); !bytes.Equal(b, g.bytes()) {
					t.Fatalf("%d bytes in the file, want %d", len(b), len(g.bytes()))
				}
				ok(t, s.Seal())
			})
		}
	}
}

// TestReservation: blocks are reserved ahead only for a segment that grows, a refused reservation is no refused write,
// and Seal gives the rest back.
func TestReservation(t *testing.T) {
	fs := vfs.Inject(newMem(t))
	o := options(fs)
	o.Size = 64 << 20
	s := created(t, testDir, 0, o)
	defer s.Retire(false)
	g := newMaker(1, 0)
	calls := fs.Add(vfs.Rule{Op: "allocate", Do: func() {}})
	for s.Size() < reserveFrom-4000 {
		g.fill(t, s, 1)
	}
	if calls.Hits() != 0 {
		t.Fatalf("%d reservations for %d bytes", calls.Hits(), s.Size())
	}
	steps := 0
	for s.Size() < 20<<20 {
		g.add(t, s, g.batch(1, 60_000))
		steps++
	}
	if n := calls.Hits(); n < 4 || n > 6 { // 1+2+4+8+16 MiB
		t.Fatalf("%d reservations for %d bytes in %d writes", n, s.Size(), steps)
	}
	full := fs.Add(vfs.Rule{Op: "allocate", Err: syscall.ENOSPC})
	for range 300 {
		g.add(t, s, g.batch(1, 60_000))
	}
	if full.Hits() == 0 {
		t.Fatal("no reservation was refused")
	}
	full.Remove()
	broken := fs.Add(vfs.Rule{Op: "allocate", Err: syscall.EIO})
	g.next = s.NextOffset()
	var err error
	for range 1000 {
		if _, err = s.Append(g.batch(1, 30_000)); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.EIO) || vfs.IsNoSpace(err) {
		t.Fatalf("a failed reservation: %v", err)
	}
	broken.Remove()
	ok(t, s.Seal())
}

func TestAppendAllocatesNothing(t *testing.T) {
	if check.Costly {
		return // the race detector allocates
	}
	o := options(vfs.OS())
	o.Size = 256 << 20
	s := created(t, t.TempDir(), 0, o)
	defer s.Retire(false)
	g := newMaker(1, 0)
	v := g.batch(16, 1000)
	group := []batch.View{g.batch(3, 100), g.batch(3, 100), g.batch(3, 100)}
	pos := make([]int64, 0, 8)
	stamp := func(v batch.View, base int64) { v.Stamp(base, 1) }
	for range 1000 { // the first chunks of the index
		stamp(v, s.NextOffset())
		_, err := s.Append(v)
		ok(t, err)
	}
	n := testing.AllocsPerRun(500, func() {
		stamp(v, s.NextOffset())
		if !s.Fits(v) {
			t.Fatal("full")
		}
		if _, err := s.Append(v); err != nil {
			t.Fatal(err)
		}
		for i, v := range group {
			stamp(v, s.NextOffset()+int64(3*i))
		}
		if s.FitsAll(group) != 3 {
			t.Fatal("full")
		}
		if _, err := s.AppendAll(pos, group); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 { // the average rounds down: a chunk of the index once in some hundred batches is none
		t.Fatalf("%v allocations for an Append and an AppendAll, want 0", n)
	}
	ok(t, s.Seal())
	hot := created(t, t.TempDir(), 0, options(vfs.OS()))
	defer hot.Retire(false)
	g = newMaker(2, 0)
	g.fill(t, hot, 300)
	hot.TryPin()
	defer hot.Unpin()
	n = testing.AllocsPerRun(500, func() {
		pos, err := hot.Find(g.next / 2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = hot.Border(pos, hot.Size()-100); err != nil {
			t.Fatal(err)
		}
		if b, err := hot.Bytes(pos, hot.Size()); err != nil || len(b) == 0 {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations for a read, want 0", n)
	}
}

func TestCreateTakesOverOnlyEmptyFiles(t *testing.T) {
	fs := newMem(t)
	writeFile(t, fs, testDir, Name(5, IndexSuffix), []byte("left over"))
	writeFile(t, fs, testDir, Name(5, TxnSuffix), []byte("left over"))
	writeFile(t, fs, testDir, Name(5, LogSuffix), nil)
	s := created(t, testDir, 5, options(fs))
	if b := indexFiles(t, fs, testDir, 5); len(b.offset) != 0 || b.time == nil || b.txn == nil ||
		len(b.txn) != 0 {
		t.Fatalf("index files after Create: %+v", b)
	}
	g := newMaker(1, 5)
	g.fill(t, s, 2)
	ok(t, s.Seal())
	want := indexFiles(t, fs, testDir, 5)
	s.Retire(false)
	if _, err := Create(testDir, ID{5}, options(fs)); !errors.Is(err, os.ErrExist) {
		t.Fatalf("Create over records: %v", err)
	}
	if b := readFile(t, fs, testDir+"/"+Name(5, LogSuffix)); !bytes.Equal(b, g.bytes()) {
		t.Fatal("Create changed a log that holds records")
	}
	if b := indexFiles(t, fs, testDir, 5); !bytes.Equal(b.time, want.time) {
		t.Fatal("Create changed the index of a log that holds records")
	}
}
