package plog

import (
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/segment"
)

// ticks lets housekeeping come to rest.
func (r *rig) ticks(n int) {
	for range n {
		r.log.Tick(r.clk.Wall())
		r.sync()
		r.clk.Advance(time.Second)
	}
}

// at makes a batch of one record with a timestamp.
func at(ms int64, val string) batch.View {
	b := batch.Builder{BaseTime: ms}
	b.Add(batch.Record{Value: []byte(val)})
	return b.Done(0, -1, -1, -1)
}

// TestRetentionBySize keeps the newest segments whose sum stays above the limit, and offsets do not move (F6).
func TestRetentionBySize(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.RetainBytes = 300, 700 })
	for i := range int32(20) {
		r.p(1, 0, i*2, 2)
	}
	before := r.stored()
	r.ticks(4)
	o := r.log.Offsets()
	if o.Start == 0 || o.High != 40 || r.log.Size() < 700 || r.log.Size()-700 > 300 {
		t.Fatalf("%+v, %d bytes", o, r.log.Size())
	}
	if got := r.stored(); !slices.Equal(got, before[o.Start:]) {
		t.Fatalf("%v", got)
	}
	if r.marks.get(MarkStart) != o.Start {
		t.Fatalf("durable start %d", r.marks.get(MarkStart))
	}
	for how, restart := range restarts {
		restart(r)
		if got := r.log.Offsets(); got.Start != o.Start || got.High != 40 {
			t.Fatalf("after %s: %+v", how, got)
		}
	}
	r.run(1, []step{{"next", 0, 40, 2, 40, false, ok}})
}

// TestRetentionByTime counts from the largest timestamp of a segment, by the wall clock; when all of it is old, an
// empty segment remains and producers are still known.
func TestRetentionByTime(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.RetainMs = 300, 10_000 })
	for i := range int32(6) {
		r.p(1, 0, i*2, 2)
	}
	r.ticks(3)
	if o := r.log.Offsets(); o.Start != 0 {
		t.Fatalf("too early: %+v", o)
	}
	r.clk.SetWall(testWall + 20_000)
	r.ticks(4)
	if o := r.log.Offsets(); o != (Offsets{12, 12, 12, 12}) || r.log.Size() != 0 {
		t.Fatalf("%+v, %d bytes", o, r.log.Size())
	}
	for _, restart := range restarts {
		r.run(1, []step{{"duplicate of what is gone", 0, 10, 2, 10, true, ok}})
		restart(r)
	}
	r.run(1, []step{{"next", 0, 12, 2, 12, false, ok}})
	if len(r.names(".log")) != 1 {
		t.Fatalf("files %v", r.names(""))
	}
}

// TestRetentionKeepsWhatIsNotDurable and what a future timestamp covers.
func TestRetentionKeepsWhatIsNotDurable(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.RetainBytes = 300, 0 })
	for i := range int32(6) {
		r.log.Append(in(numbered(1, 0, i*2, 2)))
	}
	for range 3 {
		r.log.Tick(r.clk.Wall())
	}
	if o := r.log.Offsets(); o.Start != 0 || o.High != 0 {
		t.Fatalf("I1: %+v", o)
	}
	r.sync()
	if got := r.stored(); len(got) != 12 {
		t.Fatalf("%v", got)
	}
}

func TestCompactOnlyTopicsKeepTheirSegments(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Config.SegmentBytes, o.Config.RetainBytes, o.Config.RetainMs = 300, 0, 0
		o.Config.Delete, o.Config.Compact = false, true
	})
	for i := range int32(6) {
		r.p(1, 0, i*2, 2)
	}
	r.clk.SetWall(testWall + 1e9)
	r.ticks(4)
	if o := r.log.Offsets(); o.Start != 0 {
		t.Fatalf("%+v", o)
	}
	if err := r.log.DeleteBefore(8); err != nil {
		t.Fatal(err)
	}
	r.ticks(4)
	if o := r.log.Offsets(); o.Start != 8 || len(r.log.view.Load().segs) > 2 {
		t.Fatalf("below the log start: %+v, %d segments", o, len(r.log.view.Load().segs))
	}
}

// TestStartIsDurableBeforeFilesGo: the order of persisting the log start and renaming the first file away.
func TestStartIsDurableBeforeFilesGo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.RetainBytes = 300, 0 })
	inj := r.inject()
	for i := range int32(6) {
		r.p(1, 0, i*2, 2)
	}
	var mu sync.Mutex
	var order []string
	r.marks.fn = func(k MarkKind, offset int64) error {
		if k == MarkStart {
			mu.Lock()
			order = append(order, "start")
			mu.Unlock()
		}
		return nil
	}
	inj.Add(vfs.Rule{Op: "rename", Match: "*.deleted", Do: func() {
		mu.Lock()
		order = append(order, "rename")
		mu.Unlock()
	}})
	r.ticks(4)
	if len(order) < 4 || order[0] != "start" || slices.Index(order, "rename") < 1 {
		t.Fatalf("%v", order)
	}
}

