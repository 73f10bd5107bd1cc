package coord

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sekali/internal/clock"
)

// diff tells the first difference of two states. The record of an id may be a newer one that says the same, since it is
// written again without a change; an older one is a difference.
func diff(got, want map[string]kept) string {
	for id, w := range want {
		if g, is := got[id]; is && g.t.updateMs > w.t.updateMs {
			w.t.updateMs = g.t.updateMs
		}
		if g, ok := got[id]; !ok || !reflect.DeepEqual(g, w) {
			return fmt.Sprintf("%q is\n%+v, want\n%+v", id, got[id], w)
		}
	}
	for id, g := range got {
		if _, ok := want[id]; !ok {
			return fmt.Sprintf("%q is %+v, want none", id, g)
		}
	}
	return ""
}

// I14: whatever prefix of the journal a crash leaves, its replay gives the state the coordinator had when its last
// record was written; and where that is not known, the last record of each id.
func TestRecoverAnyPrefix(t *testing.T) {
	prefixes, states := 0, map[State]int{}
	for seed := range uint64(12) {
		r := newRig(t, func(c *Config) { c.IDExpireMs = 3_600_000 })
		d := newDriver(r, seed, 4)
		d.jump = 20 * time.Minute
		at := map[int64]map[string]kept{0: {}} // live state by length of the journal
		for range 120 {
			d.step()
			at[r.j.End()] = stateOf(r.s)
		}
		last := map[string]kept{}
		for n := int64(0); n <= r.j.End(); n++ {
			if n > 0 {
				l, err := DecodeRecord(r.j.recs[n-1])
				if err != nil {
					t.Fatal(err)
				}
				if delete(last, l.TxnID); !l.Deleted {
					x, _, _ := decodeValue(r.j.recs[n-1].Value)
					if len(x.tps) == 0 {
						x.tps = nil
					}
					last[l.TxnID] = kept{x, n - 1}
					states[l.State]++
				}
			}
			s := loaded(t, r.c.cfg, nil, r.j.prefix(n), r)
			if live, ok := at[n]; ok {
				if text := diff(stateOf(s), live); text != "" {
					t.Fatalf("seed %d, %d records, against the live state: %s", seed, n, text)
				}
			}
			if text := diff(stateOf(s), last); text != "" {
				t.Fatalf("seed %d, %d records: %s", seed, n, text)
			}
			prefixes++
		}
	}
	for st := Empty; st <= CompleteAbort; st++ {
		if states[st] == 0 {
			t.Errorf("no record of state %s was written", st)
		}
	}
	t.Logf("%d prefixes, records by state %v", prefixes, states)
}

// A snapshot and the tail give what the whole journal gives, wherever the crash is, while records are on their way to
// the disk and the journal is rewritten.
func TestSnapshotAgainstReplay(t *testing.T) {
	used, raised := 0, 0
	for seed := range uint64(25) {
		r := newRig(t, func(c *Config) { c.SnapshotEvery, c.RewriteEvery, c.IDExpireMs = 1500, 2500, 3_600_000 })
		snaps := newSnapshots()
		r.c.snaps = snaps
		snaps.check = func(_ int, asOf int64) {
			if r.j.mu.Lock(); asOf > r.j.synced {
				t.Errorf("seed %d: snapshot as of %d, durable up to %d", seed, asOf, r.j.synced)
			}
			r.j.mu.Unlock()
		}
		r.j.hold = true
		d := newDriver(r, seed, 6)
		d.jump = 5 * time.Minute
		for i := range 400 {
			d.step()
			if d.rnd.IntN(3) > 0 {
				r.j.flush()
			}
			r.tick(100 * time.Millisecond)
			r.s.checkList(t)
			if i%23 != 22 {
				continue
			}
			crashed := r.j.prefix(r.j.synced + d.rnd.Int64N(r.j.End()-r.j.synced+1))
			whole := loaded(t, r.c.cfg, nil, crashed, r)
			with := loaded(t, r.c.cfg, snaps, crashed, r)
			if text := diff(stateOf(with), stateOf(whole)); text != "" {
				t.Fatalf("seed %d, step %d: snapshot as of %d: %s", seed, i, snaps.asOf[0], text)
			}
			if snaps.saved > 0 && snaps.asOf[0] >= crashed.start && snaps.asOf[0] > 0 {
				used++
			}
		}
		if r.j.start > 0 {
			raised++
		}
	}
	if used < 80 || raised < 12 {
		t.Fatalf("%d snapshots were used and %d log starts raised: the test shows nothing", used, raised)
	}
}

