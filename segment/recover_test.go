package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/internal/vfs"
)

// stored writes b as the .log of a segment, without index files.
func stored(t rapid.TB, fs vfs.FS, base int64, b []byte) {
	t.Helper()
	writeFile(t, fs, testDir, Name(base, LogSuffix), b)
}

// logFile returns the content of the .log.
func logFile(t rapid.TB, fs vfs.FS, base int64) []byte {
	t.Helper()
	return readFile(t, fs, testDir+"/"+Name(base, LogSuffix))
}

// made20 is a log of 20 batches.
func made20(base int64) *maker {
	g := newMaker(11, base)
	for range 20 {
		g.any()
	}
	at := int64(0)
	for i := range g.list {
		g.list[i].pos = at
		at += int64(len(g.list[i].v))
	}
	return g
}

// TestTailCutAtEveryByte is the segment's part of case F1: a log cut anywhere in its last two batches comes back with
// every whole batch before the cut, and is cut to it durably.
func TestTailCutAtEveryByte(t *testing.T) {
	g := made20(5)
	whole := g.bytes()
	from := g.list[18].pos
	for end := from; end < int64(len(whole)); end++ {
		fs := newMem(t)
		stored(t, fs, 5, whole[:end])
		keep := 18
		if end >= g.list[19].pos {
			keep = 19
		}
		mark := g.list[keep].first
		seen := 0
		s, c := recovered(t, testDir, 5, options(fs), Scan{From: 5, Mark: mark, Last: true,
			Batch: func(_ *Segment, pos int64, v batch.View) error {
				if pos != g.list[seen].pos || !bytes.Equal(v, g.list[seen].v) {
					t.Fatalf("cut at %d: batch %d differs", end, seen)
				}
				seen++
				return nil
			}})
		if seen != keep || s.NextOffset() != mark || s.Size() != g.list[keep].pos {
			t.Fatalf("cut at %d: %d batches, next %d, size %d", end, seen, s.NextOffset(), s.Size())
		}
		gone := end - g.list[keep].pos
		if len(bytes.Trim(whole[g.list[keep].pos:end], "\x00")) == 0 {
			gone = 0 // zeros are no cut: the first bytes of an offset
		}
		if c.Bytes != gone || c.Torn != (gone > 0) || c.Batches != 0 || c.Copy != "" {
			t.Fatalf("cut at %d: %+v, want %d bytes", end, c, gone)
		}
		s.Retire(false)
		again := fs.Crash(vfs.CrashPlan{Seed: uint64(end)})
		if b := logFile(t, again, 5); !bytes.Equal(b, whole[:g.list[keep].pos]) {
			t.Fatalf("cut at %d: %d bytes after a power cut", end, len(b))
		}
	}
}

