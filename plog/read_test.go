package plog

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
)

// TestReadAgainstBatches compares Read with the list of stored batches for any offset and budget: whole batches from
// the one that holds the offset on, as many as fit, at least one where asked, More exactly where the budget cut.
func TestReadAgainstBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, func(o *Options) { o.Config.SegmentBytes, o.Config.IndexInterval = 600, 150 })
		var all []batch.View
		for range rapid.IntRange(1, 25).Draw(rt, "batches") {
			v, _ := (&model{}).batch(-1, 0, 0, rapid.IntRange(1, 6).Draw(rt, "n"), 0)
			if _, err := r.log.Append(in(v)); err != nil {
				rt.Fatal(err)
			}
			all = append(all, v)
		}
		visible := r.log.Offsets().End
		if rapid.Bool().Draw(rt, "tail") {
			r.sync()
			r.log.Append(in(numbered(1, 0, 0, 2)))
		} else {
			r.sync()
		}
		var f Fetch
		defer f.Release()
		for range 20 {
			ask := ReadIn{
				From: rapid.Int64Range(0, visible).Draw(rt, "from"), BytesMax: rapid.IntRange(0, 1500).Draw(rt, "max"),
				AtLeast1: rapid.Bool().Draw(rt, "atLeast1"), Copy: rapid.Bool().Draw(rt, "copy"),
				Committed: rapid.Bool().Draw(rt, "committed"),
			}
			if err := r.log.Read(ask, &f); err != nil {
				rt.Fatal(err)
			}
			got := bytes.Join(f.Parts, nil)
			var want []byte
			more := false
			for _, v := range all {
				if v.LastOffset() < ask.From {
					continue
				}
				if len(want)+len(v) > ask.BytesMax && !(ask.AtLeast1 && len(want) == 0) {
					more = true
					break
				}
				want = append(want, v...)
			}
			if !bytes.Equal(got, want) || f.More != more {
				rt.Fatalf("%+v: %d bytes, more %v; want %d, %v", ask, len(got), f.More, len(want), more)
			}
			if f.Start != 0 || f.Stable != visible || f.High != visible {
				rt.Fatalf("watermarks %d, %d, %d; want high %d", f.Start, f.Stable, f.High, visible)
			}
		}
	})
}

// TestStoredAsSent is I3: bytes differ from what was sent in base offset and leader epoch alone, where the topic keeps
// the producer's timestamps and they were right.
func TestStoredAsSent(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 7)
	sent := numbered(2, 0, 0, 3)
	kept := bytes.Clone(sent)
	r.log.Append(in(sent))
	r.sync()
	var f Fetch
	defer f.Release()
	if err := r.log.Read(ReadIn{From: 7, BytesMax: 1 << 20}, &f); err != nil {
		t.Fatal(err)
	}
	v, rest, err := batch.Next(f.Parts[0])
	if err != nil || len(rest) != 0 || v.BaseOffset() != 7 || v.LeaderEpoch() != 1 {
		t.Fatalf("base %d, epoch %d, %v", v.BaseOffset(), v.LeaderEpoch(), err)
	}
	got := bytes.Clone(v)
	copy(got[:8], kept[:8])
	copy(got[12:16], kept[12:16])
	if !bytes.Equal(got, kept) {
		t.Fatalf("stored\n%x\nsent\n%x", got, kept)
	}
}

// TestWrongMaxTimestampIsCorrected with the checksum redone, and a retry of the bytes as sent is no mismatch.
func TestWrongMaxTimestampIsCorrected(t *testing.T) {
	r := newRig(t)
	sent := numbered(1, 0, 0, 3)
	sent.StampMaxTime(testWall + 99)
	again := bytes.Clone(sent)
	if _, err := r.log.Append(in(sent)); err != nil {
		t.Fatal(err)
	}
	r.sync()
	if _, ms, err := r.log.OffsetOfMaxTime(); err != nil || ms != testWall+2 {
		t.Fatalf("largest time %d, %v", ms-testWall, err)
	}
	out, err := r.log.Append(in(again))
	if err != nil || !out.Duplicate || out.Mismatch {
		t.Fatalf("%+v, %v", out, err)
	}
}

func TestReadOutOfRange(t *testing.T) {
	r := newRig(t)
	for i := range int32(5) {
		r.p(1, 0, i*2, 2)
	}
	r.log.DeleteBefore(4)
	r.log.Append(in(numbered(1, 0, 10, 2)))
	var f Fetch
	defer f.Release()
	for from, want := range map[int64]error{0: ErrRange, 3: ErrRange, 4: nil, 10: nil, 11: nil, 12: nil, 13: ErrRange} {
		err := r.log.Read(ReadIn{From: from, BytesMax: 100, AtLeast1: true}, &f)
		if !errors.Is(err, want) || f.Start != 4 || f.High != 10 || f.Stable != 10 {
			t.Errorf("from %d: %v, %d, %d, %d", from, err, f.Start, f.Stable, f.High)
		}
		if (err == nil && from < 10) != (len(f.Parts) > 0) {
			t.Errorf("from %d: %d parts", from, len(f.Parts))
		}
	}
}

// TestNoAllocations: appending, recognising a duplicate, gathering, waiting and reading allocate nothing in the log.
func TestNoAllocations(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Config.SegmentBytes = 64 << 20
		o.Events = nil
	})
	const runs = 200
	seq := map[int64]int32{}
	next := func(pid int64) AppendIn {
		a := in(numbered(pid, 0, seq[pid], 1))
		seq[pid]++
		return a
	}
	var single, dups []AppendIn
	for range runs + 1 {
		single = append(single, next(1))
	}
	i := 0
	allocates(t, "Append", runs, func() {
		if _, err := r.log.Append(single[i]); err != nil {
			t.Fatal(err)
		}
		i++
	})
	dup := in(numbered(1, 0, seq[1]-2, 1))
	dups = append(dups, dup)
	r.sync()
	allocates(t, "duplicate", runs, func() {
		if out, err := r.log.Append(dups[0]); err != nil || !out.Duplicate {
			t.Fatal(out, err)
		}
	})
	var groups [][]AppendIn
	for range runs + 1 {
		groups = append(groups, []AppendIn{next(1), next(2), next(3), next(2)})
	}
	outs := make([]AppendOut, 4)
	k := 0
	allocates(t, "AppendAll", runs, func() {
		if err := r.log.AppendAll(groups[k], outs); err != nil || outs[3].Err != nil {
			t.Fatal(err, outs)
		}
		k++
	})
	w := &Waiter{Fn: func(error) {}}
	var round Round
	more := []AppendIn{}
	for range runs + 1 {
		more = append(more, next(4))
	}
	k = 0
	allocates(t, "AfterDurable and a round", runs, func() {
		out, _ := r.log.Append(more[k])
		k++
		r.log.AfterDurable(out.Until, w)
		r.log.BeginSync(&round)
		r.log.EndSync(&round, round.Datasync())
	})
	var f Fetch
	for _, ask := range []ReadIn{
		{BytesMax: 1 << 20},
		{From: 100, BytesMax: 2000, AtLeast1: true, Committed: true},
		{From: 50, BytesMax: 3000, Copy: true},
	} {
		allocates(t, "Read", runs, func() {
			if err := r.log.Read(ask, &f); err != nil || len(f.Parts) == 0 {
				t.Fatal(err)
			}
		})
	}
	f.Release()
}

func allocates(t *testing.T, what string, runs int, fn func()) {
	t.Helper()
	if n := testing.AllocsPerRun(runs, fn); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
