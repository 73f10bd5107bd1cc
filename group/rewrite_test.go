package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// rewriteWorld rewrites as soon as 20 records more than the live ones are there.
func rewriteWorld(t *testing.T) *world {
	cfg := testConfig()
	cfg.RewriteEvery, cfg.SnapshotEvery = 20, 0
	w := newWorld(t, cfg)
	w.topics.set("orders", 1, 4)
	return w
}

// TestRewriteKeepsTheJournalShort: however often the same keys are committed the journal holds a bounded number of
// records, and always the whole state.
func TestRewriteKeepsTheJournalShort(t *testing.T) {
	w := rewriteWorld(t)
	member := w.stableGroup("orders")
	for i := int64(0); i < 500; i++ {
		in := plain("g", int32(i%3), i)
		in.Member.Member, in.Generation = member, 1
		w.mustCommit(in)
		w.advance(100 * time.Millisecond)
		if kept := w.j.End() - w.j.Start(); kept > 40 {
			t.Fatalf("%d records after %d commits of 3 keys", kept, i+1)
		}
		w.m.Heartbeat(Member{Group: "g", Member: member, Generation: 1}, func(code *kerr.Error) {
			if code != nil {
				t.Fatal(code)
			}
		})
	}
	if w.j.Start() < 400 {
		t.Fatalf("log start %d after 500 commits", w.j.Start())
	}
	w.restart()
	for p, want := range []int64{498, 499, 497} {
		if got := w.offset("g", int32(p), true); got != want {
			t.Fatalf("partition %d holds %d, want %d", p, got, want)
		}
	}
	if g := w.group("g"); g == nil || g.classic.state != stateStable || g.classic.byID[member] == nil {
		t.Fatalf("the group record is gone: %+v", g)
	}
}

// TestRewriteWaitsForTransactions: a key with a staged offset is not appended again before the decision, and the log
// start does not pass the first open transaction.
func TestRewriteWaitsForTransactions(t *testing.T) {
	for _, commit := range []bool{true, false} {
		w := rewriteWorld(t)
		w.mustCommit(plain("g", 0, 1))
		w.mustStage(staged("g", 9, 0, 5))
		first := int64(1)
		for i := int64(0); i < 100; i++ {
			w.mustCommit(plain("h", 0, i))
		}
		w.advance(30 * time.Second)
		if w.j.Start() > first || w.group("g").offsets.live[tpKey{"orders", 0}].at != 0 {
			t.Fatalf("log start %d, %+v", w.j.Start(), w.group("g").offsets)
		}
		w.want("open", 1, -2)
		w.end(9, commit)
		w.advance(30 * time.Second)
		if w.j.Start() < 100 {
			t.Fatalf("log start %d after the decision", w.j.Start())
		}
		want := map[bool]int64{true: 5, false: 1}[commit]
		w.want("decided", want, want)
		w.restart()
		w.want("restarted", want, want)
	}
}

// TestRewriteOfWhatWasStaged: an offset that was staged when the rewrite began and is committed while it runs is
// appended again before the log start passes it.
func TestRewriteOfWhatWasStaged(t *testing.T) {
	w := rewriteWorld(t)
	w.mustStage(staged("g", 9, 0, 5))
	for i := int64(0); i < 100; i++ {
		w.mustCommit(plain("h", 0, i))
	}
	w.advance(time.Second)
	w.end(9, true)
	w.advance(30 * time.Second)
	if w.j.Start() < 100 {
		t.Fatalf("log start %d", w.j.Start())
	}
	for range 2 {
		w.want("committed during the rewrite", 5, 5)
		w.restart()
	}
}

// TestRewriteLeavesFlyingRecords: the same for records that are not offsets.
func TestRewriteLeavesFlyingRecords(t *testing.T) {
	w := rewriteWorld(t)
	s := (*w.m.shards.Load())[0]
	key := []byte{0, 10, 0, 1, 'g'}
	write := func(v byte) {
		s.append([]Record{{Key: key, Value: []byte{v}}}, func(int64, *kerr.Error) {})
	}
	write(1)
	for i := int64(0); i < 60; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.j.held = true
	write(2)
	w.advance(100 * time.Millisecond)
	w.j.flush()
	w.j.held = false
	w.advance(30 * time.Second)
	if w.j.Start() < 50 {
		t.Fatalf("log start %d", w.j.Start())
	}
	w.restart()
	s = (*w.m.shards.Load())[0]
	if got := s.others[string(key)].value; len(got) != 1 || got[0] != 2 {
		t.Fatalf("holds %v", got)
	}
}

