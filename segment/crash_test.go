package segment

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

// life is one segment through many process deaths and power cuts, against what was appended and what was promised.
type life struct {
	t       *rapid.T
	fs      *vfs.Mem
	s       *Segment
	g       *maker
	base    int64
	every   int
	aborted []index.AbortedTxn

	synced   int64 // offset below which everything was flushed
	recovery int64 // offset below which the index was flushed, too
}

func (l *life) options() Options {
	return Options{Size: 1 << 20, IndexEvery: l.every, FS: l.fs}
}

func (l *life) must(err error) {
	l.t.Helper()
	ok(l.t, err)
}

func (l *life) append(v batch.View) {
	pos, err := l.s.Append(v)
	l.must(err)
	l.g.list[len(l.g.list)-1].pos = pos
}

func (l *life) step() {
	switch rapid.IntRange(0, 9).Draw(l.t, "step") {
	case 0, 1, 2, 3:
		l.append(l.g.any())
	case 4:
		vs := []batch.View{l.g.any(), l.g.any(), l.g.any()}
		pos, err := l.s.AppendAll(nil, vs)
		l.must(err)
		for i := range pos {
			l.g.list[len(l.g.list)-3+i].pos = pos[i]
		}
	case 5:
		l.append(l.g.abort(3))
		l.aborted = append(l.aborted, abortedAt(l.g.next-1))
		l.s.AddAborted(abortedAt(l.g.next - 1))
	case 6, 7:
		l.must(l.s.Sync())
		l.synced = l.g.next
	case 8:
		// The recovery point: what is flushed, and then its index.
		point := l.g.next
		l.must(l.s.Sync())
		l.synced = point
		l.must(l.s.FlushIndex())
		l.recovery = point
	case 9:
		l.must(l.s.Sync())
		l.must(l.s.Seal())
		l.must(l.fs.SyncDir(testDir))
		l.s.Retire(false)
		l.synced, l.recovery = l.g.next, l.g.next
		l.reopen(l.recovery)
	}
}

