package plog

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sekali/batch"
	"sekali/pidmap"
)

// step is one Produce in a decision table: sequence, records, and the answer.
type step struct {
	name     string
	epoch    int16
	seq      int32
	n        int
	base     int64 // of a success
	dup      bool
	rejected pidmap.Verdict // Accept: none
}

func (r *rig) run(pid int64, steps []step) {
	r.t.Helper()
	for _, s := range steps {
		before := r.log.Offsets().End
		out, err := r.p(pid, s.epoch, s.seq, s.n)
		var rej *RejectError
		switch {
		case s.rejected != pidmap.Accept:
			if !errors.As(err, &rej) || rej.Decision.Verdict != s.rejected {
				r.t.Errorf("%s: %+v, %v; want verdict %d", s.name, out, err, s.rejected)
			}
			if out.Base != -1 || out.Last != -1 {
				r.t.Errorf("%s: refused, but offsets %d..%d", s.name, out.Base, out.Last)
			}
		case err != nil || out.Base != s.base || out.Duplicate != s.dup || out.Last != s.base+int64(s.n)-1:
			r.t.Errorf("%s: %+v, %v; want base %d, duplicate %v", s.name, out, err, s.base, s.dup)
		}
		grown := r.log.Offsets().End - before
		if want := int64(s.n); (s.dup || s.rejected != pidmap.Accept) && grown != 0 ||
			!s.dup && s.rejected == pidmap.Accept && grown != want {
			r.t.Errorf("%s: the log grew by %d", s.name, grown)
		}
	}
}

const ok = pidmap.Accept

// TestDecisions: cases A1 to A6 and B2 with their numbers, on the same log after a clean stop, after a process death
// and after a power loss that keeps what was synced.
func TestDecisions(t *testing.T) {
	cases := map[string]struct{ before, after []step }{
		"A1 lost acknowledgement": {
			before: []step{{"first", 0, 0, 3, 0, false, ok}, {"retry", 0, 0, 3, 0, true, ok}, {"retry", 0, 0, 3, 0, true, ok}},
			after:  []step{{"retry", 0, 0, 3, 0, true, ok}, {"next", 0, 3, 1, 3, false, ok}},
		},
		"A2 five remembered, older found": {
			before: []step{
				{"0", 0, 0, 1, 0, false, ok}, {"1", 0, 1, 1, 1, false, ok}, {"2", 0, 2, 1, 2, false, ok},
				{"3", 0, 3, 1, 3, false, ok}, {"4", 0, 4, 1, 4, false, ok}, {"5", 0, 5, 1, 5, false, ok},
				{"6", 0, 6, 1, 6, false, ok}, {"6 again", 0, 6, 1, 6, true, ok}, {"2 again", 0, 2, 1, 2, true, ok},
				{"1 again", 0, 1, 1, 1, true, ok}, {"0 again", 0, 0, 1, 0, true, ok},
			},
			after: []step{
				{"4 again", 0, 4, 1, 4, true, ok}, {"1 again", 0, 1, 1, 1, true, ok}, {"0 again", 0, 0, 1, 0, true, ok},
				{"7", 0, 7, 1, 7, false, ok},
			},
		},
		"A3 numbers count records": {
			before: []step{{"ten", 0, 0, 10, 0, false, ok}, {"inside", 0, 1, 1, 0, false, pidmap.DuplicateOld}},
			after:  []step{{"inside", 0, 1, 1, 0, false, pidmap.DuplicateOld}, {"next", 0, 10, 1, 10, false, ok}},
		},
		"A5 a gap leaves no trace": {
			before: []step{
				{"five", 0, 0, 5, 0, false, ok}, {"7", 0, 7, 1, 0, false, pidmap.OutOfOrder}, {"5", 0, 5, 1, 5, false, ok},
			},
			after: []step{{"7", 0, 7, 1, 0, false, pidmap.OutOfOrder}, {"6", 0, 6, 1, 6, false, ok}},
		},
		"A6 other boundaries": {
			before: []step{
				{"ten", 0, 0, 10, 0, false, ok}, {"0,4", 0, 0, 4, 0, false, pidmap.DuplicateOld},
				{"4,6", 0, 4, 6, 0, false, pidmap.DuplicateOld}, {"0,11", 0, 0, 11, 0, false, pidmap.OutOfOrder},
				{"8,5", 0, 8, 5, 0, false, pidmap.OutOfOrder},
			},
			after: []step{{"8,5", 0, 8, 5, 0, false, pidmap.OutOfOrder}, {"10", 0, 10, 1, 10, false, ok}},
		},
		"B2 own epoch bump": {
			before: []step{
				{"six", 0, 0, 6, 0, false, ok}, {"1,6", 1, 6, 1, 0, false, pidmap.OutOfOrder},
				{"1,0", 1, 0, 1, 6, false, ok}, {"1,0 again", 1, 0, 1, 6, true, ok},
			},
			after: []step{{"0,6", 0, 6, 1, 0, false, pidmap.Fenced}, {"0,0 again", 0, 0, 6, 0, false, pidmap.Fenced}},
		},
	}
	for name, c := range cases {
		for how, restart := range restarts {
			t.Run(name+"/"+how, func(t *testing.T) {
				r := newRig(t)
				r.run(9, c.before)
				want := r.stored()
				restart(r)
				if got := r.stored(); !slices.Equal(got, want) {
					t.Fatalf("stored %v, want %v", got, want)
				}
				r.run(9, c.after)
			})
		}
	}
}

