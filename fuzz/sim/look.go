package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"encoding/binary"
	"fmt"
	"strconv"

	"sekali/pidmap"
	"sekali/plog"
)

// watch compares the watermarks of a partition with the model (I1), and takes over a log that was opened.
func (w *world) watch(p *part) {
	l, err := w.node.store.Partition(w.tp(p.n))
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		w.away(p, err)
		return
	}
	if l != p.log {
		if p.away {
			w.stats.Reopened++
		}
		p.fragile = p.fragile || w.losing
		w.adopt(p, l)
	}
	p.away = false
	o := l.Offsets()
	if o.Start > o.Stable || o.Stable > o.High || o.High > o.End || o.Start < p.last.Start ||
		o.Stable < p.last.Stable || o.High < p.last.High || o.End < p.last.End {
		w.fail("partition %d: watermarks %+v after %+v (I1)", p.n, o, p.last)
	}
	if o.End != p.m.End() || o.Start != p.m.Start || o.Stable != o.High {
		w.fail("partition %d: watermarks %+v, start %d and end %d expected", p.n, o, p.m.Start, p.m.End())
	}
	idle := w.node.atGate() == 0
	if idle && o.High != o.End {
		w.fail("partition %d: watermarks %+v, and nobody flushes", p.n, o)
	}
	if !w.setup.Written {
		p.m.Sure = max(p.m.Sure, o.High)
	} else if idle {
		p.m.Sure = max(p.m.Sure, p.flushes)
	}
	p.last = o
}

// away notes that a partition does not serve: only a fault of the disk may do that, and no damage can be.
func (w *world) away(p *part, err error) {
	var damage *plog.CorruptError
	if errors.As(err, &damage) || !w.faulty && !w.limited {
		w.fail("partition %d: offline: %v", p.n, err)
	}
	if !p.away {
		w.stats.Offline++
	}
	p.away, p.sick, p.log = true, true, nil
	p.fragile = p.fragile || w.losing
}

// read reads at one place and compares; hold keeps the bytes.
func (w *world) read(p *part, r *rand.Rand, hold bool) {
	l := w.log(p)
	if l == nil {
		return
	}
	in := plog.ReadIn{
		From: p.m.Start + r.Int64N(p.m.End()-p.m.Start+1), BytesMax: pick(r, 0, 100, 500, 3000, 1<<20),
		Committed: r.IntN(3) == 0, AtLeast1: r.IntN(2) == 0, Copy: r.IntN(5) == 0,
	}
	if r.IntN(15) == 0 {
		in.From = pick(r, p.m.Start-1, p.m.End()+1)
	}
	f := new(plog.Fetch)
	w.fetch(p, l, in, f)
	if !hold || len(f.Parts) == 0 || len(p.held) > 3 {
		f.Release()
		return
	}
	h := &held{f: f}
	for _, b := range f.Parts {
		h.want = append(h.want, slices.Clone(b))
	}
	p.held = append(p.held, h)
}

// fetch makes one read and compares what comes with the model.
func (w *world) fetch(p *part, l *plog.Log, in plog.ReadIn, f *plog.Fetch) (to int64) {
	err := l.Read(in, f)
	w.stats.Reads++
	high := l.Offsets().High
	if in.From < p.m.Start || in.From > p.m.End() {
		if !errors.Is(err, plog.ErrRange) {
			w.fail("partition %d: %+v of %d..%d: %v", p.n, in, p.m.Start, p.m.End(), err)
		}
		return in.From
	}
	if err != nil {
		if w.node.dead() || w.faulty {
			return in.From
		}
		w.fail("partition %d: %+v: %v", p.n, in, err)
	}
	to, err = p.m.SameBytes(in.From, f.Parts)
	if err != nil {
		w.fail("partition %d: %+v: %v", p.n, in, err)
	}
	bytes := 0
	for _, b := range f.Parts {
		bytes += len(b)
	}
	one := in.AtLeast1 && bytes > 0 && w.batchAt(p, in.From) == bytes
	switch {
	case to > max(high, in.From) || f.High != high || f.Start != p.m.Start || f.Stable != high:
		w.fail("partition %d: %+v read up to %d, told %d, %d, %d; high watermark %d", p.n, in, to, f.Start, f.Stable,
			f.High, high)
	case bytes > in.BytesMax && !one:
		w.fail("partition %d: %+v gave %d bytes", p.n, in, bytes)
	case in.From < high && !f.More && to != high, f.More && to >= high, in.From >= high && bytes > 0:
		w.fail("partition %d: %+v ended at %d, more %v, high watermark %d", p.n, in, to, f.More, high)
	case in.AtLeast1 && in.From < high && bytes == 0:
		w.fail("partition %d: %+v gave nothing below %d", p.n, in, high)
	}
	return to
}

// batchAt is the size of the batch that holds an offset.
func (w *world) batchAt(p *part, offset int64) int {
	if i := p.m.Index(offset); i < len(p.m.Batches) {
		return len(p.m.Batches[i].Bytes)
	}
	return -1
}

