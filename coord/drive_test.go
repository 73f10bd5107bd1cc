package coord

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// driver sends random requests to a rig: a few ids, all kinds of transitions, at both transaction versions.
type driver struct {
	*rig
	rnd   *rand.Rand
	ids   int
	pairs map[string]InitOut
	jump  time.Duration // longest pause; 0: none
}

func newDriver(r *rig, seed uint64, ids int) *driver {
	return &driver{rig: r, rnd: rand.New(rand.NewPCG(seed, 1)), ids: ids, pairs: map[string]InitOut{}}
}

// step sends one request, or lets time pass.
func (d *driver) step() {
	id := fmt.Sprintf("txn-%d", d.rnd.IntN(d.ids))
	at, known := d.pairs[id]
	switch k := d.rnd.IntN(20); {
	case !known || k == 0:
		in := InitIn{TxnID: id, PID: -1, Epoch: -1, TimeoutMs: int32(1000 * (1 + d.rnd.IntN(600)))}
		if known && d.rnd.IntN(2) == 0 {
			in.PID, in.Epoch = at.PID, at.Epoch
		}
		d.c.Init(in, d.learn(id))
	case k < 10:
		tps := make([]TP, 1+d.rnd.IntN(3))
		for i := range tps {
			tps[i] = tp(fmt.Sprintf("topic-%d", d.rnd.IntN(3)), int32(d.rnd.IntN(4)))
		}
		d.add(id, at, int8(2*d.rnd.IntN(2)), tps...)
	case k < 18 || d.jump == 0:
		d.c.End(EndIn{id, at.PID, at.Epoch, int8(2 * d.rnd.IntN(2)), d.rnd.IntN(3) > 0}, d.learn(id))
	default:
		d.clk.Advance(time.Duration(d.rnd.Int64N(int64(d.jump))))
		d.c.Tick()
	}
}

// learn takes the pair of an answer for the requests to come.
func (d *driver) learn(id string) func(InitOut, *kerr.Error) {
	return func(out InitOut, code *kerr.Error) {
		if code == nil {
			d.pairs[id] = out
		}
	}
}

// kept is what a journal keeps of an id, and must give back (I14).
type kept struct {
	t      txn
	offset int64
}

// stateOf is the state of all ids of a shard that have a record, without what is in memory only.
func stateOf(s *shard) map[string]kept {
	m := make(map[string]kept)
	for id, e := range s.entries {
		if e.t.epoch == -1 {
			continue
		}
		k := kept{e.t, e.offset}
		k.t.pending, k.t.fenceFailed = noState, false
		if len(k.t.tps) == 0 {
			k.t.tps = nil
		}
		m[id] = k
	}
	return m
}

// loaded is a shard as the replay of a journal leaves it, loading still.
func loaded(t testing.TB, cfg Config, snaps Snapshots, j Journal, r *rig) *shard {
	t.Helper()
	cfg.Inline = true
	c := New(cfg, r.ids, r.sink, snaps, r.clk)
	s := newShard(c, 0, j)
	s.epoch = 8
	if err := s.replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkList(t)
	return s
}

// checkList asserts that the list of the rewrite holds exactly the ids with a record, ordered by it, and counts them.
func (s *shard) checkList(t testing.TB) {
	t.Helper()
	n, live, last := 0, int64(0), int64(-1)
	var prev *entry
	for e := s.rw.head; e != nil; prev, e = e, e.link.next {
		if e.offset <= last || e.link.prev != prev || s.entries[e.id] != e {
			t.Fatalf("list: %q at offset %d behind %d", e.id, e.offset, last)
		}
		n, live, last = n+1, live+e.link.size, e.offset
	}
	with := 0
	for _, e := range s.entries {
		if e.offset >= 0 {
			with++
		}
	}
	if n != with || live != s.rw.live || s.rw.tail != prev {
		t.Fatalf("list of %d ids and %d bytes, want %d and %d", n, live, with, s.rw.live)
	}
	if s.rw.written-s.rw.start < s.rw.live {
		t.Fatalf("%d live bytes in a journal of %d", s.rw.live, s.rw.written-s.rw.start)
	}
}

// prefix is the journal that a crash leaves after the first n records kept.
func (j *fakeJournal) prefix(n int64) *fakeJournal {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &fakeJournal{start: j.start, start0: j.start0, synced: n, recs: slices.Clone(j.recs[:n-j.start0])}
}

// fakeSnapshots keeps the last snapshot of each shard.
type fakeSnapshots struct {
	mu    sync.Mutex
	asOf  map[int]int64
	b     map[int][]byte
	saved int
	check func(shard int, asOf int64)
	err   error
}

func newSnapshots() *fakeSnapshots {
	return &fakeSnapshots{asOf: map[int]int64{}, b: map[int][]byte{}}
}

// Save is Snapshots's.
func (f *fakeSnapshots) Save(shard int, asOf int64, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check != nil {
		f.check(shard, asOf)
	}
	if f.err != nil {
		return f.err
	}
	f.asOf[shard], f.b[shard] = asOf, slices.Clone(b)
	f.saved++
	return nil
}

// Load is Snapshots's.
func (f *fakeSnapshots) Load(shard int) (int64, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asOf[shard], slices.Clone(f.b[shard]), f.err
}
