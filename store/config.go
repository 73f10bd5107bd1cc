package store

import (
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"

	"sekali/plog"
)

// TopicConfig keeps what was set apart from what holds. It is immutable once made, and made by ParseTopic and
// ParseServer alone; the zero value stands for the built-in defaults where defaults are asked for.
type TopicConfig struct {
	Set map[string]string // as the administrator wrote it; in defaults: by the names of server settings
	plog.Config
	MinISR               int32   // min.insync.replicas; above 1 acks=all is refused (19)
	TimeBeforeMaxMs      int64   // message.timestamp.before.max.ms
	TimeAfterMaxMs       int64   // message.timestamp.after.max.ms
	DecompressedBytesMax int32   // max.decompressed.message.bytes
	CleanRatio           float64 // min.cleanable.dirty.ratio

	base            map[string]string // effective defaults by topic setting, shared by all topics
	segmentOverride int64             // internal.segment.bytes, 0: not set
	jitterMs        int64
}

// builtin is the configuration of a topic and a server that set nothing.
var builtin = func() TopicConfig {
	base := make(map[string]string, len(table))
	for i := range table {
		base[table[i].name] = table[i].def
	}
	return resolve(base)
}()

// resolve makes defaults of values that have been checked.
func resolve(base map[string]string) TopicConfig {
	c := TopicConfig{base: base}
	for i := range table {
		r := &table[i]
		if r.apply == nil || base[r.name] == "" && r.typ != TypeList {
			continue
		}
		if v, err := r.parse(r.name, base[r.name]); err == nil {
			r.apply(&c, v)
		}
	}
	return c
}

// ParseTopic resolves what is set for a topic over the defaults. The error is an *InvalidConfigError.
func ParseTopic(set map[string]string, defaults TopicConfig) (TopicConfig, error) {
	if defaults.base == nil {
		defaults = builtin
	}
	c := defaults
	c.Set = maps.Clone(set)
	if c.Set == nil {
		c.Set = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		r, ok := rules[name]
		if !ok {
			return TopicConfig{}, &InvalidConfigError{Name: name, Reason: "there is no such topic setting"}
		}
		v, err := r.parse(name, set[name])
		if err != nil {
			return TopicConfig{}, err
		}
		if r.apply != nil {
			r.apply(&c, v)
		}
	}
	return c, c.consistent()
}

// consistent tests rules between settings.
func (c *TopicConfig) consistent() error {
	if c.CompactLagMinMs > c.CompactLagMaxMs {
		return &InvalidConfigError{Name: "min.compaction.lag.ms", Reason: strconv.FormatInt(c.CompactLagMinMs, 10) +
			" is more than max.compaction.lag.ms, " + strconv.FormatInt(c.CompactLagMaxMs, 10)}
	}
	return nil
}

// ParseServer makes defaults of server settings (log.retention.hours and its like); names that are no defaults of
// topic settings are passed over. The error is an *InvalidConfigError under the name of the server setting.
func ParseServer(props map[string]string) (TopicConfig, error) {
	base := maps.Clone(builtin.base)
	set := map[string]string{}
	for i := range table {
		r := &table[i]
		for _, s := range slices.Backward(r.server) { // the strongest name comes last and stays
			text, ok := props[s.name]
			if !ok {
				continue
			}
			v, err := s.parse(r, text)
			if err != nil {
				return TopicConfig{}, err
			}
			set[s.name], base[r.name] = text, v.text
		}
	}
	c := resolve(base)
	c.Set = set
	return c, c.consistent()
}

// parse reads a server setting in its own unit and gives the value of the topic setting.
func (s server) parse(r *rule, text string) (value, error) {
	if s.unit == 1 {
		return r.parse(s.name, text)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return value{}, &InvalidConfigError{Name: s.name, Reason: strconv.Quote(text) + ": the value must be a whole number"}
	}
	if n < 0 && r.min == -1 {
		return r.parse(s.name, "-1")
	}
	if n > math.MaxInt64/s.unit {
		n = math.MaxInt64 / s.unit
	}
	return r.parse(s.name, strconv.FormatInt(n*s.unit, 10))
}

// Value is the effective value of a topic setting as text, "" if there is no such setting.
func (c TopicConfig) Value(name string) string {
	if _, topic := rules[name]; topic {
		if v, ok := c.Set[name]; ok {
			return v
		}
	}
	if c.base == nil {
		return builtin.base[name]
	}
	return c.base[name]
}

// forLog is what the log of one partition gets: segment.ms less a jitter that is the partition's own.
func (c *TopicConfig) forLog(tp TP) plog.Config {
	p := c.Config
	if c.segmentOverride > 0 {
		p.SegmentBytes = c.segmentOverride
	}
	if p.Compact {
		p.SegmentMs = min(p.SegmentMs, p.CompactLagMaxMs) // what is not in a full segment is out of compaction's reach
	}
	if c.jitterMs > 0 {
		share := float64(crc32.ChecksumIEEE([]byte(tp.String()))) / (1 << 32)
		p.SegmentMs = max(p.SegmentMs-int64(share*float64(min(c.jitterMs, p.SegmentMs))), 1)
	}
	return p
}
