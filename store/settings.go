package store

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kafka's numbers of setting types, as DescribeConfigs tells them.
const (
	TypeBool   int8 = 1
	TypeString int8 = 2
	TypeInt    int8 = 3
	TypeLong   int8 = 5
	TypeDouble int8 = 6
	TypeList   int8 = 7
)

// Setting is one topic setting of Apache Kafka 4.4.
type Setting struct {
	Name     string
	Server   string   // server setting that gives its default, by the strongest name; empty: none
	Synonyms []string // all server names of the default, strongest first
	Type     int8
	Default  string // built in, as text
	Doc      string
	Hidden   bool // accepted, not described
}

// rule is a row of the table: the setting, what a value must be, and what it does to a resolved configuration.
type rule struct {
	name, def, doc string
	typ            int8
	server         []server
	min, max       int64
	valid          func(v string) string // what is wrong with a value; empty: nothing
	apply          func(c *TopicConfig, v value)
	hidden         bool
}

// server is a server setting that gives the default of a topic setting. Its values are multiplied by unit.
type server struct {
	name string
	unit int64
}

// value is a parsed value: one of the fields, by the type of the rule.
type value struct {
	text string // canonical
	n    int64
	f    float64
	b    bool
	list []string
}

func byName(names ...string) (out []server) {
	for _, n := range names {
		out = append(out, server{n, 1})
	}
	return out
}

func oneOf(names ...string) func(string) string {
	return func(v string) string {
		if slices.Contains(names, v) {
			return ""
		}
		return "the value must be one of " + strings.Join(names, ", ")
	}
}

const (
	hourMs = 60 * 60 * 1000
	dayMs  = 24 * hourMs
)

