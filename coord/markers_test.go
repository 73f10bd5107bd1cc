package coord

import (
	"testing"
)

// crowded begins a transaction with 1,000 partitions of topic "many" and one of "gone", the last one in order.
func crowded(r *rig) InitOut {
	at := r.fresh("x")
	tps := []TP{tp("zzz", 0)}
	for i := range int32(1000) {
		tps = append(tps, tp("many", i))
	}
	r.add("x", at, 2, tps...)
	return at
}

// A shard looks after other ids while it sends the markers of a transaction with many partitions: a marker may cost a
// flush, as the first append of a start does.
func TestManyMarkersLetOthersThrough(t *testing.T) {
	r := newRig(t)
	at, other := crowded(r), r.fresh("y")
	r.add("y", other, 2, tp("a", 0))
	var p *reply
	answered := -1
	r.sink.before = func(m sent) {
		switch {
		case p == nil:
			p = r.end("y", other, 2, true)
		case answered < 0 && p.n > 0:
			answered = len(r.sink.markers())
		}
	}
	r.end("x", at, 2, true).wantOut(t, at.PID, 1)
	p.wantOut(t, other.PID, 1)
	if answered < 0 || answered > 8*markersAtOnce {
		t.Errorf("the other id was answered after %d markers", answered)
	}
	if n := len(r.sink.markers()); n != 1002 {
		t.Errorf("%d markers, want 1002", n)
	}
}

// What happens between two lots of markers: a deleted topic gets none any more, a shard that stops sends none, and the
// next start sends all.
func TestManyMarkersAreInterrupted(t *testing.T) {
	r := newRig(t)
	at := crowded(r)
	deleted := 0
	r.sink.before = func(m sent) {
		if len(r.sink.markers()) == 0 {
			r.c.TopicsDeleted([][16]byte{tp("zzz", 0).ID}, func(error) { deleted++ })
		}
		if m.tp.Topic == "zzz" {
			t.Error("a marker for the deleted topic")
		}
	}
	r.end("x", at, 2, true).wantOut(t, at.PID, 1)
	if n := len(r.sink.markers()); n != 1000 || deleted != 1 {
		t.Errorf("%d markers, want 1000; %d answers of the deletion", n, deleted)
	}

	r = newRig(t)
	at = crowded(r)
	r.sink.before = func(sent) {
		if len(r.sink.markers()) == 0 {
			r.c.Close()
		}
	}
	r.end("x", at, 2, true)
	if n := len(r.sink.markers()); n > 3*markersAtOnce {
		t.Errorf("%d markers of a shard that stops", n)
	}
	r = r.restart(t, nil, r.j)
	if n := len(r.sink.markers()); n != 1001 || r.state("x").state != CompleteCommit {
		t.Errorf("%d markers after the start, want 1001; state %v", n, r.state("x").state)
	}
}
