package plog

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
	"sekali/internal/vfs"
)

// raw is the bytes of a log from an offset on.
func raw(t testing.TB, l *Log, from int64) []byte {
	t.Helper()
	var f Fetch
	defer f.Release()
	if err := l.Read(ReadIn{From: from, BytesMax: 1 << 30}, &f); err != nil {
		t.Fatal(err)
	}
	return bytes.Join(f.Parts, nil)
}

// TestFollowerEqualsItsLeader: bytes, producers, epochs, aborted transactions and watermarks, also after both restart.
func TestFollowerEqualsItsLeader(t *testing.T) {
	small := func(o *Options) { o.Config.SegmentBytes = 700 }
	leader, follower := newRig(t, small), newRig(t, small)
	same := func() {
		t.Helper()
		if !bytes.Equal(raw(t, leader.log, 0), raw(t, follower.log, 0)) {
			t.Fatal("bytes differ")
		}
		if a, b := listProducers(leader.log.Producers), listProducers(follower.log.Producers); !slices.Equal(a, b) {
			t.Fatalf("producers\n%v\n%v", a, b)
		}
		a, err1 := consume(leader.log)
		b, err2 := consume(follower.log)
		if err := errors.Join(err1, err2); err != nil || !slices.Equal(a, b) {
			t.Fatalf("read_committed %v\n%v\n%v", err, a, b)
		}
		if a, b := *leader.log.epochs.Load(), *follower.log.epochs.Load(); !slices.Equal(a, b) {
			t.Fatalf("epochs %v, %v", a, b)
		}
		if a, b := leader.log.Offsets(), follower.log.Offsets(); a != b {
			t.Fatalf("offsets %+v, %+v", a, b)
		}
	}
	for i := range 3 {
		from := leader.log.Offsets().End
		leader.fill()
		leader.log.AppendMarker(batch.Marker{PID: 60, CoordEpoch: 1, Commit: i == 1, Time: testWall}, false)
		leader.sync()
		if err := follower.log.AppendAsFollower(raw(t, leader.log, from)); err != nil {
			t.Fatal(err)
		}
		follower.sync()
		same()
		leader.restart()
		follower.kill()
		follower.open(false)
		same()
		if i == 0 {
			leader.o.Pids.ProducersMax = 0
		}
	}
}

// TestFollowerRefuses what does not continue its log.
func TestFollowerRefuses(t *testing.T) {
	leader, r := newRig(t), newRig(t)
	for i := range int32(4) {
		leader.p(1, 0, i*2, 2)
	}
	all := raw(t, leader.log, 0)
	first, rest, _ := batch.Next(all)
	if err := r.log.AppendAsFollower(first); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(rest)
	flipped[70] ^= 1
	old := bytes.Clone(rest)
	batch.View(old).Stamp(2, 0)
	for name, b := range map[string][]byte{
		"again": first, "gap": rest[len(first):], "checksum": flipped, "short": rest[:len(rest)-1][:80], "old epoch": old,
	} {
		if err := r.log.AppendAsFollower(b); !errors.Is(err, ErrFollow) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.log.Offsets().End != 2 {
		t.Fatalf("%+v", r.log.Offsets())
	}
	if err := r.log.AppendAsFollower(rest); err != nil || r.log.Offsets().End != 8 {
		t.Fatalf("%v, %+v", err, r.log.Offsets())
	}
}

// TestTruncateTo: after a cut at any batch border the log is as it was there, in every respect, and goes on from there,
// after a crash too.
func TestTruncateTo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{rig: newRig(t, func(o *Options) { o.Config.SegmentBytes = 700 }), t: rt}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1, 2:
				m.append(rt)
			case 3:
				m.txnAppend(rt)
			case 4:
				m.marker(rt)
			case 5:
				m.endRound(rt)
				m.tick(rt)
			default:
				m.restart(rt)
			}
		}
		m.endRound(rt)
		borders := []int64{0}
		for _, e := range m.all {
			borders = append(borders, e.last+1)
		}
		to := rapid.SampledFrom(borders).Draw(rt, "to")
		if err := m.rig.log.TruncateTo(to); err != nil {
			rt.Fatal(err)
		}
		for len(m.all) > 0 && m.end() > to {
			m.all = m.all[:len(m.all)-1]
		}
		m.high, m.waits, m.flushed, m.lagging = to, nil, to, 0
		m.check(rt)
		m.sameProducers(rt)
		if rapid.Bool().Draw(rt, "crash") {
			m.rig.crash(vfs.CrashPlan{Seed: 1, KeepUnsynced: 50})
			m.reopen(rt, false)
		}
		m.append(rt)
		m.endRound(rt)
		m.tick(rt)
		m.restart(rt)
		m.check(rt)
		m.sameProducers(rt)
		if err := m.rig.log.TruncateTo(m.end() + 1); !errors.Is(err, ErrRange) {
			rt.Fatalf("above the end: %v", err)
		}
	})
}

// TestDelete waits for readers, renames the directory, and leaves nothing under the old name.
func TestDelete(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 2)
	var f Fetch
	if err := r.log.Read(ReadIn{BytesMax: 100, AtLeast1: true}, &f); err != nil {
		t.Fatal(err)
	}
	held := bytes.Clone(f.Parts[0])
	done := make(chan error)
	go func() { done <- r.log.Delete(context.Background()) }()
	for r.log.Err() == nil {
	}
	select {
	case err := <-done:
		t.Fatalf("did not wait for the reader: %v", err)
	default:
	}
	if !bytes.Equal(held, f.Parts[0]) {
		t.Fatal("I2: the reader's bytes changed")
	}
	f.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	names, err := r.fs.ReadDir("/data")
	if err != nil || len(names) != 1 || names[0] != deletedName("topic-0", [16]byte{}) {
		t.Fatalf("%v, %v", names, err)
	}
	if err := r.log.Close(); err != nil || !errors.Is(r.log.Err(), ErrClosed) {
		t.Fatalf("close after delete: %v, %v", err, r.log.Err())
	}
}

func TestDeletedName(t *testing.T) {
	id := [16]byte{1}
	if got := deletedName("a.b-c-12", id); got != "a.b-c-12.01000000000000000000000000000000-delete" {
		t.Error(got)
	}
	long := deletedName(strings.Repeat("x", 249)+"-4711", id)
	if len(long) != nameMax || !strings.Contains(long, "x-4711.01") {
		t.Error(len(long), long)
	}
}
