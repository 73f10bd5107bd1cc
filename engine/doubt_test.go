package engine

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestAckedBesideALostRegistration: a retry is sent though the registration of its transaction was lost, and the
// partition is offline while the coordinator is loaded anew, so that nobody misses it at the commit. What is
// acknowledged, then or later, is committed.
func TestAckedBesideALostRegistration(t *testing.T) {
	w, fs, tps, p, reload := lostRegistration(t)
	b := w.append("x", p, 0, true, func(*kerr.Error) {}, tps[0])[0]
	acked := b.Err == nil && b.Code == nil && !b.Registering
	reopen := w.breaks(fs, tps[0])
	reload()
	if !acked { // the client still waits
		reopen()
		w.client(p, 0, tps[0])
	}
	w.client(p, 0, tps[1])
	q := w.clientEnd(p, true)
	w.client(q, 0, tps[1]) // the next transaction has begun
	if acked {
		reopen()
	}
	w.hear()
	w.decided(tps[0])
	if w.abortedAt(tps[0], p.PID, 0) {
		t.Errorf("acknowledged (at once: %v) and committed, but dropped by read_committed readers: %+v", acked,
			w.log(tps[0]).Offsets())
	}
}
