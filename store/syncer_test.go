package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/plog"
)

// TestNoLostWakeUps: many appenders over many logs, each waiting for every one of its batches to be durable. A
// wake-up that got lost would leave its appender waiting for ever.
func TestNoLostWakeUps(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"fdatasync": nil,
		"syncfs":    func(c *Config) { c.SyncFS = true },
		"one":       func(c *Config) { c.Syncers = 1 },
		"real time": func(c *Config) { c.Clock = clock.Real() },
	} {
		t.Run(name, func(t *testing.T) {
			n := mustStart(t, vfs.NewMem(), edit)
			defer mustClose(t, n)
			const parts, each = 24, 60
			n.create(t, "t", parts, nil)
			var wg sync.WaitGroup
			for p := range int32(parts) {
				l := log(t, n, "t", p)
				for w := range int64(2) {
					wg.Go(func() {
						for i := range int32(each) {
							if _, err := putDurable(l, oneBatch(w, i, "v")); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			for p := range int32(parts) {
				if at := log(t, n, "t", p).Offsets(); at.High != 2*each || at.End != 2*each {
					t.Errorf("partition %d: %+v", p, at)
				}
			}
			if w, b := n.s.load.Waiting.Load(), n.s.load.Bytes.Load(); w != 0 || b != 0 {
				t.Errorf("at rest %d wait and %d bytes are unflushed", w, b)
			}
		})
	}
}

// TestGroupCommit: 64 writers of one partition share flushes: while one flush runs, the others gather.
func TestGroupCommit(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.Clock = clock.Real() })
	defer mustClose(t, n)
	n.create(t, "t", 1, nil)
	l := log(t, n, "t", 0)
	if _, err := putDurable(l, oneBatch(99, 0, "first")); err != nil {
		t.Fatal(err)
	}
	flushes := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Delay: 2 * time.Millisecond})
	const writers, each = 64, 10
	var wg sync.WaitGroup
	for w := range int64(writers) {
		wg.Go(func() {
			for i := range int32(each) {
				if _, err := putDurable(l, oneBatch(w, i, "v")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if hits := flushes.Hits(); hits < each || hits > 4*each {
		t.Fatalf("%d flushes for %d writers of %d batches each", hits, writers, each)
	}
}

// TestGather: a round waits for the crowd that each of the last rounds had, for what was announced when it began, and
// for nothing else: a lone writer that appends to several logs in turn is no crowd.
func TestGather(t *testing.T) {
	for name, c := range map[string]struct {
		crowds          [crowdRounds]int64
		waiting         int64
		announced, came int64
		waits           bool
	}{
		"nobody":                {},
		"lone writer":           {crowds: [3]int64{1, 1, 1}, waiting: 1},
		"two logs, then one":    {crowds: [3]int64{2, 1, 2}, waiting: 1},
		"half a crowd":          {crowds: [3]int64{8, 9, 8}, waiting: 4, waits: true},
		"the crowd is here":     {crowds: [3]int64{8, 9, 8}, waiting: 8},
		"an append is to come":  {crowds: [3]int64{1, 1, 1}, waiting: 1, announced: 3, came: 2, waits: true},
		"every append has come": {crowds: [3]int64{1, 1, 1}, waiting: 1, announced: 3, came: 3},
	} {
		t.Run(name, func(t *testing.T) {
			n := mustStart(t, vfs.NewMem(), func(c *Config) { c.Clock = clock.Real() })
			defer mustClose(t, n)
			y := newSyncer(n.s)
			y.crowds, y.mean = c.crowds, 40*time.Millisecond
			y.expected.Store(c.announced)
			y.arrived.Store(c.came)
			n.s.load.Waiting.Store(c.waiting)
			defer n.s.load.Waiting.Store(0)
			began := time.Now()
			y.gather()
			if took := time.Since(began); c.waits != (took >= y.mean/gatherShare) {
				t.Errorf("waited %v, mean flush %v", took, y.mean)
			}
		})
	}
}

// TestExpect: a round that has not begun takes the announced append along and begins as soon as it is there.
func TestExpect(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), func(c *Config) { c.Clock = clock.Real() })
	defer mustClose(t, n)
	n.s.sync.turn.Lock()
	n.s.sync.mean = time.Hour
	n.s.sync.turn.Unlock()
	n.create(t, "t", 2, nil)
	journal, data := log(t, n, "t", 0), log(t, n, "t", 1)
	n.s.Expect()
	durable := make(chan error, 2)
	for i, l := range []*plog.Log{journal, data} {
		out, err := put(l, oneBatch(1, 0, "v"))
		if err != nil {
			t.Fatal(err)
		}
		l.AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { durable <- err }})
		if i == 0 {
			select {
			case <-durable:
				t.Fatal("the round did not wait for the announced append")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	n.s.Arrived()
	for range 2 {
		if err := <-durable; err != nil {
			t.Fatal(err)
		}
	}
}

// TestLazyAppend: what nobody waits for is flushed with the next append of its log, or by the next Tick, and not
// before.
func TestLazyAppend(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.Clock = clock.Real() })
	defer mustClose(t, n)
	n.create(t, "t", 1, nil)
	l := log(t, n, "t", 0)
	if _, err := putDurable(l, oneBatch(1, 0, "first")); err != nil {
		t.Fatal(err)
	}
	flushes := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log"})
	durable := make(chan error, 1)
	lazily := func(seq int32) {
		v := oneBatch(1, seq, "v")
		out, err := l.Append(plog.AppendIn{Batch: v, Checked: batch.Checked{MaxTime: v.MaxTime()}, Version: 9, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		l.AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { durable <- err }})
		select {
		case <-durable:
			t.Fatal("flushed at once")
		case <-time.After(10 * time.Millisecond):
		}
	}
	lazily(1)
	if _, err := putDurable(l, oneBatch(1, 2, "v")); err != nil {
		t.Fatal(err)
	}
	if err := <-durable; err != nil || flushes.Hits() != 1 {
		t.Fatalf("%v, %d flushes of two appends", err, flushes.Hits())
	}
	for seq := range int32(3) {
		lazily(3 + seq)
		n.s.Tick()
		if err := <-durable; err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedFlushTakesItsOwnLogOffline: of many logs in one round the one whose flush fails goes offline, no other
// (I15), in both ways of flushing.
func TestFailedFlushTakesItsOwnLogOffline(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"fdatasync": nil, "syncfs": func(c *Config) { c.SyncFS = true },
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			fs := vfs.Inject(m)
			n := mustStart(t, fs, edit)
			const parts = 12
			n.create(t, "t", parts, nil)
			for p := range int32(parts) {
				if _, err := putDurable(log(t, n, "t", p), oneBatch(1, 0, "kept")); err != nil {
					t.Fatal(err)
				}
			}
			gate := make(chan struct{})
			hold := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Nth: 1, Do: func() { <-gate }})
			m.FailSync(dataDir+"/t-5/*.log", 1, syscall.EIO)
			errs := make([]error, parts)
			var wg, appended sync.WaitGroup
			appended.Add(parts)
			for p := range int32(parts) {
				wg.Go(func() {
					l := log(t, n, "t", p)
					out, err := put(l, oneBatch(1, 1, "next"))
					done := make(chan error, 1)
					if err == nil {
						l.AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { done <- err }})
					} else {
						done <- err
					}
					appended.Done()
					errs[p] = <-done
				})
			}
			appended.Wait() // the first flush is held until all stand in a later round
			close(gate)
			wg.Wait()
			hold.Remove()
			for p, err := range errs {
				if p == 5 && (!errors.Is(err, plog.ErrOffline) || !errors.Is(err, syscall.EIO)) || p != 5 && err != nil {
					t.Errorf("partition %d: %v", p, err)
				}
			}
			for p := range int32(parts) {
				l, _ := n.s.Partition(TP{Topic: "t", Partition: p})
				if at := l.Offsets(); p == 5 && (l.Err() == nil || at.High != 1) || p != 5 && (l.Err() != nil || at.High != 2) {
					t.Errorf("partition %d: %+v, %v", p, at, l.Err())
				}
			}
			if err := n.close(); !errors.Is(err, plog.ErrOffline) {
				t.Errorf("a stop with a partition offline: %v", err)
			}
			if ok, _ := vfs.Exists(m, dataDir+"/"+CleanFile); ok {
				t.Error("a stop with a partition offline was called clean")
			}
		})
	}
}

