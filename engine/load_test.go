package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"sekali/batch"
	"sekali/coord"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestInternalTopicsAreMadeOnce: by whoever is first, in one revision of the metadata, as the specification wants them.
func TestInternalTopicsAreMadeOnce(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	if !w.e.Idle() || w.e.Loaded() {
		t.Fatal("an empty directory has coordinators")
	}
	if tp, ok := w.e.OffsetsTP("g"); ok {
		t.Errorf("a partition for offsets without the topic: %+v", tp)
	}
	_, before, err := w.meta.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := w.e.Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, after, err := w.meta.Snapshot(t.Context())
	if err != nil || after != before+1 {
		t.Errorf("%d revisions of the metadata for both topics, %v", after-before, err)
	}
	for _, name := range []string{TxnTopic, OffsetsTopic} {
		topic := w.s.Catalog().ByName[name]
		if topic == nil || !topic.Internal || len(topic.Partitions) != 2 || !topic.Config.Compact || topic.Config.Delete ||
			topic.Config.SegmentBytes != 100<<20 {
			t.Errorf("%s: %+v", name, topic)
		}
	}
	if tp, ok := w.e.OffsetsTP("g"); !ok || tp.Topic != OffsetsTopic || tp.Partition != group.Partition("g", 2) {
		t.Errorf("%+v %v", tp, ok)
	}
}

// TestDoneInOrder: flushes and appends tell in any order, a shard hears in the order of offsets.
func TestDoneInOrder(t *testing.T) {
	p := &partition{}
	var got []int
	var ws []*waiting
	for i := range 4 {
		w := &waiting{}
		w.done = func(err error) {
			got = append(got, i)
			if i == 0 { // told from inside a done: must wait for its turn
				p.tell(ws[1], nil)
			}
		}
		ws = append(ws, w)
	}
	p.queue = slices.Clone(ws)
	p.tell(ws[3], nil)
	p.tell(ws[2], errors.New("lost"))
	if len(got) != 0 {
		t.Fatalf("told %v before the first", got)
	}
	p.tell(ws[0], nil)
	if fmt.Sprint(got) != "[0 1 2 3]" || len(p.queue) != 0 {
		t.Errorf("told %v, %d left", got, len(p.queue))
	}
}

// TestOpenDataAfterAKill is C2b and C10: open data whose registration was lost is registered again if it is of the
// id's current producer, else aborted with an epoch above it. Nothing holds the stable offset for good.
func TestOpenDataAfterAKill(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, func(c *Config) { c.VerifyOff = true })
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	stranger := coord.InitOut{PID: 1 << 40, Epoch: 3}
	for tp, who := range map[coord.TP]coord.InitOut{tps[0]: p, tps[1]: stranger} {
		if b := w.append("x", who, 0, false, nil, tp)[0]; b.Err != nil {
			t.Fatal(b.Err)
		}
		w.flushed(tp)
	}
	next := fs.Kill()
	w.stop()

	w = start(t, next, nil)
	eventually(t, "the end of what belongs to nobody", func() bool { return w.log(tps[1]).Offsets().Stable == 2 })
	if b := w.append("x", stranger, 1, false, nil, tps[1])[0]; b.Err == nil {
		t.Error("the producer of the aborted data goes on")
	}
	if at := w.log(tps[0]).Offsets(); at.Stable != 0 || at.End != 1 {
		t.Errorf("of x: stable %d of %d, want 0 of 1", at.Stable, at.End)
	}
	eventually(t, "the commit of x", func() bool {
		_, code := w.end("x", p, true)
		if code != nil && code != kerr.ConcurrentTransactions { // while it is registered
			t.Fatalf("its commit: %v", code)
		}
		return code == nil
	})
	if at := w.log(tps[0]).Offsets(); at.Stable != 2 || at.End != 2 {
		t.Errorf("of x after its commit: stable %d of %d, want 2", at.Stable, at.End)
	}
	if q := w.init("y"); q.PID <= stranger.PID {
		t.Errorf("I6: producer id %d, but %d has been used", q.PID, stranger.PID)
	}
}

// offsets runs one commit of an offset.
func (w *world) commit(in group.CommitIn) (code *kerr.Error, guard uint64) {
	w.t.Helper()
	type answer struct {
		codes []*kerr.Error
		guard uint64
	}
	ch := make(chan answer, 1)
	in.Generation = -1
	w.e.Groups().Commit(in, func(codes []*kerr.Error, guard uint64) { ch <- answer{codes, guard} })
	a := soon(w.t, "an answer to a commit of offsets", ch)
	if len(a.codes) > 0 {
		code = a.codes[0]
	}
	return code, a.guard
}

// committed is the offset a group has, -1: none, or the code.
func (w *world) committed(name string, tp coord.TP) (int64, *kerr.Error) {
	w.t.Helper()
	type answer struct {
		got  map[group.TP]group.Fetched
		code *kerr.Error
	}
	ch := make(chan answer, 1)
	in := group.FetchIn{Member: group.Member{Group: name, Generation: -1}, TPs: []group.TP{group.TP(tp)}}
	w.e.Groups().Fetch(in, func(got map[group.TP]group.Fetched, code *kerr.Error) { ch <- answer{got, code} })
	a := soon(w.t, "the offsets of a group", ch)
	return a.got[group.TP(tp)].Offset.Offset, a.code
}

