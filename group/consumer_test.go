package group

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// beaten is a ConsumerGroupHeartbeat and its answer; n counts the answers.
type beaten struct {
	out  ConsumerOut
	code *kerr.Error
	n    int
}

func (w *world) pulse(in ConsumerIn) *beaten {
	r := &beaten{}
	w.m.ConsumerHeartbeat(in, func(out ConsumerOut, code *kerr.Error) { r.out, r.code = out, code; r.n++ })
	return r
}

// joins is the first heartbeat of a dynamic member.
func joins(id string, topics ...string) ConsumerIn {
	return ConsumerIn{Member: Member{Group: "g", Member: id, Generation: 0}, Version: 1, ClientID: "app",
		Host: "/10.0.0.1", RebalanceMs: 60000, Topics: topics, Owned: []TP{}}
}

// staticJoins is joins with an instance id.
func staticJoins(id, instance string, topics ...string) ConsumerIn {
	in := joins(id, topics...)
	in.Instance, in.InstanceGiven = instance, true
	return in
}

// beats is a heartbeat that only says what the member owns; nil: nothing changed.
func beats(id string, epoch int32, owned []TP) ConsumerIn {
	return ConsumerIn{Member: Member{Group: "g", Member: id, Generation: epoch}, Version: 1, ClientID: "app",
		Host: "/10.0.0.1", RebalanceMs: -1, Owned: owned}
}

// ok checks that a heartbeat was answered once, without an error and with this epoch.
func (w *world) ok(b *beaten, epoch int32) *beaten {
	w.t.Helper()
	if b.n != 1 || b.code != nil || b.out.Epoch != epoch {
		w.t.Fatalf("%d answers, code %v, epoch %d, want epoch %d", b.n, b.code, b.out.Epoch, epoch)
	}
	return b
}

// assigned checks that the answer tells these partitions of topic 1.
func (w *world) assigned(b *beaten, partitions ...int32) []TP {
	w.t.Helper()
	want := make([]TP, 0, len(partitions))
	for _, p := range partitions {
		want = append(want, TP{ID: [16]byte{1}, Partition: p})
	}
	if !b.out.Changed || !slices.Equal(b.out.Assigned, want) {
		w.t.Fatalf("assigned %v (told: %v), want %v", b.out.Assigned, b.out.Changed, partitions)
	}
	return b.out.Assigned
}

func (w *world) state(want string) {
	w.t.Helper()
	got := "none"
	if g := w.group("g"); g != nil {
		got = g.info(false).State
	}
	if got != want {
		w.t.Fatalf("the group is %s, want %s", got, want)
	}
}

// sameAfterRestart checks I14: the replayed state is the live one.
func (w *world) sameAfterRestart() {
	w.t.Helper()
	live := w.group("g").consumer.state
	w.restart()
	again := w.group("g").consumer.state
	if !reflect.DeepEqual(tidy(live), tidy(again)) {
		w.t.Fatalf("live\n%+v\nreplayed\n%+v", tidy(live), tidy(again))
	}
}

// tidy makes empty and missing maps alike and follows pointers.
func tidy(st *consumerState) map[string]any {
	out := map[string]any{"epoch": st.epoch, "hash": st.hash, "target": st.targetEpoch, "instances": st.instances,
		"owner": st.owner}
	for id, m := range st.members {
		c := *m
		c.assigned, c.revoking, c.topics = union2(c.assigned), union2(c.revoking), append([]string{}, c.topics...)
		out["member "+id] = c
	}
	for id, set := range st.target {
		out["target "+id] = union(set)
	}
	for regex, r := range st.regexes {
		out["regex "+regex] = append([]string{}, r.topics...)
	}
	return out
}

func newConsumerWorld(t *testing.T) *world {
	w := newWorld(t, testConfig())
	w.topics.set("orders", 1, 4)
	return w
}

