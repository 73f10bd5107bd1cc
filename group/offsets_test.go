package group

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// commitAnswer is the answer to a Commit; n counts the answers.
type commitAnswer struct {
	codes []*kerr.Error
	guard uint64
	n     int
}

func (w *world) commit(in CommitIn) *commitAnswer {
	a := &commitAnswer{}
	w.m.Commit(in, func(codes []*kerr.Error, guard uint64) { a.codes, a.guard, a.n = codes, guard, a.n+1 })
	return a
}

// plain is an OffsetCommit of nobody in particular: orders-p at offset.
func plain(group string, p int32, offset int64) CommitIn {
	return CommitIn{
		Member: Member{Group: group, Generation: -1}, Version: 9, PID: -1, Epoch: -1, RetainMs: -1,
		TPs: []TP{{Topic: "orders", ID: [16]byte{1}, Partition: p}}, Offsets: []Offset{{Offset: offset, LeaderEpoch: -1}},
	}
}

// mustCommit commits and wants code 0 and a durable answer.
func (w *world) mustCommit(in CommitIn) {
	w.t.Helper()
	a := w.commit(in)
	if a.n != 1 || a.guard != 0 || slices.ContainsFunc(a.codes, func(c *kerr.Error) bool { return c != nil }) {
		w.t.Fatalf("%+v answered %+v", in, a)
	}
}

// offset is what the group holds for orders-p; -1: nothing, -2: unstable and the request wants stable ones.
func (w *world) offset(group string, p int32, stable bool) int64 {
	w.t.Helper()
	tp, n, got := TP{Topic: "orders", ID: [16]byte{1}, Partition: p}, 0, int64(0)
	w.m.Fetch(FetchIn{Member: Member{Group: group, Generation: -1}, TPs: []TP{tp}, StableOnly: stable},
		func(all map[TP]Fetched, code *kerr.Error) {
			f, ok := all[tp]
			if code != nil || !ok || len(all) != 1 || f.Unstable && f.Offset.Offset != -1 {
				w.t.Fatalf("fetch: %v, %+v", code, all)
			}
			if got = f.Offset.Offset; f.Unstable {
				got = -2
			}
			n++
		})
	if n != 1 {
		w.t.Fatalf("fetch answered %d times", n)
	}
	return got
}

func offsetsWorld(t *testing.T) *world {
	w := newWorld(t, testConfig())
	w.topics.set("orders", 1, 4)
	return w
}

// stableGroup makes g a Stable group of one consumer of topics and gives its member id.
func (w *world) stableGroup(topics ...string) string {
	w.t.Helper()
	first := w.join(asks("", topics...))
	r := w.join(asks(first.out.Member, topics...))
	w.m.Sync(SyncIn{Member: Member{Group: "g", Member: r.out.Member, Generation: r.out.Generation}},
		func(_ SyncOut, code *kerr.Error) {
			if code != nil {
				w.t.Fatal(code)
			}
		})
	if g := w.group("g"); g == nil || g.classic.state != stateStable || r.out.Generation != 1 {
		w.t.Fatalf("group %+v, joined %+v", g, r)
	}
	return r.out.Member
}

