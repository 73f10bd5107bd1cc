package group

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
)

// staged is plain as a TxnOffsetCommit of version 5 by pid.
func staged(group string, pid int64, p int32, offset int64) CommitIn {
	in := plain(group, p, offset)
	in.Version, in.PID, in.Epoch = 5, pid, 3
	return in
}

// stage commits in a transaction as the broker does: asked for a guard it asks again with it.
func (w *world) stage(in CommitIn) *commitAnswer {
	a := w.commit(in)
	if a.guard != 0 {
		in.Guard = a.guard
		a = w.commit(in)
	}
	return a
}

func (w *world) mustStage(in CommitIn) {
	w.t.Helper()
	if a := w.stage(in); a.n != 1 || a.guard != 0 || a.codes[0] != nil {
		w.t.Fatalf("%+v answered %+v", in, a)
	}
}

// end writes the marker of pid and tells the manager.
func (w *world) end(pid int64, commit bool) {
	mk := batch.Marker{PID: pid, Epoch: 3, Commit: commit}
	w.m.OnMarker(0, w.j.marker(mk), mk)
}

func (w *world) want(what string, want, stable int64) {
	w.t.Helper()
	if got := w.offset("g", 0, false); got != want {
		w.t.Fatalf("%s: committed %d, want %d", what, got, want)
	}
	if got := w.offset("g", 0, true); got != stable {
		w.t.Fatalf("%s: with requireStable %d, want %d", what, got, stable)
	}
}

// TestTxnCommitTable is the validation table of spec groups.md 2.3 for groups that are missing or classic.
func TestTxnCommitTable(t *testing.T) {
	stable := func(w *world, in *CommitIn) { in.Member.Member, in.Generation = w.stableGroup(), 1 }
	completing := func(w *world, in *CommitIn) {
		first := w.join(asks(""))
		r := w.join(asks(first.out.Member))
		in.Member.Member, in.Generation = r.out.Member, r.out.Generation
	}
	for _, r := range []struct {
		name    string
		version int16
		prepare func(w *world, in *CommitIn)
		want    *kerr.Error
	}{
		{"missing group", 0, func(*world, *CommitIn) {}, nil},
		{"missing group", 5, func(*world, *CommitIn) {}, nil},
		{"missing group, generation", 3, func(_ *world, in *CommitIn) { in.Generation = 1 }, kerr.IllegalGeneration},
		{"missing group, generation", 5, func(_ *world, in *CommitIn) { in.Generation = 1 }, kerr.IllegalGeneration},
		{"missing group, generation", 6, func(_ *world, in *CommitIn) { in.Generation = 1 }, kerr.GroupIDNotFound},
		{"stable, nothing given", 2, func(w *world, _ *CommitIn) { w.stableGroup() }, nil},
		{"stable, nothing given", 5, func(w *world, _ *CommitIn) { w.stableGroup() }, nil},
		{"completing, nothing given", 3, func(w *world, in *CommitIn) {
			completing(w, in)
			in.Member.Member, in.Generation = "", -1
		}, nil},
		{"completing, its member", 3, completing, nil},
		{"stable, its member", 5, stable, nil},
		{"stable, unknown member", 4, func(w *world, in *CommitIn) { stable(w, in); in.Member.Member = "x" },
			kerr.UnknownMemberID},
		{"stable, zombie of an older generation", 6, func(w *world, in *CommitIn) { stable(w, in); in.Generation-- },
			kerr.IllegalGeneration},
		{"stable, later generation", 3, func(w *world, in *CommitIn) { stable(w, in); in.Generation++ },
			kerr.IllegalGeneration},
		{"stable, instance only", 3, func(w *world, in *CommitIn) { w.stableGroup(); in.Instance = "i" },
			kerr.UnknownMemberID},
		{"stable, instance of another", 6, func(w *world, in *CommitIn) {
			r := w.join(static("i", ""))
			w.m.Sync(SyncIn{Member: Member{Group: "g", Member: r.out.Member, Instance: "i", Generation: 1}},
				func(SyncOut, *kerr.Error) {})
			in.Member.Member, in.Instance, in.Generation = "x", "i", 1
		}, kerr.FencedInstanceID},
		{"fenced producer", 5, func(w *world, _ *CommitIn) { w.j.fail = ErrFenced }, kerr.InvalidProducerEpoch},
		{"guard gone", 5, func(w *world, _ *CommitIn) { w.j.fail = ErrTxnState }, kerr.InvalidTxnState},
		{"deleted topic", 5, func(w *world, _ *CommitIn) { w.topics.set("orders", 1, -1) }, kerr.UnknownTopicOrPartition},
	} {
		w, in := offsetsWorld(t), staged("g", 9, 0, 77)
		in.Version = r.version
		r.prepare(w, &in)
		before := w.j.End()
		a := w.stage(in)
		if a.n != 1 || a.guard != 0 || a.codes[0] != r.want {
			t.Errorf("%s, version %d: answered %+v, want %v", r.name, r.version, a, r.want)
			continue
		}
		if grown := w.j.End() - before; (grown == 1) != (r.want == nil) {
			t.Errorf("%s, version %d: %d records written", r.name, r.version, grown)
		}
		w.j.fail = nil
		if r.want == nil {
			w.want(r.name, -1, -2)
			w.end(9, true)
			w.want(r.name, 77, 77)
		}
	}
}