// TestConsumerChecks: the table of spec groups 5.1, a row a case, in its order.
func TestConsumerChecks(t *testing.T) {
	str := func(s string) *string { return &s }
	for _, c := range []struct {
		name   string
		change func(in *ConsumerIn)
		want   *kerr.Error
	}{
		{"join", func(*ConsumerIn) {}, nil},
		{"empty group id", func(in *ConsumerIn) { in.Group = "" }, kerr.InvalidRequest},
		{"empty instance id", func(in *ConsumerIn) { in.InstanceGiven = true }, kerr.InvalidRequest},
		{"empty rack", func(in *ConsumerIn) { in.Rack = str("") }, kerr.InvalidRequest},
		{"epoch -3", func(in *ConsumerIn) { in.Generation = -3 }, kerr.InvalidRequest},
		{"no member id, epoch 1", func(in *ConsumerIn) { in.Generation, in.Member.Member, in.Version = 1, "", 0 },
			kerr.InvalidRequest},
		{"no member id, leaving", func(in *ConsumerIn) { in.Generation, in.Member.Member, in.Version = -1, "", 0 },
			kerr.InvalidRequest},
		{"no member id, v1", func(in *ConsumerIn) { in.Member.Member = "" }, kerr.InvalidRequest},
		{"no member id, v0", func(in *ConsumerIn) { in.Member.Member, in.Version = "", 0 }, nil},
		{"join without rebalance timeout", func(in *ConsumerIn) { in.RebalanceMs = -1 }, kerr.InvalidRequest},
		{"join without owned", func(in *ConsumerIn) { in.Owned = nil }, kerr.InvalidRequest},
		{"join with owned", func(in *ConsumerIn) { in.Owned = []TP{{Partition: 1}} }, kerr.InvalidRequest},
		{"join without topics", func(in *ConsumerIn) { in.Topics = nil }, kerr.InvalidRequest},
		{"join with no topics", func(in *ConsumerIn) { in.Topics = []string{} }, nil},
		{"join with a regex", func(in *ConsumerIn) { in.Topics, in.Regex = nil, str("or.*") }, nil},
		{"leave static without instance", func(in *ConsumerIn) { in.Generation = -2 }, kerr.InvalidRequest},
		{"member id no key can hold", func(in *ConsumerIn) { in.Member.Member = string(make([]byte, 32768)) },
			kerr.InvalidRequest},
		{"assignor range", func(in *ConsumerIn) { in.Assignor = str("range") }, nil},
		{"assignor unknown", func(in *ConsumerIn) { in.Assignor = str("sticky") }, kerr.UnsupportedAssignor},
		{"assignor empty", func(in *ConsumerIn) { in.Assignor = str("") }, kerr.UnsupportedAssignor},
		{"regex bad", func(in *ConsumerIn) { in.Regex = str("a(") }, kerr.InvalidRegularExpression},
		{"regex that would close the group around it", func(in *ConsumerIn) { in.Regex = str("a)|(?:b") },
			kerr.InvalidRegularExpression},
		{"regex with a look-ahead", func(in *ConsumerIn) { in.Regex = str("a(?=b)") }, kerr.InvalidRegularExpression},
		{"group missing, epoch 1", func(in *ConsumerIn) { in.Generation = 1 }, kerr.GroupIDNotFound},
		{"group missing, leaving", func(in *ConsumerIn) { in.Generation = -1 }, kerr.GroupIDNotFound},
	} {
		w := newConsumerWorld(t)
		in := joins("m", "orders")
		c.change(&in)
		if b := w.pulse(in); b.n != 1 || b.code != c.want {
			t.Errorf("%s: %d answers, %v, want %v", c.name, b.n, b.code, c.want)
		}
		if c.want != nil && (w.group("g") != nil || w.j.batches != 0) {
			t.Errorf("%s: left something behind", c.name)
		}
	}
}

