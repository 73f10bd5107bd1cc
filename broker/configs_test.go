package broker

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topicKind  = kmsg.ConfigResourceTypeTopic
	brokerKind = kmsg.ConfigResourceTypeBroker
	loggerKind = kmsg.ConfigResourceTypeBrokerLogger
)

func describe(c *rawConn, kind kmsg.ConfigResourceType, name string,
	keys ...string) kmsg.DescribeConfigsResponseResource {
	c.t.Helper()
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.IncludeSynonyms, r.IncludeDocumentation = true, true
	r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return ask[*kmsg.DescribeConfigsResponse](c, at(r, 4)).Resources[0]
}

// value is one setting of a described resource as "value/source", "" if it is not there.
func value(r kmsg.DescribeConfigsResponseResource, name string) string {
	for _, c := range r.Configs {
		if c.Name == name {
			return *c.Value + "/" + itoa(int32(c.Source))
		}
	}
	return ""
}

type op = kmsg.IncrementalAlterConfigsRequestResourceConfig

func set(name, value string) op { return op{Name: name, Op: 0, Value: &value} }
func unset(name string) op      { return op{Name: name, Op: 1} }
func add(name, value string) op { return op{Name: name, Op: 2, Value: &value} }
func sub(name, value string) op { return op{Name: name, Op: 3, Value: &value} }

func alter(c *rawConn, validate bool, kind kmsg.ConfigResourceType, name string, ops ...op) (int16, string) {
	c.t.Helper()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.ValidateOnly = validate
	r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: ops}}
	got := ask[*kmsg.IncrementalAlterConfigsResponse](c, at(r, 1)).Resources[0]
	if got.ErrorMessage == nil {
		return got.ErrorCode, ""
	}
	return got.ErrorCode, *got.ErrorMessage
}

func TestDescribeTopicConfigs(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1, "retention.ms", "5000")
	all := describe(c, topicKind, "t")
	if all.ErrorCode != 0 || len(all.Configs) < 20 {
		t.Fatalf("error %d, %d settings", all.ErrorCode, len(all.Configs))
	}
	if !slices.IsSortedFunc(all.Configs, func(a, b describedConfig) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("settings are not sorted")
	}
	for _, cfg := range all.Configs {
		if cfg.Value == nil || cfg.ReadOnly || cfg.IsSensitive || cfg.ConfigType == 0 || cfg.Documentation == nil ||
			*cfg.Documentation == "" || len(cfg.ConfigSynonyms) == 0 || cfg.ConfigSynonyms[0].Source != cfg.Source {
			t.Errorf("%+v", cfg)
		}
	}
	for name, want := range map[string]string{
		"retention.ms": "5000/1", "cleanup.policy": "delete/5", "segment.bytes": "1073741824/5",
		"max.message.bytes": "1048588/5", "message.timestamp.type": "CreateTime/5", "min.insync.replicas": "1/5",
	} {
		if got := value(all, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	i := slices.IndexFunc(all.Configs, func(c describedConfig) bool { return c.Name == "retention.ms" })
	if got := all.Configs[i]; got.ConfigType != kmsg.ConfigTypeLong || len(got.ConfigSynonyms) < 2 ||
		*got.ConfigSynonyms[0].Value != "5000" || !strings.HasPrefix(got.ConfigSynonyms[1].Name, "log.retention.") {
		t.Errorf("retention.ms: %+v", got)
	}
	some := describe(c, topicKind, "t", "segment.bytes", "nope", "retention.ms")
	if len(some.Configs) != 2 || value(some, "segment.bytes") == "" || value(some, "retention.ms") == "" {
		t.Errorf("two by name: %+v", some.Configs)
	}
	for version := int16(1); version <= 4; version++ {
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: topicKind, ResourceName: "t"}}
		got := ask[*kmsg.DescribeConfigsResponse](c, at(r, version)).Resources[0]
		if len(got.Configs) != len(all.Configs) || len(got.Configs[0].ConfigSynonyms) != 0 ||
			got.Configs[0].Documentation != nil {
			t.Errorf("version %d: %d settings, with what was not asked for", version, len(got.Configs))
		}
	}
}

