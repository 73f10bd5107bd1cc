package main

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// TestRecordRoundTrip: whatever consume --json writes, produce --json reads back to the same record.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string) []byte {
			if rapid.Bool().Draw(t, name+" null") {
				return nil
			}
			return append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, name)...)
		}
		r := &kgo.Record{
			Topic: "t", Partition: rapid.Int32Range(0, 9).Draw(t, "partition"), Key: maybe("key"), Value: maybe("value"),
			Timestamp: time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "time")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: rapid.String().Draw(t, "name"), Value: maybe("header")})
		}
		line, err := json.Marshal(recordToJSON(r))
		if err != nil {
			t.Fatal(err)
		}
		got, err := recordFromJSON(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got.Topic = r.Topic
		if !reflect.DeepEqual(r, got) {
			t.Fatalf("%s: %+v became %+v", line, r, got)
		}
	})
}

func TestRecordRefusals(t *testing.T) {
	for _, line := range []string{
		"", "x", `"text"`, `{"valeu":"typo"}`, `{"value":"a","value_base64":"YQ=="}`, `{"value_base64":"%%"}`,
		`{"value":"a"} {"value":"b"}`, `{"headers":[{"key":"h","value":"a","value_base64":"YQ=="}]}`,
	} {
		if r, err := recordFromJSON([]byte(line)); err == nil {
			t.Errorf("%q was taken as %+v", line, r)
		}
	}
}