// TestConsumerMemberChecks: the rows that need a group: member a with epoch 2, static member s (instance i) away or
// not.
func TestConsumerMemberChecks(t *testing.T) {
	for _, c := range []struct {
		name string
		away bool
		in   ConsumerIn
		want *kerr.Error
	}{
		{"unknown member", false, beats("x", 1, nil), kerr.UnknownMemberID},
		{"unknown member leaves", false, beats("x", -1, nil), kerr.UnknownMemberID},
		{"epoch above", false, beats("a", 9, nil), kerr.FencedMemberEpoch},
		{"own epoch", false, beats("a", 2, nil), nil},
		{"epoch before, no report", false, beats("a", 1, nil), kerr.FencedMemberEpoch},
		{"epoch before, owns part of it", false, beats("a", 1, []TP{{ID: [16]byte{1}, Partition: 0}}), nil},
		{"epoch before, owns another", false, beats("a", 1, []TP{{ID: [16]byte{1}, Partition: 3}}), kerr.FencedMemberEpoch},
		{"joins anew", false, joins("a", "orders"), nil},
		{"static, held", false, staticJoins("x", "i", "orders"), kerr.UnreleasedInstanceID},
		{"static, held by itself", false, staticJoins("s", "i", "orders"), nil},
		{"static, away", true, staticJoins("x", "i", "orders"), nil},
		{"static, unknown instance", false, with(beats("s", 2, nil), "other"), kerr.UnknownMemberID},
		{"static, another member", false, with(beats("a", 2, nil), "i"), kerr.FencedInstanceID},
		{"static, leaves for another", false, with(beats("a", -1, nil), "i"), kerr.FencedInstanceID},
		{"static, unknown leaves", false, with(beats("s", -2, nil), "other"), kerr.UnknownMemberID},
		{"static, old epoch while away", true, with(beats("s", 2, nil), "i"), kerr.FencedMemberEpoch},
	} {
		w := newConsumerWorld(t)
		first := w.assigned(w.ok(w.pulse(joins("a", "orders")), 1), 0, 1, 2, 3)
		w.ok(w.pulse(staticJoins("s", "i", "orders")), 2)
		b := w.ok(w.pulse(beats("a", 1, first)), 1)
		w.ok(w.pulse(beats("a", 1, w.assigned(b, 0, 1))), 2)
		if c.away {
			w.ok(w.pulse(with(beats("s", -2, nil), "i")), -2)
		}
		if b := w.pulse(c.in); b.n != 1 || b.code != c.want {
			t.Errorf("%s: %d answers, %v, want %v", c.name, b.n, b.code, c.want)
		}
	}
}

// TestConsumerFull: a full group takes no further member, but those it has and a static one that comes back.
func TestConsumerFull(t *testing.T) {
	cfg := testConfig()
	cfg.ConsumerSizeMax = 1
	w := newWorld(t, cfg)
	w.topics.set("orders", 1, 4)
	w.ok(w.pulse(staticJoins("s", "i", "orders")), 1)
	for _, in := range []ConsumerIn{joins("x", "orders"), beats("x", 1, nil), staticJoins("x", "j", "orders")} {
		if b := w.pulse(in); b.code != kerr.GroupMaxSizeReached {
			t.Errorf("%+v: %v", in, b.code)
		}
	}
	w.ok(w.pulse(with(beats("s", -2, nil), "i")), -2)
	w.ok(w.pulse(staticJoins("x", "i", "orders")), 1)
}

func with(in ConsumerIn, instance string) ConsumerIn {
	in.Instance, in.InstanceGiven = instance, true
	return in
}

// TestConsumerRebalance: the second member waits for what the first one gives up, and every step survives a restart.
func TestConsumerRebalance(t *testing.T) {
	w := newConsumerWorld(t)
	a := w.assigned(w.ok(w.pulse(joins("a", "orders")), 1), 0, 1, 2, 3)
	w.state("Stable")
	w.sameAfterRestart()
	w.assigned(w.ok(w.pulse(joins("b", "orders")), 2))
	w.state("Reconciling")
	w.sameAfterRestart()
	if b := w.ok(w.pulse(beats("b", 2, nil)), 2); b.out.Changed {
		t.Error("b was told an assignment that has not changed")
	}
	kept := w.assigned(w.ok(w.pulse(beats("a", 1, a)), 1), 0, 1)
	w.sameAfterRestart()
	w.ok(w.pulse(beats("a", 1, a)), 1) // still owns all
	if b := w.ok(w.pulse(beats("b", 2, nil)), 2); b.out.Changed {
		t.Error("b was given what a still owns")
	}
	w.ok(w.pulse(beats("a", 1, kept)), 2)
	w.assigned(w.ok(w.pulse(beats("b", 2, nil)), 2), 2, 3)
	w.state("Stable")
	w.sameAfterRestart()
	batches := w.j.batches
	w.ok(w.pulse(beats("a", 2, nil)), 2)
	w.ok(w.pulse(beats("b", 2, nil)), 2)
	if w.j.batches != batches {
		t.Error("a heartbeat that changes nothing was written")
	}
	w.ok(w.pulse(beats("b", -1, nil)), -1)
	w.state("Assigning")
	w.assigned(w.ok(w.pulse(beats("a", 2, nil)), 3), 0, 1, 2, 3)
	w.state("Stable")
	w.sameAfterRestart()
}

