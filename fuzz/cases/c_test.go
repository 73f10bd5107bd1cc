package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// C1. The timeout aborts and fences.
func TestC1TimeoutAborts(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("c1", 1)
		x := n.INITFor(g, "c1", 2000)
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 2)
		begin := n.now()
		if n.stable(p) != 0 {
			t.Errorf("LSO %d with the transaction open", n.stable(p))
		}
		n.decided(p)
		if took := n.now() - begin; took < 1500 || took > 12_000 {
			t.Errorf("aborted after %d ms; want 2 s to 12 s", took)
		}
		n.markers(p, false)
		n.unchanged(p, func() {
			code := x.END(true)
			n.oneOf("END", code, codeEpoch, codeProducerFenced)
			n.oneOf("ADD", x.addOnce(p), codeEpoch, codeProducerFenced)
			n.refused("write", x.at(p, 2, 1), codeEpoch)
			n.refused("retry", x.at(p, 0, 2), codeEpoch)
		})
		next := n.INIT(g, "c1")
		next.commits(p, 1)
		n.holds(p, 1)
	})
}

// C2. A straggler after the abort.
func TestC2Straggler(t *testing.T) {
	for _, v := range []int16{9, 10, 11, 12} {
		t.Run(fmt.Sprint("Produce", v), func(t *testing.T) {
			n := launch(t, options{})
			g, want := txnV1, int16(codeTxnState)
			switch v {
			case 11:
				want = codeTxnAbortable
			case 12:
				g, want = txnV2, codeEpoch
			}
			g.produce = v
			p := n.topic("c2", 1)
			x := n.INIT(g, "c2")
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 1)
			late := *x
			x.ended(false)
			n.decided(p)
			n.unchanged(p, func() { n.refused("the straggler", late.at(p, 1, 1), want) })
			if n.stable(p) != n.high(p) {
				t.Errorf("LSO %d, HW %d", n.stable(p), n.high(p))
			}
			if !g.v2 {
				x.seq[p] = 1 // the sequence goes on within the epoch
			}
			x.commits(p, 1)
			n.holds(p, 1)
		})
	}
}

// C3. A transactional write to a partition that was never added.
func TestC3NeverAdded(t *testing.T) {
	for v, want := range map[int16]int16{3: codeTxnState, 10: codeTxnState, 11: codeTxnAbortable} {
		n := launch(t, options{})
		g := txnV1
		g.produce = v
		p0 := n.topic("c3", 2)
		p1 := tp{"c3", 1}
		x := n.INIT(g, "c3")
		n.unchanged(p0, func() { n.refused("first batch ever, nothing added", x.at(p0, 0, 1), want) })
		n.oneOf("ADD", x.ADD(p0), 0)
		n.unchanged(p1, func() { n.refused("another partition", x.at(p1, 0, 1), want) })
		x.must(p0, 1)
		x.ended(true)
		n.decided(p0, p1)
	}
	n := launch(t, options{})
	p := n.topic("c3", 1)
	x := n.INIT(txnV2, "c3")
	x.must(p, 1)
	d := n.describe("c3")
	if d.State != "Ongoing" || len(d.Topics) != 1 || d.Topics[0].Topic != "c3" || len(d.Topics[0].Partitions) != 1 {
		t.Errorf("described as %+v; the write adds the partition", d)
	}
}

// describe is DescribeTransactions of one id.
func (n *node) describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	n.t.Helper()
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = []string{id}
	a := ask[*kmsg.DescribeTransactionsResponse](n, r)
	if len(a.TransactionStates) != 1 {
		n.t.Fatalf("DescribeTransactions %q: %+v", id, a)
	}
	return a.TransactionStates[0]
}

// C4. Timeout values.
func TestC4TimeoutValues(t *testing.T) {
	n := launch(t, options{settings: map[string]string{"transaction.max.timeout.ms": "30000"}})
	n.coordinator(1, "c4")
	p := n.topic("c4", 1)
	for timeout, want := range map[int32]int16{
		0: codeTxnTimeout, -1: codeTxnTimeout, 30_000: 0, 30_001: codeTxnTimeout, 2147483647: codeTxnTimeout,
		-2147483648: codeTxnTimeout,
	} {
		x := &txn{n: n, g: txnV1, c: n.dial(), id: fmt.Sprint("c4-", timeout), seq: map[tp]int32{}}
		who, code := x.tryInit(timeout, producer{-1, -1})
		if code != want || (code != 0) != (who.id == -1) {
			t.Errorf("timeout %d: %+v, code %d; want %d", timeout, who, code, want)
		}
		if code != 0 {
			continue
		}
		x.who = who
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 1)
		n.pass(2 * time.Second)
		n.oneOf("END 2 s later", x.END(true), 0)
	}
}

