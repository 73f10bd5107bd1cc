package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// newTopic is what a CreateTopics request asks for.
type newTopic struct {
	name       string
	partitions int32
	replicas   int16
	set        []string // names and values in turn; a value "null" is null
	assigned   [][]int32
}

func (s *side) createRequest(version int16, validate bool, topics ...newTopic) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis, r.ValidateOnly = version, 10_000, validate
	for _, n := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n.name, n.partitions, n.replicas
		for i := 0; i < len(n.set); i += 2 {
			c := kmsg.CreateTopicsRequestTopicConfig{Name: n.set[i], Value: &n.set[i+1]}
			if n.set[i+1] == "null" {
				c.Value = nil
			}
			t.Configs = append(t.Configs, c)
		}
		for i, nodes := range n.assigned {
			t.ReplicaAssignment = append(t.ReplicaAssignment,
				kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: nodes})
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

// create sends a CreateTopics request and records the answer, topics sorted by name.
func (s *side) create(step string, version int16, validate bool, topics ...newTopic) {
	r := s.createRequest(version, validate, topics...)
	resp, ok := ask[*kmsg.CreateTopicsResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	var all []string
	for _, t := range resp.Topics {
		text := fmt.Sprintf("%s: code %d", t.Topic, t.ErrorCode)
		if version >= 5 {
			text += fmt.Sprintf(", %d partitions, %d replicas, settings %v", t.NumPartitions, t.ReplicationFactor,
				len(t.Configs) > 0)
		}
		if version >= 7 {
			text += fmt.Sprintf(", id %v", t.TopicID != [16]byte{})
		}
		all = append(all, text)
	}
	slices.Sort(all)
	s.see(step, "%s", strings.Join(all, "; "))
}

// creating is CreateTopics, good and bad.
func creating(s *side) {
	for v := int16(1); v <= 8; v++ {
		s.create(fmt.Sprintf("version %d", v), v, false, newTopic{name: fmt.Sprintf("made-%d", v), partitions: 2, replicas: 1})
	}
	one := func(step string, t newTopic) { s.create(step, 7, false, t) }
	name := func(step, n string) { one(step, newTopic{name: n, partitions: 1, replicas: 1}) }
	name("name empty", "")
	name("name .", ".")
	name("name ..", "..")
	name("name of 249", "n"+strings.Repeat("x", 248))
	name("name of 250", "n"+strings.Repeat("x", 249))
	name("name with a slash", "a/b")
	name("name with a space", "a b")
	name("name with an umlaut", "ä")
	name("name with a NUL", "a\x00b")
	name("name ../x", "../x")
	name("exists", "made-7")
	name("collides", "dot.dash_x")
	name("collides again", "dot_dash.x")
	name("internal: metadata", "__cluster_metadata")
	for _, c := range []struct {
		partitions int32
		replicas   int16
	}{{0, 1}, {-1, 1}, {-2, 1}, {1, 0}, {1, -1}, {1, -2}, {1, 2}, {0, 0}, {-1, -1}} {
		n := fmt.Sprintf("counts%d.%d", c.partitions, c.replicas)
		one(fmt.Sprintf("%d partitions, %d replicas", c.partitions, c.replicas), newTopic{n, c.partitions, c.replicas, nil, nil})
	}
	for _, c := range []struct {
		name     string
		assigned [][]int32
	}{{"to this node", [][]int32{{1}, {1}}}, {"to another node", [][]int32{{2}}}, {"to nobody", [][]int32{{}}},
		{"twice to this node", [][]int32{{1, 1}}}, {"to two nodes", [][]int32{{1, 2}}}} {
		n := strings.ReplaceAll(c.name, " ", "-")
		one("assigned "+c.name, newTopic{"assigned-" + n, -1, -1, nil, c.assigned})
	}
	one("assigned with counts", newTopic{"assigned-counts", 1, 1, nil, [][]int32{{1}}})
	for i, set := range [][]string{
		{"retention.ms", "1000"}, {"retention.ms", "-1"}, {"retention.ms", "-2"}, {"retention.ms", "x"}, {"retention.ms", ""},
		{"retention.ms", " 1000 "}, {"retention.ms", "null"}, {"retention.ms", "99999999999999999999"},
		{"no.such.setting", "1"}, {"segment.bytes", "1048575"}, {"segment.bytes", "1048576"}, {"segment.bytes", "2147483648"},
		{"cleanup.policy", "delete"}, {"cleanup.policy", "none"}, {"cleanup.policy", ""}, {"cleanup.policy", "DELETE"},
		{"cleanup.policy", "compact"}, {"cleanup.policy", "compact,delete"}, {"cleanup.policy", "delete,delete"},
		{"compression.type", "producer"}, {"compression.type", "gzip"}, {"compression.type", "none"},
		{"message.timestamp.type", "LogAppendTime"}, {"message.timestamp.type", "CreateTime"},
		{"message.timestamp.type", "logappendtime"}, {"min.insync.replicas", "0"}, {"min.insync.replicas", "3"},
		{"unclean.leader.election.enable", "true"}, {"unclean.leader.election.enable", "maybe"}, {"preallocate", "true"},
		{"max.message.bytes", "-1"}, {"max.message.bytes", "0"}, {"remote.storage.enable", "true"},
		{"min.cleanable.dirty.ratio", "0.3"}, {"min.cleanable.dirty.ratio", "1.3"}, {"message.format.version", "2.8"},
		{"message.downconversion.enable", "false"}, {"segment.ms", "0"}, {"flush.messages", "0"}, {"index.interval.bytes", "-1"},
		{"retention.bytes", "-7"}, {"file.delete.delay.ms", "-1"}, {"segment.jitter.ms", "-1"},
		{"follower.replication.throttled.replicas", "*"}, {"follower.replication.throttled.replicas", "1"},
		{"local.retention.ms", "5"}, {"message.timestamp.before.max.ms", "-1"}, {"internal.segment.bytes", "100"},
		{"retention.ms", "1", "retention.ms", "2"}, {"segment.bytes", "1048576", "max.message.bytes", "9000000"},
	} {
		one("setting "+strings.Join(set, "="), newTopic{fmt.Sprintf("set-%d", i), 1, 1, set, nil})
	}
	s.create("validate only, good", 7, true, newTopic{name: "dry", partitions: 3, replicas: 1})
	s.create("validate only, bad", 7, true, newTopic{name: "dry", partitions: 0, replicas: 1})
	s.create("validate only, exists", 7, true, newTopic{name: "made-7", partitions: 1, replicas: 1})
	s.create("not made by validate only", 7, false, newTopic{name: "dry", partitions: 1, replicas: 1})
	s.create("twice in a request", 7, false, newTopic{name: "two", partitions: 1, replicas: 1},
		newTopic{name: "two", partitions: 1, replicas: 1})
	s.create("good, bad and good", 7, false, newTopic{name: "good-1", partitions: 1, replicas: 1},
		newTopic{name: "bad-1", partitions: 1, replicas: 9}, newTopic{name: "good-2", partitions: 1, replicas: 1})
	s.create("no topics", 7, false)
	s.createdConfigs()
}

// internal is about the topics of the coordinators. Kafka makes them when a coordinator is asked for first, which must
// not have happened before.
func internal(s *side) {
	s.metadata("not there", 9, false, named("__transaction_state"), named("__consumer_offsets"))
	s.produce("produce", 9, "__consumer_offsets", 0, plain(1).bytes())
	s.fetched("fetch", rawclient.Fetch(12, "__consumer_offsets", 0, 0))
	for _, name := range []string{"__consumer_offsets", "__transaction_state"} {
		s.create("create "+name, 7, false, newTopic{name: name, partitions: 1, replicas: 1})
	}
}

// createdConfigs looks at the settings that the answer of CreateTopics tells.
func (s *side) createdConfigs() {
	r := s.createRequest(7, false, newTopic{"told", 1, 1, []string{"retention.ms", "5000"}, nil})
	resp, _ := ask[*kmsg.CreateTopicsResponse](s, r)
	for _, c := range resp.Topics[0].Configs {
		s.see("told "+c.Name, "%s, source %d, read only %v, sensitive %v", value(c.Value), c.Source, c.ReadOnly, c.IsSensitive)
	}
}

func value(v *string) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *v)
}

