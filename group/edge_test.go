package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
)

// release makes the first n waiting batches durable.
func (j *fakeJournal) release(n int) {
	for range n {
		j.mu.Lock()
		f := j.waiting[0]
		j.waiting = j.waiting[1:]
		j.durable = f.end
		j.mu.Unlock()
		f.done(f.base, nil)
	}
}

func (w *world) shard() *shard { return (*w.m.shards.Load())[0] }

// A directory of Kafka 4.0, or one upgraded from it, holds ConsumerGroupPartitionMetadata (key 4) with a value.
func TestSubscriptionMetadataOfKafka40(t *testing.T) {
	w := newConsumerWorld(t)
	w.ok(w.pulse(joins("a", "orders")), 1)
	v := []byte{0, 0, 2, // version, one topic
		0x6f, 0x1c, 0x9a, 0x40, 0x77, 0x3e, 0x4d, 0x01, 0x8b, 0xc4, 0x52, 0xee, 0x10, 0x9d, 0x33, 0x0a, // its id
		7, 'o', 'r', 'd', 'e', 'r', 's', 0, 0, 0, 4, 1, 0, 0} // name, partitions, no racks, no tags
	rec := Record{Key: consumerKey(keySubscription, "g", ""), Value: v}
	w.j.Append([]Record{rec}, -1, -1, 0, func(int64, error) {})
	w.j = w.j.crash()
	m := New(w.cfg, w.topics, w.snaps, w.clk)
	if err := m.Load(t.Context(), []Journal{w.j}); err != nil {
		t.Fatalf("the partition is not served: %v", err)
	}
}

// Two commits make a group; what the first one left is gone before the second is durable, and expiry looks then.
func TestExpiryTakesAnAcknowledgedCommit(t *testing.T) {
	for _, how := range []string{"topic deleted", "retention 0"} {
		w := newWorld(t, testConfig())
		w.topics.set("orders", 1, 4)
		w.topics.set("gone", 2, 1)
		w.advance(9*time.Minute + 59*time.Second)
		w.j.held = true
		x := plain("g", 1, 1)
		n := 1
		if how == "topic deleted" {
			x.TPs[0] = TP{Topic: "gone", ID: [16]byte{2}}
			n = 2 // and its tombstone
		} else {
			x.Version, x.RetainMs = 2, 0
		}
		first := w.commit(x)
		if how == "topic deleted" {
			w.topics.set("gone", 2, -1)
			w.m.TopicsDeleted([]TP{{Topic: "gone", ID: [16]byte{2}}}, func(error) {})
		}
		second := w.commit(plain("g", 0, 42))
		w.j.release(n)
		w.advance(2 * time.Second) // a pass of expiry
		w.j.held = false
		w.j.flush()
		if first.n != 1 || second.n != 1 || second.codes[0] != nil {
			t.Fatalf("%+v %+v", first, second)
		}
		if got := w.offset("g", 0, false); got != 42 {
			t.Errorf("%s: 42 was acknowledged, %d is committed", how, got)
		}
	}
}

// oldClassic makes a group that was active for 8 days, committed 42 on the first of them, and is Empty for an hour.
func (w *world) oldClassic() {
	j := w.enter()
	w.sync(j, map[string]string{j.out.Member: "x"})
	in := plain("g", 0, 42)
	in.Member.Member, in.Generation = j.out.Member, 1
	w.mustCommit(in)
	for range 8 * 24 { // the member lives
		w.clk.Advance(time.Hour)
		w.group("g").classic.renew(w.group("g").classic.byID[j.out.Member])
		w.m.Tick()
	}
	w.m.Leave("g", []Member{{Group: "g", Member: j.out.Member}}, func([]*kerr.Error, *kerr.Error) {})
	w.state("Empty")
	w.advance(time.Hour)
}

