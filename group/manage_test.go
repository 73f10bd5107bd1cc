package group

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"sekali/batch"
	"sekali/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (w *world) describe(id string) (out Info, code *kerr.Error) {
	w.m.Describe(id, func(i Info, c *kerr.Error) { out, code = i, c })
	return out, code
}

func (w *world) list(states, types []string) (ids []string) {
	w.m.List(states, types, func(all []Info, code *kerr.Error) {
		if code != nil {
			w.t.Fatal(code)
		}
		for _, i := range all {
			ids = append(ids, i.Group+":"+i.State)
		}
	})
	return ids
}

func (w *world) delete(id string) (code *kerr.Error) {
	n := 0
	w.m.Delete(id, func(c *kerr.Error) { code = c; n++ })
	if n != 1 {
		w.t.Fatalf("delete answered %d times", n)
	}
	return code
}

func TestRestartKeepsTheLastGeneration(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	b2 := w.join(asks(b.out.Member, "more")) // in the middle of a rebalance
	w.wantJoin(b2, 0, nil)
	w.restart()
	w.wantState(stateStable, 2, 2)
	c := w.group("g").classic
	if c.leader != a.out.Member || c.protocol != "range" || c.protocolType != "consumer" || !c.subscribed("orders") ||
		c.subscribed("more") {
		t.Fatalf("%+v", c)
	}
	if m := c.byID[b.out.Member]; m.clientID != "app" || m.host != "/10.0.0.1" || m.sessionMs != 10000 ||
		m.rebalanceMs != 60000 || string(m.assignment) != "two" || string(m.metadata("range")) != string(sub("orders")) {
		t.Fatalf("%+v", m)
	}
	w.advance(9 * time.Second)
	if code := w.beat(a); code != nil {
		t.Fatal(code)
	}
	w.advance(1100 * time.Millisecond) // b's session ran from the start
	w.wantState(statePreparing, 1, 2)
}

func TestRestartOfAGroupAboveTheLimit(t *testing.T) {
	w := newWorld(t, testConfig())
	w.two()
	w.cfg.SizeMax = 1
	w.restart()
	w.wantState(statePreparing, 2, 2)
}

func TestRestartRestoresStaticMembers(t *testing.T) {
	w := newWorld(t, testConfig())
	_, b := w.statics()
	w.restart()
	b2 := w.join(static("i2", ""))
	w.wantJoin(b2, 1, nil)
	if b2.out.Member == b.out.Member || b2.out.Generation != 2 {
		t.Fatalf("%+v", b2.out)
	}
	w.wantState(stateStable, 2, 2)
}

func TestDescribe(t *testing.T) {
	w := newWorld(t, testConfig())
	if _, code := w.describe("g"); code != kerr.GroupIDNotFound {
		t.Fatal(code)
	}
	a, b := w.two()
	in, code := w.describe("g")
	if code != nil || in.State != "Stable" || in.Type != TypeClassic || in.Protocol != "range" || in.Generation != 2 ||
		in.ProtocolType != "consumer" || len(in.Members) != 2 {
		t.Fatalf("%+v %v", in, code)
	}
	if m := in.Members[1]; m.Member != b.out.Member || m.ClientID != "app" || m.Host != "/10.0.0.1" ||
		string(m.Assignment) != "two" || string(m.Metadata) != string(sub("orders")) {
		t.Fatalf("%+v", m)
	}
	w.join(asks(a.out.Member))
	in, _ = w.describe("g")
	if in.State != "PreparingRebalance" || in.Protocol != "" || len(in.Members) != 2 || in.Members[0].Assignment != nil ||
		in.Members[0].Metadata != nil {
		t.Fatalf("%+v", in)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t, testConfig())
	w.two()
	in := asks("")
	in.Group = "h"
	w.join(in)
	for _, c := range []struct {
		states, types, want []string
	}{
		{nil, nil, []string{"g:Stable", "h:Empty"}},
		{[]string{"stable"}, nil, []string{"g:Stable"}},
		{[]string{"EMPTY", "Dead"}, []string{"Classic"}, []string{"h:Empty"}},
		{nil, []string{"consumer"}, nil},
		{[]string{"nonsense"}, nil, nil},
	} {
		if got := w.list(c.states, c.types); !slices.Equal(got, c.want) {
			t.Errorf("%v %v: %v", c.states, c.types, got)
		}
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t, testConfig())
	if code := w.delete("g"); code != kerr.GroupIDNotFound {
		t.Fatal(code)
	}
	a := w.one()
	if code := w.delete("g"); code != kerr.NonEmptyGroup {
		t.Fatal(code)
	}
	w.leave(Member{Member: a.out.Member})
	w.j.held = true
	var got []*kerr.Error
	w.m.Delete("g", func(c *kerr.Error) { got = append(got, c) })
	if code := w.beat(a); code != kerr.CoordinatorNotAvailable { // its tombstone is on the way
		t.Fatal(code)
	}
	w.j.flush()
	if len(got) != 1 || got[0] != nil || w.group("g") != nil {
		t.Fatalf("%v", got)
	}
	w.j.held = false
	w.restart()
	if w.group("g") != nil {
		t.Fatal("deleted group came back")
	}
}

