package pidmap

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMarkerTable is the table of the specification (producer state, section 6), row by row.
func TestMarkerTable(t *testing.T) {
	ended := func(p *partition) { // epoch 2, coordinator epoch 5, no open transaction
		knownTxn(p)
		p.mark(7, 2, 5, 1)
	}
	for _, c := range []struct {
		name    string
		setup   func(p *partition)
		epoch   int16
		coord   int32
		version int8
		err     error
		had     bool
		same    bool
		keeps   int // slots left after the marker
	}{
		{"older epoch", knownTxn, 1, 9, 1, ErrFenced, false, false, 3},
		{"older epoch, version 2", knownTxn, 1, 9, 2, ErrFenced, false, false, 3},
		{"older epoch and coordinator", ended, 1, 4, 1, ErrFenced, false, false, 3},
		{"version 2, equal epoch, open", knownTxn, 2, 9, 2, ErrFenced, false, false, 3},
		{"version 3, equal epoch, open", knownTxn, 2, 9, 3, ErrFenced, false, false, 3},
		{"version 2, equal epoch, repeat", ended, 2, 5, 2, nil, false, true, 3},
		{"version 2, higher epoch, open", knownTxn, 3, 9, 2, nil, true, false, 0},
		{"version 2, higher epoch, none open", ended, 3, 9, 2, nil, false, false, 0},
		{"older coordinator", ended, 2, 4, 1, ErrCoordFenced, false, false, 3},
		{"older coordinator, higher epoch", ended, 3, 4, 2, ErrCoordFenced, false, false, 3},
		{"same coordinator", ended, 2, 5, 1, nil, false, true, 3},
		{"newer coordinator", ended, 2, 6, 1, nil, false, true, 3},
		{"unknown producer", otherPID, 2, 1, 1, nil, false, false, 0},
		{"unknown producer, version 2", otherPID, 2, 1, 2, nil, false, false, 0},
		{"none open, same epoch", known, 2, 1, 1, nil, false, true, 3},
		{"open, same epoch", knownTxn, 2, 1, 1, nil, true, false, 3},
		{"open, higher epoch (fence)", knownTxn, 4, 1, 1, nil, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPartition(1 << 31)
			c.setup(p)
			before, end := p.state()[7], p.end
			d, err := p.mark(7, c.epoch, c.coord, c.version)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			after := p.state()[7]
			if int(after.N) != c.keeps {
				t.Fatalf("%d slots, want %d", after.N, c.keeps)
			}
			if err != nil {
				if after != before || p.end != end {
					t.Fatalf("a refused marker changed the state: %+v", after)
				}
				return
			}
			first := int64(-1)
			if c.had {
				first = 100
			}
			if d.Had != c.had || d.First != first || d.Same != c.same || d.Stable != -1 || d.Stale {
				t.Fatalf("%+v", d)
			}
			if after.Epoch != c.epoch || after.CoordEpoch != c.coord || after.LastTime != 7000+end || after.TxnFirst != -1 {
				t.Fatalf("state %+v", after)
			}
			if offset, _, ok := p.Unstable(end); ok != c.had || ok && offset != 100 {
				t.Fatalf("unstable from %d (%v) while the marker at %d is not durable", offset, ok, end)
			}
			if _, _, ok := p.Unstable(end + 1); ok {
				t.Fatal("unstable although the marker is durable")
			}
		})
	}
}

// TestSequencesRunOn: the first batch of the next transaction of an epoch continues; after a raised epoch it begins.
func TestSequencesRunOn(t *testing.T) {
	p := newPartition(1 << 31)
	knownTxn(p)
	p.mark(7, 2, 1, 1)
	p.want(t, p.txn(7, 2, 0, 1), DuplicateOld)
	p.want(t, p.txn(7, 2, 30, 5), Accept)
	p.mark(7, 3, 1, 2)
	p.want(t, p.txn(7, 3, 35, 5), OutOfOrder)
	p.want(t, p.txn(7, 2, 35, 5), Fenced)
	p.want(t, p.txn(7, 3, 0, 5), Accept)
}

