package fuzz

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"sekali/coord"
)

// FuzzTxnRecord reads arbitrary bytes as a record of __transaction_state. Properties: a refusal is one of the three
// typed errors, never a panic; what is read is written back to bytes that read the same, and are written the same from
// then on; states are ones that may be stored, and participants are sorted without repetition.
func FuzzTxnRecord(f *testing.F) {
	key := []byte("\x00\x00\x00\x05txn-1")
	f.Add(key, []byte(nil), true)
	for _, s := range []string{
		"0000000000000000126700030000ea60010000000100066f72646572730000000200000000000000010000018bcfe5687b0000018bcfe56800",
		"0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff00",
		"000100000000000012677fff7fffffff0202076f7264657273030000000000000001000000018bcfe5687b0000018bcfe56800" +
			"0300080000000000000fa00108000000000000138802020002",
		"0001000000000000000100020000000301030261030000000000000005000262020000000100000000000000000500000000000000060700" +
			"080000000000000007010800000000000000080202000203020009e807020001e907200102030405060708090a0b0c0d0e0f10111213" +
			"1415161718191a1b1c1d1e1f20ea07080000000000003039",
	} {
		b, err := hex.DecodeString(s)
		must(f, err)
		f.Add(key, b, false)
	}
	f.Fuzz(func(t *testing.T, key, value []byte, tombstone bool) {
		r := coord.Record{Key: key, Value: value}
		if tombstone {
			r.Value = nil
		} else if value == nil {
			r.Value = []byte{}
		}
		got, err := coord.DecodeRecord(r)
		if err != nil {
			if !errors.Is(err, coord.ErrRecord) && !errors.Is(err, coord.ErrVersion) && !errors.Is(err, coord.ErrKey) {
				t.Fatalf("untyped refusal: %v", err)
			}
			return
		}
		if got.Deleted != tombstone || got.State > coord.CompleteAbort {
			t.Fatalf("%+v", got)
		}
		for i := 1; i < len(got.TPs); i++ {
			if got.TPs[i] == got.TPs[i-1] || got.TPs[i].Topic < got.TPs[i-1].Topic {
				t.Fatalf("participants %v", got.TPs)
			}
		}
		out := got.Record()
		again, err := coord.DecodeRecord(out)
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
		if twice := again.Record(); !reflect.DeepEqual(twice, out) {
			t.Fatalf("written as %x, then as %x", out, twice)
		}
	})
}
