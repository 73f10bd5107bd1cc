package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

// dumpable holds the files of a sealed segment against the demands of Kafka's dump tool (spec/on-disk.md 11).
func dumpable(t rapid.TB, base int64, log []byte, b files) {
	t.Helper()
	at, largest := map[int64]batch.View{}, map[int64]int64{} // by position; time by last offset
	for rest, pos := log, int64(0); len(rest) > 0; {
		v, next, err := batch.Next(rest)
		ok(t, err)
		at[pos] = v
		ms := int64(-1)
		ok(t, v.Records(func(r batch.Record) error { ms = max(ms, v.Time(r)); return nil }))
		largest[v.LastOffset()] = ms
		pos, rest = pos+int64(len(v)), next
	}
	ok(t, index.CheckOffsetIndex(b.offset, int64(len(log))))
	for i := range len(b.offset) / index.OffsetEntryLen {
		offset, pos := index.OffsetAt(b.offset, i, base)
		if v := at[pos]; v == nil || v.LastOffset() != offset {
			t.Fatalf(".index entry %d names no batch that ends at %d", i, offset)
		}
	}
	last := int64(-1)
	for i := range len(b.time) / index.TimeEntryLen {
		ms, offset := index.TimeAt(b.time, i, base)
		if got, there := largest[offset]; !there || got != ms || ms <= last {
			t.Fatalf(".timeindex entry %d: %d at %d, the batch has %d", i, ms, offset, got)
		}
		last = ms
	}
	for _, ms := range largest {
		if ms > last {
			t.Fatalf("the last time entry is %d, a record has %d", last, ms)
		}
	}
	ok(t, index.CheckTxnIndex(b.txn, base))
}

// TestIndexFiles: however often the index was flushed on the way, the files of a sealed segment are those Reindex
// makes, and stand up to the dump tool's demands.
func TestIndexFiles(t *testing.T) {
	for seed := range uint64(25) {
		fs := newMem(t)
		o := options(fs)
		o.IndexEvery = []int{1, 1000, 4096}[seed%3]
		s := created(t, testDir, 9, o)
		g := newMaker(seed, 9)
		var aborted []index.AbortedTxn
		for range g.r.IntN(200) {
			if g.r.IntN(15) == 0 {
				a := index.AbortedTxn{PID: 4, First: g.next, Last: g.next, Stable: g.next + 1}
				g.add(t, s, g.abort(4))
				s.AddAborted(a)
				aborted = append(aborted, a)
			}
			g.fill(t, s, 1)
			if g.r.IntN(20) == 0 {
				ok(t, s.FlushIndex())
				b := indexFiles(t, fs, testDir, 9)
				if x := s.active.Load(); len(b.offset) != 8*x.Len() || len(b.time) != 12*x.Times() {
					t.Fatalf("%d and %d bytes for %d entries", len(b.offset), len(b.time), x.Len())
				}
			}
		}
		ok(t, s.Seal())
		ok(t, s.Seal())
		b := indexFiles(t, fs, testDir, 9)
		log := g.bytes()
		offsets, times, err := Reindex(bytes.NewReader(log), 9, int64(len(log)), o.IndexEvery)
		ok(t, err)
		if !bytes.Equal(b.offset, offsets) || !bytes.Equal(b.time, times) {
			t.Fatalf("seed %d: the files differ from a fresh build", seed)
		}
		if !bytes.Equal(b.txn, index.AppendTxnIndex(nil, aborted)) || b.txn == nil {
			t.Fatalf("seed %d: .txnindex", seed)
		}
		dumpable(t, 9, log, b)
		s.Retire(false)
	}
}

