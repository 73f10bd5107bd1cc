package cases

import (
	"fmt"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// at demands what a group has committed for a partition.
func (n *node) at(what, group string, p tp, stable bool, offset int64, code int16) {
	n.t.Helper()
	if o, c := n.OF(group, p, stable); o != offset || c != code {
		n.t.Errorf("%s: group at %d, code %d; want %d, code %d", what, o, c, offset, code)
	}
}

// settledOffsets waits until no offset of a partition is staged.
func (n *node) settledOffsets(group string, p tp) {
	n.t.Helper()
	begin := n.now()
	n.until("no staged offset", func() bool { _, code := n.OF(group, p, true); return code != codeUnstable })
	if took := n.now() - begin; took > 10_000 {
		n.t.Errorf("88 for %d ms after the end", took)
	}
}

// E1. Staged offsets are invisible until commit.
func TestE1StagedOffsets(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("e1", 1)
		n.coordinator(0, "e1")
		n.oneOf("OffsetCommit", n.commitOffset("e1", p, 5), 0)
		x := n.INIT(g, "e1")
		for _, how := range []string{"", "KILL"} {
			for _, commit := range []bool{false, true} {
				n.oneOf("back to 5", n.commitOffset("e1", p, 5), 0)
				n.oneOf("AddOffsetsToTxn", x.addOffsets("e1"), 0)
				n.oneOf("TOC", x.TOC("e1", p, 50), 0)
				n.at("staged", "e1", p, false, 5, 0)
				if how != "" {
					n.restart(how)
					n.coordinator(0, "e1")
					x.again()
					n.at("staged, after "+how, "e1", p, false, 5, 0)
				}
				x.ended(commit)
				n.settledOffsets("e1", p)
				want := int64(5)
				if commit {
					want = 50
				}
				n.at(fmt.Sprint(how, " commit ", commit), "e1", p, false, want, 0)
			}
		}
	})
}

// E1, with two producers: of two commits the one staged last holds, whatever the order of their ends.
func TestE1TwoProducers(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("e1", 1)
		a, b := n.INIT(g, "e1-a"), n.INIT(g, "e1-b")
		group, want := "", map[string]int64{}
		stage := func(x *txn, offset int64) {
			n.oneOf("AddOffsetsToTxn", x.addOffsets(group), 0)
			n.oneOf("TOC", x.TOC(group, p, offset), 0)
		}
		for i, order := range [][]*txn{{a, b}, {b, a}} {
			group = fmt.Sprint("g", i)
			stage(a, 10)
			stage(b, 20)
			for _, x := range order {
				x.ended(true)
			}
			n.settledOffsets(group, p)
			want[group] = 20
		}
		group = "plain"
		stage(a, 10)
		n.oneOf("a plain commit behind the staged one", n.commitOffset(group, p, 30), 0)
		a.ended(true)
		n.settledOffsets(group, p)
		want[group] = 30
		for _, how := range []string{"", "STOP", "KILL"} {
			if how != "" {
				n.restart(how)
				n.coordinator(0, group)
			}
			for g, offset := range want {
				n.at(how, g, p, true, offset, 0)
			}
		}
	})
}

// E2. require_stable.
func TestE2RequireStable(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p, q := n.topic("e2", 2), tp{"e2", 1}
		n.coordinator(0, "e2")
		n.oneOf("OffsetCommit", n.commitOffset("e2", p, 1), 0)
		n.oneOf("OffsetCommit", n.commitOffset("e2", q, 2), 0)
		now := int64(1)
		for i, end := range []string{"commit", "abort", "timeout", "INIT", "KILL"} {
			x := n.INITFor(g, fmt.Sprint("e2-", i), 3000)
			n.oneOf("AddOffsetsToTxn", x.addOffsets("e2"), 0)
			next := int64(100 + i)
			n.oneOf("TOC", x.TOC("e2", p, next), 0)
			n.at(end+": staged, stable", "e2", p, true, -1, codeUnstable)
			n.at(end+": staged", "e2", p, false, now, 0)
			n.at(end+": the other, stable", "e2", q, true, 2, 0)
			n.at(end+": the other", "e2", q, false, 2, 0)
			switch end {
			case "commit":
				x.ended(true)
				now = next
			case "abort":
				x.ended(false)
			case "INIT":
				n.INIT(g, x.id)
			case "KILL":
				n.restart("KILL")
				n.coordinator(0, "e2")
				n.at("after KILL: staged, stable", "e2", p, true, -1, codeUnstable)
				n.pass(3 * time.Second)
			case "timeout":
				n.pass(3 * time.Second)
			}
			n.settledOffsets("e2", p)
			n.at(end+": decided", "e2", p, true, now, 0)
		}
	})
}

