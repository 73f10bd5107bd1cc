package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit sends OffsetCommit of offset 7 of partition 0 and records the code.
func (a *actor) commit(version int16, group, member string, generation int32, change ...func(r *kmsg.OffsetCommitRequest)) {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = version, group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = a.topic, a.s.idOf(a.topic)
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = 7, kmsg.StringPtr("m")
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	for _, f := range change {
		f(r)
	}
	what := fmt.Sprintf("commit v%d", version)
	if member != "" {
		what += " as " + a.s.memberText(member)
	}
	if generation >= 0 {
		what += ", generation " + a.sentEpoch(generation)
	}
	resp, ok := ask[*kmsg.OffsetCommitResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	var all []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all = append(all, fmt.Sprintf("%d code %d", p.Partition, p.ErrorCode))
		}
	}
	a.see(what, "%s", strings.Join(all, ", "))
}

// fetch sends OffsetFetch and records the answer in the form of its version.
func (a *actor) fetch(version int16, group string, all bool, change ...func(r *kmsg.OffsetFetchRequest)) *actor {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.Group = version, group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if !all {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = a.topic, []int32{0, 1, 9}
		r.Topics = append(r.Topics, t)
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.TopicID, x.Partitions = a.topic, a.s.idOf(a.topic), []int32{0, 1, 9}
		g.Topics = append(g.Topics, x)
	} else {
		r.Topics, g.Topics = nil, nil
	}
	r.Groups = append(r.Groups, g)
	for _, f := range change {
		f(r)
	}
	what := fmt.Sprintf("fetch v%d of %q, all %v", version, group, all)
	resp, ok := ask[*kmsg.OffsetFetchResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return a
	}
	var parts []string
	one := func(p int32, code int16, offset int64, meta *string, epoch int32) {
		text := fmt.Sprintf("%d code %d at %d", p, code, offset)
		if meta == nil {
			text += " null"
		} else {
			text += fmt.Sprintf(" %q", *meta)
		}
		if epoch != -1 {
			text += " epoch"
		}
		parts = append(parts, text)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			one(p.Partition, p.ErrorCode, p.Offset, p.Metadata, p.LeaderEpoch)
		}
	}
	code := resp.ErrorCode
	for _, g := range resp.Groups {
		code = g.ErrorCode
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				one(p.Partition, p.ErrorCode, p.Offset, p.Metadata, p.LeaderEpoch)
			}
		}
	}
	slices.Sort(parts)
	a.see(what, "code %d, %s", code, strings.Join(parts, ", "))
	return a
}

