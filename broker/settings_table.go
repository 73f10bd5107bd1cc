package broker

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Setting describes one server-wide setting: Kafka's name where Kafka has one, own names begin with "sekali.". Dynamic
// ones may be changed while the server runs (DescribeConfigs, AlterConfigs). It is a value and safe to copy.
type Setting struct {
	Name    string
	Type    kmsg.ConfigType
	Doc     string
	Dynamic bool

	get func(*Config) string
	set func(*Config, string) error
}

// Settings lists every server-wide setting that is not a default of the topic settings (store.Settings lists those),
// sorted by name. The slice is the caller's.
func Settings() []Setting { return slices.Clone(serverSettings) }

// Get returns the value of a setting as text, "" if there is no such setting; topic defaults are known by their
// server-wide names too.
func (c *Config) Get(name string) string {
	if s, ok := settingNamed(name); ok {
		return s.get(c)
	}
	return c.Store.Topic.Set[name]
}

// Set parses value and stores it in the configuration; the server itself is not told. The error is a *SettingError that
// names the setting: it is unknown, or the value is malformed or out of range. Topic defaults are known by their
// server-wide names too.
func (c *Config) Set(name, value string) error {
	s, ok := settingNamed(name)
	if ok {
		if err := s.set(c, value); err != nil {
			return &SettingError{Name: name, Value: value, Reason: err.Error()}
		}
		return nil
	}
	if !store.IsServerSetting(name) {
		return &SettingError{Name: name, Value: value, Reason: "unknown setting"}
	}
	props := map[string]string{name: value}
	for k, v := range c.Store.Topic.Set {
		if k != name {
			props[k] = v
		}
	}
	topic, err := store.ParseServer(props)
	if err != nil {
		return &SettingError{Name: name, Value: value, Reason: err.Error()}
	}
	c.Store.Topic = topic
	return nil
}

// SettingError says why a value cannot be taken for a setting.
type SettingError struct{ Name, Value, Reason string }

// Error names setting, value and reason.
func (e *SettingError) Error() string {
	return "broker: setting " + e.Name + "=" + e.Value + ": " + e.Reason
}

func settingNamed(name string) (Setting, bool) {
	if strings.HasPrefix(name, listenerPrefix) {
		return listenersOwn(name)
	}
	i, ok := slices.BinarySearchFunc(serverSettings, name, func(s Setting, n string) int {
		return strings.Compare(s.Name,
			n)
	})
	if !ok {
		return Setting{}, false
	}
	return serverSettings[i], true
}