// The first member of the consumer protocol joins an Empty classic group, and its own batch does not become durable.
func TestUpgradeFailsHalfWay(t *testing.T) {
	for _, how := range []string{"no upgrade", "crash", "failed write"} {
		w := newWorld(t, testConfig())
		w.topics.set("orders", 1, 4)
		w.oldClassic()
		if how != "no upgrade" {
			w.j.held = true
			w.pulse(joins("a", "orders"))
			if f := w.j.waiting[0]; f.end-f.base == 1 {
				w.j.release(1) // the tombstone of the classic group, if it comes alone
			}
			if how == "crash" {
				w.restart()
			} else {
				w.j.breakAll(errors.New("no space left"))
			}
			w.j.held = false
		}
		w.advance(11 * time.Minute)
		if got := w.offset("g", 0, false); got != 42 {
			t.Errorf("%s: the group is empty for 71 minutes, its offset is %d", how, got)
		}
	}
}

// oldConsumer is oldClassic with the consumer protocol.
func oldConsumer(t *testing.T) *world {
	c := testConfig()
	c.ConsumerSessionMs = 1 << 30
	w := newWorld(t, c)
	w.topics.set("orders", 1, 4)
	w.ok(w.pulse(joins("a", "orders")), 1)
	in := plain("g", 0, 42)
	in.Member.Member, in.Generation = "a", 1
	w.mustCommit(in)
	w.clk.Advance(8 * 24 * time.Hour)
	w.advance(time.Second)
	w.ok(w.pulse(beats("a", -1, nil)), -1)
	w.clk.Advance(time.Hour)
	w.advance(time.Second)
	return w
}

// An active consumer group lost its last member an hour ago.
func TestSinceWhenAConsumerGroupIsEmpty(t *testing.T) {
	for _, how := range []string{"nothing", "restart", "classic client asks for an id"} {
		w := oldConsumer(t)
		switch how {
		case "restart":
			w.restart()
		case "classic client asks for an id":
			w.join(asks("")) // and never comes back
		}
		w.advance(11 * time.Minute)
		if got := w.offset("g", 0, false); got != 42 {
			t.Errorf("%s: the group is empty for 71 minutes, its offset is %d", how, got)
		}
	}
}

// At any time the offsets of one transaction are on their way. What is remembered of markers must not grow.
func TestMarkersKeptForEver(t *testing.T) {
	w := newWorld(t, testConfig())
	w.topics.set("orders", 1, 4)
	w.j.held = true
	for i := int64(1); i <= 4000; i++ {
		w.stage(staged("g", i, 0, i))
		if i > 1 {
			w.j.release(1) // the one before is durable
			mk := batch.Marker{PID: i - 1, Epoch: 3, Commit: true}
			w.m.OnMarker(0, w.j.marker(mk), mk)
		}
	}
	if n := len(w.shard().markers); n > 10 {
		t.Errorf("%d markers kept with one batch on its way", n)
	}
	w.j.release(1)
}

// A member that revoked in time is asked to revoke more: its rebalance timeout begins anew (Kafka: maybeReconcile
// schedules the timeout whenever the assignment changes).
func TestSecondRevocation(t *testing.T) {
	for _, slow := range []bool{false, true} { // slow: the timer fires while the next step is on its way to the disk
		t.Run(fmt.Sprint(slow), func(t *testing.T) { secondRevocation(t, slow) })
	}
}

func secondRevocation(t *testing.T, slow bool) {
	w := newConsumerWorld(t)
	own := w.assigned(w.ok(w.pulse(joins("a", "orders")), 1), 0, 1, 2, 3)
	w.ok(w.pulse(joins("b", "orders")), 2)
	own2 := w.assigned(w.ok(w.pulse(beats("a", 1, own)), 1), 0, 1) // has to give up two
	for range 5 {
		w.advance(10 * time.Second)
		w.pulse(beats("a", 1, nil))
		w.pulse(beats("b", 2, nil))
	}
	w.ok(w.pulse(joins("c", "orders")), 3)
	w.ok(w.pulse(joins("d", "orders")), 4)
	w.advance(9 * time.Second)
	w.j.held = slow
	r := w.pulse(beats("a", 1, own2)) // gave up the two after 59 s of 60; a third one is to go now
	w.advance(2 * time.Second)
	w.j.held = false
	w.j.flush()
	w.assigned(r, 0)
	if w.group("g").consumer.state.members["a"] == nil {
		t.Fatal("removed 2 s after it was asked to revoke; its rebalance timeout is 60 s")
	}
}

