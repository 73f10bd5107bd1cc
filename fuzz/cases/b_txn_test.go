package cases

import (
	"testing"
	"time"

	"sekali/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oneOf demands one of several codes.
func (n *node) oneOf(what string, code int16, want ...int16) {
	n.t.Helper()
	for _, w := range want {
		if code == w {
			return
		}
	}
	n.t.Errorf("%s: code %d; want one of %v", what, code, want)
}

// B1. The right fencing code in the right answer.
func TestB1FencingCodes(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("b1", 1)
		old, owner := n.INIT(g, "b1"), n.INIT(g, "b1")
		n.oneOf("ADD of the owner", owner.ADD(p), 0)
		owner.must(p, 2)
		n.unchanged(p, func() {
			for _, v := range []int16{3, 7, 10, 11, 12} {
				old.g.produce = v
				n.refused("Produce", old.at(p, 0, 1), codeEpoch)
			}
			for v, code := range map[int16]int16{0: codeEpoch, 1: codeEpoch, 2: codeProducerFenced, 3: codeProducerFenced} {
				old.g.add = v
				n.oneOf("ADD", old.addOnce(p), code)
				r := kmsg.NewPtrAddOffsetsToTxnRequest()
				r.Version, r.TransactionalID, r.Group = v, old.id, "g"
				r.ProducerID, r.ProducerEpoch = old.who.id, old.who.epoch
				n.oneOf("AddOffsetsToTxn", ask[*kmsg.AddOffsetsToTxnResponse](n, r).ErrorCode, code)
			}
			for v, code := range map[int16]int16{0: codeEpoch, 1: codeEpoch, 2: codeProducerFenced, 3: codeProducerFenced,
				4: codeProducerFenced, 5: codeProducerFenced} {
				old.g.end = v
				for _, commit := range []bool{true, false} {
					_, got := old.endAs(old.who, commit)
					n.oneOf("END", got, code)
				}
			}
			for _, v := range []int16{0, 2, 3, 4, 5} {
				old.g.offsets = v
				n.oneOf("TOC", old.tocAs("g", nobody, p, 1), codeEpoch, codeProducerFenced)
			}
			for v, code := range map[int16]int16{3: codeEpoch, 4: codeProducerFenced, 5: codeProducerFenced} {
				old.g.init = v
				_, got := old.tryInit(txnDefaultTimeoutMs, old.who)
				n.oneOf("InitProducerId", got, code)
			}
		})
		owner.ended(true)
		n.decided(p)
		n.holds(p, 2)
		if _, code := n.OF("g", p, true); code != 0 {
			t.Errorf("offsets of the group: code %d", code)
		}
	})
}

// B3. InitProducerId retried with the caller's own id and epoch.
func TestB3InitRetried(t *testing.T) {
	for _, v := range []int16{3, 4, 5} {
		n := launch(t, options{})
		n.INIT(txnV1, "b3")
		x := n.INIT(txnV1, "b3")
		x.g.init = v
		e, fenced := x.who, int16(codeProducerFenced)
		if v < 4 {
			fenced = codeEpoch
		}
		for i := range 2 {
			got, code := x.tryInit(txnDefaultTimeoutMs, e)
			if code != 0 || got != (producer{e.id, e.epoch + 1}) {
				t.Errorf("version %d, time %d: %+v, code %d; want epoch %d", v, i, got, code, e.epoch+1)
			}
		}
		for _, stranger := range []producer{{e.id, e.epoch - 1}, {e.id + 1000, e.epoch}} {
			if got, code := x.tryInit(txnDefaultTimeoutMs, stranger); code != fenced {
				t.Errorf("version %d: as %+v: %+v, code %d; want %d", v, stranger, got, code, fenced)
			}
		}
	}
}

// B4. Epoch exhaustion gives a new id.
func TestB4EpochsRunOut(t *testing.T) {
	const calls, together = 33_000, 100
	n := launch(t, options{})
	x := n.INIT(txnV1, "b4")
	first := x.who
	var last producer // of the first id
	seen := map[producer]bool{x.who: true}
	r := initRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis = x.g.init, &x.id, txnDefaultTimeoutMs
	reqs := make([]kmsg.Request, together)
	for i := range reqs {
		reqs[i] = r
	}
	for done := 0; done < calls; done += together {
		n.must(x.c.Send(reqs...))
		for range together {
			resp, err := x.c.Receive(r)
			n.must(err)
			a := resp.(*kmsg.InitProducerIDResponse)
			got := producer{a.ProducerID, a.ProducerEpoch}
			switch {
			case a.ErrorCode != 0:
				t.Fatalf("after %d calls: code %d", len(seen), a.ErrorCode)
			case got.epoch < 0 || seen[got]:
				t.Fatalf("after %d calls: %+v is negative or was given before", len(seen), got)
			case got.id == x.who.id && got.epoch < x.who.epoch:
				t.Fatalf("after %+v: %+v, the epoch falls", x.who, got)
			case got.id != x.who.id && (got.epoch > 1 || x.who.epoch < 32_000):
				t.Fatalf("after %+v: another id with %+v", x.who, got)
			}
			if got.id != first.id && x.who.id == first.id {
				last = x.who
			}
			seen[got], x.who = true, got
		}
	}
	if last.id != first.id {
		t.Fatalf("%d calls and still id %d, epoch %d", calls, x.who.id, x.who.epoch)
	}
	p := n.topic("b4", 1)
	zombie := *x
	zombie.who, zombie.seq = last, map[tp]int32{}
	n.oneOf("ADD as the last of the old id", zombie.ADD(p), codeMapping, codeProducerFenced)
	n.unchanged(p, func() {
		n.refused("write as the last of the old id", zombie.at(p, 0, 1), codeTxnState, codeEpoch, codeMapping)
	})
	_, code := zombie.endAs(last, true)
	n.oneOf("END as the last of the old id", code, codeMapping, codeProducerFenced)
	x.commits(p, 1)
	n.holds(p, 1)
}

