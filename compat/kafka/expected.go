package main

import (
	"fmt"
	"strings"
)

// expectation is a difference that is meant: which steps show it, what each broker answers there, and why. '*' in the
// texts stands for anything. count is the number of steps that show it; more or fewer fail the run.
type expectation struct {
	script string
	steps  []string // one of these patterns
	kafka  string
	sekali string
	count  int
	reason string
}

// The reasons that several expectations share.
const (
	whyPermanent = "Kafka answers -1 (unknown server error) for bytes that can never be right. Some clients retry -1 for " +
		"ever; 87 (invalid record) tells them that the batch itself is at fault."
	whyStart = "The log start is told with every refusal for what is in a batch. Kafka leaves it out where the request " +
		"parser finds the fault before the log does. Clients look at it with 45 and 59 only."
	whyBlame = "The record at fault is named where one is (KIP-467). Kafka names records for faults of keys, timestamps " +
		"and offsets only."
	whyMalformed = "The records are walked to the end whatever the codec, and lengths, counts and offset deltas have to " +
		"be exact. Kafka stores these bytes as they are; a consumer that reads them stops at this offset for good, or " +
		"sees offsets twice."
	whyReencode = "A batch whose offset deltas do not count up from 0 would have to be written anew, and stored batches " +
		"are the bytes that were sent."
	whySecond = "One batch and nothing else for a partition (KIP-98). Kafka drops a part of a second one silently."
	whyHeader = "Bits and ids that no client may set are refused before they are stored: they would reach consumers, or " +
		"the producer state, with a meaning the producer did not intend."
	whyDuplicate = "On a topic with CreateTime a duplicate is answered like its original, with -1: the response field " +
		"is the append time of LogAppendTime topics. Clients that get a time there take it for the record's."
	whyCovered = "Proven duplicates that lie behind the five remembered batches, or have other borders, are said to be " +
		"duplicates: 0 with the true offset where the original batch is found, else 46. On 45 modern clients raise their " +
		"epoch and send the same records again, so that they are stored twice; librdkafka gives up."
	whyEmpty = "An empty log has lost nothing, so a producer that begins above 0 has lost its first batches on the way; " +
		"they come first. Kafka takes any first number from a producer it does not know."
	whyTwice  = "Every element of the request is executed and answered in its order. Kafka's hash tables drop repetitions."
	whyCodecs = "A stream that only some readers can read is refused: wrong content checksums, and bytes behind the end " +
		"mark of an LZ4 frame."
	whyShare  = "Share groups and streams groups are not served."
	whyNode   = "A request between nodes or controllers; there is one node."
	whySecure = "There are no delegation tokens."
	whyBomb   = "A batch may not unfold without bound in memory: 64 MiB unless the topic says otherwise."
	whySyn    = "Synonyms of a setting are those server settings that can give its value, with their values."
)

// expectations is the list of every difference in codes and bytes. docs/protocol.md has the same list.
func expectations() []expectation {
	var all []expectation
	all = append(all, produceExpectations()...)
	all = append(all, producerExpectations()...)
	all = append(all, readExpectations()...)
	all = append(all, adminExpectations()...)
	all = append(all, transactionExpectations()...)
	all = append(all, groupExpectations()...)
	return append(all, servedExpectations()...)
}