// A snapshot of more ids than one step takes, while those at its cursor are written, rewritten and forgotten.
func TestSnapshotInSteps(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IDExpireMs = 1000_000 })
	const ids = 3*snapshotIDs + 100
	for i := range ids {
		r.fresh(fmt.Sprintf("id-%d", i))
	}
	snaps := newSnapshots()
	r.c.snaps, r.c.cfg.SnapshotEvery = snaps, 1
	steps := 0
	for ; snaps.saved == 0; steps++ {
		r.s.snapshotStep()
		r.s.checkList(t)
		if c := r.s.rw.snap.cursor; c != nil && steps%2 == 0 {
			r.fresh(c.id) // moves behind all others
		} else if c != nil {
			r.s.expire(c) // leaves the list
		}
	}
	if steps != 4 || snaps.asOf[0] != ids {
		t.Fatalf("%d steps, as of %d", steps, snaps.asOf[0])
	}
	want := stateOf(r.s)
	if len(want) != ids-1 {
		t.Fatalf("%d ids", len(want))
	}
	if text := diff(stateOf(loaded(t, r.c.cfg, snaps, r.j, r)), want); text != "" {
		t.Fatal(text)
	}
	// The ids beside those two are the snapshot's alone: nothing else of them is replayed.
	f, err := parseSnapshot(snaps.b[0], 0, ids)
	if err != nil || len(f.last) != ids-3 {
		t.Fatalf("%d ids in the snapshot, %v", len(f.last), err)
	}
}

// snapshotOf makes a snapshot of a rig's shard, at once.
func snapshotOf(t *testing.T, r *rig) *fakeSnapshots {
	t.Helper()
	snaps := newSnapshots()
	r.c.snaps, r.c.cfg.SnapshotEvery = snaps, 1
	r.s.snapshotStep()
	if snaps.saved != 1 {
		t.Fatalf("%d snapshots", snaps.saved)
	}
	return snaps
}

func TestDamagedSnapshotIgnored(t *testing.T) {
	r := newRig(t)
	d := newDriver(r, 3, 3)
	for range 60 {
		d.step()
	}
	snaps := snapshotOf(t, r)
	good := snaps.b[0]
	want := stateOf(r.s)
	skipped := 0
	cfg := r.c.cfg
	cfg.Events.Skipped = func(shard int, offset int64, err error) {
		if shard != 0 || offset != -1 || !errors.Is(err, errSnapshot) {
			t.Fatalf("skipped at %d/%d: %v", shard, offset, err)
		}
		skipped++
	}
	if s := loaded(t, cfg, snaps, r.j, r); diff(stateOf(s), want) != "" || skipped != 0 {
		t.Fatalf("intact: %d skipped, %s", skipped, diff(stateOf(s), want))
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		snaps.b[0] = bad
		if s := loaded(t, cfg, snaps, r.j, r); diff(stateOf(s), want) != "" || skipped != i+1 {
			t.Fatalf("byte %d: %d skipped, %s", i, skipped, diff(stateOf(s), want))
		}
	}
	skipped = 0
	for n := range good {
		snaps.b[0] = good[:n:n]
		if s := loaded(t, cfg, snaps, r.j, r); diff(stateOf(s), want) != "" || skipped != n+1 {
			t.Fatalf("cut at %d: %d skipped, %s", n, skipped, diff(stateOf(s), want))
		}
	}
	// Sealed anew, so that only the structure tells.
	begin := func(shard int, asOf int64) []byte { return beginSnapshot(shard, asOf, 0, 0) }
	asOf, body := snaps.asOf[0], good[:len(good)-snapshotTrailer]
	for name, b := range map[string][]byte{
		"one id more told":  sealSnapshot(append([]byte(nil), body...), 4),
		"one id less told":  sealSnapshot(append([]byte(nil), body...), 2),
		"a tail":            sealSnapshot(append(append([]byte(nil), body...), 0), 3),
		"another shard":     sealSnapshot(begin(1, asOf), 0),
		"another offset":    sealSnapshot(begin(0, asOf-1), 0),
		"a record above it": sealSnapshot(appendEntry(begin(0, asOf), asOf, 0, r.j.recs[0]), 1),
		"no record":         sealSnapshot(appendEntry(begin(0, asOf), 0, 0, Record{}), 1),
		"a tombstone":       sealSnapshot(appendEntry(begin(0, asOf), 0, 0, Record{Key: encodeKey("x")}), 1),
	} {
		skipped, snaps.b[0] = 0, b
		if s := loaded(t, cfg, snaps, r.j, r); diff(stateOf(s), want) != "" || skipped != 1 {
			t.Errorf("%s: %d skipped, %s", name, skipped, diff(stateOf(s), want))
		}
	}
}

