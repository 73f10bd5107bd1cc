package broker

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func createCode(c *rawConn, name string) int16 {
	return createOne(c, false, kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1,
		ReplicationFactor: 1}).ErrorCode
}

func createOne(c *rawConn, validate bool, t kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics, r.ValidateOnly = []kmsg.CreateTopicsRequestTopic{t}, validate
	return ask[*kmsg.CreateTopicsResponse](c, at(r, 7)).Topics[0]
}

func assigned(parts ...[]int32) (all []kmsg.CreateTopicsRequestTopicReplicaAssignment) {
	for i, p := range parts {
		all = append(all, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: p})
	}
	return all
}

func config(name string, value *string) []kmsg.CreateTopicsRequestTopicConfig {
	return []kmsg.CreateTopicsRequestTopicConfig{{Name: name, Value: value}}
}

func TestCreateTopicsDecisions(t *testing.T) {
	n := startNode(t, func(c *Config) { c.NumPartitions = 5 })
	c := n.dial()
	c.makeTopic("taken", 1)
	self := []int32{n.nodeID}
	type topic = kmsg.CreateTopicsRequestTopic
	gap := assigned(self, self)
	gap[1].Partition = 2
	twice := assigned(self, self)
	twice[1].Partition = 0
	for _, tc := range []struct {
		what  string
		t     topic
		want  int16
		parts int32
	}{
		{"counts", topic{NumPartitions: 3, ReplicationFactor: 1}, 0, 3},
		{"defaults", topic{NumPartitions: -1, ReplicationFactor: -1}, 0, 5},
		{"assignment", topic{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned(self, self)}, 0, 2},
		{"setting", topic{NumPartitions: 1, ReplicationFactor: 1, Configs: config("retention.ms", text("77"))}, 0, 1},
		{"no partitions", topic{NumPartitions: 0, ReplicationFactor: 1}, 37, 0},
		{"fewer than none", topic{NumPartitions: -2, ReplicationFactor: 1}, 37, 0},
		{"far too many", topic{NumPartitions: 1<<31 - 1, ReplicationFactor: 1}, 44, 0},
		{"no replicas", topic{NumPartitions: 1, ReplicationFactor: 0}, 38, 0},
		{"fewer than no replicas", topic{NumPartitions: 1, ReplicationFactor: -2}, 38, 0},
		{"two replicas", topic{NumPartitions: 1, ReplicationFactor: 2}, 38, 0},
		{"replicas before partitions", topic{NumPartitions: 0, ReplicationFactor: 0}, 38, 0},
		{"assignment and partitions", topic{NumPartitions: 1, ReplicationFactor: -1, ReplicaAssignment: assigned(self)}, 42,
			0},
		{"assignment and replicas", topic{NumPartitions: -1, ReplicationFactor: 1, ReplicaAssignment: assigned(self)}, 42, 0},
		{"assignment elsewhere", topic{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned([]int32{99})},
			39, 0},
		{"assignment nowhere", topic{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned([]int32{})}, 39,
			0},
		{"assignment twice here", topic{NumPartitions: -1, ReplicationFactor: -1,
			ReplicaAssignment: assigned([]int32{n.nodeID, n.nodeID})}, 39, 0},
		{"assignment with a gap", topic{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: gap}, 39, 0},
		{"partition assigned twice", topic{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: twice}, 39, 0},
		{"unknown setting", topic{NumPartitions: 1, ReplicationFactor: 1, Configs: config("nope", text("1"))}, 40, 0},
		{"malformed setting", topic{NumPartitions: 1, ReplicationFactor: 1, Configs: config("retention.ms", text("x"))}, 40,
			0},
		{"setting without value", topic{NumPartitions: 1, ReplicationFactor: 1, Configs: config("retention.ms", nil)}, 40, 0},
		{"name taken", topic{Topic: "taken", NumPartitions: 1, ReplicationFactor: 1}, 36, 0},
		{"name first", topic{Topic: "a/b", NumPartitions: 0, ReplicationFactor: 9}, 17, 0},
	} {
		if tc.t.Topic == "" {
			tc.t.Topic = "t-" + strings.ReplaceAll(tc.what, " ", "-")
		}
		for _, validate := range []bool{true, false} {
			got := createOne(c, validate, tc.t)
			if got.ErrorCode != tc.want {
				t.Errorf("%s, validate %v: error %d, want %d", tc.what, validate, got.ErrorCode, tc.want)
				continue
			}
			if tc.want != 0 {
				if got.ErrorMessage == nil || *got.ErrorMessage == "" || got.NumPartitions != -1 || len(got.Configs) != 0 {
					t.Errorf("%s: a refusal with %+v", tc.what, got)
				}
				continue
			}
			if got.NumPartitions != tc.parts || got.ReplicationFactor != 1 || len(got.Configs) == 0 ||
				validate != (got.TopicID == [16]byte{}) {
				t.Errorf("%s, validate %v: %+v", tc.what, validate, got)
			}
		}
		exists := metadataOf(c, 9, false, tc.t.Topic).Topics[0].ErrorCode == 0
		if exists != (tc.want == 0 || tc.want == 36) {
			t.Errorf("%s: topic exists: %v", tc.what, exists)
		}
	}
}

