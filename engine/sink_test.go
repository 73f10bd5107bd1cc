package engine

import (
	"errors"
	"math"
	"testing"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A partition that has seen a coordinator epoch above that of this start, as an administrator may name one in
// WriteTxnMarkers and as a directory of Kafka's has them, takes the markers of the coordinator all the same, in
// this start and in the next one.
func TestMarkersAfterAHigherCoordinatorEpoch(t *testing.T) {
	for _, again := range []bool{false, true} {
		fs := vfs.NewMem()
		w := start(t, fs, nil)
		w.ensure()
		tps := w.topic("a", 2)
		p := w.init("x")
		for _, tp := range tps {
			answer := make(chan error, 1)
			m := batch.Marker{PID: p.PID, Epoch: p.Epoch, CoordEpoch: math.MaxInt32}
			w.e.WriteMarker(tp, m, false, func(err error) { answer <- err })
			if err := soon(t, "the marker of the administrator", answer); err != nil {
				t.Fatal(err)
			}
		}
		if b := w.append("x", p, 0, true, func(*kerr.Error) {}, tps...); b[0].Err != nil || b[1].Err != nil {
			t.Fatal(b[0].Err, b[1].Err)
		}
		for _, tp := range tps {
			w.flushed(tp)
		}
		if again {
			fs = fs.Kill()
			w.stop()
			w = start(t, fs, nil)
		}
		eventually(t, "the commit", func() bool {
			_, code := w.end("x", p, true)
			if code != nil && code != kerr.ConcurrentTransactions {
				t.Fatal(code)
			}
			return code == nil
		})
		for _, tp := range tps {
			if at := w.log(tp).Offsets(); at.Stable != 3 || at.End != 3 {
				t.Errorf("%s-%d, started again: %v: stable %d of %d, want 3", tp.Topic, tp.Partition, again,
					at.Stable, at.End)
			}
		}
		if err := lateMarker(w, tps[0], p); !errors.Is(err, coord.ErrFenced) {
			t.Errorf("a marker of an older producer epoch: %v", err)
		}
		w.stop()
	}
}

// lateMarker writes a marker of the coordinator's for an epoch that is over.
func lateMarker(w *world, tp coord.TP, p coord.InitOut) error {
	answer := make(chan error, 1)
	old := batch.Marker{PID: p.PID, Epoch: p.Epoch, CoordEpoch: 1}
	sink{w.e}.Marker(tp, old, false, func(err error) { answer <- err })
	return soon(w.t, "an answer", answer)
}