// growing is CreatePartitions.
func growing(s *side) {
	s.topic("growing", 2)
	s.topic("growing-2", 1)
	grow := func(step string, version int16, topic string, count int32, validate bool, assigned ...[]int32) {
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.Version, r.TimeoutMillis, r.ValidateOnly = version, 10_000, validate
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = topic, count
		for _, a := range assigned {
			t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
		}
		r.Topics = append(r.Topics, t)
		resp, _ := ask[*kmsg.CreatePartitionsResponse](s, r)
		s.see(step, "code %d", resp.Topics[0].ErrorCode)
	}
	grow("as many", 3, "growing", 2, false)
	grow("fewer", 3, "growing", 1, false)
	grow("none", 3, "growing", 0, false)
	grow("-1", 3, "growing", -1, false)
	grow("one more, validate only", 3, "growing", 3, true)
	grow("one more", 3, "growing", 3, false)
	grow("one more, assigned", 2, "growing", 4, false, []int32{1})
	grow("one more, assigned to another", 1, "growing", 5, false, []int32{9})
	grow("two more, one assigned", 3, "growing", 6, false, []int32{1})
	grow("unknown topic", 3, "unknown", 3, false)
	grow("bad name", 3, "a/b", 3, false)
	s.settled("growing", 4)
	s.produce("in the third", 9, "growing", 2, plain(1).bytes())
	s.produce("in the fifth", 9, "growing", 4, plain(1).bytes())
}

