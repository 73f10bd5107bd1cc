package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

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

// TestSampleBytes: files Kafka's own reader has read (segment with base offset 100).
func TestSampleBytes(t *testing.T) {
	x := NewActive(100, 10)
	x.Add(Entry{Rel: 4, Pos: 4160, TimeRel: 4, MaxTime: 0x18bcfe56805})
	txn := AbortedTxn{PID: 1001, First: 100, Last: 103, Stable: 104}
	offset, time := unhex(t, "0000000400001040"), unhex(t, "0000018bcfe5680500000004")
	aborted := unhex(t, "000000000000000003e9000000000000006400000000000000670000000000000068")
	if got := AppendOffsetIndex(nil, x, 0, 1); !bytes.Equal(got, offset) {
		t.Errorf(".index %x", got)
	}
	if got := AppendTimeIndex(nil, x, 0, 1); !bytes.Equal(got, time) {
		t.Errorf(".timeindex %x", got)
	}
	if got := AppendTxnIndex(nil, []AbortedTxn{txn}); !bytes.Equal(got, aborted) {
		t.Errorf(".txnindex %x", got)
	}
	if o, pos := OffsetAt(offset, 0, 100); o != 104 || pos != 4160 {
		t.Errorf("offset entry %d %d", o, pos)
	}
	if ms, o := TimeAt(time, 0, 100); ms != 0x18bcfe56805 || o != 104 {
		t.Errorf("time entry %d %d", ms, o)
	}
	if v, got := TxnAt(aborted, 0); v != 0 || got != txn {
		t.Errorf("txn entry %d %+v", v, got)
	}
}

func TestSealedAgainstActive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		list := entries(t, 200)
		x := NewActive(base, 1000)
		for _, e := range list {
			x.Add(e)
		}
		split := rapid.IntRange(0, len(list)).Draw(t, "split")
		offset := AppendOffsetIndex(AppendOffsetIndex(nil, x, 0, split), x, split, len(list))
		time := AppendTimeIndex(AppendTimeIndex(nil, x, 0, split), x, split, len(list))
		if len(offset) != OffsetEntryLen*len(list) || len(time) != TimeEntryLen*x.Times() {
			t.Fatalf("%d and %d bytes of %d entries, %d times", len(offset), len(time), len(list), x.Times())
		}
		size := int64(1)
		if len(list) > 0 {
			size += int64(list[len(list)-1].Pos)
		}
		s, err := DecodeSealed(offset, time, nil, base, size)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() != len(list) {
			t.Fatalf("%d entries, want %d", s.Len(), len(list))
		}
		for range 20 {
			o := base + rapid.Int64Range(-10, 9000).Draw(t, "offset")
			pos := rapid.Int64Range(-10, 1_500_000).Draw(t, "at")
			ms := rapid.Int64Range(-2, 60_000).Draw(t, "time")
			if s.Floor(o) != x.Floor(o) || s.Search(o) != x.Search(o) {
				t.Fatalf("Floor(%d) %d, active %d", o, s.Floor(o), x.Floor(o))
			}
			if s.FloorPos(pos) != x.FloorPos(pos) || s.SearchPos(pos) != x.SearchPos(pos) {
				t.Fatalf("FloorPos(%d) %d, active %d", pos, s.FloorPos(pos), x.FloorPos(pos))
			}
			// The time entry names the batch that holds the time: the search begins at or before where Active's does,
			// and the entry whose time reaches ms lies behind it.
			want := base - 1
			for _, e := range list {
				if e.MaxTime >= 0 && e.MaxTime < ms {
					want = base + int64(e.TimeRel)
				}
			}
			if got := s.FloorTime(ms); got != want {
				t.Fatalf("FloorTime(%d) = %d, want %d", ms, got, want)
			}
			if s.Floor(s.FloorTime(ms)) > x.FloorTime(ms) {
				t.Fatalf("FloorTime(%d): sealed begins at %d, active at %d", ms, s.Floor(s.FloorTime(ms)), x.FloorTime(ms))
			}
		}
	})
}