// TestSyncFSError: a failed SyncAll publishes nothing until each file's own flush has told whose error it was; here
// it was nobody's.
func TestSyncFSError(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.SyncFS = true })
	defer mustClose(t, n)
	n.create(t, "t", 8, nil)
	failed := fs.Add(vfs.Rule{Op: "syncall", Err: syscall.EIO})
	gate := make(chan struct{})
	flushes := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Nth: 1, Do: func() { <-gate }})
	var wg, appended sync.WaitGroup
	appended.Add(8)
	for p := range int32(8) {
		wg.Go(func() {
			l := log(t, n, "t", p)
			if _, err := put(l, oneBatch(1, 0, "v")); err != nil {
				t.Error(err)
			}
			appended.Done()
			for i := range int32(20) {
				if _, err := putDurable(l, oneBatch(1, i+1, "v")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	appended.Wait() // the first round is held until all stand in the next
	close(gate)
	wg.Wait()
	flushes.Remove()
	if failed.Hits() == 0 || flushes.Hits() != 1 {
		t.Fatalf("%d rounds failed, %d flushes", failed.Hits(), flushes.Hits())
	}
}

// TestSyncFSErrorOfAnotherRound: a SyncAll that fails may lose pages of a log that is not in its round. The next one
// succeeds and says nothing, so the log's own flush is asked before anything of it is published.
func TestSyncFSErrorOfAnotherRound(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, func(c *Config) { c.SyncFS = true })
	topic := n.create(t, "t", 4, nil)
	victim := topic.parts[0]
	n.s.sync.keepOut(victim)
	out, err := put(victim.log.Load(), oneBatch(1, 0, "lost"))
	if err != nil {
		t.Fatal(err)
	}
	m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
	if err := n.s.sync.flush(topic.parts[1:3], true); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the flush of everything: %v", err)
	}
	for _, p := range topic.parts[1:3] {
		if p.log.Load().Err() != nil {
			t.Fatalf("%s went offline for another's error", p.tp)
		}
	}
	done := make(chan error, 1)
	victim.log.Load().AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { done <- err }})
	n.s.sync.bringBack(victim)
	if err := n.s.sync.flush(topic.parts, true); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, plog.ErrOffline) || victim.log.Load().Offsets().High != 0 {
		t.Fatalf("acknowledged from pages the disk never had: %v", err)
	}
	if err := n.close(); !errors.Is(err, plog.ErrOffline) {
		t.Fatal(err)
	}
}

