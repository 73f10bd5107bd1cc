package meta

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawChange(t *rapid.T, rev Rev) Change {
	c := Change{Rev: rev, Ops: []Op{}}
	for range rapid.IntRange(0, 4).Draw(t, "ops") {
		op := Op{Key: rapid.StringN(1, 8, 20).Draw(t, "key")}
		if rapid.Bool().Draw(t, "put") {
			op.Value = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value")...)
		}
		c.Ops = append(c.Ops, op)
	}
	return c
}

func drawLog(t *rapid.T, base Rev) (raw []byte, changes []Change, ends []int64) {
	raw = appendLogHeader(nil, base)
	for i := range rapid.IntRange(1, 6).Draw(t, "records") {
		c := drawChange(t, base+Rev(i)+1)
		raw = appendRecord(raw, int64(len(raw)), c)
		changes, ends = append(changes, c), append(ends, int64(len(raw)))
	}
	return raw, changes, ends
}

func TestLogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := Rev(rapid.Int64Range(0, 1<<40).Draw(t, "base"))
		raw, changes, _ := drawLog(t, base)
		l, err := DecodeLog("x", raw)
		if err != nil || l.Base != base || l.End != int64(len(raw)) || l.Torn != nil {
			t.Fatalf("%+v, %v", l, err)
		}
		if !reflect.DeepEqual(l.Changes, changes) {
			t.Fatalf("%v, want %v", l.Changes, changes)
		}
	})
}

// A log cut anywhere keeps exactly the records that are whole.
func TestLogCutEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, changes, ends := drawLog(t, 0)
		for n := logHeaderLen; n < len(raw); n++ {
			l, err := DecodeLog("x", raw[:n])
			whole, _ := slices.BinarySearch(ends, int64(n)+1)
			if err != nil || len(l.Changes) != whole {
				t.Fatalf("cut at %d: %d records, want %d, %v", n, len(l.Changes), whole, err)
			}
			if whole > 0 && !reflect.DeepEqual(l.Changes, changes[:whole]) {
				t.Fatalf("cut at %d: %v", n, l.Changes)
			}
			atEnd := n == logHeaderLen || whole > 0 && ends[whole-1] == int64(n)
			if (l.Torn == nil) != atEnd {
				t.Fatalf("cut at %d: torn %v", n, l.Torn)
			}
		}
	})
}

// Any changed byte of a record before the last is damage and refuses the start; in the last one it is a torn
// record. The header and what it says about the base are covered too.
func TestLogFlippedByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, changes, ends := drawLog(t, 5)
		at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
		raw[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		l, err := DecodeLog("x", raw)
		lastFrom := logHeaderLen
		if n := len(ends); n > 1 {
			lastFrom = int(ends[n-2])
		}
		var damage *CorruptError
		if at < lastFrom {
			if !errors.As(err, &damage) || damage.Path != "x" || damage.Pos > int64(at) {
				t.Fatalf("byte %d changed: %v", at, err)
			}
			return
		}
		if err != nil || l.Torn == nil || l.End != int64(lastFrom) || len(l.Changes) != len(changes)-1 {
			t.Fatalf("byte %d of the last record changed: %+v, %v", at, l, err)
		}
	})
}

// A record copied to another place is no record, and a gap in the revisions is damage.
func TestLogStrangeRecords(t *testing.T) {
	op := []Op{{Key: "k", Value: []byte("v")}}
	head := appendLogHeader(nil, 0)
	one := appendRecord(slices.Clone(head), logHeaderLen, Change{Rev: 1, Ops: op})
	twice := append(slices.Clone(one), one[logHeaderLen:]...)
	if l, err := DecodeLog("x", twice); err != nil || len(l.Changes) != 1 || !errors.Is(l.Torn, errCRC) {
		t.Fatalf("%+v, %v", l, err)
	}
	gap := appendRecord(slices.Clone(one), int64(len(one)), Change{Rev: 3, Ops: op})
	if _, err := DecodeLog("x", gap); err == nil || err.Error() != "meta: x at byte 52: revision 3 follows 1" {
		t.Fatalf("%v", err)
	}
	inside := appendRecord(slices.Clone(head), logHeaderLen, Change{Rev: 1, Ops: []Op{{Key: "k", Value: twice}}})
	inside[logHeaderLen+2] = 9
	if l, err := DecodeLog("x", inside); err != nil || l.Torn == nil || len(l.Changes) != 0 {
		t.Fatalf("a record inside a value counted as one: %+v, %v", l, err)
	}
}