// serverSettings is the one table of server-wide settings, sorted by name.
var serverSettings = sorted(append(append(engineSettings(), securitySettings()...), []Setting{
	{Name: "advertised.listeners", Type: kmsg.ConfigTypeList,
		Doc: "Addresses told to clients, by listener; a listener without one is told as the address a client came in on.",
		get: getAdvertised, set: setAdvertised},
	boolean("auto.create.topics.enable", "Create a topic when a client that allows it asks for its metadata.",
		func(c *Config) *bool { return &c.AutoCreate }),
	millis("connections.max.idle.ms", "A connection that does nothing for this long is closed.",
		func(c *Config) *time.Duration { return &c.IdleMax }),
	{Name: "delete.topic.enable", Type: kmsg.ConfigTypeBoolean, Doc: "Topics may be deleted by clients.",
		get: func(c *Config) string { return strconv.FormatBool(!c.KeepTopics) },
		set: func(c *Config, v string) error {
			on, err := parseBool(v)
			c.KeepTopics = err == nil && !on
			return err
		}},
	integer("fetch.max.bytes", "The most bytes of batches in one Fetch answer; the first batch may be larger.",
		1024, math.MaxInt32, func(c *Config) *int32 { return &c.FetchBytesMax }),
	{Name: "listeners", Type: kmsg.ConfigTypeList, Doc: "Addresses to serve, as NAME://HOST:PORT.",
		get: getListeners, set: setListeners},
	millis("log.cleaner.backoff.ms", "How long compaction waits where no log is dirty enough.",
		func(c *Config) *time.Duration { return &c.Store.Clean.Every }),
	integer("log.cleaner.dedupe.buffer.size", "Bytes of memory for keys while a log is compacted.",
		1<<20, math.MaxInt64, func(c *Config) *int64 { return &c.Store.Clean.Bytes }),
	{Name: "log.cleaner.enable", Type: kmsg.ConfigTypeBoolean, Doc: "Compact topics with cleanup.policy=compact.",
		get: func(c *Config) string { return strconv.FormatBool(!c.Store.Clean.Off) },
		set: func(c *Config, v string) error {
			on, err := parseBool(v)
			c.Store.Clean.Off = err == nil && !on
			return err
		}},
	integer("log.cleaner.io.max.bytes.per.second", "Bytes a second that compaction reads and writes.",
		1<<16, math.MaxInt64, func(c *Config) *int64 { return &c.Store.Clean.Rate }),
	{Name: "log.dir", Type: kmsg.ConfigTypeString, Doc: "The data directory.",
		get: func(c *Config) string { return c.Store.Dir },
		set: func(c *Config, v string) error { c.Store.Dir = v; return nil }},
	dynamic(integer("max.connections", "Connections open at one time; beyond it new ones are closed at once.",
		1, math.MaxInt32, func(c *Config) *int { return &c.ConnsMax })),
	dynamic(integer("max.connections.per.ip", "Connections open at one time from one address.",
		0, math.MaxInt32, func(c *Config) *int { return &c.ConnsMaxPerIP })),
	integer("node.id", "The number of this node.", 0, math.MaxInt32, func(c *Config) *int32 { return &c.NodeID }),
	integer("num.partitions", "Partitions of a topic whose creator does not say how many.",
		1, partitionsPerRequestMax, func(c *Config) *int32 { return &c.NumPartitions }),
	integer("num.recovery.threads.per.data.dir", "Logs opened and recovered at the same time.",
		1, 1024, func(c *Config) *int { return &c.Store.RecoveryThreads }),
	millis("producer.id.expiration.ms",
		"A producer idle for this long is forgotten, unless a transaction of it is open.",
		func(c *Config) *time.Duration { return &c.Store.ProducerExpire }),
	integer("queued.max.request.bytes", "Bytes of requests held at one time; beyond it reading pauses.",
		1<<20, math.MaxInt64, func(c *Config) *int64 { return &c.InFlightBytesMax }),
	{Name: "sekali.admin", Type: kmsg.ConfigTypeString, Doc: "Address of metrics, health and profiles; empty: none.",
		get: func(c *Config) string { return c.Admin },
		set: func(c *Config, v string) error { c.Admin = v; return nil }},
	{Name: "sekali.durability", Type: kmsg.ConfigTypeString,
		Doc: "fsync: a write is acknowledged and shown when it is on the device; written: when it is in the page cache.",
		get: func(c *Config) string { return choice(c.Store.Written, "written", "fsync") },
		set: func(c *Config, v string) (err error) {
			c.Store.Written, err = parseChoice(v, "written", "fsync")
			return err
		}},
	integer("sekali.fetch.max.wait.ms", "The longest a Fetch waits for data, whatever it asks for.",
		0, math.MaxInt32, func(c *Config) *int32 { return &c.FetchWaitMaxMs }),
	{Name: "sekali.flush", Type: kmsg.ConfigTypeString,
		Doc: "fdatasync: flush file by file; syncfs: flush the whole file system, for a disk of its own.",
		get: func(c *Config) string { return choice(c.Store.SyncFS, "syncfs", "fdatasync") },
		set: func(c *Config, v string) (err error) {
			c.Store.SyncFS, err = parseChoice(v, "syncfs", "fdatasync")
			return err
		}},
	{Name: "sekali.log.level", Type: kmsg.ConfigTypeString, Dynamic: true,
		Doc: "The least severe log lines written: debug, info, warn or error.",
		get: getLevel, set: setLevel},
	integer("sekali.metrics.partitions.max",
		"Partitions above which watermarks are not shown as metrics; negative: always shown.",
		-1, math.MaxInt32, func(c *Config) *int { return &c.WatermarksMax }),
	integer("sekali.pipeline.max", "Requests of one connection read ahead of their answers.",
		1, 1<<16, func(c *Config) *int { return &c.PipelineMax }),
	integer("sekali.producer.id.block", "Producer ids reserved at a time.",
		1, 1<<32, func(c *Config) *int64 { return &c.PIDBlock }),
	integer("sekali.producers.max", "Producers remembered by a partition; beyond it the longest idle one is forgotten.",
		1, 1<<24-1, func(c *Config) *int { return &c.Store.ProducersMax }),
	integer("sekali.request.other.max.bytes", "The largest request that is not a Produce.",
		1<<10, 1<<30, func(c *Config) *int { return &c.Limits.Other }),
	integer("sekali.syncers", "Workers that flush logs to the device.",
		1, 1024, func(c *Config) *int { return &c.Store.Syncers }),
	boolean("sekali.unsafe.fs", "Serve a data directory on a network or user-space file system.",
		func(c *Config) *bool { return &c.Store.UnsafeFS }),
	millis("sekali.write.timeout.ms", "A client that takes no byte of an answer for this long loses its connection.",
		func(c *Config) *time.Duration { return &c.WriteTimeout }),
	integer("socket.request.max.bytes", "The largest Produce request.",
		1<<10, 1<<30, func(c *Config) *int { return &c.Limits.Produce }),
}...))