// TestSyncFSErrorBehindARound: what is appended while a round is under way, and lost by its failed SyncAll, is not
// taken for durable because that round had nothing of its log to flush.
func TestSyncFSErrorBehindARound(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, func(c *Config) { c.SyncFS = true })
	topic := n.create(t, "t", 3, nil)
	victim := topic.parts[0]
	n.s.sync.keepOut(victim)
	var out plog.AppendOut
	hook := fs.Add(vfs.Rule{Op: "syncall", Nth: 1, Do: func() {
		var err error
		if out, err = put(victim.log.Load(), oneBatch(1, 0, "lost")); err != nil {
			t.Error(err)
		}
	}})
	m.FailSync(dataDir+"/t-0/*.log", 1, syscall.EIO)
	if err := n.s.sync.flush(topic.parts[:2], true); !errors.Is(err, syscall.EIO) || hook.Hits() == 0 {
		t.Fatalf("the flush of everything: %v", err)
	}
	done := make(chan error, 1)
	victim.log.Load().AfterDurable(out.Until, &plog.Waiter{Fn: func(err error) { done <- err }})
	if err := n.s.sync.flush(topic.parts, true); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, plog.ErrOffline) || victim.log.Load().Offsets().High != 0 {
		t.Fatalf("acknowledged from pages the disk never had: %v", err)
	}
	if err := n.close(); !errors.Is(err, plog.ErrOffline) {
		t.Fatal(err)
	}
}

// TestWrittenMode: appends wake nobody and are visible at once; the flush comes with the next Tick, and a roll does
// not wait for it.
func TestWrittenMode(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.Written = true })
	n.create(t, "t", 2, map[string]string{"internal.segment.bytes": "400"})
	l := log(t, n, "t", 0)
	flushes := fs.Add(vfs.Rule{Op: "datasync", Match: "*.log"})
	for i := range int32(3) {
		if _, err := putDurable(l, oneBatch(1, i, "v")); err != nil {
			t.Fatal(err)
		}
	}
	if at := l.Offsets(); at.High != 3 || flushes.Hits() != 0 {
		t.Fatalf("%+v after %d flushes", at, flushes.Hits())
	}
	n.tick(1)
	waitFor(t, func() bool { return flushes.Hits() == 1 && n.s.load.Bytes.Load() == 0 })
	for i := int32(3); i < 12; i++ { // rolls: the old segment is flushed before the next acknowledges
		if _, err := putDurable(l, oneBatch(1, i, "v")); err != nil {
			t.Fatal(err)
		}
	}
	if flushes.Hits() < 2 {
		t.Fatalf("a roll in written mode without a flush: %d", flushes.Hits())
	}
	mustClose(t, n)
}

