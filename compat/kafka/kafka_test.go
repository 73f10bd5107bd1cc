package main

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented: docs/protocol.md has the list of differences as the code has it.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), tableBegin)
	table, _, end := strings.Cut(rest, tableEnd)
	if !ok || !end || tableBegin+table+tableEnd+"\n" != differencesTable() {
		t.Error("the table of differences in docs/protocol.md is not that of compat/kafka: write it by go run ./kafka -table")
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"a*", "ab", true}, {"*b", "ab", true}, {"a*c", "abc", true},
		{"a*c*e", "abcde", true}, {"a*c*e", "abde", false}, {"a*a", "a", false}, {"", "a", false}, {"", "", true},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.text, got)
		}
	}
}

// TestJudge: a difference that is not expected fails a run, and so does one that is expected and not seen, or seen more
// often, and none of them where the script did not run.
func TestJudge(t *testing.T) {
	expected := []expectation{{script: "s", steps: []string{"x *"}, kafka: "1", sekali: "2*", count: 2}}
	d := func(step, kafka, sekali string) difference { return difference{"s", step, kafka, sekali} }
	both := []difference{d("x 1", "1", "2"), d("x 2", "1", "23")}
	ran := func(string) bool { return true }
	for name, c := range map[string]struct {
		found []difference
		ran   func(string) bool
		want  int
	}{
		"as expected": {both, ran, 0}, "one less": {both[:1], ran, 1}, "one more": {append(both, d("x 3", "1", "2")), ran, 1},
		"other step": {append(both, d("y", "1", "2")), ran, 1}, "other value": {append(both, d("x 3", "9", "2")), ran, 1},
		"other answer": {append(both, d("x 3", "1", "9")), ran, 1}, "not run": {nil, func(string) bool { return false }, 0},
	} {
		if got := judge(c.found, expected, c.ran); len(got) != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestCompare(t *testing.T) {
	a := []observation{{"1", "x"}, {"2", "y"}, {"3", "z"}}
	b := []observation{{"1", "x"}, {"3", "other"}, {"4", "new"}}
	found, steps := compare("s", a, b)
	want := []difference{{"s", "2", "y", ""}, {"s", "3", "z", "other"}, {"s", "4", "", "new"}}
	if steps != 4 || len(found) != len(want) {
		t.Fatalf("%d steps, %v", steps, found)
	}
	for i := range want {
		if found[i] != want[i] {
			t.Errorf("%v, want %v", found[i], want[i])
		}
	}
}

// TestMessage: a batch written by hand against a vector from Kafka's own writer: one record, null key, value "hi".
func TestMessage(t *testing.T) {
	m := of(rec{value: []byte("hi")})
	m.baseTime, m.maxTime = 1_700_000_000_000, 1_700_000_000_000
	const want = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x3a\xff\xff\xff\xff\x02\xbb\xcc\x41\x15\x00\x00\x00\x00\x00\x00" +
		"\x00\x00\x01\x8b\xcf\xe5\x68\x00\x00\x00\x01\x8b\xcf\xe5\x68\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\x00\x00\x00\x01\x10\x00\x00\x00\x01\x04\x68\x69\x00"
	if got := string(m.bytes()); got != want {
		t.Errorf("% x", got)
	}
}

// TestWords: what the dump tool always prints is left out, what it should not print is seen.
func TestWords(t *testing.T) {
	always := "Dumping /d/t-0/00000000000000000555.log\n| offset: 555 payload: corrupt exception\n" +
		"Non-consecutive offsets in /d/t-0/00000000000000000555.log\n  -1 is followed by 555\n"
	if bad := complaint.FindAllString(words(always), -1); bad != nil {
		t.Errorf("%q", bad)
	}
	for _, line := range []string{"Mismatches in :/d/t-0/1.index", "Index timestamp mismatch", "Found 3 invalid bytes, trailing",
		"Non-consecutive offsets in /d/t-0/00000000000000000555.log\n  -1 is followed by 555\n  560 is followed by 562",
		"Non-consecutive offsets in /d/t-0/00000000000000000555.log\n  -1 is followed by 556",
		"baseOffset: 1 isvalid: false", "Exception in thread", "Found out of order timestamp", "Snapshot is corrupt"} {
		if bad := complaint.FindAllString(words(always+line), -1); bad == nil {
			t.Errorf("%q is not seen", line)
		}
	}
}

// TestScriptsAreExplained: every expectation is about a script that is there.
func TestScriptsAreExplained(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scripts() {
		if names[s.name] {
			t.Errorf("two scripts are called %s", s.name)
		}
		names[s.name] = true
	}
	for _, e := range expectations() {
		if !names[e.script] || e.count < 1 || e.reason == "" {
			t.Errorf("%s / %v: script there %v, count %d, reason %q", e.script, e.steps, names[e.script], e.count, e.reason)
		}
	}
}
