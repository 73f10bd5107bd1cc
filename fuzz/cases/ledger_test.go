package cases

import (
	"fmt"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledger is what a case knows to be acknowledged in one partition.
type ledger struct {
	p     tp
	start int64
	high  int64
	held  map[int64]string // value by offset, from start to high
}

func newLedger(p tp) *ledger { return &ledger{p: p, held: map[int64]string{}} }

// add notes an acknowledged batch of count records that begins at a sequence.
func (l *ledger) add(who producer, seq int32, count int, base int64) error {
	for i := range int64(count) {
		v := fmt.Sprintf("%d/%d/%d", who.id, who.epoch, int64(seq)+i)
		if old, ok := l.held[base+i]; ok && old != v {
			return fmt.Errorf("%v: offset %d acknowledged for %s and for %s", l.p, base+i, old, v)
		}
		l.held[base+i] = v
		l.high = max(l.high, base+i+1)
	}
	return nil
}

// settled demands that a partition holds exactly what was acknowledged, from a log start that did not fall.
func (n *node) settled(what string, l *ledger) {
	n.t.Helper()
	c := n.read(l.p)
	if c.high != l.high || c.stable != l.high || c.start < l.start {
		n.t.Fatalf("%s, %v: log start %d (was %d), last stable offset %d, high watermark %d (was %d)",
			what, l.p, c.start, l.start, c.stable, c.high, l.high)
	}
	l.start = c.start
	all := c.records()
	if int64(len(all)) != c.high-c.start {
		n.t.Fatalf("%s, %v: %d records from %d to %d", what, l.p, len(all), c.start, c.high)
	}
	for _, r := range all {
		if want, ok := l.held[r.offset]; !ok || r.value != want {
			n.t.Fatalf("%s, %v: offset %d holds %q, acknowledged was %q", what, l.p, r.offset, r.value, want)
		}
	}
}

// writer is an idempotent producer of one partition that keeps several requests in flight.
type writer struct {
	n    *node
	l    *ledger
	who  producer
	next int32
	last int64 // offset of its last acknowledged record
	c    *rawclient.Client
}

func (n *node) writer(l *ledger) *writer { return &writer{n: n, l: l, who: n.init(), last: -1} }

// burst sends count batches of perBatch records with one write and takes their answers to the ledger. It returns how
// many were acknowledged and the codes of the others, which must all come behind them.
func (w *writer) burst(count, perBatch, bytes int) (acked int, codes []int16, err error) {
	if w.c == nil {
		if w.c, err = rawclient.Dial(w.n.address()); err != nil {
			w.c = nil
			return 0, nil, err
		}
		w.n.t.Cleanup(w.hangUp)
	}
	var reqs []kmsg.Request
	for i := range count {
		b := w.n.records(w.who, w.next+int32(i*perBatch), perBatch, shape{size: bytes / perBatch})
		reqs = append(reqs, request(w.l.p, b))
	}
	if err := w.c.Send(reqs...); err != nil {
		w.hangUp()
		return 0, nil, err
	}
	for _, r := range reqs {
		resp, err := w.c.Receive(r)
		if err != nil {
			w.hangUp()
			return acked, codes, err
		}
		a := answerOf(resp.(*kmsg.ProduceResponse))
		if a.code != 0 {
			codes = append(codes, a.code)
			continue
		}
		if len(codes) > 0 || a.base <= w.last {
			return acked, codes, fmt.Errorf("%v: s=%d acknowledged (%v) behind offset %d and the refusals %v",
				w.l.p, w.next, a, w.last, codes)
		}
		if err := w.l.add(w.who, w.next, perBatch, a.base); err != nil {
			return acked, codes, err
		}
		w.last, w.next = a.base, w.next+int32(perBatch)
		acked++
	}
	return acked, codes, nil
}

func (w *writer) hangUp() {
	if w.c != nil {
		w.c.Close()
		w.c = nil
	}
}