// offsetRows are the tables of OffsetCommit and OffsetFetch.
var offsetRows = []tableRow{
	{"no group, every version", func(a *actor) {
		for v := int16(1); v <= 11; v++ {
			a.commit(v, a.id, "", -1)
		}
		for v := int16(0); v <= 11; v++ {
			a.fetch(v, a.id, false)
		}
		for _, v := range []int16{1, 2, 7, 8, 10} {
			a.fetch(v, a.id, true)
		}
		a.group(5)
	}},
	{"empty group id", func(a *actor) {
		for _, v := range []int16{2, 9} {
			a.commit(v, "", "", -1)
			a.fetch(v, "", false)
		}
	}},
	{"unknown group", func(a *actor) {
		for _, v := range []int16{1, 2, 5, 8, 10} {
			a.fetch(v, a.id, false).fetch(v, a.id, true)
		}
		a.group(5)
	}},
	{"generation without a group", func(a *actor) {
		for _, v := range []int16{2, 8, 9, 10} {
			a.commit(v, a.id, "nobody", 1)
			a.commit(v, a.id, "", 1)
			a.commit(v, a.id, "nobody", -1)
		}
		a.fetch(7, a.id, false)
	}},
	{"unknown topics and partitions", func(a *actor) {
		for _, v := range []int16{2, 9, 10} {
			a.commit(v, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Topic, r.Topics[0].TopicID = "unknown", [16]byte{1}
			})
			a.commit(v, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 9 })
		}
		a.fetch(10, a.id, false, func(r *kmsg.OffsetFetchRequest) { r.Groups[0].Topics[0].TopicID = [16]byte{1} })
		a.fetch(9, a.id, false, func(r *kmsg.OffsetFetchRequest) { r.Groups[0].Topics[0].Topic = "unknown" })
	}},
	{"values", func(a *actor) {
		for _, offset := range []int64{-1, -2, 1 << 40} {
			a.commit(8, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = offset })
			a.fetch(8, a.id, false)
		}
		for _, n := range []int{4096, 4097} {
			long := strings.Repeat("é", n)
			a.commit(8, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = &long })
		}
		a.commit(8, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Metadata, r.Topics[0].Partitions[0].LeaderEpoch = nil, 3
		})
		a.fetch(8, a.id, false)
		a.commit(3, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.RetentionTimeMillis = 1000 })
		a.commit(8, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions = nil })
		a.commit(8, a.id, "", -1, func(r *kmsg.OffsetCommitRequest) { r.Topics = nil })
	}},
	{"member of a stable group", func(a *actor) {
		m := a.member("A").stable()
		for _, v := range []int16{2, 8, 9, 10} {
			a.commit(v, a.id, m.id, m.generation)
			a.commit(v, a.id, m.id, m.generation+1)
			a.commit(v, a.id, m.id, m.generation-1)
			a.commit(v, a.id, "nobody", m.generation)
			a.commit(v, a.id, "", -1)
			a.commit(v, a.id, m.id, -1)
		}
		a.fetch(8, a.id, false)
	}},
	{"static member", func(a *actor) {
		m := a.member("A").static("i").stable()
		for _, instance := range []string{"i", "unknown"} {
			a.commit(8, a.id, m.id, m.generation, func(r *kmsg.OffsetCommitRequest) { r.InstanceID = &instance })
			a.commit(8, a.id, "nobody", m.generation, func(r *kmsg.OffsetCommitRequest) { r.InstanceID = &instance })
		}
	}},
	{"Completing", func(a *actor) {
		m := a.member("A").join("range")
		a.commit(8, a.id, m.id, m.generation)
		a.commit(8, a.id, "", -1)
	}},
	{"Preparing", func(a *actor) {
		m := a.member("A").stable()
		a.member("B").begin("range")
		a.rebalancing()
		a.commit(8, a.id, m.id, m.generation)
		a.commit(8, a.id, "", -1)
		m.join("range")
	}},
	{"Empty", func(a *actor) {
		m := a.member("A").stable()
		m.leave(4, [2]string{m.id, ""})
		a.commit(8, a.id, m.id, m.generation)
		a.commit(8, a.id, "", -1)
		a.commit(8, a.id, "nobody", -1)
		a.fetch(8, a.id, false)
	}},
	{"transaction of a member", func(a *actor) {
		m := a.member("A").stable()
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, m.generation, m.id)
		for _, v := range []int16{3, 4, 5} {
			a.commitOffset(v, a.id, a.pid, a.epoch, m.generation+1, m.id)
			a.commitOffset(v, a.id, a.pid, a.epoch, m.generation, "nobody")
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "")
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "nobody")
		}
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"transaction of a member in Completing", func(a *actor) {
		m := a.member("A").join("range")
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, m.generation, m.id)
	}},
}

// deleteGroups records DeleteGroups of these groups.
func (a *actor) deleteGroups(version int16, groups ...string) {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Version, r.Groups = version, groups
	resp, ok := ask[*kmsg.DeleteGroupsResponse](a.s, r)
	if !ok {
		a.see("delete", "%s", a.s.failure)
		return
	}
	var all []string
	for _, g := range resp.Groups {
		all = append(all, fmt.Sprintf("code %d, text %v", g.ErrorCode, g.ErrorMessage != nil))
	}
	slices.Sort(all)
	a.see(fmt.Sprintf("delete v%d of %d", version, len(groups)), "%s", strings.Join(all, "; "))
}

