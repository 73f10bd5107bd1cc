package fuzz

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/group"
)

// FuzzGroupRecord reads arbitrary bytes as a record of __consumer_offsets. Properties: an answer or an error, never a
// panic; the record read says its type as the key's first two bytes do; a record that is interpreted can be encoded
// again, and what that gives is read as the same and encodes to the same bytes; an offset commit of a version that is
// written comes back byte for byte (bytes behind it are skipped, as Kafka does).
func FuzzGroupRecord(f *testing.F) {
	for _, r := range groupRecords() {
		f.Add(r.Key, r.Value)
	}
	f.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}, []byte(nil))
	f.Add([]byte{0, 10, 1, 2, 3}, []byte{0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(value) == 0 {
			value = nil // the fuzzer cannot tell the two apart
		}
		l, err := group.DecodeRecord(group.Record{Key: key, Value: value})
		if err != nil {
			return
		}
		if len(key) < 2 || l.Type != int16(key[0])<<8|int16(key[1]) {
			t.Fatalf("% x read as type %d", key, l.Type)
		}
		r, ok := l.Record()
		if !ok {
			if l.Type >= 0 && l.Type <= 8 || l.Type == 16 {
				t.Fatalf("%+v cannot be encoded", l)
			}
			return
		}
		if !bytes.Equal(r.Key, key) {
			t.Fatalf("key % x became % x", key, r.Key)
		}
		again, err := group.DecodeRecord(r)
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%+v became %+v, %v", l, again, err)
		}
		if twice, _ := again.Record(); !reflect.DeepEqual(twice, r) {
			t.Fatalf("% x became % x", r.Value, twice.Value)
		}
		written := l.Type <= 1 && len(value) > 1 && (value[1] == 1 || value[1] == 3)
		if written && !bytes.HasPrefix(value, r.Value) {
			t.Fatalf("value % x became % x", value, r.Value)
		}
	})
}

// groupRecords are records of each interpreted type.
func groupRecords() (all []group.Record) {
	add := func(l group.Logged) {
		if r, ok := l.Record(); ok {
			all = append(all, r)
		}
	}
	for version := range int16(5) {
		o := kmsg.OffsetCommitValue{Version: version, Offset: 5, LeaderEpoch: 1, Metadata: "m", CommitTimestamp: 7}
		add(group.Logged{Type: 1, Group: "g", Topic: "t", Partition: 3, Value: &o})
		c := kmsg.NewGroupMetadataValue()
		c.Version, c.ProtocolType, c.Generation = version, "consumer", 2
		m := kmsg.NewGroupMetadataValueMember()
		m.MemberID, m.Subscription = "m", []byte{0, 1}
		c.Members = append(c.Members, m)
		add(group.Logged{Type: 2, Group: "g", Value: &c})
	}
	id := append([]byte{2}, make([]byte, 16)...)
	parts := append(append(id, 2, 0, 0, 0, 3), 0, 0) // one topic with partition 3, its tags and those of the value
	epochs := append(append([]byte{2}, make([]byte, 16)...), 2, 0, 0, 0, 3, 0)
	for key, value := range map[string][]byte{
		"\x00\x03\x00\x01g":           {0, 0, 0, 0, 0, 9, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5},
		"\x00\x04\x00\x01g":           {0, 0, 1, 0},
		"\x00\x05\x00\x01g\x00\x01m":  {0, 0, 0, 0, 2, 'c', 2, 'h', 2, 2, 't', 0, 0, 0, 1, 0, 0, 0},
		"\x00\x06\x00\x01g":           {0, 0, 0, 0, 0, 9, 0},
		"\x00\x07\x00\x01g\x00\x01m":  append([]byte{0, 0}, parts...),
		"\x00\x08\x00\x01g\x00\x01m":  append(append([]byte{0, 0, 0, 0, 0, 9, 0, 0, 0, 8, 0}, epochs...), 1, 0),
		"\x00\x10\x00\x01g\x00\x02a*": append([]byte{0, 0, 2, 2, 't'}, make([]byte, 17)...),
	} {
		all = append(all, group.Record{Key: []byte(key), Value: value})
	}
	return all
}

// TestGroupRecordSeeds: the seeds are records, not noise.
func TestGroupRecordSeeds(t *testing.T) {
	types := map[int16]bool{}
	for _, r := range groupRecords() {
		l, err := group.DecodeRecord(r)
		if err != nil {
			t.Errorf("% x -> % x: %v", r.Key, r.Value, err)
		}
		types[l.Type] = true
	}
	if len(types) != 9 {
		t.Errorf("seeds of %d types, want 9", len(types))
	}
}