// TestStableBesideOthers: an abort entry names the lowest first offset of the other open transactions, not of those
// whose marker is merely not durable, and not the log end.
func TestStableBesideOthers(t *testing.T) {
	p := newPartition(1 << 31)
	for pid := range int64(3) {
		p.want(t, p.txn(pid, 0, 0, 10), Accept) // 100, 110, 120
	}
	for _, c := range []struct{ pid, first, stable, unstable int64 }{
		{1, 110, 100, 100}, // the marker is at 130
		{0, 100, 120, 100}, // 131
		{2, 120, -1, 100},  // 132
	} {
		d, err := p.mark(c.pid, 0, 1, 1)
		if err != nil || !d.Had || d.First != c.first || d.Stable != c.stable {
			t.Fatalf("pid %d: %+v %v", c.pid, d, err)
		}
		if o, _, ok := p.Unstable(0); !ok || o != c.unstable {
			t.Fatalf("pid %d: unstable from %d", c.pid, o)
		}
	}
	for durable, want := range map[int64]int64{131: 100} {
		if o, _, ok := p.Unstable(durable); !ok || o != want {
			t.Fatalf("durable to %d: unstable from %d", durable, o)
		}
	}
	if o, _, ok := p.Unstable(132); !ok || o != 120 {
		t.Fatalf("two markers durable: unstable from %d", o)
	}
	if _, _, ok := p.Unstable(133); ok {
		t.Fatal("all markers durable, still unstable")
	}
}

// TestEpochRaisedInside: a batch of a higher epoch in an open transaction needs a new verification and leaves the
// transaction its first offset.
func TestEpochRaisedInside(t *testing.T) {
	p := newPartition(1 << 31)
	p.want(t, p.txn(7, 2, 0, 5), Accept)
	b := p.txn(7, 3, 0, 5)
	d := p.Check(b)
	if d.Verdict != TxnUnverified {
		t.Fatalf("verdict %d", d.Verdict)
	}
	b.Guard = d.Guard
	if d = p.Check(b); d.Verdict != Accept {
		t.Fatalf("verdict %d with the guard", d.Verdict)
	}
	p.Commit(b, p.place(b))
	if s := p.state()[7]; s.TxnFirst != 100 || s.Epoch != 3 || s.N != 1 {
		t.Fatalf("state %+v", s)
	}
	if d := p.Check(p.txn(7, 3, 5, 5)); d.Verdict != Accept {
		t.Fatal("the transaction is of the new epoch now, no further question")
	}
}

// TestOpenLists the open transactions in the order of their first offsets, whatever began and ended before.
func TestOpenLists(t *testing.T) {
	p := newPartition(1 << 31)
	list := func() (pids, firsts []int64) {
		for _, q := range p.Open() {
			if q.Epoch != 2 {
				t.Errorf("producer %d in epoch %d", q.PID, q.Epoch)
			}
			pids, firsts = append(pids, q.PID), append(firsts, q.TxnFirst)
		}
		return pids, firsts
	}
	var first []int64
	for _, pid := range []int64{9, 7, 8} {
		b := p.txn(pid, 2, 0, 5)
		b.Guard = p.Check(b).Guard
		first = append(first, p.end)
		p.Commit(b, p.place(b))
	}
	if pids, firsts := list(); !slices.Equal(pids, []int64{9, 7, 8}) || !slices.Equal(firsts, first) {
		t.Errorf("open %v from %v, want 9, 7 and 8 from %v", pids, firsts, first)
	}
	p.mark(7, 2, 1, 1)
	if pids, _ := list(); !slices.Equal(pids, []int64{9, 8}) {
		t.Errorf("open %v after the end of 7", pids)
	}
	p.mark(9, 2, 1, 1)
	p.mark(8, 2, 1, 1)
	if pids, _ := list(); len(pids) != 0 {
		t.Errorf("open %v after all ended", pids)
	}
}