// TestPointIsDurableBeforeFilesGo: a recovery point may become durable only when the log start is told again, and no
// segment and no snapshot goes before that, also where the start had been raised long before.
func TestPointIsDurableBeforeFilesGo(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 1500 })
	inj := r.inject()
	var owing atomic.Bool
	r.marks.fn = func(k MarkKind, _ int64) error {
		if k == MarkRecovery || k == MarkStart {
			owing.Store(k == MarkRecovery)
		}
		return nil
	}
	early, gone := 0, 0
	look := func() {
		if gone++; owing.Load() {
			early++
		}
	}
	inj.Add(vfs.Rule{Op: "rename", Match: "*.log", Do: look})
	inj.Add(vfs.Rule{Op: "remove", Match: "*" + snapshotSuffix, Do: look})
	for i := range int32(60) {
		r.p(1, 0, i, 1)
		if i%20 == 19 {
			if err := r.log.DeleteBefore(int64(i - 3)); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			r.clk.Advance(checkpointAge)
			r.log.Tick(r.clk.Wall())
		}
	}
	if r.ticks(3); early > 0 || gone < 10 {
		t.Fatalf("%d of %d files went before the recovery point was durable", early, gone)
	}
}

// TestDeleteBefore returns when the new start is durable, and is refused where it cannot be.
func TestDeleteBefore(t *testing.T) {
	r := newRig(t)
	for i := range int32(5) {
		r.p(1, 0, i*2, 2)
	}
	r.log.Append(in(numbered(1, 0, 10, 2)))
	for _, bad := range []int64{-1, 11, 12, 1 << 40} {
		if err := r.log.DeleteBefore(bad); !errors.Is(err, ErrRange) {
			t.Errorf("DeleteBefore(%d): %v", bad, err)
		}
	}
	refused := errors.New("no room for a checkpoint")
	r.marks.fn = func(MarkKind, int64) error { return refused }
	if err := r.log.DeleteBefore(3); !errors.Is(err, refused) || r.log.Offsets().Start != 0 {
		t.Fatalf("%v, %+v", err, r.log.Offsets())
	}
	r.marks.fn = nil
	var wg sync.WaitGroup
	for i := int64(1); i <= 10; i++ {
		wg.Go(func() {
			if err := r.log.DeleteBefore(i); err != nil || r.marks.get(MarkStart) < i {
				t.Errorf("DeleteBefore(%d): %v, durable %d", i, err, r.marks.get(MarkStart))
			}
		})
	}
	wg.Wait()
	if r.log.Offsets().Start != 10 || r.marks.get(MarkStart) != 10 {
		t.Fatalf("start %d, durable %d", r.log.Offsets().Start, r.marks.get(MarkStart))
	}
	if err := r.log.DeleteBefore(4); err != nil || r.log.Offsets().Start != 10 {
		t.Fatalf("back: %v, %+v", err, r.log.Offsets())
	}
}

// TestStartPassesAnOpenTransaction: the log start stands in for its first offset (I1).
func TestStartPassesAnOpenTransaction(t *testing.T) {
	r := newRig(t)
	r.openTransaction(5, "a")
	for i := range int32(5) {
		r.p(1, 0, i*2, 2)
	}
	if o := r.log.Offsets(); o.Stable != 0 || o.High != 11 {
		t.Fatalf("%+v", o)
	}
	if err := r.log.DeleteBefore(4); err != nil {
		t.Fatal(err)
	}
	if o := r.log.Offsets(); o != (Offsets{4, 4, 11, 11}) {
		t.Fatalf("%+v", o)
	}
	r.p(1, 0, 10, 1)
	if o := r.log.Offsets(); o != (Offsets{4, 4, 12, 12}) {
		t.Fatalf("%+v", o)
	}
	r.restart()
	if o := r.log.Offsets(); o != (Offsets{4, 4, 12, 12}) {
		t.Fatalf("after a stop: %+v", o)
	}
	r.log.AppendMarker(batch.Marker{PID: 5, CoordEpoch: 1}, false)
	r.sync()
	if o := r.log.Offsets(); o != (Offsets{4, 13, 13, 13}) {
		t.Fatalf("%+v", o)
	}
}

// TestRecoveryPointNeverLeads: it is raised only when log, indexes and snapshot below it are on disk.
func TestRecoveryPointNeverLeads(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 1000 })
	check := func() {
		t.Helper()
		rec := r.marks.get(MarkRecovery)
		if rec > r.log.Offsets().High {
			t.Fatalf("recovery point %d above %+v", rec, r.log.Offsets())
		}
		if rec > 0 && !slices.ContainsFunc(r.names(snapshotSuffix), func(n string) bool {
			return strings.TrimLeft(strings.TrimSuffix(n, snapshotSuffix), "0") == itoa(rec)
		}) {
			t.Fatalf("no snapshot at the recovery point %d: %v", rec, r.names(snapshotSuffix))
		}
	}
	for i := range int32(60) {
		r.log.Append(in(numbered(1, 0, i*2, 2)))
		if i%7 == 0 {
			r.clk.Advance(checkpointAge)
		}
		r.log.Tick(r.clk.Wall())
		check()
		if i%3 == 0 {
			r.sync()
		}
		r.log.Tick(r.clk.Wall())
		check()
	}
	if r.marks.get(MarkRecovery) < 60 {
		t.Fatalf("the recovery point stays at %d", r.marks.get(MarkRecovery))
	}
	loose := 0
	for _, n := range r.names(snapshotSuffix) {
		if ok, _ := vfs.Exists(r.fs, path.Join(testDir, strings.TrimSuffix(n, snapshotSuffix)+".log")); !ok {
			loose++
		}
	}
	if loose > snapshotsKept {
		t.Fatalf("%d snapshots on no segment border: %v", loose, r.names(snapshotSuffix))
	}
}

