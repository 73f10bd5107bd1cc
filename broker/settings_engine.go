package broker

import (
	"math"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const minuteMs = 60 * 1000

// engineSettings are the rows of serverSettings about transactions and groups. Names, defaults and bounds are those of
// Kafka 4.4.
func engineSettings() []Setting {
	return []Setting{
		integer("transaction.max.timeout.ms", "The longest transaction.timeout.ms a producer may ask for.",
			1, math.MaxInt32, func(c *Config) *int64 { return &c.Txns.TimeoutMaxMs }),
		integer("transactional.id.expiration.ms",
			"A transactional id unused for this long is forgotten, unless a transaction of it is open.",
			1, math.MaxInt32, func(c *Config) *int64 { return &c.Txns.IDExpireMs }),
		integer("transaction.state.log.num.partitions",
			"Partitions of __transaction_state when it is made; later changes have no effect.",
			1, partitionsPerRequestMax, func(c *Config) *int32 { return &c.TxnPartitions }),
		integer("transaction.state.log.segment.bytes", "Size of its segments, when it is made.",
			1<<20, math.MaxInt32, func(c *Config) *int64 { return &c.TxnSegmentBytes }),
		{Name: "transaction.partition.verification.enable", Type: kmsg.ConfigTypeBoolean,
			Doc: "The first write of a transaction into a partition asks the coordinator whether it is open.",
			get: func(c *Config) string { return strconv.FormatBool(!c.VerifyOff) },
			set: func(c *Config, v string) error {
				on, err := parseBool(v)
				c.VerifyOff = err == nil && !on
				return err
			}},
		integer("offsets.topic.num.partitions",
			"Partitions of __consumer_offsets when it is made; later changes have no effect.",
			1, partitionsPerRequestMax, func(c *Config) *int32 { return &c.OffsetsPartitions }),
		integer("offsets.topic.segment.bytes", "Size of its segments, when it is made.",
			1<<20, math.MaxInt32, func(c *Config) *int64 { return &c.OffsetsSegmentBytes }),
		{Name: "offsets.retention.minutes", Type: kmsg.ConfigTypeInt,
			Doc: "Offsets of a group without members, or of a topic it no longer reads, are kept for this long.",
			get: func(c *Config) string { return strconv.FormatInt(c.Groups.RetainMs/minuteMs, 10) },
			set: func(c *Config, v string) error {
				n, err := parseBetween(v, 1, math.MaxInt32)
				if err == nil {
					c.Groups.RetainMs = n * minuteMs
				}
				return err
			}},
		integer("offsets.retention.check.interval.ms", "How often offsets to be forgotten are looked for.",
			1, math.MaxInt32, func(c *Config) *int64 { return &c.Groups.RetainCheckMs }),
		integer("offset.metadata.max.bytes", "The longest metadata of a committed offset.",
			1, math.MaxInt32, func(c *Config) *int { return &c.Groups.MetadataMax }),
		integer("group.initial.rebalance.delay.ms", "How long the first rebalance of an empty group waits for more members.",
			0, math.MaxInt32, func(c *Config) *int32 { return &c.Groups.InitialDelayMs }),
		integer("group.min.session.timeout.ms", "The shortest session.timeout.ms a member may ask for.",
			1, math.MaxInt32, func(c *Config) *int32 { return &c.Groups.SessionMinMs }),
		integer("group.max.session.timeout.ms", "The longest session.timeout.ms a member may ask for.",
			1, math.MaxInt32, func(c *Config) *int32 { return &c.Groups.SessionMaxMs }),
		integer("group.max.size", "Members a group of the classic protocol may have.",
			1, math.MaxInt32, func(c *Config) *int { return &c.Groups.SizeMax }),
		integer("group.consumer.session.timeout.ms",
			"A member of the consumer protocol silent for this long is removed.",
			1, math.MaxInt32, func(c *Config) *int32 { return &c.Groups.ConsumerSessionMs }),
		integer("group.consumer.heartbeat.interval.ms", "How often members of the consumer protocol are told to heartbeat.",
			1, math.MaxInt32, func(c *Config) *int32 { return &c.Groups.ConsumerHeartbeatMs }),
		integer("group.consumer.max.size", "Members a group of the consumer protocol may have.",
			1, math.MaxInt32, func(c *Config) *int { return &c.Groups.ConsumerSizeMax }),
	}
}

// validate tests rules between settings, as Kafka does at its start. The error is a *SettingError.
func (c *Config) validate() error {
	bad := func(name, reason string) error {
		return &SettingError{Name: name, Value: c.Get(name), Reason: reason}
	}
	switch g := &c.Groups; {
	case g.SessionMaxMs < g.SessionMinMs:
		return bad("group.max.session.timeout.ms", "below group.min.session.timeout.ms")
	case g.ConsumerHeartbeatMs >= g.ConsumerSessionMs:
		return bad("group.consumer.heartbeat.interval.ms", "not below group.consumer.session.timeout.ms")
	}
	return nil
}