// E3. What was committed is what the next read sees.
func TestE3ReadAfterCommit(t *testing.T) {
	generations(t, options{realTime: true}, func(t *testing.T, n *node, g generation) {
		p := n.topic("e3", 1)
		n.coordinator(0, "e3")
		x, reader := n.INIT(g, "e3"), n.dial()
		rounds := size(200, 5000)
		for k := range int64(rounds) {
			n.oneOf("AddOffsetsToTxn", x.addOffsets("e3"), 0)
			n.oneOf("TOC", x.TOC("e3", p, k), 0)
			x.ended(true)
			if offset, code := n.fetchOffset(reader, "e3", p, true); code != codeUnstable && (code != 0 || offset != k) {
				t.Fatalf("after the commit of %d: %d, code %d", k, offset, code)
			}
		}
	})
}

// joinRequest is the JoinGroup of a member whose session lasts 30 s; without an id it asks for one.
func joinRequest(group, id, topic string, instance *string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 7, group, 30_000, 30_000
	r.MemberID, r.ProtocolType, r.InstanceID = id, "consumer", instance
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{topic}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	return r
}

// join is JoinGroup, once more with the id that was given.
func (n *node) join(c *rawclient.Client, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	n.t.Helper()
	a := askOn[*kmsg.JoinGroupResponse](n, c, r)
	if a.ErrorCode == codeMemberID {
		r.MemberID = a.MemberID
		a = askOn[*kmsg.JoinGroupResponse](n, c, r)
	}
	return a
}

// sync is the SyncGroup of a leader that gives itself an assignment.
func (n *node) sync(c *rawclient.Client, group string, m member, assignment []byte) int16 {
	n.t.Helper()
	s := kmsg.NewPtrSyncGroupRequest()
	s.Version, s.Group, s.Generation, s.MemberID, s.InstanceID = 4, group, m.generation, m.id, m.instance
	s.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: m.id, MemberAssignment: assignment}}
	return askOn[*kmsg.SyncGroupResponse](n, c, s).ErrorCode
}

// joined is a member of a group of one.
func (n *node) joined(group, topic string, instance *string) member {
	n.t.Helper()
	n.coordinator(0, group)
	c := n.dial()
	a := n.join(c, joinRequest(group, "", topic, instance))
	if a.ErrorCode != 0 {
		n.t.Fatalf("JoinGroup %s: code %d", group, a.ErrorCode)
	}
	m := member{a.MemberID, instance, a.Generation}
	if code := n.sync(c, group, m, nil); code != 0 {
		n.t.Fatalf("SyncGroup %s: code %d", group, code)
	}
	return m
}

