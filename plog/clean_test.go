package plog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// keyed is a record of a compacted log and what became of its transaction.
type keyed struct {
	offset, time int64
	key, value   string // value "": a tombstone
	pid          int64
	txn          int // number of the transaction, 0: none
	born         time.Duration
}

func (k keyed) String() string { return fmt.Sprintf("%d@%d %s=%s", k.offset, k.time, k.key, k.value) }

// sentBatch is a stored batch, for a retry.
type sentBatch struct {
	v          batch.View
	base, last int64
}

// compacted is a compacted partition as small slow code, beside a real one: all records ever stored.
type compacted struct {
	rig     *rig
	t       *rapid.T
	all     []keyed
	end     int64
	made    int
	txns    int
	lost    bool // a power cut has taken something
	seq     map[int64]int32
	open    map[int64]int         // producer -> its open transaction
	begun   map[int]int64         // first offset of a transaction
	commit  map[int]bool          // decided ones
	decided map[int]int64         // offset of the marker
	sent    map[int64][]sentBatch // by producer
}

const horizon = 10 * time.Second

func newCompacted(t *rapid.T, rig *rig) *compacted {
	return &compacted{
		rig: rig, t: t, seq: map[int64]int32{}, open: map[int64]int{}, begun: map[int]int64{}, commit: map[int]bool{},
		decided: map[int]int64{}, sent: map[int64][]sentBatch{},
	}
}

func compactedOptions(o *Options) {
	o.Config.SegmentBytes, o.Config.IndexInterval = 900, 200
	o.Config.Compact, o.Config.Delete = true, false
	o.Config.DeleteHorizonMs = horizon.Milliseconds()
}

// produce stores a batch of keyed records.
func (m *compacted) produce(t *rapid.T, pid int64, attrs batch.Attrs) {
	b := batch.Builder{BaseTime: m.rig.clk.Wall()}
	var recs []keyed
	for i := range rapid.IntRange(1, 4).Draw(t, "records") {
		r := keyed{key: fmt.Sprintf("k%d", rapid.IntRange(0, 5).Draw(t, "key")), time: b.BaseTime + int64(i), pid: pid}
		rec := batch.Record{Key: []byte(r.key), TimeDelta: int64(i)}
		if rapid.IntRange(0, 4).Draw(t, "tombstone") > 0 {
			r.value = fmt.Sprintf("v%d", m.made)
			rec.Value = []byte(r.value)
		}
		m.made++
		b.Add(rec)
		r.born = m.rig.clk.Mono()
		recs = append(recs, r)
	}
	codecs := []uint8{batch.None, batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}
	attrs |= batch.Attrs(rapid.SampledFrom(codecs).Draw(t, "codec"))
	epoch, seq := int16(0), m.seq[pid]
	if pid < 0 {
		epoch, seq = -1, -1
	}
	v := b.Done(attrs, pid, epoch, seq)
	raw := slices.Clone(v)
	ask := in(v)
	out, err := m.rig.log.Append(ask)
	if rej := (*RejectError)(nil); errors.As(err, &rej) && rej.Decision.Verdict == pidmap.TxnUnverified {
		ask.Guard = rej.Decision.Guard
		out, err = m.rig.log.Append(ask)
	}
	if err != nil || out.Base != m.end {
		t.Fatalf("append at %d: %+v, %v", m.end, out, err)
	}
	if pid >= 0 {
		m.seq[pid] = batch.SeqAdd(seq, int32(len(recs)))
		m.sent[pid] = append(m.sent[pid], sentBatch{raw, out.Base, out.Last})
	}
	if attrs.Transactional() {
		if m.open[pid] == 0 {
			m.txns++
			m.open[pid] = m.txns
			m.begun[m.open[pid]] = out.Base
		}
	}
	for i := range recs {
		recs[i].offset = out.Base + int64(i)
		if attrs.Transactional() {
			recs[i].txn = m.open[pid]
		}
	}
	m.all, m.end = append(m.all, recs...), out.Last+1
}

func (m *compacted) append(t *rapid.T) { m.produce(t, rapid.Int64Range(-1, 2).Draw(t, "pid"), 0) }

