package group

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestConsumerCommitTable are the rows of spec groups.md 2.1 and 2.3 for groups of the consumer protocol. The member m
// has epoch 1 and all of orders.
func TestConsumerCommitTable(t *testing.T) {
	const plainPID, txnPID = -1, 9
	for _, r := range []struct {
		name    string
		pid     int64
		version int16
		member  string
		epoch   int32
		left    bool // m has left: the group is empty
		want    *kerr.Error
	}{
		{"its epoch", plainPID, 9, "m", 1, false, nil},
		{"later epoch", plainPID, 9, "m", 2, false, kerr.StaleMemberEpoch},
		{"older epoch", plainPID, 9, "m", 0, false, kerr.StaleMemberEpoch},
		{"unknown member", plainPID, 9, "x", 1, false, kerr.UnknownMemberID},
		{"nothing given, members", plainPID, 9, "", -1, false, kerr.UnknownMemberID},
		{"nothing given, empty", plainPID, 9, "", -1, true, nil},
		{"its epoch, old version", plainPID, 8, "m", 1, false, kerr.UnsupportedVersion},
		{"unknown member, old version", plainPID, 8, "x", 1, false, kerr.UnknownMemberID},
		{"nothing given, empty, old version", plainPID, 2, "", -1, true, nil},
		{"its epoch", txnPID, 6, "m", 1, false, nil},
		{"its epoch", txnPID, 3, "m", 1, false, nil},
		{"later epoch", txnPID, 6, "m", 2, false, kerr.StaleMemberEpoch},
		{"later epoch", txnPID, 5, "m", 2, false, kerr.IllegalGeneration},
		{"unknown member", txnPID, 6, "x", 1, false, kerr.UnknownMemberID},
		{"unknown member", txnPID, 3, "x", 1, false, kerr.UnknownMemberID},
		{"nothing given, empty", txnPID, 6, "", -1, true, nil},
		{"nothing given, empty", txnPID, 0, "", -1, true, nil},
	} {
		w := newConsumerWorld(t)
		w.ok(w.pulse(joins("m", "orders")), 1)
		if r.left {
			w.ok(w.pulse(beats("m", -1, nil)), -1)
		}
		in := plain("g", 0, 5)
		in.PID, in.Version, in.Member.Member, in.Generation = r.pid, r.version, r.member, r.epoch
		if r.pid >= 0 {
			in.Epoch = 3
		}
		before := w.j.End()
		a := w.stage(in)
		if a.n != 1 || a.guard != 0 || !slices.Equal(a.codes, []*kerr.Error{r.want}) {
			t.Errorf("%s, pid %d, version %d: answered %+v, want %v", r.name, r.pid, r.version, a, r.want)
			continue
		}
		if grown := w.j.End() - before; (grown == 1) != (r.want == nil) {
			t.Errorf("%s, pid %d, version %d: %d records written", r.name, r.pid, r.version, grown)
		}
		if r.pid >= 0 {
			w.end(r.pid, true)
		}
		want := int64(5)
		if r.want != nil {
			want = -1
		}
		for range 2 {
			if got := w.offset("g", 0, true); got != want {
				t.Errorf("%s, pid %d, version %d: holds %d", r.name, r.pid, r.version, got)
			}
			w.restart()
			if w.group("g").consumer == nil {
				t.Fatalf("%s: the group changed its type over a restart", r.name)
			}
		}
	}
}

// TestConsumerFetchTable: the member of an OffsetFetch (spec groups.md 2.2).
func TestConsumerFetchTable(t *testing.T) {
	w := newConsumerWorld(t)
	w.ok(w.pulse(joins("m", "orders")), 1)
	for _, r := range []struct {
		member string
		epoch  int32
		want   *kerr.Error
	}{
		{"", -1, nil}, {"m", 1, nil}, {"m", 0, kerr.StaleMemberEpoch}, {"m", 2, kerr.StaleMemberEpoch},
		{"x", 1, kerr.UnknownMemberID},
	} {
		n := 0
		in := FetchIn{Member: Member{Group: "g", Member: r.member, Generation: r.epoch}, TPs: []TP{{Topic: "orders"}}}
		w.m.Fetch(in, func(_ map[TP]Fetched, code *kerr.Error) {
			if n++; code != r.want {
				t.Errorf("member %q, epoch %d: %v, want %v", r.member, r.epoch, code, r.want)
			}
		})
		if n != 1 {
			t.Errorf("answered %d times", n)
		}
	}
}

// TestConsumerExpiryTable are the rows of spec groups.md 2.4 for groups of the consumer protocol.
func TestConsumerExpiryTable(t *testing.T) {
	for _, r := range []struct {
		name      string
		subscribe string
		left      time.Duration // the member leaves so long after the commit; 0: stays
		at        time.Duration // 0: never
	}{
		{"subscribed", "orders", 0, 0},
		{"not subscribed", "bills", 0, day},
		{"empty, since it is empty", "orders", 12 * time.Hour, 36 * time.Hour},
	} {
		w := expiryWorld(t)
		w.ok(w.pulse(joins("m", r.subscribe)), 1)
		in := plain("g", 0, 5)
		in.Member.Member, in.Generation = "m", 1
		w.mustCommit(in)
		start := w.clk.Wall()
		if r.left > 0 {
			w.clk.SetWall(start + r.left.Milliseconds())
			w.ok(w.pulse(beats("m", -1, nil)), -1)
		}
		at := r.at
		if at == 0 {
			at = 100 * day
		}
		w.clk.SetWall(start + at.Milliseconds() - 1)
		w.pass(0)
		if got := w.offset("g", 0, false); got != 5 {
			t.Errorf("%s: gone before its time", r.name)
		}
		w.pass(time.Millisecond)
		if gone := w.offset("g", 0, false) == -1; gone != (r.at != 0) {
			t.Errorf("%s: gone %v", r.name, gone)
		}
		if gone := w.group("g") == nil; gone != (r.left > 0) {
			t.Errorf("%s: the group is gone: %v", r.name, gone)
		}
		w.restart()
		if gone := w.group("g") == nil; gone != (r.left > 0) {
			t.Errorf("%s: after a restart the group is gone: %v", r.name, gone)
		}
	}
}
