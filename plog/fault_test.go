package plog

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/pidmap"
)

var errNoSpace = fmt.Errorf("injected: %w", syscall.ENOSPC)

// inject puts an injector between the log and its disk, from the next open on.
func (r *rig) inject() *vfs.Injector {
	r.t.Helper()
	in := vfs.Inject(r.mem)
	r.close()
	r.fs = in
	r.open(true)
	return in
}

// script is a run of a producer and what it was told: every acknowledgement is kept, every refused batch is sent again
// in its turn, as an idempotent client does.
type script struct {
	r    *rig
	next int32
	acks map[int32]int64 // sequence: base offset
	errs []error
}

// send tries one batch of two records until it is acknowledged or tries run out; between tries the log gets its round
// and, offline, is opened again.
func (s *script) send(tries int) bool {
	for range tries {
		out, err := s.r.log.Append(in(numbered(1, 0, s.next, 2)))
		if err == nil {
			var w wait
			w.Fn = func(err error) { w.fired, w.err = true, err }
			s.r.log.AfterDurable(out.Until, &w.Waiter)
			s.r.sync()
			if !w.fired {
				s.r.t.Fatalf("no answer for sequence %d after a round", s.next)
			}
			err = w.err
			if err == nil {
				s.acks[s.next] = out.Base
				s.next += 2
				return true
			}
		}
		s.errs = append(s.errs, err)
		if s.r.log.Err() != nil {
			s.r.log.Close()
			for i := 0; s.r.tryOpen(false) != nil; i++ {
				if i == 10 {
					s.r.t.Fatalf("does not open again: %v", s.r.tryOpen(false))
				}
			}
			s.r.sync()
		}
	}
	return false
}

// verify: each acknowledged batch is in the log once, at its offset, and the log holds nothing twice.
func (s *script) verify() {
	s.r.t.Helper()
	got := s.r.stored()
	seen := map[string]bool{}
	for _, rec := range got {
		_, val, _ := strings.Cut(rec, "=")
		if seen[val] {
			s.r.t.Fatalf("I6: %q is stored twice: %v", val, got)
		}
		seen[val] = true
	}
	for seq, base := range s.acks {
		if want := fmt.Sprintf("%d=p1/0/%d", base, seq); !slices.Contains(got, want) {
			s.r.t.Fatalf("I7: acknowledged %q is missing in %v; errors %v", want, got, s.errs)
		}
	}
}

// TestEveryCallFails lets the n-th call of each kind fail, in turn with a full disk and with an I/O error, while a log
// appends, rolls, makes snapshots, retires segments, is closed and opened again. Whatever fails: acknowledged batches
// stay where they were acknowledged, nothing is stored twice, a full disk takes nothing offline for good, and
// afterwards the log works on; also after a power loss at the end.
func TestEveryCallFails(t *testing.T) {
	ops := []string{
		"openfile", "rename", "remove", "readdir", "stat", "syncdir", "writeat", "writevat", "size", "truncate",
		"allocate", "startwriteback", "datasync", "uncache", "map", "close", "readat",
	}
	fired := map[string]int{}
	for _, fault := range []error{errNoSpace, errIO} {
		for _, op := range ops {
			for nth := 1; nth <= 60; nth++ {
				if !failNth(t, vfs.Rule{Op: op, Nth: nth, Err: fault}) {
					break
				}
				fired[op]++
			}
		}
	}
	t.Logf("faults per call: %v", fired)
	for _, op := range []string{"writeat", "writevat", "datasync", "syncdir", "openfile", "rename"} {
		if fired[op] < 4 {
			t.Errorf("%s failed only %d times: the script misses it", op, fired[op])
		}
	}
	for nth := 1; nth <= 12; nth++ {
		failNth(t, vfs.Rule{Op: "writeat", Nth: nth, Short: 7})
		failNth(t, vfs.Rule{Op: "writevat", Nth: nth, Short: 7, Err: errNoSpace})
	}
}

// failNth runs the script under one rule and reports whether it fired.
func failNth(t *testing.T, rule vfs.Rule) bool {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
	s := &script{r: r, acks: map[int32]int64{}}
	name := fmt.Sprintf("%s %d %v short %d", rule.Op, rule.Nth, rule.Err, rule.Short)
	defer func() {
		if t.Failed() {
			t.Logf("rule: %s; faults told: %v", name, r.ev.faulted())
		}
	}()
	inj := r.inject()
	active := inj.Add(rule)
	must := func(what string) {
		if !s.send(3) {
			t.Fatalf("%s: %s: no batch gets through: %v", name, what, s.errs)
		}
	}
	for i := range 8 {
		must("run")
		if i == 5 {
			c := r.o.Config
			c.RetainBytes = 700
			r.log.Configure(c)
		}
		r.clk.Advance(61 * time.Second)
		r.log.Tick(r.clk.Wall())
		r.log.OffsetForTime(testWall)
	}
	start := r.log.Offsets().Start
	for seq, base := range s.acks {
		if base < start {
			delete(s.acks, seq)
		}
	}
	if err := r.log.Close(); err == nil && r.log.Err() == nil {
		t.Fatal("closed, and serving")
	} else if r.tryOpen(err == nil) != nil && r.tryOpen(false) != nil {
		t.Fatalf("%s: does not open: %v", name, r.tryOpen(false))
	}
	r.sync()
	must("after a restart")
	hits := active.Hits()
	inj.Clear()
	must("without the fault")
	s.verify()
	r.crash(crashAll)
	r.open(false)
	s.verify()
	must("after a power loss")
	return hits > 0
}