// TestMarkDecides: the same damage is corruption below the durable mark and ends the log at or above it.
func TestMarkDecides(t *testing.T) {
	g := made20(0)
	const bad = 15
	at := g.list[bad].pos
	behind := int64(len(g.list) - bad - 1) // whole batches behind the bad one
	for _, c := range []struct {
		name   string
		break_ func(b []byte) []byte
		reason error
		whole  int64 // among what is cut, the bad one counted where it is whole in itself
	}{
		{"flipped record byte", func(b []byte) []byte { b[at+70] ^= 1; return b }, ErrChecksum, behind},
		{"flipped checksum", func(b []byte) []byte { b[at+18] ^= 1; return b }, ErrChecksum, behind},
		{"magic", func(b []byte) []byte { b[at+16] = 1; return b }, ErrMagic, behind},
		{"base offset ahead", func(b []byte) []byte { b[at+7]++; return b }, ErrBase, behind + 1},
		{"base offset behind", func(b []byte) []byte { b[at+7]--; return b }, ErrBase, behind + 1},
		{"base offset of another segment", func(b []byte) []byte { b[at] = 0x80; return b }, ErrBase, behind},
		{"base offset far ahead", func(b []byte) []byte { b[at] = 0x7f; return b }, ErrDelta, behind},
		{"leader epoch falls", func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[at+12:], 0xffffffff)
			return b
		}, ErrEpoch, behind + 1},
		{"length too long", func(b []byte) []byte { b[at+8] = 0x7f; return b }, ErrShort, behind},
		{"length negative", func(b []byte) []byte { b[at+8] = 0xff; return b }, ErrLength, behind},
		{"length small", func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[at+8:], 48)
			return b
		}, ErrLength, behind},
		{"sector of zeros", func(b []byte) []byte { clear(b[at : at+60]); return b }, ErrLength, behind},
		{"negative last offset delta", func(b []byte) []byte { b[at+23] = 0xff; return b }, ErrDelta, behind},
		{"one batch missing", func(b []byte) []byte { return slices.Delete(b, int(at), int(g.list[bad+1].pos)) },
			ErrBase, behind},
		{"the same batch twice", func(b []byte) []byte {
			return slices.Insert(b, int(at), g.list[bad-1].v...)
		}, ErrBase, behind + 2},
		{"ends in a header", func(b []byte) []byte { return b[:at+30] }, ErrShort, 0},
		{"ends in a batch", func(b []byte) []byte { return b[:at+75] }, ErrShort, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged := c.break_(g.bytes())
			first := g.list[bad].first
			for _, mark := range []int64{first, first + 1} {
				fs := newMem(t)
				stored(t, fs, 0, slices.Clone(damaged))
				sc := Scan{From: 0, Mark: mark, Epoch: 0, Last: true}
				s, cut, err := Recover(testDir, ID{0}, options(fs), sc)
				if mark > first {
					corrupt, is := errors.AsType[*CorruptError](err)
					if !is || corrupt.Pos != at || !errors.Is(err, c.reason) ||
						!strings.HasSuffix(corrupt.Path, Name(0, LogSuffix)) {
						t.Fatalf("below the mark: %v", err)
					}
					if !bytes.Equal(logFile(t, fs, 0), damaged) {
						t.Fatal("something was changed below the mark")
					}
					continue
				}
				ok(t, err)
				if s.NextOffset() != first || s.Size() != at || !bytes.Equal(content(t, s), g.bytes()[:at]) {
					t.Fatalf("next %d size %d", s.NextOffset(), s.Size())
				}
				gone := int64(len(damaged)) - at
				if !cut.Torn || cut.At != at || cut.Bytes != gone || cut.Batches != c.whole || !errors.Is(cut.Reason, c.reason) {
					t.Fatalf("%+v, want %d bytes, %d batches", cut, gone, c.whole)
				}
				s.Retire(false)
				after := fs.Crash(vfs.CrashPlan{})
				if (cut.Copy != "") != (c.whole > 0) {
					t.Fatalf("copy %q of %d batches", cut.Copy, c.whole)
				}
				if c.whole > 0 && !bytes.Equal(readFile(t, after, cut.Copy), damaged[at:]) {
					t.Fatal("the copy is not what was cut")
				}
			}
		})
	}
}

// TestZeroTail: zeros that a length ahead of its bytes left are the end, not a cut; below the mark they are
// corruption.
func TestZeroTail(t *testing.T) {
	g := made20(0)
	for _, zeros := range []int{1, 60, 61, 5000, 300_000} {
		b := append(g.bytes(), make([]byte, zeros)...)
		fs := newMem(t)
		stored(t, fs, 0, b)
		if _, _, err := Recover(testDir, ID{0}, options(fs), Scan{Mark: g.next + 1}); !isCorrupt(err) {
			t.Fatalf("%d zeros below the mark: %v", zeros, err)
		}
		s, cut := recovered(t, testDir, 0, options(fs), Scan{Mark: g.next, Last: true})
		if cut != (Cut{}) || s.Size() != int64(len(b)-zeros) {
			t.Fatalf("%d zeros: %+v, size %d", zeros, cut, s.Size())
		}
		s.Retire(false)
		if got := logFile(t, fs.Crash(vfs.CrashPlan{}), 0); len(got) != len(b)-zeros {
			t.Fatalf("%d zeros: %d bytes on the disk", zeros, len(got))
		}
	}
}

