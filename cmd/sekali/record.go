package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// jsonRecord is a record as one line of JSON, the same for produce and consume. A text field that is not valid UTF-8 is
// told in its base64 twin instead; a key or value that is missing in both is null.
type jsonRecord struct {
	Topic     string       `json:"topic,omitempty"`
	Partition *int32       `json:"partition,omitempty"`
	Offset    *int64       `json:"offset,omitempty"`
	Timestamp *int64       `json:"timestamp,omitempty"` // milliseconds since 1970
	Key       *string      `json:"key,omitempty"`
	KeyB64    *string      `json:"key_base64,omitempty"`
	Value     *string      `json:"value,omitempty"`
	ValueB64  *string      `json:"value_base64,omitempty"`
	Headers   []jsonHeader `json:"headers,omitempty"`
}

// jsonHeader is a record header; its value is null if it is missing in both fields.
type jsonHeader struct {
	Key      string  `json:"key"`
	Value    *string `json:"value,omitempty"`
	ValueB64 *string `json:"value_base64,omitempty"`
}

// toText gives bytes as text, or as base64 where they are not text; null gives neither.
func toText(b []byte) (text, b64 *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

func fromText(name string, text, b64 *string) ([]byte, error) {
	switch {
	case text != nil && b64 != nil:
		return nil, fmt.Errorf("%s is given as text and as base64", name)
	case text != nil:
		return []byte(*text), nil
	case b64 != nil:
		b, err := base64.StdEncoding.DecodeString(*b64)
		if err != nil {
			return nil, fmt.Errorf("%s_base64: %w", name, err)
		}
		return append([]byte{}, b...), nil
	}
	return nil, nil
}

// recordToJSON describes a fetched record.
func recordToJSON(r *kgo.Record) jsonRecord {
	ms := r.Timestamp.UnixMilli()
	j := jsonRecord{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, Timestamp: &ms}
	j.Key, j.KeyB64 = toText(r.Key)
	j.Value, j.ValueB64 = toText(r.Value)
	for _, h := range r.Headers {
		v, b := toText(h.Value)
		j.Headers = append(j.Headers, jsonHeader{h.Key, v, b})
	}
	return j
}

// recordFromJSON reads one line. Topic and offset are ignored, so that what consume wrote can be produced elsewhere.
func recordFromJSON(line []byte) (*kgo.Record, error) {
	var j jsonRecord
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value on the line")
	}
	r := &kgo.Record{Partition: -1}
	var err error
	if r.Key, err = fromText("key", j.Key, j.KeyB64); err != nil {
		return nil, err
	}
	if r.Value, err = fromText("value", j.Value, j.ValueB64); err != nil {
		return nil, err
	}
	for _, h := range j.Headers {
		v, err := fromText("header "+h.Key, h.Value, h.ValueB64)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: v})
	}
	if j.Partition != nil {
		r.Partition = *j.Partition
	}
	if j.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*j.Timestamp)
	}
	return r, nil
}