// crash ends the process, and perhaps cuts the power, and recovers.
func (l *life) crash() {
	if rapid.Bool().Draw(l.t, "killed first") {
		l.fs = l.fs.Kill()
		if rapid.Bool().Draw(l.t, "looked at in between") {
			// A process that recovers, flushes nothing and dies, changes nothing.
			mark := rapid.Int64Range(l.base, l.synced).Draw(l.t, "mark")
			s, _, err := Recover(testDir, ID{l.base}, l.options(), l.scan(l.recovery, mark, nil))
			l.must(err)
			if s.NextOffset() != l.g.next {
				l.t.Fatalf("after a kill: next %d, want %d", s.NextOffset(), l.g.next)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(l.t, "power") > 0 {
		l.fs = l.fs.Crash(vfs.CrashPlan{
			Seed:         rapid.Uint64().Draw(l.t, "seed"),
			KeepUnsynced: rapid.SampledFrom([]int{0, 30, 50, 90, 100}).Draw(l.t, "kept"),
			Garble:       rapid.Bool().Draw(l.t, "garbled"),
		})
	} else {
		l.fs = l.fs.Kill()
	}
	l.reopen(rapid.Int64Range(l.base, l.recovery).Draw(l.t, "from"))
}

func (l *life) scan(from, mark int64, seen *[]batch.View) Scan {
	return Scan{From: from, Mark: mark, Last: true, Batch: func(s *Segment, pos int64, v batch.View) error {
		if seen != nil {
			*seen = append(*seen, slices.Clone(v))
		}
		for _, a := range l.aborted {
			if a.Last == v.LastOffset() && a.Last >= from {
				s.AddAborted(a)
			}
		}
		return nil
	}}
}

func (l *life) reopen(from int64) {
	mark := rapid.Int64Range(l.base, l.synced).Draw(l.t, "mark")
	var seen []batch.View
	s, cut, err := Recover(testDir, ID{l.base}, l.options(), l.scan(from, mark, &seen))
	if bad, is := errors.AsType[*IndexError](err); is && (from <= l.base || from <= l.recovery) {
		l.t.Fatalf("from %d, flushed below %d: %v", from, l.recovery, bad)
	}
	l.must(err)
	l.s = s
	// Everything flushed is there, and what is there is a prefix of what was appended.
	next := s.NextOffset()
	if next < l.synced || next > l.g.next {
		l.t.Fatalf("next %d, flushed below %d, appended below %d", next, l.synced, l.g.next)
	}
	kept := 0
	for kept < len(l.g.list) && l.g.list[kept].v.LastOffset() < next {
		kept++
	}
	l.g.list, l.g.next = l.g.list[:kept], next
	want := l.g.bytes()
	got, err := s.Bytes(0, s.Size())
	l.must(err)
	if !bytes.Equal(got, want) {
		l.t.Fatalf("%d bytes are not the first %d of what was appended", len(got), len(want))
	}
	if cut.Bytes > 0 && (!cut.Torn || cut.At != s.Size() || cut.Reason == nil) {
		l.t.Fatalf("%+v", cut)
	}
	for len(l.aborted) > 0 && l.aborted[len(l.aborted)-1].Last >= next {
		l.aborted = l.aborted[:len(l.aborted)-1]
	}
	l.callbacks(from, seen)
	l.fresh()
	// The caller's duty before it shows anything (I7).
	l.must(s.Sync())
	l.synced = next
	l.recovery = min(l.recovery, next)
}

// callbacks: the scan showed every batch that ends at or above from, in order, and no other.
func (l *life) callbacks(from int64, seen []batch.View) {
	i := 0
	for i < len(l.g.list) && l.g.list[i].v.LastOffset() < from {
		i++
	}
	if len(seen) != len(l.g.list)-i {
		l.t.Fatalf("from %d: %d batches shown, want %d", from, len(seen), len(l.g.list)-i)
	}
	for k, v := range seen {
		if !bytes.Equal(v, l.g.list[i+k].v) {
			l.t.Fatalf("batch %d shown differs", k)
		}
	}
}

// fresh is I14: the index in memory is the one a fresh build makes.
func (l *life) fresh() {
	x := l.s.active.Load()
	log := l.g.bytes()
	offsets, times, err := Reindex(bytes.NewReader(log), l.base, int64(len(log)), l.every)
	l.must(err)
	got := index.AppendTimeIndex(nil, x, 0, x.Len())
	if e := l.s.lastTime(x, x.Len()); e.ok {
		got = index.AppendTimeEntry(got, e.ms, e.rel)
	}
	if !bytes.Equal(index.AppendOffsetIndex(nil, x, 0, x.Len()), offsets) || !bytes.Equal(got, times) {
		l.t.Fatalf("the index in memory differs from a fresh build")
	}
	if !slices.Equal(l.s.aborted.Load().All(), l.aborted) {
		l.t.Fatalf("aborted %v, want %v", l.s.aborted.Load().All(), l.aborted)
	}
	gap := int64(0)
	if n := x.Len(); n > 0 {
		gap = l.s.Size() - int64(x.At(n-1).Pos)
	} else {
		gap = l.s.Size()
	}
	if l.s.w.gap != gap {
		l.t.Fatalf("%d bytes since the last entry, want %d", l.s.w.gap, gap)
	}
}

// TestCrashes: through any sequence of appends, flushes, process deaths and power cuts, and wherever recovery begins,
// what was flushed survives, what is there is a prefix of what was appended, and the rebuilt index equals a fresh one.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{t: t, fs: vfs.NewMem(), base: rapid.Int64Range(0, 1<<33).Draw(t, "base"),
			every: rapid.SampledFrom([]int{1, 700, 4096}).Draw(t, "every")}
		l.must(l.fs.MkdirAll(testDir, 0o755))
		l.must(l.fs.SyncDir("/"))
		l.g = newMaker(rapid.Uint64().Draw(t, "batches"), l.base)
		l.synced, l.recovery = l.base, l.base
		s, err := Create(testDir, ID{l.base}, l.options())
		l.must(err)
		l.must(l.fs.SyncDir(testDir))
		l.s = s
		for range rapid.IntRange(1, 4).Draw(t, "lives") {
			for range rapid.IntRange(0, 40).Draw(t, "steps") {
				l.step()
			}
			l.crash()
		}
		l.must(l.s.Seal())
		dumpable(t, l.base, l.g.bytes(), indexFiles(t, l.fs, testDir, l.base))
		l.s.Retire(false)
	})
}