// TestTheVouchedSnapshotStays: snapshots that nothing vouches for yet do not push out the one at the recovery point.
func TestTheVouchedSnapshotStays(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 400 })
	for i := range int32(11) {
		r.p(1, 0, i*2, 2)
	}
	r.clk.Advance(checkpointAge)
	r.ticks(3)
	vouched := r.marks.get(MarkRecovery)
	if vouched != 22 || r.log.active.ID().Base == vouched {
		t.Fatalf("recovery point %d, active from %d", vouched, r.log.active.ID().Base)
	}
	for i := range int32(5) {
		r.log.Append(in(numbered(1, 0, 22+i, 1)))
		r.clk.Advance(checkpointAge)
		r.log.Tick(r.clk.Wall())
	}
	c := r.o.Config
	c.RetainBytes = 0
	r.log.Configure(c)
	r.log.Tick(r.clk.Wall())
	if o := r.log.Offsets(); o.Start == 0 || r.marks.get(MarkRecovery) != vouched {
		t.Fatalf("%+v, recovery point %d", o, r.marks.get(MarkRecovery))
	}
	if n := r.names(snapshotSuffix); !slices.Contains(n, segment.Name(vouched, snapshotSuffix)) || len(n) < 5 {
		t.Fatalf("snapshots %v", n)
	}
	r.crash(crashAll)
	r.open(false)
	r.run(1, []step{{"duplicate", 0, 20, 2, 20, true, ok}, {"next", 0, 22, 1, 22, false, ok}})
}

// TestExpiry: idle producers go by the monotonic clock, never one with an open transaction, and the wall clock has no
// say (A8).
func TestExpiry(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Pids.ExpireAfter = time.Hour })
	r.p(1, 0, 0, 5)
	r.openTransaction(5, "a")
	r.sync()
	r.clk.SetWall(testWall + 1e12)
	r.log.Tick(r.clk.Wall())
	if n := r.log.ProducerCount(); n != 2 {
		t.Fatalf("%d producers after a jump of the wall clock", n)
	}
	r.clk.Advance(40 * time.Minute)
	r.restart()
	r.log.Tick(r.clk.Wall())
	if n := r.log.ProducerCount(); n != 2 {
		t.Fatalf("%d producers after 40 minutes", n)
	}
	r.clk.Advance(30 * time.Minute)
	r.log.Tick(r.clk.Wall())
	var left []int64
	r.log.OpenTxns(func(pid int64, _ int16, first int64) bool { left = append(left, pid, first); return true })
	if r.log.ProducerCount() != 1 || !slices.Equal(left, []int64{5, 5}) {
		t.Fatalf("%d producers, open %v", r.log.ProducerCount(), left)
	}
	out, err := r.p(1, 0, 5, 1)
	if err != nil || !out.Unproven {
		t.Fatalf("a forgotten producer goes on: %+v, %v", out, err)
	}
	r.run(1, []step{{"6", 0, 6, 1, 7, false, ok}, {"5 again", 0, 5, 1, 6, true, ok}})
}

// TestCapOnProducers evicts the least recently used and says so.
func TestCapOnProducers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Pids.ProducersMax = 3 })
	for pid := range int64(5) {
		r.clk.Advance(time.Second)
		r.p(pid, 0, 0, 1)
	}
	r.log.Tick(r.clk.Wall())
	if r.log.ProducerCount() != 3 || r.ev.evicted != 2 {
		t.Fatalf("%d producers, told %d", r.log.ProducerCount(), r.ev.evicted)
	}
}

// TestIdleSegmentRollsByAge, by the time it has been open, whatever its records say.
func TestIdleSegmentRollsByAge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentMs = 60_000 })
	for i := range int64(5) {
		r.log.Append(in(at(testWall-1e10+i, "from last year")))
		r.sync()
		r.ticks(1)
	}
	if n := len(r.log.view.Load().segs); n != 1 {
		t.Fatalf("%d segments by record time", n)
	}
	r.clk.Advance(time.Minute)
	r.ticks(2)
	if n := len(r.log.view.Load().segs); n != 2 || !slices.Equal(r.ev.rolled, []int64{5}) {
		t.Fatalf("%d segments, rolled %v", n, r.ev.rolled)
	}
	r.clk.Advance(2 * time.Minute)
	r.ticks(2)
	if n := len(r.log.view.Load().segs); n != 2 {
		t.Fatalf("an empty segment rolled: %d", n)
	}
}
