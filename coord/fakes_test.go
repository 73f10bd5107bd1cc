package coord

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/batch"
	"sekali/internal/clock"
)

// fakeJournal is a Journal in memory that knows what is written and what is durable. Without hold every append is
// durable at once; with it flush makes it so.
type fakeJournal struct {
	mu     sync.Mutex
	hold   bool
	start  int64
	recs   []Record // recs[i] lies at offset start0+i
	start0 int64
	synced int64 // end of what is durable
	dones  []flight
	refuse []error // taken by the appends in order; nil: none
	broken error   // of every flush from now on
	closed bool

	lazy    []bool // of each append
	flushes int    // Flush
}

type flight struct {
	end  int64
	done func(error)
}

// Append is Journal's.
func (j *fakeJournal) Append(recs []Record, lazy bool, written func(int64, error), done func(error)) {
	j.mu.Lock()
	err := error(nil)
	if len(j.refuse) > 0 {
		err, j.refuse = j.refuse[0], j.refuse[1:]
	}
	if j.closed {
		err = ErrClosed
	}
	if j.broken != nil {
		err = ErrStorage
	}
	if err != nil {
		j.mu.Unlock()
		written(0, err)
		return
	}
	base := j.end()
	for _, r := range recs {
		j.recs = append(j.recs, Record{slices.Clone(r.Key), slices.Clone(r.Value)})
	}
	j.dones = append(j.dones, flight{j.end(), done})
	j.lazy = append(j.lazy, lazy)
	hold := j.hold
	j.mu.Unlock()
	written(base, nil)
	if !hold {
		j.flush()
	}
}

// flush makes everything durable and says so.
func (j *fakeJournal) flush() {
	j.mu.Lock()
	dones := j.dones
	j.dones = nil
	err := j.broken
	if err == nil {
		j.synced = j.end()
	}
	j.mu.Unlock()
	for _, f := range dones {
		f.done(err)
	}
}

func (j *fakeJournal) end() int64 { return j.start0 + int64(len(j.recs)) }

// crash is the journal another process finds: the durable part and up to keep records behind it. The old one answers
// nothing more.
func (j *fakeJournal) crash(keep int) *fakeJournal {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed, j.dones = true, nil
	end := min(j.synced+int64(keep), j.end())
	return &fakeJournal{
		hold: j.hold, start: j.start, start0: j.start0, synced: end,
		recs: slices.Clone(j.recs[:end-j.start0]),
	}
}

// Replay is Journal's.
func (j *fakeJournal) Replay(from int64, fn func(int64, Record) error) error {
	j.mu.Lock()
	recs, at := j.recs, j.start0
	from = max(from, j.start)
	j.mu.Unlock()
	for i, r := range recs {
		if at+int64(i) < from {
			continue
		}
		if err := fn(at+int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

// Flush is Journal's.
func (j *fakeJournal) Flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushes++
}

// Start is Journal's.
func (j *fakeJournal) Start() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.start
}

// End is Journal's.
func (j *fakeJournal) End() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end()
}

// DropBefore is Journal's.
func (j *fakeJournal) DropBefore(offset int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.start = max(j.start, offset)
	return nil
}

// sent is a marker a fakeSink was given.
type sent struct {
	tp   TP
	m    batch.Marker
	redo bool
	done func(error)
}

// fakeSink is a Sink that keeps what it was given. Without hold every marker is durable at once; with it flush makes it
// so.
type fakeSink struct {
	mu      sync.Mutex
	hold    bool
	fail    map[TP][]error // taken by the markers of the partition in order
	all     []sent
	waiting []sent
	before  func(sent) // sees a marker as it arrives
}