// TestConsumerDurable: nothing is told and nothing changes before its records are durable; requests that come meanwhile
// wait and go together into one batch; a refused batch leaves everything as it was.
func TestConsumerDurable(t *testing.T) {
	w := newConsumerWorld(t)
	w.j.held = true
	a := w.pulse(joins("a", "orders"))
	b, c := w.pulse(joins("b", "orders")), w.pulse(joins("c", "orders"))
	if a.n+b.n+c.n != 0 || len(w.group("g").consumer.state.members) != 0 || w.j.batches != 1 {
		t.Fatalf("%d answers, %d batches before anything is durable", a.n+b.n+c.n, w.j.batches)
	}
	if w.group("g").empty() {
		t.Error("a group that somebody joins counts as empty")
	}
	w.j.flush()
	w.ok(a, 1)
	w.ok(b, 2)
	w.ok(c, 3)
	if w.j.batches != 2 {
		t.Errorf("%d batches, want 2", w.j.batches)
	}
	before := w.group("g").consumer.state
	leave := w.pulse(beats("a", -1, nil))
	w.j.breakAll(fmt.Errorf("no space left"))
	if leave.n != 1 || leave.code != kerr.CoordinatorNotAvailable || w.group("g").consumer.state != before {
		t.Errorf("after a refused batch: %d answers, %v", leave.n, leave.code)
	}
	w.j.held = false
	w.ok(w.pulse(beats("a", -1, nil)), -1)
	w.sameAfterRestart()
}

// TestConsumerRefusedGroup: a group whose first record was refused is not there.
func TestConsumerRefusedGroup(t *testing.T) {
	w := newConsumerWorld(t)
	w.j.fail = ErrStorage
	if b := w.pulse(joins("a", "orders")); b.n != 1 || b.code != kerr.NotCoordinator || w.group("g") != nil {
		t.Errorf("%d answers, %v", b.n, b.code)
	}
}

// TestConsumerSession: a member that is not heard of for the session timeout goes; heartbeats keep it, also those that
// wait for the journal, and after a restart it has the whole time again.
func TestConsumerSession(t *testing.T) {
	w := newConsumerWorld(t)
	w.ok(w.pulse(joins("a", "orders")), 1)
	w.ok(w.pulse(joins("b", "orders")), 2)
	w.advance(40 * time.Second)
	w.ok(w.pulse(beats("a", 1, nil)), 1)
	w.advance(6 * time.Second)
	if m := w.group("g").consumer.state.members; m["b"] != nil || m["a"] == nil {
		t.Fatalf("members %v, want a", slices.Collect(maps.Keys(m)))
	}
	w.advance(38 * time.Second)
	w.restart()
	w.advance(44 * time.Second)
	w.state("Assigning")
	w.advance(2 * time.Second)
	w.state("Empty")
	if since := w.group("g").consumer.emptySince(); since < w.clk.Wall()-2000 || since > w.clk.Wall() {
		t.Errorf("empty since %d, now %d", since, w.clk.Wall())
	}
	if b := w.pulse(beats("a", 1, nil)); b.code != kerr.UnknownMemberID {
		t.Errorf("a removed member: %v", b.code)
	}
	w.sameAfterRestart()
}

// TestConsumerSessionRefused: a removal that the journal refuses is tried again.
func TestConsumerSessionRefused(t *testing.T) {
	w := newConsumerWorld(t)
	w.ok(w.pulse(joins("a", "orders")), 1)
	w.j.fail = fmt.Errorf("no space left")
	w.advance(50 * time.Second)
	w.state("Stable")
	w.j.fail = nil
	w.advance(2 * time.Second)
	w.state("Empty")
}

