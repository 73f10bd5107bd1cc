//go:build !sekali_smallseq

package batch

import (
	"testing"

	"pgregory.net/rapid"
)

const seqLast = 1<<31 - 1

func TestSeqTable(t *testing.T) {
	for _, x := range []struct {
		last, next int32
		after      bool
	}{
		{-1, 0, true}, {0, 1, true}, {seqLast, 0, true}, {seqLast - 1, seqLast, true},
		{0, 0, false}, {0, 2, false}, {5, 4, false}, {seqLast, 1, false}, {seqLast, -1 << 31, false}, {-1, 1, false},
	} {
		if got := SeqAfter(x.last, x.next); got != x.after {
			t.Fatal(x, got)
		}
	}
	for _, x := range []struct {
		last, first int32
		behind      bool
	}{
		{10, 10, true}, {10, 9, true}, {10, 0, true}, {10, 11, false}, {10, seqLast, true}, {0, seqLast, true},
		{seqLast, 0, false}, {seqLast, seqLast - 5, true}, {0, 1, false},
		{0, 1<<30 + 1, true}, {0, 1 << 30, false}, // the border of the half ranges
		{1<<30 - 1, 0, true}, {1 << 30, 0, false},
	} {
		if got := SeqBehind(x.last, x.first); got != x.behind {
			t.Fatal(x, got)
		}
	}
}

func TestSeqArithmetic(t *testing.T) {
	const m = int64(1) << 31
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.SampledFrom([]int32{0, 1, 2, 1<<30 - 1, 1 << 30, 1<<30 + 1, seqLast - 1, seqLast})
		a := rapid.OneOf(rapid.Int32Range(0, seqLast), near).Draw(t, "a")
		n := rapid.OneOf(rapid.Int32Range(0, seqLast), near).Draw(t, "n")
		sum := SeqAdd(a, n)
		if int64(sum) != (int64(a)+int64(n))%m {
			t.Fatalf("%d + %d = %d", a, n, sum)
		}
		if d := SeqDistance(a, sum); d != n {
			t.Fatalf("from %d to %d is %d, want %d", a, sum, d, n)
		}
		if SeqAdd(sum, -n) != a {
			t.Fatalf("%d - %d", sum, n)
		}
		if SeqAfter(a, sum) != (n == 1) {
			t.Fatalf("%d after %d", sum, a)
		}
		if SeqBehind(sum, a) != (int64(n) < m/2) {
			t.Fatalf("%d behind %d", a, sum)
		}
	})
}

func TestSequenceUsesDelta(t *testing.T) {
	for _, x := range []struct{ first, delta, count, wantFirst, wantLast int32 }{
		{0, 0, 1, 0, 0},
		{2147483647, 0, 1, 2147483647, 2147483647},
		{2147483647, 1, 2, 2147483647, 0},
		{2147483646, 2, 3, 2147483646, 0},
		{5, 9, 3, 5, 14}, // compaction removed seven records
		{-1, 4, 5, -1, -1},
		{-7, 4, 5, -1, -1},
	} {
		d := plainDraft(1)
		d.seq, d.delta, d.count = x.first, x.delta, x.count
		first, last := d.view().Sequence()
		if first != x.wantFirst || last != x.wantLast {
			t.Fatal(x, first, last)
		}
	}
}
