package main

import (
	_ "embed"
	"strings"
	"sync"
)

// kafkaSettings names the broker settings of Apache Kafka 4.4, a line each.
//
//go:embed kafka-settings.txt
var kafkaSettings string

var kafkaNames = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(kafkaSettings) {
		all[name] = true
	}
	return all
})

// kafkaKnows reports whether Kafka has a broker setting of that name; settings of one listener bear its name in front.
func kafkaKnows(name string) bool {
	if rest, ok := strings.CutPrefix(name, "listener.name."); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	return kafkaNames()[name]
}

// unsafeToIgnore says why a setting must not be passed over with a warning: whoever sets it relies on something that
// this version does not do. Empty: it may.
func unsafeToIgnore(name, value string) string {
	set := strings.TrimSpace(value) != ""
	base := name
	if rest, ok := strings.CutPrefix(name, "listener.name."); ok {
		_, base, _ = strings.Cut(rest, ".")
	}
	switch {
	case isSetting(name) || safelyIdle[base]:
	case strings.HasSuffix(base, "sasl.jaas.config") && set:
		return "users are not kept in the configuration; make them with: sekali user set NAME"
	case strings.HasPrefix(base, "ssl.") && strings.Contains(base, "store.") && set, base == "ssl.key.password" && set:
		return "key and certificates are read from a PEM file without password; set ssl.keystore.location and " +
			"ssl.truststore.location"
	case strings.HasPrefix(base, "sasl.") && set, strings.HasPrefix(base, "ssl.") && set,
		base == "principal.builder.class" && set:
		return "this version does not do that; leave it out to serve without"
	case name == "process.roles" && set && !strings.Contains(value, "broker"):
		return "this is a broker; there is no node that is a controller alone"
	}
	return ""
}

// safelyIdle are settings about how nodes talk to one another, which one node does not.
var safelyIdle = map[string]bool{
	"sasl.mechanism.inter.broker.protocol": true, "sasl.mechanism.controller.protocol": true,
	"ssl.endpoint.identification.algorithm": true,
}
