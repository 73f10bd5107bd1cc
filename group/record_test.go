package group

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKeyBytes(t *testing.T) {
	for _, c := range []struct {
		key recordKey
		hex string
	}{
		{recordKey{version: 0, group: "g", topic: "t", partition: 7}, "0000 0001 67 0001 74 00000007"},
		{recordKey{version: 1, group: "grp", topic: "top", partition: 258}, "0001 0003 677270 0003 746f70 00000102"},
		{recordKey{version: 1, topic: "t"}, "0001 0000 0001 74 00000000"},
		{recordKey{version: 2, group: "grp"}, "0002 0003 677270"},
		{recordKey{version: 3, group: "grp"}, "0003 0003 677270"},
		{recordKey{version: 4, group: "grp"}, "0004 0003 677270"},
		{recordKey{version: 5, group: "g", name: "me"}, "0005 0001 67 0002 6d65"},
		{recordKey{version: 6, group: "g"}, "0006 0001 67"},
		{recordKey{version: 7, group: "g", name: "me"}, "0007 0001 67 0002 6d65"},
		{recordKey{version: 8, group: "g", name: "me"}, "0008 0001 67 0002 6d65"},
		{recordKey{version: 16, group: "g", name: "a.*"}, "0010 0001 67 0003 612e2a"},
	} {
		want := unhex(t, c.hex)
		if got := c.key.encode(); string(got) != string(want) {
			t.Errorf("%+v: % x, want % x", c.key, got, want)
		}
		if got, err := parseKey(want); err != nil || got != c.key {
			t.Errorf("% x: %+v, %v", want, got, err)
		}
		for n := range want {
			if n >= 2 {
				if _, err := parseKey(want[:n]); !errors.Is(err, errRecord) {
					t.Errorf("% x cut to %d: %v", want, n, err)
				}
			}
		}
		if _, err := parseKey(append(want, 0)); !errors.Is(err, errRecord) {
			t.Errorf("% x with a byte more: %v", want, err)
		}
	}
	for _, v := range []string{"0009 ff", "000f", "0011 0001 67", "8000"} {
		if k, err := parseKey(unhex(t, v)); err != nil || !k.foreign() {
			t.Errorf("%s: %+v, %v: want a foreign key", v, k, err)
		}
	}
	for _, v := range []string{"", "00", "0001 ffff 0001 74 00000000"} {
		if _, err := parseKey(unhex(t, v)); !errors.Is(err, errRecord) {
			t.Errorf("%q: %v", v, err)
		}
	}
}

