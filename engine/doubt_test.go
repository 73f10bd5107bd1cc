package engine

import (
	"syscall"
	"testing"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestAckedBesideALostRegistration: a retry is answered though the registration of its transaction was lost; the
// partition is offline while the coordinator is loaded anew, so that nobody misses it at the commit.
func TestAckedBesideALostRegistration(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tps := w.topic("a", 2)
	p := w.init("x")
	told := make(chan *kerr.Error, 16)
	tell := func(code *kerr.Error) { told <- code }
	reload := w.failJournal(fs, "x")
	b := w.append("x", p, 0, true, tell, tps[0])[0]
	if code := soon(t, "the registration", told); code == nil || b.Err != nil || b.Code != nil {
		t.Fatalf("registration %v; batch %v %v", code, b.Err, b.Code)
	}
	w.flushed(tps[0])
	b = w.append("x", p, 0, true, tell, tps[0])[0]
	acked := b.Err == nil && b.Code == nil && !b.Registering
	t.Logf("the retry: %v %v, duplicate %v, registering %v", b.Err, b.Code, b.Out.Duplicate, b.Registering)
	at := store.TP{Topic: "a", ID: tps[0].ID}
	fs.FailSync(dataDir+"/a-0/*.log", 1, syscall.EIO)
	l := w.log(tps[0])
	if _, err := l.AppendMarker(markerOfAStranger(), false); err != nil { // anything that is flushed
		t.Fatal(err)
	}
	eventually(t, "the failure", func() bool { l, err := w.s.Partition(at); return err != nil || l.Err() != nil })
	reload()
	if !acked {
		return // the client still waits: well
	}
	w.client(p, 0, tps[1])
	q := w.clientEnd(p, true)
	t.Log("commit answered")
	w.client(q, 0, tps[1]) // the next transaction has begun
	if err := w.s.Reopen(at); err != nil {
		t.Fatal(err)
	}
	w.hear()
	w.decided(tps[0])
	if w.abortedAt(tps[0], p.PID, 0) {
		t.Errorf("acknowledged and committed, but dropped by read_committed readers: %+v", w.log(tps[0]).Offsets())
	}
}

func markerOfAStranger() batch.Marker {
	return batch.Marker{PID: 1 << 40, Epoch: 1, CoordEpoch: 1, Commit: true, Time: 1_700_000_000_000}
}