func TestDescribeConfigsRefusals(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	self := itoa(n.nodeID)
	for _, tc := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{
		{topicKind, "nope", 3}, {topicKind, "a/b", 17}, {topicKind, "", 17},
		{brokerKind, self, 0}, {brokerKind, "", 0}, {brokerKind, "77", 42}, {brokerKind, "x", 42},
		{brokerKind, "0" + self, 42}, {brokerKind, "+" + self, 42},
		{loggerKind, self, 0}, {loggerKind, "", 42}, {loggerKind, "77", 42},
		{16, "subscription", 42}, {32, "group", 42}, {0, "x", 42}, {99, "x", 42}, {-1, "x", 42},
	} {
		got := describe(c, tc.kind, tc.name)
		if got.ErrorCode != tc.want || (got.ErrorCode != 0) != (got.ErrorMessage != nil) || got.ResourceName != tc.name ||
			got.ResourceType != tc.kind {
			t.Errorf("type %d, %q: %+v, want error %d", tc.kind, tc.name, got, tc.want)
		}
	}
}

// TestDescribeConfigsOnce: a resource that is named again gets an error, so that an answer stays in proportion.
func TestDescribeConfigsOnce(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1)
	r := kmsg.NewPtrDescribeConfigsRequest()
	for _, res := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{topicKind, "t"}, {brokerKind, itoa(n.nodeID)}, {topicKind, "t"}, {brokerKind, itoa(n.nodeID)}, {topicKind, "t"}} {
		r.Resources = append(r.Resources, kmsg.DescribeConfigsRequestResource{
			ResourceType: res.kind, ResourceName: res.name})
	}
	got := ask[*kmsg.DescribeConfigsResponse](c, at(r, 4)).Resources
	for i, want := range []int16{0, 0, 42, 42, 42} {
		if got[i].ErrorCode != want || (want == 0) != (len(got[i].Configs) > 0) {
			t.Errorf("resource %d: code %d, %d settings, want %d", i, got[i].ErrorCode, len(got[i].Configs), want)
		}
	}
}