// TestGuard is the race the guard is for: asked, marker written, next transaction begun elsewhere, late answer.
func TestGuard(t *testing.T) {
	fresh := func() (*partition, *Batch) {
		p := newPartition(1 << 31)
		b := p.txn(7, 2, 0, 5)
		d := p.Check(b)
		if d.Verdict != TxnUnverified || d.Guard == 0 {
			t.Fatalf("%+v", d)
		}
		b.Guard = d.Guard
		return p, b
	}
	verdict := func(p *partition, b *Batch, want Verdict, what string) {
		t.Helper()
		if d := p.Check(b); d.Verdict != want {
			t.Errorf("%s: verdict %d, want %d", what, d.Verdict, want)
		}
	}
	p, b := fresh()
	verdict(p, b, Accept, "held guard")
	again := p.txn(7, 2, 0, 5)
	if d := p.Check(again); d.Guard != b.Guard {
		t.Errorf("second question got guard %d, want the one of the PID, %d", d.Guard, b.Guard)
	}
	p.mark(8, 2, 1, 1)
	verdict(p, b, Accept, "marker of another PID")
	p.mark(7, 2, 1, 1)
	verdict(p, b, TxnUnverified, "marker of the PID in between")

	p, b = fresh()
	p.Void(8)
	verdict(p, b, Accept, "marker of another PID that was there already")
	p.Void(7)
	verdict(p, b, TxnUnverified, "marker that was there already")

	p, b = fresh()
	p.ReplayMarker(&Marker{PID: 7, Epoch: 2}, At{Base: p.end, Last: p.end})
	verdict(p, b, TxnUnverified, "replayed marker in between")

	p, b = fresh()
	p.Commit(b, p.place(b))
	p.mark(7, 2, 1, 1)
	late := p.txn(7, 2, 5, 5)
	late.Guard = b.Guard
	verdict(p, late, TxnUnverified, "guard used up by the first batch")

	p, b = fresh()
	p.Commit(b, p.place(b))
	late = p.txn(7, 3, 0, 5)
	late.Guard = b.Guard
	verdict(p, late, TxnUnverified, "guard used up, in a raised epoch")
	late.Guard = p.Check(late).Guard
	verdict(p, late, Accept, "guard of the raised epoch")
	p.Commit(late, p.place(late))
	last := p.txn(7, 4, 0, 5)
	last.Guard = late.Guard
	verdict(p, last, TxnUnverified, "guard used up by the raised epoch")

	p, b = fresh()
	q, _ := fresh() // the same partition after it was opened again
	verdict(q, b, TxnUnverified, "guard of a map that is gone")
	if b.Guard = 0; p.Check(b).Verdict != TxnUnverified {
		t.Error("no guard was taken for one")
	}

	p, b = fresh()
	p.expire = 10
	p.Commit(p.batch(9, 0, 0, 1), p.place(b))
	p.Expire(p.touch+900, 1)
	verdict(p, b, Accept, "guard younger than the expiry")
	p.Expire(p.touch+1000, 1)
	verdict(p, b, TxnUnverified, "expired guard")
}

// TestOvertaking: while a lower sequence of an unknown producer waits for its verification, a higher one is refused,
// whichever of the two asked first; a higher epoch begins anew.
func TestOvertaking(t *testing.T) {
	for _, order := range [][]int32{{0, 5}, {5, 0}} {
		p := newPartition(1 << 31)
		var guard uint64
		for _, f := range order {
			guard = p.Check(p.txn(7, 2, f, 5)).Guard
		}
		second := p.txn(7, 2, 5, 5)
		second.Guard = guard
		if d := p.Check(second); d.Verdict != OutOfOrder {
			t.Fatalf("the second batch overtook the first: verdict %d", d.Verdict)
		}
		first := p.txn(7, 2, 0, 5)
		first.Guard = guard
		p.want(t, first, Accept)
		p.want(t, second, Accept)
	}
	p := newPartition(64) // lowest is a matter of the wrap
	p.Check(p.txn(7, 2, 62, 2))
	d := p.Check(p.txn(7, 2, 0, 2))
	b := p.txn(7, 2, 0, 2)
	if b.Guard = d.Guard; p.Check(b).Verdict != OutOfOrder {
		t.Fatal("0 is behind 62 and overtook it")
	}
	if b = p.txn(7, 2, 62, 2); true {
		b.Guard = d.Guard
	}
	if p.Check(b).Verdict != Accept {
		t.Fatal("the lowest that waits was refused")
	}
	p = newPartition(1 << 31)
	p.Check(p.txn(7, 2, 3, 1))
	p.Check(p.txn(7, 1, 0, 1)) // a zombie's batch does not lower it
	b = p.txn(7, 2, 3, 1)
	b.Guard = p.Check(b).Guard
	if p.Check(b).Verdict != Accept {
		t.Fatal("a batch of a lower epoch held back a higher one")
	}
	p.Check(p.txn(7, 3, 9, 1))
	if b = p.txn(7, 3, 9, 1); true {
		b.Guard = p.Check(b).Guard
	}
	if p.Check(b).Verdict != Accept {
		t.Fatal("a higher epoch was held back by the lower one's wait")
	}
	p.Check(p.txn(7, 3, 4, 1))
	if p.Check(b).Verdict != OutOfOrder {
		t.Fatal("a batch overtook one of its own, higher epoch")
	}
}

