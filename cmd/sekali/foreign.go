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
	case base == "authorizer.class.name" && set:
		return "there is no access control in this version; leave it out to serve without"
	case strings.HasPrefix(base, "sasl.") && set:
		return "there is no login (SASL) in this version; leave it out to serve without"
	case strings.HasPrefix(base, "ssl.") && set:
		return "there is no TLS in this version; leave it out to serve without"
	case name == "listener.security.protocol.map":
		return plaintextOnly(value)
	case name == "process.roles" && set && !strings.Contains(value, "broker"):
		return "this is a broker; there is no node that is a controller alone"
	}
	return ""
}

// plaintextOnly refuses a map that gives a listener another protocol than PLAINTEXT.
func plaintextOnly(value string) string {
	for part := range strings.SplitSeq(value, ",") {
		name, protocol, ok := strings.Cut(strings.TrimSpace(part), ":")
		if ok && !strings.EqualFold(protocol, "PLAINTEXT") && !strings.EqualFold(name, "CONTROLLER") &&
			!strings.EqualFold(name, protocol) {
			return "listener " + name + " asks for " + protocol + "; this version serves PLAINTEXT only"
		}
	}
	return ""
}
