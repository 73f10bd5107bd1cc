package group

import (
	"encoding/hex"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestConsumerRecordBytes: the bytes that Kafka's own reader takes (its schemas, worked out by hand).
func TestConsumerRecordBytes(t *testing.T) {
	one := [16]byte{15: 1}
	for _, c := range []struct {
		change     change
		key, value string
	}{
		{groupChange{epoch: 3, hash: 5}, "0003 0001 67", "0000 00000003 01 00 08 0000000000000005"},
		{groupChange{epoch: 3}, "0003 0001 67", "0000 00000003 00"},
		{groupChange{gone: true}, "0003 0001 67", ""},
		{partitionMetadataChange{}, "0004 0001 67", ""},
		{memberChange{"m", &consumerMember{instance: "i", clientID: "c", host: "/h", topics: []string{"t"}, rebalanceMs: 9,
			assignor: "range"}}, "0005 0001 67 0001 6d",
			"0000 02 69 00 02 63 03 2f68 02 02 74 00 00000009 06 72616e6765 00"},
		{memberChange{"m", &consumerMember{rack: "r", regex: "a.", hasRegex: true}}, "0005 0001 67 0001 6d",
			"0000 00 02 72 01 01 01 03 612e 00000000 00 00"},
		{targetEpochChange{epoch: 2}, "0006 0001 67", "0000 00000002 00"},
		{targetChange{"m", partitionSet{{one, 0}: {}, {one, 7}: {}}}, "0007 0001 67 0001 6d",
			"0000 02 00000000000000000000000000000001 03 00000000 00000007 00 00"},
		{currentChange{"m", &consumerMember{epoch: 4, previousEpoch: 3, state: memberUnrevoked,
			assigned: epochMap{{one, 7}: 2}, revoking: epochMap{}}}, "0008 0001 67 0001 6d",
			"0000 00000004 00000003 01 02 00000000000000000000000000000001 02 00000007 01 00 05 02 00000002 01 00"},
		{regexChange{"a.", &resolvedRegex{topics: []string{"ab"}, version: 1, at: 2}}, "0010 0001 67 0002 612e",
			"0000 02 03 6162 0000000000000001 0000000000000002 00"},
	} {
		r := c.change.record("g")
		if got := hex.EncodeToString(r.Key); got != squeeze(c.key) {
			t.Errorf("%T: key %s, want %s", c.change, got, c.key)
		}
		if got := hex.EncodeToString(r.Value); got != squeeze(c.value) || (c.value == "") != (r.Value == nil) {
			t.Errorf("%T: value %s, want %s", c.change, got, c.value)
		}
	}
}

func squeeze(s string) string {
	return string(slices.DeleteFunc([]byte(s), func(b byte) bool { return b == ' ' }))
}

// TestConsumerRecordOfOthers: tags that are not known are skipped, a log of before KIP-1251 has no epochs, a value of a
// newer version is refused.
func TestConsumerRecordOfOthers(t *testing.T) {
	key := consumerKey(keyCurrent, "g", "m")
	value, _ := hex.DecodeString(squeeze("0000 00000004 00000003 00 02 00000000000000000000000000000001 02 00000007" +
		"01 05 01 ff 01 01 09 02 abcd"))
	_, c, err := decodeConsumer(key, value)
	if err != nil {
		t.Fatal(err)
	}
	m := c.(currentChange).member
	if m.epoch != 4 || !maps.Equal(m.assigned, epochMap{{[16]byte{15: 1}, 7}: 0}) || len(m.revoking) != 0 {
		t.Errorf("%+v", m)
	}
	value[1] = 1
	if _, _, err := decodeConsumer(key, value); !errors.Is(err, errRecord) {
		t.Errorf("value of version 1: %v", err)
	}
	for n := range len(value) {
		value[1] = 0
		if _, _, err := decodeConsumer(key, value[:n]); !errors.Is(err, errRecord) {
			t.Errorf("%d of %d bytes: %v", n, len(value), err)
		}
	}
}

func drawChange(t *rapid.T) change {
	name := rapid.StringMatching(`[a-zäß]{1,9}`)
	key := rapid.Custom(func(t *rapid.T) partitionKey {
		return partitionKey{[16]byte{rapid.Byte().Draw(t, "topic")}, rapid.Int32Range(0, 99).Draw(t, "partition")}
	})
	epochs := rapid.MapOfN(key, rapid.Int32(), 0, 9)
	topics := rapid.SliceOfNDistinct(name, 0, 4, rapid.ID[string])
	id := name.Draw(t, "id")
	gone := rapid.Bool().Draw(t, "gone")
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		if gone {
			return groupChange{gone: true}
		}
		return groupChange{epoch: rapid.Int32().Draw(t, "epoch"), hash: rapid.Int64().Draw(t, "hash")}
	case 1:
		if gone {
			return memberChange{id: id}
		}
		m := &consumerMember{id: id, clientID: name.Draw(t, "client"), host: name.Draw(t, "host"),
			topics: topics.Draw(t, "topics"), rebalanceMs: rapid.Int32().Draw(t, "rebalance")}
		slices.Sort(m.topics)
		if rapid.Bool().Draw(t, "all") {
			m.instance, m.rack, m.regex, m.hasRegex, m.assignor = "i", "r", name.Draw(t, "regex"), true, AssignorRange
		}
		return memberChange{id, m}
	case 2:
		if gone {
			return targetChange{id: id}
		}
		set := partitionSet{}
		for p := range epochs.Draw(t, "set") {
			set[p] = struct{}{}
		}
		return targetChange{id, set}
	case 3:
		if gone {
			return currentChange{id: id}
		}
		return currentChange{id, &consumerMember{id: id, epoch: rapid.Int32().Draw(t, "epoch"),
			previousEpoch: rapid.Int32().Draw(t, "previous"), state: memberState(rapid.Int8Range(0, 2).Draw(t, "state")),
			assigned: epochs.Draw(t, "assigned"), revoking: epochs.Draw(t, "revoking")}}
	case 4:
		if gone {
			return regexChange{regex: id}
		}
		return regexChange{id, &resolvedRegex{topics: topics.Draw(t, "topics"), version: rapid.Int64().Draw(t, "version"),
			at: rapid.Int64().Draw(t, "at")}}
	}
	if gone {
		return targetEpochChange{gone: true}
	}
	return targetEpochChange{epoch: rapid.Int32().Draw(t, "epoch")}
}

// TestConsumerRecordRoundTrip: what is read is what was written, and any piece of it is an error or nothing, never a
// crash.
func TestConsumerRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChange(t)
		r := c.record("group")
		group, back, err := decodeConsumer(r.Key, r.Value)
		if err != nil || group != "group" {
			t.Fatalf("%q: %v", group, err)
		}
		if again := back.record("group"); !reflect.DeepEqual(again, r) {
			t.Fatalf("%#v\nread as %#v\nwritten as %x, was %x", c, back, again.Value, r.Value)
		}
		broken := rapid.SliceOf(rapid.Byte()).Draw(t, "broken")
		_, _, _ = decodeConsumer(r.Key, append(slices.Clone(r.Value), broken...))
		_, _, _ = decodeConsumer(r.Key, append([]byte{0, 0}, broken...))
	})
}