// TestFullDiskIsNoFailedFlush: 56 and the log stays in service; the next append tries again (F4).
func TestFullDiskIsNoFailedFlush(t *testing.T) {
	r := newRig(t)
	inj := r.inject()
	r.p(1, 0, 0, 2)
	inj.Add(vfs.Rule{Op: "writeat", Match: "*.log", Nth: 1, Err: errNoSpace, Short: 20})
	out, err := r.p(2, 0, 0, 1)
	if !errors.Is(err, ErrFull) || out.Base != -1 || out.Start != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	if r.log.Err() != nil {
		t.Fatalf("offline: %v", r.log.Err())
	}
	if _, err := r.p(2, 0, 1, 1); err == nil {
		t.Fatal("sequence 1 of an unknown producer overtook its refused 0")
	}
	r.run(1, []step{{"next", 0, 2, 1, 2, false, ok}})
	r.run(2, []step{{"0 again", 0, 0, 1, 3, false, ok}, {"1", 0, 1, 1, 4, false, ok}})
	want := r.stored()
	r.restart()
	if got := r.stored(); !slices.Equal(got, want) || len(got) != 5 {
		t.Fatalf("%v, before %v", got, want)
	}
}

// TestFullDiskInAGatheredWrite: all that were still to be written fail, what was decided before stays.
func TestFullDiskInAGatheredWrite(t *testing.T) {
	r := newRig(t)
	inj := r.inject()
	r.p(1, 0, 0, 1)
	ins := []AppendIn{
		in(numbered(1, 0, 0, 1)), in(numbered(2, 0, 0, 1)), in(numbered(1, 0, 7, 1)), in(numbered(3, 0, 0, 1)),
		in(numbered(3, 0, 1, 1)), in(numbered(4, 0, 0, 1)),
	}
	outs := make([]AppendOut, len(ins))
	inj.Add(vfs.Rule{Op: "writevat", Match: "*.log", Nth: 2, Err: errNoSpace})
	err := r.log.AppendAll(ins, outs)
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	var rej *RejectError
	if !outs[0].Duplicate || outs[1].Err != nil || outs[1].Base != 1 || !errors.As(outs[2].Err, &rej) ||
		outs[3].Err != nil || outs[3].Base != 2 {
		t.Fatalf("%+v", outs)
	}
	for _, o := range outs[4:] {
		if !errors.Is(o.Err, ErrFull) || o.Base != -1 {
			t.Fatalf("%+v", o)
		}
	}
	r.sync()
	r.run(4, []step{{"1 must wait for 0", 0, 1, 1, 0, false, pidmap.OutOfOrder}})
	r.run(3, []step{{"again", 0, 1, 1, 3, false, ok}})
	r.run(4, []step{{"again", 0, 0, 1, 4, false, ok}})
}

// TestFailedFlushIsFinal is I15: the log is offline at once and for all callers, and comes back without the lost bytes,
// although the cache still shows them.
func TestFailedFlushIsFinal(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 2)
	out, err := r.log.Append(in(numbered(1, 0, 2, 2)))
	if err != nil {
		t.Fatal(err)
	}
	var durable, readable error
	r.log.AfterDurable(out.Until, &Waiter{Fn: func(err error) { durable = err }})
	r.log.AfterReadable(2, false, &Waiter{Fn: func(err error) { readable = err }})
	r.mem.FailSync(testDir+"/*.log", 1, errIO)
	if err := r.sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	for _, err := range []error{durable, readable, r.log.Err(), r.log.DeleteBefore(1), r.log.Read(ReadIn{}, new(Fetch))} {
		if !errors.Is(err, ErrOffline) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("offline tells %v", err)
		}
	}
	if err := r.sync(); err != nil || r.log.Offsets().High != 2 {
		t.Fatalf("a round after the failed one: %v, %+v", err, r.log.Offsets())
	}
	if n := r.log.o.Load.Waiting.Load() + r.log.o.Load.Bytes.Load(); n != 0 {
		t.Fatalf("load of an offline log: %d", n)
	}
	r.log.Close()
	r.open(false)
	if got := r.stored(); len(got) != 2 {
		t.Fatalf("the lost bytes came back: %v", got)
	}
	r.run(1, []step{{"retry is new", 0, 2, 2, 2, false, ok}})
	r.crash(crashAll)
	r.open(false)
	if got := r.stored(); len(got) != 4 {
		t.Fatalf("after a power loss: %v", got)
	}
}