// TestOffsetCommitTable is the table of spec groups.md 2.1.
func TestOffsetCommitTable(t *testing.T) {
	type row struct {
		name    string
		prepare func(w *world, in *CommitIn)
		want    *kerr.Error
	}
	completing := func(w *world, in *CommitIn) {
		first := w.join(asks(""))
		r := w.join(asks(first.out.Member))
		in.Member.Member, in.Generation = r.out.Member, r.out.Generation
	}
	stable := func(w *world, in *CommitIn) { in.Member.Member, in.Generation = w.stableGroup(), 1 }
	for _, r := range []row{
		{"missing group, no generation", func(*world, *CommitIn) {}, nil},
		{"missing group, generation, version 8", func(_ *world, in *CommitIn) { in.Generation, in.Version = 0, 8 },
			kerr.IllegalGeneration},
		{"missing group, generation, version 9", func(_ *world, in *CommitIn) { in.Generation = 0 }, kerr.GroupIDNotFound},
		{"dead", func(w *world, _ *CommitIn) {
			w.mustCommit(plain("g", 0, 1))
			w.group("g").dead = true
		}, kerr.CoordinatorNotAvailable},
		{"empty, no generation", func(w *world, _ *CommitIn) { w.mustCommit(plain("g", 0, 1)) }, nil},
		{"empty, generation", func(w *world, in *CommitIn) {
			w.mustCommit(plain("g", 0, 1))
			in.Member.Member, in.Generation = "m", 1
		}, kerr.UnknownMemberID},
		{"stable, its member", stable, nil},
		{"stable, unknown member", func(w *world, in *CommitIn) { stable(w, in); in.Member.Member = "x" },
			kerr.UnknownMemberID},
		{"stable, older generation", func(w *world, in *CommitIn) { stable(w, in); in.Generation-- }, kerr.IllegalGeneration},
		{"stable, unknown instance", func(w *world, in *CommitIn) { stable(w, in); in.Instance = "i" }, kerr.UnknownMemberID},
		{"stable, instance of another", func(w *world, in *CommitIn) {
			r := w.join(static("i", ""))
			w.m.Sync(SyncIn{Member: Member{Group: "g", Member: r.out.Member, Instance: "i", Generation: 1}},
				func(SyncOut, *kerr.Error) {})
			in.Member.Member, in.Instance, in.Generation = "x", "i", 1
		}, kerr.FencedInstanceID},
		{"stable, nothing given", func(w *world, _ *CommitIn) { w.stableGroup() }, kerr.UnknownMemberID},
		{"completing, its member", completing, kerr.RebalanceInProgress},
		{"preparing, its member", func(w *world, in *CommitIn) {
			stable(w, in)
			second := w.join(asks(""))
			w.join(asks(second.out.Member))
			if w.group("g").classic.state != statePreparing {
				w.t.Fatal("not preparing")
			}
		}, nil},
		{"unknown partition", func(_ *world, in *CommitIn) { in.TPs[0].Partition = 4 }, kerr.UnknownTopicOrPartition},
		{"negative partition", func(_ *world, in *CommitIn) { in.TPs[0].Partition = -1 }, kerr.UnknownTopicOrPartition},
		{"deleted topic", func(w *world, _ *CommitIn) { w.topics.set("orders", 1, -1) }, kerr.UnknownTopicOrPartition},
		{"topic made anew", func(w *world, _ *CommitIn) { w.topics.set("orders", 2, 4) }, kerr.UnknownTopicOrPartition},
		{"id not given", func(_ *world, in *CommitIn) { in.TPs[0].ID = [16]byte{} }, nil},
		{"4096 characters", func(_ *world, in *CommitIn) { in.Offsets[0].Metadata = strings.Repeat("\u00fc", 4096) }, nil},
		{"4097 characters", func(_ *world, in *CommitIn) { in.Offsets[0].Metadata = strings.Repeat("x", 4097) },
			kerr.OffsetMetadataTooLarge},
		{"2048 characters of two units", func(_ *world, in *CommitIn) {
			in.Offsets[0].Metadata = strings.Repeat("\U0001f600", 2048)
		}, nil},
		{"2049 characters of two units", func(_ *world, in *CommitIn) {
			in.Offsets[0].Metadata = strings.Repeat("\U0001f600", 2049)
		}, kerr.OffsetMetadataTooLarge},
		{"negative offset", func(_ *world, in *CommitIn) { in.Offsets[0].Offset = -5 }, nil},
		{"journal full", func(w *world, _ *CommitIn) { w.j.fail = ErrTooLarge }, kerr.MessageTooLarge},
		{"journal closed", func(w *world, _ *CommitIn) { w.j.fail = ErrClosed }, kerr.NotCoordinator},
		{"journal failed", func(w *world, _ *CommitIn) { w.j.fail = ErrStorage }, kerr.NotCoordinator},
		{"journal busy", func(w *world, _ *CommitIn) { w.j.fail = errors.New("later") }, kerr.CoordinatorNotAvailable},
	} {
		t.Run(r.name, func(t *testing.T) {
			w, in := offsetsWorld(t), plain("g", 3, 77)
			r.prepare(w, &in)
			before := w.j.End()
			a := w.commit(in)
			if a.n != 1 || len(a.codes) != 1 || a.codes[0] != r.want || a.guard != 0 {
				t.Fatalf("answered %+v, want %v", a, r.want)
			}
			if grown := w.j.End() - before; (grown == 1) != (r.want == nil) {
				t.Fatalf("%d records written", grown)
			}
			if g := w.group("g"); g != nil {
				g.dead = false
			}
			w.j.fail = nil
			want := in.Offsets[0].Offset
			if r.want != nil {
				want = -1
			}
			if got := w.offset("g", 3, false); r.want != kerr.UnknownTopicOrPartition && got != want {
				t.Fatalf("holds %d, want %d", got, want)
			}
		})
	}
}