// A snapshot from outside the journal is no base to replay on.
func TestSnapshotOutsideJournal(t *testing.T) {
	r := newRig(t)
	r.fresh("a")
	r.fresh("b")
	snaps := snapshotOf(t, r) // as of 2: a and b
	cut := r.j.prefix(1)
	if s := loaded(t, r.c.cfg, snaps, cut, r); len(s.entries) != 1 || s.entries["a"] == nil {
		t.Fatalf("behind the end: %v", stateOf(s))
	}
	above := &fakeJournal{start: 3, start0: 3, synced: 4, recs: []Record{{Key: encodeKey("c"), Value: r.j.recs[0].Value}}}
	if s := loaded(t, r.c.cfg, snaps, above, r); len(s.entries) != 1 || s.entries["c"] == nil {
		t.Fatalf("below the start: %v", stateOf(s))
	}
	snaps.err = errors.New("unreadable")
	if s := loaded(t, r.c.cfg, snaps, r.j, r); len(s.entries) != 2 {
		t.Fatalf("unreadable: %v", stateOf(s))
	}
}

// Process deaths in a row, each of which comes before the timeout, do not prolong a transaction for ever.
func TestDeathsDoNotProlong(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.add("a", at, 2, tp("x", 0)) // 60 s
	for range 5 {
		r.tick(16 * time.Second)
		r = r.restart(t, nil, r.j.crash(0))
	}
	if x := r.state("a"); x.state == Ongoing {
		t.Fatalf("after 80 s of 60, in pieces of 16: %+v", x)
	}
}

// However soon one death follows the other, a transaction ends in its time, and an id is forgotten in its.
func TestTimeGoesOnOverDeaths(t *testing.T) {
	r := newRig(t)
	r.add("a", r.fresh("a"), 2, tp("x", 0)) // 60 s
	r.fresh("idle")
	for range 70 {
		r.tick(time.Second)
		r = r.restart(t, nil, r.j.crash(0))
	}
	if x := r.state("a"); x.state == Ongoing {
		t.Errorf("after 70 s of 60, in pieces of 1: %+v", x)
	}
	day := time.Duration(r.c.cfg.IDExpireMs) * time.Millisecond / 7
	for range 9 {
		r.tick(day)
		r = r.restart(t, nil, r.j.crash(0))
	}
	r.tick(day)
	if r.s.entries["idle"] != nil {
		t.Error("an id nobody used is there after 10 sevenths of its time, in pieces of one")
	}
}