func TestShortLog(t *testing.T) {
	g := made20(0)
	for _, c := range []struct {
		name       string
		from, mark int64
		last, want bool
	}{
		{"ends at the mark", 0, g.next, true, true},
		{"ends below the mark", 0, g.next + 1, true, false},
		{"ends below the mark, but more follows", 0, g.next + 1, false, true},
		{"ends below the recovery point", g.next + 1, g.next + 1, false, false},
	} {
		fs := newMem(t)
		stored(t, fs, 0, g.bytes())
		s, _ := recovered(t, testDir, 0, options(fs), Scan{})
		ok(t, s.Seal())
		s.Retire(false)
		s, _, err := Recover(testDir, ID{0}, options(fs), Scan{From: c.from, Mark: c.mark, Last: c.last})
		if (err == nil) != c.want || err != nil && !errors.Is(err, ErrEnds) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err == nil {
			s.Retire(false)
		}
	}
}

// TestHolesOnlyWhereCompactionWas: above the offset up to which it can have been a hole is the end of the log, or
// corruption below the mark.
func TestHolesOnlyWhereCompactionWas(t *testing.T) {
	g := newMaker(3, 100)
	g.next = 107
	g.any()
	g.next += 5
	g.any()
	first, second := g.list[0].v, g.list[1].v
	for _, c := range []struct {
		holes, next int64
		batches     int64
	}{
		{math.MaxInt64, g.next, 0},
		{second.BaseOffset(), g.next, 0},
		{second.BaseOffset() - 1, first.LastOffset() + 1, 1},
		{107, first.LastOffset() + 1, 1},
		{106, 100, 2},
		{0, 100, 2},
	} {
		fs := newMem(t)
		stored(t, fs, 100, g.bytes())
		s, cut, err := Recover(testDir, ID{100}, options(fs), Scan{Holes: c.holes, Mark: 100})
		ok(t, err)
		if s.NextOffset() != c.next || cut.Batches != c.batches {
			t.Fatalf("holes up to %d: next %d, %+v", c.holes, s.NextOffset(), cut)
		}
		s.Retire(false)
	}
	fs := newMem(t)
	stored(t, fs, 100, g.bytes())
	if _, _, err := Recover(testDir, ID{100}, options(fs), Scan{Holes: 107, Mark: second.BaseOffset()}); !isCorrupt(err) {
		t.Fatalf("a hole across the mark: %v", err)
	}
}

// TestLeaderEpochs: the scan accepts epochs from Scan.Epoch on that never fall, also across the recovery point.
func TestLeaderEpochs(t *testing.T) {
	g := newMaker(3, 0)
	for i := range 10 {
		g.epoch = int32(3 + i/4)
		g.batch(2, 900)
	}
	for _, c := range []struct {
		from  int64
		epoch int32
		kept  int64 // records
	}{{0, 0, 20}, {0, 3, 20}, {0, 4, 0}, {6, 3, 20}, {6, 4, 6}, {8, 4, 20}, {8, 5, 8}} {
		fs := newMem(t)
		stored(t, fs, 0, g.bytes())
		s, _ := recovered(t, testDir, 0, options(fs), Scan{})
		ok(t, s.Seal())
		s.Retire(false)
		s, _ = recovered(t, testDir, 0, options(fs), Scan{From: c.from, Epoch: c.epoch})
		if s.NextOffset() != c.kept {
			t.Fatalf("from %d with epoch %d: next %d, want %d", c.from, c.epoch, s.NextOffset(), c.kept)
		}
		s.Retire(false)
	}
}