func TestOffsetValueBytes(t *testing.T) {
	plain := committed{offset: 258, epoch: 5, metadata: "m", timeMs: 0x0102030405060708, expireMs: -1}
	expiring := plain
	expiring.expireMs, expiring.epoch = 0x1112131415161718, -1
	for _, c := range []struct {
		c   committed
		hex string
	}{
		{plain, "0003 0000000000000102 00000005 0001 6d 0102030405060708"},
		{expiring, "0001 0000000000000102 0001 6d 0102030405060708 1112131415161718"},
		{committed{offset: -1, epoch: -1, expireMs: -1}, "0003 ffffffffffffffff ffffffff 0000 0000000000000000"},
	} {
		r := encodeOffset("g", tpKey{"t", 3}, &c.c)
		if want := unhex(t, c.hex); string(r.Value) != string(want) {
			t.Errorf("%+v: % x, want % x", c.c, r.Value, want)
		}
		if want := unhex(t, "0001 0001 67 0001 74 00000003"); string(r.Key) != string(want) {
			t.Errorf("key % x, want % x", r.Key, want)
		}
	}
	// Every version that was ever written is read; a field a version has not is -1.
	for _, c := range []struct {
		hex             string
		epoch           int32
		metadata        string
		commit, expires int64
	}{
		{"0000 0000000000000009 0001 6d 0000000000000064", -1, "m", 100, -1},
		{"0001 0000000000000009 0001 6d 0000000000000064 00000000000000c8", -1, "m", 100, 200},
		{"0001 0000000000000009 0000 0000000000000064 ffffffffffffffff", -1, "", 100, -1},
		{"0002 0000000000000009 0001 6d 0000000000000064", -1, "m", 100, -1},
		{"0003 0000000000000009 00000004 0001 6d 0000000000000064", 4, "m", 100, -1},
		{"0004 0000000000000009 00000004 02 6d 0000000000000064 00", 4, "m", 100, -1},
		{"0004 0000000000000009 00000004 02 6d 0000000000000064 02 00 10 000102030405060708090a0b0c0d0e0f 63 01 aa",
			4, "m", 100, -1},
	} {
		v, err := decodeOffset(unhex(t, c.hex))
		if err != nil || v.Offset != 9 || v.LeaderEpoch != c.epoch || v.Metadata != c.metadata ||
			v.CommitTimestamp != c.commit || v.ExpireTimestamp != c.expires {
			t.Errorf("%s: %+v, %v", c.hex, v, err)
		}
	}
	for _, bad := range []string{"", "00", "0005 00", "ffff", "0003 00", "0003 0000000000000009 00000004 0001 6d"} {
		if _, err := decodeOffset(unhex(t, bad)); !errors.Is(err, errRecord) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestClassicValueBytes(t *testing.T) {
	protocol, leader, instance := "range", "me", "i"
	v := kmsg.NewGroupMetadataValue()
	v.ProtocolType, v.Generation, v.Protocol, v.Leader = "consumer", 3, &protocol, &leader
	v.CurrentStateTimestamp = 100
	v.Members = []kmsg.GroupMetadataValueMember{{
		MemberID: "me", InstanceID: &instance, ClientID: "app", ClientHost: "/10.0.0.1", RebalanceTimeoutMillis: 60000,
		SessionTimeoutMillis: 10000, Subscription: []byte{1, 2}, Assignment: []byte{3},
	}}
	r := encodeClassic("g", &v)
	want := unhex(t, `0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d65 0000000000000064`+
		`00000001 0002 6d65 0001 69 0003 617070 0009 2f31302e302e302e31 0000ea60 00002710 00000002 0102 00000001 03`)
	if string(r.Value) != string(want) {
		t.Errorf("value % x, want % x", r.Value, want)
	}
	empty := encodeClassic("g", &kmsg.GroupMetadataValue{CurrentStateTimestamp: 100})
	want = unhex(t, "0003 0000 00000000 ffff ffff 0000000000000064 00000000")
	if string(empty.Value) != string(want) {
		t.Errorf("value of an empty group % x, want % x", empty.Value, want)
	}
	if gone := tombstoneClassic("g"); gone.Value != nil || string(gone.Key) != string(unhex(t, "0002 0001 67")) {
		t.Errorf("tombstone %+v", gone)
	}
	for version := int16(0); version <= classicValueMax; version++ {
		v.Version = version
		got, err := decodeClassic(v.AppendTo(nil))
		if err != nil || got.Generation != 3 || *got.Protocol != "range" || got.Members[0].MemberID != "me" {
			t.Errorf("version %d: %+v, %v", version, got, err)
			continue
		}
		m := got.Members[0]
		if (version >= 1) != (m.RebalanceTimeoutMillis == 60000) || (version >= 3) != (m.InstanceID != nil) ||
			(version >= 2) != (got.CurrentStateTimestamp == 100) {
			t.Errorf("version %d: %+v", version, got)
		}
	}
	for _, bad := range []string{"", "0005 00", "0003 0000"} {
		if _, err := decodeClassic(unhex(t, bad)); !errors.Is(err, errRecord) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRecordRoundTrip: what is written is read back, whatever the strings.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := recordKey{
			version: rapid.SampledFrom([]int16{0, 1, 2, 3, 4, 5, 6, 7, 8, 16}).Draw(t, "type"),
			group:   rapid.String().Draw(t, "group"),
		}
		topic, name := k.parts()
		if topic {
			k.topic, k.partition = rapid.String().Draw(t, "topic"), rapid.Int32().Draw(t, "partition")
		}
		if name {
			k.name = rapid.String().Draw(t, "name")
		}
		if got, err := parseKey(k.encode()); err != nil || got != k {
			t.Fatalf("%+v became %+v, %v", k, got, err)
		}
		c := committed{
			offset: rapid.Int64().Draw(t, "offset"), timeMs: rapid.Int64().Draw(t, "time"), expireMs: -1, epoch: -1,
			metadata: rapid.String().Draw(t, "metadata"),
		}
		if rapid.Bool().Draw(t, "expires") {
			c.expireMs = rapid.Int64Min(0).Draw(t, "expire")
		} else {
			c.epoch = rapid.Int32().Draw(t, "epoch")
		}
		tp := tpKey{rapid.String().Draw(t, "of"), rapid.Int32().Draw(t, "number")}
		r := encodeOffset(k.group, tp, &c)
		s := shard{groups: map[string]*group{}, offsetsShard: offsetsShard{loading: true}}
		if err := s.apply(0, -1, &r); err != nil {
			t.Fatal(err)
		}
		if got := s.groups[k.group].offsets.live[tp]; got != c {
			t.Fatalf("%+v became %+v", c, got)
		}
		l, err := DecodeRecord(r)
		if err != nil || l.Group != k.group || l.Topic != tp.topic || l.Partition != tp.partition {
			t.Fatalf("%+v, %v", l, err)
		}
		if again, ok := l.Record(); !ok || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}
