package main

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of resources that have settings.
const (
	resourceTopic  = kmsg.ConfigResourceTypeTopic
	resourceBroker = kmsg.ConfigResourceTypeBroker
	resourceLogger = kmsg.ConfigResourceTypeBrokerLogger
)

// describeConfigs asks for the settings of one resource.
func (s *side) describeConfigs(version int16, kind kmsg.ConfigResourceType, name string, synonyms bool,
	keys ...string) (*kmsg.DescribeConfigsResponseResource, bool) {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.Version, r.IncludeSynonyms, r.IncludeDocumentation = version, synonyms, true
	q := kmsg.NewDescribeConfigsRequestResource()
	q.ResourceType, q.ResourceName, q.ConfigNames = kind, name, keys
	r.Resources = append(r.Resources, q)
	resp, ok := ask[*kmsg.DescribeConfigsResponse](s, r)
	if !ok {
		return nil, false
	}
	return &resp.Resources[0], true
}

// describing is DescribeConfigs: every setting of a topic one by one, and of the broker those that both have.
func describing(s *side) {
	s.topic("configured", 1, "retention.ms", "5000", "cleanup.policy", "delete")
	got, _ := s.describeConfigs(4, resourceTopic, "configured", true)
	for _, c := range got.Configs {
		text := fmt.Sprintf("%s, type %d, source %d, read only %v, sensitive %v, documented %v, synonyms", value(c.Value),
			c.ConfigType, c.Source, c.ReadOnly, c.IsSensitive, c.Documentation != nil && *c.Documentation != "")
		for _, y := range c.ConfigSynonyms {
			text += fmt.Sprintf(" %s=%s(%d)", y.Name, value(y.Value), y.Source)
		}
		s.see("topic "+c.Name, "%s", text)
	}
	for _, name := range []string{"log.retention.ms", "log.retention.bytes", "log.segment.bytes", "log.roll.ms",
		"message.max.bytes", "num.partitions", "auto.create.topics.enable", "delete.topic.enable", "listeners",
		"producer.id.expiration.ms", "socket.request.max.bytes", "queued.max.request.bytes", "connections.max.idle.ms",
		"max.connections", "max.connections.per.ip", "fetch.max.bytes", "log.message.timestamp.type", "log.cleanup.policy",
		"compression.type", "min.insync.replicas", "num.recovery.threads.per.data.dir", "node.id"} {
		got, _ := s.describeConfigs(4, resourceBroker, "1", false, name)
		if len(got.Configs) != 1 {
			s.see("broker "+name, "code %d, %d settings", got.ErrorCode, len(got.Configs))
			continue
		}
		c := got.Configs[0]
		s.see("broker "+name, "%s, type %d, read only %v, sensitive %v", value(c.Value), c.ConfigType, c.ReadOnly,
			c.IsSensitive)
	}
	for _, q := range []struct {
		step string
		kind kmsg.ConfigResourceType
		name string
		keys []string
	}{
		{"unknown topic", resourceTopic, "unknown", nil}, {"bad topic name", resourceTopic, "a/b", nil},
		{"empty topic name", resourceTopic, "", nil}, {"unknown key", resourceTopic, "configured", []string{"no.such"}},
		{"one key", resourceTopic, "configured", []string{"retention.ms"}},
		{"another broker", resourceBroker, "7", nil}, {"broker that is no number", resourceBroker, "x", nil},
		{"all brokers", resourceBroker, "", nil}, {"logger of another broker", resourceLogger, "7", nil},
		{"resource type 0", 0, "x", nil}, {"resource type 3", 3, "x", nil}, {"client metrics", 16, "x", nil},
		{"group", 32, "x", nil}, {"resource type 99", 99, "x", nil},
	} {
		got, ok := s.describeConfigs(4, q.kind, q.name, false, q.keys...)
		if !ok {
			s.see(q.step, "%s", s.failure)
			continue
		}
		s.see(q.step, "code %d, %s", got.ErrorCode, some(len(got.Configs)))
	}
	for v := int16(0); v <= 5; v++ {
		got, ok := s.describeConfigs(v, resourceTopic, "configured", true, "retention.ms")
		step := fmt.Sprintf("version %d", v)
		if !ok {
			s.see(step, "%s", s.failure)
			continue
		}
		c := got.Configs[0]
		s.see(step, "code %d, %s, default %v, source %d, %d synonyms, type %d", got.ErrorCode, value(c.Value), c.IsDefault,
			c.Source, len(c.ConfigSynonyms), c.ConfigType)
	}
}

