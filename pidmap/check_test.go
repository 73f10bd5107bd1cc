package pidmap

import (
	"fmt"
	"testing"
)

const top = 1<<31 - 1 // the last sequence number before the wrap

// row is one line of the decision table of the specification (producer state, section 4): a state, and the verdict on
// one batch sent plainly and sent in a transaction, which is verified where that is asked for.
type row struct {
	name       string
	setup      func(p *partition)
	e          int16
	f          int32
	n          int
	plain, txn Verdict
	base       int64 // of a Duplicate
	v12        bool
}

// known has written 3 batches of 10 from sequence 0 in epoch 2, at offset 100.
func known(p *partition) {
	for i := range int32(3) {
		p.send(p.batch(7, 2, 10*i, 10))
	}
}

// knownTxn is known, written in a transaction that is open.
func knownTxn(p *partition) {
	for i := range int32(3) {
		p.send(p.txn(7, 2, 10*i, 10))
	}
}

// knownEnded is knownTxn with its transaction ended in the same epoch.
func knownEnded(p *partition) {
	knownTxn(p)
	p.mark(7, 2, 1, 1)
}

// seven has written seven batches of one record.
func seven(p *partition) {
	for i := range int32(7) {
		p.send(p.batch(7, 2, i, 1))
	}
}

// markerOnly knows of pid 7 nothing but a marker of epoch 2.
func markerOnly(p *partition) { p.mark(7, 2, 1, 1) }

// late accepted pid 7 at 500, its state lost before: nothing below 500 is proven.
func late(p *partition) { p.send(p.batch(7, 2, 500, 10)) }

// edge stands at the last number before the wrap.
func edge(p *partition) { p.send(p.batch(7, 2, top-9, 10)) }

func nobody(*partition)      {}
func emptyLog(p *partition)  { p.end = 0 }
func otherPID(p *partition)  { p.send(p.batch(8, 0, 0, 5)) }
func refusedAt(p *partition) { p.Refuse(p.batch(7, 2, 0, 1)) }