// What is left of a timeout or an expiry goes on after a restart; a record without it counts from when it was written,
// as far as a clock that was set cannot take the timeout away.
func TestRemainingTimeGoesOn(t *testing.T) {
	r := newRig(t)
	at := r.fresh("a")
	r.tick(10 * time.Second)
	r.add("a", at, 2, tp("x", 0)) // 60 s left
	r.tick(20 * time.Second)
	r.add("a", at, 2, tp("x", 1)) // 40 s left
	r.tick(15 * time.Second)
	r.fresh("idle")
	s := loaded(t, r.c.cfg, nil, r.j, r)
	if left := s.remaining(s.entries["a"]); left != 25_000 {
		t.Errorf("%d ms of the timeout left, want 25000", left)
	}
	if left := s.remaining(s.entries["idle"]); left != r.c.cfg.IDExpireMs {
		t.Errorf("%d ms of the expiry left, want all", left)
	}
	snaps := snapshotOf(t, r)
	s = loaded(t, r.c.cfg, snaps, r.j, r)
	if left := s.remaining(s.entries["a"]); left != 25_000 {
		t.Errorf("%d ms left after a snapshot, want 25000", left)
	}
	x := r.state("a")
	foreign := &fakeJournal{recs: []Record{{encodeKey("a"), encodeValue(&x, -1)}}, synced: 1}
	s = loaded(t, r.c.cfg, nil, foreign, r)
	if left := s.remaining(s.entries["a"]); left != 52_500 {
		t.Errorf("%d ms left without the tag, want 52500: an eighth may have passed", left)
	}
}

// restart is the coordinator another process has: the same partitions, the journals given.
func (r *rig) restart(t *testing.T, open []OpenTxn, journals ...*fakeJournal) *rig {
	t.Helper()
	n := &rig{t: t, j: journals[0], sink: &fakeSink{fail: map[TP][]error{}, hold: r.sink.hold}, clk: r.clk}
	n.ids = NewProducerIDs(&counter{next: 9000}, 1000)
	n.c = New(r.c.cfg, n.ids, n.sink, nil, n.clk)
	js := make([]Journal, len(journals))
	for i, j := range journals {
		js[i] = j
	}
	if err := n.c.Recover(t.Context(), js, 8, open); err != nil {
		t.Fatal(err)
	}
	n.s = n.c.all()[0]
	t.Cleanup(func() { n.ids.Close(); n.c.Close() })
	return n
}

func TestRecoverSkipsUnknownKeys(t *testing.T) {
	r := newRig(t)
	r.fresh("a")
	j := r.j.prefix(1)
	j.recs = append(j.recs, Record{[]byte{0, 1, 0, 1, 'a'}, nil}, Record{[]byte{0, 9}, []byte("x")})
	j.synced = 3
	var at []int64
	r.c.cfg.Events.Skipped = func(_ int, offset int64, err error) {
		if !errors.Is(err, ErrKey) {
			t.Errorf("offset %d: %v", offset, err)
		}
		at = append(at, offset)
	}
	n := r.restart(t, nil, j)
	if !reflect.DeepEqual(at, []int64{1, 2}) {
		t.Fatalf("skipped %v", at)
	}
	n.state("a")
}

// A data directory from elsewhere: no producer id that its journals or partitions know is given again.
func TestRecoverRaisesProducerIDs(t *testing.T) {
	r := newRig(t)
	x := newTxn(20_000)
	x.epoch, x.prevPID, x.nextPID, x.timeoutMs, x.updateMs = 1, 30_000, 40_000, 1000, 1
	j := &fakeJournal{recs: []Record{{encodeKey("a"), encodeValue(&x, -1)}}, synced: 1}
	n := r.restart(t, nil, j.prefix(1))
	n.init(InitIn{TxnID: "b", PID: -1, Epoch: -1}).wantOut(t, 40_001, 0)
	n = r.restart(t, []OpenTxn{{TP: tp("x", 0), PID: 50_000, Epoch: 1}}, j)
	n.init(InitIn{TxnID: "b", PID: -1, Epoch: -1}).wantOut(t, 50_001, 0)
}

