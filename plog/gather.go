package plog

import (
	"sekali/batch"
	"sekali/internal/check"
)

// gather is the scratch of AppendAll: the accepted batches that wait for one write. Owner: holder of Log.mu.
type gather struct {
	views []batch.View
	pend  []pending
	at    []int // index into in and out
	pos   []int64
	bytes int
}

func (g *gather) reset() {
	clear(g.views)
	clear(g.pend)
	g.views, g.pend, g.at, g.bytes = g.views[:0], g.pend[:0], g.at[:0], 0
}

// full reports whether a batch must wait for the next write: it would make this one too large, or the decision about it
// needs the state that a batch of the same producer leaves (I5).
func (g *gather) full(v batch.View) bool {
	if len(g.pend) == 0 {
		return false
	}
	if len(g.pend) >= gatherBatchesMax || g.bytes+len(v) > gatherBytesMax {
		return true
	}
	pid, _ := v.Producer()
	if pid < 0 {
		return false
	}
	for i := range g.pend {
		if g.pend[i].dedup && g.pend[i].b.PID == pid {
			return true
		}
	}
	return false
}

func (g *gather) add(p *pending, i int) {
	g.views = append(g.views, p.v)
	g.pend = append(g.pend, *p)
	g.at = append(g.at, i)
	g.bytes += len(p.v)
}

// AppendAll writes many batches with one pwritev, in their order. out has the length of in; out[i].Err is what Append
// would have returned for in[i]. A duplicate or a refusal leaves the others in; a short or failed write fails all that
// were still to be written, and is returned. A producer that occurs twice splits the group, and so does a roll.
func (l *Log) AppendAll(in []AppendIn, out []AppendOut) error {
	check.Equal(int64(len(out)), int64(len(in)), "plog: answers of a gathered append")
	if err := l.enter(); err != nil {
		for i := range in {
			l.unborn(&in[i], &out[i], err)
		}
		return err
	}
	touch := l.touch()
	if err := l.lockForWrite(); err != nil {
		for i := range out {
			out[i] = l.nothing()
			out[i].Err = err
		}
		return err
	}
	before := l.end.Load()
	err := l.appendAll(in, out, touch)
	wrote := l.end.Load() != before
	l.gather.reset()
	l.unlock()
	if wrote {
		l.o.Dirty()
	}
	for i := range out {
		if out[i].Duplicate || out[i].Err != nil {
			l.settle(&out[i])
		}
	}
	return err
}

// appendAll judges the batches one by one and writes them in groups; under mu.
func (l *Log) appendAll(in []AppendIn, out []AppendOut, touch int64) error {
	g := &l.gather
	next := l.end.Load()
	var p pending
	for i := range in {
		if g.full(in[i].Batch) {
			if err := l.writeAll(out); err != nil {
				l.giveUp(in[i:], out[i:], touch, err)
				return err
			}
		}
		if l.judge(&in[i], &p, &out[i], next, touch) {
			g.add(&p, i)
			next = out[i].Last + 1
		}
	}
	return l.writeAll(out)
}

// writeAll writes what was gathered; under mu. On an error the batches not yet written are refused.
func (l *Log) writeAll(out []AppendOut) error {
	g := &l.gather
	defer g.reset()
	for done := 0; done < len(g.views); {
		n, err := l.writeSome(g.views[done:], g.pend[done:])
		if err != nil {
			for i := done; i < len(g.pend); i++ {
				o := &out[g.at[i]]
				o.Err = err
				l.refused(&g.pend[i], o)
			}
			return err
		}
		done += n
	}
	return nil
}

// writeSome writes the batches from the front that fit one segment, with one pwritev; under mu.
func (l *Log) writeSome(vs []batch.View, ps []pending) (n int, err error) {
	if l.o.Load.Full.Load() {
		return 0, ErrFull
	}
	if n = l.active.FitsAll(vs); n == 0 {
		if err := l.roll(); err != nil {
			return 0, err
		}
		n = max(l.active.FitsAll(vs), 1)
	}
	l.gather.pos, err = l.active.AppendAll(l.gather.pos[:0], vs[:n])
	if err != nil {
		return 0, l.writeFailed("append", err)
	}
	for i := range n {
		l.commit(&ps[i], l.gather.pos[i])
	}
	l.publish()
	return n, nil
}

// giveUp refuses batches that were not looked at because a write before them failed; under mu.
func (l *Log) giveUp(in []AppendIn, out []AppendOut, touch int64, err error) {
	var p pending
	for i := range in {
		l.describe(&in[i], &p, l.end.Load(), touch)
		out[i].Err = err
		l.refused(&p, &out[i])
	}
}