// TestRewriteLeavesFlyingKeys: a key whose new value is on its way is not appended again with its old one.
func TestRewriteLeavesFlyingKeys(t *testing.T) {
	w := rewriteWorld(t)
	for i := int64(0); i < 30; i++ {
		w.mustCommit(plain("g", 0, i))
		w.mustCommit(plain("g", 1, i))
	}
	w.j.held = true
	w.commit(plain("g", 0, 99))
	w.advance(100 * time.Millisecond)
	w.j.flush()
	w.j.held = false
	w.advance(30 * time.Second)
	if w.j.Start() < 50 {
		t.Fatalf("log start %d", w.j.Start())
	}
	for range 2 {
		if a, b := w.offset("g", 0, true), w.offset("g", 1, true); a != 99 || b != 29 {
			t.Fatalf("holds %d and %d", a, b)
		}
		w.restart()
	}
}

// TestRewriteKeepsForeignRecords: records of types that are not interpreted are kept and appended again as they are.
func TestRewriteKeepsForeignRecords(t *testing.T) {
	w := rewriteWorld(t)
	share := Record{Key: []byte{0, 10, 0, 1, 'g'}, Value: []byte{0, 0, 1, 2, 3}}
	empty := Record{Key: []byte{0, 17, 0, 1, 'g'}, Value: []byte{}}
	gone := Record{Key: []byte{0, 11, 0, 1, 'g'}, Value: []byte{1}}
	w.j.Append([]Record{share, empty, gone, {Key: gone.Key}}, -1, -1, 0, func(int64, error) {})
	w.restart()
	for i := int64(0); i < 60; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.advance(30 * time.Second)
	if w.j.Start() < 50 {
		t.Fatalf("log start %d", w.j.Start())
	}
	last := map[string]string{}
	for _, r := range w.j.logged {
		last[string(r.Record.Key)] = fmt.Sprint(r.Record.Value)
	}
	if last[string(share.Key)] != fmt.Sprint(share.Value) || last[string(empty.Key)] != "[]" {
		t.Fatalf("kept %v", last)
	}
	if _, ok := last[string(gone.Key)]; ok {
		t.Fatal("a tombstoned record came back")
	}
}

// TestRewriteRests: a refused step is taken again later, and a failed raise of the log start too.
func TestRewriteRests(t *testing.T) {
	w := rewriteWorld(t)
	for i := int64(0); i < 60; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.j.fail = ErrStorage
	w.advance(5 * time.Second)
	if w.j.Start() != 0 || w.j.End() != 60 {
		t.Fatalf("journal [%d, %d)", w.j.Start(), w.j.End())
	}
	w.j.fail = nil
	w.advance(2 * time.Second)
	if w.j.Start() != 60 || w.j.End() != 61 || w.offset("g", 0, true) != 59 {
		t.Fatalf("journal [%d, %d)", w.j.Start(), w.j.End())
	}
}

// TestRewriteOfLargeRecords: a record that would take a batch past what the journal takes waits for the next one, and
// where the journal takes less than it did, batches become smaller until they fit.
func TestRewriteOfLargeRecords(t *testing.T) {
	w := rewriteWorld(t)
	s := (*w.m.shards.Load())[0]
	last := map[string]int{}
	for i, size := range []int{200 << 10, 1000 << 10, 50 << 10, 1000 << 10, 300 << 10, 250 << 10, 10 << 10} {
		key := []byte{0, 10, 0, 1, 'a' + byte(i)}
		last[string(key)] = size
		s.append([]Record{{Key: key, Value: make([]byte, size)}}, func(int64, *kerr.Error) {})
	}
	for i := int64(0); i < 60; i++ {
		w.mustCommit(plain("g", 0, i))
	}
	w.j.most = 1<<20 - 12<<10
	w.advance(10 * time.Second)
	if w.j.Start() < 60 || w.j.refused > 0 {
		t.Fatalf("log start %d, %d batches were too large", w.j.Start(), w.j.refused)
	}
	before := w.j.Start()
	w.j.most = 1100 << 10
	for i := range int64(100) {
		w.mustCommit(plain("g", 0, i))
	}
	w.j.most = 55 << 10
	for k, size := range last {
		if size > w.j.most-1<<10 {
			s.append([]Record{{Key: []byte(k)}}, func(int64, *kerr.Error) {})
			delete(last, k)
		}
	}
	w.advance(30 * time.Second)
	if w.j.Start() < before+60 {
		t.Fatalf("with smaller batches: log start %d, before %d", w.j.Start(), before)
	}
	w.restart()
	s = (*w.m.shards.Load())[0]
	for k, size := range last {
		if got := len(s.others[k].value); got != size {
			t.Errorf("%q has %d bytes, want %d", k, got, size)
		}
	}
}
