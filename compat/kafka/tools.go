package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tool is one run of one of Kafka's command-line tools against the daemon: what it is given, and what has to be in its
// output.
type tool struct {
	class string // below org.apache.kafka.tools
	args  string
	input string
	want  []string // regular expressions, matched by lines
	fails bool     // the tool has to end with an error
}

// scriptNames are the names by which users know the tools.
var scriptNames = map[string]string{
	"TopicCommand": "kafka-topics", "ConfigCommand": "kafka-configs", "ConsoleProducer": "kafka-console-producer",
	"consumer.ConsoleConsumer": "kafka-console-consumer", "GetOffsetShell": "kafka-get-offsets",
	"DeleteRecordsCommand": "kafka-delete-records", "LogDirsCommand": "kafka-log-dirs",
	"AclCommand": "kafka-acls", "ProducerPerformance": "kafka-producer-perf-test", "ClusterTool": "kafka-cluster",
	"FeatureCommand":           "kafka-features",
	"BrokerApiVersionsCommand": "kafka-broker-api-versions", groupTool: "kafka-consumer-groups",
	txnTool: "kafka-transactions", "VerifiableProducer": "kafka-verifiable-producer", "DumpLogSegments": "kafka-dump-log",
}

// toolRuns are the runs in their order; {B} stands for the address of the daemon and {D} for a directory.
func toolRuns() []tool {
	const reader = "--bootstrap-server {B} --topic tooled --partition 1 --offset earliest --max-messages 4 --timeout-ms 30000 " +
		"--formatter-property print.key=true --formatter-property print.timestamp=false " +
		"--formatter-property print.headers=true --formatter-property print.offset=true"
	return []tool{
		{class: "ClusterTool", args: "cluster-id --bootstrap-server {B}", want: []string{`Cluster ID: [\w-]{22}$`}},
		{class: "ClusterTool", args: "list-endpoints --bootstrap-server {B}", want: []string{`127\.0\.0\.1 +\d+`}},
		{class: "BrokerApiVersionsCommand", args: "--bootstrap-server {B}",
			want: []string{`^127\.0\.0\.1:\d+ \(id: 1 `, `Produce\(0\): 0 to 13 \[usable: 13\]`, `InitProducerId\(22\): 0 to 5`}},
		{class: "FeatureCommand", args: "--bootstrap-server {B} describe",
			want: []string{`metadata\.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: 4\.4-IV\d+\s+FinalizedVersionLevel: 4\.4`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --create --topic tooled --partitions 2 --replication-factor 1 " +
			"--config retention.ms=-1", want: []string{`^Created topic tooled\.$`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --create --topic tooled --partitions 2", fails: true,
			want: []string{`Topic 'tooled' already exists`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --list", want: []string{`^tooled$`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --alter --topic tooled --partitions 3"},
		{class: "TopicCommand", args: "--bootstrap-server {B} --describe --topic tooled", want: []string{
			`^Topic: tooled\s+TopicId: [\w-]{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=-1`,
			`Topic: tooled\s+Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --alter --entity-type topics --entity-name tooled " +
			"--add-config segment.bytes=2000000,max.message.bytes=2000000", want: []string{`^Completed updating config for topic tooled\.$`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --alter --entity-type topics --entity-name tooled " +
			"--delete-config segment.bytes", want: []string{`^Completed updating config for topic tooled\.$`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --describe --entity-type topics --entity-name tooled",
			want: []string{`max\.message\.bytes=2000000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:max\.message\.bytes=2000000, ` +
				`DEFAULT_CONFIG:message\.max\.bytes=1048588\}`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --alter --entity-type brokers --entity-name 1 " +
			"--add-config log.retention.ms=86400000", want: []string{`^Completed updating config for broker 1\.$`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --describe --entity-type brokers --entity-name 1",
			want: []string{`log\.retention\.ms=86400000 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log\.retention\.ms=86400000`}},
		{class: "ConfigCommand", args: "--bootstrap-server {B} --alter --entity-type topics --entity-name tooled " +
			"--add-config retention.ms=soon", fails: true, want: []string{`retention\.ms`}},
		{class: "ConsoleProducer", args: "--bootstrap-server {B} --topic tooled --reader-property parse.key=true " +
			"--reader-property key.separator=: --reader-property parse.headers=true --compression-codec zstd",
			input: "h:1\ta:first\nh:2\ta:second\nh:3\ta:third\nh:4\ta:fourth\n"},
		{class: "GetOffsetShell", args: "--bootstrap-server {B} --topic tooled --time latest", want: []string{`^tooled:1:4$`}},
		{class: "GetOffsetShell", args: "--bootstrap-server {B} --topic tooled --time earliest", want: []string{`^tooled:0:0$`,
			`^tooled:2:0$`}},
		{class: "GetOffsetShell", args: "--bootstrap-server {B} --topic tooled --time max-timestamp", want: []string{`^tooled:1:[0-3]$`}},
		{class: "consumer.ConsoleConsumer", args: reader, want: []string{`^Offset:0\th:1\ta\tfirst$`, `^Offset:3\th:4\ta\tfourth$`}},
		{class: "ProducerPerformance", args: "--topic tooled --num-records 50000 --record-size 1000 --throughput -1 " +
			"--producer-props bootstrap.servers={B} enable.idempotence=true acks=all compression.type=lz4",
			want: []string{`^50000 records sent, .* 99\.9th`}},
		{class: "DeleteRecordsCommand", args: "--bootstrap-server {B} --offset-json-file {D}/delete.json",
			want: []string{`partition: tooled-1\tlow_watermark: 2$`}},
		{class: "GetOffsetShell", args: "--bootstrap-server {B} --topic tooled --partitions 1 --time earliest",
			want: []string{`^tooled:1:2$`}},
		{class: "LogDirsCommand", args: "--bootstrap-server {B} --describe --topic-list tooled",
			want: []string{`"partition":"tooled-0","size":\d+,"offsetLag":0,"isFuture":false`, `"error":null`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --create --topic short-lived --partitions 1",
			want: []string{`^Created topic short-lived\.$`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --delete --topic short-lived"},
		{class: "TopicCommand", args: "--bootstrap-server {B} --describe --topic short-lived", fails: true,
			want: []string{`Topic 'short-lived' does not exist`}},
	}
}

// tools runs Kafka's tools against the daemon and shows what they print.
func (j java) tools(ctx context.Context, addr string) error {
	err := os.WriteFile(filepath.Join(j.dir, "delete.json"),
		[]byte(`{"version": 1, "partitions": [{"topic": "tooled", "partition": 1, "offset": 2}]}`), 0o644)
	if err != nil {
		return err
	}
	return j.runTools(ctx, toolRuns(), "{B}", addr, "{D}", j.dir)
}

// runTools runs tools one after the other; names are pairs of a name in the arguments and what it stands for.
func (j java) runTools(ctx context.Context, all []tool, names ...string) error {
	for _, t := range all {
		args := strings.NewReplacer(names...).Replace(t.args)
		began := time.Now()
		out, err := j.run(ctx, t.input, "org.apache.kafka.tools."+t.class, strings.Fields(args)...)
		fmt.Printf("  $ %s %s   (%.1f s)\n", scriptNames[t.class], args, time.Since(began).Seconds())
		show(out)
		if (err != nil) != t.fails && !complains(out, t.fails) {
			return fmt.Errorf("%s %s: failed %v, want %v: %w", scriptNames[t.class], args, err != nil, t.fails, err)
		}
		for _, want := range t.want {
			if !regexp.MustCompile("(?m)" + want).MatchString(out) {
				return fmt.Errorf("%s %s: no line matches %s", scriptNames[t.class], args, want)
			}
		}
	}
	return nil
}

// complains tells whether a tool that ends with status 0 in any case printed what it should not or should: some of
// Kafka's tools tell an error on standard output only.
func complains(out string, want bool) bool {
	return want && regexp.MustCompile(`(?m)^Error|Exception`).MatchString(out)
}

// show prints the output of a tool, long ones shortened.
func show(out string) {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for i, l := range lines {
		if i == 6 && len(lines) > 8 {
			fmt.Printf("      ... %d more lines\n", len(lines)-i)
			break
		}
		if len(l) > 200 {
			l = l[:200] + "..."
		}
		if l != "" {
			fmt.Println("      " + l)
		}
	}
}
