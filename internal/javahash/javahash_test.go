package javahash

import (
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// The values are those of String.hashCode in a Java virtual machine.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		id          string
		hash        int32
		of50, of7   int32
		explanation string
	}{
		{"", 0, 0, 0, "empty"},
		{"a", 97, 47, 6, "one unit"},
		{"txn-1", 110810510, 10, 6, ""},
		{"payments-0", 1612905872, 22, 4, ""},
		{"my-transactional-id", -959806496, 46, 5, "negative"},
		{"polygenelubricants", -2147483648, 0, 0, "absolute value of the smallest int is 0"},
		{"überweisung", 534756355, 5, 0, "two UTF-8 bytes, one unit"},
		{"支付", 823177, 27, 5, "three UTF-8 bytes, one unit"},
		{"😀", 1772899, 49, 2, "a surrogate pair"},
		{"a😀b", 57849694, 44, 0, "a surrogate pair inside"},
		{"payments", 1382682413, 13, 0, ""},
		{"consumer-group", -1738392088, 38, 6, "negative"},
		{"Aa", 2112, 12, 5, "collides"},
		{"BB", 2112, 12, 5, "with this"},
	} {
		if h := Of(c.id); h != c.hash {
			t.Errorf("Of(%q) = %d, want %d (%s)", c.id, h, c.hash, c.explanation)
		}
		if p := Partition(c.id, 50); p != c.of50 {
			t.Errorf("Partition(%q, 50) = %d, want %d (%s)", c.id, p, c.of50, c.explanation)
		}
		if p := Partition(c.id, 7); p != c.of7 {
			t.Errorf("Partition(%q, 7) = %d, want %d (%s)", c.id, p, c.of7, c.explanation)
		}
	}
}

func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		n := rapid.Int32Range(1, 1000).Draw(t, "partitions")
		var h int32
		for _, u := range utf16.Encode([]rune(id)) {
			h = 31*h + int32(u)
		}
		if got := Of(id); got != h {
			t.Fatalf("Of(%q) = %d, want %d", id, got, h)
		}
		if p := Partition(id, n); p < 0 || p >= n {
			t.Fatalf("Partition(%q, %d) = %d", id, n, p)
		}
	})
}
