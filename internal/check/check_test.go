package check

import (
	"errors"
	"testing"
)

// violated runs fn and returns the text of its violation, or "".
func violated(t *testing.T, fn func()) (text string) {
	t.Helper()
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		v, ok := r.(*Violation)
		if !ok {
			t.Fatalf("panic value is %T, want *Violation", r)
		}
		text = v.Text
	}()
	fn()
	return ""
}

func TestViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func()
		want string
	}{
		{"that holds", func() { That(true, "x") }, ""},
		{"that fails", func() { That(false, "I2 size") }, "I2 size"},
		{"equal holds", func() { Equal(3, 3, "x") }, ""},
		{"equal fails", func() { Equal(3, 4, "I4 base") }, "I4 base: got 3, want 4"},
		{"at most holds", func() { AtMost(4, 4, "x") }, ""},
		{"at most fails", func() { AtMost(5, 4, "size") }, "size: 5 is above 4"},
		{"ordered holds", func() { Ordered(1, 1, 2, 9, "x") }, ""},
		{"ordered first", func() { Ordered(2, 1, 2, 9, "I1") }, "I1: 2, 1, 2, 9 do not ascend"},
		{"ordered second", func() { Ordered(1, 3, 2, 9, "I1") }, "I1: 1, 3, 2, 9 do not ascend"},
		{"ordered third", func() { Ordered(1, 1, 2, 0, "I1") }, "I1: 1, 1, 2, 0 do not ascend"},
		{"no error holds", func() { NoError(nil, "x") }, ""},
		{"no error fails", func() { NoError(errors.New("boom"), "encode") }, "encode: boom"},
		{"fail", func() { Fail("state %d", 7) }, "state 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := violated(t, c.fn); got != c.want {
				t.Fatalf("violation %q, want %q", got, c.want)
			}
		})
	}
}

func TestNoAllocationWhileAllIsWell(t *testing.T) {
	n := testing.AllocsPerRun(1000, func() {
		That(true, "a")
		Equal(1, 1, "b")
		AtMost(1, 2, "c")
		Ordered(1, 2, 3, 4, "d")
		NoError(nil, "e")
	})
	if n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}

func TestViolationIsAnError(t *testing.T) {
	var err error = &Violation{Text: "I1"}
	if err.Error() != "invariant broken: I1" {
		t.Fatal(err.Error())
	}
}
