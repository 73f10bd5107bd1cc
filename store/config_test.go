package store

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// The outcomes were taken from Kafka 4.4.0's own parser, except the two settings that are refused for being
// impossible here (compression.type other than producer, remote.storage.enable).
func TestParseTopicTable(t *testing.T) {
	for _, c := range []struct {
		name, value string
		wrong       string // part of the reason; empty: accepted
	}{
		{"cleanup.policy", "", ""},
		{"cleanup.policy", " delete , compact ", ""},
		{"cleanup.policy", "delete,delete", ""},
		{"cleanup.policy", "DELETE", "must be one of compact, delete"},
		{"cleanup.policy", "delete,", "must be one of"},
		{"retention.ms", " 5 ", ""},
		{"retention.ms", "+5", ""},
		{"retention.ms", "-1", ""},
		{"retention.ms", "-2", "must lie between -1"},
		{"retention.ms", "5x", "whole number"},
		{"retention.ms", "", "whole number"},
		{"retention.ms", "9223372036854775808", "whole number"},
		{"retention.bytes", "-5", ""},
		{"segment.bytes", "1048576", ""},
		{"segment.bytes", "1048575", "between 1048576"},
		{"segment.bytes", "2147483648", "between 1048576 and 2147483647"},
		{"internal.segment.bytes", "100", ""},
		{"bogus", "1", "no such topic setting"},
		{"preallocate", "TRUE", ""},
		{"preallocate", "yes", "true or false"},
		{"min.cleanable.dirty.ratio", "1e-1", ""},
		{"min.cleanable.dirty.ratio", "2", "between 0 and 1"},
		{"min.cleanable.dirty.ratio", "NaN", "between 0 and 1"},
		{"min.compaction.lag.ms", "10", ""},
		{"compression.type", "producer", ""},
		{"compression.type", "none", "must be one of"},
		{"compression.type", "zstd", "only 'producer'"},
		{"compression.gzip.level", "-1", ""},
		{"compression.gzip.level", "0", "between 1 and 9"},
		{"compression.zstd.level", "-131072", ""},
		{"message.timestamp.type", "LogAppendTime", ""},
		{"message.timestamp.type", "createtime", "must be one of"},
		{"remote.storage.enable", "false", ""},
		{"remote.storage.enable", "true", "no tiered storage"},
		{"leader.replication.throttled.replicas", "*", ""},
		{"leader.replication.throttled.replicas", "0:1,2:3", ""},
		{"leader.replication.throttled.replicas", "x", "partition:broker"},
		{"follower.replication.throttled.replicas", "", ""},
		{"min.insync.replicas", "2", ""},
		{"min.insync.replicas", "0", "between 1"},
		{"log.retention.ms", "5", "no such topic setting"},
	} {
		_, err := ParseTopic(map[string]string{c.name: c.value}, TopicConfig{})
		var invalid *InvalidConfigError
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		case c.wrong != "" && (!errors.As(err, &invalid) || invalid.Name != c.name ||
			!strings.Contains(invalid.Reason, c.wrong)):
			t.Errorf("%s=%q: %v, want %q", c.name, c.value, err, c.wrong)
		}
	}
	_, err := ParseTopic(map[string]string{"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "10"}, TopicConfig{})
	if err == nil || !strings.Contains(err.Error(), "10 is more than max.compaction.lag.ms, 5") {
		t.Errorf("lags that contradict each other: %v", err)
	}
}

func TestTopicDefaultsAndEffects(t *testing.T) {
	c, err := ParseTopic(nil, TopicConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if c.SegmentBytes != 1<<30 || c.SegmentMs != 604800000 || c.RetainMs != 604800000 || c.RetainBytes != -1 ||
		c.BatchBytesMax != 1048588 || c.AppendTime || !c.Delete || c.Compact || c.IndexInterval != 4096 ||
		c.IndexBytesMax != 10485760 || c.DeleteHorizonMs != 86400000 || c.MinISR != 1 ||
		c.TimeBeforeMaxMs != math.MaxInt64 || c.TimeAfterMaxMs != 3600000 || c.DecompressedBytesMax != 64<<20 {
		t.Fatalf("%+v", c)
	}
	c, err = ParseTopic(map[string]string{"retention.ms": "0", "retention.bytes": "0", "cleanup.policy": "",
		"message.timestamp.type": "LogAppendTime", "internal.segment.bytes": "512", "segment.jitter.ms": "1000",
		"segment.ms": "5000", "min.insync.replicas": "2"}, TopicConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if c.RetainMs != 0 || c.RetainBytes != 0 || c.Delete || c.Compact || !c.AppendTime || c.MinISR != 2 {
		t.Fatalf("%+v", c)
	}
	seen := map[int64]bool{}
	for p := range int32(20) {
		l := c.forLog(TP{Topic: "t", Partition: p})
		if l.SegmentBytes != 512 || l.SegmentMs <= 4000 || l.SegmentMs > 5000 {
			t.Fatalf("partition %d: %+v", p, l)
		}
		seen[l.SegmentMs] = true
	}
	if len(seen) < 15 {
		t.Fatalf("%d different jitters for 20 partitions", len(seen))
	}
	if c.Value("retention.ms") != "0" || c.Value("segment.index.bytes") != "10485760" || c.Value("bogus") != "" {
		t.Fatal("values as text")
	}
}

func TestServerDefaults(t *testing.T) {
	for _, c := range []struct {
		props map[string]string
		name  string
		want  string
	}{
		{nil, "retention.ms", "604800000"},
		{map[string]string{"log.retention.hours": "2"}, "retention.ms", "7200000"},
		{map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", "180000"},
		{map[string]string{"log.retention.hours": "2", "log.retention.ms": "7"}, "retention.ms", "7"},
		{map[string]string{"log.retention.hours": "-1"}, "retention.ms", "-1"},
		{map[string]string{"log.roll.hours": "1", "log.roll.jitter.hours": "2"}, "segment.jitter.ms", "7200000"},
		{map[string]string{"log.flush.scheduler.interval.ms": "9"}, "flush.ms", "9"},
		{map[string]string{"log.cleanup.policy": "compact"}, "cleanup.policy", "compact"},
		{map[string]string{"message.max.bytes": "99"}, "max.message.bytes", "99"},
		{map[string]string{"log.segment.bytes": "2097152", "broker.id": "x"}, "segment.bytes", "2097152"},
	} {
		d, err := ParseServer(c.props)
		if err != nil || d.Value(c.name) != c.want {
			t.Errorf("%v: %s is %q, %v; want %q", c.props, c.name, d.Value(c.name), err, c.want)
		}
		if topic, err := ParseTopic(nil, d); err != nil || topic.Value(c.name) != c.want {
			t.Errorf("%v: a topic has %s %q", c.props, c.name, topic.Value(c.name))
		}
	}
	for name, v := range map[string]string{"log.retention.hours": "1h", "log.segment.bytes": "1",
		"log.cleanup.policy": "none", "compression.type": "gzip"} {
		var invalid *InvalidConfigError
		if _, err := ParseServer(map[string]string{name: v}); !errors.As(err, &invalid) || invalid.Name != name {
			t.Errorf("%s=%s: %v", name, v, err)
		}
	}
	d, _ := ParseServer(map[string]string{"log.retention.ms": "5"})
	if d.RetainMs != 5 {
		t.Fatalf("effect of a default: %d", d.RetainMs)
	}
	if c, err := ParseTopic(map[string]string{"retention.ms": "6"}, d); err != nil || c.RetainMs != 6 {
		t.Fatalf("a topic's own setting over the default: %d, %v", c.RetainMs, err)
	}
}

func TestSettingsTable(t *testing.T) {
	all := Settings()
	if len(all) != 38 {
		t.Fatalf("%d settings, Kafka 4.4 has 38", len(all))
	}
	if !slices.IsSortedFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatal("not sorted")
	}
	for _, s := range all {
		if s.Doc == "" || s.Type == 0 || s.Default == "" && s.Type != TypeList && !s.Hidden {
			t.Errorf("%+v", s)
		}
		if s.Default != "" {
			if _, err := ParseTopic(map[string]string{s.Name: s.Default}, TopicConfig{}); err != nil {
				t.Errorf("the default of %s is refused: %v", s.Name, err)
			}
		}
		for _, n := range s.Synonyms {
			if !IsServerSetting(n) {
				t.Errorf("%s is not found", n)
			}
		}
	}
	if IsServerSetting("retention.ms") || IsServerSetting("num.partitions") {
		t.Fatal("names that are no defaults of topic settings")
	}
}
