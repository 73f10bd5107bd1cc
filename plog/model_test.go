package plog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/pidmap"
)

// entry is one batch of the model: the log as a list.
type entry struct {
	base, last  int64
	pid         int64
	epoch       int16
	seq         int32
	vals        []string
	txn         bool
	marker      bool
	commit      bool
	leaderEpoch int32
	bytes       batch.View // as stored
}

// model is a partition as small slow code, beside a real one.
type model struct {
	rig     *rig
	t       *rapid.T
	all     []entry // every batch that is in the log or was before retention
	start   int64
	high    int64
	made    int
	lagging int64 // durable mark of the second before
	pending *Round
	waits   []*wait
	flushed int64 // end of what the last flush covered; high may lie below it
}

// wait is one acks=all answer that is waited for.
type wait struct {
	Waiter
	until int64
	fired bool
	err   error
}

func (m *model) end() int64 {
	if len(m.all) == 0 {
		return 0
	}
	return m.all[len(m.all)-1].last + 1
}

// nextSeq is the sequence a producer goes on with, and whether its transaction is open.
func (m *model) nextSeq(pid int64) (epoch int16, seq int32, open bool) {
	for _, e := range m.all {
		if e.pid != pid {
			continue
		}
		if e.marker {
			open = false
			continue
		}
		epoch, seq, open = e.epoch, batch.SeqAdd(e.seq, int32(len(e.vals))), e.txn
	}
	return epoch, seq, open
}

func (m *model) batch(pid int64, epoch int16, seq int32, n int, attrs batch.Attrs) (batch.View, []string) {
	vals := make([]string, n)
	for i := range vals {
		vals[i] = fmt.Sprintf("v%d", m.made)
		m.made++
	}
	if pid < 0 {
		epoch, seq = -1, -1
	}
	return values(pid, epoch, seq, attrs, vals...), vals
}

// note takes a stored batch into the list and waits for it as acks=all does.
func (m *model) note(v batch.View, vals []string, out AppendOut) {
	pid, epoch := v.Producer()
	seq, _ := v.Sequence()
	if out.Base != m.end() || out.Last != out.Base+int64(len(vals))-1 || out.Duplicate {
		m.t.Fatalf("stored at %d..%d (duplicate %v), expected base %d", out.Base, out.Last, out.Duplicate, m.end())
	}
	m.all = append(m.all, entry{
		base: out.Base, last: out.Last, pid: pid, epoch: epoch, seq: seq, vals: vals, txn: v.Attrs().Transactional(),
		leaderEpoch: m.rig.log.Epoch(), bytes: slices.Clone(v),
	})
	m.wait(out.Until)
}

func (m *model) wait(until int64) {
	w := &wait{until: until}
	w.Fn = func(err error) { w.fired, w.err = true, err }
	m.rig.log.AfterDurable(until, &w.Waiter)
	m.waits = append(m.waits, w)
}

func (m *model) append(t *rapid.T) {
	pid := rapid.Int64Range(-1, 3).Draw(t, "pid")
	epoch, seq, _ := m.nextSeq(pid)
	if rapid.IntRange(0, 9).Draw(t, "bump") == 0 && seq > 0 {
		epoch, seq = epoch+1, 0
	}
	v, vals := m.batch(pid, epoch, seq, rapid.IntRange(1, 5).Draw(t, "n"), 0)
	out, err := m.rig.log.Append(in(v))
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	m.note(v, vals, out)
}

func (m *model) gather(t *rapid.T) {
	var ins []AppendIn
	var vals [][]string
	seqs := map[int64]int32{}
	epochs := map[int64]int16{}
	for range rapid.IntRange(1, 8).Draw(t, "batches") {
		pid := rapid.Int64Range(-1, 3).Draw(t, "pid")
		epoch, seq, _ := m.nextSeq(pid)
		if s, ok := seqs[pid]; ok {
			epoch, seq = epochs[pid], s
		}
		n := rapid.IntRange(1, 4).Draw(t, "n")
		v, vs := m.batch(pid, epoch, seq, n, 0)
		seqs[pid], epochs[pid] = batch.SeqAdd(seq, int32(n)), epoch
		ins, vals = append(ins, in(v)), append(vals, vs)
	}
	outs := make([]AppendOut, len(ins))
	if err := m.rig.log.AppendAll(ins, outs); err != nil {
		t.Fatalf("gathered append: %v", err)
	}
	for i, out := range outs {
		if out.Err != nil {
			t.Fatalf("gathered append %d: %v", i, out.Err)
		}
		m.note(ins[i].Batch, vals[i], out)
	}
}