// some is a number where it is 0 or 1, else a word.
func some(n int) string {
	if n > 1 {
		return "many settings"
	}
	return fmt.Sprintf("%d settings", n)
}

// Operations of IncrementalAlterConfigs.
const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
)

// change is one operation on a setting; the value "null" is null.
type change struct {
	op    kmsg.IncrementalAlterConfigOp
	name  string
	value string
}

func incremental(kind kmsg.ConfigResourceType, name string, validate bool, changes ...change,
) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version, r.ValidateOnly = 1, validate
	q := kmsg.NewIncrementalAlterConfigsRequestResource()
	q.ResourceType, q.ResourceName = kind, name
	for _, c := range changes {
		k := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		k.Name, k.Op = c.name, c.op
		if c.value != "null" && c.op != opDelete {
			k.Value = &c.value
		}
		q.Configs = append(q.Configs, k)
	}
	r.Resources = append(r.Resources, q)
	return r
}

// altering is IncrementalAlterConfigs and AlterConfigs; what a topic's settings are afterwards is part of every step.
func altering(s *side) {
	s.topic("altered", 1, "retention.ms", "5000", "retention.bytes", "7")
	own := func() (text string) {
		for _, name := range []string{"retention.ms", "retention.bytes", "cleanup.policy", "segment.bytes",
			"follower.replication.throttled.replicas"} {
			got, _ := s.describeConfigs(4, resourceTopic, "altered", false, name)
			if c := got.Configs[0]; c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				text += " " + name + "=" + *c.Value
			}
		}
		return text
	}
	alter := func(step string, validate bool, changes ...change) {
		resp, _ := ask[*kmsg.IncrementalAlterConfigsResponse](s, incremental(resourceTopic, "altered", validate, changes...))
		s.marker()
		s.see(step, "code %d, then%s", resp.Resources[0].ErrorCode, own())
	}
	alter("set", false, change{opSet, "retention.ms", "6000"})
	alter("set, validate only", true, change{opSet, "retention.ms", "6001"})
	alter("set to a bad value", false, change{opSet, "retention.ms", "x"})
	alter("set to null", false, change{opSet, "retention.ms", "null"})
	alter("set what is unknown", false, change{opSet, "no.such", "1"})
	alter("set good and bad", false, change{opSet, "retention.bytes", "9"}, change{opSet, "retention.ms", "x"})
	alter("delete", false, change{opDelete, "retention.bytes", "null"})
	alter("delete again", false, change{opDelete, "retention.bytes", "null"})
	alter("delete what is unknown", false, change{opDelete, "no.such", "null"})
	alter("append to no list", false, change{opAppend, "retention.ms", "1"})
	alter("append", false, change{opAppend, "follower.replication.throttled.replicas", "0:1"})
	alter("append another", false, change{opAppend, "follower.replication.throttled.replicas", "1:1"})
	alter("append what is there", false, change{opAppend, "follower.replication.throttled.replicas", "1:1"})
	alter("subtract", false, change{opSubtract, "follower.replication.throttled.replicas", "0:1"})
	alter("subtract what is not there", false, change{opSubtract, "follower.replication.throttled.replicas", "9:1"})
	alter("subtract the last policy", false, change{opSubtract, "cleanup.policy", "delete"})
	alter("append the policy", false, change{opAppend, "cleanup.policy", "delete"})
	alter("a key twice", false, change{opSet, "retention.ms", "1"}, change{opSet, "retention.ms", "2"})
	alter("operation 9", false, change{9, "retention.ms", "1"})
	alter("no change", false)
	for _, q := range []struct {
		step string
		kind kmsg.ConfigResourceType
		name string
		c    change
	}{
		{"unknown topic", resourceTopic, "unknown", change{opSet, "retention.ms", "1"}},
		{"bad topic name", resourceTopic, "a/b", change{opSet, "retention.ms", "1"}},
		{"empty topic name", resourceTopic, "", change{opSet, "retention.ms", "1"}},
		{"another broker", resourceBroker, "7", change{opSet, "log.retention.ms", "1000"}},
		{"broker, read only", resourceBroker, "1", change{opSet, "num.partitions", "x"}},
		{"broker, listeners", resourceBroker, "1", change{opSet, "node.id", "5"}},
		{"broker, unknown", resourceBroker, "1", change{opSet, "no.such", "5"}},
		{"broker, bad value", resourceBroker, "1", change{opSet, "log.segment.bytes", "5"}},
		{"resource type 99", 99, "x", change{opSet, "a", "5"}},
	} {
		resp, ok := ask[*kmsg.IncrementalAlterConfigsResponse](s, incremental(q.kind, q.name, false, q.c))
		if !ok {
			s.see(q.step, "%s", s.failure)
			continue
		}
		s.see(q.step, "code %d", resp.Resources[0].ErrorCode)
	}
	twice := incremental(resourceTopic, "altered", false, change{opSet, "retention.ms", "1"})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	resp, _ := ask[*kmsg.IncrementalAlterConfigsResponse](s, twice)
	s.see("a resource twice", "code %d, then%s", resp.Resources[0].ErrorCode, own())
	s.replacing(own)
	s.defaults()
}