// TestConsumerRevokeTimeout: a member that goes on without giving up partitions is removed after its rebalance timeout.
func TestConsumerRevokeTimeout(t *testing.T) {
	w := newConsumerWorld(t)
	a := joins("a", "orders")
	a.RebalanceMs = 20000
	all := w.assigned(w.ok(w.pulse(a), 1), 0, 1, 2, 3)
	w.ok(w.pulse(joins("b", "orders")), 2)
	w.ok(w.pulse(beats("a", 1, all)), 1)
	for range 3 {
		w.advance(6 * time.Second)
		w.ok(w.pulse(beats("a", 1, all)), 1)
		w.ok(w.pulse(beats("b", 2, nil)), 2)
	}
	w.advance(3 * time.Second)
	if b := w.pulse(beats("a", 1, all)); b.code != kerr.UnknownMemberID {
		t.Fatalf("a: %v", b.code)
	}
	w.assigned(w.ok(w.pulse(beats("b", 2, nil)), 3), 0, 1, 2, 3)
}

// TestConsumerStatic: a static member that goes with -2 keeps its partitions for the session timeout; under a new id it
// gets them back without a new epoch of the group.
func TestConsumerStatic(t *testing.T) {
	w := newConsumerWorld(t)
	w.assigned(w.ok(w.pulse(staticJoins("s1", "i", "orders")), 1), 0, 1, 2, 3)
	w.ok(w.pulse(with(beats("s1", -2, nil), "i")), -2)
	w.sameAfterRestart()
	w.assigned(w.ok(w.pulse(staticJoins("s2", "i", "orders")), 1), 0, 1, 2, 3)
	if st := w.group("g").consumer.state; st.epoch != 1 || st.members["s1"] != nil || st.instances["i"] != "s2" {
		t.Errorf("epoch %d, instances %v", st.epoch, st.instances)
	}
	w.sameAfterRestart()
	if b := w.pulse(with(beats("s1", 1, nil), "i")); b.code != kerr.FencedInstanceID {
		t.Errorf("the old id: %v", b.code)
	}
	w.ok(w.pulse(with(beats("s2", -2, nil), "i")), -2)
	w.advance(46 * time.Second)
	w.state("Empty")
	w.sameAfterRestart()
}

// TestConsumerTopics: a topic that appears, grows or goes raises the group epoch at the next heartbeat.
func TestConsumerTopics(t *testing.T) {
	w := newConsumerWorld(t)
	w.assigned(w.ok(w.pulse(joins("a", "orders", "later")), 1), 0, 1, 2, 3)
	w.topics.set("other", 3, 9)
	w.ok(w.pulse(beats("a", 1, nil)), 1)
	w.topics.set("orders", 1, 5)
	w.assigned(w.ok(w.pulse(beats("a", 1, nil)), 2), 0, 1, 2, 3, 4)
	w.topics.set("later", 2, 1)
	if b := w.ok(w.pulse(beats("a", 2, nil)), 3); len(b.out.Assigned) != 6 {
		t.Errorf("assigned %v", b.out.Assigned)
	}
	w.topics.set("later", 2, -1)
	owns := w.assigned(w.ok(w.pulse(beats("a", 3, nil)), 3), 0, 1, 2, 3, 4)
	w.ok(w.pulse(beats("a", 3, owns)), 4)
	w.sameAfterRestart()
	w.ok(w.pulse(beats("a", 4, nil)), 4)
}

// TestConsumerRegex: a subscription by a regular expression matches whole names, follows new topics, and is forgotten
// with its last member.
func TestConsumerRegex(t *testing.T) {
	w := newConsumerWorld(t)
	w.topics.set("reorders", 2, 1)
	regex, none := "or.*|billing", ""
	in := joins("a")
	in.Topics, in.Regex = nil, &regex
	w.assigned(w.ok(w.pulse(in), 1), 0, 1, 2, 3)
	w.topics.set("billing", 3, 2)
	if b := w.ok(w.pulse(beats("a", 1, nil)), 2); len(b.out.Assigned) != 6 {
		t.Fatalf("assigned %v", b.out.Assigned)
	}
	w.sameAfterRestart()
	if c := w.group("g").consumer; !c.subscribed("billing") || c.subscribed("reorders") {
		t.Error("subscribed to the wrong topics")
	}
	change := beats("a", 2, []TP{})
	change.Regex, change.Topics = &none, []string{"orders"}
	w.assigned(w.ok(w.pulse(change), 3), 0, 1, 2, 3)
	if n := len(w.group("g").consumer.state.regexes); n != 0 {
		t.Errorf("%d regular expressions kept", n)
	}
	w.sameAfterRestart()
}
