package coord

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	goldenStart  = 1700000000000
	goldenUpdate = 1700000000123
)

// goldenTxn is a txn of producer 4711 as the golden records hold it.
func goldenTxn(change func(*txn)) txn {
	t := newTxn(4711)
	t.epoch, t.timeoutMs, t.updateMs, t.startMs = 3, 60000, goldenUpdate, goldenStart
	change(&t)
	return t
}

var ordersTPs = []TP{{Topic: "orders", Partition: 0}, {Topic: "orders", Partition: 1}}

// The bytes are what Apache Kafka 4.4.0 writes (TransactionLog.valueToBytes); the last one was written by its generated
// class with our tags as unknown ones.
var goldenValues = []struct {
	name    string
	version int16
	t       txn
	remain  int64
	hex     string
}{
	{"v0 Empty", 0, goldenTxn(func(t *txn) { t.epoch, t.startMs = 0, -1 }), -1,
		"0000000000000000126700000000ea6000ffffffff0000018bcfe5687bffffffffffffffff"},
	{"v0 Ongoing", 0, goldenTxn(func(t *txn) { t.state, t.tps = Ongoing, ordersTPs }), -1,
		"0000000000000000126700030000ea60010000000100066f7264657273000000020000000000000001" +
			"0000018bcfe5687b0000018bcfe56800"},
	{"v0 PrepareCommit", 0, goldenTxn(func(t *txn) {
		t.epoch, t.timeoutMs, t.state, t.tps = 32767, 2147483647, PrepareCommit, ordersTPs
	}), -1, "000000000000000012677fff7fffffff020000000100066f7264657273000000020000000000000001" +
		"0000018bcfe5687b0000018bcfe56800"},
	{"v0 CompleteAbort", 0, goldenTxn(func(t *txn) { t.pid, t.epoch, t.state = 5000, 0, CompleteAbort }), -1,
		"0000000000000000138800000000ea6005000000000000018bcfe5687b0000018bcfe56800"},
	{"v1 Empty", 1, goldenTxn(func(t *txn) { t.epoch, t.startMs = 0, -1 }), -1,
		"0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff00"},
	{"v1 Ongoing", 1, goldenTxn(func(t *txn) { t.state, t.tps, t.clientTV = Ongoing, ordersTPs, 2 }), -1,
		"0001000000000000126700030000ea600102076f726465727303000000000000000100" +
			"0000018bcfe5687b0000018bcfe568000102020002"},
	{"v1 PrepareCommit, epoch exhausted", 1, goldenTxn(func(t *txn) {
		t.epoch, t.timeoutMs, t.state, t.tps = 32767, 2147483647, PrepareCommit, ordersTPs
		t.prevPID, t.nextPID, t.clientTV = 4000, 5000, 2
	}), -1, "000100000000000012677fff7fffffff0202076f726465727303000000000000000100" +
		"0000018bcfe5687b0000018bcfe568000300080000000000000fa00108000000000000138802020002"},
	{"v1 CompleteAbort", 1, goldenTxn(func(t *txn) {
		t.pid, t.epoch, t.prevPID, t.state, t.clientTV = 5000, 0, 4711, CompleteAbort, 2
	}), -1, "0001000000000000138800000000ea600501" +
		"0000018bcfe5687b0000018bcfe56800020008000000000000126702020002"},
	{"v1 every tag", 1, txn{
		pid: 1, epoch: 2, timeoutMs: 3, state: Ongoing, updateMs: 5, startMs: 6, prevPID: 7, nextPID: 8, nextEpoch: 9,
		clientTV: 2, lastEpoch: 1, pending: noState, tps: []TP{
			{Topic: "a", ID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Partition: 0},
			{Topic: "a", ID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Partition: 5},
			{Topic: "b", ID: [16]byte{17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}, Partition: 1},
		}}, 12345,
		"00010000000000000001000200000003010302610300000000000000050002620200000001000000000000000005" +
			"00000000000000060700080000000000000007010800000000000000080202000203020009e807020001" +
			"e907200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20ea07080000000000003039"},
}

func TestValueGolden(t *testing.T) {
	for _, g := range goldenValues {
		if got := hex.EncodeToString(appendValue(nil, g.version, &g.t, g.remain)); got != g.hex {
			t.Errorf("%s:\n got %s\nwant %s", g.name, got, g.hex)
		}
		got, remain, err := decodeValue(unhex(t, g.hex))
		if err != nil || remain != g.remain || !reflect.DeepEqual(got, g.t) {
			t.Errorf("%s: decoded %+v, %d, %v; want %+v, %d", g.name, got, remain, err, g.t, g.remain)
		}
	}
}

