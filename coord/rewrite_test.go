package coord

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// bytes is the size of what a journal keeps.
func (j *fakeJournal) bytes() (n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.recs[j.start-j.start0:] {
		n += recordSize(r)
	}
	return n
}

// Under any load the journal stays below the live state's two to three times plus RewriteEvery, the replay of what is
// left gives the live state, and no log start passes the last record of an id.
func TestRewriteBoundsTheJournal(t *testing.T) {
	const every = 4000
	for seed := range uint64(5) {
		r := newRig(t, func(c *Config) { c.RewriteEvery, c.IDExpireMs = every, 3_600_000 })
		for i := range 30 { // idle ids, live for ever at the head
			r.fresh(fmt.Sprintf("idle-%d", i))
		}
		r.j.hold = true
		d := newDriver(r, seed, 5)
		most, raised := int64(0), int64(0)
		for i := range 1500 {
			d.step()
			if i%3 == 0 {
				r.j.flush()
				r.tick(100 * time.Millisecond)
			}
			r.s.checkList(t)
			start := r.j.Start()
			if start < raised {
				t.Fatalf("log start %d after %d", start, raised)
			}
			raised = start
			for id, e := range r.s.entries {
				if e.offset >= 0 && e.offset < start {
					t.Fatalf("seed %d: last record of %q at %d, log start %d", seed, id, e.offset, start)
				}
			}
			most = max(most, r.j.bytes()-3*r.s.rw.live)
			if i%100 == 99 {
				durable := r.j.prefix(r.j.synced)
				r.j.flush()
				whole := r.j.prefix(r.j.End())
				if text := diff(stateOf(loaded(t, r.c.cfg, nil, whole, r)), stateOf(r.s)); text != "" {
					t.Fatalf("seed %d, step %d: %s", seed, i, text)
				}
				if n := len(stateOf(loaded(t, r.c.cfg, nil, durable, r))); n < 30 {
					t.Fatalf("seed %d, step %d: %d ids after a crash", seed, i, n)
				}
			}
		}
		if most > every+2000 { // one round's slack: what is written while it runs
			t.Errorf("seed %d: %d bytes beyond three times the live ones, want at most %d", seed, most, every+2000)
		}
		if raised == 0 {
			t.Errorf("seed %d: the log start was never raised", seed)
		}
	}
}

// A crash at any moment of a rewrite loses nothing: neither before nor after the log start is raised, and with any part
// of the copies on disk.
func TestRewriteCrashAnywhere(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery = 1000 })
	for i := range 20 {
		r.fresh(fmt.Sprintf("idle-%d", i))
	}
	at := r.fresh("open")
	r.add("open", at, 2, tp("x", 0)) // an open transaction is carried along
	for range 40 {
		r.fresh("busy")
	}
	want := stateOf(r.s)
	for id, k := range want {
		k.offset = 0
		want[id] = k
	}
	r.j.hold = true
	check := func(when string) {
		t.Helper()
		for n := r.j.synced; n <= r.j.End(); n++ {
			got := stateOf(loaded(t, r.c.cfg, nil, r.j.prefix(n), r))
			for id, k := range got {
				k.offset = 0
				got[id] = k
			}
			if text := diff(got, want); text != "" {
				t.Fatalf("%s, %d records durable: %s", when, n, text)
			}
		}
	}
	copies, start := r.j.End(), r.j.Start()
	for i := range 10 {
		r.tick(100 * time.Millisecond)
		check(fmt.Sprintf("tick %d", i))
		if i == 4 {
			if r.j.Start() != start {
				t.Fatal("the log start was raised before the copies were durable")
			}
			r.j.flush()
			check("flushed")
		}
	}
	if r.j.Start() == start || r.j.End() < copies+21 {
		t.Fatalf("log start %d, %d records copied", r.j.Start(), r.j.End()-copies)
	}
	e := r.s.entries["open"]
	if e.offset < copies {
		t.Fatalf("the open transaction was not carried along: its record lies at %d", e.offset)
	}
	r.j.hold = false
	r.j.flush()
	r.end("open", at, 2, true).want(t, nil)
}

// One tick copies a bounded number of records, of a bounded size, however many there are.
func TestRewriteStepsAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery = 1 })
	for i := range 2000 {
		for range 3 { // the first two records are dead
			r.fresh(fmt.Sprintf("id-%d", i))
		}
	}
	steps, live := 0, r.s.rw.live
	r.fresh("last")
	for ; r.j.Start() < 6000; steps++ {
		before := r.j.End()
		r.tick(100 * time.Millisecond)
		if n := r.j.End() - before; n > rewriteRecords {
			t.Fatalf("%d records in one step", n)
		}
		if steps > 100 {
			t.Fatalf("log start %d after 100 steps", r.j.Start())
		}
	}
	if steps < 2000/rewriteRecords {
		t.Fatalf("%d steps", steps)
	}
	if got := r.j.bytes(); got > 2*live {
		t.Fatalf("%d bytes left of %d live ones", got, live)
	}
}

