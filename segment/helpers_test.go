package segment

import (
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made is one batch as a model knows it: header facts and each record's time.
type made struct {
	v     batch.View
	pos   int64
	first int64
	times []int64
}

func (m *made) last() int64 { return m.first + int64(len(m.times)) - 1 }

// maker makes batches of one log: dense offsets unless hole is asked for, times around a clock that jumps.
type maker struct {
	r     *rand.Rand
	next  int64
	epoch int32
	ms    int64
	list  []made
}

func newMaker(seed uint64, base int64) *maker {
	return &maker{r: rand.New(rand.NewPCG(seed, 1)), next: base, ms: 1_000_000}
}

// batch makes a batch of n records with values of size bytes.
func (g *maker) batch(n, size int) batch.View {
	b := batch.Builder{BaseTime: g.ms}
	m := made{first: g.next}
	for i := range n {
		delta := int64(g.r.IntN(50) - 10)
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(g.r.Uint32())
		}
		b.Add(batch.Record{OffsetDelta: int32(i), TimeDelta: delta, Value: value})
		m.times = append(m.times, g.ms+delta)
	}
	m.v = b.Done(0, -1, -1, -1)
	m.v.Stamp(g.next, g.epoch)
	g.next += int64(n)
	if g.r.IntN(4) > 0 {
		g.ms += int64(g.r.IntN(40))
	}
	g.list = append(g.list, m)
	return m.v
}

// any makes a batch of random shape.
func (g *maker) any() batch.View {
	if g.r.IntN(20) == 0 {
		g.epoch++
	}
	return g.batch(1+g.r.IntN(5), g.r.IntN(900))
}

// abort makes an abort marker.
func (g *maker) abort(pid int64) batch.View {
	v := batch.View(batch.AppendMarker(nil, g.next, g.epoch, batch.Marker{PID: pid, Time: g.ms}))
	g.list = append(g.list, made{v: v, first: g.next, times: []int64{g.ms}})
	g.next++
	return v
}

// add appends v, the last batch made.
func (g *maker) add(t rapid.TB, s *Segment, v batch.View) {
	t.Helper()
	pos, err := s.Append(v)
	if err != nil {
		t.Fatal(err)
	}
	g.list[len(g.list)-1].pos = pos
}

// fill appends n batches of random shape.
func (g *maker) fill(t rapid.TB, s *Segment, n int) {
	t.Helper()
	for range n {
		g.add(t, s, g.any())
	}
}

func (g *maker) bytes() []byte {
	var b []byte
	for _, m := range g.list {
		b = append(b, m.v...)
	}
	return b
}

const testDir = "/log"

func newMem(t rapid.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	ok(t, m.MkdirAll(testDir, 0o755))
	ok(t, m.SyncDir("/"))
	return m
}

func ok(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newCache(t testing.TB) *index.Cache {
	t.Helper()
	c, err := index.NewCache(4 << 20)
	ok(t, err)
	t.Cleanup(c.Close)
	return c
}

func options(fs vfs.FS) Options { return Options{Size: 1 << 20, FS: fs} }

// created is an active segment that is retired when the test ends.
func created(t rapid.TB, dir string, base int64, o Options) *Segment {
	t.Helper()
	s, err := Create(dir, ID{base}, o)
	ok(t, err)
	return s
}

func recovered(t rapid.TB, dir string, base int64, o Options, sc Scan) (*Segment, Cut) {
	t.Helper()
	s, c, err := Recover(dir, ID{base}, o, sc)
	ok(t, err)
	return s, c
}

// content returns the published bytes through the mapping.
func content(t rapid.TB, s *Segment) []byte {
	t.Helper()
	if !s.TryPin() {
		t.Fatal("retired")
	}
	defer s.Unpin()
	b, err := s.Bytes(0, s.Size())
	ok(t, err)
	return slices.Clone(b)
}

func readFile(t rapid.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fs, name)
	ok(t, err)
	return b
}

// writeFile replaces a file's content, durably.
func writeFile(t rapid.TB, fs vfs.FS, dir, name string, b []byte) {
	t.Helper()
	ok(t, vfs.WriteFileAtomic(fs, dir, name, b))
}

// indexFiles are the three index files' bytes; nil where one is missing.
func indexFiles(t rapid.TB, fs vfs.FS, dir string, base int64) (b files) {
	t.Helper()
	for kind, to := range map[string]*[]byte{IndexSuffix: &b.offset, TimeSuffix: &b.time, TxnSuffix: &b.txn} {
		name := dir + "/" + Name(base, kind)
		there, err := vfs.Exists(fs, name)
		ok(t, err)
		if there {
			*to = readFile(t, fs, name)
		}
	}
	return b
}

// abortedAt is the entry of the marker at offset.
func abortedAt(offset int64) index.AbortedTxn {
	return index.AbortedTxn{PID: 3, First: max(0, offset-1), Last: offset, Stable: offset + 1}
}