// waitFor polls for what another goroutine brings about; the test's deadline bounds it.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for !ok() {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		clock.Sleep(clock.Real(), 200*time.Microsecond)
	}
}

// TestLossIsTold: after a power loss in written mode the next start says how much was visible and is gone.
func TestLossIsTold(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, func(c *Config) { c.Written = true })
	n.create(t, "t", 1, nil)
	l := log(t, n, "t", 0)
	for i := range int32(4) {
		if _, err := put(l, oneBatch(1, i, "v")); err != nil {
			t.Fatal(err)
		}
	}
	fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Do: func() {}, Err: errDead, Nth: 1, Times: -1})
	n.clk.Advance(time.Second)
	if err := n.s.fileHighs(); err != nil {
		t.Fatal(err)
	}
	after := m.Crash(vfs.CrashPlan{})
	_ = n.close()
	n = mustStart(t, after, func(c *Config) { c.Written = true })
	defer mustClose(t, n)
	if n.told(NoticeLoss) != 1 {
		t.Fatalf("%+v", n.notices)
	}
	for _, x := range n.notices {
		if x.Kind == NoticeLoss && (x.N != 4 || x.TP.Topic != "t") {
			t.Fatalf("%+v", x)
		}
	}
}

// TestKeepOutDuringRounds takes parts out and brings them back while appenders hammer others: the part is in no round
// while it is out.
func TestKeepOutDuringRounds(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), nil)
	defer mustClose(t, n)
	n.create(t, "busy", 4, nil)
	topic := n.create(t, "out", 1, nil)
	p := topic.parts[0]
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range int32(4) {
		wg.Go(func() {
			for seq := int32(0); !stop.Load(); seq++ {
				if _, err := putDurable(log(t, n, "busy", i), oneBatch(1, seq, "v")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range int32(200) {
		n.s.sync.keepOut(p)
		if _, err := put(p.log.Load(), oneBatch(1, i, "v")); err != nil {
			t.Fatal(err)
		}
		if at := p.log.Load().Offsets(); at.High != int64(i) {
			t.Fatalf("flushed while it was out: %+v", at)
		}
		n.s.sync.bringBack(p)
		n.s.sync.mark(p)
		waitFor(t, func() bool { return p.log.Load().Offsets().High == int64(i)+1 })
	}
	stop.Store(true)
	wg.Wait()
}

// TestMarksLagASecond: the file of durable marks holds the values of the second before.
func TestMarksLagASecond(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	n.create(t, "t", 1, nil)
	mark := func() int64 {
		o, err := ReadOffsets(m, dataDir, MarkFile)
		if err != nil {
			t.Fatal(err)
		}
		return o[Place{"t", 0}]
	}
	l := log(t, n, "t", 0)
	var got []int64
	for i := range int32(4) {
		if _, err := putDurable(l, oneBatch(1, i, "v")); err != nil {
			t.Fatal(err)
		}
		n.tick(1)
		got = append(got, mark())
	}
	n.tick(1)
	got = append(got, mark())
	if want := []int64{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Fatalf("marks %v, want %v", got, want)
	}
	if _, err := putDurable(l, oneBatch(1, 4, "v")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, n)
	if mark() != 5 {
		t.Fatalf("mark %d after a clean stop, want the end", mark())
	}
}

// TestMarksKeepTheirOrder: a recovery point that rises waits for the others, but not behind a log start, whose
// segments go; marks that fall, before a log is cut, are in the file when the call returns.
func TestMarksKeepTheirOrder(t *testing.T) {
	m := vfs.NewMem()
	n := mustStart(t, m, nil)
	defer mustClose(t, n)
	p := n.create(t, "t", 1, nil).parts[0]
	fill(t, p.log.Load(), 9)
	step := func(kind plog.MarkKind, at int64) {
		t.Helper()
		if err := p.persist(kind, at); err != nil {
			t.Fatal(err)
		}
	}
	read := func() [3]int64 {
		t.Helper()
		var out [3]int64
		for i, name := range []string{RecoveryFile, StartFile, MarkFile} {
			o, err := ReadOffsets(m, dataDir, name)
			if err != nil {
				t.Fatal(err)
			}
			out[i] = o[Place{"t", 0}]
		}
		return out
	}
	for i, c := range []struct {
		kind plog.MarkKind
		at   int64
		want [3]int64
	}{
		{plog.MarkRecovery, 5, [3]int64{0, 0, 0}},
		{plog.MarkStart, 4, [3]int64{5, 4, 0}},
		{plog.MarkRecovery, 7, [3]int64{5, 4, 0}},
		{plog.MarkRecovery, 6, [3]int64{6, 4, 0}},
		{plog.MarkDurable, 9, [3]int64{6, 4, 0}},
		{plog.MarkDurable, 8, [3]int64{6, 4, 0}},
	} {
		step(c.kind, c.at)
		if got := read(); got != c.want {
			t.Errorf("step %d: recovery, start, mark %v, want %v", i, got, c.want)
		}
	}
	n.tick(2)
	if got := read(); got != [3]int64{9, 4, 8} && got != [3]int64{6, 4, 8} {
		t.Errorf("after two seconds %v", got)
	}
	step(plog.MarkDurable, 7)
	if got := read(); got[2] != 7 {
		t.Errorf("a mark that fell is %d in the file, want 7", got[2])
	}
	n.tick(2)
	if got := read(); got[2] != 7 {
		t.Errorf("the mark went up again to %d", got[2])
	}
	if err := p.persist(plog.MarkKind(99), 0); err == nil {
		t.Error("a mark of no kind")
	}
}

// TestWorkersFlushSideBySide: up to Syncers flushes of a round run at the same time.
func TestWorkersFlushSideBySide(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	n := mustStart(t, fs, func(c *Config) { c.Syncers = 3 })
	defer mustClose(t, n)
	topic := n.create(t, "t", 8, nil)
	for _, p := range topic.parts {
		n.s.sync.keepOut(p)
		if _, err := put(p.log.Load(), oneBatch(1, 0, "v")); err != nil {
			t.Fatal(err)
		}
	}
	var now, most atomic.Int64
	meet := make(chan struct{})
	fs.Add(vfs.Rule{Op: "datasync", Match: "*.log", Do: func() {
		raise(&most, now.Add(1))
		if now.Load() == 3 {
			close(meet)
		}
		<-meet
		now.Add(-10)
	}})
	if err := n.s.sync.flush(topic.parts, false); err != nil {
		t.Fatal(err)
	}
	if most.Load() != 3 {
		t.Fatalf("%d flushes side by side, want 3", most.Load())
	}
	for _, p := range topic.parts {
		n.s.sync.bringBack(p)
	}
}

// TestCloseDeadline: a disk that hangs does not keep Close beyond its context, and the directory is then not called
// clean.
func TestCloseDeadline(t *testing.T) {
	m := vfs.NewMem()
	fs := vfs.Inject(m)
	n := mustStart(t, fs, nil)
	n.create(t, "t", 1, nil)
	gate := make(chan struct{})
	fs.Add(vfs.Rule{Op: "datasync", Match: "*.snapshot.tmp", Nth: 1, Do: func() { <-gate }})
	if _, err := putDurable(log(t, n, "t", 0), oneBatch(1, 0, "v")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- n.s.Close(ctx) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if ok, _ := vfs.Exists(m, dataDir+"/"+CleanFile); ok {
		t.Fatal("called clean before it was closed")
	}
	close(gate)
	waitFor(t, func() bool { ok, _ := vfs.Exists(m, dataDir+"/"+CleanFile); return ok })
	if err := n.s.Close(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("a second Close: %v", err)
	}
	n.letGo()
	if _, err := n.s.CreateTopics(NewTopic{Name: "x", Partitions: 1}); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

// TestHighFileHasOneWriter: the ticker and a deletion of a topic write the high watermarks at the same time.
func TestHighFileHasOneWriter(t *testing.T) {
	n := mustStart(t, vfs.NewMem(), func(c *Config) { c.Written = true })
	defer mustClose(t, n)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if err := n.s.fileHighs(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