func TestKeyGolden(t *testing.T) {
	for id, want := range map[string]string{
		"txn-1": "0000000574786e2d31",
		"a😀b":   "0000000661f09f988062",
	} {
		if got := hex.EncodeToString(encodeKey(id)); got != want {
			t.Errorf("key of %q: %s, want %s", id, got, want)
		}
		if got, err := decodeKey(unhex(t, want)); got != id || err != nil {
			t.Errorf("decoded %q, %v; want %q", got, err, id)
		}
	}
}

func TestMalformedRecords(t *testing.T) {
	value := goldenValues[len(goldenValues)-1].hex
	key := "0000000574786e2d31"
	for _, c := range []struct {
		name, key, value string
		want             error
	}{
		{"key version 1", "0001000574786e2d31", value, ErrKey},
		{"key without a version", "00", value, ErrRecord},
		{"key cut", "0000000574786e2d", value, ErrRecord},
		{"key with a tail", key + "00", value, ErrRecord},
		{"value version 2", key, "0002" + value[4:], ErrVersion},
		{"value version -1", key, "ffff" + value[4:], ErrVersion},
		{"value of one byte", key, "00", ErrRecord},
		{"empty value", key, "", ErrRecord},
		{"value cut", key, value[:len(value)-2], ErrRecord},
		{"state Dead", key, "0001000000000000000100020000000306" + value[34:], ErrRecord},
		{"state PrepareEpochFence", key, "0001000000000000000100020000000307" + value[34:], ErrRecord},
		{"negative state", key, "00010000000000000001000200000003ff" + value[34:], ErrRecord},
		{"more partitions than bytes", key, "00010000000000000001000200000003010302610f" + value[42:], ErrRecord},
		{"last epoch of 4 bytes", key, "0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff" +
			"01e8070400000001", ErrRecord},
		{"topic ids without topics", key, "0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff" +
			"01e9070400000001", ErrRecord},
		{"negative remaining time", key, "0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff" +
			"01ea0708ffffffffffffffff", ErrRecord},
	} {
		r := Record{Key: unhex(t, c.key), Value: unhex(t, c.value)}
		if _, err := DecodeRecord(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A tag of a later version is neither refused nor lost.
func TestUnknownTagKept(t *testing.T) {
	b := unhex(t, "0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff"+"020703aabbccd10f00")
	got, _, err := decodeValue(b)
	if err != nil {
		t.Fatal(err)
	}
	if again := encodeValue(&got, -1); !bytes.Equal(again, b) {
		t.Fatalf("written back as %x, want %x", again, b)
	}
	got.lastEpoch = 4
	want := unhex(t, "0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff"+"030703aabbcce807020004d10f00")
	if again := encodeValue(&got, -1); !bytes.Equal(again, want) {
		t.Fatalf("beside a tag of ours: %x, want %x", again, want)
	}
	if got.unknown.Len() != 2 {
		t.Fatalf("encoding changed the tags kept: %d", got.unknown.Len())
	}
}

// Kafka writes the topics of a transaction in no particular order, and may write one twice.
func TestPartitionArrayInAnyOrder(t *testing.T) {
	b := unhex(t, "0000"+"0000000000001267"+"0003"+"0000ea60"+"01"+
		"00000003"+"000162"+"00000002"+"0000000500000001"+"000161"+"00000001"+"00000007"+"000162"+"00000001"+"00000001"+
		"0000018bcfe5687b0000018bcfe56800")
	got, _, err := decodeValue(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []TP{{Topic: "a", Partition: 7}, {Topic: "b", Partition: 1}, {Topic: "b", Partition: 5}}
	if !reflect.DeepEqual(got.tps, want) {
		t.Fatalf("%v, want %v", got.tps, want)
	}
}

func drawTPs(t *rapid.T) []TP {
	topics := rapid.SliceOfNDistinct(rapid.StringN(1, 20, 40), 0, 4, rapid.ID[string]).Draw(t, "topics")
	withIDs := rapid.Bool().Draw(t, "ids")
	var tps []TP
	for i, name := range topics {
		for _, p := range rapid.SliceOfN(rapid.Int32Range(0, 50), 1, 5).Draw(t, "partitions") {
			tp := TP{Topic: name, Partition: p}
			if withIDs {
				tp.ID = [16]byte{byte(i + 1), 15: byte(rapid.IntRange(0, 1).Draw(t, "recreated"))}
			}
			tps = append(tps, tp)
		}
	}
	return sortTPs(tps)
}

// drawTxn is any metadata that a journal may hold.
func drawTxn(t *rapid.T) txn {
	x := newTxn(rapid.Int64().Draw(t, "pid"))
	x.prevPID = rapid.Int64Min(-1).Draw(t, "previous")
	x.nextPID = rapid.Int64Min(-1).Draw(t, "next")
	x.epoch = rapid.Int16Min(0).Draw(t, "epoch")
	x.lastEpoch = rapid.Int16Min(-1).Draw(t, "last")
	x.nextEpoch = rapid.Int16Min(-1).Draw(t, "next epoch")
	x.timeoutMs = rapid.Int32Min(1).Draw(t, "timeout")
	x.state = State(rapid.IntRange(int(Empty), int(CompleteAbort)).Draw(t, "state"))
	x.startMs = rapid.Int64Min(-1).Draw(t, "start")
	x.updateMs = rapid.Int64Min(-1).Draw(t, "update")
	x.clientTV = rapid.SampledFrom([]int16{0, 2}).Draw(t, "client")
	if x.state == Ongoing || x.state == PrepareCommit || x.state == PrepareAbort {
		if x.tps = drawTPs(t); x.tps == nil {
			x.tps = []TP{}
		}
	}
	if rapid.Bool().Draw(t, "foreign") {
		tag := rapid.Uint32Range(4, 999).Draw(t, "tag")
		x.unknown.Set(tag, rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "tag value"))
	}
	return x
}

func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTxn(t)
		remain := rapid.Int64Min(-1).Draw(t, "remaining")
		got, left, err := decodeValue(encodeValue(&want, remain))
		if err != nil || left != remain || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %d became %+v, %d, %v", want, remain, got, left, err)
		}
	})
}