// TestUnverified: a batch that opens a transaction here is refused with a guard and stages nothing; the guard counts
// once, and a marker in between voids it.
func TestUnverified(t *testing.T) {
	w := offsetsWorld(t)
	first := w.commit(staged("g", 9, 0, 5))
	if first.n != 1 || first.guard == 0 || w.j.End() != 0 {
		t.Fatalf("%+v, end %d", first, w.j.End())
	}
	w.end(9, false)
	in := staged("g", 9, 0, 5)
	in.Guard = first.guard
	if late := w.commit(in); late.guard == 0 || late.guard == first.guard || w.j.End() != 1 {
		t.Fatalf("guard of before the marker: %+v, end %d", late, w.j.End())
	}
	w.mustStage(staged("g", 9, 0, 5))
	if again := w.commit(staged("g", 9, 1, 6)); again.guard != 0 || again.codes[0] != nil {
		t.Fatalf("the transaction is open here: %+v", again)
	}
	w.end(9, true)
	if a, b := w.offset("g", 0, true), w.offset("g", 1, true); a != 5 || b != 6 {
		t.Fatalf("%d and %d", a, b)
	}
}

// TestStagedEvents are the rows "event in the log" of spec groups.md 2.3, each read live and after a crash (I12, I14,
// C13, C14).
func TestStagedEvents(t *testing.T) {
	both := func(w *world, what string, want, stable int64) {
		t.Helper()
		w.want(what, want, stable)
		w.restart()
		w.want(what+", after a crash", want, stable)
	}
	for _, r := range []struct {
		name         string
		run          func(w *world)
		want, stable int64
	}{
		{"staged", func(w *world) { w.mustStage(staged("g", 9, 0, 5)) }, -1, -2},
		{"staged over a commit", func(w *world) {
			w.mustCommit(plain("g", 0, 1))
			w.mustStage(staged("g", 9, 0, 5))
		}, 1, -2},
		{"commit marker", func(w *world) {
			w.mustCommit(plain("g", 0, 1))
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, true)
		}, 5, 5},
		{"abort marker", func(w *world) {
			w.mustCommit(plain("g", 0, 1))
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, false)
		}, 1, 1},
		{"abort marker, nothing committed", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, false)
		}, -1, -1},
		{"marker of another", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.end(8, true)
		}, -1, -2},
		{"later of the same pid", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.mustStage(staged("g", 9, 0, 4))
			w.end(9, true)
		}, 4, 4},
		{"plain commit between", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.mustCommit(plain("g", 0, 2))
			w.end(9, true)
		}, 2, 2},
		{"plain commit between, still open", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.mustCommit(plain("g", 0, 2))
		}, 2, -2},
		{"plain commit behind the marker", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, true)
			w.mustCommit(plain("g", 0, 2))
		}, 2, 2},
		{"two transactions, the earlier staged commits last", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.mustStage(staged("g", 8, 0, 6))
			w.end(8, true)
			w.end(9, true)
		}, 6, 6},
		{"two transactions, one open", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.mustStage(staged("g", 8, 0, 6))
			w.end(9, true)
		}, 5, -2},
		{"tombstone of a staged one", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.m.OffsetDelete("g", []TP{{Topic: "orders"}}, func([]*kerr.Error, *kerr.Error) {})
			w.end(9, true)
		}, -1, -1},
		{"tombstone of both", func(w *world) {
			w.mustCommit(plain("g", 0, 1))
			w.mustStage(staged("g", 9, 0, 5))
			w.m.OffsetDelete("g", []TP{{Topic: "orders"}}, func([]*kerr.Error, *kerr.Error) {})
		}, -1, -1},
		{"group deleted in between", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.m.Delete("g", func(code *kerr.Error) {
				if code != nil {
					t.Fatal(code)
				}
			})
			w.end(9, true)
		}, -1, -1},
		{"topic deleted in between", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.m.TopicsDeleted([]TP{{Topic: "orders", ID: [16]byte{1}}}, func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			})
			w.end(9, true)
		}, -1, -1},
		{"marker told twice", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, true)
			w.mustCommit(plain("g", 0, 2))
			w.m.OnMarker(0, w.j.End()-1, batch.Marker{PID: 9, Epoch: 3, Commit: true})
		}, 2, 2},
		{"marker told again behind the next transaction's offset", func(w *world) {
			w.mustStage(staged("g", 9, 0, 5))
			w.end(9, true)
			at := w.j.End() - 1
			w.mustStage(staged("g", 9, 0, 6))
			w.m.OnMarker(0, at, batch.Marker{PID: 9, Epoch: 3, Commit: true})
		}, 5, -2},
	} {
		w := offsetsWorld(t)
		r.run(w)
		both(w, r.name, r.want, r.stable)
	}
}