// retry sends a stored batch again: it is answered with its offset and never stored twice (I6).
func (m *model) retry(t *rapid.T) {
	var own []entry
	pid := rapid.Int64Range(0, 3).Draw(t, "pid")
	epoch, _, _ := m.nextSeq(pid)
	for _, e := range m.all {
		if e.pid == pid && !e.marker {
			own = append(own, e)
		}
	}
	if len(own) == 0 {
		return
	}
	i := rapid.IntRange(0, len(own)-1).Draw(t, "which")
	e := own[i]
	before := m.rig.log.Offsets().End
	out, err := m.rig.log.Append(in(values(e.pid, e.epoch, e.seq, 0, e.vals...)))
	var rej *RejectError
	switch {
	case e.epoch < epoch:
		if !errors.As(err, &rej) || rej.Decision.Verdict != pidmap.Fenced {
			t.Fatalf("retry of an old epoch: %+v, %v", out, err)
		}
	case err == nil:
		if !out.Duplicate || out.Base != e.base || out.Last != e.last {
			t.Fatalf("retry of %d..%d answered %+v", e.base, e.last, out)
		}
		m.wait(out.Until)
	case !errors.As(err, &rej) || rej.Decision.Verdict != pidmap.DuplicateOld || len(own)-i <= pidmap.Window:
		t.Fatalf("retry of batch %d of %d: %+v, %v", i, len(own), out, err)
	}
	if m.rig.log.Offsets().End != before {
		t.Fatalf("the log grew by a retry")
	}
}

func (m *model) txnAppend(t *rapid.T) {
	pid := rapid.Int64Range(50, 52).Draw(t, "pid")
	epoch, seq, open := m.nextSeq(pid)
	v, vals := m.batch(pid, epoch, seq, rapid.IntRange(1, 3).Draw(t, "n"), batch.AttrTransactional)
	ask := in(v)
	out, err := m.rig.log.Append(ask)
	var rej *RejectError
	if !open {
		if !errors.As(err, &rej) || rej.Decision.Verdict != pidmap.TxnUnverified {
			t.Fatalf("first batch of a transaction: %+v, %v", out, err)
		}
		ask.Guard = rej.Decision.Guard
		out, err = m.rig.log.Append(ask)
	}
	if err != nil {
		t.Fatalf("transactional append: %v", err)
	}
	m.note(v, vals, out)
}

func (m *model) marker(t *rapid.T) {
	pid := rapid.Int64Range(50, 52).Draw(t, "pid")
	epoch, _, _ := m.nextSeq(pid)
	mk := batch.Marker{PID: pid, Epoch: epoch, CoordEpoch: 1, Commit: rapid.Bool().Draw(t, "commit"), Time: testWall}
	out, err := m.rig.log.AppendMarker(mk, false)
	if err != nil || out.Base != m.end() {
		t.Fatalf("marker: %+v, %v", out, err)
	}
	e := entry{base: out.Base, last: out.Last, pid: pid, epoch: epoch, marker: true, commit: mk.Commit}
	e.leaderEpoch = m.rig.log.Epoch()
	e.bytes = batch.AppendMarker(nil, out.Base, e.leaderEpoch, mk)
	m.all = append(m.all, e)
	m.wait(out.Until)
	if again, err := m.rig.log.AppendMarker(mk, true); err != nil || !again.Duplicate || again.Until != m.end() {
		t.Fatalf("marker redone: %+v, %v", again, err)
	}
}

// beginRound and endRound let anything happen inside a commit round.
func (m *model) beginRound(*rapid.T) {
	if m.pending == nil {
		m.pending = new(Round)
		m.rig.log.BeginSync(m.pending)
	}
}

func (m *model) endRound(*rapid.T) {
	m.flushed = m.end()
	if m.pending == nil {
		m.rig.sync()
		m.high = m.end()
		return
	}
	r := m.pending
	m.pending = nil
	end := r.End
	m.rig.log.EndSync(r, errors.Join(r.StartWrite(), r.Datasync()))
	m.high = max(m.high, end)
}

func (m *model) tick(t *rapid.T) {
	m.rig.clk.Advance(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second)
	m.rig.log.Tick(m.rig.clk.Wall())
	m.start = max(m.start, m.rig.log.Offsets().Start) // retention by size; what it may take is tested apart
	m.rig.marks.persist(MarkDurable, max(m.lagging, m.rig.marks.get(MarkDurable)))
	m.lagging = m.high
}