// TestSequenceWrap is A4: straddling the top of int32, stopping exactly there, and a sequence below zero.
func TestSequenceWrap(t *testing.T) {
	for how, restart := range restarts {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.run(1, []step{{"held", 0, 0, 1, 0, false, ok}})
			r.run(2, []step{
				{"unknown may begin anywhere", 0, 2147483645, 1, 1, false, ok},
				{"straddles", 0, 2147483646, 4, 2, false, ok},
				{"again", 0, 2147483646, 4, 2, true, ok},
			})
			r.run(3, []step{{"up to the top", 0, 2147483646, 2, 6, false, ok}})
			restart(r)
			r.run(2, []step{{"again", 0, 2147483646, 4, 2, true, ok}, {"2", 0, 2, 1, 8, false, ok}})
			r.run(3, []step{{"0 is new", 0, 0, 1, 9, false, ok}, {"0 again", 0, 0, 1, 9, true, ok}})
		})
	}
}

// restarts are the ways a log comes back.
var restarts = map[string]func(r *rig){
	"stop": (*rig).restart,
	"kill": func(r *rig) { r.kill(); r.open(false) },
	"crash": func(r *rig) {
		r.crash(crashAll)
		r.open(false)
	},
}

// TestDuplicateTellsTrueOffset is A11: far from 0, with others in between, after rolls, and on a LogAppendTime topic
// with the first append time.
func TestDuplicateTellsTrueOffset(t *testing.T) {
	for how, restart := range restarts {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 2048; o.Config.AppendTime = true })
			for i := range int64(40) {
				r.p(100+i, 0, 0, 2)
			}
			r.clk.Advance(1234 * time.Millisecond)
			first, err := r.p(5, 0, 0, 3)
			if err != nil || first.Base != 80 || first.Time != testWall+1234 {
				t.Fatalf("original: %+v, %v", first, err)
			}
			r.clk.Advance(time.Hour)
			for i := range int64(40) {
				r.p(100+i, 0, 2, 2)
			}
			if len(r.log.view.Load().segs) < 3 {
				t.Fatal("the log did not roll")
			}
			check := func() {
				t.Helper()
				out, err := r.p(5, 0, 0, 3)
				if err != nil || !out.Duplicate || out.Base != 80 || out.Last != 82 || out.Time != first.Time || out.Mismatch {
					t.Fatalf("retry: %+v, %v", out, err)
				}
			}
			check()
			restart(r)
			check()
			r.log.Tick(r.clk.Wall())
			r.sync()
			r.log.Tick(r.clk.Wall())
			restart(r)
			check()
		})
	}
}

