package plog

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sekali/internal/vfs"
)

// TestNothingIsVisibleBeforeItsFlush is D2 and I7, step by step through one round, rolls included.
func TestNothingIsVisibleBeforeItsFlush(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 300 })
	for i := range int32(10) {
		r.log.Append(in(numbered(1, 0, i*2, 2)))
		if o := r.log.Offsets(); o.High != 0 || o.End != int64(i*2+2) {
			t.Fatalf("%+v", o)
		}
	}
	var round Round
	r.log.BeginSync(&round)
	if len(round.sealed) < 2 || !round.dir || round.Empty() || round.End != 20 {
		t.Fatalf("%+v", round)
	}
	r.log.Append(in(numbered(1, 0, 20, 2)))
	if err := errors.Join(round.StartWrite(), round.Datasync()); err != nil {
		t.Fatal(err)
	}
	if o := r.log.Offsets(); o.High != 0 {
		t.Fatalf("visible before EndSync: %+v", o)
	}
	if got, _ := readAll(r.log, false); len(got) != 0 {
		t.Fatalf("read %v", got)
	}
	r.log.EndSync(&round, nil)
	if got := r.stored(); len(got) != 20 || r.log.Offsets().High != 20 || r.marks.get(MarkDurable) != 20 {
		t.Fatalf("after the round: %v, mark %d", got, r.marks.get(MarkDurable))
	}
	r.crash(crashAll)
	r.open(false)
	if o := r.log.Offsets(); o.End < 20 {
		t.Fatalf("I7: %+v", o)
	}
}

// TestAnIdleRoundIsEmpty: nothing is flushed where nothing was written.
func TestAnIdleRoundIsEmpty(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 1)
	var round Round
	r.log.BeginSync(&round)
	if !round.Empty() || r.log.EndSync(&round, nil) != 0 {
		t.Fatalf("%+v", round)
	}
}

// TestFlushFailsAtEachPlace: of a rolled segment, of the directory, of the active segment, or at the start of
// write-back: the log is offline and nothing became visible.
func TestFlushFailsAtEachPlace(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"rolled":     {Op: "datasync", Match: logName(0), Nth: 1, Err: errIO},
		"directory":  {Op: "syncdir", Nth: 1, Err: errIO},
		"active":     {Op: "datasync", Match: logName(4), Nth: 1, Err: errIO},
		"write-back": {Op: "startwriteback", Nth: 1, Err: errIO},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 200 })
			inj := r.inject()
			for i := range int32(3) {
				r.log.Append(in(numbered(1, 0, i*2, 2)))
			}
			if r.log.active.ID().Base != 4 {
				t.Fatalf("active from %d", r.log.active.ID().Base)
			}
			a := inj.Add(rule)
			err := r.sync()
			if a.Hits() != 1 || !errors.Is(err, errIO) || !errors.Is(r.log.Err(), ErrOffline) || r.log.Offsets().High != 0 {
				t.Fatalf("hits %d, %v, log %v, %+v", a.Hits(), err, r.log.Err(), r.log.Offsets())
			}
			r.log.Close()
			r.open(false)
			r.run(1, []step{{"works on", 0, int32(r.log.Offsets().End), 1, r.log.Offsets().End, false, ok}})
		})
	}
}

// TestWrittenMode: durability=written shows and answers at once; the durable mark is still what was flushed; after a
// roll both wait for the flush of the old segment, which is asked for at once.
func TestWrittenMode(t *testing.T) {
	hurries, dirty := 0, 0
	r := newRig(t, func(o *Options) {
		o.Written, o.Config.SegmentBytes = true, 200
		o.Hurry, o.Dirty = func() { hurries++ }, func() { dirty++ }
	})
	fired := 0
	add := func(seq int32) {
		out, err := r.log.Append(in(numbered(1, 0, seq, 2)))
		if err != nil {
			t.Fatal(err)
		}
		r.log.AfterDurable(out.Until, &Waiter{Fn: func(err error) { fired++ }})
	}
	add(0)
	add(2)
	if o := r.log.Offsets(); o != (Offsets{0, 4, 4, 4}) || fired != 2 || r.log.durable != 0 || len(r.stored()) != 4 {
		t.Fatalf("%+v, fired %d, durable %d", o, fired, r.log.durable)
	}
	add(4)
	if o := r.log.Offsets(); o.High != 4 || o.End != 6 || fired != 2 || hurries != 1 || dirty != 3 {
		t.Fatalf("after a roll: %+v, fired %d, hurries %d", o, fired, hurries)
	}
	r.sync()
	if o := r.log.Offsets(); o.High != 6 || fired != 3 || r.log.durable != 6 || r.marks.get(MarkDurable) != 6 {
		t.Fatalf("after the flush: %+v, fired %d", o, fired)
	}
	add(6)
	if o := r.log.Offsets(); o.High != 8 || fired != 4 {
		t.Fatalf("in the new segment: %+v, fired %d", o, fired)
	}
	r.restart()
	if got := r.stored(); len(got) != 8 {
		t.Fatalf("%v", got)
	}
}