func (m *model) deleteRecords(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		return
	}
	to := rapid.Int64Range(m.start, m.high).Draw(t, "to")
	if err := m.rig.log.DeleteBefore(to); err != nil {
		t.Fatalf("delete before %d: %v", to, err)
	}
	m.start = to
}

func (m *model) retention(t *rapid.T) {
	c := m.rig.o.Config
	c.RetainBytes = rapid.SampledFrom([]int64{-1, -1, 0, 2000}).Draw(t, "retain")
	m.rig.o.Config = c
	m.rig.log.Configure(c)
}

// reopen opens the log after any kind of end and compares it with the list: nothing below the old high watermark is
// missing, what is above is a prefix (I4, I7), and the state is that of a full replay (I14).
func (m *model) reopen(t *rapid.T, clean bool) {
	m.pending = nil
	if err := m.rig.tryOpen(clean); err != nil {
		t.Fatalf("open: %v", err)
	}
	o := m.rig.log.Offsets()
	if o.End < m.high || o.End > m.end() || o.Start < m.start {
		t.Fatalf("reopened at %+v; before: start %d, high %d, end %d", o, m.start, m.high, m.end())
	}
	if clean && o.End != m.end() {
		t.Fatalf("a clean stop lost %d..%d", o.End, m.end())
	}
	for len(m.all) > 0 && m.end() > o.End {
		m.all = m.all[:len(m.all)-1]
	}
	if m.end() != o.End {
		t.Fatalf("the log ends at %d, inside a batch", o.End)
	}
	m.rig.sync()
	m.high, m.start, m.flushed = m.end(), m.rig.log.Offsets().Start, m.end()
	m.sameProducers(t)
}

func (m *model) restart(t *rapid.T) {
	if m.pending != nil {
		m.endRound(t)
	}
	m.rig.close()
	m.fired(t, m.end(), false)
	m.rig.o.Epoch++
	m.reopen(t, true)
}

func (m *model) kill(t *rapid.T) {
	m.rig.kill()
	m.waits = nil
	end := m.end()
	m.reopen(t, false)
	if m.end() != end {
		t.Fatalf("a process death lost %d..%d", m.end(), end)
	}
}

func (m *model) crash(t *rapid.T) {
	m.rig.crash(vfs.CrashPlan{
		Seed: rapid.Uint64().Draw(t, "seed"), KeepUnsynced: rapid.SampledFrom([]int{0, 50, 90, 100}).Draw(t, "keep"),
		Garble: rapid.Bool().Draw(t, "garble"), SectorSize: 512,
	})
	m.waits = nil
	m.reopen(t, false)
}

// failFlush makes the next flush of a log file fail: the log goes offline, and comes back without what was lost.
func (m *model) failFlush(t *rapid.T) {
	if m.pending != nil || m.end() == m.flushed {
		return
	}
	undo := m.rig.mem.FailSync(testDir+"/*.log", 1, errIO)
	err := m.rig.sync()
	undo()
	if err == nil || !errors.Is(m.rig.log.Err(), ErrOffline) {
		t.Fatalf("flush: %v, log: %v", err, m.rig.log.Err())
	}
	if _, err := m.rig.log.Append(in(numbered(9, 0, 0, 1))); !errors.Is(err, ErrOffline) {
		t.Fatalf("append offline: %v", err)
	}
	m.fired(t, m.high, true)
	m.rig.log.Close()
	m.reopen(t, false)
}

// fired checks every waiter: below durable fired without an error, all others not, or with one if the log is down (I7).
func (m *model) fired(t *rapid.T, durable int64, down bool) {
	keep := m.waits[:0]
	for _, w := range m.waits {
		switch {
		case w.until <= durable:
			if !w.fired || w.err != nil {
				t.Fatalf("waiter for %d, durable %d: fired %v, %v", w.until, durable, w.fired, w.err)
			}
		case down:
			if !w.fired || w.err == nil {
				t.Fatalf("waiter for %d of a log that is down: fired %v, %v", w.until, w.fired, w.err)
			}
		case w.fired:
			t.Fatalf("I7: waiter for %d fired at durable %d", w.until, durable)
		default:
			keep = append(keep, w)
		}
	}
	m.waits = keep
}

