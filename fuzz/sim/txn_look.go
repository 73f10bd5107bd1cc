package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sekali/batch"
	"sekali/coord"
	"sekali/group"
	"sekali/plog"

	"github.com/twmb/franz-go/pkg/kerr"
)

// txnView is what one partition shows.
type txnView struct {
	open    map[int64][]*txnBatch // by producer id
	first   map[int64]int64       // offset of the first batch of what is open
	closed  map[*txnRec]bool      // a marker of the transaction lies here
	visible []string              // values of committed and plain batches, in order, below the stable offset
	seen    map[string]bool
}

// look compares every partition with what its transactions allow.
func (w *txnWorld) look() {
	for _, p := range w.parts {
		if l := w.log(p); l != nil {
			w.lookAt(p, l)
		}
	}
	for _, t := range w.all {
		if t.committed && t.denied {
			w.fail("transaction %d is committed in one partition and aborted in another (I10)", t.n)
		}
		if t.committed && t.asked != askedCommit {
			w.fail("transaction %d is committed, and its client never asked for it", t.n)
		}
		if t.answered && t.denied && t.asked == askedCommit {
			w.fail("transaction %d was answered as committed and is aborted", t.n)
		}
	}
}

// lookAt reads one partition.
func (w *txnWorld) lookAt(p *txnPart, l *plog.Log) {
	o := l.Offsets()
	if o.Stable < p.stable && o.High >= p.high {
		w.fail("%s: the stable offset falls from %d to %d", p.key(), p.stable, o.Stable)
	}
	p.stable, p.high = o.Stable, o.High
	v := w.walk(p, l, o.Stable)
	for pid, at := range v.first {
		if o.Stable > at {
			w.fail("%s: stable offset %d, the transaction of producer %d is open at %d (I11)", p.key(), o.Stable, pid, at)
		}
	}
	if got := w.readCommitted(p, l); !slices.Equal(got, v.visible) {
		w.fail("%s: read_committed\n%v\nmust be\n%v", p.key(), got, v.visible)
	}
	if w.node.atGate() == 0 && o.High == o.End {
		want := o.High
		for _, at := range v.first {
			want = min(want, at)
		}
		if o.Stable != want {
			w.fail("%s: stable offset %d at rest, must be %d", p.key(), o.Stable, want)
		}
	}
	for name := range v.seen {
		if b := w.batches[name]; b != nil && b.forbidden {
			w.fail("%s: holds %s of a zombie (I8)", p.key(), name)
		}
	}
}

// walk goes over what read_uncommitted shows.
func (w *txnWorld) walk(p *txnPart, l *plog.Log, stable int64) *txnView {
	v := &txnView{
		open: map[int64][]*txnBatch{}, first: map[int64]int64{}, closed: map[*txnRec]bool{}, seen: map[string]bool{},
	}
	type shown struct {
		value string
		b     *txnBatch
	}
	var order []shown
	dead := map[*txnBatch]bool{}
	w.each(p, l, false, func(x batch.View) {
		pid, epoch := x.Producer()
		if x.Attrs().Control() {
			m, err := batch.ParseMarker(x)
			if err != nil {
				w.fail("%s: marker at %d: %v", p.key(), x.BaseOffset(), err)
			}
			w.marked(p, v, m, x.BaseOffset(), dead)
			delete(v.open, pid)
			delete(v.first, pid)
			return
		}
		value := valueOf(x)
		if v.seen[value] {
			w.fail("%s: %s is stored twice", p.key(), value)
		}
		v.seen[value] = true
		b := w.batches[value]
		switch {
		case value == "X":
			w.fail("%s: a plain batch inside a transaction was stored", p.key())
		case b == nil && x.Attrs().Transactional():
			w.fail("%s: %s at %d was never sent", p.key(), value, x.BaseOffset())
		case b != nil:
			if b.part != p || b.t.pid != pid || b.t.epoch != epoch {
				w.fail("%s: %s at %d is of producer %d epoch %d", p.key(), value, x.BaseOffset(), pid, epoch)
			}
			if v.closed[b.t] {
				w.fail("%s: %s at %d lies behind the end of its transaction (I8)", p.key(), value, x.BaseOffset())
			}
			if _, is := v.first[pid]; !is {
				v.first[pid] = x.BaseOffset()
			}
			v.open[pid] = append(v.open[pid], b)
		}
		if x.BaseOffset() < stable {
			order = append(order, shown{value, b})
		}
	})
	for _, s := range order {
		if s.b == nil || !dead[s.b] {
			v.visible = append(v.visible, s.value)
		}
	}
	return v
}

// marked takes one marker of a partition in.
func (w *txnWorld) marked(p *txnPart, v *txnView, m batch.Marker, at int64, dead map[*txnBatch]bool) {
	if !p.asked[m.PID] {
		w.fail("%s: a marker of producer %d at %d, which never took part", p.key(), m.PID, at)
	}
	for _, b := range v.open[m.PID] {
		if m.Epoch < b.t.epoch {
			w.fail("%s: marker of epoch %d at %d for transaction %d of epoch %d", p.key(), m.Epoch, at, b.t.n, b.t.epoch)
		}
		v.closed[b.t] = true
		b.t.committed, b.t.denied = b.t.committed || m.Commit, b.t.denied || !m.Commit
		dead[b] = !m.Commit
	}
}