// TestTornAtTheRecoveryPoint: the batch behind the recovery point is not looked at while the index is checked.
func TestTornAtTheRecoveryPoint(t *testing.T) {
	for kept := 1; kept < 20; kept++ {
		fs := newMem(t)
		g := made20(0)
		stored(t, fs, 0, g.bytes()[:g.list[kept].pos])
		s, _ := recovered(t, testDir, 0, options(fs), Scan{})
		ok(t, s.FlushIndex())
		s.Retire(false)
		stored(t, fs, 0, append(g.bytes()[:g.list[kept].pos], bytes.Repeat([]byte{0xee}, 500)...))
		point := g.list[kept].first
		s, cut := recovered(t, testDir, 0, options(fs), Scan{From: point, Mark: point, Last: true})
		if s.NextOffset() != point || cut.Bytes != 500 {
			t.Fatalf("%d batches kept: next %d, %+v", kept, s.NextOffset(), cut)
		}
		s.Retire(false)
	}
}

// TestLeaderEpochFallsAtTheRecoveryPoint: the epoch of the last batch kept unread counts, too.
func TestLeaderEpochFallsAtTheRecoveryPoint(t *testing.T) {
	g := newMaker(3, 0)
	for i := range 10 {
		g.epoch = []int32{3, 4}[min(i/4, 1)]
		if i == 6 {
			g.epoch = 3
		}
		g.batch(2, 900)
	}
	fs := newMem(t)
	stored(t, fs, 0, g.bytes()[:6*len(g.list[0].v)])
	s, _ := recovered(t, testDir, 0, options(fs), Scan{})
	ok(t, s.FlushIndex())
	s.Retire(false)
	for _, from := range []int64{0, 4, 11, 12} {
		stored(t, fs, 0, g.bytes())
		s, cut := recovered(t, testDir, 0, options(fs), Scan{From: from})
		if s.NextOffset() != 12 || !errors.Is(cut.Reason, ErrEpoch) {
			t.Fatalf("from %d: next %d, %+v", from, s.NextOffset(), cut)
		}
		s.Retire(false)
	}
}

func TestRecoverPassesErrorsOn(t *testing.T) {
	g := made20(0)
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		rule vfs.Rule
		sc   Scan
		tail int
		want error
	}{
		{"callback", vfs.Rule{Op: "none"}, Scan{Batch: func(*Segment, int64, batch.View) error { return boom }}, 0, boom},
		{"open", vfs.Rule{Op: "openfile", Err: syscall.EMFILE}, Scan{}, 0, syscall.EMFILE},
		{"read is no end of the log", vfs.Rule{Op: "readat", Err: syscall.EIO, Match: "*.log"}, Scan{}, 0, syscall.EIO},
		{"truncate", vfs.Rule{Op: "truncate", Err: syscall.EIO}, Scan{}, 30, syscall.EIO},
		{"flush of the cut", vfs.Rule{Op: "datasync", Err: syscall.EIO, Match: "*.log"}, Scan{}, 30, syscall.EIO},
		{"map", vfs.Rule{Op: "map", Err: syscall.ENOMEM}, Scan{}, 0, syscall.ENOMEM},
	} {
		fs := vfs.Inject(newMem(t))
		stored(t, fs, 0, append(g.bytes(), bytes.Repeat([]byte{7}, c.tail)...))
		fs.Add(c.rule)
		if _, _, err := Recover(testDir, ID{0}, options(fs), c.sc); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, _, err := Recover(testDir, ID{0}, options(newMem(t)), Scan{}); missingIsFine(err) != nil || err == nil {
		t.Errorf("no file: %v", err)
	}
}

// TestFullDiskDoesNotKeepTheLogFromOpening: the copy of a cut is given up where there is no room for it, the cut is
// not.
func TestFullDiskDoesNotKeepTheLogFromOpening(t *testing.T) {
	g := made20(0)
	b := g.bytes()
	b[g.list[10].pos+70] ^= 1
	fs := vfs.Inject(newMem(t))
	stored(t, fs, 0, b)
	fs.Add(vfs.Rule{Op: "writeat", Match: "*.cut", Err: syscall.ENOSPC, Short: 100})
	s, cut := recovered(t, testDir, 0, options(fs), Scan{})
	defer s.Retire(false)
	if cut.Batches != 9 || cut.Copy != "" || !vfs.IsNoSpace(cut.Reason) || !errors.Is(cut.Reason, ErrChecksum) {
		t.Fatalf("%+v", cut)
	}
	if there, _ := vfs.Exists(fs, testDir+"/"+Name(0, CutSuffix)); there {
		t.Fatal("half a copy stayed")
	}
}