// sameProducers compares the producer state with a replay of the whole history (I14).
func (m *model) sameProducers(t *rapid.T) {
	fold := pidmap.New(m.rig.o.Pids)
	for _, e := range m.all {
		if _, err := takeIn(fold, nil, 0, e.bytes, 0); err != nil {
			t.Fatal(err)
		}
	}
	want := listProducers(func(fn func(pidmap.Producer) bool) {
		for at := 0; at >= 0; {
			at = fold.Each(at, func(p pidmap.Producer) { fn(p) })
		}
	})
	if got := listProducers(m.rig.log.Producers); !slices.Equal(got, want) {
		t.Fatalf("I14: producers\n%v\nreplayed\n%v", got, want)
	}
}

func listProducers(each func(func(pidmap.Producer) bool)) (out []string) {
	each(func(p pidmap.Producer) bool {
		p.Touch = 0
		out = append(out, fmt.Sprintf("%+v", p))
		return true
	})
	slices.Sort(out)
	return out
}

// check holds after every step.
func (m *model) check(t *rapid.T) {
	o := m.rig.log.Offsets()
	want := Offsets{Start: m.start, Stable: max(m.stable(), m.start), High: m.high, End: m.end()}
	if o != want {
		t.Fatalf("offsets %+v, want %+v", o, want)
	}
	m.fired(t, m.high, false)
	got, err := readAll(m.rig.log, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := m.visible(m.high, false); !slices.Equal(got, want) {
		t.Fatalf("read_uncommitted\n%v\nwant\n%v", got, want)
	}
	if got, err = consume(m.rig.log); err != nil {
		t.Fatal(err)
	}
	if want := m.visible(o.Stable, true); !slices.Equal(got, want) {
		t.Fatalf("read_committed\n%v\nwant\n%v", got, want)
	}
	for epoch := int32(-1); epoch <= m.rig.log.Epoch()+1; epoch++ {
		ge, go_ := m.rig.log.EpochEnd(epoch)
		if we, wo, either := m.epochEnd(epoch); go_ != wo || ge != we && !(either && ge == epoch) {
			t.Fatalf("EpochEnd(%d) = %d, %d; want %d, %d; list %v", epoch, ge, go_, we, wo, *m.rig.log.epochs.Load())
		}
	}
}

// stable is the first offset that is undecided, or whose marker is not durable.
func (m *model) stable() int64 {
	stable := m.high
	open := map[int64]int64{}
	for _, e := range m.all {
		if e.marker && e.last < m.high {
			delete(open, e.pid)
		} else if _, ok := open[e.pid]; e.txn && !ok {
			open[e.pid] = e.base
		}
	}
	for _, first := range open {
		stable = min(stable, first)
	}
	return stable
}

// visible is the records a reader gets below a limit; committed leaves out those of aborted transactions.
func (m *model) visible(limit int64, committed bool) []string {
	var out []string
	for i, e := range m.all {
		aborted := false
		for _, f := range m.all[i+1:] {
			if e.txn && f.marker && f.pid == e.pid {
				aborted = !f.commit
				break
			}
		}
		if committed && (aborted || e.marker) {
			continue
		}
		for k := e.base; k <= e.last; k++ {
			if k >= m.start && k < limit {
				if e.marker {
					out = append(out, fmt.Sprintf("%d=%s", k, markerValue))
				} else {
					out = append(out, fmt.Sprintf("%d=%s", k, e.vals[k-e.base]))
				}
			}
		}
	}
	return out
}

// epochEnd is the table of spec on-disk 7 over the list. either: the epoch it names has no batch above the log start,
// so the cache may have forgotten it.
func (m *model) epochEnd(q int32) (epoch int32, end int64, either bool) {
	latest := m.rig.log.Epoch()
	if q == latest {
		return q, m.end(), false
	}
	if q > latest || q < 0 {
		return -1, -1, false
	}
	var list []epochStart
	for _, e := range m.all {
		if n := len(list); n == 0 || list[n-1].epoch < e.leaderEpoch {
			list = append(list, epochStart{e.leaderEpoch, e.base})
		}
	}
	for len(list) > 1 && list[1].start <= m.start {
		list = list[1:]
	}
	best, next := q, m.end()
	for i, e := range list {
		if i == 0 {
			e.start = max(e.start, m.start)
		}
		if e.epoch > q {
			next = e.start
			break
		}
		best = e.epoch
	}
	return best, next, next <= m.start
}