// TestWrittenModeAfterAPowerLoss: what is left is a prefix, and no offset is given twice for what is left.
func TestWrittenModeAfterAPowerLoss(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, func(o *Options) { o.Written, o.Config.SegmentBytes = true, 500 })
		n := rapid.IntRange(1, 20).Draw(rt, "batches")
		flushed := 0
		for i := range n {
			r.log.Append(in(numbered(1, 0, int32(i*2), 2)))
			if rapid.IntRange(0, 3).Draw(rt, "flush") == 0 {
				r.sync()
				flushed = i + 1
			}
		}
		r.crash(vfs.CrashPlan{
			Seed: rapid.Uint64().Draw(rt, "seed"), KeepUnsynced: rapid.IntRange(0, 100).Draw(rt, "keep"), SectorSize: 512,
		})
		if err := r.tryOpen(false); err != nil {
			rt.Fatal(err)
		}
		r.sync()
		got := r.stored()
		for i, rec := range got {
			if want := numberedValue(i); rec != want {
				rt.Fatalf("record %d is %q, want %q", i, rec, want)
			}
		}
		if len(got) < flushed*2 || len(got)%2 != 0 {
			rt.Fatalf("%d records left, %d were flushed", len(got), flushed*2)
		}
		out, err := r.p(1, 0, int32(len(got)), 2)
		if err != nil || out.Base != int64(len(got)) {
			rt.Fatalf("next: %+v, %v", out, err)
		}
	})
}

// TestRetiredWhileRead: segments that retention removes stay readable for fetches that hold them, and are not found by
// new ones (I2).
func TestRetiredWhileRead(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.RetainBytes = 200, 0 })
	for i := range int32(6) {
		r.p(1, 0, i*2, 2)
	}
	var f Fetch
	if err := r.log.Read(ReadIn{BytesMax: 1 << 20}, &f); err != nil || len(f.Parts) < 3 {
		t.Fatalf("%d parts, %v", len(f.Parts), err)
	}
	var held [][]byte
	for _, p := range f.Parts {
		held = append(held, slices.Clone(p))
	}
	for range 4 {
		r.log.Tick(r.clk.Wall())
		r.sync()
	}
	if o := r.log.Offsets(); o.Start != 12 || len(r.log.view.Load().segs) != 1 {
		t.Fatalf("%+v", o)
	}
	for i, p := range f.Parts {
		if !slices.Equal(p, held[i]) {
			t.Fatalf("I2: part %d changed", i)
		}
	}
	if err := r.log.Read(ReadIn{BytesMax: 100}, new(Fetch)); !errors.Is(err, ErrRange) {
		t.Fatalf("below the log start: %v", err)
	}
	if len(r.names(".deleted")) == 0 {
		t.Fatal("the files of a pinned segment are gone")
	}
	f.Release()
	if left := r.names(".deleted"); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// TestWrittenModeFlushesBelowTheLogStart: DeleteBefore flushes what it hides, so that a power loss leaves neither a
// hole below the log start nor producers that were forgotten with it.
func TestWrittenModeFlushesBelowTheLogStart(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Written, o.Config.SegmentBytes = true, 300 })
	inj := r.inject()
	for i := range int32(3) {
		r.log.Append(in(numbered(1, 0, i*2, 2)))
	}
	if o := r.log.Offsets(); o.High != 6 || r.log.durable != 0 {
		t.Fatalf("%+v, durable %d", o, r.log.durable)
	}
	a := inj.Add(vfs.Rule{Op: "datasync", Match: "*.log"})
	if err := r.log.DeleteBefore(5); err != nil || a.Hits() != 1 {
		t.Fatalf("%v, %d flushes", err, a.Hits())
	}
	r.crash(crashAll)
	r.open(false)
	if o := r.log.Offsets(); o != (Offsets{5, 6, 6, 6}) {
		t.Fatalf("%+v", o)
	}
	r.run(1, []step{{"duplicate", 0, 2, 2, 2, true, ok}, {"next", 0, 6, 2, 6, false, ok}})
	inj = r.inject()
	r.log.Append(in(numbered(1, 0, 8, 2)))
	inj.Add(vfs.Rule{Op: "datasync", Match: "*.log", Nth: 1, Err: errIO})
	if err := r.log.DeleteBefore(10); !errors.Is(err, ErrOffline) || r.marks.get(MarkStart) != 5 {
		t.Fatalf("%v, durable start %d", err, r.marks.get(MarkStart))
	}
}

// TestLazy: an append for whose flush nobody waits says so, the next one does not, and one flush covers both; without
// Options.Lazy it is like any other.
func TestLazy(t *testing.T) {
	dirty, lazy := 0, 0
	for _, own := range []bool{true, false} {
		dirty, lazy = 0, 0
		r := newRig(t, func(o *Options) {
			o.Dirty = func() { dirty++ }
			if own {
				o.Lazy = func() { lazy++ }
			}
		})
		fired := 0
		add := func(seq int32, last bool) {
			a := in(numbered(1, 0, seq, 2))
			a.Lazy = last
			out, err := r.log.Append(a)
			if err != nil {
				t.Fatal(err)
			}
			r.log.AfterDurable(out.Until, &Waiter{Fn: func(error) { fired++ }})
		}
		add(0, true)
		if own != (lazy == 1) || own != (dirty == 0) || fired != 0 {
			t.Errorf("own %v: lazy %d, dirty %d, fired %d", own, lazy, dirty, fired)
		}
		add(2, false)
		r.log.Hasten()
		if want := map[bool]int{true: 2, false: 3}[own]; dirty != want {
			t.Errorf("own %v: dirty %d, want %d", own, dirty, want)
		}
		r.sync()
		if fired != 2 || r.log.durable != 4 {
			t.Errorf("own %v: fired %d, durable %d", own, fired, r.log.durable)
		}
	}
}