// A journal that cannot be read keeps its own ids from being served, and no others; what its ids may own is not
// touched.
func TestRecoverWithADamagedJournal(t *testing.T) {
	r := newRig(t)
	one, other := ofShard(t, 0, 2), ofShard(t, 1, 2)
	r.fresh(one)
	for name, bad := range map[string]Record{
		"value version": {encodeKey(other), []byte{0, 2, 0}},
		"value cut":     {encodeKey(other), []byte{0, 1, 0}},
		"value empty":   {encodeKey(other), []byte{}},
		"key cut":       {[]byte{0, 0, 0, 9, 'x'}, nil},
	} {
		var failed []int
		cfg := r.c.cfg
		r.c.cfg.Events.Failed = func(shard int, err error) {
			if at, ok := errors.AsType[*LoadError](err); !ok || at.Shard != 1 || at.Offset != 1 {
				t.Errorf("%s: %v", name, err)
			}
			failed = append(failed, shard)
		}
		damaged := &fakeJournal{recs: []Record{{encodeKey("ok"), r.j.recs[0].Value}, bad}, synced: 2}
		orphan := OpenTxn{TP: tp("x", 0), PID: 77, Epoch: 3}
		n := r.restart(t, []OpenTxn{orphan}, r.j.prefix(1), damaged)
		if !reflect.DeepEqual(failed, []int{1}) {
			t.Fatalf("%s: failed %v", name, failed)
		}
		n.init(InitIn{TxnID: one, PID: -1, Epoch: -1}).want(t, nil)
		n.init(InitIn{TxnID: other, PID: -1, Epoch: -1}).want(t, kerr.NotCoordinator)
		if m := n.sink.markers(); len(m) != 0 {
			t.Fatalf("%s: marker %+v although its owner may be in the damaged journal", name, m)
		}
		n.c.List(Filter{LongerMs: -1}, func(in []Info, code *kerr.Error) {
			if code != kerr.NotCoordinator || in != nil {
				t.Errorf("%s: list %v, %v", name, in, code)
			}
		})
		r.c.cfg = cfg
	}
}

// ofShard is an id of one shard of n.
func ofShard(t *testing.T, shard, n int32) string {
	t.Helper()
	for i := range 100 {
		if id := fmt.Sprintf("id-%d", i); Partition(id, n) == shard {
			return id
		}
	}
	t.Fatal("no id found")
	return ""
}

func TestRecoverCancelled(t *testing.T) {
	r := newRig(t)
	c := New(r.c.cfg, r.ids, r.sink, nil, r.clk)
	if err := c.Recover(t.Context(), nil, 1, nil); !errors.Is(err, ErrNoJournal) {
		t.Fatalf("without journals: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Recover(ctx, []Journal{r.j}, 1, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	var p reply
	c.Init(InitIn{TxnID: "a", PID: -1, Epoch: -1, TimeoutMs: 1}, p.set)
	p.want(t, kerr.CoordinatorLoadInProgress)
	c.Close()
}

// A hundred thousand ids in fifty journals, with goroutines: what they cost.
func TestRecoverManyIDs(t *testing.T) {
	const ids, shards = 100_000, 50
	js := make([]Journal, shards)
	fakes := make([]*fakeJournal, shards)
	for i := range js {
		fakes[i] = &fakeJournal{}
		js[i] = fakes[i]
	}
	x := newTxn(0)
	x.epoch, x.timeoutMs, x.updateMs = 3, 60_000, 1
	value := encodeValue(&x, 604_800_000)
	for i := range ids {
		id := fmt.Sprintf("payments-worker-%06d", i)
		j := fakes[Partition(id, shards)]
		r := Record{encodeKey(id), bytes.Clone(value)}
		binary.BigEndian.PutUint64(r.Value[2:], uint64(i)) // the producer id
		if j.recs = append(j.recs, r); i%10 == 0 {
			j.recs = append(j.recs, r) // the first one is dead
		}
		j.synced = j.end()
	}
	before := heapBytes()
	cfg := Config{TimeoutMaxMs: 900_000, IDExpireMs: 604_800_000, TV: 2}
	c := New(cfg, NewProducerIDs(&counter{}, 1), &fakeSink{}, nil, clock.NewSim(0))
	if err := c.Recover(t.Context(), js, 1, nil); err != nil {
		t.Fatal(err)
	}
	got := make(chan []Info)
	c.List(Filter{LongerMs: -1}, func(in []Info, _ *kerr.Error) { go func() { got <- in }() })
	if in := <-got; len(in) != ids {
		t.Fatalf("%d ids, want %d", len(in), ids)
	}
	if per := (heapBytes() - before) / ids; per > 600 {
		t.Errorf("%d bytes of heap an id, want at most 600", per)
	} else {
		t.Logf("%d bytes of heap an id", per)
	}
	runtime.KeepAlive(c)
	c.Close()
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