func TestDescribeNodeConfigs(t *testing.T) {
	n := startNode(t, func(c *Config) { c.NumPartitions, c.LogLevel = 7, new(slog.LevelVar) })
	c := n.dial()
	self := itoa(n.nodeID)
	got := describe(c, brokerKind, self)
	for name, want := range map[string]string{
		"num.partitions": "7/4", "node.id": self + "/4", "log.dir": "/data/4", "sekali.durability": "fsync/5",
		"log.segment.bytes": "1073741824/5", "log.retention.ms": "604800000/5", "message.max.bytes": "1048588/5",
		"sekali.log.level": "info/5", "max.connections": itoa(connsDefault) + "/5",
	} {
		if v := value(got, name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	for _, cfg := range got.Configs {
		if cfg.ReadOnly == isDynamic(cfg.Name) {
			t.Errorf("%s: read-only %v", cfg.Name, cfg.ReadOnly)
		}
		if *cfg.Documentation == "" || cfg.ConfigType == 0 {
			t.Errorf("%s: %+v", cfg.Name, cfg)
		}
	}
	if all := describe(c, brokerKind, ""); len(all.Configs) != 0 {
		t.Errorf("nothing was changed for all nodes: %+v", all.Configs)
	}
	if logger := describe(c, loggerKind, self); value(logger, "root") != "INFO/6" {
		t.Errorf("logger: %+v", logger)
	}
}

func TestIncrementalAlterTopic(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	c := n.dial()
	c.makeTopic("t", 1)
	for i, tc := range []struct {
		ops  []op
		want int16
		name string
		now  string // value and source afterwards
	}{
		{[]op{set("retention.ms", "5000")}, 0, "retention.ms", "5000/1"},
		{[]op{set("retention.ms", "6000"), set("segment.bytes", "2000000")}, 0, "segment.bytes", "2000000/1"},
		{[]op{set("retention.ms", "x")}, 40, "retention.ms", "6000/1"},
		{[]op{set("retention.ms", "1"), set("nope", "1")}, 40, "retention.ms", "6000/1"}, // all or nothing
		{[]op{set("retention.ms", "1"), unset("retention.ms")}, 42, "retention.ms", "6000/1"},
		{[]op{{Name: "retention.ms", Op: 0}}, 42, "retention.ms", "6000/1"},
		{[]op{{Name: "retention.ms", Op: 7, Value: text("1")}}, 42, "retention.ms", "6000/1"},
		{[]op{{Name: "retention.ms", Op: -1, Value: text("1")}}, 42, "retention.ms", "6000/1"},
		{[]op{add("retention.ms", "5")}, 40, "retention.ms", "6000/1"},
		{[]op{sub("retention.ms", "5")}, 40, "retention.ms", "6000/1"},
		{[]op{unset("retention.ms")}, 0, "retention.ms", "604800000/5"},
		{[]op{unset("retention.ms"), unset("nope")}, 0, "retention.ms", "604800000/5"},
		{[]op{sub("cleanup.policy", "delete")}, 0, "cleanup.policy", "/1"},
		{[]op{add("cleanup.policy", "delete")}, 0, "cleanup.policy", "delete/1"},
		{[]op{add("cleanup.policy", "delete")}, 0, "cleanup.policy", "delete/1"}, // already in it
		{[]op{add("cleanup.policy", "nonsense")}, 40, "cleanup.policy", "delete/1"},
		{[]op{sub("cleanup.policy", "compact")}, 0, "cleanup.policy", "delete/1"}, // not in it
		{[]op{unset("cleanup.policy")}, 0, "cleanup.policy", "delete/5"},
		{nil, 0, "segment.bytes", "2000000/1"},
	} {
		before := describe(c, topicKind, "t")
		if code, _ := alter(c, true, topicKind, "t", tc.ops...); code != tc.want {
			t.Errorf("case %d, only validated: error %d, want %d", i, code, tc.want)
		}
		if after := describe(c, topicKind, "t"); value(after, tc.name) != value(before, tc.name) {
			t.Errorf("case %d: validating changed %s from %s to %s", i, tc.name, value(before, tc.name), value(after, tc.name))
		}
		code, why := alter(c, false, topicKind, "t", tc.ops...)
		if code != tc.want || (code != 0) != (why != "") {
			t.Errorf("case %d: error %d (%s), want %d", i, code, why, tc.want)
		}
		if now := value(describe(c, topicKind, "t"), tc.name); now != tc.now {
			t.Errorf("case %d: %s is %s, want %s", i, tc.name, now, tc.now)
		}
	}
	if bytes := n.store.Catalog().ByName["t"].Config.SegmentBytes; bytes != 2000000 {
		t.Errorf("the log works with segments of %d bytes, want 2000000", bytes)
	}
	fs = fs.Crash(vfs.CrashPlan{Seed: 1})
	n.abandon()
	c = startNodeOn(t, fs).dial()
	if now := value(describe(c, topicKind, "t"), "segment.bytes"); now != "2000000/1" {
		t.Errorf("after a power cut segment.bytes is %s", now)
	}
}

func TestAlterRefusals(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1)
	self := itoa(n.nodeID)
	for _, tc := range []struct {
		kind kmsg.ConfigResourceType
		name string
		op   op
		want int16
	}{
		{topicKind, "nope", set("retention.ms", "1"), 3},
		{topicKind, "a/b", set("retention.ms", "1"), 17},
		{topicKind, "", set("retention.ms", "1"), 17},
		{brokerKind, "77", set("max.connections", "5"), 42},
		{brokerKind, "x", set("max.connections", "5"), 42},
		{brokerKind, self, set("num.partitions", "5"), 42},
		{brokerKind, self, set("nope", "5"), 40},
		{brokerKind, self, set("max.connections", "x"), 40},
		{brokerKind, self, set("max.connections", "0"), 40},
		{brokerKind, self, add("max.connections", "1"), 40},
		{brokerKind, "", set("log.segment.bytes", "1"), 40},
		{brokerKind, "", add("log.segment.bytes", "1"), 40},
		{brokerKind, "", add("log.cleanup.policy", "nonsense"), 40},
		{brokerKind, "", add("nope", "1"), 40},
		{brokerKind, "", set("log.retention.hours", "1"), 40},
		{loggerKind, self, set("nolog", "DEBUG"), 40},
		{loggerKind, self, set("root", "LOUD"), 40},
		{loggerKind, self, unset("root"), 42},
		{loggerKind, self, add("root", "DEBUG"), 42},
		{loggerKind, "77", set("root", "DEBUG"), 42},
		{16, "x", set("interval.ms", "1"), 42}, {32, "g", set("consumer.session.timeout.ms", "1"), 42},
		{99, "x", set("a", "b"), 42}, {0, "x", set("a", "b"), 42},
	} {
		for _, validate := range []bool{true, false} {
			code, why := alter(c, validate, tc.kind, tc.name, tc.op)
			if code != tc.want || why == "" {
				t.Errorf("type %d, %q, %+v, validate %v: error %d (%s), want %d", tc.kind, tc.name, tc.op, validate, code, why,
					tc.want)
			}
		}
	}
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	one := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: topicKind, ResourceName: "t",
		Configs: []op{set("retention.ms", "1")}}
	r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{one, one}
	for _, got := range ask[*kmsg.IncrementalAlterConfigsResponse](c, at(r, 0)).Resources {
		if got.ErrorCode != 42 {
			t.Errorf("one resource twice: error %d, want 42 for each", got.ErrorCode)
		}
	}
}

