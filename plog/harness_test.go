package plog

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

const (
	testDir  = "/data/topic-0"
	testWall = 1_700_000_000_000
)

// rig is one log on a disk in memory, and what a data directory would remember of it across starts.
type rig struct {
	t     testing.TB
	fs    vfs.FS
	mem   *vfs.Mem
	clk   *clock.Sim
	sh    *Shared
	o     Options
	log   *Log
	rep   Report
	marks marks
	ev    events
	pids  producers
}

// marks are the checkpoint files of a data directory.
type marks struct {
	mu sync.Mutex
	at map[MarkKind]int64
	fn func(kind MarkKind, offset int64) error
}

func (m *marks) persist(kind MarkKind, offset int64) error {
	m.mu.Lock()
	fn := m.fn
	m.mu.Unlock()
	if fn != nil {
		if err := fn(kind, offset); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[kind] = offset
	return nil
}

func (m *marks) get(kind MarkKind) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[kind]
}

// events counts what the log tells.
type events struct {
	mu      sync.Mutex
	faults  []string
	cuts    []segment.Cut
	rolled  []int64
	dup     int
	dupOld  int
	rejects map[pidmap.Verdict]int
	evicted int
	synced  int64
}

func (e *events) Fault(op string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, op+": "+err.Error())
}
func (e *events) Cut(c segment.Cut) { e.mu.Lock(); e.cuts = append(e.cuts, c); e.mu.Unlock() }
func (e *events) Rolled(base int64) { e.mu.Lock(); e.rolled = append(e.rolled, base); e.mu.Unlock() }
func (e *events) Synced(_ time.Duration, n int64) {
	e.mu.Lock()
	e.synced += n
	e.mu.Unlock()
}
func (e *events) Duplicate(old bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old {
		e.dupOld++
	} else {
		e.dup++
	}
}
func (e *events) Reject(v pidmap.Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rejects == nil {
		e.rejects = map[pidmap.Verdict]int{}
	}
	e.rejects[v]++
}
func (e *events) Cleaned(Cleaned)       {}
func (e *events) Evicted(n int, _ bool) { e.mu.Lock(); e.evicted += n; e.mu.Unlock() }

func (e *events) faulted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.faults...)
}