// table is the one place that knows topic settings: parsing, checks, defaults, description and effect. Names, types,
// defaults and bounds are those of Kafka 4.4 (its LogConfig class); "no effect" is said where it is true.
var table = []rule{
	{name: "cleanup.policy", typ: TypeList, def: "delete", server: byName("log.cleanup.policy"),
		valid: oneOf("compact", "delete"),
		doc: "What happens to old data: 'delete' drops segments by retention.ms and retention.bytes; with 'compact' " +
			"every record must have a key, and of each key the newest record stays; with an empty list everything is kept.",
		apply: func(c *TopicConfig, v value) {
			c.Delete, c.Compact = slices.Contains(v.list, "delete"), slices.Contains(v.list, "compact")
		}},
	{name: "compression.gzip.level", typ: TypeInt, def: "-1", server: byName("compression.gzip.level"),
		min: -1, max: 9, valid: func(v string) string {
			if v == "0" {
				return "the value must be -1 or between 1 and 9"
			}
			return ""
		}, doc: "No effect: batches are stored as the producer compressed them."},
	{name: "compression.lz4.level", typ: TypeInt, def: "9", server: byName("compression.lz4.level"),
		min: 1, max: 17, doc: "No effect: batches are stored as the producer compressed them."},
	{name: "compression.type", typ: TypeString, def: "producer", server: byName("compression.type"),
		valid: onlyProducer,
		doc:   "Only 'producer' is supported: batches are stored byte for byte as they were sent."},
	{name: "compression.zstd.level", typ: TypeInt, def: "3", server: byName("compression.zstd.level"),
		min: -131072, max: 22, doc: "No effect: batches are stored as the producer compressed them."},
	{name: "delete.retention.ms", typ: TypeLong, def: strconv.Itoa(dayMs),
		server: byName("log.cleaner.delete.retention.ms"), max: math.MaxInt64,
		doc:   "How long compaction keeps tombstones and transaction markers, in milliseconds.",
		apply: func(c *TopicConfig, v value) { c.DeleteHorizonMs = v.n }},
	{name: "errors.deadletterqueue.group.enable", typ: TypeBool, def: "false",
		doc: "No effect: there are no share groups."},
	{name: "file.delete.delay.ms", typ: TypeLong, def: "60000", server: byName("log.segment.delete.delay.ms"),
		max: math.MaxInt64,
		doc: "No effect: a segment that was taken out is unlinked as soon as no reader uses it."},
	{name: "flush.messages", typ: TypeLong, def: strconv.Itoa(math.MaxInt64),
		server: byName("log.flush.interval.messages"), min: 1, max: math.MaxInt64,
		doc: "No effect: with durability fsync every acknowledged batch is flushed, with durability written all are " +
			"flushed at least once a second."},
	{name: "flush.ms", typ: TypeLong, def: strconv.Itoa(math.MaxInt64),
		server: byName("log.flush.interval.ms", "log.flush.scheduler.interval.ms"), max: math.MaxInt64,
		doc: "No effect: with durability fsync every acknowledged batch is flushed, with durability written all are " +
			"flushed at least once a second."},
	{name: "follower.replication.throttled.replicas", typ: TypeList, valid: throttled,
		doc: "No effect on one node: there are no followers."},
	{name: "index.interval.bytes", typ: TypeInt, def: "4096", server: byName("log.index.interval.bytes"),
		max: math.MaxInt32, doc: "How many bytes of a segment lie between two entries of its index.",
		apply: func(c *TopicConfig, v value) { c.IndexInterval = int(v.n) }},
	{name: "internal.segment.bytes", typ: TypeInt, min: 1, max: math.MaxInt32, hidden: true,
		doc:   "Overrides segment.bytes without its lower bound; for tests.",
		apply: func(c *TopicConfig, v value) { c.segmentOverride = v.n }},
	{name: "leader.replication.throttled.replicas", typ: TypeList, valid: throttled,
		doc: "No effect on one node: there are no followers."},
	{name: "local.retention.bytes", typ: TypeLong, def: "-2", server: byName("log.local.retention.bytes"),
		min: -2, max: math.MaxInt64, doc: "No effect: there is no tiered storage."},
	{name: "local.retention.ms", typ: TypeLong, def: "-2", server: byName("log.local.retention.ms"),
		min: -2, max: math.MaxInt64, doc: "No effect: there is no tiered storage."},
	{name: "max.compaction.lag.ms", typ: TypeLong, def: strconv.Itoa(math.MaxInt64),
		server: byName("log.cleaner.max.compaction.lag.ms"), min: 1, max: math.MaxInt64,
		doc:   "The longest time a record may stay out of reach of compaction, in milliseconds.",
		apply: func(c *TopicConfig, v value) { c.CompactLagMaxMs = v.n }},
	{name: "max.decompressed.message.bytes", typ: TypeInt, def: "67108864",
		server: byName("max.decompressed.message.bytes"), min: 1, max: 2147483639,
		doc: "The largest size of a batch after decompression, in bytes. Kafka's default is 2147483639: a batch of a few " +
			"hundred KiB can then take seconds of processor time.",
		apply: func(c *TopicConfig, v value) { c.DecompressedBytesMax = int32(v.n) }},
	{name: "max.message.bytes", typ: TypeInt, def: "1048588", server: byName("message.max.bytes"),
		max: math.MaxInt32, doc: "The largest size of a batch as it is sent, in bytes.",
		apply: func(c *TopicConfig, v value) { c.BatchBytesMax = int(v.n) }},
	{name: "message.timestamp.after.max.ms", typ: TypeLong, def: "3600000",
		server: byName("log.message.timestamp.after.max.ms"), max: math.MaxInt64,
		doc:   "How far, in milliseconds, a record's timestamp may lie after the time of the broker.",
		apply: func(c *TopicConfig, v value) { c.TimeAfterMaxMs = v.n }},
	{name: "message.timestamp.before.max.ms", typ: TypeLong, def: strconv.Itoa(math.MaxInt64),
		server: byName("log.message.timestamp.before.max.ms"), max: math.MaxInt64,
		doc:   "How far, in milliseconds, a record's timestamp may lie before the time of the broker.",
		apply: func(c *TopicConfig, v value) { c.TimeBeforeMaxMs = v.n }},
	{name: "message.timestamp.type", typ: TypeString, def: "CreateTime",
		server: byName("log.message.timestamp.type"), valid: oneOf("CreateTime", "LogAppendTime"),
		doc:   "Whose time records bear: 'CreateTime' that of the producer, 'LogAppendTime' that of the broker.",
		apply: func(c *TopicConfig, v value) { c.AppendTime = v.text == "LogAppendTime" }},
	{name: "min.cleanable.dirty.ratio", typ: TypeDouble, def: "0.5",
		server: byName("log.cleaner.min.cleanable.ratio"), max: 1,
		doc:   "The share of a log that must be dirty before compaction cleans it.",
		apply: func(c *TopicConfig, v value) { c.CleanRatio = v.f }},
	{name: "min.compaction.lag.ms", typ: TypeLong, def: "0",
		server: byName("log.cleaner.min.compaction.lag.ms"), max: math.MaxInt64,
		doc:   "How long a record stays out of reach of compaction at least, in milliseconds.",
		apply: func(c *TopicConfig, v value) { c.CompactLagMinMs = v.n }},
	{name: "min.insync.replicas", typ: TypeInt, def: "1", server: byName("min.insync.replicas"),
		min: 1, max: math.MaxInt32,
		doc: "How many replicas must have a batch before acks=all is answered. There is one: above 1 every such " +
			"write is refused with NOT_ENOUGH_REPLICAS.",
		apply: func(c *TopicConfig, v value) { c.MinISR = int32(v.n) }},
	{name: "preallocate", typ: TypeBool, def: "false", server: byName("log.preallocate"),
		doc: "No effect: blocks are always reserved ahead of the writes, in steps."},
	{name: "remote.copy.lag.bytes", typ: TypeLong, def: "-1", server: byName("log.remote.copy.lag.bytes"),
		min: -1, max: math.MaxInt64, doc: "No effect: there is no tiered storage."},
	{name: "remote.copy.lag.ms", typ: TypeLong, def: "0", server: byName("log.remote.copy.lag.ms"),
		min: -1, max: math.MaxInt64, doc: "No effect: there is no tiered storage."},
	{name: "remote.log.copy.disable", typ: TypeBool, def: "false", doc: "No effect: there is no tiered storage."},
	{name: "remote.log.delete.on.disable", typ: TypeBool, def: "false",
		doc: "No effect: there is no tiered storage."},
	{name: "remote.storage.enable", typ: TypeBool, def: "false", valid: func(v string) string {
		if v == "true" {
			return "there is no tiered storage"
		}
		return ""
	}, doc: "Cannot be switched on: there is no tiered storage."},
	{name: "retention.bytes", typ: TypeLong, def: "-1", server: byName("log.retention.bytes"),
		min: math.MinInt64, max: math.MaxInt64,
		doc:   "The size of a partition above which its oldest segments are deleted, in bytes; negative: no limit.",
		apply: func(c *TopicConfig, v value) { c.RetainBytes = v.n }},
	{name: "retention.ms", typ: TypeLong, def: strconv.Itoa(7 * dayMs), server: []server{
		{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", hourMs}},
		min: -1, max: math.MaxInt64,
		doc:   "How long a segment is kept after its newest record, in milliseconds; -1: for ever.",
		apply: func(c *TopicConfig, v value) { c.RetainMs = v.n }},
	{name: "segment.bytes", typ: TypeInt, def: "1073741824", server: byName("log.segment.bytes"),
		min: 1 << 20, max: math.MaxInt32, doc: "The size at which a new segment is begun, in bytes.",
		apply: func(c *TopicConfig, v value) { c.SegmentBytes = v.n }},
	{name: "segment.index.bytes", typ: TypeInt, def: "10485760", server: byName("log.index.size.max.bytes"),
		min: 4, max: math.MaxInt32, doc: "The size of an index at which a new segment is begun, in bytes.",
		apply: func(c *TopicConfig, v value) { c.IndexBytesMax = int(v.n) }},
	{name: "segment.jitter.ms", typ: TypeLong, def: "0", server: []server{
		{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", hourMs}}, max: math.MaxInt64,
		doc:   "The most by which segment.ms is shortened, by a different amount for each partition, in milliseconds.",
		apply: func(c *TopicConfig, v value) { c.jitterMs = v.n }},
	{name: "segment.ms", typ: TypeLong, def: strconv.Itoa(7 * dayMs), server: []server{
		{"log.roll.ms", 1}, {"log.roll.hours", hourMs}}, min: 1, max: math.MaxInt64,
		doc:   "The age of a segment's first record at which a new segment is begun, in milliseconds.",
		apply: func(c *TopicConfig, v value) { c.SegmentMs = v.n }},
	{name: "unclean.leader.election.enable", typ: TypeBool, def: "false",
		server: byName("unclean.leader.election.enable"), doc: "No effect on one node: there is no election."},
}

// onlyProducer refuses to promise a compression that would not be done: batches are stored as they came (I3).
func onlyProducer(v string) string {
	if wrong := oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")(v); wrong != "" || v == "producer" {
		return wrong
	}
	return "batches are stored as the producer compressed them, only 'producer' is supported"
}

// throttled tests "*" or a list of partition:broker pairs.
func throttled(v string) string {
	if v == "*" {
		return ""
	}
	p, b, ok := strings.Cut(v, ":")
	if _, err := strconv.ParseUint(p, 10, 31); err != nil || !ok {
		return "the value must be '*' or a list of partition:broker"
	}
	if _, err := strconv.ParseUint(b, 10, 31); err != nil {
		return "the value must be '*' or a list of partition:broker"
	}
	return ""
}

// rules finds a row by the name of the topic setting.
var rules = func() map[string]*rule {
	m := make(map[string]*rule, len(table))
	for i := range table {
		m[table[i].name] = &table[i]
	}
	return m
}()

// serverRules finds the row and the unit of a server setting.
var serverRules = func() map[string]struct {
	r    *rule
	unit int64
} {
	m := map[string]struct {
		r    *rule
		unit int64
	}{}
	for i := range table {
		for _, s := range table[i].server {
			m[s.name] = struct {
				r    *rule
				unit int64
			}{&table[i], s.unit}
		}
	}
	return m
}()

// parse checks a value by type, bounds and the rule's own test. The error is an *InvalidConfigError under name.
func (r *rule) parse(name, text string) (v value, err error) {
	text = strings.TrimSpace(text)
	bad := func(format string, args ...any) (value, error) {
		return value{}, &InvalidConfigError{Name: name, Reason: fmt.Sprintf("%q: ", text) + fmt.Sprintf(format, args...)}
	}
	v.text = text
	switch r.typ {
	case TypeBool:
		v.text = strings.ToLower(text)
		if v.text != "true" && v.text != "false" {
			return bad("the value must be true or false")
		}
		v.b = v.text == "true"
	case TypeInt, TypeLong:
		v.n, err = strconv.ParseInt(text, 10, 64)
		if err != nil {
			return bad("the value must be a whole number")
		}
		v.text = strconv.FormatInt(v.n, 10)
		if v.n < r.min || v.n > r.max {
			return bad("the value must lie between %d and %d", r.min, r.max)
		}
	case TypeDouble:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f || f < float64(r.min) || f > float64(r.max) {
			return bad("the value must be a number between %d and %d", r.min, r.max)
		}
		v.f = f
	case TypeList:
		return r.parseList(name, text)
	}
	if r.valid != nil {
		if wrong := r.valid(v.text); wrong != "" {
			return bad("%s", wrong)
		}
	}
	return v, nil
}

func (r *rule) parseList(name, text string) (v value, err error) {
	for _, e := range strings.Split(text, ",") {
		if e = strings.TrimSpace(e); e == "" && text == "" || slices.Contains(v.list, e) {
			continue
		}
		if wrong := r.valid(e); wrong != "" {
			return value{}, &InvalidConfigError{Name: name, Reason: fmt.Sprintf("%q: %s", text, wrong)}
		}
		v.list = append(v.list, e)
	}
	v.text = strings.Join(v.list, ",")
	return v, nil
}

// Settings lists every topic setting, sorted by name.
func Settings() []Setting {
	out := make([]Setting, 0, len(table))
	for _, r := range table {
		s := Setting{Name: r.name, Type: r.typ, Default: r.def, Doc: r.doc, Hidden: r.hidden}
		for _, x := range r.server {
			s.Synonyms = append(s.Synonyms, x.name)
		}
		if len(s.Synonyms) > 0 {
			s.Server = s.Synonyms[0]
		}
		out = append(out, s)
	}
	return out
}

// IsServerSetting reports whether a server setting gives the default of a topic setting.
func IsServerSetting(name string) bool {
	_, ok := serverRules[name]
	return ok
}