var decisionTable = []row{
	{name: "known, lower epoch", setup: known, e: 1, f: 30, n: 1, plain: Fenced, txn: Fenced},
	{name: "known, lower epoch, first", setup: known, e: 1, f: 0, n: 1, plain: Fenced, txn: Fenced},
	{name: "known, lower epoch, exact old copy", setup: func(p *partition) {
		p.send(p.batch(7, 1, 0, 10))
		known(p)
	}, e: 1, f: 0, n: 10, plain: Fenced, txn: Fenced},
	{name: "known, exact newest slot", setup: known, e: 2, f: 20, n: 10, plain: Duplicate, txn: Duplicate, base: 120},
	{name: "known, exact oldest slot", setup: known, e: 2, f: 0, n: 10, plain: Duplicate, txn: Duplicate, base: 100},
	{name: "known, exact slot of an open transaction", setup: knownTxn, e: 2, f: 10, n: 10,
		plain: Duplicate, txn: Duplicate, base: 110},
	{name: "known, exact slot of an ended transaction", setup: knownEnded, e: 2, f: 10, n: 10,
		plain: Duplicate, txn: Duplicate, base: 110},
	{name: "five of seven, oldest slot", setup: seven, e: 2, f: 2, n: 1, plain: Duplicate, txn: Duplicate, base: 102},
	{name: "covered, sixth last batch", setup: seven, e: 2, f: 1, n: 1, plain: DuplicateOld, txn: DuplicateOld},
	{name: "covered, first batch", setup: seven, e: 2, f: 0, n: 1, plain: DuplicateOld, txn: DuplicateOld},
	{name: "covered, other borders", setup: seven, e: 2, f: 3, n: 3, plain: DuplicateOld, txn: DuplicateOld},
	{name: "covered, part of a slot", setup: known, e: 2, f: 4, n: 6, plain: DuplicateOld, txn: DuplicateOld},
	{name: "covered across slots", setup: known, e: 2, f: 5, n: 20, plain: DuplicateOld, txn: DuplicateOld},
	{name: "covered across the wrap", setup: func(p *partition) {
		edge(p)
		p.send(p.batch(7, 2, 0, 10))
	}, e: 2, f: top, n: 2, plain: DuplicateOld, txn: DuplicateOld},
	{name: "known, next", setup: known, e: 2, f: 30, n: 1, plain: Accept, txn: Accept},
	{name: "known, next from M-1 to 0", setup: edge, e: 2, f: 0, n: 5, plain: Accept, txn: Accept},
	{name: "known, next straddles the wrap", setup: func(p *partition) { p.send(p.batch(7, 2, top-11, 10)) },
		e: 2, f: top - 1, n: 4, plain: Accept, txn: Accept},
	{name: "known, gap of one", setup: known, e: 2, f: 31, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "known, gap across the wrap", setup: edge, e: 2, f: 1, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "known, gap of half the range", setup: known, e: 2, f: 1 << 30, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "partial overlap by one", setup: known, e: 2, f: 29, n: 2, plain: OutOfOrder, txn: OutOfOrder},
	{name: "partial overlap from the first", setup: known, e: 2, f: 0, n: 31, plain: OutOfOrder, txn: OutOfOrder},
	{name: "behind, before the covered span", setup: late, e: 2, f: 400, n: 10, plain: OutOfOrder, txn: OutOfOrder},
	{name: "reaching into the span from before", setup: late, e: 2, f: 499, n: 2, plain: OutOfOrder, txn: OutOfOrder},
	{name: "first number of the span", setup: late, e: 2, f: 500, n: 1, plain: DuplicateOld, txn: DuplicateOld},
	{name: "all numbers there are, from within the span", setup: known, e: 2, f: 20, n: 1 << 31,
		plain: OutOfOrder, txn: OutOfOrder},
	{name: "marker only, same epoch, first", setup: markerOnly, e: 2, f: 0, n: 3, plain: Accept, txn: Accept},
	{name: "marker only, same epoch, not first", setup: markerOnly, e: 2, f: 1, n: 3, plain: OutOfOrder, txn: OutOfOrder},
	{name: "marker only, last number", setup: markerOnly, e: 2, f: top, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "higher epoch, first", setup: known, e: 3, f: 0, n: 10, plain: Accept, txn: Accept},
	{name: "much higher epoch, first", setup: known, e: 32767, f: 0, n: 10, plain: Accept, txn: Accept},
	{name: "higher epoch, running on", setup: known, e: 3, f: 30, n: 10, plain: OutOfOrder, txn: OutOfOrder},
	{name: "higher epoch, old numbers", setup: known, e: 3, f: 10, n: 10, plain: OutOfOrder, txn: OutOfOrder},
	{name: "unknown, first", setup: otherPID, e: 2, f: 0, n: 3, plain: Accept, txn: Accept},
	{name: "unknown, first, empty log", setup: emptyLog, e: 2, f: 0, n: 3, plain: Accept, txn: Accept},
	{name: "unknown, later", setup: otherPID, e: 2, f: 500, n: 3, plain: Accept, txn: Accept},
	{name: "unknown, later, empty log", setup: emptyLog, e: 2, f: 500, n: 3, plain: OutOfOrder, txn: OutOfOrder},
	{name: "unknown, later, Produce 12", setup: otherPID, e: 2, f: 500, n: 3, v12: true,
		plain: Accept, txn: OutOfOrder},
	{name: "unknown, first, Produce 12", setup: otherPID, e: 2, f: 0, n: 3, v12: true, plain: Accept, txn: Accept},
	{name: "open transaction, next", setup: knownTxn, e: 2, f: 30, n: 1, plain: TxnOpen, txn: Accept},
	{name: "open transaction, gap", setup: knownTxn, e: 2, f: 31, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "open transaction, higher epoch, first", setup: knownTxn, e: 3, f: 0, n: 1, plain: TxnOpen, txn: Accept},
	{name: "open transaction, higher epoch, later", setup: knownTxn, e: 3, f: 30, n: 1,
		plain: OutOfOrder, txn: OutOfOrder},
	{name: "ended transaction, next", setup: knownEnded, e: 2, f: 30, n: 1, plain: Accept, txn: Accept},
	{name: "ended transaction, gap", setup: knownEnded, e: 2, f: 31, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "refused first, first again", setup: refusedAt, e: 2, f: 0, n: 1, plain: Accept, txn: Accept},
	{name: "refused first, the one behind", setup: refusedAt, e: 2, f: 1, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "refused first, lower epoch", setup: refusedAt, e: 1, f: 0, n: 1, plain: Fenced, txn: Fenced},
	{name: "refused first, higher epoch", setup: refusedAt, e: 3, f: 0, n: 1, plain: Accept, txn: Accept},
	{name: "negative first sequence", setup: known, e: 2, f: -1 << 31, n: 1, plain: OutOfOrder, txn: OutOfOrder},
	{name: "negative first sequence, unknown", setup: nobody, e: 2, f: -2, n: 1, plain: OutOfOrder, txn: OutOfOrder},
}

