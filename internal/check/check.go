// Package check is the only place of the program that panics. Its cheap assertions are always compiled in: an
// invariant that does not hold means that the next write could destroy acknowledged data, so the process stops and
// recovery, which trusts nothing but the files, decides what is true. Costly assertions stand behind the constant
// Costly.
//
// Every function may be called from any goroutine, under any lock; none of them allocates while the invariant
// holds. Conditions of the outside world (input of clients, errors of the disk) are never checked here, they are
// errors.
package check

import (
	"fmt"
	"strconv"
)

// Violation is the value of every panic of the program. Text names the invariant (I1..I15 of docs/INVARIANTS.md, or
// words) and the figures that broke it.
type Violation struct{ Text string }

// Error makes a Violation usable where a recovered value is reported as an error.
func (v *Violation) Error() string { return "invariant broken: " + v.Text }

// That panics with a *Violation unless ok. what is a constant text, so that nothing is built while all is well.
func That(ok bool, what string) {
	if !ok {
		fail(what)
	}
}

// Equal panics unless got and want are the same number.
func Equal(got, want int64, what string) {
	if got != want {
		fail(what + ": got " + itoa(got) + ", want " + itoa(want))
	}
}

// AtMost panics unless low <= high.
func AtMost(low, high int64, what string) {
	if low > high {
		fail(what + ": " + itoa(low) + " is above " + itoa(high))
	}
}

// Ordered panics unless a <= b <= c <= d, the form of invariant I1 (log start, last stable offset, high watermark,
// end).
func Ordered(a, b, c, d int64, what string) {
	if a > b || b > c || c > d {
		fail(what + ": " + itoa(a) + ", " + itoa(b) + ", " + itoa(c) + ", " + itoa(d) + " do not ascend")
	}
}

// NoError panics if err is not nil. It is for calls that cannot fail with the arguments given.
func NoError(err error, what string) {
	if err != nil {
		fail(what + ": " + err.Error())
	}
}

// Fail panics. It stands where control flow must not arrive; format and args are those of fmt.Sprintf.
func Fail(format string, args ...any) {
	fail(fmt.Sprintf(format, args...))
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

//go:noinline
func fail(text string) { panic(&Violation{Text: text}) }
