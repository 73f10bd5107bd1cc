package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
		err        string
	}{
		{"forms", "a=1\nb: 2\nc 3\n  d =  4 \n# x=1\n! y=1\n\n",
			map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, ""},
		{"continued", "list=a,\\\n   b,\\\n   c\nnext=1\n", map[string]string{"list": "a,b,c", "next": "1"}, ""},
		{"escaped", `path=C\:\\data` + "\n" + `k\=ey=v` + "\n", map[string]string{"path": `C:\data`, "k=ey": "v"}, ""},
		{"empty value", "a=\nb\n", map[string]string{"a": "", "b": ""}, ""},
		{"value with separators", "listeners=PLAINTEXT://h:1,B://h:2\n",
			map[string]string{"listeners": "PLAINTEXT://h:1,B://h:2"}, ""},
		{"twice", "a=1\na=2\n", nil, "line 2: a is set twice"},
		{"no name", "=1\n", nil, "line 1: no name"},
		{"open end", "a=1\\\n", nil, "line 1: the last line ends with a backslash"},
	} {
		got, err := parseProperties(strings.NewReader(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestPrecedence: defaults < file < environment < --set < named flags.
func TestPrecedence(t *testing.T) {
	layers := []layer{
		{"f.properties", map[string]string{
			"num.partitions": "2", "sekali.durability": "fsync", "log.segment.bytes": "1048576",
		}},
		{"environment", map[string]string{"num.partitions": "3", "log.retention.ms": "5000"}},
		{"--set", map[string]string{"num.partitions": "4", "log.retention.hours": "2"}},
		{"flag", map[string]string{"sekali.durability": "written"}},
	}
	want := []map[string]string{
		{"num.partitions": "1", "sekali.durability": "fsync"},
		{"num.partitions": "2", "sekali.durability": "fsync"},
		{"num.partitions": "3", "sekali.durability": "fsync"},
		{"num.partitions": "4", "sekali.durability": "fsync"},
		{"num.partitions": "4", "sekali.durability": "written"},
	}
	for n := range want {
		c, err := resolveConfig(layers[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range want[n] {
			if got := c.Get(name); got != value {
				t.Errorf("with %d layers %s is %s, want %s", n, name, got, value)
			}
		}
	}
	c, err := resolveConfig(layers...)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Store.Topic.SegmentBytes; got != 1<<20 {
		t.Errorf("log.segment.bytes of the file did not reach the topics: %d", got)
	}
	if got := c.Store.Topic.RetainMs; got != 2*3600*1000 {
		t.Errorf("retention is %d ms: log.retention.hours of --set must win over log.retention.ms of the environment", got)
	}
	if c.from["num.partitions"] != "--set" || c.from["log.segment.bytes"] != "f.properties" {
		t.Errorf("sources: %v", c.from)
	}
}

func TestUnknownAndForeignSettings(t *testing.T) {
	set := func(name, value string) error {
		_, err := resolveConfig(layer{"--set", map[string]string{name: value}})
		return err
	}
	err := set("log.segment.byte", "1")
	if err == nil || !strings.Contains(err.Error(), "did you mean log.segment.bytes") {
		t.Errorf("a mistyped setting: %v", err)
	}
	if err = set("log.segment.bytes", "many"); err == nil || !strings.Contains(err.Error(), "--set") {
		t.Errorf("a malformed value must name its source: %v", err)
	}
	for name, value := range map[string]string{
		"authorizer.class.name": "org.example.A", "sasl.enabled.mechanisms": "GSSAPI", "ssl.keystore.type": "JKS",
		"ssl.keystore.password": "p", "listener.security.protocol.map": "A:TLS", "ssl.cipher.suites": "X",
		"listener.name.a.ssl.client.auth": "perhaps", "listener.name.a.sasl.jaas.config": "x",
		"listener.name.a.plain.sasl.jaas.config": "x", "process.roles": "controller",
	} {
		if err := set(name, value); err == nil {
			t.Errorf("%s=%s asks for what is not there and must not be passed over", name, value)
		}
	}
	c, err := resolveConfig(layer{"f", map[string]string{
		"zookeeper.connect": "x", "num.io.threads": "8",
	}})
	if err == nil {
		t.Errorf("zookeeper.connect is no setting of Kafka 4: %v", c.warnings)
	}
	c, err = resolveConfig(layer{"f", map[string]string{"num.network.threads": "3", "num.io.threads": "8"}})
	if err != nil || len(c.warnings) != 1 || !strings.HasSuffix(c.warnings[0], "num.io.threads, num.network.threads") {
		t.Errorf("settings without meaning: %v %v", c, err)
	}
}

func TestEnvironment(t *testing.T) {
	l, unknown := envLayer([]string{
		"SEKALI_LOG_SEGMENT_BYTES=4096", "SEKALI_DURABILITY=written", "PATH=/bin", "SEKALI_PORT_9092_TCP=tcp://10.0.0.1:9092",
	})
	want := map[string]string{"log.segment.bytes": "4096", "sekali.durability": "written"}
	if !maps.Equal(l.values, want) {
		t.Errorf("environment gave %v, want %v", l.values, want)
	}
	if len(unknown) != 1 || unknown[0] != "SEKALI_PORT_9092_TCP" {
		t.Errorf("unknown variables: %v", unknown)
	}
}

// TestPrintedConfigRoundTrips: what --print-config writes is a file that means the same.
func TestPrintedConfigRoundTrips(t *testing.T) {
	set := map[string]string{
		"log.dir": t.TempDir(), "listeners": "PLAINTEXT://0.0.0.0:9192,IN://127.0.0.1:9193",
		"advertised.listeners": "PLAINTEXT://broker.example:9192", "log.retention.minutes": "7", "num.partitions": "6",
		"sekali.durability": "written",
	}
	c, err := resolveConfig(layer{"--set", set})
	if err != nil {
		t.Fatal(err)
	}
	var first bytes.Buffer
	if err := printConfig(&first, c, false); err != nil {
		t.Fatal(err)
	}
	props, err := parseProperties(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	again, err := resolveConfig(layer{"file", props})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"log.retention.ms"}, knownSettings()...) {
		if a, b := c.Get(name), again.Get(name); a != b && props[name] != b {
			t.Errorf("%s: %q became %q", name, a, b)
		}
	}
	if again.Store.Topic.RetainMs != 7*60*1000 || again.Listeners[0].Advertise != "broker.example:9192" {
		t.Errorf("retention %d, listeners %v", again.Store.Topic.RetainMs, again.Listeners)
	}
}
