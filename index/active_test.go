package index

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sekali/internal/check"
)

// entries draws a valid sequence of index entries.
func entries(t *rapid.T, most int) []Entry {
	n := rapid.IntRange(0, most).Draw(t, "n")
	var list []Entry
	last := Entry{MaxTime: NoTime}
	for range n {
		e := last
		e.Rel += uint32(rapid.IntRange(1, 50).Draw(t, "rel"))
		e.Pos += uint32(rapid.IntRange(1, 9000).Draw(t, "pos"))
		if rapid.Bool().Draw(t, "later") {
			e.MaxTime += int64(rapid.IntRange(1, 1000).Draw(t, "ms"))
			e.TimeRel = last.Rel + 1 + uint32(rapid.IntRange(0, int(e.Rel-last.Rel-1)).Draw(t, "holder"))
		}
		list = append(list, e)
		last = e
	}
	return list
}

func TestActiveAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		list := entries(t, 400)
		x := NewActive(base, 1000)
		for _, e := range list {
			x.Add(e)
		}
		cut := rapid.IntRange(0, len(list)).Draw(t, "cut")
		x.Truncate(cut)
		list = list[:cut]
		if x.Len() != len(list) || x.Base() != base {
			t.Fatalf("len %d base %d, want %d %d", x.Len(), x.Base(), len(list), base)
		}
		times := 0
		last := int64(NoTime)
		for i, e := range list {
			if x.At(i) != e {
				t.Fatalf("entry %d is %+v, want %+v", i, x.At(i), e)
			}
			if e.MaxTime > last {
				times, last = times+1, e.MaxTime
			}
		}
		if x.Times() != times {
			t.Fatalf("times %d, want %d", x.Times(), times)
		}
		for range 20 {
			offset := base + rapid.Int64Range(-10, 20000).Draw(t, "offset")
			pos := rapid.Int64Range(-10, 3_000_000).Draw(t, "at")
			ms := rapid.Int64Range(-2, 100_000).Draw(t, "time")
			want, wantPos, wantTime := Entry{}, Entry{}, Entry{}
			for _, e := range list {
				if base+int64(e.Rel) <= offset {
					want = e
				}
				if int64(e.Pos) <= pos {
					wantPos = e
				}
				if e.MaxTime < ms {
					wantTime = e
				}
			}
			if got := x.Floor(offset); got != int64(want.Pos) {
				t.Fatalf("Floor(%d) = %d, want %d", offset, got, want.Pos)
			}
			if got := x.FloorPos(pos); got != int64(wantPos.Pos) {
				t.Fatalf("FloorPos(%d) = %d, want %d", pos, got, wantPos.Pos)
			}
			if got := x.FloorTime(ms); got != int64(wantTime.Pos) {
				t.Fatalf("FloorTime(%d) = %d, want %d", ms, got, wantTime.Pos)
			}
		}
	})
}

func TestChunksCoverEveryEntryOnce(t *testing.T) {
	next, chunk := 0, 0
	for i := range firstChunk * (1<<10 - 1) {
		c, slot := place(i)
		if c != chunk {
			if next != firstChunk<<chunk {
				t.Fatalf("chunk %d ended after %d entries", chunk, next)
			}
			chunk, next = chunk+1, 0
		}
		if c != chunk || slot != next {
			t.Fatalf("entry %d lies at %d/%d, want %d/%d", i, c, slot, chunk, next)
		}
		next++
	}
}

func TestAddChecksOrderAndLimit(t *testing.T) {
	add := func(x *Active, e Entry) (broken bool) {
		defer func() {
			if r := recover(); r != nil {
				_, broken = r.(*check.Violation)
			}
		}()
		x.Add(e)
		return false
	}
	x := NewActive(100, 2)
	for _, c := range []struct {
		e      Entry
		broken bool
	}{
		{Entry{Rel: 0, Pos: 5}, true},
		{Entry{Rel: 5, Pos: 0}, true},
		{Entry{Rel: 4, Pos: 4160, MaxTime: 10, TimeRel: 5}, true},
		{Entry{Rel: 4, Pos: 4160, MaxTime: 10, TimeRel: 4}, false},
		{Entry{Rel: 4, Pos: 9000, MaxTime: 10, TimeRel: 4}, true},
		{Entry{Rel: 8, Pos: 4160, MaxTime: 10, TimeRel: 4}, true},
		{Entry{Rel: 8, Pos: 9000, MaxTime: 9, TimeRel: 4}, true},
		{Entry{Rel: 8, Pos: 9000, MaxTime: 10, TimeRel: 4}, false},
		{Entry{Rel: 9, Pos: 9999, MaxTime: 10, TimeRel: 4}, true},
	} {
		if got := add(x, c.e); got != c.broken {
			t.Errorf("Add(%+v): violation %v, want %v", c.e, got, c.broken)
		}
	}
	if x.Len() != 2 || x.Times() != 1 {
		t.Fatalf("len %d, times %d, want 2, 1", x.Len(), x.Times())
	}
}

func TestAddAllocatesOnlyChunks(t *testing.T) {
	x := NewActive(0, 1<<20)
	e := Entry{MaxTime: NoTime}
	next := func() {
		e.Rel, e.Pos, e.MaxTime = e.Rel+1, e.Pos+100, e.MaxTime+1
		x.Add(e)
	}
	for x.Len() < firstChunk*(1<<10-1)+1 { // just behind the border of a chunk of 65,536
		next()
	}
	if n := testing.AllocsPerRun(10_000, next); n != 0 {
		t.Fatalf("%v allocations per Add, want 0", n)
	}
	if n := testing.AllocsPerRun(1000, func() { x.Floor(5000); x.FloorPos(70_000); x.FloorTime(600) }); n != 0 {
		t.Fatalf("%v allocations per search, want 0", n)
	}
}

// TestReadersSeePublishedPrefix: whatever a reader sees is a prefix of what the owner adds (section 6.1 of the design).
func TestReadersSeePublishedPrefix(t *testing.T) {
	const total = 20_000
	x := NewActive(1000, total)
	var aborted Aborted
	at := func(i int) Entry {
		return Entry{Rel: uint32(3*i + 3), Pos: uint32(100*i + 100), TimeRel: uint32(3*i + 2), MaxTime: int64(10 * i)}
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for n := 0; n < total; {
				n = x.Len()
				if n == 0 {
					continue
				}
				if got := x.At(n - 1); got != at(n-1) {
					t.Errorf("entry %d is %+v", n-1, got)
					return
				}
				if pos := x.Floor(1000 + int64(at(n-1).Rel)); pos != int64(at(n-1).Pos) {
					t.Errorf("Floor of entry %d is %d", n-1, pos)
					return
				}
				list := aborted.All()
				for i := max(0, len(list)-2); i < len(list); i++ {
					if list[i].Last != int64(i) {
						t.Errorf("abort %d has marker %d", i, list[i].Last)
						return
					}
				}
			}
		})
	}
	for i := range total {
		if i%16 == 0 {
			aborted.Add(AbortedTxn{Last: int64(i / 16)})
		}
		x.Add(at(i))
	}
	readers.Wait()
}