func TestAlterConfigsReplacesTheSet(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1, "retention.ms", "5000", "segment.bytes", "2000000")
	legacy := func(version int16, validate bool, kind kmsg.ConfigResourceType, name string,
		configs ...kmsg.AlterConfigsRequestResourceConfig) int16 {
		r := kmsg.NewPtrAlterConfigsRequest()
		r.ValidateOnly = validate
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: configs}}
		return ask[*kmsg.AlterConfigsResponse](c, at(r, version)).Resources[0].ErrorCode
	}
	type cfg = kmsg.AlterConfigsRequestResourceConfig
	bytes := cfg{Name: "retention.bytes", Value: text("77")}
	for version := int16(0); version <= 2; version++ {
		for _, tc := range []struct {
			what string
			kind kmsg.ConfigResourceType
			in   []cfg
			want int16
		}{
			{"no value", topicKind, []cfg{{Name: "retention.ms"}}, 42},
			{"twice", topicKind, []cfg{bytes, bytes}, 42},
			{"unknown", topicKind, []cfg{{Name: "nope", Value: text("1")}}, 40},
			{"logger", loggerKind, nil, 42},
		} {
			if code := legacy(version, false, tc.kind, "t", tc.in...); code != tc.want {
				t.Errorf("version %d, %s: error %d, want %d", version, tc.what, code, tc.want)
			}
		}
		if code := legacy(version, true, topicKind, "t", bytes); code != 0 {
			t.Errorf("version %d, only validated: error %d", version, code)
		}
		if got := describe(c, topicKind, "t"); value(got, "retention.ms") != "5000/1" || value(got,
			"retention.bytes") != "-1/5" {
			t.Fatalf("version %d: changed although refused or only validated", version)
		}
	}
	if code := legacy(2, false, topicKind, "t", bytes); code != 0 {
		t.Fatalf("error %d", code)
	}
	got := describe(c, topicKind, "t")
	for name, want := range map[string]string{"retention.bytes": "77/1", "retention.ms": "604800000/5",
		"segment.bytes": "1073741824/5"} {
		if value(got, name) != want {
			t.Errorf("%s is %s, want %s: what is not named falls back", name, value(got, name), want)
		}
	}
}