// TestSparseRule is the rule of spec/on-disk.md 4 on its border: an entry when more than the interval lies since the
// last one, evaluated before the batch is counted; the first batch never.
func TestSparseRule(t *testing.T) {
	sized := func(n int) batch.View {
		b := batch.Builder{BaseTime: 5}
		b.Add(batch.Record{Value: make([]byte, n-100)})
		v := b.Done(0, -1, -1, -1)
		b = batch.Builder{BaseTime: 5}
		b.Add(batch.Record{Value: make([]byte, n-100+n-len(v))})
		if v = b.Done(0, -1, -1, -1); len(v) != n {
			t.Fatalf("%d bytes, want %d", len(v), n)
		}
		return v
	}
	for _, c := range []struct {
		sizes []int
		want  []int // batches that get an entry
	}{
		{[]int{9000}, nil},
		{[]int{4096, 200, 200}, []int{2}},
		{[]int{4097, 200, 200}, []int{1}},
		{[]int{2000, 2096, 300, 300}, []int{3}},
		{[]int{5000, 5000, 5000}, []int{1, 2}},
		{[]int{200, 200, 200}, nil},
	} {
		s := created(t, testDir, 0, options(newMem(t)))
		for i, n := range c.sizes {
			v := sized(n)
			v.Stamp(int64(i), 0)
			_, err := s.Append(v)
			ok(t, err)
		}
		x, got := s.active.Load(), []int(nil)
		for i := range x.Len() {
			got = append(got, int(x.At(i).Rel))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("sizes %v: entries at %v, want %v", c.sizes, got, c.want)
		}
		s.Retire(false)
	}
}

// sealedLog is a sealed segment with aborted transactions, and what it was made from.
func sealedLog(t rapid.TB, fs vfs.FS, base int64, n int) (*maker, []index.AbortedTxn) {
	t.Helper()
	s := created(t, testDir, base, options(fs))
	g := newMaker(uint64(base)+77, base)
	var aborted []index.AbortedTxn
	for i := range n {
		g.fill(t, s, 1)
		if i%10 == 9 {
			a := index.AbortedTxn{PID: 4, First: g.next - 1, Last: g.next, Stable: g.next + 1}
			g.add(t, s, g.abort(4))
			s.AddAborted(a)
			aborted = append(aborted, a)
		}
	}
	ok(t, s.Sync())
	ok(t, s.Seal())
	s.Retire(false)
	return g, aborted
}

// addAborted is the part of a Scan that knows the producers.
func addAborted(aborted []index.AbortedTxn, from int64) func(*Segment, int64, batch.View) error {
	return func(s *Segment, _ int64, v batch.View) error {
		for _, a := range aborted {
			if a.Last == v.LastOffset() && a.Last >= from {
				s.AddAborted(a)
			}
		}
		return nil
	}
}