// replacing is AlterConfigs, which replaces all of a resource's settings.
func (s *side) replacing(own func() string) {
	replace := func(step string, validate bool, set ...string) {
		r := kmsg.NewPtrAlterConfigsRequest()
		r.Version, r.ValidateOnly = 2, validate
		q := kmsg.NewAlterConfigsRequestResource()
		q.ResourceType, q.ResourceName = resourceTopic, "altered"
		for i := 0; i < len(set); i += 2 {
			k := kmsg.AlterConfigsRequestResourceConfig{Name: set[i], Value: &set[i+1]}
			if set[i+1] == "null" {
				k.Value = nil
			}
			q.Configs = append(q.Configs, k)
		}
		r.Resources = append(r.Resources, q)
		resp, _ := ask[*kmsg.AlterConfigsResponse](s, r)
		s.marker()
		s.see(step, "code %d, then%s", resp.Resources[0].ErrorCode, own())
	}
	replace("replace", false, "segment.bytes", "2000000")
	replace("replace, validate only", true, "segment.bytes", "3000000")
	replace("replace by a bad value", false, "segment.bytes", "1")
	replace("replace by null", false, "segment.bytes", "null")
	replace("replace by nothing", false)
}

// defaults changes a default of all brokers at run time, which a topic without a setting of its own then shows.
func (s *side) defaults() {
	set := func(step, node string, c change, then string) {
		resp, _ := ask[*kmsg.IncrementalAlterConfigsResponse](s, incremental(resourceBroker, node, false, c))
		code := resp.Resources[0].ErrorCode
		var text string
		s.until(func() bool { // Kafka applies it a moment later, and the parts of the answer not at one time
			got, _ := s.describeConfigs(4, resourceTopic, "altered", true, "segment.bytes")
			text = fmt.Sprintf("%s, source %d, synonyms", value(got.Configs[0].Value), got.Configs[0].Source)
			for _, y := range got.Configs[0].ConfigSynonyms {
				text += fmt.Sprintf(" %s=%s(%d)", y.Name, value(y.Value), y.Source)
			}
			shown := strings.Contains(text, "="+value(&c.value)+"(")
			return shown == (c.op == opSet) && *got.Configs[0].Value == then
		})
		s.see(step, "code %d, topic has %s", code, text)
	}
	set("default of all brokers", "", change{opSet, "log.segment.bytes", "5000000"}, "5000000")
	set("default of this broker over it", "1", change{opSet, "log.segment.bytes", "4000000"}, "4000000")
	set("default of this broker deleted", "1", change{opDelete, "log.segment.bytes", "4000000"}, "5000000")
	set("default of all brokers deleted", "", change{opDelete, "log.segment.bytes", "5000000"}, "1073741824")
}

// marker changes another topic and waits until that is seen: a broker of Kafka applies changes in their order, but a
// moment after the answer.
func (s *side) marker() {
	if s.marks++; s.marks == 1 {
		s.topic("marker", 1)
	}
	v := fmt.Sprint(1_000_000 + s.marks)
	resp, _ := ask[*kmsg.IncrementalAlterConfigsResponse](s, incremental(resourceTopic, "marker", false,
		change{opSet, "retention.bytes", v}))
	if code := resp.Resources[0].ErrorCode; code != 0 {
		panic(broken{fmt.Errorf("marker: code %d", code)})
	}
	s.until(func() bool {
		got, _ := s.describeConfigs(4, resourceTopic, "marker", false, "retention.bytes")
		return *got.Configs[0].Value == v
	})
}