// TestGuardsAreBounded: ids come from the wire, and a flood of them costs bounded memory.
func TestGuardsAreBounded(t *testing.T) {
	p := newPartition(1 << 31)
	for pid := range int64(guardsMax + 1000) {
		if p.Check(p.txn(pid, 0, 0, 1)).Verdict != TxnUnverified {
			t.Fatal("accepted unverified")
		}
	}
	if len(p.guards) != guardsMax || p.Len() != 0 {
		t.Fatalf("%d guards, %d producers", len(p.guards), p.Len())
	}
}

// TestHangingTransactionCostsItself: one that never ends must not keep the numbers of those that do.
func TestHangingTransactionCostsItself(t *testing.T) {
	p := newPartition(1 << 31)
	p.want(t, p.txn(1, 0, 0, 1), Accept)
	for i := range int32(10_000) {
		p.want(t, p.txn(2, 0, i, 1), Accept)
		p.mark(2, 0, 1, 1)
		if o, _, ok := p.Unstable(p.end); !ok || o != 100 {
			t.Fatalf("unstable from %d", o)
		}
	}
	if n := len(p.txns.items); n > 4 {
		t.Fatalf("room for %d transactions with two open at most", n)
	}
}

// TestTxnsModel drives the lists with random transactions against sorted slices.
func TestTxnsModel(t *testing.T) {
	type open struct {
		first, marker int64
		no            uint32
	}
	rapid.Check(t, func(t *rapid.T) {
		var list txns
		var model []open
		end, durable := int64(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				end += rapid.Int64Range(1, 3).Draw(t, "n")
				first := end
				if rapid.IntRange(0, 9).Draw(t, "disorder") == 0 {
					first = rapid.Int64Range(0, end).Draw(t, "first")
				}
				if slices.ContainsFunc(model, func(o open) bool { return o.first == first }) {
					continue
				}
				model = append(model, open{first, -1, list.begin(end, first, first*10)})
			case 2:
				var live []int
				for i, o := range model {
					if o.marker < 0 {
						live = append(live, i)
					}
				}
				if len(live) == 0 {
					continue
				}
				i := rapid.SampledFrom(live).Draw(t, "txn")
				end++
				other := int64(-1)
				for k, o := range model {
					if k != i && o.marker < 0 && (other == -1 || o.first < other) {
						other = o.first
					}
				}
				if got := list.other(model[i].no); got != other {
					t.Fatalf("lowest other %d, want %d", got, other)
				}
				list.end(model[i].no, end)
				model[i].marker = end
			case 3:
				durable = rapid.Int64Range(durable, end+1).Draw(t, "durable")
				list.settle(durable)
				model = slices.DeleteFunc(model, func(o open) bool { return o.marker >= 0 && o.marker < durable })
			}
			want := int64(-1)
			opened := 0
			for i, o := range model {
				if i == 0 || o.first < want {
					want = o.first
				}
				if o.marker < 0 {
					opened++
				}
			}
			if got := list.firstOf(list.head[all]); got != want || list.opened != opened {
				t.Fatalf("lowest %d of %d open, want %d of %d", got, list.opened, want, opened)
			}
		}
	})
}