func TestCreateTopicsValidateOnlyLeavesNothing(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	if got := createOne(c, true, kmsg.CreateTopicsRequestTopic{Topic: "x", NumPartitions: 2,
		ReplicationFactor: 1}); got.ErrorCode != 0 {
		t.Fatalf("validate: %d", got.ErrorCode)
	}
	if got := metadataOf(c, 9, false, "x").Topics[0]; got.ErrorCode != 3 {
		t.Errorf("after validate only: error %d, want 3", got.ErrorCode)
	}
}

func TestCreateTopicsVersions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for version := int16(2); version <= 7; version++ {
		r := kmsg.NewPtrCreateTopicsRequest()
		good := kmsg.CreateTopicsRequestTopic{Topic: "v" + itoa(int32(version)), NumPartitions: 2, ReplicationFactor: 1,
			Configs: config("retention.ms", text("5000"))}
		dup := kmsg.CreateTopicsRequestTopic{Topic: "dup", NumPartitions: 1, ReplicationFactor: 1}
		r.Topics = []kmsg.CreateTopicsRequestTopic{dup, good, dup}
		resp := ask[*kmsg.CreateTopicsResponse](c, at(r, version))
		if len(resp.Topics) != 2 || resp.Topics[0].ErrorCode != 42 || resp.Topics[1].ErrorCode != 0 {
			t.Fatalf("version %d: %+v, want 42 for the name given twice, once, and 0", version, resp.Topics)
		}
		got := resp.Topics[1]
		if version >= 5 {
			i := slices.IndexFunc(got.Configs,
				func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "retention.ms" })
			if got.NumPartitions != 2 || got.ReplicationFactor != 1 || i < 0 || *got.Configs[i].Value != "5000" ||
				got.Configs[i].Source != 1 {
				t.Errorf("version %d: %+v", version, got)
			}
		}
		if version >= 7 && got.TopicID == [16]byte{} {
			t.Errorf("version %d: no topic id", version)
		}
		if metadataOf(c, 9, false, "dup").Topics[0].ErrorCode != 3 {
			t.Errorf("version %d: the topic named twice was created", version)
		}
	}
}

// A topic that cannot be does not keep the others of its request from being made.
func TestCreateTopicsTogether(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	r := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{"a.b", "a_b", "c", "a/b", "d"} {
		r.Topics = append(r.Topics, kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1})
	}
	var codes []int16
	for _, got := range ask[*kmsg.CreateTopicsResponse](c, at(r, 7)).Topics {
		codes = append(codes, got.ErrorCode)
	}
	if want := []int16{0, 17, 0, 17, 0}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if all := ask[*kmsg.MetadataResponse](c, at(kmsg.NewPtrMetadataRequest(), 9)); len(all.Topics) != 3 {
		t.Errorf("%d topics, want 3", len(all.Topics))
	}
	r.Topics = []kmsg.CreateTopicsRequestTopic{
		{Topic: "big", NumPartitions: partitionsPerRequestMax, ReplicationFactor: 1},
		{Topic: "more", NumPartitions: 1, ReplicationFactor: 1}}
	r.ValidateOnly = true
	got := ask[*kmsg.CreateTopicsResponse](c, at(r, 7)).Topics
	if got[0].ErrorCode != 0 || got[1].ErrorCode != 44 {
		t.Errorf("%d partitions and one more: errors %d and %d, want 0 and 44",
			partitionsPerRequestMax, got[0].ErrorCode, got[1].ErrorCode)
	}
}

