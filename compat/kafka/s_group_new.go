package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// newMember is a member of the consumer protocol (KIP-848) of the group of a row.
type newMember struct {
	a     *actor
	name  string
	id    string
	epoch int32
}

func (a *actor) newMember(name string) *newMember {
	a.assignable()
	return &newMember{a: a, name: name, id: "member-" + name, epoch: 0}
}

// assignable waits until the topic of the row is assigned to who asks for it: a coordinator of Kafka hears of a new topic
// when it has one already.
func (a *actor) assignable() {
	for n := 0; !a.probed; n++ {
		probe := &newMember{a: &actor{s: a.s, id: fmt.Sprintf("probe-%s-%d", a.topic, n), topic: a.topic}, id: "probe"}
		resp, ok := ask[*kmsg.ConsumerGroupHeartbeatResponse](a.s, probe.full())
		a.probed = ok && resp.ErrorCode == 0 && resp.Assignment != nil && len(resp.Assignment.Topics) > 0
		if n > 100 {
			panic(broken{fmt.Errorf("%s is never assigned: %+v", a.topic, resp)})
		}
	}
}

// epochText tells an epoch of an answer by the first one of the group, which is another one in Kafka.
func (a *actor) epochText(epoch int32) string {
	if epoch <= 0 {
		return fmt.Sprint(epoch)
	}
	return a.sentEpoch(epoch)
}

// sentEpoch is the same for an epoch of a request.
func (a *actor) sentEpoch(epoch int32) string {
	if a.base == 0 {
		return fmt.Sprint(epoch)
	}
	return fmt.Sprintf("E%+d", epoch-a.base)
}

// full is a heartbeat that says everything.
func (m *newMember) full() *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = 1, m.a.id, m.id, m.epoch
	r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 30_000, []string{m.a.topic}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return r
}

// same is a heartbeat that says that nothing has changed, but for the partitions owned.
func (m *newMember) same(owned ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, m.a.id, m.id, m.epoch, -1
	r.SubscribedTopicNames, r.Topics = nil, nil
	if owned != nil {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = m.a.s.idOf(m.a.topic), owned
		r.Topics = append(r.Topics, t)
	}
	return r
}

// send records the answer to a heartbeat and keeps the epoch.
func (m *newMember) send(what string, r *kmsg.ConsumerGroupHeartbeatRequest) *newMember {
	resp, ok := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.a.s, r)
	if !ok {
		m.a.see(m.name+" "+what, "%s", m.a.s.failure)
		return m
	}
	id := "null"
	if resp.MemberID != nil {
		id = "given"
		if *resp.MemberID == r.MemberID {
			id = "mine"
		}
	}
	if m.a.base == 0 && resp.ErrorCode == 0 && resp.MemberEpoch > 0 {
		m.a.base = resp.MemberEpoch
	}
	text := fmt.Sprintf("code %d, text %v, id %s, epoch %s, interval %d, assignment", resp.ErrorCode,
		resp.ErrorMessage != nil, id, m.a.epochText(resp.MemberEpoch), resp.HeartbeatIntervalMillis)
	if resp.Assignment == nil {
		text += " null"
	} else {
		var all []string
		for _, t := range resp.Assignment.Topics {
			slices.Sort(t.Partitions)
			all = append(all, fmt.Sprintf("%s %v", m.a.s.topicName(t.TopicID), t.Partitions))
		}
		slices.Sort(all)
		text += fmt.Sprintf(" %v", all)
	}
	m.a.see(m.name+" "+what, "%s", text)
	if resp.ErrorCode == 0 && resp.MemberEpoch >= 0 {
		m.epoch = resp.MemberEpoch
	}
	return m
}

