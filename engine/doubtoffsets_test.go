package engine

import (
	"fmt"
	"syscall"
	"testing"

	"sekali/coord"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestOffsetsAckedBesideALostRegistration: as TestAckedBesideALostRegistration, with the offsets of a group.
// What broker.commitTxn does stands in stage.
func TestOffsetsAckedBesideALostRegistration(t *testing.T) {
	fs := vfs.NewMem()
	w := start(t, fs, nil)
	w.ensure()
	tp := w.topic("a", 1)[0]
	owner, _ := w.e.OffsetsTP("g")
	p := w.init("x")
	stage := func(offset int64) (code, lost *kerr.Error) {
		told := make(chan *kerr.Error, 1)
		in := group.CommitIn{Member: group.Member{Group: "g"}, Version: 5, PID: p.PID, Epoch: p.Epoch, RetainMs: -1,
			TPs: []group.TP{group.TP(tp)}, Offsets: []group.Offset{{Offset: offset, LeaderEpoch: -1}}}
		code, guard := w.commit(in)
		if guard == 0 {
			return code, nil
		}
		part := coord.Part{TxnID: "x", PID: p.PID, Epoch: p.Epoch, TPs: []coord.TP{owner}}
		if code := w.e.Confirm(part, true, func(code *kerr.Error) { told <- code })[0]; code != nil {
			return code, nil
		}
		in.Guard = guard
		code, _ = w.commit(in)
		lost = soon(t, "the registration", told)
		if lost != nil {
			w.e.Doubt(part) // as commitTxn does now
		}
		return code, lost
	}
	reload := w.failJournal(fs, "x")
	if code, lost := stage(20); code != nil || lost == nil {
		t.Fatalf("staged: %v, %v", code, lost)
	}
	if code, lost := stage(20); code != nil || lost != nil {
		t.Logf("the retry is refused: %v %v", code, lost)
		return // well
	}
	t.Log("the retry of TxnOffsetCommit is answered")
	at := store.TP{Topic: OffsetsTopic, ID: owner.ID, Partition: owner.Partition}
	fs.FailSync(fmt.Sprintf("%s/%s-%d/*.log", dataDir, OffsetsTopic, owner.Partition), 1, syscall.EIO)
	if _, err := w.log(owner).AppendMarker(markerOfAStranger(), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failure", func() bool { l, err := w.s.Partition(at); return err != nil || l.Err() != nil })
	reload()
	w.client(p, 0, tp) // the output
	q := w.clientEnd(p, true)
	t.Log("commit answered")
	w.client(q, 0, tp)
	if err := w.s.Reopen(at); err != nil {
		t.Fatal(err)
	}
	w.hear()
	w.decided(owner)
	if got, code := w.committed("g", tp); got != 20 || code != nil {
		t.Errorf("the output is committed, and the group is at %d, %v; want 20: its input will be worked on twice",
			got, code)
	}
}