func TestDeleteThatCannotBeWritten(t *testing.T) {
	w := newWorld(t, testConfig())
	a := w.one()
	w.leave(Member{Member: a.out.Member})
	w.j.fail = ErrStorage
	if code := w.delete("g"); code != kerr.NotCoordinator {
		t.Fatal(code)
	}
	w.j.fail = nil
	if b := w.enter(); b.n != 1 || b.code != nil {
		t.Fatalf("the group lives on, got %v", b.code)
	}
}

func TestBeforeLoad(t *testing.T) {
	m := New(testConfig(), newFakeTopics(), newFakeSnaps(), clock.NewSim(0))
	want := func(name string, code, want *kerr.Error) {
		t.Helper()
		if code != want {
			t.Errorf("%s before Load: %v, want %v", name, code, want)
		}
	}
	busy := kerr.CoordinatorLoadInProgress
	g := Member{Group: "g", Member: "x"}
	m.Join(asks(""), func(_ JoinOut, c *kerr.Error) { want("join", c, busy) })
	m.Sync(SyncIn{Member: g}, func(_ SyncOut, c *kerr.Error) { want("sync", c, busy) })
	m.Heartbeat(g, func(c *kerr.Error) { want("heartbeat", c, nil) })
	m.Leave("g", []Member{g}, func(_ []*kerr.Error, c *kerr.Error) { want("leave", c, busy) })
	m.ConsumerHeartbeat(ConsumerIn{Member: g}, func(_ ConsumerOut, c *kerr.Error) { want("consumer", c, busy) })
	m.Commit(CommitIn{Member: g, PID: -1, TPs: make([]TP, 2), Offsets: make([]Offset, 2)},
		func(c []*kerr.Error, _ uint64) { want("commit", c[1], busy) })
	m.Fetch(FetchIn{Member: g}, func(_ map[TP]Fetched, c *kerr.Error) { want("fetch", c, busy) })
	m.OffsetDelete("g", nil, func(_ []*kerr.Error, c *kerr.Error) { want("offset delete", c, busy) })
	m.Describe("g", func(_ Info, c *kerr.Error) { want("describe", c, busy) })
	m.Delete("g", func(c *kerr.Error) { want("delete", c, busy) })
	m.List(nil, nil, func(all []Info, c *kerr.Error) { want("list", c, nil) })
	m.OnMarker(0, 0, batch.Marker{})
	m.Tick()
	m.Close()
	m.Join(asks(""), func(_ JoinOut, c *kerr.Error) { want("join after Close", c, kerr.CoordinatorNotAvailable) })
	if err := m.Load(t.Context(), nil); err == nil {
		t.Error("Load after Close")
	}
}

// deaf is a journal that cannot be read.
type deaf struct{ *fakeJournal }

func (deaf) Replay(int64, func(Replayed) error) error { return errTest }
func (deaf) End() int64                               { return 1 }

func TestJournalThatCannotBeReplayed(t *testing.T) {
	w := newWorld(t, testConfig())
	w.one()
	good := w.j
	w.m = New(w.cfg, w.topics, w.snaps, w.clk)
	if err := w.m.Load(t.Context(), []Journal{deaf{good}}); err == nil {
		t.Fatal("Load did not say so")
	}
	w.wantJoin(w.join(asks("")), 1, kerr.NotCoordinator)
	if all := w.list(nil, nil); len(all) != 0 {
		t.Fatalf("%v", all)
	}
	if err := w.m.Reload(0, good); err != nil {
		t.Fatal(err)
	}
	w.wantState(stateStable, 1, 1)
	if all := w.list(nil, nil); len(all) != 1 {
		t.Fatalf("%v", all)
	}
	if err := w.m.Reload(1, good); err == nil {
		t.Fatal("there is no partition 1")
	}
}

