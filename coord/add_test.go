package coord

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A client that changes from transaction version 1 to 2 writes with the epoch of the transaction before: its first
// registration waits until that one's Complete is durable (sameEpochAgain). No other client waits.
func TestFirstAddAfterVersion1Waits(t *testing.T) {
	for _, c := range []struct {
		ended, adds int8
		waits       bool
	}{{1, 2, true}, {1, 1, false}, {2, 2, false}, {2, 1, false}} {
		r := newRig(t)
		at := r.fresh("a")
		r.add("a", at, c.ended, tp("x", 0))
		r.sink.hold = true
		ended := r.end("a", at, c.ended, true)
		r.j.hold = true
		r.sink.flush()
		ended.want(t, nil) // Complete is written
		written, done := r.add("a", ended.out, c.adds, tp("x", 0))
		if c.waits {
			written.wantNone(t)
			if r.j.flushes == 0 {
				t.Fatal("nobody asked for the flush")
			}
			r.j.flush()
		}
		written.want(t, nil)
		done.wantNone(t)
		r.j.flush()
		done.want(t, nil)
		if x := r.state("a"); x.state != Ongoing {
			t.Fatalf("%+v: %+v", c, x)
		}
	}
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 1, tp("x", 0))
	r.sink.hold = true
	r.end("a", at, 1, true)
	r.j.hold = true
	r.sink.flush()
	written, done := r.add("a", at, 2, tp("x", 0))
	r.j.broken = errTest
	r.j.flush()
	written.want(t, kerr.NotCoordinator)
	done.want(t, kerr.NotCoordinator)
}
