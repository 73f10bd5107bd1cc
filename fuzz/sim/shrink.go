package sim

import (
	"fmt"
	"time"
)

// again is how often a script that went wrong is played before it counts as one that does not.
const again = 5

// numbered is an operation of a script: its number says where it stood.
type numbered interface {
	fmt.Stringer
	number() int
}

func (o Op) number() int    { return o.N }
func (o TxnOp) number() int { return o.N }

// shrink looks for a shorter script that still goes wrong, by taking out runs of operations, long ones first, until no
// single one can be spared or the time is up. v is what the whole script found; a nil answer means that it does not go
// wrong again.
func shrink[O numbered](play func([]O) *Violation, ops []O, v *Violation, limit time.Duration) ([]O, *Violation) {
	until := time.Now().Add(limit)
	for i, o := range ops {
		if o.number() > v.Op {
			ops = ops[:i] // what came after it was never played
			break
		}
	}
	var found *Violation
	for tries := 0; found == nil; tries++ {
		if tries == again {
			return ops, nil
		}
		found = play(ops)
	}
	for size := (len(ops) + 1) / 2; size > 0 && time.Now().Before(until); {
		gone := false
		for at := 0; at < len(ops) && time.Now().Before(until); {
			fewer := append(append([]O{}, ops[:at]...), ops[min(at+size, len(ops)):]...)
			if x := play(fewer); x != nil {
				ops, found, gone = fewer, x, true
				continue
			}
			at += size
		}
		if !gone || size > 1 {
			size /= 2
		}
	}
	return ops, found
}
