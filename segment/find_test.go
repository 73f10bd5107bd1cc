package segment

import (
	"os"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

// naive answers from the list of batches what the segment answers from its index.
type naive struct {
	list []made
	size int64
}

func (n naive) find(offset int64) int64 {
	for _, m := range n.list {
		if m.v.LastOffset() >= offset {
			return m.pos
		}
	}
	return n.size
}

func (n naive) border(from, to int64) int64 {
	best := int64(0)
	for _, m := range n.list {
		if end := m.pos + int64(len(m.v)); end <= to && end > from {
			best = end
		}
	}
	return best
}

func (n naive) findTime(ms, from int64) (offset, time, pos int64) {
	for _, m := range n.list {
		for i, t := range m.times {
			if o := m.v.BaseOffset() + int64(i); t >= ms && o >= from {
				return o, t, m.pos
			}
		}
	}
	return -1, -1, -1
}

func (n naive) maxTime() (ms, offset int64) {
	ms, offset = -1, -1
	for _, m := range n.list {
		if t := m.v.MaxTime(); t > ms {
			ms, offset = t, m.v.LastOffset()
		}
	}
	return ms, offset
}

// agrees compares all lookups at places drawn by t.
func (n naive) agrees(t *rapid.T, s *Segment, aborted []index.AbortedTxn) {
	if !s.TryPin() {
		t.Fatal("retired")
	}
	defer s.Unpin()
	base := s.ID().Base
	for range 12 {
		offset := rapid.Int64Range(base-2, s.NextOffset()+2).Draw(t, "offset")
		got, err := s.Find(offset)
		if err != nil || got != n.find(offset) {
			t.Fatalf("Find(%d) = %d, %v, want %d", offset, got, err, n.find(offset))
		}
		from := rapid.SampledFrom(append([]int64{0}, n.positions()...)).Draw(t, "from")
		to := rapid.Int64Range(from, n.size).Draw(t, "to")
		if got, err := s.Border(from, to); err != nil || got != n.border(from, to) {
			t.Fatalf("Border(%d, %d) = %d, %v, want %d", from, to, got, err, n.border(from, to))
		}
		ms := rapid.Int64Range(999_900, 1_000_000+int64(20*len(n.list))).Draw(t, "ms")
		o, tm, pos, err := s.FindTime(ms, offset)
		wo, wt, wp := n.findTime(ms, offset)
		if err != nil || o != wo || tm != wt || pos != wp {
			t.Fatalf("FindTime(%d, %d) = %d %d %d %v, want %d %d %d", ms, offset, o, tm, pos, err, wo, wt, wp)
		}
		end := offset + rapid.Int64Range(0, 50).Draw(t, "span")
		list, _, err := s.Aborted(nil, offset, end)
		var want []index.AbortedTxn
		for _, a := range aborted {
			if a.Last >= offset && a.First < end {
				want = append(want, a)
			}
		}
		if err != nil || !slices.Equal(list, want) {
			t.Fatalf("Aborted(%d, %d) = %v, %v, want %v", offset, end, list, err, want)
		}
	}
	ms, last := s.MaxTime()
	if wms, wlast := n.maxTime(); ms != wms || last != wlast {
		t.Fatalf("MaxTime = %d %d, want %d %d", ms, last, wms, wlast)
	}
}

func (n naive) positions() (list []int64) {
	for _, m := range n.list {
		list = append(list, m.pos)
	}
	return list
}

// TestLookupsAgainstList: Find, Border, FindTime, Aborted and MaxTime answer as a walk over the list of batches does:
// while the segment grows, once it is sealed, reopened sealed, and recovered from any offset.
func TestLookupsAgainstList(t *testing.T) {
	cache := newCache(t)
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll(testDir, 0o755); err != nil {
			t.Fatal(err)
		}
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		o := options(fs)
		o.Cache = cache
		o.Handles = NewHandles(1)
		o.IndexEvery = rapid.SampledFrom([]int{1, 500, 4096}).Draw(t, "every")
		holes := rapid.Bool().Draw(t, "holes")
		s, err := Create(testDir, ID{base}, o)
		if err != nil {
			t.Fatal(err)
		}
		g := newMaker(rapid.Uint64().Draw(t, "seed"), base)
		var aborted []index.AbortedTxn
		opened := max(0, base-30) // transactions of one producer follow each other
		for range rapid.IntRange(0, 120).Draw(t, "batches") {
			if holes && g.r.IntN(5) == 0 {
				g.next += int64(g.r.IntN(30))
			}
			v := batch.View(nil)
			if g.r.IntN(12) == 0 {
				first := max(opened, g.next-int64(g.r.IntN(40)))
				v = g.abort(9)
				opened = g.next
				a := index.AbortedTxn{PID: 9, First: first, Last: g.next - 1, Stable: g.next}
				aborted = append(aborted, a)
				s.AddAborted(a)
			} else {
				v = g.any()
			}
			pos, err := s.Append(v)
			if err != nil {
				t.Fatal(err)
			}
			g.list[len(g.list)-1].pos = pos
		}
		n := naive{g.list, s.Size()}
		n.agrees(t, s, aborted)
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		n.agrees(t, s, aborted)
		s.Retire(false)

		if s, err = OpenSealed(testDir, ID{base}, o); err != nil {
			t.Fatal(err)
		}
		if s.NextOffset() != g.next && len(g.list) > 0 || s.Size() != n.size {
			t.Fatalf("reopened: next %d size %d, want %d %d", s.NextOffset(), s.Size(), g.next, n.size)
		}
		n.agrees(t, s, aborted)
		s.Retire(false)

		from := rapid.Int64Range(base+1, g.next+1).Draw(t, "recovery point")
		from = min(from, max(base+1, s.NextOffset()))
		sc := Scan{From: from, Mark: base, Epoch: 0, Last: true}
		if holes {
			sc.Holes = g.next
		}
		sc.Batch = func(s *Segment, _ int64, v batch.View) error {
			for _, a := range aborted {
				if a.Last == v.LastOffset() && a.Last >= from {
					s.AddAborted(a)
				}
			}
			return nil
		}
		s, cut, err := Recover(testDir, ID{base}, o, sc)
		if len(g.list) == 0 {
			// An offset above the base in an empty log: nothing vouches for it.
			if err == nil {
				t.Fatal("an empty segment reached an offset above its base")
			}
			return
		}
		if err != nil || cut != (Cut{}) {
			t.Fatalf("recover from %d: %v, %+v", from, err, cut)
		}
		n.agrees(t, s, aborted)
		if s.FirstTime() != g.list[0].v.MaxTime() {
			t.Fatalf("first time %d", s.FirstTime())
		}
		s.Retire(false)
	})
}

