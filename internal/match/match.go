// Package match compiles regular expressions that clients send. What one costs is bounded: it is known when it is
// compiled, not when somebody has waited for it.
package match

import (
	"errors"
	"regexp"
	"regexp/syntax"
)

// StepsMax bounds an expression: each letter of a name costs up to so many steps.
const StepsMax = 1000

// bytesMax bounds the text of an expression, which is parsed before its steps are known.
const bytesMax = 4096

// ErrSize refuses an expression that is too large.
var ErrSize = errors.New("match: regular expression too large")

// Whole compiles an expression that has to match the whole of a name (RE2 syntax, as KIP-848 and KIP-1152 want it).
// What
// groups capture is not kept. Errors are ErrSize and those of regexp. Any goroutine may call it.
func Whole(s string) (*regexp.Regexp, error) {
	if len(s) > bytesMax {
		return nil, ErrSize
	}
	tree, err := syntax.Parse(s, syntax.Perl) // by itself, so that it cannot close the group around it
	if err != nil {
		return nil, err
	}
	tree = withoutCaptures(tree)
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > StepsMax {
		return nil, ErrSize
	}
	return regexp.Compile(`\A(?:` + tree.String() + `)\z`)
}

// withoutCaptures takes out the groups that only remember what they matched: each costs memory for every step.
func withoutCaptures(re *syntax.Regexp) *syntax.Regexp {
	for i, sub := range re.Sub {
		re.Sub[i] = withoutCaptures(sub)
	}
	if re.Op == syntax.OpCapture {
		return re.Sub[0]
	}
	return re
}