// Versions that this program does not know are refused, not cut.
func TestNewerVersions(t *testing.T) {
	head := appendLogHeader(nil, 0)
	head[5] = 2
	head = append(head[:16], appendLogHeader(nil, 0)[16:]...)
	if _, err := DecodeLog("x", head); !errors.Is(err, errCRC) {
		t.Fatalf("a header with a wrong checksum: %v", err)
	}
	raw := appendRecord(appendLogHeader(nil, 0), logHeaderLen, Change{Rev: 1})
	rec := raw[logHeaderLen:]
	rec[2] = 2
	sum := recordCRC(rec, logHeaderLen, rec[recordHeaderLen:])
	rec[8], rec[9], rec[10], rec[11] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	var damage *CorruptError
	if _, err := DecodeLog("x", raw); !errors.Is(err, errVersion) || !errors.As(err, &damage) {
		t.Fatalf("a record of version 2: %v", err)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, rev := &State{}, Rev(0)
		for range rapid.IntRange(0, 300).Draw(t, "changes") {
			rev++
			s = s.apply(drawChange(t, rev).Ops, rev)
		}
		raw := appendSnapshot(nil, s, rev)
		back, at, err := DecodeSnapshot("x", raw)
		if err != nil || at != rev || !bytes.Equal(appendSnapshot(nil, back, at), raw) {
			t.Fatalf("revision %d of %d, %d keys of %d, %v", at, rev, back.Len(), s.Len(), err)
		}
		i := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
		raw[i] ^= 0x40
		if _, _, err := DecodeSnapshot("x", raw); err == nil {
			t.Fatalf("byte %d changed unnoticed", i)
		}
		if _, _, err := DecodeSnapshot("x", raw[:i]); err == nil {
			t.Fatalf("cut at %d unnoticed", i)
		}
	})
}

// Random edits of a State match those of a map, and earlier states do not change.
func TestStateModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, model := &State{}, map[string]Rev{}
		var old *State
		var oldLen int
		for rev := Rev(1); rev < 40; rev++ {
			var ops []Op
			for range rapid.IntRange(0, 60).Draw(t, "ops") {
				op := Op{Key: rapid.StringMatching(`[ab][0-9]{0,3}`).Draw(t, "key")}
				if rapid.IntRange(0, 2).Draw(t, "put") > 0 {
					op.Value = []byte{}
				}
				ops = append(ops, op)
			}
			if rev == 20 {
				old, oldLen = s, s.Len()
			}
			s = s.apply(ops, rev)
			for _, op := range ops {
				if op.Value == nil {
					delete(model, op.Key)
				} else {
					model[op.Key] = rev
				}
			}
		}
		last, n := "", 0
		s.Range("", func(it Item) bool {
			if it.Key <= last || model[it.Key] != it.Rev {
				t.Fatalf("%+v after %q, want revision %d", it, last, model[it.Key])
			}
			if got, ok := s.Get(it.Key); !ok || got.Rev != it.Rev {
				t.Fatalf("get %q: %+v", it.Key, got)
			}
			last = it.Key
			n++
			return true
		})
		count := 0
		old.Range("", func(it Item) bool { count++; return it.Rev < 20 })
		if n != len(model) || s.Len() != n || count != oldLen || old.Len() != oldLen {
			t.Fatalf("%d keys of %d; the old state has %d of %d", n, len(model), count, oldLen)
		}
	})
}
