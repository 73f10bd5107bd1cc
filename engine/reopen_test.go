package engine

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"

	"sekali/coord"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestReopenedPartition: a partition that could not be opened at the start comes back with open transactions. What
// nobody owns is aborted, what its id does not know is registered, and its owner ends it.
func TestReopenedPartition(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, func(c *Config) { c.VerifyOff = true })
	w.ensure()
	tps := w.topic("a", 3)
	p := w.init("x")
	stranger := coord.InitOut{PID: 5000, Epoch: 3}
	for tp, who := range map[coord.TP]coord.InitOut{tps[0]: stranger, tps[1]: p, tps[2]: p} {
		if b := w.append("x", who, 0, false, nil, tp)[0]; b.Err != nil {
			t.Fatal(b.Err)
		}
		w.flushed(tp)
	}
	next := fs.Kill()
	w.stop()

	// Two of the three fail at the start, which flushes what a process that died has left.
	for n := range 2 {
		next.FailSync(fmt.Sprintf("%s/a-%d/*.log", dataDir, n), 1, syscall.EIO)
	}
	w = start(t, next, nil)
	for n := range 2 {
		at := store.TP{Topic: "a", ID: tps[n].ID, Partition: int32(n)}
		if _, err := w.s.Partition(at); err == nil {
			t.Fatalf("partition %d is there", n)
		}
		if err := w.s.Reopen(at); err != nil {
			t.Fatal(err)
		}
		if err := w.e.Reopened(soon(t, "the notice", w.again)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the end of what belongs to nobody", func() bool { return w.log(tps[0]).Offsets().Stable == 2 })
	if q := w.init("y"); q.PID <= stranger.PID {
		t.Errorf("I6: producer id %d, but %d has been used", q.PID, stranger.PID)
	}
	eventually(t, "the commit of x", func() bool {
		_, code := w.end("x", p, true)
		if code != nil && code != kerr.ConcurrentTransactions { // while it is registered
			t.Fatalf("its commit: %v", code)
		}
		return code == nil
	})
	for _, tp := range tps[1:] {
		if at := w.log(tp).Offsets(); at.Stable != 2 || at.End != 2 {
			t.Errorf("partition %d after the commit: stable %d of %d, want 2", tp.Partition, at.Stable, at.End)
		}
	}
}

// TestReopenedKeepsWhatIsOwned: a partition that fails and comes back in the middle of a transaction keeps it.
func TestReopenedKeepsWhatIsOwned(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	p := w.init("x")
	told := make(chan *kerr.Error, 1)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tp)
	soon(t, "the registration", told)
	w.flushed(tp)
	at := store.TP{Topic: "a", ID: tp.ID}
	fs.FailSync(dataDir+"/a-0/*.log", 1, syscall.EIO)
	b := w.append("x", p, 1, true, func(*kerr.Error) {}, tp)[0]
	if b.Err != nil {
		t.Fatal(b.Err)
	}
	eventually(t, "the failure", func() bool { l, err := w.s.Partition(at); return err != nil || l.Err() != nil })
	if err := w.s.Reopen(at); err != nil {
		t.Fatal(err)
	}
	if err := w.e.Reopened(soon(t, "the notice", w.again)); err != nil {
		t.Fatal(err)
	}
	end := w.log(tp).Offsets().End
	if at := w.log(tp).Offsets(); at.Stable != 0 || end == 0 {
		t.Fatalf("stable %d of %d, want 0: the transaction is open", at.Stable, end)
	}
	if _, code := w.end("x", p, true); code != nil {
		t.Fatal(code)
	}
	if at := w.log(tp).Offsets(); at.Stable != end+1 {
		t.Errorf("stable %d, want %d", at.Stable, end+1)
	}
}

// TestReopenedCoordinator: what is open of producers that the reopened shard does not know is looked up in all shards,
// and ended if nobody knows it.
func TestReopenedCoordinator(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, func(c *Config) { c.VerifyOff = true })
	w.ensure()
	tps := w.topic("a", 2)
	known := ""
	shard := int32(-1)
	for i := 0; shard < 0; i++ { // an id of the other shard
		if known = fmt.Sprint("id-", i); coord.Partition(known, 2) == 1 {
			shard = 0
		}
	}
	p := w.init(known)
	told := make(chan *kerr.Error, 1)
	w.append(known, p, 0, true, func(code *kerr.Error) { told <- code }, tps[0])
	soon(t, "the registration", told)
	stranger := coord.InitOut{PID: 1 << 40, Epoch: 3}
	if b := w.append("", stranger, 0, false, nil, tps[1])[0]; b.Err != nil {
		t.Fatal(b.Err)
	}
	for _, tp := range tps {
		w.flushed(tp)
	}
	at := store.TP{Topic: TxnTopic, ID: w.s.Catalog().ByName[TxnTopic].ID, Partition: shard}
	if err := w.e.Reopened(at); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of what belongs to nobody", func() bool { return w.log(tps[1]).Offsets().Stable == 2 })
	if at := w.log(tps[0]).Offsets(); at.Stable != 0 || at.End != 1 {
		t.Errorf("of %s: stable %d of %d, want 0 of 1", known, at.Stable, at.End)
	}
	if _, code := w.end(known, p, true); code != nil {
		t.Error(code)
	}
}