// TestDamagedIndexFiles is the segment's part of case F2: damage is found when the segment is opened, sealed or for
// append, and a recovery from the base makes the same files again.
func TestDamagedIndexFiles(t *testing.T) {
	const base = 1000
	g, aborted := sealedLog(t, newMem(t), base, 100)
	remove := []byte("remove")
	for _, c := range []struct {
		name   string
		change func(b, other files) files
		last   bool // only the time entry that Seal adds is wrong
	}{
		{"all missing", func(_, _ files) files { return files{remove, remove, remove} }, false},
		{"offset index missing", func(b, _ files) files { b.offset = remove; return b }, false},
		{"time index missing", func(b, _ files) files { b.time = remove; return b }, false},
		{"all empty", func(_, _ files) files { return files{} }, false},
		{"zeros", func(b, _ files) files { clear(b.offset); clear(b.time); clear(b.txn); return b }, false},
		{"random bytes", func(b, _ files) files {
			for i := range b.offset {
				b.offset[i] = byte(i * 37)
			}
			return b
		}, false},
		{"offset index cut in an entry", func(b, _ files) files { b.offset = b.offset[:13]; return b }, false},
		{"offset index cut on a border", func(b, _ files) files { b.offset = b.offset[:16]; return b }, false},
		{"time index cut in an entry", func(b, _ files) files { b.time = b.time[:len(b.time)-1]; return b }, false},
		{"time index cut on a border", func(b, _ files) files { b.time = b.time[:12]; return b }, false},
		{"transaction index cut", func(b, _ files) files { b.txn = b.txn[:40]; return b }, false},
		{"offset index of another segment", func(b, o files) files { b.offset = o.offset; return b }, false},
		{"time index of another segment", func(b, o files) files { b.time = o.time; return b }, false},
		{"transaction index of another segment", func(b, o files) files { b.txn = o.txn; return b }, false},
		{"swapped", func(_, o files) files { return o }, false},
		{"last entry names another offset", func(b, _ files) files { b.offset[len(b.offset)-5]--; return b }, false},
		{"last entry names a later offset", func(b, _ files) files { b.offset[len(b.offset)-5]++; return b }, false},
		{"last entry names another position", func(b, _ files) files { b.offset[len(b.offset)-1]++; return b }, false},
		{"last time entry names another time", func(b, _ files) files { b.time[len(b.time)-5]++; return b }, true},
		{"last time entry names another offset", func(b, _ files) files { b.time[len(b.time)-1]--; return b }, true},
		{"last abort names another marker", func(b, _ files) files { b.txn[len(b.txn)-9]--; return b }, false},
		{"zero tail", func(b, _ files) files { b.offset = append(b.offset, make([]byte, 80)...); return b }, false},
		{"far too long", func(b, _ files) files { b.txn = make([]byte, 1<<20); return b }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := newMem(t)
			sealedLog(t, fs, 500, 140)
			sealedLog(t, fs, base, 100)
			good, other := indexFiles(t, fs, testDir, base), indexFiles(t, fs, testDir, 500)
			bad := c.change(files{slices.Clone(good.offset), slices.Clone(good.time), slices.Clone(good.txn)}, other)
			for kind, b := range map[string][]byte{IndexSuffix: bad.offset, TimeSuffix: bad.time, TxnSuffix: bad.txn} {
				if bytes.Equal(b, remove) {
					ok(t, fs.Remove(testDir+"/"+Name(base, kind)))
					continue
				}
				writeFile(t, fs, testDir, Name(base, kind), b)
			}
			_, err := OpenSealed(testDir, ID{base}, options(fs))
			if _, is := errors.AsType[*IndexError](err); !is {
				t.Fatalf("OpenSealed: %v", err)
			}
			a, _, err := Recover(testDir, ID{base}, options(fs), Scan{From: g.next, Mark: g.next, Last: true})
			if err == nil && c.last {
				// The time entry of a stop is not asked for when appending goes on.
				ok(t, a.Seal())
				a.Retire(false)
				if got := indexFiles(t, fs, testDir, base); !sameFiles(got, good) {
					t.Fatal("the last time entry was not put right")
				}
				return
			}
			if _, is := errors.AsType[*IndexError](err); !is {
				t.Fatalf("Recover at the end: %v", err)
			}
			s, cut := recovered(t, testDir, base, options(fs), Scan{From: base, Mark: g.next, Last: true,
				Batch: addAborted(aborted, base)})
			if cut != (Cut{}) || s.NextOffset() != g.next {
				t.Fatalf("%+v, next %d", cut, s.NextOffset())
			}
			ok(t, s.Seal())
			s.Retire(false)
			if got := indexFiles(t, fs, testDir, base); !sameFiles(got, good) {
				t.Fatal("the files made anew differ from the old ones")
			}
			s, err = OpenSealed(testDir, ID{base}, options(fs.Crash(vfs.CrashPlan{})))
			ok(t, err)
			s.Retire(false)
		})
	}
}

func sameFiles(a, b files) bool {
	return bytes.Equal(a.offset, b.offset) && bytes.Equal(a.time, b.time) && bytes.Equal(a.txn, b.txn)
}

// faults gathers what Options.Fault is told.
type faults struct {
	mu   sync.Mutex
	list []string
}

func (f *faults) fault(op string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, op+": "+err.Error())
}

func (f *faults) count(op string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.list {
		if strings.HasPrefix(s, op+":") {
			n++
		}
	}
	return n
}