func produceExpectations() []expectation {
	const ok, stored, nothing = "code 0, base 0, time -1, start 0", "1 batches, *", "0 batches, end 0: "
	bits := []string{"delete horizon bit", "producer -2", "producer with epoch -1", "append time bit"}
	return []expectation{
		{"headers", []string{"no records: empty", "ten bytes", "thirty bytes of a batch", "batch without its last byte",
			"magic 0", "magic 1"}, "code 87, base -1, time -1, start -1", "code 87, base -1, time -1, start 0", 6, whyStart},
		{"versions", []string{"version * zstd"}, "code 76, base -1, time -1, start -1", "code 76, base -1, time -1, start 0",
			2, whyStart},
		{"headers", []string{"two batches"}, "code 87, base -1, time -1, start -1", "code 87, *, start 0, records 0", 1,
			whyStart + " " + whyBlame},
		{"headers", []string{"one batch and *"}, ok, "code 87, *", 2, whySecond},
		{"headers", []string{"one batch and *: stored"}, stored, nothing, 2, whySecond},
		{"headers", []string{"length 49"}, "code 2, *", "code 87, *", 1,
			"The length says that the batch ends before its records do, so bytes are left behind it. " + whySecond},
		{"headers", []string{"length 2147483647", "codec 5", "codec 6", "codec 7"}, "code -1, *", "code 87, *", 4,
			whyPermanent},
		{"headers", bits, ok, "code *", 4, whyHeader},
		{"headers", stored2(bits), stored, nothing, 4, whyHeader},
		{"requests", []string{"transactional bit without a producer"}, ok, "code 87, *", 1, whyHeader},
		{"requests", []string{"stored in 1"}, "1 batches, *", nothing, 1, whyHeader},
		{"requests", []string{"damaged transactional batch*"}, "code 53, *", "code 2, *", 1,
			"What the header of a damaged batch says is not believed: its checksum is wrong, so nobody knows whether it was " +
				"transactional."},
		{"requests", []string{"a partition twice"}, "code 0, base 2, *", "requests0 code 0, base 2, *; requests0 code 0, base 3, *",
			1, whyTwice},
		{"requests", []string{"stored in 0"}, "3 batches, *", "4 batches, *", 1, whyTwice},
		{"requests", []string{"records null: connection"}, "stays open", "answers", 1,
			"Kafka never answers a Produce request whose records are null; here it is 87."},
		{"limits", []string{"min.insync.replicas 2, acks all"}, "code 0, *", "code 19, *", 1,
			"Who asks for two in-sync replicas is told that there is one. Kafka takes the number of replicas of the topic " +
				"where it is smaller."},
		{"limits", []string{"min.insync.replicas 2, acks 1"}, "code 0, base 1, *", "code 0, base 0, *", 1,
			"The batch before it was refused by the row above."},
		{"append-time", []string{"append time bit"}, "code 32, *, records 0", "code 32, *", 1,
			"The bit is a fault of the batch, not of a record."},
		{"append-time", []string{"offset deltas 0, 0"}, "code 0, *", "code 87, *", 1, whyReencode},
		{"append-time", []string{"offset deltas 0, 0, gzip"}, "code -1, *", "code 87, *", 1, whyPermanent},
		{"append-time", []string{"stored"}, "8 batches, *", "7 batches, *", 1, whyReencode},
		{"records", []string{"*"}, "code 87, base -1, time -1, start 0", "code 87, base -1, time -1, start 0, records *", 20, whyBlame},
		{"records", []string{"*, gzip"}, ok, "code 87, *", 3, whyMalformed},
		{"records", []string{"*, gzip: stored"}, stored, nothing, 3, whyMalformed},
		{"records", []string{"offset deltas *"}, ok, "code 87, *", 4, whyReencode},
		{"records", []string{"offset deltas *: stored"}, stored, nothing, 4, whyReencode},
		{"records", []string{"offset deltas *, gzip", "length of 6 bytes"}, "code -1, *", "code 87, *", 5, whyPermanent},
		{"codecs", []string{"*"}, "code -1, *", "code 87, *", 9, whyPermanent},
		{"codecs", []string{"lz4 with *"}, ok, "code 87, *", 2, whyCodecs},
		{"codecs", []string{"lz4 with *: stored"}, stored, nothing, 2, whyCodecs},
	}
}

// stored2 is the steps that read back what these steps stored.
func stored2(steps []string) (out []string) {
	for _, s := range steps {
		out = append(out, s+": stored")
	}
	return out
}

func producerExpectations() []expectation {
	const dup, plain = "code 0, base *, time 1760000000000, start *", "code 0, base *, time -1, start *"
	return []expectation{
		{"producers", []string{"*"}, dup, plain, 16, whyDuplicate},
		{"pipelined", []string{"round 2, *"}, dup, plain, 5, whyDuplicate},
		{"delete-records", []string{"so does a duplicate", "duplicate of what was deleted"}, dup, plain, 2, whyDuplicate},
		{"producers", []string{"older than five batches: *"}, "code 45, base -1, *", "code 0, base *", 2, whyCovered},
		{"producers", []string{"covered with other borders: *", "next: *"}, "code 45, *", "code 46, base -1, time -1, start 0", 4,
			whyCovered},
		{"producers", []string{"unknown producer from 7, empty log: 1. *", "unknown producer from 7, empty log: 3. *"},
			"code 0, base 0, *", "code 45, *", 2, whyEmpty},
		{"producers", []string{"unknown producer from 7, empty log: 2. *"}, "code 45, *", "code 0, base 0, *", 1, whyEmpty},
		{"producers", []string{"unknown producer from 7, empty log: stored"}, "1 batches, *", "1 batches, *", 1, whyEmpty},
	}
}

