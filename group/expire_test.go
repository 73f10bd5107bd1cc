package group

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

const day = 24 * time.Hour

// expiryWorld keeps offsets for a day and looks every ten minutes.
func expiryWorld(t *testing.T) *world {
	cfg := testConfig()
	cfg.RetainMs, cfg.SessionMaxMs = day.Milliseconds(), 1<<30
	w := newWorld(t, cfg)
	w.topics.set("orders", 1, 4)
	w.topics.set("bills", 2, 4)
	return w
}

// pass moves the wall clock by d and makes one pass; sessions of members do not end meanwhile.
func (w *world) pass(d time.Duration) {
	s := (*w.m.shards.Load())[0]
	w.clk.SetWall(w.clk.Wall() + d.Milliseconds())
	s.post(func() {
		s.expiry.todo = sortedStrings(s.groups)
		s.expireStep()
	})
	w.m.Tick()
}

// TestExpiryTable is the table of spec groups.md 2.4 for simple and classic groups: an offset is there a moment before
// its time and gone at it, or never.
func TestExpiryTable(t *testing.T) {
	for _, r := range []struct {
		name    string
		prepare func(w *world) (in CommitIn)
		after   func(w *world)
		at      time.Duration // after the commit; 0: never
		groupAt bool          // the group goes with it
	}{
		{"simple", func(*world) CommitIn { return plain("g", 0, 5) }, nil, day, true},
		{"simple, own time", func(*world) CommitIn {
			in := plain("g", 0, 5)
			in.RetainMs = 1000
			return in
		}, nil, time.Second, true},
		{"simple, longer own time", func(*world) CommitIn {
			in := plain("g", 0, 5)
			in.RetainMs = (3 * day).Milliseconds()
			return in
		}, nil, 3 * day, true},
		{"classic empty, since it is empty", func(w *world) CommitIn { return w.memberCommit("orders") }, func(w *world) {
			w.clk.SetWall(w.clk.Wall() + 5*day.Milliseconds())
			w.leaveAll()
		}, 6 * day, true},
		{"classic stable, subscribed", func(w *world) CommitIn { return w.memberCommit("orders") }, nil, 0, false},
		{"classic stable, not subscribed", func(w *world) CommitIn { return w.memberCommit("bills") }, nil, day, false},
		{"classic stable, another protocol type", func(w *world) CommitIn {
			in := w.memberCommit("bills")
			w.group("g").classic.protocolType = "connect"
			return in
		}, nil, 0, false},
		{"classic preparing", func(w *world) CommitIn { return w.memberCommit("bills") }, func(w *world) {
			second := w.join(asks("", "bills"))
			w.join(asks(second.out.Member, "bills"))
		}, 0, false},
		{"staged", func(*world) CommitIn { return plain("g", 0, 5) }, func(w *world) {
			w.mustStage(staged("g", 9, 0, 6))
		}, 0, false},
		{"another key staged", func(*world) CommitIn { return plain("g", 0, 5) }, func(w *world) {
			w.mustStage(staged("g", 9, 1, 6))
		}, day, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			w := expiryWorld(t)
			w.mustCommit(r.prepare(w))
			if r.after != nil {
				r.after(w)
			}
			committedAt := int64(1_700_000_000_000)
			at := r.at
			if at == 0 {
				at = 100 * day
			}
			w.pass(time.Duration(committedAt+at.Milliseconds()-1-w.clk.Wall()) * time.Millisecond)
			if got := w.offset("g", 0, false); got != 5 {
				t.Fatalf("gone before its time: %d", got)
			}
			w.pass(time.Millisecond)
			gone := w.offset("g", 0, false) == -1
			if gone != (r.at != 0) {
				t.Fatalf("gone %v, want %v", gone, r.at != 0)
			}
			if (w.group("g") == nil) != r.groupAt {
				t.Fatalf("group %+v", w.group("g"))
			}
			w.restart()
			if again := w.offset("g", 0, false) == -1; again != gone || (w.group("g") == nil) != r.groupAt {
				t.Fatalf("after a restart: gone %v, group %+v", again, w.group("g"))
			}
		})
	}
}

// memberCommit is a commit of orders-0 by the only member of g, which subscribes topic.
func (w *world) memberCommit(topic string) CommitIn {
	in := plain("g", 0, 5)
	in.Member.Member, in.Generation = w.stableGroup(topic), 1
	return in
}