// Whoever loses the race for a name is told so, and nothing is created twice.
func TestCreateTopicsRace(t *testing.T) {
	n := startNode(t)
	const clients = 8
	codes := make([]int16, clients)
	var wg sync.WaitGroup
	for i := range clients {
		c := n.dial()
		wg.Go(func() {
			r := kmsg.NewPtrCreateTopicsRequest()
			for _, name := range []string{"race", "own" + itoa(int32(i+1))} {
				r.Topics = append(r.Topics, kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1})
			}
			resp, err := c.try(at(r, 7))
			if err != nil {
				t.Error(err)
				return
			}
			topics := resp.(*kmsg.CreateTopicsResponse).Topics
			codes[i] = topics[0].ErrorCode
			if topics[1].ErrorCode != 0 {
				t.Errorf("a topic of its own: error %d", topics[1].ErrorCode)
			}
		})
	}
	wg.Wait()
	slices.Sort(codes)
	if codes[0] != 0 || codes[1] != 36 || codes[clients-1] != 36 {
		t.Errorf("codes %v, want one 0 and 36 for all others", codes)
	}
	if all := ask[*kmsg.MetadataResponse](n.dial(), at(kmsg.NewPtrMetadataRequest(), 9)); len(all.Topics) != clients+1 {
		t.Errorf("%d topics, want %d", len(all.Topics), clients+1)
	}
}

func deleteTopics(c *rawConn, version int16, topics ...kmsg.DeleteTopicsRequestTopic) []kmsg.DeleteTopicsResponseTopic {
	c.t.Helper()
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Topics = topics
	for _, t := range topics {
		if t.Topic != nil {
			r.TopicNames = append(r.TopicNames, *t.Topic)
		}
	}
	return ask[*kmsg.DeleteTopicsResponse](c, at(r, version)).Topics
}

func TestDeleteTopics(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	type topic = kmsg.DeleteTopicsRequestTopic
	for version := int16(1); version <= 5; version++ {
		c.makeTopic("gone", 2)
		got := deleteTopics(c, version, topic{Topic: text("gone")}, topic{Topic: text("never")})
		if len(got) != 2 || *got[0].Topic != "gone" || got[0].ErrorCode != 0 || got[1].ErrorCode != 3 {
			t.Fatalf("version %d: %+v, want 0 and 3", version, got)
		}
		if metadataOf(c, 9, false, "gone").Topics[0].ErrorCode != 3 {
			t.Fatalf("version %d: still there after the answer", version)
		}
	}
	a, b := c.makeTopic("a", 1).TopicID, c.makeTopic("b", 1).TopicID
	for _, tc := range []struct {
		what string
		in   []topic
		want []int16
	}{
		{"unknown id", []topic{{TopicID: [16]byte{7}}}, []int16{100}},
		{"neither", []topic{{}}, []int16{42}},
		{"both", []topic{{Topic: text("a"), TopicID: a}}, []int16{42}},
		{"name twice", []topic{{Topic: text("a")}, {Topic: text("a")}}, []int16{42}},
		{"id twice", []topic{{TopicID: a}, {TopicID: a}}, []int16{42}},
		{"name and id of one", []topic{{Topic: text("a")}, {TopicID: a}}, []int16{42, 42}},
		{"by id and by name", []topic{{TopicID: a}, {Topic: text("b")}}, []int16{0, 0}},
		{"again", []topic{{TopicID: a}, {TopicID: b}, {Topic: text("a")}}, []int16{100, 100, 3}},
	} {
		got := deleteTopics(c, 6, tc.in...)
		var codes []int16
		for _, g := range got {
			codes = append(codes, g.ErrorCode)
			if (g.ErrorCode != 0) != (g.ErrorMessage != nil) {
				t.Errorf("%s: error %d with message %v", tc.what, g.ErrorCode, g.ErrorMessage)
			}
		}
		if !slices.Equal(codes, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, codes, tc.want)
		}
		if tc.what == "by id and by name" && (*got[0].Topic != "a" || got[1].TopicID != b) {
			t.Errorf("%s: %+v, want names and ids of both", tc.what, got)
		}
	}
}