func TestDecisionTable(t *testing.T) {
	for _, r := range decisionTable {
		for _, txn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/txn=%v", r.name, txn), func(t *testing.T) {
				p := newPartition(1 << 31)
				p.v12 = r.v12
				r.setup(p)
				b, want := p.batch(7, r.e, r.f, r.n), r.plain
				if txn {
					b, want = p.txn(7, r.e, r.f, r.n), r.txn
				}
				if r.f < 0 {
					b.LastSeq = r.f
				}
				judge(t, p, b, want, r.base)
			})
		}
	}
}

// judge sends a batch and compares verdict, answer and what became of the state.
func judge(t *testing.T, p *partition, b *Batch, want Verdict, base int64) {
	t.Helper()
	before, end := p.state(), p.end
	open, _, _ := p.Unstable(0)
	d := p.want(t, b, want)
	after, is := p.state()[b.PID]
	if want != Accept {
		if fmt.Sprint(before) != fmt.Sprint(p.state()) || p.end != end {
			t.Fatalf("a batch that was not accepted changed the state: %+v", after)
		}
	}
	switch want {
	case Accept:
		s := after.Stamps[after.N-1]
		if !is || after.Epoch != b.Epoch || s.Base() != end || s.LastSeq != b.LastSeq ||
			p.seq.first(s.LastSeq, s.Delta) != b.FirstSeq || s.CRC != b.CRC || s.Time != 5000+end || after.LastTime != 5000+end {
			t.Fatalf("state after the append: %+v", after)
		}
		was := before[b.PID]
		if was.Epoch != b.Epoch && after.N != 1 {
			t.Fatalf("%d slots in the first batch of an epoch", after.N)
		}
		first := was.TxnFirst
		if _, knew := before[b.PID]; !knew || first < 0 {
			if first = -1; b.Txn {
				first = end
			}
		}
		if after.TxnFirst != first {
			t.Fatalf("transaction from %d, want %d", after.TxnFirst, first)
		}
		if now, pos, ok := p.Unstable(0); first == end && open < 0 && (!ok || now != end || pos != 10*end) {
			t.Fatalf("unstable from %d at position %d (%v), want %d", now, pos, ok, end)
		}
	case Duplicate:
		if d.Stamp.Base() != base || p.seq.first(d.Stamp.LastSeq, d.Stamp.Delta) != b.FirstSeq ||
			d.Stamp.LastSeq != b.LastSeq || d.Stamp.Time != 5000+base || d.Stamp.CRC != b.CRC {
			t.Fatalf("duplicate of %+v, want one at %d", d.Stamp, base)
		}
	case DuplicateOld:
		newest := after.Stamps[after.N-1].Last
		if s := (Seek{b.PID, b.Epoch, b.FirstSeq, b.LastSeq, after.Stamps[0].Base(), newest}); d.Seek != s {
			t.Fatalf("seek %+v, want %+v", d.Seek, s)
		}
	}
}

func TestUnprovenIsTold(t *testing.T) {
	p := newPartition(1 << 31)
	if d := p.want(t, p.batch(1, 0, 7, 1), Accept); !d.Unproven {
		t.Error("an unknown producer that begins at 7 was not told")
	}
	if d := p.want(t, p.batch(1, 0, 8, 1), Accept); d.Unproven {
		t.Error("the next batch of a known producer was told as unproven")
	}
	if d := p.want(t, p.batch(2, 0, 0, 1), Accept); d.Unproven {
		t.Error("an unknown producer that begins at 0 was told as unproven")
	}
}

