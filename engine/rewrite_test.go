package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sekali/coord"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestRewriteWritten: durability=written. Ids that were on the disk for long are appended again and the log start
// is raised past their old records; a power cut right behind that must not take the ids.
func TestRewriteWritten(t *testing.T) {
	written := func(c *store.Config) { c.Written = true }
	edit := func(c *Config) {
		c.TxnPartitions, c.TxnSegmentBytes = 1, 1<<20
		c.Txns.RewriteEvery, c.Txns.SnapshotEvery = 100_000, 1<<40
	}
	lost := 0
	for ids := 8; ids < 28 && lost == 0; ids += 3 {
		fs := vfs.NewMem()
		w := start(t, fs, edit, written)
		w.ensure()
		name := func(i int) string { return fmt.Sprint("keep-", i, "-", strings.Repeat("x", 20_000)) }
		for i := range ids {
			w.init(name(i))
		}
		l := w.log(coord.TP{Topic: TxnTopic, ID: w.s.Catalog().ByName[TxnTopic].ID})
		if err := l.Flush(l.Offsets().End); err != nil { // as the Tick of the store does a second later
			t.Fatal(err)
		}
		churn := "churn-" + strings.Repeat("y", 20_000)
		for n := 0; l.Offsets().Start == 0; n++ {
			if n > 2000 {
				t.Fatal("no rewrite")
			}
			if n < 60 {
				w.tryInit(churn)
			}
			w.clk.Advance(100 * time.Millisecond)
			w.e.Tick()
			time.Sleep(2 * time.Millisecond)
		}
		at := l.Offsets()
		after := fs.Crash(vfs.CrashPlan{})
		w.stop()
		w = start(t, after, edit, written)
		n := 0
		for i := range ids {
			answer := make(chan *kerr.Error, 1)
			w.e.Txns().Describe(name(i), func(_ coord.Info, code *kerr.Error) { answer <- code })
			if code := <-answer; code != nil {
				n++
			}
		}
		now := w.log(coord.TP{Topic: TxnTopic, ID: w.s.Catalog().ByName[TxnTopic].ID}).Offsets()
		t.Logf("%d ids, journal %d to %d before the cut, %d to %d after it: %d ids lost", ids, at.Start, at.End,
			now.Start, now.End, n)
		lost += n
		w.stop()
	}
	if lost > 0 {
		t.Errorf("%d transactional ids that were on the disk are gone", lost)
	}
}

// TestGroupRewriteWritten: so it is with the offsets of groups.
func TestGroupRewriteWritten(t *testing.T) {
	written := func(c *store.Config) { c.Written = true }
	edit := func(c *Config) {
		c.OffsetsPartitions, c.OffsetsSegmentBytes = 1, 1<<20
		c.Groups.RewriteEvery, c.Groups.SnapshotEvery = 5, 0
	}
	lost := 0
	for n := 20; n < 40 && lost == 0; n++ {
		fs := vfs.NewMem()
		w := start(t, fs, edit, written)
		w.ensure()
		tp := w.topic("a", 1)[0]
		commit := func(id string, offset int64) {
			t.Helper()
			in := group.CommitIn{Member: group.Member{Group: id, Generation: -1}, Version: 8, PID: -1, Epoch: -1,
				RetainMs: -1,
				TPs:      []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: offset, LeaderEpoch: -1}}}
			if code, _ := w.commit(in); code != nil {
				t.Fatal(code)
			}
		}
		name := func(i int) string { return fmt.Sprint("keep-", i, "-", strings.Repeat("x", 20_000)) }
		for i := range n {
			commit(name(i), int64(100+i))
		}
		journal := func() *plog.Log {
			return w.log(coord.TP{Topic: OffsetsTopic, ID: w.s.Catalog().ByName[OffsetsTopic].ID})
		}
		l := journal()
		if err := l.Flush(l.Offsets().End); err != nil {
			t.Fatal(err)
		}
		for i := 0; l.Offsets().Start == 0; i++ {
			if i > 3000 {
				t.Fatal("no rewrite")
			}
			if i < 8 {
				commit("churn", int64(i))
			}
			w.clk.Advance(100 * time.Millisecond)
			w.e.Tick()
			time.Sleep(time.Millisecond)
		}
		at := l.Offsets()
		after := fs.Crash(vfs.CrashPlan{})
		w.stop()
		w = start(t, after, edit, written)
		gone := 0
		for i := range n {
			if got, code := w.committed(name(i), tp); got != int64(100+i) || code != nil {
				gone++
			}
		}
		now := journal().Offsets()
		t.Logf("%d groups, journal %d to %d before the cut, %d to %d after it: offsets of %d groups lost", n,
			at.Start, at.End,
			now.Start, now.End, gone)
		lost += gone
		w.stop()
	}
	if lost > 0 {
		t.Errorf("the committed offsets of %d groups that were on the disk are gone", lost)
	}
}