// Changes made at run time win over what the server was started with, those for the node over those for all, reach
// topics and limits at once, and are there after a restart.
func TestDynamicSettings(t *testing.T) {
	fs := vfs.NewMem()
	level := new(slog.LevelVar)
	opts := func(c *Config) {
		c.LogLevel = level
		if err := c.Set("log.retention.hours", "2"); err != nil {
			t.Fatal(err)
		}
	}
	n := startNodeOn(t, fs, opts)
	c := n.dial()
	self := itoa(n.nodeID)
	c.makeTopic("t", 1)
	c.makeTopic("own", 1, "retention.ms", "77")
	steps := []struct {
		name       string
		op         op
		topic, own string
	}{
		{"", op{}, "7200000/4", "77/1"},
		{"", set("log.retention.ms", "8000000"), "8000000/3", "77/1"},
		{self, set("log.retention.ms", "9000000"), "9000000/2", "77/1"},
		{"", unset("log.retention.ms"), "9000000/2", "77/1"},
		{self, unset("log.retention.ms"), "7200000/4", "77/1"},
		{"", set("log.retention.ms", "8000001"), "8000001/3", "77/1"},
		{"", sub("log.cleanup.policy", "delete"), "8000001/3", "77/1"},
	}
	for i, st := range steps {
		if st.op.Name != "" {
			before := value(describe(c, topicKind, "t"), "retention.ms")
			if code, why := alter(c, true, brokerKind, st.name, st.op); code != 0 {
				t.Fatalf("step %d, validate: %d %s", i, code, why)
			}
			if now := value(describe(c, topicKind, "t"), "retention.ms"); now != before {
				t.Fatalf("step %d: validating changed it to %s", i, now)
			}
			if code, why := alter(c, false, brokerKind, st.name, st.op); code != 0 {
				t.Fatalf("step %d: %d %s", i, code, why)
			}
		}
		if got := value(describe(c, topicKind, "t"), "retention.ms"); got != st.topic {
			t.Errorf("step %d: retention.ms of t is %s, want %s", i, got, st.topic)
		}
		if got := value(describe(c, topicKind, "own"), "retention.ms"); got != st.own {
			t.Errorf("step %d: retention.ms of own is %s, want %s", i, got, st.own)
		}
	}
	if got := value(describe(c, topicKind, "t"), "cleanup.policy"); got != "/3" ||
		n.store.Catalog().ByName["t"].Config.Delete {
		t.Errorf("cleanup.policy of t is %q, want an empty list", got)
	}
	if code, why := alter(c, false, brokerKind, "", add("log.cleanup.policy", "delete")); code != 0 {
		t.Fatalf("%d %s", code, why)
	}
	if got := value(describe(c, topicKind, "t"), "cleanup.policy"); got != "delete/3" {
		t.Errorf("cleanup.policy of t is %q, want delete", got)
	}
	if code, why := alter(c, false, brokerKind, "", unset("log.cleanup.policy")); code != 0 {
		t.Fatalf("%d %s", code, why)
	}
	for _, o := range []op{set("sekali.log.level", "debug"), set("max.connections", "1")} {
		if code, why := alter(c, false, brokerKind, "", o); code != 0 {
			t.Fatalf("%s: %d %s", o.Name, code, why)
		}
	}
	if level.Level() != slog.LevelDebug {
		t.Errorf("log level %v, want debug", level.Level())
	}
	refusedNow := func(n *adminNode) bool {
		_, err := n.dial().try(minimal(18, 0))
		return closed(err)
	}
	if !refusedNow(n) {
		t.Error("a second connection was accepted with max.connections=1")
	}
	if code, why := alter(c, false, brokerKind, "", unset("max.connections")); code != 0 {
		t.Fatalf("%d %s", code, why)
	}
	if refusedNow(n) {
		t.Error("a connection was refused after max.connections was given back")
	}

	fs = fs.Crash(vfs.CrashPlan{Seed: 2})
	n.abandon()
	level.Set(slog.LevelInfo)
	n = startNodeOn(t, fs, opts)
	c = n.dial()
	if got := value(describe(c, topicKind, "t"), "retention.ms"); got != "8000001/3" || level.Level() != slog.LevelDebug {
		t.Errorf("after a power cut: retention.ms %s, log level %v", got, level.Level())
	}
	if ms := n.store.Catalog().ByName["t"].Config.RetainMs; ms != 8000001 {
		t.Errorf("the log keeps data for %d ms, want 8000001", ms)
	}
	if all := describe(c, brokerKind, ""); len(all.Configs) != 2 || value(all, "sekali.log.level") != "debug/3" {
		t.Errorf("changes for all nodes: %+v", all.Configs)
	}
	if code, _ := alter(c, false, brokerKind, "", unset("sekali.log.level")); code != 0 ||
		level.Level() != slog.LevelInfo {
		t.Errorf("the level did not fall back: %v", level.Level())
	}
}

func TestLoggerLevel(t *testing.T) {
	level := new(slog.LevelVar)
	n := startNode(t, func(c *Config) { c.LogLevel = level })
	c := n.dial()
	self := itoa(n.nodeID)
	if code, why := alter(c, true, loggerKind, self, set("root", "DEBUG")); code != 0 || level.Level() != slog.LevelInfo {
		t.Errorf("only validated: error %d %s, level %v", code, why, level.Level())
	}
	for name, want := range map[string]slog.Level{"TRACE": slog.LevelDebug, "WARN": slog.LevelWarn,
		"FATAL": slog.LevelError} {
		if code, why := alter(c, false, loggerKind, self, set("root", name)); code != 0 || level.Level() != want {
			t.Errorf("%s: error %d %s, level %v", name, code, why, level.Level())
		}
	}
}

func TestListConfigResources(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("a", 1)
	c.makeTopic("b", 1)
	self := itoa(n.nodeID)
	for _, tc := range []struct {
		version int16
		types   []int8
		code    int16
		want    string
	}{
		{0, nil, 0, ""},
		{1, nil, 0, "2a 2b 4" + self + " 8" + self},
		{1, []int8{2}, 0, "2a 2b"},
		{1, []int8{2, 4, 2, 2}, 0, "2a 2b 4" + self},
		{1, []int8{4}, 0, "4" + self},
		{1, []int8{8}, 0, "8" + self},
		{1, []int8{16, 32}, 0, ""},
		{1, []int8{2, 99}, 35, ""},
	} {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = tc.types
		resp := ask[*kmsg.ListConfigResourcesResponse](c, at(r, tc.version))
		var got []string
		for _, res := range resp.ConfigResources {
			got = append(got, itoa(int32(res.Type))+res.Name)
		}
		slices.Sort(got)
		if all := strings.Join(got, " "); resp.ErrorCode != tc.code || all != tc.want {
			t.Errorf("version %d, types %v: error %d, %q; want %d, %q", tc.version, tc.types, resp.ErrorCode, all, tc.code,
				tc.want)
		}
	}
}