// TestTransactionalOffsets: offsets staged in a transaction are seen with its commit marker, and with its abort never
// (I12).
func TestTransactionalOffsets(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	p := w.init("x")
	want := int64(-1)
	for i, commit := range []bool{true, false, true} {
		in := group.CommitIn{Member: group.Member{Group: "g"}, Version: 5, PID: p.PID, Epoch: p.Epoch, RetainMs: -1,
			TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: int64(10 + i), LeaderEpoch: -1}}}
		_, guard := w.commit(in)
		if guard == 0 {
			t.Fatal("offsets were staged without the coordinator")
		}
		owner, _ := w.e.OffsetsTP("g")
		told := make(chan *kerr.Error, 1)
		part := coord.Part{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TPs: []coord.TP{owner}}
		if code := w.e.Confirm(part, true, func(code *kerr.Error) { told <- code })[0]; code != nil {
			t.Fatal(code)
		}
		in.Guard = guard
		if code, again := w.commit(in); code != nil || again != 0 {
			t.Fatalf("with the guard: %v, guard %d", code, again)
		}
		soon(t, "the registration", told)
		if got, code := w.committed("g", tp); got != want || code != nil {
			t.Errorf("before the end: %d, want %d, %v", got, want, code)
		}
		next, code := w.end("x", p, commit)
		if code != nil {
			t.Fatal(code)
		}
		if commit {
			want = int64(10 + i)
		}
		if got, code := w.committed("g", tp); got != want || code != nil {
			t.Errorf("after commit=%v: %d, want %d, %v", commit, got, want, code)
		}
		p = next
	}
}

// TestReopened: the log of a coordinator or of groups fails to flush, everybody is told 16, the store opens it anew,
// and the shard goes on with what the log holds.
func TestReopened(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	p := w.init("x")
	told := make(chan *kerr.Error, 1)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tp)
	soon(t, "the registration", told)
	plain := func(offset int64) group.CommitIn {
		return group.CommitIn{Member: group.Member{Group: "g"}, Version: 8, PID: -1, Epoch: -1, RetainMs: -1,
			TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: offset, LeaderEpoch: -1}}}
	}
	if code, _ := w.commit(plain(5)); code != nil {
		t.Fatal(code)
	}
	heal := func(topic string, partition int32) {
		t.Helper()
		at := store.TP{Topic: topic, ID: w.s.Catalog().ByName[topic].ID, Partition: partition}
		if err := w.s.Reopen(at); err != nil {
			t.Fatal(err)
		}
		if err := w.e.Reopened(soon(t, "the notice", w.again)); err != nil {
			t.Fatal(err)
		}
	}

	n := coord.Partition("x", 2)
	fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, TxnTopic, n), 1, syscall.EIO)
	for range 2 {
		if _, code := w.end("x", p, true); code != kerr.NotCoordinator {
			t.Fatalf("EndTxn while the log fails: %v", code)
		}
	}
	heal(TxnTopic, n)
	if _, code := w.end("x", p, true); code != nil && code != kerr.ConcurrentTransactions {
		t.Errorf("EndTxn after it: %v", code)
	}
	w.flushed(tp)
	if at := w.log(tp).Offsets(); at.Stable != 2 {
		t.Errorf("stable %d of %d, want 2", at.Stable, at.End)
	}

	n = group.Partition("g", 2)
	fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, OffsetsTopic, n), 1, syscall.EIO)
	for range 2 {
		if code, _ := w.commit(plain(6)); code != kerr.NotCoordinator {
			t.Fatalf("a commit while the log fails: %v", code)
		}
	}
	heal(OffsetsTopic, n)
	if got, code := w.committed("g", tp); got != 5 && got != 6 || code != nil {
		t.Errorf("after it: %d, %v", got, code)
	}
	if code, _ := w.commit(plain(7)); code != nil {
		t.Errorf("a commit after it: %v", code)
	}
	if got, _ := w.committed("g", tp); got != 7 {
		t.Errorf("committed %d, want 7", got)
	}
	if err := w.e.Reopened(store.TP{Topic: "a", ID: tp.ID}); err != nil {
		t.Errorf("a partition of a user: %v", err)
	}
}

// TestDeletedTopic: a topic deleted under an open transaction takes nothing with it, and one made under its name gets
// no marker of the old one.
func TestDeletedTopic(t *testing.T) {
	w := start(t, vfs.NewMem(), nil)
	if err := w.e.BeforeDelete(store.Topic{Name: "a"}); err != nil {
		t.Errorf("without coordinators: %v", err)
	}
	w.ensure()
	old, stays := w.topic("a", 1)[0], w.topic("b", 1)[0]
	p := w.init("x")
	told := make(chan *kerr.Error, 1)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, old, stays)
	soon(t, "the registration", told)
	if err := w.s.DeleteTopic(old.ID, w.e.BeforeDelete); err != nil {
		t.Fatal(err)
	}
	fresh := w.topic("a", 1)[0]
	if _, code := w.end("x", p, true); code != nil {
		t.Fatal(code)
	}
	if at := w.log(fresh).Offsets(); at.End != 0 {
		t.Errorf("the new topic has %d offsets, want none", at.End)
	}
	if at := w.log(stays).Offsets(); at.Stable != 2 {
		t.Errorf("the other participant: stable %d, want 2", at.Stable)
	}
	done := make(chan error, 1)
	w.e.WriteMarker(old, batch.Marker{PID: p.PID, Epoch: p.Epoch}, false, func(err error) { done <- err })
	if err := soon(t, "an answer", done); !errors.Is(err, store.ErrUnknownTopicID) {
		t.Errorf("a marker for what is gone: %v", err)
	}
}