// Records as large as a transaction of thousands of partitions go one by one; none is forgotten.
func TestRewriteOfLargeRecords(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery = 1 })
	var tps []TP
	for i := range int32(10_000) {
		tps = append(tps, tp("wide", i))
	}
	for _, id := range []string{"a", "b", "c"} {
		_, done := r.add(id, r.fresh(id), 2, tps...)
		done.want(t, nil)
	}
	for i := range 4 {
		r.fresh(fmt.Sprintf("small-%d", i))
		r.fresh(fmt.Sprintf("small-%d", i))
	}
	// More dead than live bytes: each wide transaction is ended and begun again.
	for _, id := range []string{"a", "b", "c"} {
		x := r.state(id)
		p := r.end(id, InitOut{x.pid, x.epoch}, 2, false)
		p.want(t, nil)
		_, done := r.add(id, p.out, 2, tps...)
		done.want(t, nil)
	}
	var sizes []int
	inner := r.j
	count := &countingJournal{fakeJournal: inner, appended: func(n int) { sizes = append(sizes, n) }}
	r.s.journal = count
	end := inner.End()
	for range 50 {
		r.tick(100 * time.Millisecond)
	}
	if r.s.entries["a"].offset < inner.Start() || inner.Start() < end-8 {
		t.Fatalf("log start %d of %d", inner.Start(), end)
	}
	for _, n := range sizes {
		if n > rewriteBytes+50_000 {
			t.Fatalf("a batch of %d bytes", n)
		}
	}
	if text := diff(stateOf(loaded(t, r.c.cfg, nil, inner.prefix(inner.End()), r)), stateOf(r.s)); text != "" {
		t.Fatal(text)
	}
}

// countingJournal tells the size of each append.
type countingJournal struct {
	*fakeJournal
	appended func(bytes int)
	drop     error
}

// Append is Journal's.
func (j *countingJournal) Append(recs []Record, lazy bool, written func(int64, error), done func(error)) {
	n := 0
	for _, r := range recs {
		n += int(recordSize(r))
	}
	j.appended(n)
	j.fakeJournal.Append(recs, lazy, written, done)
}

// DropBefore is Journal's.
func (j *countingJournal) DropBefore(offset int64) error {
	if j.drop != nil {
		return j.drop
	}
	return j.fakeJournal.DropBefore(offset)
}

// Ids that have expired leave the log although far fewer bytes than RewriteEvery are dead, within minutes, and a live
// id stays.
func TestRewriteExpired(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery, c.IDExpireMs = 1<<30, 60_000 })
	for i := range 1000 {
		r.fresh(fmt.Sprintf("%0100d", i))
	}
	before := r.j.bytes()
	r.tick(2 * time.Minute)
	if len(r.s.entries) > 0 {
		t.Fatalf("%d ids are left", len(r.s.entries))
	}
	r.fresh("live")
	for range rewriteAge / (30 * time.Second) {
		r.tick(30 * time.Second)
		r.fresh("live")
	}
	r.tick(time.Second)
	if left := r.j.bytes(); before < 2*rewriteBytes || left > before/20 {
		t.Errorf("%d bytes of %d are left", left, before)
	}
	if e := r.s.entries["live"]; e == nil || e.offset < r.j.Start() {
		t.Errorf("the live id at %+v, log start %d", e, r.j.Start())
	}
}

// A journal that refuses copies, or to raise its start, is asked again after a pause; requests go on.
func TestRewriteAfterRefusal(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RewriteEvery = 500 })
	for i := range 10 {
		r.fresh(fmt.Sprintf("idle-%d", i))
	}
	for range 30 {
		r.fresh("busy")
	}
	r.j.refuse = []error{ErrTooLarge}
	end := r.j.End()
	r.tick(100 * time.Millisecond)
	if len(r.j.refuse) != 0 || r.j.End() != end {
		t.Fatal("the refusal was not met")
	}
	r.tick(5 * time.Second)
	if r.j.End() != end {
		t.Fatal("tried again without a pause")
	}
	r.fresh("busy")
	var sizes []int
	count := &countingJournal{fakeJournal: r.j, drop: errors.New("no room")}
	count.appended = func(n int) { sizes = append(sizes, n) }
	r.s.journal = count
	r.tick(16 * time.Second)
	if len(sizes) != 2 || sizes[0] > 100 || sizes[1] < 5*sizes[0] { // one record alone, then what is left of the round
		t.Fatalf("batches of %v bytes", sizes)
	}
	if r.j.Start() != 0 {
		t.Fatal("raised")
	}
	count.drop = nil
	r.tick(21 * time.Second)
	if r.j.Start() < 10 {
		t.Fatalf("log start %d", r.j.Start())
	}
	if text := diff(stateOf(loaded(t, r.c.cfg, nil, r.j.prefix(r.j.End()), r)), stateOf(r.s)); text != "" {
		t.Fatal(text)
	}
}

// Nothing is written to an idle journal, and nothing without the setting.
func TestRewriteIdle(t *testing.T) {
	for _, every := range []int64{0, 1 << 30} {
		r := newRig(t, func(c *Config) { c.RewriteEvery = every })
		for range 50 {
			r.fresh("a")
		}
		r.tick(10 * time.Second)
		if r.j.End() != 50 || r.j.Start() != 0 {
			t.Fatalf("every %d: records %d to %d", every, r.j.Start(), r.j.End())
		}
	}
	r := newRig(t, func(c *Config) { c.RewriteEvery = 500 })
	for range 50 {
		r.fresh("a")
	}
	r.tick(time.Second)
	end, start := r.j.End(), r.j.Start()
	r.tick(10 * time.Second)
	if r.j.End() != end || r.j.Start() != start || start == 0 {
		t.Fatalf("records %d to %d, then %d to %d", start, end, r.j.Start(), r.j.End())
	}
}
