package match

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWhole: what is taken, what is refused, and that the whole name counts.
func TestWhole(t *testing.T) {
	for re, ok := range map[string]bool{
		"": true, "orders-.*": true, "(a|b)(c(d))?": true, "[a-z]{1,20}-(eu|us)": true, "(?i)Orders": true,
		strings.Repeat("(a?)", 900): false, "(a{500}){2}": false, strings.Repeat("a", 4097): false, "a)(b": false,
		"a{1000}": false,
	} {
		got, err := Whole(re)
		if (err == nil) != ok {
			t.Errorf("%.20s: %v, want ok %v", re, err, ok)
		}
		if err == nil && got.NumSubexp() != 0 {
			t.Errorf("%s: %d captures", re, got.NumSubexp())
		}
	}
	if _, err := Whole("(a{500}){2}"); !errors.Is(err, ErrSize) {
		t.Errorf("a large one: %v", err)
	}
	re, err := Whole("(a|b)c?")
	if err != nil || !re.MatchString("bc") || re.MatchString("xbc") || re.MatchString("abc") || re.MatchString("bc\n") {
		t.Errorf("%v %v", re, err)
	}
}

// TestWithoutCaptures: an expression means the same without its captures.
func TestWithoutCaptures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`(\(?[ab][*+?]?\|?[ab]\)?[*+?]?){1,4}`).Draw(t, "expression")
		want, err := regexp.Compile(`\A(?:` + s + `)\z`)
		got, err2 := Whole(s)
		if err != nil || err2 != nil {
			if _, alone := regexp.Compile(s); (alone == nil) != (err2 == nil) {
				t.Fatalf("%s: %v and %v", s, alone, err2)
			}
			return
		}
		name := rapid.StringMatching(`[ab]{0,6}`).Draw(t, "name")
		if want.MatchString(name) != got.MatchString(name) {
			t.Fatalf("%s on %s: %v, want %v", s, name, got.MatchString(name), want.MatchString(name))
		}
	})
}