// newRig makes a disk and opens an empty log on it.
func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fs: mem, mem: mem, clk: clock.NewSim(testWall), marks: marks{at: map[MarkKind]int64{}}}
	sh, err := NewShared(1<<20, 64, buf.New(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	r.sh = sh
	t.Cleanup(sh.Close)
	r.o = Options{
		Dir: testDir, Epoch: 1, FS: mem, Clock: r.clk, Shared: sh, Events: &r.ev, Persist: r.marks.persist,
		Config: Config{
			SegmentBytes: 1 << 20, SegmentMs: 7 * 24 * 3600_000, RetainMs: -1, RetainBytes: -1, IndexInterval: 4096,
			IndexBytesMax: 10 << 20, BatchBytesMax: 1 << 20, Delete: true,
		},
		Pids: pidmap.Options{ProducersMax: 100_000, ExpireAfter: 24 * time.Hour},
	}
	for _, fn := range change {
		fn(&r.o)
	}
	if err := errors.Join(mem.SyncDir("/data"), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	r.open(true)
	return r
}

// tryOpen opens the log with the marks of the directory.
func (r *rig) tryOpen(clean bool) error {
	o := r.o
	o.FS, o.Clean = r.fs, clean
	o.Mark, o.Recovery, o.LogStart = r.marks.get(MarkDurable), r.marks.get(MarkRecovery), r.marks.get(MarkStart)
	o.FirstDirty = r.marks.get(MarkClean)
	l, rep, err := Open(o)
	r.log, r.rep = l, rep
	return err
}

// open opens the log and runs the first round.
func (r *rig) open(clean bool) {
	r.t.Helper()
	if err := r.tryOpen(clean); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sync()
}

// sync runs one commit round.
func (r *rig) sync() error {
	var rd Round
	r.log.BeginSync(&rd)
	err := rd.StartWrite()
	if err == nil && !rd.Empty() {
		err = rd.Datasync()
	}
	r.log.EndSync(&rd, err)
	return err
}

// close stops the log in order.
func (r *rig) close() {
	r.t.Helper()
	if err := r.log.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
}

// restart stops the log in order and opens it again, by the next start epoch.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.o.Epoch++
	r.open(true)
}

// kill is a process death: nothing is lost, nothing is flushed. The caller opens again.
func (r *rig) kill() {
	old := r.log
	r.mem = r.mem.Kill()
	r.fs = r.mem
	r.o.Epoch++
	old.shut(&down{ErrClosed})
}

// crash is a power loss. The caller opens again.
func (r *rig) crash(p vfs.CrashPlan) {
	old := r.log
	r.mem = r.mem.Crash(p)
	r.fs = r.mem
	r.o.Epoch++
	old.shut(&down{ErrClosed})
}

// producers remembers the next sequence of test producers.
type producers map[int64]int32

// values makes a batch of records with these values.
func values(pid int64, epoch int16, seq int32, attrs batch.Attrs, vals ...string) batch.View {
	b := batch.Builder{BaseTime: testWall}
	for i, v := range vals {
		b.Add(batch.Record{TimeDelta: int64(i), Value: []byte(v)})
	}
	return b.Done(attrs, pid, epoch, seq)
}

// numbered makes a batch of n records of a producer, whose values tell their sequence.
func numbered(pid int64, epoch int16, seq int32, n int) batch.View {
	vals := make([]string, n)
	for i := range vals {
		vals[i] = fmt.Sprintf("p%d/%d/%d", pid, epoch, batch.SeqAdd(seq, int32(i)))
	}
	return values(pid, epoch, seq, 0, vals...)
}

// in wraps a batch as the broker does after validation.
func in(v batch.View) AppendIn {
	c, err := v.Validate(batch.Limits{Deep: true, AllowZstd: true})
	if err != nil {
		panic(err)
	}
	return AppendIn{Batch: v, Checked: c, Version: 9}
}

// p is a Produce of one batch at acks=all: the answer is waited for by a round.
func (r *rig) p(pid int64, epoch int16, seq int32, n int) (AppendOut, error) {
	r.t.Helper()
	out, err := r.log.Append(in(numbered(pid, epoch, seq, n)))
	r.sync()
	return out, err
}

// stored reads all visible records as "offset=value".
func (r *rig) stored() []string {
	r.t.Helper()
	got, err := readAll(r.log, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// readAll reads from the log start to the limit of the isolation level, in small pieces, and checks that offsets are
// dense (I4).
func readAll(l *Log, committed bool) ([]string, error) {
	var f Fetch
	defer f.Release()
	var out []string
	from := l.Offsets().Start
	for {
		if err := l.Read(ReadIn{From: from, BytesMax: 700, Committed: committed, AtLeast1: true}, &f); err != nil {
			return nil, err
		}
		if len(f.Parts) == 0 {
			return out, nil
		}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err != nil {
					return nil, err
				}
				if _, err := v.Validate(batch.Limits{Deep: true, Stored: true}); err != nil {
					return nil, err
				}
				if v.BaseOffset() > from {
					return nil, fmt.Errorf("I4: base offset %d, expected at most %d", v.BaseOffset(), from)
				}
				err = v.Records(func(rec batch.Record) error {
					if o := v.BaseOffset() + int64(rec.OffsetDelta); o >= from {
						out = append(out, fmt.Sprintf("%d=%s", o, rec.Value))
					}
					return nil
				})
				if err != nil {
					return nil, err
				}
				from = v.LastOffset() + 1
				part = rest
			}
		}
	}
}

// crashAll loses everything that was not synced.
var crashAll = vfs.CrashPlan{Seed: 1}

// numberedValue is how readAll shows record i of producer 1, epoch 0, in a log that holds nothing else.
func numberedValue(i int) string { return fmt.Sprintf("%d=p1/0/%d", i, i) }

func itoa(n int64) string { return fmt.Sprint(n) }