// Marker is Sink's.
func (k *fakeSink) Marker(tp TP, m batch.Marker, redo bool, done func(error)) {
	s := sent{tp, m, redo, done}
	if k.before != nil {
		k.before(s)
	}
	k.mu.Lock()
	k.all = append(k.all, s)
	var err error
	if f := k.fail[tp]; len(f) > 0 {
		err, k.fail[tp] = f[0], f[1:]
	}
	if k.hold && err == nil {
		k.waiting = append(k.waiting, s)
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	done(err)
}

// flush makes every marker durable and returns how many there were.
func (k *fakeSink) flush() int {
	k.mu.Lock()
	w := k.waiting
	k.waiting = nil
	k.mu.Unlock()
	for _, s := range w {
		s.done(nil)
	}
	return len(w)
}

func (k *fakeSink) markers() []sent {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// rig is an inline coordinator with one shard over fakes and a simulated clock.
type rig struct {
	t    testing.TB
	c    *Coordinator
	s    *shard
	j    *fakeJournal
	sink *fakeSink
	clk  *clock.Sim
	ids  *ProducerIDs
}

func newRig(t testing.TB, opts ...func(*Config)) *rig {
	cfg := Config{
		TimeoutMaxMs: 900_000, IDExpireMs: 604_800_000, SnapshotEvery: 1 << 40, RewriteEvery: 1 << 40, TV: 2, Inline: true,
	}
	for _, o := range opts {
		o(&cfg)
	}
	r := &rig{t: t, j: &fakeJournal{}, sink: &fakeSink{fail: map[TP][]error{}}, clk: clock.NewSim(1_000_000)}
	r.ids = NewProducerIDs(&counter{next: 4000}, 1000)
	r.c = New(cfg, r.ids, r.sink, nil, r.clk)
	r.s = newShard(r.c, 0, r.j)
	r.s.epoch = 7
	r.c.shards.Store(&[]*shard{r.s})
	r.s.live()
	t.Cleanup(func() { r.ids.Close(); r.c.Close() })
	return r
}

// tick advances the clock in steps of 100 ms, with a Tick after each.
func (r *rig) tick(d time.Duration) {
	for ; d > 0; d -= 100 * time.Millisecond {
		r.clk.Advance(min(d, 100*time.Millisecond))
		r.c.Tick()
	}
}

// reply is what a callback was given; n counts its calls.
type reply struct {
	out  InitOut
	code *kerr.Error
	n    int
}

func (p *reply) set(out InitOut, code *kerr.Error) { p.out, p.code, p.n = out, code, p.n+1 }

func (r *rig) init(in InitIn) *reply {
	p := new(reply)
	if in.TimeoutMs == 0 {
		in.TimeoutMs = 60_000
	}
	r.c.Init(in, p.set)
	return p
}

// fresh initialises an id without an expected pair and returns what it was told.
func (r *rig) fresh(id string) InitOut {
	r.t.Helper()
	p := r.init(InitIn{TxnID: id, PID: -1, Epoch: -1})
	p.want(r.t, nil)
	return p.out
}

func (r *rig) add(id string, at InitOut, tv int8, tps ...TP) (written, done *reply) {
	written, done = new(reply), new(reply)
	r.c.Add(Part{id, at.PID, at.Epoch, tv, tps},
		func(code *kerr.Error) { written.set(noOut, code) }, func(code *kerr.Error) { done.set(noOut, code) })
	return written, done
}

func (r *rig) end(id string, at InitOut, tv int8, commit bool) *reply {
	p := new(reply)
	r.c.End(EndIn{id, at.PID, at.Epoch, tv, commit}, p.set)
	return p
}

func (r *rig) state(id string) txn {
	r.t.Helper()
	e := r.s.entries[id]
	if e == nil {
		r.t.Fatalf("no metadata of %q", id)
	}
	return e.t
}

// want asserts one call with this code.
func (p *reply) want(t testing.TB, code *kerr.Error) {
	t.Helper()
	if p.n != 1 || p.code != code {
		t.Fatalf("answered %d times, last with %v; want once with %v", p.n, p.code, code)
	}
}

func (p *reply) wantOut(t testing.TB, pid int64, epoch int16) {
	t.Helper()
	p.want(t, nil)
	if p.out != (InitOut{pid, epoch}) {
		t.Fatalf("answered (%d, %d), want (%d, %d)", p.out.PID, p.out.Epoch, pid, epoch)
	}
}

func (p *reply) wantNone(t testing.TB) {
	t.Helper()
	if p.n != 0 {
		t.Fatalf("answered %d times with %v, want not yet", p.n, p.code)
	}
}

// tp is a partition of a topic whose id is made of its name.
func tp(topic string, partition int32) TP {
	p := TP{Topic: topic, Partition: partition}
	copy(p.ID[:], "id of "+topic)
	return p
}