// TestCrashPoints: C13, staged offsets are pending again after a crash and the marker that comes then decides; C14, a
// marker that is durable and was never told counts.
func TestCrashPoints(t *testing.T) {
	for _, commit := range []bool{true, false} {
		want := map[bool]int64{true: 5, false: 1}[commit]
		w := offsetsWorld(t)
		w.mustCommit(plain("g", 0, 1))
		w.mustStage(staged("g", 9, 0, 5))
		w.restart()
		w.want("C13", 1, -2)
		w.end(9, commit)
		w.want("C13, decided", want, want)

		w = offsetsWorld(t)
		w.mustCommit(plain("g", 0, 1))
		w.mustStage(staged("g", 9, 0, 5))
		w.j.marker(batch.Marker{PID: 9, Epoch: 3, Commit: commit})
		w.restart()
		w.want("C14", want, want)
		w.m.OnMarker(0, w.j.End()-1, batch.Marker{PID: 9, Epoch: 3, Commit: commit})
		w.want("C14, told again", want, want)
	}
}

// TestMarkerOvertakes: the marker is told before the done of a batch that lies before it, and the done of one that lies
// behind it comes as usual: offsets decide, not the order in which they are told.
func TestMarkerOvertakes(t *testing.T) {
	for _, commit := range []bool{true, false} {
		w := offsetsWorld(t)
		w.mustCommit(plain("g", 0, 1))
		w.mustStage(staged("g", 9, 1, 9))
		w.j.held = true
		a := w.commit(staged("g", 9, 0, 5))
		w.end(9, commit)
		w.end(8, !commit)
		if a.n != 0 {
			t.Fatal("answered before the flush")
		}
		w.j.flush()
		want := map[bool]int64{true: 5, false: 1}[commit]
		if a.n != 1 || a.codes[0] != nil {
			t.Fatalf("answered %+v", a)
		}
		w.want("overtaken", want, want)
		s := (*w.m.shards.Load())[0]
		if len(s.open) != 0 || len(s.markers) != 0 || s.staging != 0 || len(s.flights) != 0 {
			t.Fatalf("left over: %+v", s.offsetsShard)
		}
		// A plain commit that lies before the staged record and is told after the marker does not hold.
		w = offsetsWorld(t)
		w.mustStage(staged("g", 9, 1, 9))
		w.j.held = true
		w.commit(plain("g", 0, 2))
		w.commit(staged("g", 9, 0, 5))
		w.commit(plain("g", 2, 3))
		w.end(9, true)
		w.j.flush()
		w.want("plain before staged", 5, 5)
		w.restart()
		w.want("plain before staged, replayed", 5, 5)
	}
}

// TestMarkerOfTheTransactionBefore: a marker that came while another batch was on its way decides nothing that lies
// behind it.
func TestMarkerOfTheTransactionBefore(t *testing.T) {
	w := offsetsWorld(t)
	w.mustStage(staged("g", 9, 0, 5))
	w.mustStage(staged("g", 8, 1, 1))
	w.j.held = true
	w.commit(staged("g", 8, 1, 2))
	w.end(9, true)
	w.stage(staged("g", 9, 0, 6))
	w.j.flush()
	w.want("next transaction", 5, -2)
	w.end(9, false)
	w.want("aborted", 5, 5)
}

// TestTransactionOverGroups: one marker decides all groups of the partition.
func TestTransactionOverGroups(t *testing.T) {
	w := offsetsWorld(t)
	w.mustStage(staged("g", 9, 0, 5))
	w.mustStage(staged("h", 9, 0, 6))
	w.mustStage(staged("h", 7, 1, 7))
	w.end(9, true)
	got := []int64{w.offset("g", 0, true), w.offset("h", 0, true), w.offset("h", 1, true)}
	if !slices.Equal(got, []int64{5, 6, -2}) {
		t.Fatalf("got %v", got)
	}
	w.end(7, false)
	if got := w.offset("h", 1, true); got != -1 {
		t.Fatalf("got %d", got)
	}
}