// until repeats a heartbeat until the answer has an assignment: a rebalance has come through. It records that answer.
func (m *newMember) until(what string, owned ...int32) *newMember {
	m.a.s.until(func() bool {
		r := m.same(owned...)
		resp, ok := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.a.s, r)
		if !ok || resp.ErrorCode != 0 || resp.Assignment == nil {
			if ok && resp.ErrorCode == 0 {
				m.epoch = resp.MemberEpoch
			}
			return false
		}
		parts := []int32{}
		for _, t := range resp.Assignment.Topics {
			parts = append(parts, t.Partitions...)
		}
		slices.Sort(parts)
		m.epoch = resp.MemberEpoch
		m.a.see(m.name+" "+what, "epoch %s, assignment %v", m.a.epochText(resp.MemberEpoch), parts)
		return true
	})
	return m
}

// newGroup records ConsumerGroupDescribe.
func (a *actor) newGroup() *actor {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Version, r.Groups = 1, []string{a.id}
	resp, ok := ask[*kmsg.ConsumerGroupDescribeResponse](a.s, r)
	if !ok {
		a.see("describe new", "%s", a.s.failure)
		return a
	}
	g := resp.Groups[0]
	var all []string
	for _, m := range g.Members {
		var mine, target []string
		for _, t := range m.Assignment.TopicPartitions {
			mine = append(mine, fmt.Sprint(t.Partitions))
		}
		for _, t := range m.TargetAssignment.TopicPartitions {
			target = append(target, fmt.Sprint(t.Partitions))
		}
		all = append(all, fmt.Sprintf("%s epoch %s, topics %v, assigned %v of %v, type %d", m.MemberID,
			a.epochText(m.MemberEpoch), m.SubscribedTopics, mine, target, m.MemberType))
	}
	slices.Sort(all)
	a.see("describe new", "code %d, text %v, %s, epoch %s, assigned %s by %q, members [%s]", g.ErrorCode,
		g.ErrorMessage != nil, g.State, a.epochText(g.Epoch), a.epochText(g.AssignmentEpoch), g.AssignorName,
		strings.Join(all, "; "))
	return a
}