// look compares kept bytes with what they were, and gives them back (I2).
func (w *world) look(p *part) {
	if len(p.held) == 0 {
		return
	}
	h := p.held[0]
	p.held = p.held[1:]
	for i, b := range h.f.Parts {
		if string(b) != string(h.want[i]) {
			w.fail("partition %d: bytes changed while a reader held them (I2): %x, they were %x", p.n, b, h.want[i])
		}
	}
	h.f.Release()
}

// readAll reads a partition from its log start to the high watermark, in one go and in steps.
func (w *world) readAll(p *part, l *plog.Log) {
	r := rand.New(rand.NewPCG(w.seed, uint64(p.m.End())))
	for _, size := range []int{1 << 20, pick(r, 100, 400, 2000)} {
		var f plog.Fetch
		for at := p.m.Start; at < p.m.End(); {
			to := w.fetch(p, l, plog.ReadIn{From: at, BytesMax: size, AtLeast1: true}, &f)
			if to == at {
				break // told to be offline: the next look will find it so
			}
			at = to
		}
		f.Release()
	}
	w.lookup(p, r)
}

// batchesFrom reads the batches of an offset range.
func (w *world) batchesFrom(p *part, l *plog.Log, from, to int64) (out [][]byte) {
	for from < to {
		var f plog.Fetch
		if err := l.Read(plog.ReadIn{From: from, BytesMax: 1 << 20, AtLeast1: true}, &f); err != nil {
			w.fail("partition %d: reading what was found at %d: %v", p.n, from, err)
		}
		for _, b := range f.Parts {
			for len(b) > 0 {
				n := 12 + int(binary.BigEndian.Uint32(b[8:]))
				base, delta := int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[23:]))
				out = append(out, slices.Clone(b[:n]))
				b, from = b[n:], base+int64(delta)+1
			}
		}
		f.Release()
	}
	return out
}

// lookup asks by time, for the largest time, and for the ends of leader epochs.
func (w *world) lookup(p *part, r *rand.Rand) {
	l := w.log(p)
	if l == nil {
		return
	}
	high := l.Offsets().High
	ms := w.node.clk.Wall() - r.Int64N(100_000) + 1000
	if n := len(p.m.Batches); n > 0 && r.IntN(3) > 0 {
		ms = p.m.Batches[r.IntN(n)].Time + r.Int64N(3) - 1
	}
	at, time, err := l.OffsetForTime(ms)
	if offset, t := p.m.AtTime(ms, high); err == nil && (at != offset || time != t) {
		w.fail("partition %d: time %d is found at %d (%d), it is at %d (%d)", p.n, ms, at, time, offset, t)
	}
	if err == nil {
		at, time, err = l.OffsetOfMaxTime()
	}
	if offset, t := p.m.MaxTime(high); err == nil && (at != offset || time != t) {
		w.fail("partition %d: the largest time is found at %d (%d), it is at %d (%d)", p.n, at, time, offset, t)
	}
	if err != nil && !w.node.dead() && !w.faulty {
		w.fail("partition %d: looking for time %d: %v", p.n, ms, err)
	}
	w.epochs(p, l)
}

// epochs compares the ends of leader epochs.
func (w *world) epochs(p *part, l *plog.Log) {
	for e := int32(0); e <= l.Epoch(); e++ {
		end, ok := p.m.EpochEnd(e)
		if !ok {
			continue
		}
		if got, at := l.EpochEnd(e); got != e || at != end {
			w.fail("partition %d: leader epoch %d ends at %d (epoch %d), it ends at %d", p.n, e, at, got, end)
		}
	}
}

func producersOf(l *plog.Log) (list []pidmap.Producer) {
	l.Producers(func(x pidmap.Producer) bool {
		list = append(list, x)
		return true
	})
	return list
}

// producers compares the producer state with what follows from the log (I14).
func (w *world) producers(p *part, l *plog.Log, fresh bool) {
	if err := p.m.SameProducers(producersOf(l), w.now(), fresh); err != nil {
		w.fail("partition %d: %v", p.n, err)
	}
}

// bases are the base offsets of the segments on the disk.
func (w *world) bases(p *part) (bases []int64) {
	names, err := w.node.mem.ReadDir(fmt.Sprintf("%s/%s-%d", dataDir, topicName, p.n))
	if err != nil {
		w.fail("partition %d: %v", p.n, err)
	}
	for _, name := range names {
		if text, ok := strings.CutSuffix(name, ".log"); ok {
			base, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				w.fail("partition %d: a log named %s", p.n, name)
			}
			bases = append(bases, base)
		}
	}
	return bases
}

// String is a batch as a report shows it.
func (s *sent) String() string {
	return fmt.Sprintf("producer %d epoch %d numbers %d..%d", s.PID, s.Epoch, s.First, s.End)
}