// TestSpan: how many numbers are proven, which is what separates a duplicate from a loss.
func TestSpan(t *testing.T) {
	p := newPartition(1 << 31)
	span := func(want uint32) {
		t.Helper()
		if got := p.state()[7].Span; got != want {
			t.Fatalf("span %d, want %d", got, want)
		}
	}
	p.want(t, p.batch(7, 0, 500, 10), Accept) // unknown: n
	span(10)
	p.want(t, p.batch(7, 0, 510, 5), Accept)
	span(15)
	p.want(t, p.batch(7, 1, 0, 3), Accept) // new epoch: n
	span(3)
	p.mark(7, 1, 1, 1) // same epoch: sequences run on
	span(3)
	p.mark(7, 2, 1, 1)
	span(0)
	p.want(t, p.batch(7, 2, 0, 4), Accept)
	span(4)
	p.Replay(p.batch(7, 2, 9, 2), p.place(p.batch(7, 2, 9, 2))) // a hole of compaction
	span(2)
	if n := p.state()[7].N; n != 2 {
		t.Fatalf("%d slots after the hole, want 2: real slots are kept", n)
	}
	p.want(t, p.batch(7, 2, 0, 4), Duplicate) // the slot from before the hole
	p.want(t, p.batch(7, 2, 2, 2), OutOfOrder)
	p.want(t, p.batch(7, 2, 11, 1), Accept)
	span(3)
}

// TestSpanSaturates sends more numbers than half the modulus and shows that none below the saturated span is claimed.
func TestSpanSaturates(t *testing.T) {
	p := newPartition(64)
	for i := range int32(200) {
		p.want(t, p.batch(7, 0, i%64, 1), Accept)
	}
	// Last is 199 = 7 modulo 64; the span is 31, so 31 numbers from 169 on are proven.
	p.want(t, p.batch(7, 0, 169%64, 1), DuplicateOld)
	p.want(t, p.batch(7, 0, 168%64, 1), OutOfOrder)
	p.want(t, p.batch(7, 0, 168%64, 2), OutOfOrder)
	if got := p.state()[7].Span; got != 31 {
		t.Fatalf("span %d, want 31", got)
	}
}

// TestDuplicateAfterFurtherBatches retries a batch after each of 1..10 further ones: the offset is true, or the batch
// is told as proven with everything the walk back needs.
func TestDuplicateAfterFurtherBatches(t *testing.T) {
	for further := 1; further <= 10; further++ {
		p := newPartition(1 << 31)
		p.want(t, p.batch(7, 0, 0, 3), Accept)
		for i := range further {
			p.want(t, p.batch(9, 0, int32(i), 1), Accept) // another producer between
			p.want(t, p.batch(7, 0, int32(3+2*i), 2), Accept)
		}
		want := Duplicate
		if further >= Window {
			want = DuplicateOld
		}
		d := p.want(t, p.batch(7, 0, 0, 3), want)
		if want == Duplicate && (d.Stamp.Base() != 100 || d.Stamp.Last != 102) {
			t.Fatalf("%d further: duplicate at %d", further, d.Stamp.Base())
		}
		if want == DuplicateOld && (d.Seek.Until != p.end-1 || d.Seek.Before != p.end-int64(5*3-1)) {
			t.Fatalf("%d further: %+v with log end %d", further, d.Seek, p.end)
		}
	}
}

// TestCoordinatorWrites have no sequence: the epoch is tested, the window stays empty, a transaction needs its guard.
func TestCoordinatorWrites(t *testing.T) {
	p := newPartition(1 << 31)
	write := func(epoch int16, txn bool) *Batch {
		return &Batch{PID: 7, Epoch: epoch, FirstSeq: -1, LastSeq: -1, Txn: txn, Touch: p.touch, FromZero: true}
	}
	if d := p.Check(write(3, true)); d.Verdict != TxnUnverified || d.Guard == 0 {
		t.Fatalf("without a guard: %+v", d)
	}
	p.want(t, write(3, true), Accept)
	p.want(t, write(3, true), Accept)
	p.want(t, write(2, true), Fenced)
	p.want(t, write(3, false), TxnOpen)
	s := p.state()[7]
	if s.N != 0 || s.Span != 0 || s.TxnFirst != 100 || s.Epoch != 3 {
		t.Fatalf("state %+v", s)
	}
	if end, err := p.mark(7, 3, 1, 1); err != nil || end.First != 100 {
		t.Fatalf("%+v %v", end, err)
	}
	p.want(t, write(4, false), Accept)
	p.want(t, write(3, false), Fenced)
}