// A topic made anew under an old name has another id, and nothing of the old one.
func TestTopicDeletedAndMadeAgain(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	first := c.makeTopic("again", 1, "retention.ms", "1234").TopicID
	deleteTopics(c, 6, kmsg.DeleteTopicsRequestTopic{TopicID: first})
	second := c.makeTopic("again", 3)
	if second.TopicID == first {
		t.Fatal("the new topic has the id of the old one")
	}
	for _, cfg := range second.Configs {
		if cfg.Name == "retention.ms" && *cfg.Value == "1234" {
			t.Error("the new topic has the setting of the old one")
		}
	}
	if got := metadataOf(c, 9, false, "again").Topics[0]; len(got.Partitions) != 3 {
		t.Errorf("%d partitions, want 3", len(got.Partitions))
	}
}

func TestDeletionDisabled(t *testing.T) {
	n := startNode(t, func(c *Config) { c.KeepTopics = true })
	c := n.dial()
	id := c.makeTopic("kept", 1).TopicID
	for version, want := range map[int16]int16{1: 42, 2: 42, 3: 73, 5: 73} {
		if got := deleteTopics(c, version, kmsg.DeleteTopicsRequestTopic{Topic: text("kept")}); got[0].ErrorCode != want {
			t.Errorf("version %d: error %d, want %d", version, got[0].ErrorCode, want)
		}
	}
	if got := deleteTopics(c, 6, kmsg.DeleteTopicsRequestTopic{TopicID: id}); got[0].ErrorCode != 73 {
		t.Errorf("by id: error %d, want 73", got[0].ErrorCode)
	}
	if metadataOf(c, 9, false, "kept").Topics[0].ErrorCode != 0 {
		t.Error("deleted all the same")
	}
}

func TestCreatePartitions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("grow", 2)
	self := kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{n.nodeID}}
	other := kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{99}}
	empty := kmsg.CreatePartitionsRequestTopicAssignment{}
	type assign = []kmsg.CreatePartitionsRequestTopicAssignment
	for _, tc := range []struct {
		what     string
		topic    string
		count    int32
		assign   assign
		validate bool
		want     int16
		parts    int
	}{
		{"unknown topic", "nope", 3, nil, false, 3, 2},
		{"as many", "grow", 2, nil, false, 37, 2},
		{"fewer", "grow", 1, nil, false, 37, 2},
		{"none", "grow", 0, nil, false, 37, 2},
		{"negative", "grow", -1, nil, false, 37, 2},
		{"far too many", "grow", 1<<31 - 1, nil, false, 44, 2},
		{"assignment too short", "grow", 4, assign{self}, false, 39, 2},
		{"assignment elsewhere", "grow", 3, assign{other}, false, 39, 2},
		{"assignment nowhere", "grow", 3, assign{empty}, false, 39, 2},
		{"only validated", "grow", 3, nil, true, 0, 2},
		{"one more", "grow", 3, nil, false, 0, 3},
		{"two more, assigned", "grow", 5, assign{self, self}, false, 0, 5},
	} {
		for version := int16(0); version <= 3; version++ {
			r := kmsg.NewPtrCreatePartitionsRequest()
			r.ValidateOnly = tc.validate
			r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: tc.topic, Count: tc.count, Assignment: tc.assign}}
			got := ask[*kmsg.CreatePartitionsResponse](c, at(r, version)).Topics[0]
			if got.ErrorCode != tc.want || (got.ErrorCode != 0) != (got.ErrorMessage != nil) {
				t.Errorf("%s, version %d: %+v, want %d", tc.what, version, got, tc.want)
			}
			if parts := metadataOf(c, 9, false, "grow").Topics[0].Partitions; len(parts) != tc.parts {
				t.Errorf("%s: %d partitions, want %d", tc.what, len(parts), tc.parts)
			}
			if tc.want == 0 && !tc.validate {
				break // the next version would find it done
			}
		}
	}
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "grow", Count: 6}, {Topic: "grow", Count: 7}}
	if got := ask[*kmsg.CreatePartitionsResponse](c, at(r, 3)).Topics; len(got) != 1 || got[0].ErrorCode != 42 {
		t.Errorf("one topic twice: %+v, want 42 once", got)
	}
}