// TestLargeBatches: a batch larger than the scan's buffer is accepted, and a length that lies takes no memory.
func TestLargeBatches(t *testing.T) {
	g := newMaker(1, 0)
	g.batch(1, 10)
	large := g.batch(3, scanLen)
	g.batch(1, 10)
	fs := newMem(t)
	stored(t, fs, 0, g.bytes())
	o := options(fs)
	o.Size = 8 << 20
	seen := 0
	s, cut := recovered(t, testDir, 0, o, Scan{Batch: func(_ *Segment, _ int64, v batch.View) error {
		if seen == 1 && !bytes.Equal(v, large) {
			t.Fatal("the large batch differs")
		}
		seen++
		return nil
	}})
	if seen != 3 || cut != (Cut{}) {
		t.Fatalf("%d batches, %+v", seen, cut)
	}
	s.Retire(false)

	// A header that claims all of a long tail.
	b := append(g.bytes(), make([]byte, 4<<20)...)
	at := len(g.bytes())
	copy(b[at:], g.list[2].v[:61])
	binary.BigEndian.PutUint64(b[at:], uint64(g.next))
	binary.BigEndian.PutUint32(b[at+8:], uint32(len(b)-at-12))
	stored(t, fs, 0, b)
	r := NewReader(bytes.NewReader(b), 0, int64(len(b)))
	var err error
	for err == nil {
		_, err = r.Read()
	}
	if err != ErrChecksum || cap(r.large) > 4*scanLen {
		t.Fatalf("%v with %d bytes taken", err, cap(r.large))
	}
}

// TestHeadersEverywhere: a tail made of bytes that look like headers costs bounded work, and is kept because nobody
// knows what it holds.
func TestHeadersEverywhere(t *testing.T) {
	g := made20(0)
	head := slices.Clone(g.list[19].v[:61])
	binary.BigEndian.PutUint32(head[8:], 1<<20)
	tail := bytes.Repeat(head, 40_000)
	n, sure, err := wholeBatches(bytes.NewReader(tail), 0, 0, int64(len(tail)))
	if err != nil || sure || n != 0 {
		t.Fatalf("%d %v %v", n, sure, err)
	}
	fs := newMem(t)
	stored(t, fs, 0, append(g.bytes(), tail...))
	s, cut := recovered(t, testDir, 0, options(fs), Scan{})
	defer s.Retire(false)
	if cut.Batches != 0 || cut.Copy == "" || cut.Bytes != int64(len(tail)) {
		t.Fatalf("%+v", cut)
	}
}

func TestDiscard(t *testing.T) {
	g := made20(40)
	for _, c := range []struct {
		name  string
		b     []byte
		whole int64
	}{
		{"empty", nil, 0},
		{"torn", g.bytes()[:100], 0},
		{"batches", g.bytes(), 20},
		{"batches behind zeros", append(make([]byte, 700), g.bytes()...), 20},
	} {
		fs := newMem(t)
		stored(t, fs, 40, c.b)
		writeFile(t, fs, testDir, Name(40, IndexSuffix), []byte("12345678"))
		writeFile(t, fs, testDir, Name(40, TxnSuffix), nil)
		cut, err := Discard(testDir, ID{40}, options(fs))
		ok(t, err)
		if cut.Bytes != int64(len(c.b)) || cut.Batches != c.whole || (cut.Copy != "") != (c.whole > 0) {
			t.Fatalf("%s: %+v", c.name, cut)
		}
		names, err := fs.Crash(vfs.CrashPlan{}).ReadDir(testDir)
		ok(t, err)
		if want := map[bool]int{true: 1, false: 0}[c.whole > 0]; len(names) != want {
			t.Fatalf("%s: %v left", c.name, names)
		}
	}
}