// TestIDsAboveThoseInUse (I6): ids that partitions remember are not given out, though the counter knows nothing of
// them; one that was made up neither uses the ids up nor hides the others.
func TestIDsAboveThoseInUse(t *testing.T) {
	for _, madeUp := range []int64{-1, math.MaxInt64, coord.FoundPIDsBelow} {
		fs := vfs.NewMem()
		w := start(t, fs, func(c *Config) { c.VerifyOff = true })
		tp := w.topic("a", 1)[0]
		for _, pid := range []int64{70_000, madeUp} {
			if pid < 0 {
				continue
			}
			if b := w.append("", coord.InitOut{PID: pid}, 0, false, nil, tp)[0]; b.Err != nil {
				t.Fatal(b.Err)
			}
		}
		w.flushed(tp)
		next := fs.Kill()
		w.stop()
		w = start(t, next, nil)
		if id, err := w.e.PIDs().Next(); err != nil || id != 70_001 {
			t.Errorf("beside %d: id %d, %v, want 70001", madeUp, id, err)
		}
		w.stop()
	}
}

// TestDeletedTopicWritten: with durability=written, too, the offsets of a topic do not come back once its deletion has
// ended, whatever a power cut takes.
func TestDeletedTopicWritten(t *testing.T) {
	fs := vfs.NewMem()
	written := func(c *store.Config) { c.Written = true }
	w := start(t, fs, nil, written)
	w.ensure()
	tp := w.topic("a", 1)[0]
	commit := group.CommitIn{Member: group.Member{Group: "g"}, Version: 8, PID: -1, Epoch: -1, RetainMs: -1,
		TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: 5, LeaderEpoch: -1}}}
	if code, _ := w.commit(commit); code != nil {
		t.Fatal(code)
	}
	w.s.Tick() // starts the flush of what was written
	owner, _ := w.e.OffsetsTP("g")
	if l := w.log(owner); l.Flush(l.Offsets().End) != nil {
		t.Fatal(l.Err())
	}
	if err := w.s.DeleteTopic(tp.ID, w.e.BeforeDelete); err != nil {
		t.Fatal(err)
	}
	after := fs.Crash(vfs.CrashPlan{})
	w.stop()
	w = start(t, after, nil, written)
	fresh := w.topic("a", 1)[0]
	if got, code := w.committed("g", fresh); got != -1 || code != nil {
		t.Errorf("the new topic has the offset %d of the old one, %v", got, code)
	}
}

// TestUnloaded: the journals of a shard of transactions and of one of groups cannot be read at the start, though their
// logs serve: no handle is left. The shards refuse, the partitions are listed, and once they can be read everything is
// as it was.
func TestUnloaded(t *testing.T) {
	fs := vfs.Inject(vfs.NewMem())
	w := start(t, fs, nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	p := w.init("x")
	told := make(chan *kerr.Error, 1)
	w.append("x", p, 0, true, func(code *kerr.Error) { told <- code }, tp)
	soon(t, "the registration", told)
	commit := group.CommitIn{Member: group.Member{Group: "g"}, Version: 8, PID: -1, Epoch: -1, RetainMs: -1,
		TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: 5, LeaderEpoch: -1}}}
	if code, _ := w.commit(commit); code != nil {
		t.Fatal(code)
	}
	w.stop()

	w = start(t, fs, func(*Config) {
		for _, dir := range []string{
			fmt.Sprintf("%s-%d", TxnTopic, coord.Partition("x", 2)),
			fmt.Sprintf("%s-%d", OffsetsTopic, group.Partition("g", 2)),
		} {
			fs.Add(vfs.Rule{Op: "readat", Match: dataDir + "/" + dir + "/*.log", Err: syscall.EMFILE})
		}
	})
	if len(w.faults) == 0 {
		t.Fatal("the start told of no fault")
	}
	if _, code := w.end("x", p, true); code != kerr.NotCoordinator {
		t.Errorf("EndTxn at a shard that is not loaded: %v", code)
	}
	if code, _ := w.commit(commit); code != kerr.NotCoordinator {
		t.Errorf("a commit at a shard that is not loaded: %v", code)
	}
	left := w.e.Unloaded()
	if len(left) != 2 {
		t.Fatalf("not loaded: %v, want two partitions", left)
	}
	for _, tp := range left {
		if err := w.e.Reopened(tp); err == nil {
			t.Errorf("%v was loaded though it cannot be read", tp)
		}
	}
	if again := w.e.Unloaded(); !slices.Equal(again, left) {
		t.Errorf("not loaded after another try: %v, want %v", again, left)
	}
	fs.Clear()
	for _, tp := range left {
		if err := w.e.Reopened(tp); err != nil {
			t.Error(err)
		}
	}
	if again := w.e.Unloaded(); len(again) != 0 {
		t.Errorf("not loaded at the end: %v", again)
	}
	if got, code := w.committed("g", tp); got != 5 || code != nil {
		t.Errorf("committed %d, %v, want 5", got, code)
	}
	eventually(t, "the commit of x", func() bool {
		_, code := w.end("x", p, true)
		if code != nil && code != kerr.ConcurrentTransactions {
			t.Fatalf("its commit: %v", code)
		}
		return code == nil
	})
	eventually(t, "its marker", func() bool { return w.log(tp).Offsets().Stable == 2 })
}