func valueOf(x batch.View) (value string) {
	_ = x.Records(func(r batch.Record) error { value = string(r.Value); return nil })
	return value
}

// each calls fn for the batches a reader of an isolation level gets, up to its limit.
func (w *txnWorld) each(p *txnPart, l *plog.Log, committed bool, fn func(batch.View)) (aborted map[int64][]int64) {
	var f plog.Fetch
	aborted = map[int64][]int64{}
	for from := l.Offsets().Start; ; {
		if err := l.Read(plog.ReadIn{From: from, BytesMax: 1 << 16, AtLeast1: true, Committed: committed}, &f); err != nil {
			w.fail("%s: read at %d: %v", p.key(), from, err)
		}
		if len(f.Parts) == 0 {
			f.Release()
			return aborted
		}
		for _, a := range f.Aborted {
			if !slices.Contains(aborted[a.PID], a.First) {
				aborted[a.PID] = append(aborted[a.PID], a.First)
			}
		}
		for _, part := range f.Parts {
			for len(part) > 0 {
				x, rest, err := batch.Next(part)
				if err != nil {
					w.fail("%s: read at %d: %v", p.key(), from, err)
				}
				fn(bytes.Clone(x))
				from, part = x.LastOffset()+1, rest
			}
		}
		f.Release()
	}
}

// readCommitted does what a read_committed client does.
func (w *txnWorld) readCommitted(p *txnPart, l *plog.Log) (values []string) {
	var all []batch.View
	aborted := w.each(p, l, true, func(x batch.View) { all = append(all, x) })
	gone := map[int64]bool{}
	for _, x := range all {
		pid, _ := x.Producer()
		if x.Attrs().Control() {
			if m, err := batch.ParseMarker(x); err == nil && !m.Commit {
				delete(gone, pid)
			}
			continue
		}
		if slices.Contains(aborted[pid], x.BaseOffset()) {
			gone[pid] = true
		}
		if !x.Attrs().Transactional() || !gone[pid] {
			values = append(values, valueOf(x))
		}
	}
	return values
}

// fate says what is certain about a transaction: +1 committed, -1 not committed, 0 either.
func (t *txnRec) fate() int {
	switch {
	case t.committed || t.answered && t.asked == askedCommit:
		return 1
	case t.denied || t.asked != askedCommit:
		return -1
	}
	return 0
}

// checkOffset holds what a group shows against what was committed for it (I12).
func (w *txnWorld) checkOffset(g *txnGroup, got group.Fetched, stable bool) {
	staged, doubtful := false, false
	allowed := []int64{}
	sure := false
	for i := len(g.log) - 1; i >= 0; i-- {
		e := g.log[i]
		fate := 1
		if e.t != nil {
			fate = e.t.fate()
			mayBeOpen := !e.t.answered && !e.forbidden
			staged = staged || mayBeOpen && e.acked && w.surelyOpen(e.t)
			doubtful = doubtful || mayBeOpen
		}
		if sure || e.forbidden || fate < 0 {
			continue
		}
		allowed = append(allowed, e.offset)
		sure = fate > 0 && e.acked
	}
	if !sure {
		allowed = append(allowed, -1)
	}
	if got.Unstable {
		w.stats.Unstable++
		if !stable || !doubtful {
			w.fail("%s: unstable (asked for stable: %v), and nothing is staged (I12)", g.name, stable)
		}
		return
	}
	if stable && staged {
		w.fail("%s: %d told as stable while an offset is staged (I12)", g.name, got.Offset.Offset)
	}
	if !slices.Contains(allowed, got.Offset.Offset) {
		w.fail("%s: at %d, allowed are %v (I12)", g.name, got.Offset.Offset, allowed)
	}
}

// surelyOpen: its client is in it, has asked for nothing yet, and nobody else can have ended it.
func (w *txnWorld) surelyOpen(t *txnRec) bool {
	c := t.c
	return c.cur == t && t.asked == askedNothing && !c.fenced && !t.failed && c.id.owner == c && c.id.contender == nil &&
		w.setup.Timeout > 5*60*1e9 && w.alive+w.node.clk.Mono() < w.setup.Timeout/2
}

// dump is what the coordinator knows of every id, and the groups of their offsets.
func (w *txnWorld) dump() string {
	var text []string
	n := w.node
	w.engine.Txns().List(coord.Filter{LongerMs: -1}, func(list []coord.Info, code *kerr.Error) {
		w.calls.put(n, func() {
			for _, i := range list {
				slices.SortFunc(i.TPs, func(a, b coord.TP) int {
					return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
				})
				text = append(text, fmt.Sprintf("%+v", i))
			}
			if code != nil {
				text = append(text, code.Error())
			}
		})
	})
	for _, g := range w.groups {
		w.engine.Groups().Fetch(group.FetchIn{Member: group.Member{Group: g.name, Generation: -1}},
			func(got map[group.TP]group.Fetched, code *kerr.Error) {
				w.calls.put(n, func() { text = append(text, fmt.Sprint(g.name, got, code)) })
			})
	}
	w.idle()
	slices.Sort(text)
	return strings.Join(text, "\n")
}
