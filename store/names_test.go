package store

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestI5Names: no topic name reaches outside the data directory (case I5).
func TestI5Names(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "a/b", "a\x00b", "a\nb", "a b", "é", "a:b", "a\\b",
		strings.Repeat("x", 250)} {
		if err := CheckName(name); !errors.Is(err, ErrInvalidName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "...", "-", "_", "a.b_c-D9", strings.Repeat("x", 249), ".hidden", "-1"} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParseDir(t *testing.T) {
	const uuid = "0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		name, topic string
		n           int32
		kind        dirKind
	}{
		{"a-0", "a", 0, dirLive},
		{"a-b-12", "a-b", 12, dirLive},
		{"a--1", "a-", 1, dirLive},
		{"x-delete-0", "x-delete", 0, dirLive},
		{"a.b.c-7", "a.b.c", 7, dirLive},
		{"a-2147483647", "a", 2147483647, dirLive},
		{"a-2147483648", "", 0, dirForeign},
		{"a-00", "", 0, dirForeign},
		{"a-+1", "", 0, dirForeign},
		{"a-", "", 0, dirForeign},
		{"-0", "", 0, dirForeign},
		{"lost+found", "", 0, dirForeign},
		{"sekali.meta", "", 0, dirForeign},
		{"a-0." + uuid + "-delete", "a", 0, dirDelete},
		{"a.b-c-3." + uuid + "-stray", "a.b-c", 3, dirStray},
		{"a-0." + uuid + "-future", "a", 0, dirFuture},
		{"a-0." + uuid[1:] + "-delete", "", 0, dirForeign},
		{"a-0." + strings.ToUpper(uuid) + "-delete", "", 0, dirForeign},
		{"a-0-delete", "", 0, dirForeign},
		{"a." + uuid + "-delete", "", 0, dirForeign},
	} {
		topic, n, kind := parseDir(c.name)
		if topic != c.topic || n != c.n || kind != c.kind {
			t.Errorf("%s: %q %d %d", c.name, topic, n, kind)
		}
		tp, moved, ok := ParseDir(c.name)
		if tp != (TP{Topic: c.topic, Partition: c.n}) || moved != movedSuffixes[c.kind] || ok != (c.kind != dirForeign) {
			t.Errorf("%s: %v %q %v", c.name, tp, moved, ok)
		}
	}
}

func TestDirNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.StringMatching(`[a-zA-Z0-9._-]{1,249}`).Filter(func(s string) bool {
			return CheckName(s) == nil
		}).Draw(t, "topic")
		n := rapid.Int32Range(0, PartitionsMax-1).Draw(t, "partition")
		if name := dirName(topic, n); len(name) > 255 {
			t.Fatalf("%s is %d long", name, len(name))
		} else if a, b, kind := parseDir(name); a != topic || b != n || kind != dirLive {
			t.Fatalf("%s: %s %d %d", name, a, b, kind)
		}
		kind := rapid.SampledFrom([]dirKind{dirDelete, dirStray, dirFuture}).Draw(t, "kind")
		name := movedName(topic, n, [16]byte{1, 2, 255}, kind)
		a, b, k := parseDir(name)
		if len(name) > 255 || b != n || k != kind || !strings.HasPrefix(topic, a) || len(topic) < 200 && a != topic {
			t.Fatalf("%s: %s %d %d", name, a, b, k)
		}
	})
}

func TestTopicIDs(t *testing.T) {
	for range 200 {
		id, err := newID(nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := id.String(); len(s) != 22 || s[0] == '-' {
			t.Fatalf("id %s", s)
		} else if back, err := ParseTopicID(s); err != nil || back != id {
			t.Fatalf("%s: %v, %v", s, back, err)
		}
	}
	for _, s := range []string{"", "short", strings.Repeat("A", 21), strings.Repeat("A", 23), strings.Repeat("!", 22),
		"AAAAAAAAAAAAAAAAAAAAAB"} {
		if _, err := ParseTopicID(s); err == nil {
			t.Errorf("%q passed for an id", s)
		}
	}
}
