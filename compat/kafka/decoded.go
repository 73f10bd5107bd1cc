package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// decoders are the topics that Kafka's dump tool decodes, and what has to be among the records after the runs of the
// tools.
var decoders = []struct {
	topic, flag string
	want        []string
}{
	{"__transaction_state", "--transaction-log-decoder", []string{`"transactionStatus":"Empty"`, `"transactionStatus":"Ongoing"`,
		`"transactionStatus":"PrepareCommit"`, `"transactionStatus":"CompleteCommit"`, `"transactionStatus":"PrepareAbort"`,
		`"transactionStatus":"CompleteAbort"`}},
	{"__consumer_offsets", "--offsets-decoder", []string{`"type":"1","data":{"group":"tooled-console"`,
		`"type":"2","data":{"group":"tooled-live"`, `"type":"3","data":{"groupId":"tooled-new"`,
		`"type":"5","data":{"groupId":"tooled-new"`, `"type":"6","data":{"groupId":"tooled-new"`,
		`"type":"7","data":{"groupId":"tooled-new"`, `"type":"8","data":{"groupId":"tooled-new"`}},
}

var (
	decodedLine = regexp.MustCompile(`(?m)^\| offset: .* key: (\{.*\}) payload: (.*)$`)
	recordLine  = regexp.MustCompile(`(?m)^\| offset: .*$`)
	fieldNames  = regexp.MustCompile(`"(\w+)":`)
	typeOf      = regexp.MustCompile(`"type":"(\d+)"`)
	versionOf   = regexp.MustCompile(`"version":"(\d+)"`)
)

// compareDecoded decodes the internal topics of both brokers with Kafka's dump tool. Each record of the daemon's must be
// decoded, and be of a type and with fields that Kafka writes too. Tagged fields may be left out, and the version may be an
// older one: Kafka 4.4 has version 4 of committed offsets.
func (j java) compareDecoded(ctx context.Context, kafka, sekali string) error {
	for _, d := range decoders {
		began := time.Now()
		known, _, err := j.shapes(ctx, kafka, d.topic, d.flag)
		if err != nil {
			return fmt.Errorf("Kafka's own %s: %w", d.topic, err)
		}
		ours, text, err := j.shapes(ctx, sekali, d.topic, d.flag)
		if err != nil {
			return err
		}
		for _, want := range d.want {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no record of %s has %s", d.topic, want)
			}
		}
		for shape, line := range ours {
			if !shape.among(known) {
				return fmt.Errorf("%s: Kafka writes no record of the shape %s: %s", d.topic, shape, line)
			}
		}
		fmt.Printf("  $ kafka-dump-log %s --files %s-*   (%.1f s) %d shapes of records, all known to Kafka\n", d.flag, d.topic,
			time.Since(began).Seconds(), len(ours))
		for shape := range ours {
			fmt.Println("      " + shape.String())
		}
	}
	return nil
}

// shape is the type of a record, the version of its value and the names of its fields.
type shape struct{ kind, version, fields string }

func (s shape) String() string {
	return fmt.Sprintf("type %s, version %s: %s", s.kind, s.version, s.fields)
}

// among tells whether one of these has all of the fields of s.
func (s shape) among(known map[shape]string) bool {
	for k := range known {
		has := strings.Fields(k.fields)
		missing := slices.ContainsFunc(strings.Fields(s.fields), func(f string) bool { return !slices.Contains(has, f) })
		if k.kind == s.kind && !missing {
			return true
		}
	}
	return false
}

// shapes dumps all logs of a topic and gives an example of each shape of a record.
func (j java) shapes(ctx context.Context, data, topic, flag string) (map[shape]string, string, error) {
	logs, err := filepath.Glob(filepath.Join(data, topic+"-*", "*.log"))
	if err != nil {
		return nil, "", err
	}
	logs = slices.DeleteFunc(logs, func(log string) bool {
		info, err := os.Stat(log)
		return err == nil && info.Size() == 0
	})
	if len(logs) == 0 {
		return nil, "", fmt.Errorf("%s has no records of %s", data, topic)
	}
	out, err := j.run(ctx, "", "org.apache.kafka.tools.DumpLogSegments", flag, "--files", strings.Join(logs, ","))
	if err != nil {
		return nil, "", err
	}
	if bad := complaint.FindAllString(words(out), 5); bad != nil {
		return nil, "", fmt.Errorf("the tool complains:\n%s", strings.Join(bad, "\n"))
	}
	shapes := map[shape]string{}
	decoded := decodedLine.FindAllStringSubmatch(out, -1)
	for _, m := range decoded {
		names := map[string]bool{}
		for _, f := range fieldNames.FindAllStringSubmatch(m[2], -1) {
			names[f[1]] = true
		}
		version := "none"
		if v := versionOf.FindStringSubmatch(m[2]); v != nil {
			version = v[1]
		}
		kind := typeOf.FindStringSubmatch(m[1])
		if kind == nil {
			return nil, "", fmt.Errorf("no type in %s", m[0])
		}
		delete(names, "version")
		delete(names, "data")
		shapes[shape{kind[1], version, strings.Join(slices.Sorted(maps.Keys(names)), " ")}] = m[0]
	}
	plain := 0 // markers: they have no key to decode
	for _, line := range recordLine.FindAllString(out, -1) {
		if strings.Contains(line, "endTxnMarker: ") {
			plain++
		}
	}
	if all := len(recordLine.FindAllString(out, -1)); all != len(decoded)+plain || len(decoded) == 0 {
		return nil, "", fmt.Errorf("%d of %d records of %s are decoded, %d are markers", len(decoded), all, topic, plain)
	}
	return shapes, out, nil
}
