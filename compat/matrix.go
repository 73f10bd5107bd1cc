package main

import (
	"path/filepath"
	"strings"

	"sekali/compat/corpus"
	"sekali/compat/record"
)

// client is one library and how its program is started. Every program takes the same arguments:
//
//	produce BOOTSTRAP TOPIC CODEC IN OUT PACE
//	plain BOOTSTRAP TOPIC CODEC IN OUT PACE (not idempotent)
//	consume BOOTSTRAP TOPIC ENDS OUT
type client struct {
	name       string
	command    []string
	env        []string               // besides that of this program
	bootstrap  string                 // what it connects to, if not to what the others do
	idempotent bool                   // its producer has a producer id
	groupsOnly bool                   // its consumer needs a consumer group: franz-go reads in its place
	cannot     corpus.Feature         // records with these are left out of what it writes
	blur       func(r *record.Record) // what the client's reader does to a record; nil: nothing
	note       string                 // what the line has to say of it
	refused    refusals               // how it says that it was not let in

	loops      bool   // it has transactions
	onlyLoops  bool   // its other scenarios are those of another line
	words      bool   // it counts words, and nothing else
	readme     bool   // it is all three programs of the README
	second     bool   // it uses the second generation of the transaction protocol
	shares     bool   // two of it share the work
	endsAtOnce bool   // it commits offsets together with the transaction's end
	dynamic    bool   // it cannot be a static member of a group
	protocol   string // of the group, if not the classic one
}

// clients gives all seven; self is this program, home the folder with java/ and node/.
func clients(self, home string) []client {
	golang := func(name string) []string { return []string{self, "client", name} }
	node := func(name string) []string { return []string{"node", filepath.Join(home, "node", "client.js"), name} }
	java, before4 := javaCommand(home, "lib"), javaCommand(home, "lib3")
	rdkafka := refusals{password: "SASL authentication error", topic: "Topic authorization failed", silent: true}
	return []client{
		{name: "franz-go", refused: refusals{
			password: "SASL_AUTHENTICATION_FAILED", topic: "TOPIC_AUTHORIZATION_FAILED"},
			command: golang("franz-go"), idempotent: true, loops: true, second: true, endsAtOnce: true,
			shares: true},
		{name: "sarama", refused: refusals{
			password: "SASL Authentication failed", topic: "not authorized to access this topic"},
			command: golang("sarama"), idempotent: true, loops: true},
		{name: "kafka-go", refused: refusals{
			password: "SASL Authentication Failed", topic: "Topic Authorization Failed",
			unseen: "Unknown Topic Or Partition"},
			command: golang("kafka-go"), blur: emptyIsNull,
			note: "acks=all, the library has no idempotent producer; it reads empty as null"},
		{name: "librdkafka", refused: rdkafka,
			command: golang("librdkafka"), idempotent: true, loops: true, shares: true},
		{name: "java", refused: refusals{
			password: "SaslAuthenticationException", topic: "TopicAuthorizationException"},
			command: java, idempotent: true, loops: true, second: true, shares: true},
		{name: "java-3.9", command: before4, onlyLoops: true, loops: true},
		{name: "java-consumer", command: java, onlyLoops: true, loops: true, second: true, dynamic: true,
			protocol: "consumer", shares: true},
		{name: "readme", onlyLoops: true, readme: true},
		{name: "kafka-streams", command: java, onlyLoops: true, words: true},
		{name: "kafkajs", refused: refusals{
			password: "KafkaJSSASLAuthenticationError", topic: "Not authorized to access topics"},
			command: node("kafkajs"), idempotent: true, groupsOnly: true, loops: true, dynamic: true,
			cannot: corpus.NullHeader | corpus.MixedHeaders,
			note:   "read by franz-go: the library reads only in a group; it cannot write null or interleaved headers"},
		{name: "confluent-js", refused: refusals{
			password: "authentication failure", topic: rdkafka.topic, silent: true},
			command: node("confluent-js"), idempotent: true, loops: true, cannot: corpus.NullHeader,
			note: "the library cannot write null headers"},
	}
}

// javaCommand starts the Java programs with the kafka-clients of one folder and the other libraries of lib.
func javaCommand(home, folder string) []string {
	path := []string{filepath.Join(home, "java/target/classes")}
	for _, pattern := range []string{folder + "/kafka-clients-*.jar", "lib/*.jar"} {
		jars, _ := filepath.Glob(filepath.Join(home, "java/target", pattern)) // the pattern is well formed
		for _, jar := range jars {
			if folder == "lib" || !strings.HasPrefix(filepath.Base(jar), "kafka-clients-4") {
				path = append(path, jar)
			}
		}
	}
	return []string{"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp",
		strings.Join(path, ":"), "sekali.compat.Main"}
}

func emptyIsNull(r *record.Record) {
	if len(r.Key) == 0 {
		r.Key = nil
	}
	if len(r.Value) == 0 {
		r.Value = nil
	}
	for i, h := range r.Headers {
		if len(h.Value) == 0 {
			r.Headers[i].Value = nil
		}
	}
}

// able are the records that the client can write.
func (c *client) able(items []corpus.Item) []record.Record {
	var out []record.Record
	for _, it := range items {
		if it.Needs&c.cannot == 0 {
			out = append(out, it.Record)
		}
	}
	return out
}

// read is how the client's own reader shows these records, where it cannot show them as they are.
func (c *client) read(records []record.Record) []record.Record {
	if c.blur == nil {
		return records
	}
	out := make([]record.Record, len(records))
	for i, r := range records {
		r.Headers = append([]record.Header(nil), r.Headers...)
		c.blur(&r)
		out[i] = r
	}
	return out
}