// TestCommitIsOneBatch: what is accepted of a request is one batch, refused partitions are left out, and nothing shows
// before it is durable.
func TestCommitIsOneBatch(t *testing.T) {
	w := offsetsWorld(t)
	in := plain("g", 0, 10)
	for p := int32(1); p < 6; p++ {
		in.TPs = append(in.TPs, TP{Topic: "orders", ID: [16]byte{1}, Partition: p})
		in.Offsets = append(in.Offsets, Offset{Offset: 10 + int64(p), LeaderEpoch: p, Metadata: "m"})
	}
	w.j.held = true
	a := w.commit(in)
	if w.j.batches != 1 || w.j.End() != 4 || a.n != 0 || w.group("g") != nil || w.offset("g", 2, false) != -1 {
		t.Fatalf("%d batches, end %d, %d answers before the flush", w.j.batches, w.j.End(), a.n)
	}
	w.j.flush()
	want := []*kerr.Error{nil, nil, nil, nil, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition}
	if a.n != 1 || !slices.Equal(a.codes, want) {
		t.Fatalf("answered %+v", a)
	}
	w.m.Fetch(FetchIn{Member: Member{Group: "g", Generation: -1}}, func(all map[TP]Fetched, code *kerr.Error) {
		f := all[TP{"orders", [16]byte{1}, 3}]
		if code != nil || len(all) != 4 || f != (Fetched{Offset: Offset{13, 3, "m"}}) {
			t.Fatalf("%v, %+v", code, all)
		}
	})
	// All or nothing: a batch that was lost changes nothing.
	b := w.commit(plain("g", 0, 99))
	w.j.breakAll(ErrStorage)
	if b.n != 1 || b.codes[0] != kerr.NotCoordinator || w.offset("g", 0, false) != 10 {
		t.Fatalf("answered %+v, holds %d", b, w.offset("g", 0, false))
	}
}

// TestFetchUnknown: what is not known is no error (spec groups.md 2.2).
func TestFetchUnknown(t *testing.T) {
	w := offsetsWorld(t)
	w.mustCommit(plain("g", 0, 5))
	for _, in := range []FetchIn{
		{Member: Member{Group: "nobody", Generation: -1}, TPs: []TP{{Topic: "orders"}}},
		{Member: Member{Group: "g", Generation: -1}, TPs: []TP{{Topic: "orders", Partition: 1}}},
		{Member: Member{Group: "g", Generation: -1}, TPs: []TP{{Topic: "nothing"}}, StableOnly: true},
	} {
		w.m.Fetch(in, func(all map[TP]Fetched, code *kerr.Error) {
			if code != nil || all[in.TPs[0]] != (Fetched{Offset: Offset{Offset: -1, LeaderEpoch: -1}}) {
				t.Fatalf("%+v: %v, %+v", in, code, all)
			}
		})
	}
	w.m.Fetch(FetchIn{Member: Member{Group: "nobody"}}, func(all map[TP]Fetched, code *kerr.Error) {
		if code != nil || len(all) != 0 {
			t.Fatalf("%v, %+v", code, all)
		}
	})
}

// TestStableFetchIsOrdered: with requireStable a read waits for every commit accepted before it, and only for those.
func TestStableFetchIsOrdered(t *testing.T) {
	w := offsetsWorld(t)
	w.mustCommit(plain("g", 0, 1))
	w.j.held = true
	w.commit(plain("g", 0, 2))
	got, plainRead := int64(-9), int64(-9)
	tp := TP{Topic: "orders", Partition: 0}
	in := FetchIn{Member: Member{Group: "g", Generation: -1}, TPs: []TP{tp}, StableOnly: true}
	w.m.Fetch(in, func(all map[TP]Fetched, _ *kerr.Error) { got = all[tp].Offset.Offset })
	in.StableOnly = false
	w.m.Fetch(in, func(all map[TP]Fetched, _ *kerr.Error) { plainRead = all[tp].Offset.Offset })
	w.commit(plain("g", 0, 3))
	if got != -9 || plainRead != 1 {
		t.Fatalf("stable read %d before the flush, plain read %d", got, plainRead)
	}
	w.j.flushOne()
	if got != 2 {
		t.Fatalf("stable read %d, want 2", got)
	}
	// One that was refused while earlier ones are on their way leaves the order as it is.
	w.commit(plain("g", 0, 4))
	got = -9
	w.j.fail = ErrTooLarge
	w.commit(plain("g", 0, 5))
	w.j.fail = nil
	in.StableOnly = true
	w.m.Fetch(in, func(all map[TP]Fetched, _ *kerr.Error) { got = all[tp].Offset.Offset })
	w.j.flushOne()
	if got != -9 {
		t.Fatalf("stable read %d came before its commits", got)
	}
	w.j.flush()
	if got != 4 {
		t.Fatalf("stable read %d, want 4", got)
	}
}