func readExpectations() []expectation {
	return []expectation{
		{"list-offsets", []string{"a partition twice"}, "code 42, *", "code 42, *; code 42, *", 1, whyTwice},
		{"list-offsets", []string{"all deleted, timestamp -3"}, "code 0, offset 16, *", "code 0, offset -1, time -1, epoch -1", 1,
			"Kafka tells a place below the log start; what was deleted has no largest timestamp."},
		{"fetch-places", []string{"list of aborted transactions with an error"}, "0", "null", 1,
			"Both mean none; an error has no list."},
		{"fetch-places", []string{"as a follower"}, "*code 6, *", "*code 29, *", 1,
			"Replication is not served, and no client may ask for it; Kafka finds that the asker is no replica."},
		{"fetch-places", []string{"isolation 2"}, "code -1, *", "code 0, *", 1,
			"Levels other than 0 and 1 do not exist; Kafka fails on them."},
		{"fetch-places", []string{"a partition twice"}, "*places 0: *", "*places 0: *places 0: *", 1, whyTwice},
		{"fetch-sizes", []string{"two and a half batches a partition"}, "*a torn batch*", "*[0..0 1..1 *", 1,
			"Batches are sent whole. Kafka cuts the last one at the byte limit, and clients throw that part away."},
		{"fetch-sizes", []string{"negative", "negative a partition"}, "*code -1, *", "*code 0, *", 2,
			"A negative limit is taken as 0; Kafka fails on it."},
		{"fetch-sizes", []string{"an error ends the wait: waited"}, "true", "false", 1,
			"An error is told at once. Kafka lets the client wait for the other partitions where the partition is unknown."},
		{"topic-made-again", []string{"after its deletion"}, "*code 3, *", "*code 100, *", 1,
			"A session that knows the topic by id is answered by id."},
	}
}