func TestOverlap(t *testing.T) {
	list := []AbortedTxn{
		{PID: 1, First: 10, Last: 20, Stable: 15},
		{PID: 2, First: 15, Last: 25, Stable: 26},
		{PID: 1, First: 30, Last: 40, Stable: 28},
		{PID: 3, First: 28, Last: 41, Stable: 42},
	}
	for _, c := range []struct {
		from, to int64
		want     []int // of list
		done     bool
	}{
		{0, 10, nil, true},
		{0, 11, []int{0}, true},
		{20, 21, []int{0, 1}, true},
		{21, 26, []int{1}, true},
		{21, 27, []int{1}, true},
		{26, 28, nil, true},
		{26, 29, []int{3}, true},
		{26, 42, []int{2, 3}, true},
		{26, 43, []int{2, 3}, false},
		{41, 43, []int{3}, false},
		{42, 100, nil, false},
	} {
		var want []AbortedTxn
		for _, i := range c.want {
			want = append(want, list[i])
		}
		var a Aborted
		for _, x := range list {
			a.Add(x)
		}
		if got, done := a.Overlap(nil, c.from, c.to); !slices.Equal(got, want) || done != c.done {
			t.Errorf("active [%d, %d): %v %v, want %v %v", c.from, c.to, got, done, want, c.done)
		}
		s, err := DecodeSealed(nil, nil, AppendTxnIndex(nil, list), 12, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, done := s.Overlap(nil, c.from, c.to); !slices.Equal(got, want) || done != c.done {
			t.Errorf("sealed [%d, %d): %v %v, want %v %v", c.from, c.to, got, done, want, c.done)
		}
	}
}

func TestAbortedTruncateLeavesOldHeadersAlone(t *testing.T) {
	var a Aborted
	for i := range int64(5) {
		a.Add(AbortedTxn{PID: i, Last: 10 * i})
	}
	old := a.All()
	a.Truncate(20)
	a.Add(AbortedTxn{PID: 77, Last: 25})
	if old[2].PID != 2 || len(old) != 5 {
		t.Fatalf("an old header changed: %v", old)
	}
	if got := a.All(); len(got) != 3 || got[1].PID != 1 || got[2].PID != 77 {
		t.Fatalf("after truncate and add: %v", got)
	}
	a.Truncate(1000)
	if len(a.All()) != 3 {
		t.Fatal("truncate above the last marker removed something")
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	good := unhex(t, "0000000400001040"+"0000000900002080")
	for _, c := range []struct {
		name                  string
		offset, time, aborted string
		size                  int64
		ok                    bool
	}{
		{"empty", "", "", "", 0, true},
		{"sound", "0000000400001040", "000000000000000100000004", "", 5000, true},
		{"offset cut", "00000004000010", "", "", 5000, false},
		{"offset zero tail", "00000004000010400000000000000000", "", "", 5000, false},
		{"offset all zero", "0000000000000000", "", "", 5000, false},
		{"offset repeats", "00000004000010400000000400002000", "", "", 9000, false},
		{"position repeats", "00000004000010400000000500001040", "", "", 9000, false},
		{"offset 0", "0000000000001040", "", "", 5000, false},
		{"position at the end", "0000000400001040", "", "", 4160, false},
		{"offset above 2^31", "8000000400001040", "", "", 9000, false},
		{"position above 2^31", "0000000480001040", "", "", 1 << 32, false},
		{"time cut", "", "00000000000000010000", "", 1, false},
		{"time repeats", "", "000000000000000100000004" + "000000000000000100000005", "", 1, false},
		{"time falls", "", "000000000000000200000004" + "000000000000000100000005", "", 1, false},
		{"time offset falls", "", "000000000000000100000004" + "000000000000000200000003", "", 1, false},
		{"time negative", "", "ffffffffffffffff00000004", "", 1, false},
		{"time zero tail", "", "000000000000000100000004" + "000000000000000000000000", "", 1, false},
		{"txn cut", "", "", "0000", 1, false},
		{"txn zero tail", "", "", "000000000000000003e900000000000000640000000000000067000000000000006800000000000000" +
			"000000000000000000000000000000000000000000000000000000", 1, false},
		{"txn version", "", "", "000100000000000003e9000000000000006400000000000000670000000000000068", 1, false},
		{"txn ends before", "", "", "000000000000000003e9000000000000006800000000000000670000000000000068", 1, false},
		{"txn of another segment", "", "", "000000000000000003e9000000000000000100000000000000020000000000000068", 1, false},
	} {
		_, err := DecodeSealed(unhex(t, c.offset), unhex(t, c.time), unhex(t, c.aborted), 100, c.size)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := CheckOffsetIndex(good, 9000); err != nil {
		t.Error(err)
	}
}