// TestIndexDamagedUnderway: an index that goes bad while the segment is open is made anew, told once, and answers stay
// right. A transaction index is not guessed at.
func TestIndexDamagedUnderway(t *testing.T) {
	fs := newMem(t)
	g, aborted := sealedLog(t, fs, 0, 100)
	good := indexFiles(t, fs, testDir, 0)
	var told faults
	o := options(fs)
	o.Fault = told.fault
	s, err := OpenSealed(testDir, ID{0}, o)
	ok(t, err)
	s.TryPin()
	n := naive{g.list, s.Size()}
	find := func() {
		for offset := int64(0); offset < g.next; offset += 3 {
			pos, err := s.Find(offset)
			ok(t, err)
			if pos != n.find(offset) {
				t.Fatalf("Find(%d) = %d, want %d", offset, pos, n.find(offset))
			}
		}
	}
	for i, b := range [][]byte{nil, []byte("nonsense"), make([]byte, 80)} {
		writeFile(t, fs, testDir, Name(0, IndexSuffix), b)
		if b == nil {
			ok(t, fs.Remove(testDir+"/"+Name(0, IndexSuffix)))
		}
		find()
		if got := indexFiles(t, fs, testDir, 0); !sameFiles(got, good) || told.count("index") != i+1 {
			t.Fatalf("damage %d: told %v", i, told.list)
		}
	}
	list, _, err := s.Aborted(nil, 0, g.next)
	if err != nil || !slices.Equal(list, aborted) {
		t.Fatalf("aborted: %v %v", list, err)
	}
	ok(t, fs.Remove(testDir+"/"+Name(0, TxnSuffix)))
	_, _, err = s.Aborted(nil, 0, g.next)
	if _, is := errors.AsType[*IndexError](err); !is {
		t.Fatalf("aborted transactions without their index: %v", err)
	}
	s.Unpin()
	s.Retire(false)
}

// TestWrongEntryCostsTimeNotData: entries that keep the order but name no batch are gone around, and told once.
func TestWrongEntryCostsTimeNotData(t *testing.T) {
	fs := newMem(t)
	g, _ := sealedLog(t, fs, 0, 300)
	b := indexFiles(t, fs, testDir, 0)
	entries := len(b.offset) / 8
	for i := 3; i < entries-1; i++ {
		if i%3 != 0 { // runs of two wrong positions
			pos := binary.BigEndian.Uint32(b.offset[8*i+4:])
			binary.BigEndian.PutUint32(b.offset[8*i+4:], pos+7)
		}
	}
	writeFile(t, fs, testDir, Name(0, IndexSuffix), b.offset)
	open := func(o Options) []*Segment {
		s, err := OpenSealed(testDir, ID{0}, o)
		ok(t, err)
		a, _ := recovered(t, testDir, 0, o, Scan{From: g.next, Mark: g.next, Holes: g.next})
		return []*Segment{s, a}
	}
	var told faults
	o := options(fs)
	o.Fault = told.fault
	for _, s := range open(o) {
		s.TryPin()
		n := naive{g.list, s.Size()}
		for offset := int64(0); offset < g.next; offset++ {
			pos, err := s.Find(offset)
			ok(t, err)
			if pos != n.find(offset) {
				t.Fatalf("Find(%d) = %d, want %d", offset, pos, n.find(offset))
			}
		}
		for _, m := range g.list {
			to := m.pos + 3
			if to > s.Size() {
				break
			}
			if got, err := s.Border(0, to); err != nil || got != n.border(0, to) {
				t.Fatalf("Border(0, %d) = %d, %v, want %d", to, got, err, n.border(0, to))
			}
		}
		s.Unpin()
		s.Retire(false)
	}
	if n := told.count("index"); n != 2 { // once for each segment
		t.Fatalf("told %d times: %v", n, told.list)
	}
}

// TestCleanReopenWritesNothing: a segment sealed at a stop and opened for append at the start has its index at once; a
// second stop with nothing new writes no index file.
func TestCleanReopenWritesNothing(t *testing.T) {
	extras := 0
	for n := 60; n < 70; n++ {
		extras += cleanReopen(t, n)
	}
	if extras == 0 {
		t.Fatal("no stop added a time entry")
	}
}