func sorted(s []Setting) []Setting {
	slices.SortFunc(s, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func dynamic(s Setting) Setting {
	s.Dynamic = true
	return s
}

// integer makes a setting of a whole number between least and most, both allowed.
func integer[T int | int32 | int64](name, doc string, least, most int64, at func(*Config) *T) Setting {
	kind := kmsg.ConfigTypeInt
	if most > math.MaxInt32 {
		kind = kmsg.ConfigTypeLong
	}
	return Setting{Name: name, Type: kind, Doc: doc,
		get: func(c *Config) string { return strconv.FormatInt(int64(*at(c)), 10) },
		set: func(c *Config, v string) error {
			n, err := parseBetween(v, least, most)
			if err == nil {
				*at(c) = T(n)
			}
			return err
		}}
}

func boolean(name, doc string, at func(*Config) *bool) Setting {
	return Setting{Name: name, Type: kmsg.ConfigTypeBoolean, Doc: doc,
		get: func(c *Config) string { return strconv.FormatBool(*at(c)) },
		set: func(c *Config, v string) error {
			on, err := parseBool(v)
			if err == nil {
				*at(c) = on
			}
			return err
		}}
}

// millis makes a setting of a positive duration told in milliseconds.
func millis(name, doc string, at func(*Config) *time.Duration) Setting {
	return Setting{Name: name, Type: kmsg.ConfigTypeLong, Doc: doc,
		get: func(c *Config) string { return strconv.FormatInt(at(c).Milliseconds(), 10) },
		set: func(c *Config, v string) error {
			n, err := parseBetween(v, 1, int64(math.MaxInt64/time.Millisecond))
			if err == nil {
				*at(c) = time.Duration(n) * time.Millisecond
			}
			return err
		}}
}

func parseBetween(v string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a whole number")
	}
	if n < least || n > most {
		return 0, fmt.Errorf("not between %d and %d", least, most)
	}
	return n, nil
}

func parseBool(v string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("not true or false")
}

func choice(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func parseChoice(v, yes, no string) (bool, error) {
	switch v = strings.TrimSpace(v); v {
	case yes, no:
		return v == yes, nil
	}
	return false, fmt.Errorf("not %s or %s", yes, no)
}

func getLevel(c *Config) string {
	if c.LogLevel == nil {
		return levelName(slog.LevelInfo)
	}
	return levelName(c.LogLevel.Level())
}

// setLevel makes a LevelVar of its own, so that a Config that is only being tried changes nothing.
func setLevel(c *Config, v string) error {
	level, ok := parseLevel(v)
	if !ok {
		return fmt.Errorf("not debug, info, warn or error")
	}
	c.LogLevel = new(slog.LevelVar)
	c.LogLevel.Set(level)
	return nil
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// parseLevel takes the names of slog and those of Kafka's loggers.
func parseLevel(v string) (slog.Level, bool) {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "trace", "debug":
		return slog.LevelDebug, true
	case "info":
		return slog.LevelInfo, true
	case "warn":
		return slog.LevelWarn, true
	case "error", "fatal":
		return slog.LevelError, true
	}
	return 0, false
}

func getListeners(c *Config) string {
	var all []string
	for _, l := range c.Listeners {
		all = append(all, listenerName(l.Name)+"://"+l.Addr)
	}
	return strings.Join(all, ",")
}

func getAdvertised(c *Config) string {
	var all []string
	for _, l := range c.Listeners {
		if l.Advertise != "" {
			all = append(all, listenerName(l.Name)+"://"+l.Advertise)
		}
	}
	return strings.Join(all, ",")
}

func listenerName(name string) string { return choice(name == "", "PLAINTEXT", name) }

func setListeners(c *Config, v string) error {
	addrs, err := parseListeners(v)
	if err != nil {
		return err
	}
	advertise := map[string]string{}
	for _, l := range c.Listeners {
		advertise[listenerName(l.Name)] = l.Advertise
	}
	c.Listeners = nil
	for _, a := range addrs {
		c.Listeners = append(c.Listeners, Listener{Name: a.name, Addr: a.addr, Advertise: advertise[a.name]})
	}
	return nil
}

func setAdvertised(c *Config, v string) error {
	var addrs []listenerAddr
	if strings.TrimSpace(v) != "" {
		var err error
		if addrs, err = parseListeners(v); err != nil {
			return err
		}
	}
	for i := range c.Listeners {
		c.Listeners[i].Advertise = ""
	}
	for _, a := range addrs {
		i := slices.IndexFunc(c.Listeners, func(l Listener) bool { return listenerName(l.Name) == a.name })
		if i < 0 {
			return fmt.Errorf("no listener is named %s", a.name)
		}
		c.Listeners[i].Advertise = a.addr
	}
	return nil
}

type listenerAddr struct{ name, addr string }

// parseListeners reads NAME://HOST:PORT,... with each name once.
func parseListeners(v string) ([]listenerAddr, error) {
	var all []listenerAddr
	for part := range strings.SplitSeq(v, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(part), "://")
		if !ok || name == "" || addr == "" {
			return nil, fmt.Errorf("%q is not NAME://HOST:PORT", part)
		}
		if slices.ContainsFunc(all, func(a listenerAddr) bool { return a.name == name }) {
			return nil, fmt.Errorf("listener %s is named twice", name)
		}
		all = append(all, listenerAddr{name, addr})
	}
	return all, nil
}