func (w *world) leaveAll() {
	var members []Member
	for _, m := range w.group("g").classic.members {
		members = append(members, Member{Group: "g", Member: m.id})
	}
	w.m.Leave("g", members, func([]*kerr.Error, *kerr.Error) {})
	if w.group("g").classic.state != stateEmpty {
		w.t.Fatal("not empty")
	}
}

// TestExpiryTimer: the pass runs by its timer, and a group without offsets and members goes with it.
func TestExpiryTimer(t *testing.T) {
	w := expiryWorld(t)
	w.stableGroup("orders")
	w.leaveAll()
	w.advance(time.Second)
	if w.group("g") == nil {
		t.Fatal("gone before the first pass")
	}
	w.advance(11 * time.Minute)
	if w.group("g") != nil {
		t.Fatal("still there after the first pass")
	}
	w.restart()
	if w.group("g") != nil {
		t.Fatal("back after a restart")
	}
}

// TestExpiryOfManyOffsets: a large group goes in bounded batches, all in one pass, and a refused batch leaves it.
func TestExpiryOfManyOffsets(t *testing.T) {
	w := expiryWorld(t)
	w.topics.set("orders", 1, 5000)
	for p := int32(0); p < 2500; p++ {
		w.mustCommit(plain("g", p, 1))
	}
	var told int
	w.m.cfg.Events.Expired = func(n int) { told += n }
	before := w.j.batches
	w.pass(2 * day)
	for range 10 {
		w.advance(100 * time.Millisecond)
	}
	if w.group("g") != nil || w.j.batches-before != 3 || told != 2500 {
		t.Fatalf("%d batches, %d expired, group %v", w.j.batches-before, told, w.group("g"))
	}
	w.mustCommit(plain("g", 0, 1))
	w.j.fail = ErrStorage
	w.pass(2 * day)
	if w.j.fail = nil; w.offset("g", 0, false) != 1 {
		t.Fatal("gone without a record")
	}
	w.pass(0)
	if w.offset("g", 0, false) != -1 {
		t.Fatal("not tried again")
	}
}

// TestExpirySparesWhatIsComing: an old offset whose successor is on its way stays.
func TestExpirySparesWhatIsComing(t *testing.T) {
	w := expiryWorld(t)
	w.mustCommit(plain("g", 0, 1))
	w.clk.SetWall(w.clk.Wall() + 2*day.Milliseconds())
	w.j.held = true
	w.commit(plain("g", 0, 2))
	w.pass(0)
	w.j.flush()
	if got := w.offset("g", 0, false); got != 2 {
		t.Fatalf("holds %d", got)
	}
}

// TestDeleteGroup: tombstones for the group and every offset, committed, staged and on the way; the next commit begins
// anew.
func TestDeleteGroup(t *testing.T) {
	w := expiryWorld(t)
	w.mustCommit(plain("g", 0, 1))
	w.mustStage(staged("g", 9, 1, 2))
	w.j.held = true
	c := w.commit(plain("g", 2, 3))
	var code *kerr.Error
	n := 0
	w.m.Delete("g", func(c *kerr.Error) { code, n = c, n+1 })
	w.j.flush()
	w.j.held = false
	w.advance(time.Second)
	if n != 1 || code != nil || c.codes[0] != nil || w.group("g") != nil {
		t.Fatalf("%d answers, %v, commit %+v, group %v", n, code, c, w.group("g"))
	}
	w.end(9, true)
	for range 2 {
		for p := range int32(3) {
			if got := w.offset("g", p, true); got != -1 {
				t.Fatalf("partition %d holds %d", p, got)
			}
		}
		w.restart()
	}
	w.mustCommit(plain("g", 1, 7))
	w.restart()
	if got := w.offset("g", 1, true); got != 7 {
		t.Fatalf("holds %d", got)
	}
}

