package group

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/clock"
)

// fakeJournal is a journal in memory whose batches become durable when the test says so, or at once.
type fakeJournal struct {
	mu      sync.Mutex
	held    bool // batches wait for flush
	fail    error
	most    int // bytes of a batch, 0: any
	refused int // batches that were larger
	logged  []Replayed
	start   int64
	end     int64
	durable int64
	waiting []onItsWay
	open    map[int64]int64 // pid -> first offset of its open transaction
	guards  map[int64]uint64
	nextG   uint64
	batches int
}

type onItsWay struct {
	base, end int64
	err       error
	done      func(int64, error)
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{open: map[int64]int64{}, guards: map[int64]uint64{}}
}

func (j *fakeJournal) Append(recs []Record, pid int64, epoch int16, guard uint64, done func(int64, error)) {
	j.mu.Lock()
	if j.fail != nil {
		err := j.fail
		j.mu.Unlock()
		done(0, err)
		return
	}
	if j.most > 0 && sizeOf(recs) > j.most {
		j.refused++
		j.mu.Unlock()
		done(0, ErrTooLarge)
		return
	}
	if _, isOpen := j.open[pid]; pid >= 0 && !isOpen {
		if guard == 0 || j.guards[pid] != guard {
			j.nextG++
			j.guards[pid] = j.nextG
			err := &Unverified{Guard: j.nextG}
			j.mu.Unlock()
			done(0, err)
			return
		}
		delete(j.guards, pid)
		j.open[pid] = j.end
	}
	base := j.end
	for i, r := range recs {
		r = Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
		j.logged = append(j.logged, Replayed{Offset: base + int64(i), Record: r, PID: pid, Epoch: epoch})
	}
	j.end += int64(len(recs))
	j.batches++
	j.waiting = append(j.waiting, onItsWay{base: base, end: j.end, done: done})
	held := j.held
	j.mu.Unlock()
	if !held {
		j.flush()
	}
}

// flush makes everything durable, in order.
func (j *fakeJournal) flush() {
	for {
		j.mu.Lock()
		if len(j.waiting) == 0 {
			j.mu.Unlock()
			return
		}
		f := j.waiting[0]
		j.waiting = j.waiting[1:]
		if f.err == nil {
			j.durable = f.end
		}
		j.mu.Unlock()
		f.done(f.base, f.err)
	}
}

// breakAll answers the batches that wait with an error, as a failed flush does, and loses them.
func (j *fakeJournal) breakAll(err error) {
	j.mu.Lock()
	waiting := j.waiting
	j.waiting = nil
	j.logged = slices.DeleteFunc(j.logged, func(r Replayed) bool { return r.Offset >= j.durable })
	j.mu.Unlock()
	for _, f := range waiting {
		f.done(0, err)
	}
}

// marker appends a marker and gives its offset; it is durable at once.
func (j *fakeJournal) marker(mk batch.Marker) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := j.end
	j.logged = append(j.logged, Replayed{Offset: at, PID: mk.PID, Epoch: mk.Epoch, Marker: &mk})
	j.end++
	delete(j.open, mk.PID)
	delete(j.guards, mk.PID)
	return at
}