// newRows are the tables of ConsumerGroupHeartbeat.
var newRows = []tableRow{
	{"requests at fault", func(a *actor) {
		empty := ""
		for _, c := range []struct {
			name   string
			change func(r *kmsg.ConsumerGroupHeartbeatRequest)
		}{
			{"group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }},
			{"instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &empty }},
			{"rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &empty }},
			{"epoch -3", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }},
			{"member", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }},
			{"member of epoch 1", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "", 1 }},
			{"no timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }},
			{"no names", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }},
			{"empty names", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = []string{} }},
			{"no partitions", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }},
			{"epoch -2 without instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }},
			{"assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("sticky") }},
			{"regex", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = kmsg.StringPtr("(") }},
			{"no group, epoch 1", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 1 }},
			{"no group, epoch -1", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 }},
		} {
			m := a.newMember("A")
			r := m.full()
			c.change(r)
			m.send(c.name, r)
		}
	}},
	{"join", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		a.see("first epoch", "%d", a.base)
		a.newGroup().group(5).group(6)
		m.send("same", m.same())
		m.send("all owned", m.same(0, 1))
		r := m.full()
		r.MemberEpoch = m.epoch
		m.send("full", r)
		a.newGroup()
		a.list(5, nil, []string{"consumer"})
	}},
	{"join, version 0", func(a *actor) {
		m := a.newMember("A")
		r := m.full()
		r.Version, r.MemberID = 0, ""
		m.send("join", r)
	}},
	{"assignors", func(a *actor) {
		base := a.id
		for _, name := range []string{"range", "uniform"} {
			a.id, a.base = base+name, 0
			m := a.newMember("A")
			r := m.full()
			r.ServerAssignor = &name
			m.send("join by "+name, r)
			a.newGroup()
		}
	}},
	{"unknown topic", func(a *actor) {
		m := a.newMember("A")
		r := m.full()
		r.SubscribedTopicNames = []string{"unknown"}
		m.send("join", r)
		a.newGroup()
	}},
	{"regex", func(a *actor) {
		m := a.newMember("A")
		r := m.full()
		r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, kmsg.StringPtr(a.topic+".*")
		m.send("join", r)
	}},
	{"epochs", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		for _, d := range []int32{1, 5} {
			r := m.same()
			r.MemberEpoch += d
			m.send(fmt.Sprintf("epoch %+d", d), r)
		}
		r := m.same()
		r.MemberID = "nobody"
		m.send("unknown member", r)
		m.send("same", m.same())
	}},
	{"leave", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		r := m.same()
		r.MemberEpoch = -1
		m.send("leave", r)
		m.send("after that", m.same())
		r.MemberEpoch = -1
		m.send("leave again", r)
		a.newGroup().group(5)
		a.deleteGroups(2, a.id)
	}},
	{"two members", func(a *actor) {
		x, y := a.newMember("A"), a.newMember("B")
		x.send("join", x.full())
		x.send("owned", x.same(0, 1))
		y.send("join", y.full())
		x.until("revoke", 0, 1)
		x.send("revoked", x.same(0))
		y.until("assigned")
		a.newGroup()
		r := y.same()
		r.MemberEpoch = -1
		y.send("leave", r)
		x.until("gets it back", 0)
		a.newGroup()
	}},
	{"static member", func(a *actor) {
		x := a.newMember("A")
		r := x.full()
		r.InstanceID = kmsg.StringPtr("i")
		x.send("join", r)
		y := a.newMember("B")
		r = y.full()
		r.InstanceID = kmsg.StringPtr("i")
		y.send("join while it is there", r)
		r = y.same()
		r.InstanceID, r.MemberEpoch = kmsg.StringPtr("i"), 1
		y.send("epoch 1", r)
		r = x.same()
		r.InstanceID, r.MemberEpoch = kmsg.StringPtr("i"), -2
		x.send("leave for a while", r)
		r = y.full()
		r.InstanceID = kmsg.StringPtr("i")
		y.send("come back", r)
		a.newGroup()
	}},
	{"offsets", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		for _, v := range []int16{8, 9, 10} {
			a.commit(v, a.id, m.id, m.epoch)
			a.commit(v, a.id, m.id, m.epoch+1)
			a.commit(v, a.id, m.id, m.epoch-1)
			a.commit(v, a.id, "nobody", m.epoch)
			a.commit(v, a.id, "", -1)
		}
		for _, v := range []int16{8, 9, 10} {
			a.fetch(v, a.id, false)
			for _, c := range []struct {
				id    string
				epoch int32
			}{{m.id, m.epoch}, {m.id, m.epoch + 1}, {m.id, m.epoch - 1}, {"nobody", m.epoch}, {m.id, -1}} {
				a.fetch(v, a.id, false, func(r *kmsg.OffsetFetchRequest) {
					r.Groups[0].MemberID, r.Groups[0].MemberEpoch = &c.id, c.epoch
				})
			}
		}
		a.deleteOffsets(a.topic, 0)
		a.deleteGroups(2, a.id)
	}},
	{"transaction", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		for _, v := range []int16{3, 4, 5} {
			a.commitOffset(v, a.id, a.pid, a.epoch, m.epoch, m.id)
			a.commitOffset(v, a.id, a.pid, a.epoch, m.epoch+1, m.id)
			a.commitOffset(v, a.id, a.pid, a.epoch, m.epoch, "nobody")
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "")
		}
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"classic protocol in a group of the new one", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		x := a.member("X")
		x.id, x.generation = m.id, m.epoch
		x.beat()
		x.leave(4, [2]string{"nobody", ""})
		x.syncAs("sync", x.syncRequest(5))
	}},
	{"new protocol in an empty classic group", func(a *actor) {
		x := a.member("X").stable()
		x.leave(4, [2]string{x.id, ""})
		m := a.newMember("A")
		m.send("join", m.full())
		a.newGroup()
	}},
	{"session timeout", func(a *actor) {
		m := a.newMember("A")
		m.send("join", m.full())
		a.s.until(func() bool {
			r := kmsg.NewPtrConsumerGroupDescribeRequest()
			r.Groups = []string{a.id}
			resp, _ := ask[*kmsg.ConsumerGroupDescribeResponse](a.s, r)
			return resp.Groups[0].State == "Empty"
		})
		m.send("same", m.same())
	}},
}