// joinedConsumer is a member of a group of one that speaks the consumer protocol; the generation is its epoch.
func (n *node) joinedConsumer(group, id, topic string, instance *string) member {
	n.t.Helper()
	n.coordinator(0, group)
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.RebalanceTimeoutMillis = 1, group, id, instance, 30_000
	r.SubscribedTopicNames, r.Topics = []string{topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	a := ask[*kmsg.ConsumerGroupHeartbeatResponse](n, r)
	if a.ErrorCode != 0 {
		n.t.Fatalf("ConsumerGroupHeartbeat %s: code %d", group, a.ErrorCode)
	}
	return member{id, instance, a.MemberEpoch}
}

// E4. Zombie members cannot commit.
func TestE4ZombieMembers(t *testing.T) {
	set := map[string]string{"group.initial.rebalance.delay.ms": "0"}
	generations(t, options{settings: set}, func(t *testing.T, n *node, g generation) {
		p := n.topic("e4", 1)
		name := "instance"
		dynamic, static := n.joined("e4", p.topic, nil), n.joined("e4-static", p.topic, &name)
		x := n.INIT(g, "e4")
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e4"), 0)
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e4-static"), 0)
		for _, try := range []struct {
			what, group string
			m           member
			code        int16
		}{
			{"the member", "e4", dynamic, 0},
			{"an old generation", "e4", member{dynamic.id, nil, dynamic.generation - 1}, codeGeneration},
			{"an unknown member", "e4", member{"nobody", nil, dynamic.generation}, codeUnknownMember},
			{"the static member", "e4-static", static, 0},
			{"another owner of the instance", "e4-static", member{"nobody", &name, static.generation}, codeFencedInstance},
			{"no membership", "e4", nobody, 0},
		} {
			if code := x.retry(func() int16 { return x.tocAs(try.group, try.m, p, 1) }); code != try.code {
				t.Errorf("%s: code %d, want %d", try.what, code, try.code)
			}
		}
		x.ended(true)
		n.settledOffsets("e4", p)
		n.at("committed", "e4", p, true, 1, 0)
	})
}

// E4, for groups of the consumer protocol: a member epoch takes the place of the generation. (TxnOffsetCommit below 6
// knows no code for a stale epoch.)
func TestE4ZombieConsumers(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("e4", 1)
		name := "instance"
		m := n.joinedConsumer("e4", "m", p.topic, nil)
		n.joinedConsumer("e4", "other", "e4-none", nil) // raises the epoch of the group
		static := n.joinedConsumer("e4-static", "s", p.topic, &name)
		x := n.INIT(g, "e4")
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e4"), 0)
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e4-static"), 0)
		try := func(what, group string, m member, codes ...int16) {
			t.Helper()
			n.oneOf(what, x.retry(func() int16 { return x.tocAs(group, m, p, 1) }), codes...)
		}
		try("the member", "e4", m, 0)
		try("an old epoch", "e4", member{m.id, nil, m.generation - 1}, codeGeneration)
		try("an epoch of the future", "e4", member{m.id, nil, m.generation + 5}, codeGeneration)
		try("an unknown member", "e4", member{"nobody", nil, m.generation}, codeUnknownMember)
		try("no membership", "e4", nobody, 0)
		try("the static member", "e4-static", static, 0)
		try("another owner of the instance", "e4-static", member{"nobody", &name, static.generation}, codeUnknownMember,
			codeFencedInstance)
		n.at("nothing is staged by the refused", "e4", p, false, -1, 0)
		x.ended(true)
		n.settledOffsets("e4", p)
		n.at("committed", "e4", p, true, 1, 0)
		n.restart("KILL")
		n.coordinator(0, "e4")
		x.again()
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e4"), 0)
		try("an old epoch after KILL", "e4", member{m.id, nil, m.generation - 1}, codeGeneration)
		try("the member after KILL", "e4", m, 0)
		x.ended(true)
	})
}

// E5. Offsets for a group the transaction does not include.
func TestE5OtherGroup(t *testing.T) {
	for v, want := range map[int16]int16{0: codeTxnState, 3: codeTxnState, 4: codeTxnAbortable} {
		n := launch(t, options{})
		p := n.topic("e5", 1)
		g := txnV1
		g.offsets = v
		x := n.INIT(g, "e5")
		n.coordinator(0, "e5-1")
		n.oneOf("nothing added", x.TOC("e5-1", p, 1), want)
		n.oneOf("AddOffsetsToTxn", x.addOffsets("e5-1"), 0)
		n.oneOf("another group", x.TOC("e5-2", p, 1), want)
		n.oneOf("TOC", x.TOC("e5-1", p, 1), 0)
		x.ended(true)
		n.settledOffsets("e5-1", p)
		n.oneOf("after the end", x.TOC("e5-1", p, 2), want)
		n.at("the first group", "e5-1", p, true, 1, 0)
		n.at("the other group", "e5-2", p, true, -1, 0)
	}
	n := launch(t, options{})
	p := n.topic("e5", 1)
	x := n.INIT(txnV2, "e5")
	n.oneOf("TOC adds the group itself", x.TOC("e5", p, 3), 0)
	x.ended(true)
	n.settledOffsets("e5", p)
	n.at("committed", "e5", p, true, 3, 0)
}