func adminExpectations() []expectation {
	const made, refused = "*: code 0, 1 partitions, *", "*: code *, -1 partitions, *"
	return []expectation{
		{"internal-topics", []string{"create *"}, made, "*: code 42, *", 2,
			"The coordinators make their topics themselves, with the settings they need."},
		{"create-topics", []string{"setting compression.type=gzip"}, made, refused, 1,
			"Batches are stored as they were sent; a codec that the broker would have to apply is refused, not ignored."},
		{"create-topics", []string{"validate only, good"}, "*, id true", "*, id false", 1,
			"A topic that was not made has no id."},
		{"create-topics", []string{"told max.decompressed.message.bytes"}, "\"2147483639\", *", "\"67108864\", *", 1, whyBomb},
		{"describe-configs", []string{"topic max.decompressed.message.bytes"}, "\"2147483639\", *", "\"67108864\", *", 1,
			whyBomb},
		{"create-topics", []string{"told min.insync.replicas"}, "\"1\", source 3, *", "\"1\", source 5, *", 1,
			"Kafka stores this default when the feature eligible.leader.replicas.version is on; one node has no such feature."},
		{"delete-topics", []string{"name and id of one topic"}, "\"deleted-3\": code 42, *",
			"\"deleted-3\": code 42, *; \"deleted-3\": code 42, *", 1, whyTwice},
		{"describe-configs", []string{"topic *"}, "*, synonyms", "*, synonyms *", 9, whySyn},
		{"describe-configs", []string{"topic min.insync.replicas"}, "\"1\", type 3, source 3, *", "\"1\", type 3, source 5, *", 1,
			"Kafka stores this default when the feature eligible.leader.replicas.version is on; one node has no such feature."},
		{"describe-configs", []string{"topic retention.ms"}, "*, synonyms retention.ms=\"5000\"(1)",
			"*, synonyms retention.ms=\"5000\"(1) log.retention.ms=\"604800000\"(5)", 1, whySyn},
		{"describe-configs", []string{"version *"}, "*, 1 synonyms, *", "*, 2 synonyms, *", 4, whySyn},
		{"describe-configs", []string{"broker log.retention.ms", "broker log.roll.ms"}, "null, *", "\"604800000\", *", 2,
			"The value in force is told under its strongest name. Kafka has it under log.retention.hours and log.roll.hours."},
		{"describe-configs", []string{"broker listeners", "broker num.recovery.threads.per.data.dir"}, "*read only false*",
			"*read only true*", 2, "Cannot be changed at run time."},
		{"describe-configs", []string{"broker producer.id.expiration.ms"}, "*, type 3, read only false*",
			"*, type 5, read only true*", 1, "Cannot be changed at run time, and may be longer than 24 days."},
		{"describe-configs", []string{"broker queued.max.request.bytes", "broker max.connections*"}, "\"*\", *", "\"*\", *", 3,
			"Bounds on memory and connections are on by default."},
		{"describe-configs", []string{"all brokers"}, "code 0, 1 settings", "code 0, 0 settings", 1,
			"Kafka stores min.insync.replicas when it is formatted; nothing is stored here."},
		{"describe-configs", []string{"client metrics", "group"}, "code 0, *", "code 42, *", 2,
			"There are no client metrics (KIP-714) and no group settings yet."},
		{"alter-configs", []string{"operation 9"}, "code -1, *", "code 42, *", 1, "The request is invalid, not the server."},
		{"alter-configs", []string{"empty topic name"}, "code 42", "code 17", 1, "As any other bad name."},
		{"alter-configs", []string{"broker, unknown"}, "code 0", "code 40", 1,
			"A setting that nobody knows has no effect; saying so helps who misspelt it."},
		{"alter-configs", []string{"broker, bad value"}, "code 42", "code 40", 1, "As with a bad value for a topic."},
		{"metadata", []string{"by id, version 11", "neither name nor id"}, "no broker, controller -1, *", "broker 1 at *", 2,
			"A refused topic does not make the rest of the answer unknown."},
	}
}

func servedExpectations() []expectation {
	no := func(reason string, keys ...string) expectation {
		return expectation{"api-versions", keys, "*-*", "not served", len(keys), reason}
	}
	all := []expectation{
		no(whyShare, "key 76 *", "key 77 *", "key 78 *", "key 79 *", "key 83 *", "key 84 *", "key 85 *", "key 86 *", "key 87 *",
			"key 88 *", "key 89 *", "key 90 *", "key 91 *", "key 92 *", "key 93 *"),
		no(whySecure, "key 38 *", "key 39 *", "key 40 *", "key 41 *"),
		no(whyNode, "key 64 *", "key 80 *", "key 81 *", "key 94 *"),
	}
	return append(all, expectation{"api-versions", []string{"finalized *"}, "*-*", "", 3,
		"The finalized features are those that are served; clients choose by them. Share groups, streams groups and the " +
			"replicas of other nodes are not."})
}

// matches tells whether '*' of a pattern can stand for what text has there.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(text, p)
		if i < 0 {
			return false
		}
		text = text[i+len(p):]
	}
	return strings.HasSuffix(text, last)
}

// explains tells whether a difference is the one expected.
func (e *expectation) explains(d difference) bool {
	if e.script != d.script || !matches(e.kafka, d.kafka) || !matches(e.sekali, d.sekali) {
		return false
	}
	for _, s := range e.steps {
		if matches(s, d.step) {
			return true
		}
	}
	return false
}

// judge holds the differences found against those expected. A difference belongs to the first expectation that explains
// it. Only scripts that ran are looked at.
func judge(found []difference, expected []expectation, ran func(script string) bool) (wrong []string) {
	count := make([]int, len(expected))
	for _, d := range found {
		known := false
		for i := range expected {
			if known = expected[i].explains(d); known {
				count[i]++
				break
			}
		}
		if !known {
			wrong = append(wrong, "not expected: "+d.String())
		}
	}
	for i, e := range expected {
		if ran(e.script) && count[i] != e.count {
			wrong = append(wrong, fmt.Sprintf("expected %d times, seen %d times: %s / %s: %q, %q", e.count, count[i], e.script,
				strings.Join(e.steps, " | "), e.kafka, e.sekali))
		}
	}
	return wrong
}