func TestReloadAnswersWhatIsParked(t *testing.T) {
	w := newWorld(t, testConfig())
	w.one()
	b := w.enter()
	w.wantJoin(b, 0, nil)
	if err := w.m.Reload(0, w.j); err != nil {
		t.Fatal(err)
	}
	w.wantJoin(b, 1, kerr.NotCoordinator)
	w.wantState(stateStable, 1, 1)
	w.advance(11 * time.Second) // the timers of the old shard do nothing
	w.wantState(stateEmpty, 0, 2)
}

func TestCloseAnswersWhatIsParked(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	b2 := w.join(asks(b.out.Member, "more"))
	w.m.Close()
	w.m.Close()
	w.wantJoin(b2, 1, kerr.CoordinatorNotAvailable)
	if code := w.beat(a); code != kerr.CoordinatorNotAvailable {
		t.Fatal(code)
	}
}

func TestTimersFireInOrderAndOnce(t *testing.T) {
	w := newWorld(t, testConfig())
	s := (*w.m.shards.Load())[0]
	var got []int
	var stopped *timer
	for i, d := range []time.Duration{300, 100, 200, 400, 500} {
		tm := s.after(d*time.Millisecond, func() { got = append(got, i) })
		if i == 3 {
			stopped = tm
		}
	}
	s.after(150*time.Millisecond, func() { s.after(0, func() { got = append(got, 9) }) })
	s.stop(stopped)
	s.stop(stopped)
	s.stop(nil)
	w.advance(time.Second)
	if want := []int{1, 2, 9, 0, 4}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

// TestGoroutines runs many groups on shards with goroutines: every call is answered, all members of a group agree, and
// Close ends everything.
func TestGoroutines(t *testing.T) {
	c := testConfig()
	c.Inline = false
	m := New(c, newFakeTopics(), newFakeSnaps(), clock.Real())
	var journals []Journal
	for range 8 {
		journals = append(journals, newFakeJournal())
	}
	if err := m.Load(context.Background(), journals); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var ticks, members sync.WaitGroup
	ticks.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.Tick()
				clock.Sleep(clock.Real(), 10*time.Millisecond)
			}
		}
	})
	var mu sync.Mutex
	told := map[string][]byte{}
	for g := range 10 {
		for range 4 {
			members.Go(func() {
				id := fmt.Sprintf("group-%d", g)
				member, assignment := live(t, m, id)
				mu.Lock()
				defer mu.Unlock()
				told[id+member] = assignment
			})
		}
	}
	members.Wait()
	close(stop)
	ticks.Wait()
	m.Close()
	if len(told) != 40 {
		t.Fatalf("%d members have an assignment, want 40", len(told))
	}
	for k, a := range told {
		if string(a) == "" || k[len(k)-len(a):] != string(a) {
			t.Fatalf("member %s was told %q", k, a)
		}
	}
}

// live is one member until its group is stable with four: the leader assigns to each its own id.
func live(t *testing.T, m *Manager, id string) (string, []byte) {
	member := ""
	for {
		joins := make(chan joined, 1)
		in := asks(member)
		in.Group = id
		m.Join(in, func(out JoinOut, code *kerr.Error) { joins <- joined{out: out, code: code} })
		j := <-joins
		if j.code == kerr.MemberIDRequired {
			member = j.out.Member
			continue
		}
		if j.code != nil {
			t.Errorf("join: %v", j.code)
			return member, nil
		}
		me := Member{Group: id, Member: member, Generation: j.out.Generation}
		given := map[string][]byte{}
		for _, o := range j.out.Members {
			given[o.Member] = []byte(o.Member)
		}
		syncs := make(chan synced, 1)
		m.Sync(SyncIn{Member: me, Assignments: given}, func(out SyncOut, code *kerr.Error) {
			syncs <- synced{out: out, code: code}
		})
		s := <-syncs
		for s.code == nil {
			beat := make(chan *kerr.Error, 1)
			m.Heartbeat(me, func(c *kerr.Error) { beat <- c })
			if s.code = <-beat; s.code != nil {
				break
			}
			infos := make(chan Info, 1)
			m.Describe(id, func(i Info, _ *kerr.Error) { infos <- i })
			if i := <-infos; len(i.Members) == 4 && i.State == "Stable" && i.Generation == me.Generation {
				return member, s.out.Assignment
			}
			clock.Sleep(clock.Real(), time.Millisecond)
		}
		if s.code != kerr.RebalanceInProgress {
			t.Errorf("member: %v", s.code)
			return member, nil
		}
	}
}