// A reader that is not ours finds the same in what we write, and writes the same bytes.
func TestValueAgainstKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTxn(t)
		version := int16(rapid.IntRange(0, 1).Draw(t, "version"))
		b := appendValue(nil, version, &x, rapid.Int64Min(-1).Draw(t, "remaining"))
		var v kmsg.TxnMetadataValue
		if err := v.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		if again := v.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x, want %x", b, again)
		}
		id := rapid.String().Draw(t, "id")
		key := kmsg.TxnMetadataKey{TransactionalID: id}
		if want := key.AppendTo(nil); !bytes.Equal(encodeKey(id), want) {
			t.Fatalf("key %x, want %x", encodeKey(id), want)
		}
	})
}

// At value version 0 a record holds what Kafka's version 0 holds and no more.
func TestValueRoundTripVersion0(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTxn(t)
		got, left, err := decodeValue(appendValue(nil, 0, &want, 5))
		want.prevPID, want.nextPID, want.lastEpoch, want.nextEpoch, want.clientTV = -1, -1, -1, -1, 0
		want.unknown = newTxn(0).unknown
		for i := range want.tps {
			want.tps[i].ID = [16]byte{}
		}
		if want.tps != nil {
			want.tps = sortTPs(want.tps)
		}
		if err != nil || left != noRemaining || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v became %+v, %d, %v", want, got, left, err)
		}
	})
}

// Damage is told by an error, never by a panic or by a huge allocation.
func TestValueDamaged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTxn(t)
		b := encodeValue(&x, 7)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
		got, left, err := decodeValue(b[:rapid.IntRange(0, len(b)).Draw(t, "cut")])
		if err != nil {
			if !errors.Is(err, ErrRecord) && !errors.Is(err, ErrVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, left2, err := decodeValue(encodeValue(&got, left))
		if err != nil || left2 != left || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

func TestDecodeRecord(t *testing.T) {
	g := goldenValues[len(goldenValues)-1]
	in := Record{Key: encodeKey("txn-1"), Value: unhex(t, g.hex)}
	l, err := DecodeRecord(in)
	if err != nil || l.TxnID != "txn-1" || l.Deleted || l.State != Ongoing || l.LastEpoch != 1 || l.RemainingMs != 12345 {
		t.Fatalf("%+v, %v", l, err)
	}
	if out := l.Record(); !reflect.DeepEqual(out, in) {
		t.Fatalf("%x, want %x", out, in)
	}
	in.Value = nil
	l, err = DecodeRecord(in)
	if err != nil || l.TxnID != "txn-1" || !l.Deleted {
		t.Fatalf("tombstone: %+v, %v", l, err)
	}
	if out := l.Record(); !reflect.DeepEqual(out, in) {
		t.Fatalf("tombstone: %x, want %x", out, in)
	}
}