// TestTopicsDeleted: every offset of the topic goes, committed, staged or on the way, in every group and over every
// crash; others stay; a topic made anew under the name inherits nothing, nor does a late commit for the old one count.
func TestTopicsDeleted(t *testing.T) {
	w := expiryWorld(t)
	bills := plain("g", 0, 50)
	bills.TPs[0] = TP{Topic: "bills", ID: [16]byte{2}}
	w.mustCommit(bills)
	for g := range 3 {
		for p := range int32(4) {
			w.mustCommit(plain(fmt.Sprint("group-", g), p, 1))
		}
	}
	w.mustStage(staged("group-0", 9, 1, 2))
	w.mustCommit(plain("g", 3, 3))
	w.j.held = true
	w.commit(plain("g", 2, 3))
	w.commit(plain("new", 2, 3))
	w.topics.set("orders", 1, -1)
	orders := []TP{{Topic: "orders", ID: [16]byte{1}}}
	var err error
	n := 0
	w.m.TopicsDeleted(orders, func(e error) { err, n = e, n+1 })
	if n != 0 {
		t.Fatal("told before it is durable")
	}
	w.j.flush()
	w.j.held = false
	if n != 1 || err != nil {
		t.Fatalf("told %d times, %v", n, err)
	}
	if late := w.commit(plain("g", 0, 9)); late.codes[0] != kerr.UnknownTopicOrPartition {
		t.Fatalf("late commit: %+v", late)
	}
	w.topics.set("orders", 3, 4)
	if late := w.commit(plain("g", 0, 9)); late.codes[0] != kerr.UnknownTopicOrPartition {
		t.Fatalf("late commit to the new one: %+v", late)
	}
	w.end(9, true)
	for range 2 {
		for _, g := range []string{"g", "new", "group-0", "group-1", "group-2"} {
			for p := range int32(4) {
				if got := w.offset(g, p, true); got != -1 {
					t.Fatalf("%s-%d holds %d", g, p, got)
				}
			}
		}
		if got := w.group("g").offsets.live[tpKey{"bills", 0}].offset; got != 50 {
			t.Fatalf("bills holds %d", got)
		}
		w.restart()
	}
	before := w.j.End()
	w.m.TopicsDeleted(orders, func(e error) { err, n = e, n+1 })
	if n != 2 || err != nil || w.j.End() != before {
		t.Fatalf("nothing left: told %d times, %v", n, err)
	}
	in := plain("g", 0, 9)
	in.TPs[0].ID = [16]byte{3}
	w.mustCommit(in)
	w.j.fail = ErrStorage
	w.m.TopicsDeleted([]TP{{Topic: "orders", ID: [16]byte{3}}}, func(e error) { err, n = e, n+1 })
	var code *kerr.Error
	if n != 3 || !errors.As(err, &code) || code != kerr.NotCoordinator {
		t.Fatalf("journal failed: told %d times, %v", n, err)
	}
}

// TestDeleteOfALargeGroup: its tombstones go in batches that the journal takes, the group's own last. What a failure on
// the way leaves is a group that can be deleted.
func TestDeleteOfALargeGroup(t *testing.T) {
	for _, id := range []string{"g", strings.Repeat("g", 5000)} {
		w := newWorld(t, testConfig())
		n := int32(12_000)
		if len(id) > 1 {
			n = 400
		}
		w.topics.set("orders", 1, n)
		for p := range n {
			w.mustCommit(plain(id, p, 1))
		}
		w.j.most = 300 << 10
		w.j.held = true
		var got []*kerr.Error
		w.m.Delete(id, func(c *kerr.Error) { got = append(got, c) })
		first := w.j.waiting[0]
		w.j.waiting, w.j.durable = nil, first.end
		first.done(first.base, nil)
		w.j.breakAll(ErrStorage)
		g := w.group(id)
		if len(got) != 1 || got[0] == nil || g == nil || g.dead || len(g.offsets.live) == 0 {
			t.Fatalf("a failure on the way: answers %v, group %v", got, g != nil)
		}
		w.j.held = false
		if w.m.Delete(id, func(c *kerr.Error) { got = append(got, c) }); len(got) != 2 || got[1] != nil {
			t.Fatalf("answers %v", got)
		}
		last := w.j.logged[len(w.j.logged)-1].Record
		if string(last.Key) != string(tombstoneClassic(id).Key) || last.Value != nil {
			t.Errorf("the last record is %q", last.Key)
		}
		for range 2 {
			if w.group(id) != nil {
				t.Fatal("the group is there")
			}
			w.restart()
		}
	}
}