func TestCloseAnswersWhoAwaitsAnAssignment(t *testing.T) {
	w := newWorld(t, testConfig())
	a, b := w.two()
	w.join(asks(a.out.Member))
	b = w.join(asks(b.out.Member))
	s := w.sync(b, nil)
	w.m.Close()
	w.wantSync(s, 1, kerr.CoordinatorNotAvailable, "")
}

// TestCloseWaitsForAppends: the answer to what is on its way to the disk is given, and given before Close returns.
func TestCloseWaitsForAppends(t *testing.T) {
	c := testConfig()
	c.Inline = false
	j := newFakeJournal()
	j.held = true
	m := New(c, newFakeTopics(), newFakeSnaps(), clock.NewSim(0))
	if err := m.Load(t.Context(), []Journal{j}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan *kerr.Error, 1)
	m.Join(asks(""), func(_ JoinOut, code *kerr.Error) { answers <- code })
	for written := 0; written == 0; clock.Sleep(clock.Real(), time.Millisecond) {
		j.mu.Lock()
		written = len(j.waiting)
		j.mu.Unlock()
	}
	closed := make(chan struct{})
	go func() { m.Close(); close(closed) }()
	select {
	case <-closed:
		t.Fatal("Close returned while a batch was on its way")
	case <-answers:
		t.Fatal("answered before the batch was durable")
	case <-waitReal(50 * time.Millisecond):
	}
	j.flush()
	if code := <-answers; code != kerr.CoordinatorNotAvailable {
		t.Fatalf("%v", code)
	}
	<-closed
}

// TestCloseAnswersDelete: a deletion that is on its way when the end comes is answered, with what became of it.
func TestCloseAnswersDelete(t *testing.T) {
	for _, lost := range []bool{false, true} {
		c := testConfig()
		c.Inline = false
		j := newFakeJournal()
		topics := newFakeTopics()
		topics.set("orders", 1, 1)
		m := New(c, topics, newFakeSnaps(), clock.NewSim(0))
		if err := m.Load(t.Context(), []Journal{j}); err != nil {
			t.Fatal(err)
		}
		committed := make(chan *kerr.Error, 1)
		m.Commit(plain("g", 0, 1), func(codes []*kerr.Error, _ uint64) { committed <- codes[0] })
		<-committed
		j.mu.Lock()
		j.held = true
		j.mu.Unlock()
		m.Commit(plain("g", 0, 2), func(codes []*kerr.Error, _ uint64) { committed <- codes[0] })
		answers := make(chan *kerr.Error, 1)
		m.Delete("g", func(code *kerr.Error) { answers <- code })
		for written := 0; written < 2; clock.Sleep(clock.Real(), time.Millisecond) {
			j.mu.Lock()
			written = len(j.waiting)
			j.mu.Unlock()
		}
		closed := make(chan struct{})
		go func() { m.Close(); close(closed) }()
		want := (*kerr.Error)(nil)
		if lost {
			want = kerr.NotCoordinator
			j.breakAll(ErrStorage)
		} else {
			j.flush()
		}
		if code := <-answers; code != want {
			t.Errorf("lost %v: %v, want %v", lost, code, want)
		}
		<-committed
		<-closed
	}
}

func waitReal(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	clock.Real().AfterFunc(d, func() { close(done) })
	return done
}

// TestDeleteOfAGroupThatIsBeingMade: its first member is turned away, and nothing of the group is left.
func TestDeleteOfAGroupThatIsBeingMade(t *testing.T) {
	w := newWorld(t, testConfig())
	w.j.held = true
	j := w.join(asks(""))
	var got []*kerr.Error
	w.m.Delete("g", func(c *kerr.Error) { got = append(got, c) })
	w.j.flush()
	w.wantJoin(j, 1, kerr.CoordinatorNotAvailable)
	if len(got) != 1 || got[0] != nil || w.group("g") != nil {
		t.Fatalf("%v", got)
	}
	w.restart()
	if w.group("g") != nil {
		t.Fatal("it came back")
	}
}
