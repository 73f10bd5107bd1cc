package fuzz

import (
	"bytes"
	"errors"
	"testing"

	"sekali/index"
)

// FuzzIndex feeds arbitrary bytes as the three index files of a segment. Properties: a refusal wraps ErrInvalid; what
// is accepted can be searched without a panic, every search agrees with a linear walk over the entries, and encoding
// the entries again gives the same bytes.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0x10, 0x40}, []byte{0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 5, 0, 0, 0, 4},
		make([]byte, index.TxnEntryLen), int64(0), int64(5000), int64(4))
	f.Add(make([]byte, 16), make([]byte, 24), []byte{}, int64(100), int64(1), int64(0))
	f.Add([]byte{0, 0, 0, 4}, []byte{1}, index.AppendTxnIndex(nil, []index.AbortedTxn{
		{PID: 1001, First: 100, Last: 103, Stable: 104}, {PID: 1002, First: 101, Last: 110, Stable: 111},
	}), int64(100), int64(1<<31), int64(105))
	f.Fuzz(func(t *testing.T, offset, time, aborted []byte, base, size, probe int64) {
		if base < 0 || base > 1<<40 {
			return
		}
		s, err := index.DecodeSealed(offset, time, aborted, base, size)
		if err != nil {
			if !errors.Is(err, index.ErrInvalid) {
				t.Fatalf("error without ErrInvalid: %v", err)
			}
			return
		}
		searches(t, s, offset, base, probe)
		timesAndAborts(t, s, time, aborted, base, probe)
	})
}

func searches(t *testing.T, s *index.Sealed, offset []byte, base, probe int64) {
	n := len(offset) / index.OffsetEntryLen
	byOffset, byPos := -1, -1
	x := index.NewActive(base, n+1)
	for i := range n {
		o, pos := index.OffsetAt(offset, i, base)
		if o <= probe {
			byOffset = i
		}
		if pos <= probe {
			byPos = i
		}
		x.Add(index.Entry{Rel: uint32(o - base), Pos: uint32(pos), MaxTime: index.NoTime})
	}
	if got := s.Search(probe); got != byOffset {
		t.Fatalf("Search(%d) = %d, want %d", probe, got, byOffset)
	}
	if got := s.SearchPos(probe); got != byPos {
		t.Fatalf("SearchPos(%d) = %d, want %d", probe, got, byPos)
	}
	if got := index.AppendOffsetIndex(nil, x, 0, n); !bytes.Equal(got, offset) {
		t.Fatalf("encoded again: %x, want %x", got, offset)
	}
}

func timesAndAborts(t *testing.T, s *index.Sealed, time, aborted []byte, base, probe int64) {
	want := base - 1
	for i := range len(time) / index.TimeEntryLen {
		if ms, o := index.TimeAt(time, i, base); ms < probe {
			want = o
		}
	}
	if got := s.FloorTime(probe); got != want {
		t.Fatalf("FloorTime(%d) = %d, want %d", probe, got, want)
	}
	var list []index.AbortedTxn
	var active index.Aborted
	for i := range len(aborted) / index.TxnEntryLen {
		_, a := index.TxnAt(aborted, i)
		active.Add(a)
		list = append(list, a)
	}
	if got := index.AppendTxnIndex(nil, list); !bytes.Equal(got, aborted) {
		t.Fatalf("encoded again: %x, want %x", got, aborted)
	}
	for _, to := range []int64{probe, probe + 1, probe + 100} {
		a, doneA := active.Overlap(nil, probe, to)
		b, doneB := s.Overlap(nil, probe, to)
		if len(a) != len(b) || doneA != doneB {
			t.Fatalf("[%d, %d): active %v %v, sealed %v %v", probe, to, a, doneA, b, doneB)
		}
	}
}