func (m *compacted) txnAppend(t *rapid.T) {
	m.produce(t, rapid.Int64Range(50, 52).Draw(t, "pid"), batch.AttrTransactional)
}

func (m *compacted) marker(t *rapid.T) {
	pid := rapid.Int64Range(50, 52).Draw(t, "pid")
	commit := rapid.Bool().Draw(t, "commit")
	mk := batch.Marker{PID: pid, CoordEpoch: 1, Commit: commit, Time: m.rig.clk.Wall()}
	out, err := m.rig.log.AppendMarker(mk, false)
	if err != nil || out.Base != m.end {
		t.Fatalf("marker: %+v, %v", out, err)
	}
	if n := m.open[pid]; n > 0 {
		m.commit[n], m.decided[n] = commit, out.Base
		delete(m.open, pid)
	}
	m.end = out.Last + 1
}

func (m *compacted) sync(*rapid.T) { m.rig.sync() }

func (m *compacted) tick(t *rapid.T) {
	m.rig.sync()
	m.rig.marks.persist(MarkDurable, m.rig.log.Offsets().High)
	m.rig.clk.Advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
	m.rig.log.Tick(m.rig.clk.Wall())
}

func (m *compacted) clean(t *rapid.T) {
	before := m.rig.log.firstDirty.Load()
	out, err := m.rig.log.Clean(CleanIn{Now: m.rig.clk.Wall(), Keys: rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "keys")})
	if err != nil {
		t.Fatalf("clean: %v", err)
	}
	if out.FirstDirty < before {
		t.Fatalf("the first dirty offset falls from %d to %d", before, out.FirstDirty)
	}
	m.once(t, out.FirstDirty)
}

// once: below the first dirty offset every key stands once.
func (m *compacted) once(t *rapid.T, dirty int64) {
	seen := map[string]int64{}
	got, _ := m.read(t)
	for _, r := range got {
		if r.offset >= dirty {
			break
		}
		if at, twice := seen[r.key]; twice {
			t.Fatalf("%s stands at %d and %d, both below the first dirty offset %d", r.key, at, r.offset, dirty)
		}
		seen[r.key] = r.offset
	}
}

// reopen opens after any end. What was not durable may be gone.
func (m *compacted) reopen(t *rapid.T, clean bool, durable int64) {
	if err := m.rig.tryOpen(clean); err != nil {
		t.Fatalf("open: %v", err)
	}
	m.rig.sync()
	end := m.rig.log.Offsets().End
	if end < durable || end > m.end {
		t.Fatalf("reopened with end %d, it was %d, durable %d", end, m.end, durable)
	}
	m.lost = m.lost || end < m.end
	m.cut(end)
}

// cut forgets what was lost.
func (m *compacted) cut(end int64) {
	m.end = end
	m.all = slices.DeleteFunc(m.all, func(r keyed) bool { return r.offset >= end })
	clear(m.open)
	for n, at := range m.begun {
		if at >= end {
			delete(m.begun, n)
			delete(m.commit, n)
			delete(m.decided, n)
			continue
		}
		pid := int64(-1)
		for _, r := range m.all {
			if r.txn == n {
				pid = r.pid
			}
		}
		if d, ok := m.decided[n]; ok && d >= end {
			delete(m.decided, n)
			delete(m.commit, n)
		}
		if _, ok := m.decided[n]; !ok && at < end && pid >= 0 {
			m.open[pid] = n
		}
	}
	for pid, list := range m.sent {
		m.sent[pid] = slices.DeleteFunc(list, func(s sentBatch) bool { return s.base >= end })
		m.seq[pid] = 0
		if n := len(m.sent[pid]); n > 0 {
			first, _ := m.sent[pid][n-1].v.Sequence()
			m.seq[pid] = batch.SeqAdd(first, m.sent[pid][n-1].v.Count())
		}
	}
}

func (m *compacted) restart(t *rapid.T) {
	before := listProducers(m.rig.log.Producers)
	m.rig.close()
	m.rig.o.Epoch++
	m.reopen(t, true, m.end)
	if got := listProducers(m.rig.log.Producers); !slices.Equal(got, before) {
		t.Fatalf("I14: producers\n%v\nbefore\n%v", got, before)
	}
}

