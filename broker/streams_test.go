package broker

import (
	"testing"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The internal topics of Kafka Streams are created as it asks for them and described as they were created.
func TestStreamsTopics(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for name, set := range map[string][]string{
		"app-store-changelog": {"cleanup.policy", "compact", "message.timestamp.type", "CreateTime"},
		"app-windowed-changelog": {"cleanup.policy", "compact,delete", "message.timestamp.type", "CreateTime",
			"retention.ms", "86400000"},
		"app-key-repartition": {"cleanup.policy", "delete", "segment.bytes", "52428800", "retention.ms", "-1",
			"message.timestamp.type", "CreateTime"},
		"app-suppress-changelog": {"cleanup.policy", "compact", "min.insync.replicas", "1", "segment.bytes", "1048576",
			"max.message.bytes", "1048588", "delete.retention.ms", "1", "min.cleanable.dirty.ratio", "0.01"},
	} {
		made := c.makeTopic(name, 2, set...)
		told := map[string]string{}
		for _, s := range made.Configs {
			told[s.Name] = *s.Value
		}
		found := describe(c, kmsg.ConfigResourceTypeTopic, name)
		for i := 0; i < len(set); i += 2 {
			if told[set[i]] != set[i+1] {
				t.Errorf("%s: created with %s=%q, want %q", name, set[i], told[set[i]], set[i+1])
			}
			if got := value(found, set[i]); got != set[i+1]+"/1" {
				t.Errorf("%s: described with %s=%q, want %q", name, set[i], got, set[i+1]+"/1")
			}
		}
	}
	for name, want := range map[string]int16{"app-store-changelog": 44, "app-windowed-changelog": 0,
		"app-key-repartition": 0} {
		if _, code := deleteRecords(c, 2, name, 0, 0); code != want {
			t.Errorf("%s: DeleteRecords is answered %d, want %d", name, code, want)
		}
	}
}

// A compacted topic takes no record without a key, also when its policy comes from the node's default or by a change.
func TestCompactedTopicsNeedKeys(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("kept", 1)
	c.makeTopic("keyed", 1, "cleanup.policy", "compact")
	produce := func(topic string) int16 {
		r := rawclient.Produce(9, topic, 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
		return ask[*kmsg.ProduceResponse](c, r).Topics[0].Partitions[0].ErrorCode
	}
	if code := produce("keyed"); code != 87 {
		t.Errorf("a record without a key: %d, want 87", code)
	}
	if code := produce("kept"); code != 0 {
		t.Errorf("a topic that is not compacted: %d", code)
	}
	if code, why := alter(c, false, kmsg.ConfigResourceTypeTopic, "kept", add("cleanup.policy", "compact")); code != 0 {
		t.Fatalf("append to the policy: %d %s", code, why)
	}
	if code := produce("kept"); code != 87 {
		t.Errorf("after the change: %d, want 87", code)
	}
	if code, why := alter(c, false, kmsg.ConfigResourceTypeBroker, "", set("log.cleanup.policy", "compact")); code != 0 {
		t.Fatalf("the node's default: %d %s", code, why)
	}
	c.makeTopic("later", 1)
	if got := value(describe(c, kmsg.ConfigResourceTypeTopic, "later"), "cleanup.policy"); got != "compact/3" {
		t.Errorf("policy of a new topic: %q", got)
	}
	if code := produce("later"); code != 87 {
		t.Errorf("a topic of the new default: %d, want 87", code)
	}
}