// B5. A new owner takes over an open transaction.
func TestB5TakeOver(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("b5", 1)
		zombie := n.INIT(g, "b5")
		n.oneOf("ADD", zombie.ADD(p), 0)
		zombie.must(p, 3)
		begin := n.now()
		owner := n.INIT(g, "b5")
		if took := n.now() - begin; took > 5000 {
			t.Errorf("the take-over lasted %d ms", took)
		}
		if owner.who.epoch <= zombie.who.epoch && owner.who.id == zombie.who.id {
			t.Errorf("owner %+v, zombie %+v", owner.who, zombie.who)
		}
		n.decided(p)
		n.unchanged(p, func() {
			n.refused("write of the zombie", zombie.at(p, 3, 1), codeEpoch)
			n.refused("retry of the zombie", zombie.at(p, 0, 3), codeEpoch)
			code := zombie.END(true)
			n.oneOf("END of the zombie", code, codeEpoch, codeProducerFenced)
		})
		n.holds(p, 0)
		n.markers(p, false)
	})
}

// markers demands that the markers of a partition, in order, are commits (true) and aborts (false), and that each has
// the layout clients expect.
func (n *node) markers(p tp, want ...bool) {
	n.t.Helper()
	var got []bool
	for _, v := range n.read(p).batches() {
		if !v.Attrs().Control() {
			continue
		}
		mk, err := batch.ParseMarker(v)
		n.must(err)
		got = append(got, mk.Commit)
	}
	if len(got) != len(want) {
		n.t.Errorf("markers of %v: commits %v, want %v", p, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			n.t.Errorf("markers of %v: commits %v, want %v", p, got, want)
			return
		}
	}
}

// B7. An expired transactional id.
func TestB7ExpiredID(t *testing.T) {
	set := map[string]string{"transactional.id.expiration.ms": "2000"}
	generations(t, options{settings: set}, func(t *testing.T, n *node, g generation) {
		p := n.topic("b7", 1)
		x := n.INIT(g, "b7")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 1)
		x.ended(true)
		n.pass(8 * time.Second)
		n.oneOf("ADD of the expired", x.addOnce(p), codeMapping)
		_, code := x.endAs(x.who, true)
		n.oneOf("END of the expired", code, codeMapping)
		next := n.INIT(g, "b7")
		if next.who.id == x.who.id && next.who.epoch <= x.who.epoch {
			t.Errorf("%+v after %+v", next.who, x.who)
		}
		next.commits(p, 1)
		n.holds(p, 2)
	})
}

// B8. A client that raises its own epoch inside a transaction loses all of it, and nothing silently.
func TestB8OwnEpochInside(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("b8", 1)
		x := n.INIT(g, "b8")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 2)
		old := *x
		var code int16
		x.retry(func() int16 { x.who, code = x.tryInit(txnDefaultTimeoutMs, old.who); return code })
		if code != 0 || x.who.id == old.who.id && x.who.epoch <= old.who.epoch {
			t.Fatalf("InitProducerId: %+v, code %d", x.who, code)
		}
		n.markers(p, false)
		x.seq = map[tp]int32{}
		n.oneOf("ADD", x.ADD(p), 0)
		base := x.must(p, 3)
		_, code = old.endAs(old.who, true)
		n.oneOf("END of the old epoch", code, codeEpoch, codeProducerFenced, codeMapping)
		x.ended(true)
		n.decided(p)
		got := n.committed(p, 0, 1<<20)
		if len(got) != 3 || got[0].offset != base {
			t.Errorf("committed: %v; want the three from %d on", got, base)
		}
		n.markers(p, false, true)
	})
}

// B9. A plain write by a producer with an open transaction.
func TestB9PlainWriteInside(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("b9", 1)
		x := n.INIT(g, "b9")
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 2)
		n.unchanged(p, func() { n.refused("plain write", n.P(p, x.who, 2, 1), codeTxnState, codeEpoch) })
		x.ended(true)
		n.decided(p)
		n.holds(p, 2)
	})
}
