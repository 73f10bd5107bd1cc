package pidmap

import (
	"testing"
	"unsafe"
)

// TestEntrySize: 512 entries are exactly 11 pages of the runtime, and what Check reads lies in the first 68 bytes.
func TestEntrySize(t *testing.T) {
	if got := unsafe.Sizeof(entry{}); got != 176 {
		t.Fatalf("an entry has %d bytes, want 176", got)
	}
	var e entry
	if got := unsafe.Offsetof(e.crc); got != 68 {
		t.Fatalf("the part Check reads has %d bytes, want 68", got)
	}
	if got := unsafe.Sizeof(e) * chunkEntries % 8192; got != 0 {
		t.Fatalf("a chunk ends %d bytes into a page", got)
	}
}

// TestModulus64 compares every pair of the small modulus with arithmetic on unwrapped numbers.
func TestModulus64(t *testing.T) {
	const q = modulus(63)
	for a := range int64(64) {
		if got := q.next(int32(a)); int64(got) != (a+1)%64 {
			t.Fatalf("next(%d) = %d", a, got)
		}
		for d := range int64(64) {
			b := (a + d) % 64 // d after a
			if got := q.behind(int32(b), int32(a)); int64(got) != d {
				t.Fatalf("behind(%d, %d) = %d, want %d", b, a, got, d)
			}
			if got := q.delta(int32(a), int32(b)); int64(got) != d {
				t.Fatalf("delta(%d, %d) = %d, want %d", a, b, got, d)
			}
			if got := q.first(int32(b), int32(d)); int64(got) != a {
				t.Fatalf("first(%d, %d) = %d, want %d", b, d, got, a)
			}
			if got, want := q.after(int32(a), int32(b)), d > 0 && d < 32; got != want {
				t.Fatalf("after(%d, %d) = %v", a, b, got)
			}
		}
	}
	if q.next(noSequence) != 0 {
		t.Fatal("the number after none is not 0")
	}
	for span := range uint32(32) {
		for delta := range uint32(64) {
			if got, want := q.grown(span, delta), min(span+delta+1, 31); got != want {
				t.Fatalf("grown(%d, %d) = %d, want %d", span, delta, got, want)
			}
		}
	}
}

func TestModulusEdges(t *testing.T) {
	const q = modulus(1<<31 - 1)
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"next of the last number", int64(q.next(1<<31 - 1)), 0},
		{"next of none", int64(q.next(-1)), 0},
		{"behind across the wrap", int64(q.behind(1, 1<<31-2)), 3},
		{"delta across the wrap", int64(q.delta(1<<31-2, 0)), 2},
		{"first across the wrap", int64(q.first(0, 2)), 1<<31 - 2},
		{"saturation", int64(q.grown(1<<30-2, 5)), 1<<30 - 1},
		{"saturation of the largest", int64(q.grown(1<<30-1, 1<<31-1)), 1<<30 - 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	for s, want := range map[int32]bool{0: true, 1<<31 - 1: true, -1: false, -1 << 31: false} {
		if q.holds(s) != want {
			t.Errorf("holds(%d) = %v", s, !want)
		}
	}
	for s, want := range map[int32]bool{63: true, 64: false, -1: false} {
		if modulus(63).holds(s) != want {
			t.Errorf("modulo 64: holds(%d) = %v", s, !want)
		}
	}
}

func TestStamp(t *testing.T) {
	s := Stamp{LastSeq: 0, Delta: 2, Last: 102}
	if s.Base() != 100 || s.FirstSeq() != seqMod-2 {
		t.Fatalf("base %d, first sequence %d", s.Base(), s.FirstSeq())
	}
}
