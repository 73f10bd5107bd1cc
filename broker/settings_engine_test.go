package broker

import (
	"errors"
	"testing"
)

// The settings of transactions and groups have Kafka's defaults and arrive where they are used.
func TestEngineSettings(t *testing.T) {
	c := Defaults()
	for name, want := range map[string]string{
		"transaction.max.timeout.ms": "900000", "transactional.id.expiration.ms": "604800000",
		"transaction.state.log.num.partitions": "50", "transaction.state.log.segment.bytes": "104857600",
		"transaction.partition.verification.enable": "true",
		"offsets.topic.num.partitions":              "50", "offsets.topic.segment.bytes": "104857600",
		"offsets.retention.minutes": "10080", "offsets.retention.check.interval.ms": "600000",
		"offset.metadata.max.bytes": "4096", "group.initial.rebalance.delay.ms": "3000",
		"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000", "group.max.size": "2147483647",
		"group.consumer.session.timeout.ms": "45000", "group.consumer.heartbeat.interval.ms": "5000",
		"group.consumer.max.size": "2147483647",
	} {
		if got := c.Get(name); got != want {
			t.Errorf("%s is %s by default, want %s", name, got, want)
		}
	}
	for name, value := range map[string]string{"offsets.retention.minutes": "2",
		"transaction.partition.verification.enable": "false", "group.initial.rebalance.delay.ms": "0",
		"transaction.max.timeout.ms": "1000"} {
		if err := c.Set(name, value); err != nil {
			t.Error(err)
		}
	}
	c.fill()
	if c.Groups.RetainMs != 120_000 || !c.VerifyOff || c.Groups.InitialDelayMs != 0 || c.Txns.TimeoutMaxMs != 1000 {
		t.Errorf("values did not arrive: %+v %+v", c.Txns, c.Groups)
	}
}

// Rules between settings are tested before anything is opened.
func TestSettingsThatContradict(t *testing.T) {
	for name, set := range map[string]func(*Config){
		"group.max.session.timeout.ms":         func(c *Config) { c.Groups.SessionMaxMs = 5999 },
		"group.consumer.heartbeat.interval.ms": func(c *Config) { c.Groups.ConsumerHeartbeatMs = 45000 },
	} {
		c := Defaults()
		set(&c)
		_, err := Open(t.Context(), c)
		if bad, ok := errors.AsType[*SettingError](err); !ok || bad.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