// deleteOffsets records OffsetDelete of one partition.
func (a *actor) deleteOffsets(topic string, partition int32) {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = a.id
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetDeleteRequestTopicPartition()
	p.Partition = partition
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	resp, ok := ask[*kmsg.OffsetDeleteResponse](a.s, r)
	if !ok {
		a.see("delete offsets", "%s", a.s.failure)
		return
	}
	text := fmt.Sprintf("code %d", resp.ErrorCode)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			text += fmt.Sprintf(", %d code %d", p.Partition, p.ErrorCode)
		}
	}
	a.see("delete offsets", "%s", text)
}

// list records ListGroups, of the groups of this row.
func (a *actor) list(version int16, states, types []string) {
	r := kmsg.NewPtrListGroupsRequest()
	r.Version, r.StatesFilter, r.TypesFilter = version, states, types
	resp, ok := ask[*kmsg.ListGroupsResponse](a.s, r)
	what := fmt.Sprintf("list v%d, states %v, types %v", version, states, types)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	var all []string
	for _, g := range resp.Groups {
		if strings.HasPrefix(g.Group, a.id) {
			all = append(all, fmt.Sprintf("%s %q %q %q", strings.TrimPrefix(g.Group, a.id), g.ProtocolType, g.GroupState, g.GroupType))
		}
	}
	slices.Sort(all)
	a.see(what, "code %d, %s", resp.ErrorCode, strings.Join(all, "; "))
}

// groupAdminRows are DescribeGroups, ListGroups, DeleteGroups and OffsetDelete.
var groupAdminRows = []tableRow{
	{"describe, every version", func(a *actor) {
		m := a.member("A").stable()
		for v := range int16(8) {
			a.group(v)
		}
		m.beat()
	}},
	{"describe of none", func(a *actor) {
		for v := range int16(7) {
			a.group(v)
		}
		a.newGroup()
	}},
	{"describe of a simple group", func(a *actor) { a.commit(8, a.id, "", -1); a.group(5).group(6); a.newGroup() }},
	{"list", func(a *actor) {
		base := a.id
		a.commit(8, base+"-simple", "", -1)
		a.id = base + "-stable"
		a.member("A").stable()
		a.id = base + "-empty"
		m := a.member("B").stable()
		m.leave(4, [2]string{m.id, ""})
		a.id = base
		for v := range int16(6) {
			a.list(v, nil, nil)
		}
		for _, states := range [][]string{{"Stable"}, {"stable"}, {"EMPTY", "Nothing"}, {"Nothing"}} {
			a.list(4, states, nil)
		}
		for _, types := range [][]string{{"classic"}, {"Consumer"}, {"nothing"}, {"share", "CLASSIC"}} {
			a.list(5, nil, types)
		}
	}},
	{"delete", func(a *actor) {
		for v := range int16(4) {
			a.deleteGroups(v, a.id)
			a.deleteGroups(v, "")
		}
		m := a.member("A").stable()
		a.commit(8, a.id, m.id, m.generation)
		a.deleteGroups(3, a.id)
		a.deleteOffsets(a.topic, 0)
		a.deleteOffsets("unknown", 0)
		a.deleteOffsets(a.topic, 9)
		m.leave(4, [2]string{m.id, ""})
		a.deleteOffsets(a.topic, 1)
		a.deleteOffsets(a.topic, 0)
		a.fetch(8, a.id, false)
		a.deleteGroups(2, a.id)
		a.group(6)
		a.deleteOffsets(a.topic, 0)
	}},
	{"delete with a transaction", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, -1, "")
		a.deleteGroups(2, a.id)
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"topic deleted", func(a *actor) {
		a.commit(8, a.id, "", -1)
		a.s.deleteTopic(a.topic)
		a.s.until(func() bool {
			r := kmsg.NewPtrOffsetFetchRequest()
			r.Version, r.Group, r.Topics = 7, a.id, nil
			resp, _ := ask[*kmsg.OffsetFetchResponse](a.s, r)
			return resp.ErrorCode == 0 && len(resp.Topics) == 0
		})
		a.group(5)
	}},
}