// TestFailedFlushOutlivesTheProcess: the next process finds the lost bytes in the page cache, clean, and a flush of
// them succeeds; they are not shown all the same (I15).
func TestFailedFlushOutlivesTheProcess(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 2)
	r.log.Append(in(numbered(1, 0, 2, 2)))
	r.mem.FailSync(testDir+"/*.log", 1, errIO)
	r.sync()
	r.kill()
	r.open(false)
	shown := r.stored()
	r.crash(crashAll)
	r.open(false)
	if got := r.stored(); !slices.Equal(got, shown) {
		t.Fatalf("shown %v, kept %v", shown, got)
	}
}

// TestMappedPagesAreCopied: a reader that still holds the segment keeps its pages in the cache; the log comes back
// from a synced copy, complete, and the reader's bytes stay.
func TestMappedPagesAreCopied(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 2)
	var f Fetch
	if err := r.log.Read(ReadIn{BytesMax: 1 << 20}, &f); err != nil || len(f.Parts) != 1 {
		t.Fatalf("%v", err)
	}
	held := slices.Clone(f.Parts[0])
	r.log.Append(in(numbered(1, 0, 2, 2)))
	r.mem.FailSync(testDir+"/*.log", 1, errIO)
	r.sync()
	r.log.Close()
	r.open(false)
	want := r.stored()
	if len(want) != 4 {
		t.Fatalf("stored %v", want)
	}
	if !slices.ContainsFunc(r.ev.faulted(), func(s string) bool { return strings.HasPrefix(s, "page cache") }) {
		t.Fatalf("the cache was empty: %v", r.ev.faulted())
	}
	if !slices.Equal(held, f.Parts[0]) {
		t.Fatal("I2: the reader's bytes changed")
	}
	f.Release()
	r.crash(crashAll)
	r.open(false)
	if got := r.stored(); !slices.Equal(got, want) {
		t.Fatalf("I15: shown %v, kept %v", want, got)
	}
}

// TestFailedMarkerChangesNothing: a marker that was not written leaves the transaction open (I5, I11).
func TestFailedMarkerChangesNothing(t *testing.T) {
	r := newRig(t)
	inj := r.inject()
	ask := in(values(5, 0, 0, batch.AttrTransactional, "a"))
	_, err := r.log.Append(ask)
	var rej *RejectError
	if !errors.As(err, &rej) {
		t.Fatal(err)
	}
	ask.Guard = rej.Decision.Guard
	if _, err := r.log.Append(ask); err != nil {
		t.Fatal(err)
	}
	r.sync()
	mk := batch.Marker{PID: 5, Epoch: 0, CoordEpoch: 1, Time: testWall}
	inj.Add(vfs.Rule{Op: "writeat", Match: "*.log", Nth: 1, Err: errNoSpace})
	if _, err := r.log.AppendMarker(mk, false); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	r.sync()
	if o := r.log.Offsets(); o.Stable != 0 || o.High != 1 {
		t.Fatalf("%+v", o)
	}
	if _, err := r.log.AppendMarker(mk, true); err != nil {
		t.Fatal(err)
	}
	r.sync()
	if o := r.log.Offsets(); o.Stable != 2 || o.High != 2 {
		t.Fatalf("%+v", o)
	}
	if _, err := r.log.AppendMarker(batch.Marker{PID: 5, Epoch: 0, CoordEpoch: 0}, false); !errors.Is(err, ErrMarker) ||
		!errors.Is(err, pidmap.ErrCoordFenced) {
		t.Fatal(err)
	}
}

// TestCutBackFails: a full disk whose unpublished tail cannot be cut off is no full disk any more.
func TestCutBackFails(t *testing.T) {
	r := newRig(t)
	inj := r.inject()
	r.p(1, 0, 0, 2)
	inj.Add(vfs.Rule{Op: "writeat", Match: "*.log", Nth: 1, Err: errNoSpace, Short: 70})
	inj.Add(vfs.Rule{Op: "truncate", Match: "*.log", Nth: 1, Err: errIO})
	if _, err := r.p(1, 0, 2, 2); !errors.Is(err, ErrOffline) || !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	r.log.Close()
	r.open(false)
	if r.rep.Cut.Bytes != 70 || r.rep.Cut.Batches != 0 {
		t.Fatalf("cut %+v", r.rep.Cut)
	}
	r.run(1, []step{{"again", 0, 2, 2, 2, false, ok}})
}

// TestDamageFoundByARead takes the log offline with the place of the damage, and tells whoever waits.
func TestDamageFoundByARead(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
	for i := range int32(20) {
		r.p(1, 0, i*2, 2)
	}
	f, err := r.fs.OpenFile(path.Join(testDir, logName(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0x7f}, 8); err != nil { // the length of the first batch
		t.Fatal(err)
	}
	var waiter error
	r.log.AfterReadable(40, false, &Waiter{Fn: func(err error) { waiter = err }})
	for _, err := range []error{r.log.Read(ReadIn{From: 2, BytesMax: 1000}, new(Fetch)), waiter, r.log.Err()} {
		if !errors.Is(err, ErrOffline) || !Corrupt(err) || !strings.Contains(err.Error(), logName(0)) {
			t.Fatalf("%v", err)
		}
	}
	if Corrupt(errIO) || Corrupt(nil) {
		t.Error("what is no damage counts as damage")
	}
}