// C5. The operator can see and end a stuck transaction.
func TestC5OperatorAborts(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("c5", 2)
		n.want("a plain record", n.P(p, n.init(), 0, 1), codeNone, 0)
		begin := n.now()
		x := n.INITFor(g, "c5", 600_000)
		n.oneOf("ADD", x.ADD(p), 0)
		first := x.must(p, 2)
		x.c.Close()

		l := kmsg.NewPtrListTransactionsRequest()
		listed := ask[*kmsg.ListTransactionsResponse](n, l)
		if len(listed.TransactionStates) != 1 || listed.TransactionStates[0].TransactionalID != "c5" ||
			listed.TransactionStates[0].ProducerID != x.who.id || listed.TransactionStates[0].TransactionState != "Ongoing" {
			t.Errorf("listed: %+v", listed)
		}
		d := n.describe("c5")
		if d.ErrorCode != 0 || d.State != "Ongoing" || d.ProducerID != x.who.id || d.ProducerEpoch != x.who.epoch ||
			d.TimeoutMillis != 600_000 || d.StartTimestamp < begin || d.StartTimestamp > n.now() || len(d.Topics) != 1 ||
			len(d.Topics[0].Partitions) != 1 || d.Topics[0].Partitions[0] != 0 {
			t.Errorf("described: %+v", d)
		}
		found := n.openIn(p)
		if len(found) != 1 || found[0].ProducerID != x.who.id || found[0].CurrentTxnStartOffset != first {
			t.Fatalf("open in %v: %+v", p, found)
		}
		if code := n.writeMarker(found[0], p); code != 0 {
			t.Fatalf("WriteTxnMarkers: code %d", code)
		}
		if n.stable(p) != n.high(p) || len(n.openIn(p)) != 0 {
			t.Errorf("LSO %d, HW %d, open %+v", n.stable(p), n.high(p), n.openIn(p))
		}
		n.holds(p, 1)
		next := n.INIT(g, "c5") // the coordinator closes its side
		next.commits(p, 1)
		n.holds(p, 2)
	})
}

// openIn are the producers of DescribeProducers that have a transaction open.
func (n *node) openIn(p tp) (out []kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
	n.t.Helper()
	r := kmsg.NewPtrDescribeProducersRequest()
	r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: p.topic, Partitions: []int32{p.partition}}}
	a := ask[*kmsg.DescribeProducersResponse](n, r).Topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		n.t.Fatalf("DescribeProducers %v: code %d", p, a.ErrorCode)
	}
	for _, x := range a.ActiveProducers {
		if x.CurrentTxnStartOffset >= 0 {
			out = append(out, x)
		}
	}
	return out
}

// writeMarker aborts one transaction on one partition, as the operator's tool does.
func (n *node) writeMarker(who kmsg.DescribeProducersResponseTopicPartitionActiveProducer, p tp) int16 {
	n.t.Helper()
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	r.Version = 1
	r.Markers = []kmsg.WriteTxnMarkersRequestMarker{{
		ProducerID: who.ProducerID, ProducerEpoch: int16(who.ProducerEpoch), CoordinatorEpoch: max(who.CoordinatorEpoch, 0),
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: p.topic, Partitions: []int32{p.partition}}},
	}}
	return ask[*kmsg.WriteTxnMarkersResponse](n, r).Markers[0].Topics[0].Partitions[0].ErrorCode
}

// C6. Transactions with nothing in them.
func TestC6NothingInside(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p0, p1 := n.topic("c6", 2), tp{"c6", 1}
		x := n.INIT(g, "c6")
		n.oneOf("(a) commit of nothing", x.END(true), codeTxnState)
		if g.v2 {
			for range 2 {
				n.oneOf("(e) abort of nothing", x.END(false), 0)
			}
		} else {
			n.oneOf("(e) abort of nothing", x.END(false), codeTxnState)
			n.oneOf("ADD", x.ADD(p0, p1), 0)
			n.oneOf("(b) commit of what was only added", x.END(true), 0)
		}
		n.oneOf("ADD", x.ADD(p0, p1), 0)
		x.must(p0, 1)
		n.oneOf("(c) commit with a partition not written", x.END(true), 0)
		if g.v2 {
			n.oneOf("abort right after a commit", x.END(false), 0)
		}
		n.oneOf("AddOffsetsToTxn", x.addOffsets("c6"), 0)
		n.oneOf("TOC", x.TOC("c6", p0, 7), 0)
		n.oneOf("(d) commit of offsets alone", x.END(true), 0)
		if offset, code := n.OF("c6", p0, true); offset != 7 || code != 0 {
			t.Errorf("group at %d, code %d", offset, code)
		}
		n.oneOf("ADD", x.ADD(p1), 0)
		x.must(p1, 2)
		n.oneOf("commit", x.END(true), 0)
		n.decided(p0, p1)
		if a, b := n.committed(p0, 0, 1<<20), n.committed(p1, 0, 1<<20); len(a) != 1 || len(b) != 2 {
			t.Errorf("committed: %v and %v", a, b)
		}
	})
}