func cleanReopen(t *testing.T, n int) (extras int) {
	mem := newMem(t)
	g, aborted := sealedLog(t, mem, 0, n)
	want := indexFiles(t, mem, testDir, 0)
	fs := vfs.Inject(mem)
	reads := fs.Add(vfs.Rule{Op: "readat", Match: "*.log", Do: func() {}})
	s, _ := recovered(t, testDir, 0, options(fs), Scan{From: g.next, Mark: g.next, Last: true})
	if reads.Hits() > 8 {
		t.Fatalf("%d reads to open a log that was closed cleanly", reads.Hits())
	}
	flushes := fs.Add(vfs.Rule{Op: "datasync", Do: func() {}})
	ok(t, s.Seal())
	s.Retire(false)
	if flushes.Hits() != 0 || !sameFiles(indexFiles(t, fs, testDir, 0), want) {
		t.Fatalf("%d flushes", flushes.Hits())
	}
	// More appends: the time entry of the stop is replaced by what the rule gives.
	s, _ = recovered(t, testDir, 0, options(fs), Scan{From: g.next, Mark: g.next, Last: true})
	ok(t, s.FlushIndex())
	x := s.active.Load()
	extras = len(want.time)/index.TimeEntryLen - x.Times()
	if got := indexFiles(t, fs, testDir, 0).time; !bytes.Equal(got, index.AppendTimeIndex(nil, x, 0, x.Len())) {
		t.Fatal("the time entry of the stop is still there")
	}
	g.fill(t, s, 40)
	ok(t, s.FlushIndex())
	g.fill(t, s, 40)
	ok(t, s.Seal())
	s.Retire(false)
	log := g.bytes()
	offsets, times, err := Reindex(bytes.NewReader(log), 0, int64(len(log)), 0)
	ok(t, err)
	if got := indexFiles(t, fs, testDir, 0); !sameFiles(got, files{offsets, times, index.AppendTxnIndex(nil, aborted)}) {
		t.Fatal("the index of a log that was stopped on the way differs from a fresh build")
	}
	return extras
}

// TestFailedIndexFlush: a full disk is passed on and the call may be repeated; a failed flush is final.
func TestFailedIndexFlush(t *testing.T) {
	for _, c := range []struct {
		rule  vfs.Rule
		final bool
	}{
		{vfs.Rule{Op: "writeat", Match: "*index", Err: syscall.ENOSPC, Short: 5}, false},
		{vfs.Rule{Op: "openfile", Match: "*index", Err: syscall.EMFILE}, false},
		{vfs.Rule{Op: "datasync", Match: "*index", Err: syscall.EIO}, true},
		{vfs.Rule{Op: "syncdir", Err: syscall.EIO}, true},
	} {
		fs := vfs.Inject(newMem(t))
		s := created(t, testDir, 0, options(fs))
		g := newMaker(1, 0)
		g.fill(t, s, 100)
		rule := fs.Add(c.rule)
		if err := s.FlushIndex(); !errors.Is(err, c.rule.Err) {
			t.Fatalf("%s: FlushIndex: %v", c.rule.Op, err)
		}
		if err := s.Seal(); !errors.Is(err, c.rule.Err) || s.Sealed() {
			t.Fatalf("%s: Seal: %v", c.rule.Op, err)
		}
		rule.Remove()
		g.fill(t, s, 10) // still active
		err := s.Seal()
		if (err != nil) != c.final || c.final && !errors.Is(err, c.rule.Err) {
			t.Fatalf("%s: Seal after the fault: %v", c.rule.Op, err)
		}
		if !c.final {
			dumpable(t, 0, g.bytes(), indexFiles(t, fs, testDir, 0))
		}
		s.Retire(false)
	}
}

// TestFailedSyncIsFinal is I15 for one descriptor.
func TestFailedSyncIsFinal(t *testing.T) {
	fs := vfs.Inject(newMem(t))
	s := created(t, testDir, 0, options(fs))
	g := newMaker(1, 0)
	g.fill(t, s, 5)
	ok(t, s.Sync())
	g.fill(t, s, 5)
	rule := fs.Add(vfs.Rule{Op: "datasync", Err: syscall.EIO})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Sync(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Sync: %v", err)
			}
		})
	}
	wg.Wait()
	rule.Remove()
	if err := s.Sync(); !errors.Is(err, syscall.EIO) || rule.Hits() != 1 {
		t.Fatalf("after the fault: %v, the file system was asked %d times", err, rule.Hits())
	}
	s.Retire(false)
	if err := s.Sync(); err != nil {
		t.Fatalf("Sync of a drained segment: %v", err)
	}
}