// TestOldDuplicateWaitsForAllOfItsProducer: the answer for a duplicate older than the window, found or not, vouches for
// everything the producer has stored (D3, D4).
func TestOldDuplicateWaitsForAllOfItsProducer(t *testing.T) {
	r := newRig(t)
	for i := range int32(8) {
		if _, err := r.log.Append(in(numbered(1, 0, i*2, 2))); err != nil {
			t.Fatal(err)
		}
	}
	out, err := r.log.Append(in(numbered(1, 0, 0, 2)))
	if err != nil || !out.Duplicate || out.Base != 0 || out.Until != 16 {
		t.Fatalf("found: %+v, %v", out, err)
	}
	out, err = r.log.Append(in(numbered(1, 0, 1, 2)))
	var rej *RejectError
	if !errors.As(err, &rej) || rej.Decision.Verdict != pidmap.DuplicateOld || out.Until != 16 || out.Base != -1 {
		t.Fatalf("not found: %+v, %v", out, err)
	}
	if r.ev.dupOld != 1 || r.ev.rejects[pidmap.DuplicateOld] != 1 {
		t.Errorf("told: %d old duplicates, %v", r.ev.dupOld, r.ev.rejects)
	}
}

// TestOldDuplicateIsFoundAcrossARoll: the walk back crosses into the segment before, by strides that double, and gives
// up at its bound.
func TestOldDuplicateIsFoundAcrossARoll(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 200 << 10 })
	r.p(1, 0, 0, 2)
	fill := func(kib int) {
		for range kib {
			b := batch.Builder{BaseTime: testWall}
			b.Add(batch.Record{Value: make([]byte, 1<<10)})
			if _, err := r.log.Append(in(b.Done(0, -1, -1, -1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(150)
	r.p(1, 0, 2, 2)
	fill(60)
	for i := range int32(5) {
		r.p(1, 0, 4+2*i, 2)
	}
	if n := len(r.log.view.Load().segs); n != 2 {
		t.Fatalf("%d segments", n)
	}
	r.run(1, []step{{"in the segment before", 0, 0, 2, 0, true, ok}, {"nearer", 0, 2, 2, 152, true, ok}})
}

// TestFirstRefusedHoldsBackTheRest is I5's exception: after a retriable refusal of sequence 0 of an unknown producer,
// 1 is out of order, and the retry of 0 is stored.
func TestFirstRefusedHoldsBackTheRest(t *testing.T) {
	r := newRig(t)
	r.run(1, []step{{"held", 0, 0, 1, 0, false, ok}})
	r.log.Refuse(numbered(2, 0, 0, 1))
	r.run(2, []step{
		{"1 before 0", 0, 1, 1, 0, false, pidmap.OutOfOrder}, {"0", 0, 0, 1, 1, false, ok}, {"1", 0, 1, 1, 2, false, ok},
	})
}

// TestReusedNumberIsToldApart: the same numbers with other bytes are answered as a duplicate, and the mismatch is told.
func TestReusedNumberIsToldApart(t *testing.T) {
	r := newRig(t)
	r.run(1, []step{{"first", 0, 0, 1, 0, false, ok}})
	out, err := r.log.Append(in(values(1, 0, 0, 0, "something else")))
	if err != nil || !out.Duplicate || !out.Mismatch || out.Base != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
}

func TestTooLargeForASegment(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 200 })
	_, err := r.log.Append(in(values(-1, -1, -1, 0, string(make([]byte, 200)))))
	if !errors.Is(err, ErrTooLarge) {
		t.Fatalf("%v", err)
	}
	c := r.o.Config
	c.SegmentBytes = 1000
	r.log.Configure(c) // the empty active segment was made for 200 bytes and gives its name to a larger one
	if out, err := r.log.Append(in(values(-1, -1, -1, 0, string(make([]byte, 200))))); err != nil || out.Base != 0 {
		t.Fatalf("after Configure: %+v, %v", out, err)
	}
	r.sync()
	r.restart()
	if got := r.stored(); len(got) != 1 {
		t.Fatalf("stored %d", len(got))
	}
}