func (j *fakeJournal) Replay(from int64, fn func(Replayed) error) error {
	j.mu.Lock()
	all := slices.Clone(j.logged)
	j.mu.Unlock()
	for _, r := range all {
		if r.Offset < from {
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (j *fakeJournal) Start() int64 { j.mu.Lock(); defer j.mu.Unlock(); return j.start }
func (j *fakeJournal) End() int64   { j.mu.Lock(); defer j.mu.Unlock(); return j.end }

func (j *fakeJournal) Stable() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	stable := j.end
	for _, first := range j.open {
		stable = min(stable, first)
	}
	return stable
}

func (j *fakeJournal) DropBefore(offset int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if offset > j.end {
		return errors.New("past the end")
	}
	j.start = max(j.start, offset)
	j.logged = slices.DeleteFunc(j.logged, func(r Replayed) bool { return r.Offset < offset })
	return nil
}

// crash is the journal as a start after a crash finds it: what was not durable is gone.
func (j *fakeJournal) crash() *fakeJournal {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := newFakeJournal()
	n.start, n.end = j.start, j.end
	lost := len(j.waiting) > 0
	for _, r := range j.logged {
		if lost && r.Offset >= j.waiting[0].base {
			n.end = j.waiting[0].base
			break
		}
		n.logged = append(n.logged, r)
		if r.PID >= 0 && r.Marker == nil {
			if _, ok := n.open[r.PID]; !ok {
				n.open[r.PID] = r.Offset
			}
		}
		if r.Marker != nil {
			delete(n.open, r.PID)
		}
	}
	n.durable = n.end
	return n
}

// fakeTopics are topics in memory.
type fakeTopics struct {
	mu    sync.Mutex
	names map[string]TP // Partition: how many
	watch []func([]string)
}

func newFakeTopics() *fakeTopics { return &fakeTopics{names: map[string]TP{}} }

// set makes a topic or changes its partitions; n < 0 removes it.
func (f *fakeTopics) set(name string, id byte, n int32) {
	f.mu.Lock()
	if n < 0 {
		delete(f.names, name)
	} else {
		f.names[name] = TP{Topic: name, ID: [16]byte{id}, Partition: n}
	}
	watch := slices.Clone(f.watch)
	f.mu.Unlock()
	for _, fn := range watch {
		fn([]string{name})
	}
}

func (f *fakeTopics) Lookup(name string) ([16]byte, int32, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.names[name]
	return t.ID, t.Partition, ok
}

func (f *fakeTopics) Names() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.names {
		all = append(all, n)
	}
	return all
}

func (f *fakeTopics) Watch(fn func([]string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = append(f.watch, fn)
}

// fakeSnaps keeps snapshots in memory.
type fakeSnaps struct {
	mu   sync.Mutex
	asOf map[int]int64
	data map[int][]byte
	fail error
}

func newFakeSnaps() *fakeSnaps { return &fakeSnaps{asOf: map[int]int64{}, data: map[int][]byte{}} }

// count is how many shards have a snapshot.
func (f *fakeSnaps) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.data)
}

func (f *fakeSnaps) Save(shard int, asOf int64, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	f.asOf[shard], f.data[shard] = asOf, slices.Clone(b)
	return nil
}

func (f *fakeSnaps) Load(shard int) (int64, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return 0, nil, f.fail
	}
	return f.asOf[shard], slices.Clone(f.data[shard]), nil
}

// world is a Manager without goroutines on one journal, a clock that the test moves, and its topics.
type world struct {
	t      *testing.T
	m      *Manager
	j      *fakeJournal
	clk    *clock.Sim
	topics *fakeTopics
	snaps  *fakeSnaps
	cfg    Config
}

// testConfig is Defaults without the initial delay and inline.
func testConfig() Config {
	c := Defaults()
	c.InitialDelayMs, c.Inline = 0, true
	return c
}

func newWorld(t *testing.T, c Config) *world {
	w := &world{
		t: t, j: newFakeJournal(), clk: clock.NewSim(1_700_000_000_000), topics: newFakeTopics(),
		snaps: newFakeSnaps(), cfg: c,
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.m = New(w.cfg, w.topics, w.snaps, w.clk)
	if err := w.m.Load(w.t.Context(), []Journal{w.j}); err != nil {
		w.t.Fatal(err)
	}
}

// restart is a crash and the start after it.
func (w *world) restart() {
	w.t.Helper()
	w.j = w.j.crash()
	w.open()
}

// advance moves the clock in steps of a Tick.
func (w *world) advance(d time.Duration) {
	const step = 100 * time.Millisecond
	for ; d > 0; d -= step {
		w.clk.Advance(min(step, d))
		w.m.Tick()
	}
	w.m.Tick()
}

// group is the live group, nil if there is none.
func (w *world) group(id string) *group { return (*w.m.shards.Load())[0].groups[id] }