// TestColdAndHotHeaders: within 4 MiB below the end of the active segment headers come from the mapping, elsewhere
// from preads; both find the same.
func TestColdAndHotHeaders(t *testing.T) {
	fs := vfs.Inject(vfs.OS())
	o := options(fs)
	o.Size = 32 << 20
	s := created(t, t.TempDir(), 0, o)
	defer s.Retire(false)
	g := newMaker(5, 0)
	for s.Size() < hotTail+(1<<20) {
		g.add(t, s, g.batch(2, 1000))
	}
	reads := fs.Add(vfs.Rule{Op: "readat", Do: func() {}})
	s.TryPin()
	defer s.Unpin()
	n := naive{g.list, s.Size()}
	cold, hot := 0, 0
	for offset := int64(0); offset < g.next; offset += 37 {
		before := reads.Hits()
		pos, err := s.Find(offset)
		ok(t, err)
		if pos != n.find(offset) {
			t.Fatalf("Find(%d) = %d, want %d", offset, pos, n.find(offset))
		}
		switch asked := reads.Hits() - before; {
		case pos > s.Size()-hotTail+10_000 && asked == 0:
			hot++
		case pos < s.Size()-hotTail-10_000 && (asked == 1 || asked == 2):
			cold++
		case pos > s.Size()-hotTail+10_000 || pos < s.Size()-hotTail-10_000:
			t.Fatalf("%d preads for a batch %d bytes before the end", asked, s.Size()-pos)
		}
	}
	if cold < 5 || hot < 20 {
		t.Fatalf("%d cold, %d hot lookups", cold, hot)
	}
}

// TestFaultInTheMapping: a page that cannot be read (here: the file was cut behind our back) is a CorruptError, not
// the end of the process.
func TestFaultInTheMapping(t *testing.T) {
	dir := t.TempDir()
	s := created(t, dir, 0, options(vfs.OS()))
	defer s.Retire(false)
	g := newMaker(5, 0)
	g.fill(t, s, 200)
	s.TryPin()
	defer s.Unpin()
	_, err := s.Find(g.next - 1)
	ok(t, err)
	ok(t, os.Truncate(dir+"/"+Name(0, LogSuffix), 0))
	_, err = s.Find(g.next - 1)
	if !isCorrupt(err) {
		t.Fatalf("Find after the pages went: %v", err)
	}
}

// TestReadersWhileItGrows: whatever a reader sees below the published size is whole batches, found by offset, while
// the owner appends, flushes the index and seals. The race detector checks the publication.
func TestReadersWhileItGrows(t *testing.T) {
	const batches = 1500
	o := options(newMem(t))
	o.Size = 8 << 20
	o.Cache = newCache(t)
	s := created(t, testDir, 0, o)
	defer s.Retire(false)
	var readers sync.WaitGroup
	for reader := range 3 {
		readers.Go(func() {
			for seen := int64(0); seen < batches-10; {
				if !s.TryPin() {
					t.Error("retired")
					return
				}
				size := s.Size()
				seen = max(seen, readSome(t, s, size, int64(reader)))
				s.Unpin()
				if t.Failed() {
					return
				}
			}
		})
	}
	flusher := make(chan struct{})
	readers.Go(func() {
		for range flusher {
			if err := s.FlushIndex(); err != nil {
				t.Error(err)
			}
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range batches {
		b := batch.Builder{BaseTime: int64(i)}
		b.Add(batch.Record{Value: make([]byte, 200+i%300)})
		v := b.Done(0, -1, -1, -1)
		v.Stamp(int64(i), 0)
		if _, err := s.Append(v); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			flusher <- struct{}{}
		}
	}
	close(flusher)
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

// readSome reads a stretch below size and returns the last offset it saw.
func readSome(t *testing.T, s *Segment, size, skew int64) int64 {
	if size == 0 {
		return 0
	}
	cut, err := s.Border(0, max(1, size-skew*700))
	if err != nil {
		t.Error(err)
		return 0
	}
	if cut == 0 {
		return 0
	}
	b, err := s.Bytes(0, cut)
	if err != nil {
		t.Error(err)
		return 0
	}
	from := int64(0)
	for i := int64(0); len(b) > 0; i++ {
		v, rest, err := batch.Next(b)
		if err != nil || v.BaseOffset() != i {
			t.Errorf("batch %d below the published size: %v", i, err)
			return 0
		}
		b, from = rest, i
	}
	if pos, err := s.Find(from); err != nil || pos >= size {
		t.Errorf("Find(%d) = %d of %d, %v", from, pos, size, err)
	}
	if o, _, _, err := s.FindTime(from, 0); err != nil || o != from {
		t.Errorf("FindTime(%d) = %d, %v", from, o, err)
	}
	return from
}