// A static member leaves with -2 in the middle of a revocation. It is kept for its session (45 s).
func TestStaticAwayWhileRevoking(t *testing.T) {
	w := newConsumerWorld(t)
	in := staticJoins("a", "i", "orders")
	in.RebalanceMs = 5000
	own := w.assigned(w.ok(w.pulse(in), 1), 0, 1, 2, 3)
	w.ok(w.pulse(joins("b", "orders")), 2)
	w.ok(w.pulse(with(beats("a", 1, own), "i")), 1)
	w.advance(time.Second)
	w.ok(w.pulse(with(beats("a", -2, nil), "i")), -2)
	w.advance(6 * time.Second)
	if w.group("g").consumer.state.members["a"] == nil {
		t.Fatal("removed 6 s after it left with -2; its session is 45 s")
	}
}

// A member id that was issued and never used does not make an Empty group another one.
func TestPendingID(t *testing.T) {
	w := newWorld(t, testConfig())
	w.topics.set("orders", 1, 4)
	w.mustCommit(plain("g", 0, 1))
	if first := w.join(asks("")); first.code != kerr.MemberIDRequired {
		t.Fatal(first.code)
	}
	w.state("Empty")
	w.m.OffsetDelete("g", []TP{{Topic: "orders"}}, func(_ []*kerr.Error, code *kerr.Error) {
		if code != nil {
			t.Errorf("OffsetDelete of an Empty group: %v", code)
		}
	})
	if a := w.pulse(joins("a", "orders")); a.code != nil {
		t.Errorf("ConsumerGroupHeartbeat of an Empty group: %v", a.code)
	}
}

// Static members with a rebalance timeout of 0, of which one goes: with a clock that stands the timers never end.
func TestZeroRebalanceTimeout(t *testing.T) {
	w := newWorld(t, testConfig())
	one, two := static("one", ""), static("two", "")
	one.RebalanceMs, two.RebalanceMs = 0, 0
	a, b := w.join(one), w.join(two)
	one.Member.Member = a.out.Member
	a = w.join(one)
	w.sync(a, map[string]string{a.out.Member: "x", b.out.Member: "y"})
	w.sync(b, nil)
	w.m.Leave("g", []Member{{Group: "g", Instance: "two"}}, func([]*kerr.Error, *kerr.Error) {})
	w.clk.Advance(100 * time.Millisecond)
	done := make(chan struct{})
	go func() { w.m.Tick(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Fatal("Tick did not return within 3 s")
	}
}

// Many protocols of many members are compared name by name.
func TestCommonProtocol(t *testing.T) {
	c := &classic{}
	var a, b []Protocol
	for i := range 200_000 { // a million times a million comparisons would not end
		a, b = append(a, Protocol{Name: fmt.Sprint("p", i)}), append(b, Protocol{Name: fmt.Sprint("q", i)})
	}
	c.members = []*member{{protocols: a}, {protocols: append(a, Protocol{Name: "both"})}}
	if c.common(b) {
		t.Error("nothing is common")
	}
	if c.common(append(b, Protocol{Name: "both"})) {
		t.Error("one member of two has it")
	}
	if !c.common(append(b, a[7])) {
		t.Error("one is common")
	}
}

// A heartbeat that the journal does not take fails alone; those that waited with it are answered.
func TestTooLargeHeartbeatFailsAlone(t *testing.T) {
	w := newConsumerWorld(t)
	w.ok(w.pulse(joins("a", "orders")), 1)
	w.j.held = true
	w.pulse(joins("b", "orders"))
	w.j.most = 2000
	huge := joins("c")
	for i := range 500 {
		huge.Topics = append(huge.Topics, fmt.Sprint("topic-", i))
	}
	large, small := w.pulse(huge), w.pulse(joins("d", "orders")) // both wait for the batch of b
	w.j.held = false
	w.j.flush()
	if large.n != 1 || large.code != kerr.MessageTooLarge {
		t.Errorf("the large one: %d answers, %v", large.n, large.code)
	}
	if small.n != 1 || small.code != nil {
		t.Errorf("the small one: %d answers, %v", small.n, small.code)
	}
}
