package broker

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSettingsTable(t *testing.T) {
	all := Settings()
	if !slices.IsSortedFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not sorted")
	}
	for i, s := range all {
		if i > 0 && all[i-1].Name == s.Name {
			t.Errorf("%s is there twice", s.Name)
		}
		if s.Doc == "" || !strings.HasSuffix(s.Doc, ".") || s.Type == kmsg.ConfigTypeUnknown {
			t.Errorf("%s: type %d, %q", s.Name, s.Type, s.Doc)
		}
		if store.IsServerSetting(s.Name) {
			t.Errorf("%s is also the default of a topic setting", s.Name)
		}
	}
}

// Each setting takes a value, gives it back in full, and takes back what it gives.
func TestSettingsRoundTrip(t *testing.T) {
	values := map[string]string{
		"advertised.listeners":      "PLAINTEXT://kafka.example:9092",
		"listeners":                 "PLAINTEXT://127.0.0.1:1,OTHER://127.0.0.1:2",
		"auto.create.topics.enable": "true", "delete.topic.enable": "false", "log.dir": "/data",
		"sekali.admin": "127.0.0.1:9644", "sekali.durability": "written", "sekali.flush": "syncfs",
		"sekali.log.level": "warn", "sekali.unsafe.fs": "true", "queued.max.request.bytes": "4194304",
		"fetch.max.bytes":                "4096",
		"allow.everyone.if.no.acl.found": "true", "authorizer.class.name": "acl", "super.users": "User:a;User:CN=b,O=c",
		"listener.security.protocol.map": "OTHER:SASL_SSL,PLAINTEXT:PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN",
		"sasl.server.max.receive.size": "2048", "ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.3",
		"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM",
		"ssl.principal.mapping.rules":    "RULE:^CN=(.*)$/$1/L,DEFAULT",
		"sekali.request.other.max.bytes": "65536", "socket.request.max.bytes": "65536",
		"transaction.partition.verification.enable": "false", "transaction.state.log.segment.bytes": "2000000",
		"offsets.topic.segment.bytes": "3000000",
		"log.cleaner.enable":          "false", "log.cleaner.dedupe.buffer.size": "2000000",
		"log.cleaner.io.max.bytes.per.second": "70000", "log.segment.bytes": "5000000", "log.retention.ms": "1234567",
	}
	c := Config{Listeners: []Listener{{Name: "PLAINTEXT", Addr: "127.0.0.1:9092"}}}
	names := []string{"log.segment.bytes", "log.retention.ms"}
	for _, s := range Settings() {
		names = append(names, s.Name)
	}
	slices.Sort(names) // advertised.listeners comes before listeners, which keeps what was advertised
	for _, name := range names {
		v, ok := values[name]
		if !ok {
			v = "11"
		}
		if err := c.Set(name, v); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, name := range names {
		want, ok := values[name]
		if !ok {
			want = "11"
		}
		if got := c.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	again := Config{}
	for _, name := range slices.Backward(names) { // listeners before those advertised
		if err := again.Set(name, c.Get(name)); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, name := range names {
		if a, b := c.Get(name), again.Get(name); a != b {
			t.Errorf("%s: %q became %q", name, a, b)
		}
	}
	if c.Store.Topic.SegmentBytes != 5000000 || !c.Store.Written || !c.KeepTopics ||
		c.LogLevel.Level() != slog.LevelWarn {
		t.Errorf("values did not arrive: %+v", c)
	}
	if got := c.Get("no.such.setting"); got != "" {
		t.Errorf("an unknown setting is %q", got)
	}
}

// What holds without any setting can be written down and read back.
func TestDefaultsRoundTrip(t *testing.T) {
	c := Defaults()
	c.Listeners = []Listener{{Name: "PLAINTEXT", Addr: "127.0.0.1:9092"}}
	again := Config{Listeners: c.Listeners}
	for _, s := range Settings() {
		if err := again.Set(s.Name, c.Get(s.Name)); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, s := range Settings() {
		if a, b := c.Get(s.Name), again.Get(s.Name); a != b {
			t.Errorf("%s: %q became %q", s.Name, a, b)
		}
	}
}

func TestSettingsRefuse(t *testing.T) {
	for _, bad := range [][2]string{
		{"nope", "1"}, {"", ""}, {"node.id", "x"}, {"node.id", "-1"}, {"node.id", "2147483648"}, {"node.id", ""},
		{"num.partitions", "0"}, {"num.partitions", "10001"}, {"max.connections", "1.5"},
		{"connections.max.idle.ms", "0"}, {"connections.max.idle.ms", "9223372036854775807"},
		{"auto.create.topics.enable", "yes"}, {"delete.topic.enable", "1"},
		{"sekali.durability", "maybe"}, {"sekali.flush", ""}, {"sekali.log.level", "loud"},
		{"listeners", "127.0.0.1:9092"}, {"listeners", "A://"}, {"listeners", "A://h:1,A://h:2"},
		{"advertised.listeners", "NOBODY://h:1"}, {"log.segment.bytes", "x"}, {"log.segment.bytes", "-5"},
	} {
		c := Config{Listeners: []Listener{{Name: "A"}}}
		if err := c.Set("log.retention.ms", "5"); err != nil {
			t.Fatal(err)
		}
		err := c.Set(bad[0], bad[1])
		var se *SettingError
		if !errors.As(err, &se) || se.Name != bad[0] || se.Value != bad[1] || se.Reason == "" {
			t.Errorf("%s=%q: %v, want a *SettingError that names both", bad[0], bad[1], err)
		}
		if c.Get("log.retention.ms") != "5" || c.Store.Topic.RetainMs != 5 {
			t.Errorf("%s=%q changed another setting", bad[0], bad[1])
		}
	}
}

// A stored setting that this version cannot take is left out and told; the node starts and the others hold.
func TestStoredSettingsThatCannotBe(t *testing.T) {
	n := startNode(t)
	put := func(map[string]string) (map[string]string, error) {
		return map[string]string{"num.partitions": "3", "gone.setting": "1", "log.retention.ms": "x",
			"max.connections": "9"}, nil
	}
	if err := n.store.UpdateBroker("", put); err != nil {
		t.Fatal(err)
	}
	fs := n.fs
	n.stop()
	var lines logLines
	n = startNodeOn(t, fs, func(c *Config) { c.Log = lines.logger() })
	if got := n.settings.conf().ConnsMax; got != 9 {
		t.Errorf("max.connections is %d, want 9", got)
	}
	for _, name := range []string{"num.partitions", "gone.setting", "log.retention.ms"} {
		if said := lines.with("setting", name); len(said) != 1 {
			t.Errorf("%s: log lines %v, want one", name, said)
		}
	}
}