// C7. EndTxn retried.
func TestC7EndRetried(t *testing.T) {
	for _, commit := range []bool{true, false} {
		generations(t, options{}, func(t *testing.T, n *node, g generation) {
			p := n.topic("c7", 1)
			x := n.INIT(g, "c7")
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 2)
			who, next := x.who, producer{}
			end := func(c bool) (code int16) {
				return x.retry(func() int16 {
					var got producer
					if got, code = x.endAs(who, c); code == 0 && g.v2 {
						if next != (producer{}) && got != next {
							t.Errorf("commit %v: %+v, the first answer was %+v", c, got, next)
						}
						next = got
					}
					return code
				})
			}
			for range 3 {
				n.oneOf("the decision", end(commit), 0)
			}
			opposite := []int16{codeTxnState}
			if g.v2 && !commit {
				opposite = []int16{codeProducerFenced}
			}
			n.oneOf("the opposite", end(!commit), opposite...)
			n.oneOf("the decision again", end(commit), 0)
			n.decided(p)
			n.markers(p, commit)
			want := 0
			if commit {
				want = 2
			}
			if got := n.committed(p, 0, 1<<20); len(got) != want {
				t.Errorf("commit %v: %v", commit, got)
			}
		})
	}
}

// C8. The next transaction starts while the last one is being finished.
func TestC8BackToBack(t *testing.T) {
	generations(t, options{realTime: true}, func(t *testing.T, n *node, g generation) {
		rounds, parts := size(300, 10_000), int32(20)
		n.topic("c8", parts)
		x := n.INIT(g, "c8")
		seq := map[tp]int32{}
		want := map[tp][]int32{}
		for i := range rounds {
			a, b := tp{"c8", int32(i) % parts}, tp{"c8", int32(i*7+3) % parts}
			if a == b {
				b.partition = (b.partition + 1) % parts
			}
			n.oneOf("ADD", x.ADD(a, b), 0)
			for _, p := range []tp{a, b} {
				s := seq[p]
				if g.v2 {
					s = 0
				}
				x.seq[p] = s
				x.must(p, 1)
				seq[p] = s + 1
				want[p] = append(want[p], int32(x.who.epoch)<<16|s)
			}
			x.ended(true)
		}
		for p, list := range want {
			n.decided(p)
			got := n.committed(p, 0, 1<<20)
			if len(got) != len(list) {
				t.Fatalf("%v: %d records, %d were committed", p, len(got), len(list))
			}
			for i, r := range got {
				var id int64
				var epoch, s int32
				if _, err := fmt.Sscanf(r.value, "%d/%d/%d", &id, &epoch, &s); err != nil || epoch<<16|s != list[i] {
					t.Fatalf("%v: record %d is %q", p, i, r.value)
				}
			}
		}
	})
}

// C9. A topic is deleted while a transaction writes to it.
func TestC9TopicDeleted(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		gone, stays := n.topic("c9-gone", 1), n.topic("c9-stays", 1)
		x := n.INIT(g, "c9")
		committed := 0
		round := func(both bool) {
			t.Helper()
			ps := []tp{stays}
			if both {
				ps = []tp{gone, stays}
			}
			n.oneOf("ADD", x.ADD(ps...), 0)
			for _, p := range ps {
				x.must(p, 1)
			}
		}
		end := func() {
			t.Helper()
			begin := n.now()
			x.ended(true)
			committed++
			n.decided(stays)
			if took := n.now() - begin; took > 10_000 {
				t.Errorf("the end took %d ms", took)
			}
		}

		round(true)
		n.oneOf("delete", n.deleteTopic(gone.topic), 0)
		end()
		round(false)
		end()
		n.restart("STOP")
		x.again()
		round(false)
		end()

		n.topic(gone.topic, 1)
		delete(x.seq, gone)
		round(true)
		end()
		n.oneOf("delete after the end", n.deleteTopic(gone.topic), 0)

		n.topic(gone.topic, 1)
		delete(x.seq, gone)
		round(true)
		n.oneOf("delete in between", n.deleteTopic(gone.topic), 0)
		n.topic(gone.topic, 1)
		end()
		round(false)
		end()
		n.restart("KILL")
		x.again()
		round(false)
		end()
		if got := n.committed(stays, 0, 1<<20); len(got) != committed {
			t.Errorf("%d records, %d were committed", len(got), committed)
		}
		if high := n.high(gone); high != 0 {
			t.Errorf("%d offsets in the topic made anew", high)
		}
		busy := n.cpu()
		n.pass(size(3*time.Second, 20*time.Second))
		if used := n.cpu() - busy; full && used > 2*time.Second {
			t.Errorf("%v of processor time in 20 idle seconds", used)
		}
	})
}