// TestRefuse is the exception to I5: it holds back what lies behind a refused first batch, and claims nothing.
func TestRefuse(t *testing.T) {
	p := newPartition(1 << 31)
	p.Refuse(p.batch(1, 4, 3, 1)) // not the first
	if p.Len() != 0 {
		t.Fatal("a batch that does not begin at 0 left an entry")
	}
	p.want(t, p.batch(2, 4, 0, 1), Accept)
	before := p.state()
	p.Refuse(p.batch(2, 9, 0, 1)) // known
	if fmt.Sprint(p.state()) != fmt.Sprint(before) {
		t.Fatal("refusing a batch of a known producer changed it")
	}
	p.Refuse(p.batch(1, 4, 0, 1))
	p.want(t, p.batch(1, 4, 1, 1), OutOfOrder)
	if _, shown := p.state()[1]; shown || p.Len() != 2 {
		t.Fatalf("shown %v, %d held: the entry is held but claims nothing", shown, p.Len())
	}
	if r := newPartition(1 << 31); r.Load(p.snapshot(t), 0) != nil || r.Len() != 1 {
		t.Fatal("the entry is in the snapshot")
	}
	if end, err := p.mark(1, 0, 1, 1); err != nil || end.Same { // it fences no marker
		t.Fatalf("marker: %+v %v", end, err)
	}
	if s := p.state()[1]; s.Epoch != 0 || s.N != 0 {
		t.Fatalf("after the marker: %+v", s)
	}
	p.Refuse(p.batch(3, 4, 0, 1))
	p.want(t, p.batch(3, 4, 0, 1), Accept)
	p.want(t, p.batch(3, 4, 1, 1), Accept)
	if s := p.state()[3]; s.N != 2 || s.Span != 2 {
		t.Fatalf("after the retry: %+v", s)
	}
}

// TestRefuseEvictsNobody: what claims nothing must not push out what does.
func TestRefuseEvictsNobody(t *testing.T) {
	p := newPartition(1 << 31)
	p.max = 2
	p.want(t, p.batch(1, 0, 0, 1), Accept)
	p.want(t, p.batch(2, 0, 0, 1), Accept)
	p.Refuse(p.batch(3, 0, 0, 1))
	if n, _ := p.Evicted(); n != 0 || p.Len() != 2 || len(p.state()) != 2 {
		t.Fatalf("%d evicted, %d held", n, p.Len())
	}
}

// TestReplayTrustsTheLog: older epochs keep the higher one and are told.
func TestReplayTrustsTheLog(t *testing.T) {
	p := newPartition(1 << 31)
	replay := func(b *Batch) bool { return p.Replay(b, p.place(b)) }
	if replay(p.batch(7, 5, 40, 10)) || replay(p.batch(7, 5, 50, 10)) {
		t.Fatal("told as stale")
	}
	if !replay(p.batch(7, 4, 0, 3)) {
		t.Fatal("a batch of an older epoch was not told")
	}
	s := p.state()[7]
	if s.Epoch != 5 || s.N != 2 || s.Span != 20 || s.Stamps[1].LastSeq != 59 {
		t.Fatalf("after the stale batch: %+v", s)
	}
	p.want(t, p.batch(7, 5, 60, 1), Accept)
	if replay(p.batch(7, 6, 33, 1)) { // no rule but the log's
		t.Fatal("a higher epoch was told as stale")
	}
	if s := p.state()[7]; s.Epoch != 6 || s.N != 1 || s.Span != 1 {
		t.Fatalf("after the higher epoch: %+v", s)
	}
	if !replay(p.txn(7, 4, 0, 3)) || p.state()[7].TxnFirst != p.end-3 {
		t.Fatal("data of a stale transaction must hold the last stable offset")
	}
	k := &Marker{PID: 7, Epoch: 4, CoordEpoch: 2, Time: 1}
	if d := p.ReplayMarker(&Marker{PID: 8}, At{Base: p.end, Last: p.end}); d.Same || d.Had || d.Stale || d.First != -1 {
		t.Fatalf("marker of an unknown producer: %+v", d)
	}
	if d := p.ReplayMarker(k, At{Base: p.end, Last: p.end}); !d.Stale || !d.Had || d.First != p.end-3 {
		t.Fatalf("stale marker: %+v", d)
	}
	if s := p.state()[7]; s.Epoch != 6 || s.TxnFirst != -1 || s.CoordEpoch != 2 {
		t.Fatalf("after the stale marker: %+v", s)
	}
}