// deletingTopics is DeleteTopics by name and by id.
func deletingTopics(s *side) {
	var ids [4][16]byte
	for i := range ids {
		ids[i] = s.topic(fmt.Sprintf("deleted-%d", i), 1)
	}
	del := func(step string, version int16, topics ...kmsg.DeleteTopicsRequestTopic) {
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.Version, r.TimeoutMillis, r.Topics = version, 10_000, topics
		for _, t := range topics {
			if t.Topic != nil {
				r.TopicNames = append(r.TopicNames, *t.Topic)
			}
		}
		resp, ok := ask[*kmsg.DeleteTopicsResponse](s, r)
		if !ok {
			s.see(step, "%s", s.failure)
			return
		}
		var all []string
		for _, t := range resp.Topics {
			text := fmt.Sprintf("%s: code %d", value(t.Topic), t.ErrorCode)
			if version >= 6 {
				text += ", id of " + s.topicName(t.TopicID)
			}
			all = append(all, text)
		}
		slices.Sort(all)
		s.see(step, "%s", strings.Join(all, "; "))
	}
	name := func(n string) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{Topic: &n} }
	id := func(id [16]byte) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{TopicID: id} }
	for v := int16(0); v <= 7; v++ {
		del(fmt.Sprintf("unknown, version %d", v), v, name("unknown"))
	}
	del("by name", 5, name("deleted-0"))
	del("by name again", 5, name("deleted-0"))
	del("by name in version 6", 6, name("deleted-1"))
	del("by id", 6, id(ids[2]))
	del("by id again", 6, id(ids[2]))
	del("unknown id", 6, id([16]byte{7}))
	del("neither name nor id", 6, id([16]byte{}))
	both := name("deleted-3")
	both.TopicID = ids[3]
	del("name and id", 6, both)
	del("a name twice", 6, name("deleted-3"), name("deleted-3"))
	del("an id twice", 6, id(ids[3]), id(ids[3]))
	del("name and id of one topic", 6, name("deleted-3"), id(ids[3]))
	del("bad name", 6, name("a/b"))
	del("unknown and good", 6, name("unknown"), name("deleted-3"))
	del("none", 6)
}