// forget loses every producer snapshot: the log alone must tell what the producers wrote last.
func (m *compacted) forget(t *rapid.T) {
	if m.rig.log.Offsets().Start > 0 || m.lost {
		// What was deleted told of some of them; and where a power cut took the newest, compaction counted with those.
		return
	}
	m.rig.close()
	names, err := m.rig.mem.ReadDir(testDir)
	for _, name := range names {
		if _, suffix, ok := segment.ParseName(name); ok && suffix == snapshotSuffix {
			err = errors.Join(err, m.rig.mem.Remove(testDir+"/"+name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	m.rig.o.Epoch++
	m.reopen(t, true, m.end)
	m.retry(t)
}

func (m *compacted) kill(t *rapid.T) {
	m.rig.kill()
	m.reopen(t, false, m.end)
}

func (m *compacted) crash(t *rapid.T) {
	durable := m.rig.log.Offsets().High
	m.rig.crash(m.plan(t))
	m.reopen(t, false, durable)
}

func (m *compacted) plan(t *rapid.T) vfs.CrashPlan {
	return vfs.CrashPlan{
		Seed: rapid.Uint64().Draw(t, "seed"), KeepUnsynced: rapid.SampledFrom([]int{0, 50, 90, 100}).Draw(t, "keep"),
		Garble: rapid.Bool().Draw(t, "garble"), SectorSize: 512,
	}
}

// die ends the process, or the power, at any change of a file while compaction runs.
func (m *compacted) die(t *rapid.T) {
	at := rapid.IntRange(1, 60).Draw(t, "die at")
	power := rapid.Bool().Draw(t, "power")
	stopped := errors.New("the process is gone")
	in := vfs.Inject(m.rig.mem)
	m.rig.close()
	m.rig.o.Epoch++
	m.rig.fs = in
	m.reopen(t, true, m.end)
	in.Add(vfs.Rule{Nth: at, Times: -1, Err: stopped})
	_, _ = m.rig.log.Clean(CleanIn{Now: m.rig.clk.Wall(), Keys: 100})
	durable := m.rig.log.Offsets().High
	if power {
		m.rig.crash(m.plan(t))
	} else {
		m.rig.kill()
	}
	m.reopen(t, false, durable)
}

// retry: the last batches of a producer are answered with their offsets, also where compaction emptied them (I6).
func (m *compacted) retry(t *rapid.T) {
	for _, pid := range []int64{0, 1, 2, 50, 51, 52} {
		list := m.sent[pid]
		for _, s := range list[max(0, len(list)-pidmap.Window):] {
			out, err := m.rig.log.Append(in(slices.Clone(s.v)))
			if err != nil || !out.Duplicate || out.Base != s.base || out.Last != s.last {
				t.Fatalf("retry of %d..%d of producer %d: %+v, %v", s.base, s.last, pid, out, err)
			}
		}
	}
}

func (m *compacted) deleteRecords(t *rapid.T) {
	if o := m.rig.log.Offsets(); rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
		if err := m.rig.log.DeleteBefore(rapid.Int64Range(o.Start, o.High).Draw(t, "to")); err != nil {
			t.Fatal(err)
		}
	}
}

// read is what a read_committed consumer sees, and the offsets of the control records on the way.
func (m *compacted) read(t *rapid.T) (out []keyed, markers []int64) {
	l := m.rig.log
	var f Fetch
	defer f.Release()
	for from := l.Offsets().Start; ; {
		if err := l.Read(ReadIn{From: from, BytesMax: 500, Committed: true, AtLeast1: true}, &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Parts) == 0 {
			if from != l.Offsets().Stable {
				t.Fatalf("reading ends at %d, the stable offset is %d", from, l.Offsets().Stable)
			}
			return out, markers
		}
		pending, dropping := slices.Clone(f.Aborted), map[int64]bool{}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err == nil {
					_, err = v.Validate(batch.Limits{Deep: true, Stored: true})
				}
				if err != nil {
					t.Fatal(err)
				}
				if part = rest; v.LastOffset() < from {
					t.Fatalf("a batch that ends at %d was asked for from %d on", v.LastOffset(), from)
				}
				for len(pending) > 0 && pending[0].First <= v.LastOffset() {
					dropping[pending[0].PID] = true
					pending = pending[1:]
				}
				pid, _ := v.Producer()
				switch {
				case v.Attrs().Control():
					markers = append(markers, v.BaseOffset())
					if mk, err := batch.ParseMarker(v); err == nil && !mk.Commit {
						delete(dropping, pid)
					}
				case !(v.Attrs().Transactional() && dropping[pid]):
					v.Records(func(r batch.Record) error {
						k := keyed{offset: v.BaseOffset() + int64(r.OffsetDelta), time: v.Time(r), key: string(r.Key)}
						if k.value = string(r.Value); k.offset >= from {
							out = append(out, k)
						}
						return nil
					})
				}
				from = v.LastOffset() + 1
			}
		}
	}
}

// check: what is shown was stored and is committed, in its place; the newest committed record of every key is there,
// but for a tombstone that is old enough; while nothing was ever cleaned all of them are.
func (m *compacted) check(t *rapid.T) {
	got, _ := m.read(t)
	o, dirty := m.rig.log.Offsets(), m.rig.log.firstDirty.Load()
	shown := map[int64]keyed{}
	for _, r := range got {
		shown[r.offset] = r
	}
	newest, missing := map[string]keyed{}, []keyed(nil)
	for _, r := range m.all {
		committed := r.txn == 0 || m.commit[r.txn] && m.decided[r.txn] < o.High
		if r.offset >= o.Stable || r.offset < o.Start || !committed {
			continue
		}
		newest[r.key] = r
		s, ok := shown[r.offset]
		if ok && s.String() != r.String() {
			t.Fatalf("shown %v, stored %v", s, r)
		}
		if !ok && r.offset >= dirty {
			missing = append(missing, r)
		}
		delete(shown, r.offset)
	}
	for _, r := range shown {
		t.Fatalf("%v is shown and not committed", r)
	}
	for _, r := range newest {
		there := slices.ContainsFunc(got, func(s keyed) bool { return s.offset == r.offset })
		if !there && (r.value != "" || m.rig.clk.Mono()-r.born < horizon) {
			t.Fatalf("%v is the newest of its key and not shown, the first dirty offset is %d", r, dirty)
		}
	}
	for _, r := range missing {
		// A call of Clean that was ended early may have come to the dirty part.
		if dirty == 0 || newest[r.key].offset == r.offset && r.value != "" {
			t.Fatalf("%v is not shown, the first dirty offset is %d", r, dirty)
		}
	}
	stable := o.High
	for _, n := range m.open {
		stable = min(stable, m.begun[n])
	}
	for n, at := range m.decided {
		if at >= o.High {
			stable = min(stable, m.begun[n])
		}
	}
	if stable = max(stable, o.Start); o.Stable != stable {
		t.Fatalf("the stable offset is %d, must be %d", o.Stable, stable)
	}
}

// TestCompaction: compaction at any time, beside everything that can happen to a log, with an end at any change of a
// file. Values, offsets, times, transactions and the answers to retries stay what they were (I4, I6, I11, I14).
func TestCompaction(t *testing.T) {
	cleaned := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newCompacted(rt, newRig(t, compactedOptions))
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "append": m.append, "append2": m.append, "append3": m.append, "txn": m.txnAppend,
			"txn2": m.txnAppend, "marker": m.marker, "sync": m.sync, "tick": m.tick, "tick2": m.tick,
			"clean": m.clean, "clean2": m.clean, "retry": m.retry, "delete": m.deleteRecords,
			"restart": m.restart, "kill": m.kill, "crash": m.crash, "die": m.die, "forget": m.forget,
		})
		if m.rig.log.firstDirty.Load() > 1 {
			cleaned++
		}
		m.rig.close()
	})
	if cleaned == 0 {
		t.Error("nothing was ever cleaned")
	}
}