// TestStableFetchBehindRefused: a read that waits for a batch which is refused still waits for those before it.
func TestStableFetchBehindRefused(t *testing.T) {
	w := offsetsWorld(t)
	w.mustCommit(plain("g", 0, 1))
	s := (*w.m.shards.Load())[0]
	w.j.held = true
	got := int64(-9)
	tp := TP{Topic: "orders"}
	s.post(func() { // what the journal tells during this call comes after it
		nothing := func([]*kerr.Error, uint64) {}
		s.commit(plain("g", 0, 2), nothing)
		w.j.fail = ErrTooLarge
		s.commit(plain("g", 0, 3), nothing)
		w.j.fail = nil
		in := FetchIn{Member: Member{Group: "g", Generation: -1}, TPs: []TP{tp}, StableOnly: true}
		s.fetch(in, func(all map[TP]Fetched, _ *kerr.Error) { got = all[tp].Offset.Offset })
	})
	if got != -9 {
		t.Fatalf("read %d before the commit ahead of it", got)
	}
	w.j.flush()
	if got != 2 {
		t.Fatalf("read %d, want 2", got)
	}
}

// flushOne makes the oldest batch durable.
func (j *fakeJournal) flushOne() {
	j.mu.Lock()
	f := j.waiting[0]
	j.waiting = j.waiting[1:]
	j.durable = f.end
	j.mu.Unlock()
	f.done(f.base, f.err)
}

// TestOffsetDelete is the row of OffsetDelete in spec groups.md 2.4.
func TestOffsetDelete(t *testing.T) {
	del := func(w *world, group string, tps ...TP) ([]*kerr.Error, *kerr.Error) {
		var codes []*kerr.Error
		var top *kerr.Error
		n := 0
		w.m.OffsetDelete(group, tps, func(c []*kerr.Error, code *kerr.Error) { codes, top, n = c, code, n+1 })
		if n != 1 {
			t.Fatalf("answered %d times", n)
		}
		return codes, top
	}
	orders, bills := TP{Topic: "orders", Partition: 0}, TP{Topic: "bills", Partition: 0}
	w := offsetsWorld(t)
	w.topics.set("bills", 2, 1)
	if _, top := del(w, "g", orders); top != kerr.GroupIDNotFound {
		t.Fatalf("missing group: %v", top)
	}
	id := w.stableGroup("bills")
	in := plain("g", 0, 5)
	in.Member.Member, in.Generation = id, 1
	w.mustCommit(in)
	codes, top := del(w, "g", bills, orders, TP{Topic: "orders", Partition: 1}, orders)
	if top != nil || !slices.Equal(codes, []*kerr.Error{kerr.GroupSubscribedToTopic, nil, nil, nil}) {
		t.Fatalf("%v, %v", codes, top)
	}
	if w.offset("g", 0, false) != -1 {
		t.Fatal("still there")
	}
	w.j.fail = ErrStorage
	if codes, top = del(w, "g", orders); top != nil || codes[0] != nil {
		t.Fatalf("nothing to delete: %v, %v", codes, top)
	}
	w.j.fail = nil
	w.mustCommit(in)
	w.j.fail = ErrStorage
	if codes, top = del(w, "g", orders); top != nil || codes[0] != kerr.NotCoordinator || w.offset("g", 0, false) != 5 {
		t.Fatalf("journal failed: %v, %v", codes, top)
	}
	w.j.fail = nil
	w.group("g").classic.protocolType = "connect"
	if _, top = del(w, "g", orders); top != kerr.NonEmptyGroup {
		t.Fatalf("active group of another type: %v", top)
	}
	w.restart()
	if w.offset("g", 0, false) != 5 {
		t.Fatal("lost over a restart")
	}
}
