package main

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"math"
	"path"
	"slices"

	"sekali/batch"
	"sekali/coord"
	"sekali/index"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

const (
	// foldMax bounds the producers kept of one partition, at about 200 bytes each. Beyond it the one that wrote least
	// recently is forgotten, and counts as unknown from then on.
	foldMax = 1 << 20
	// idleSure is the idle time below which a producer has surely not expired.
	idleSure = 60_000
)

// producerCheck folds the batches of a partition into the producer state that follows from them: stored sequences are
// gapless and stored once (I6), and a snapshot is exactly what the batches below its offset make (I14).
type producerCheck struct {
	p        *partCheck
	m        *pidmap.Map
	whole    bool  // m follows from all there is: nothing before is missing, nobody was pushed out
	since    int64 // offset from which batches were folded without a gap
	expireMs int64
	odd      map[int64]struct{} // producers whose state may differ for a reason: they expired and came back
	snaps    []int64            // still to be reached, ascending
	seen     int64              // offset of the last snapshot that was met; -1: none
}

func (c *producerCheck) begin(snaps []int64) { c.snaps, c.seen = snaps, -1 }

func (c *producerCheck) fresh() {
	c.m = pidmap.New(pidmap.Options{ProducersMax: foldMax})
	c.odd = nil
}

// from begins at the first offset of the log. At 0 nobody has written yet; else the state before is unknown until a
// snapshot tells it.
func (c *producerCheck) from(offset int64) {
	c.fresh()
	c.whole, c.since = offset == 0, offset
}

// lose goes on behind offsets that could not be read.
func (c *producerCheck) lose(next int64) {
	c.fresh()
	c.whole, c.since = false, next
}

// reach compares the snapshots at or below the offset of the next batch.
func (c *producerCheck) reach(next int64) error {
	for len(c.snaps) > 0 && c.snaps[0] <= next {
		at := c.snaps[0]
		c.snaps = c.snaps[1:]
		if err := c.snapshot(at, next); err != nil {
			return err
		}
	}
	return nil
}

// end compares what is left once the log has been read up to its end.
func (c *producerCheck) end(end int64) error {
	p := c.p
	if c.m == nil {
		c.from(p.start)
	}
	if err := c.reach(end); err != nil {
		return err
	}
	each(c.m, func(open pidmap.Producer) bool {
		if open.TxnFirst >= 0 {
			p.txns.open = append(p.txns.open, coord.OpenTxn{PID: open.PID, Epoch: open.Epoch, First: open.TxnFirst,
				TP: coord.TP{Topic: p.out.Topic, ID: p.id, Partition: p.out.Partition}})
		}
		return true
	})
	slices.SortFunc(p.txns.open, func(a, b coord.OpenTxn) int { return cmp.Compare(a.First, b.First) })
	damaged := p.damageAt() || p.endless
	for _, at := range c.snaps {
		name := segment.Name(at, snapshotSuffix)
		if p.k.clean && !damaged {
			p.damage(name, -1, at, "I14", fmt.Sprintf("it is of an offset above the end of the log, %d", end), "the next start "+
				"does not use it")
			p.plan().dropSnapshot(at)
		} else {
			p.note(name, "I14", fmt.Sprintf("it is of an offset above the end of the log, %d: not used", end), "")
		}
	}
	if p.k.clean && p.k.ours && !damaged && c.seen != end && end > 0 && len(p.segs) > 0 {
		p.damage(segment.Name(end, snapshotSuffix), -1, end, "I14", "there is no producer snapshot at the end of the log "+
			"although the last stop was clean", "the next start takes the one before and reads on from there")
		p.plan().dropSnapshot(end)
	}
	return nil
}

// batch folds one batch and returns the transaction that it aborted, if it did.
func (c *producerCheck) batch(pos int64, v batch.View) *index.AbortedTxn {
	pid, epoch := v.Producer()
	if pid < 0 {
		return nil
	}
	at := pidmap.At{Base: v.BaseOffset(), Last: v.LastOffset(), Time: v.MaxTime(), Pos: pos}
	if v.Attrs().Control() {
		return c.marker(pos, v, at)
	}
	b := pidmap.Batch{PID: pid, Epoch: epoch, CRC: v.CRC()}
	b.FirstSeq, b.LastSeq = v.Sequence()
	if v.Attrs().AppendTime() {
		b.CRC = 0
	}
	txn := v.Attrs().Transactional()
	c.sequence(pos, v, &b, txn)
	b.Txn = txn
	c.m.Replay(&b, at)
	if n, _ := c.m.Evicted(); n > 0 {
		c.whole = false
	}
	return nil
}

func (c *producerCheck) marker(pos int64, v batch.View, at pidmap.At) *index.AbortedTxn {
	mk, err := batch.ParseMarker(v)
	if err != nil {
		return nil // told by records
	}
	open, _ := c.m.Get(mk.PID)
	k := pidmap.Marker{PID: mk.PID, Epoch: mk.Epoch, CoordEpoch: mk.CoordEpoch, Commit: mk.Commit, Time: mk.Time}
	ended := c.m.ReplayMarker(&k, at)
	if ended.Had {
		c.p.ended(marked{pid: mk.PID, epoch: mk.Epoch, commit: mk.Commit, pos: pos, offset: at.Last}, open.Epoch)
	}
	if c.p.journal != nil {
		c.p.journal.marker(mk.PID, mk.Commit)
	}
	if ended.Stale && !c.p.holes {
		c.broken(pos, v, fmt.Sprintf("the marker is of epoch %d, below one that producer %d had before", mk.Epoch, mk.PID))
	}
	if !ended.Had || mk.Commit {
		return nil
	}
	stable := ended.Stable
	if stable < 0 {
		stable = at.Last + 1
	}
	return &index.AbortedTxn{PID: mk.PID, First: ended.First, Last: at.Last, Stable: stable}
}

// sequence asks of a batch what the log asked when it took it in. A producer that was idle for as long as producers are
// kept may have been unknown by then, and go on anywhere.
func (c *producerCheck) sequence(pos int64, v batch.View, b *pidmap.Batch, txn bool) {
	known, ok := c.m.Get(b.PID)
	if !ok {
		return
	}
	d := c.m.Check(b)
	what := ""
	switch d.Verdict {
	case pidmap.Duplicate:
		what = fmt.Sprintf("its sequences %d to %d are stored already, at offset %d", b.FirstSeq, b.LastSeq, d.Stamp.Base())
	case pidmap.DuplicateOld:
		what = fmt.Sprintf("its sequences %d to %d are stored already, below offset %d", b.FirstSeq, b.LastSeq, d.Seek.Before)
	case pidmap.OutOfOrder:
		if want, ok := c.following(&known, b); ok && !c.p.holes {
			what = fmt.Sprintf("its first sequence is %d, but %d had to follow", b.FirstSeq, want)
		}
	case pidmap.Fenced:
		what = fmt.Sprintf("its epoch lies below %d, which the producer had before", known.Epoch)
	case pidmap.TxnOpen:
		if !txn {
			what = fmt.Sprintf("it is no part of the transaction that is open from offset %d on", known.TxnFirst)
		}
	}
	if what == "" {
		return
	}
	if c.odd == nil {
		c.odd = map[int64]struct{}{}
	}
	c.odd[b.PID] = struct{}{}
	if known.TxnFirst < 0 && v.MaxTime()-known.LastTime >= c.expireMs {
		return
	}
	c.broken(pos, v, fmt.Sprintf("batch of producer %d epoch %d: %s", b.PID, b.Epoch, what))
}

// following is the sequence that had to come; ok is false where that is not known: of the producer only a marker was
// read, and its batches may lie in front of all that was.
func (c *producerCheck) following(known *pidmap.Producer, b *pidmap.Batch) (seq int32, ok bool) {
	if b.Epoch > known.Epoch {
		return 0, true
	}
	if known.N == 0 {
		return 0, c.whole
	}
	return batch.SeqAdd(known.Stamps[known.N-1].LastSeq, 1), true
}

func (c *producerCheck) broken(pos int64, v batch.View, what string) {
	c.p.segDamage(pos, v.BaseOffset(), "I6", what, "what is stored is served as it is; please report it. If the daemon's "+
		"producer.id.expiration.ms is not the default, give its settings with --config")
}

// snapshot compares one snapshot file with the state the batches make. next is the offset of the batch that follows.
func (c *producerCheck) snapshot(at, next int64) error {
	p, name := c.p, segment.Name(at, snapshotSuffix)
	if at < p.segs0() {
		p.note(name, ruleFiles, "it lies below the first segment: not used, and removed with the next one", "")
		return nil
	}
	file, err := vfs.ReadFile(p.k.fs, path.Join(p.dir, name))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c.seen = at
	trailer, err := pidmap.Decode(file, func(*pidmap.Producer) error { return nil })
	s := pidmap.New(pidmap.Options{ProducersMax: foldMax})
	if err == nil {
		err = s.Load(file, 0)
	}
	if err != nil {
		p.damage(name, snapshotFault(err, file), at, "I14", err.Error(),
			"the next start takes the one before and reads on from "+
				"there; or: "+p.k.repairCommand())
		p.plan().dropSnapshot(at)
		return nil
	}
	what := ""
	if at < next && at > c.since && !p.holes && at != p.next {
		what = fmt.Sprintf("no batch begins at offset %d", at)
	} else if what = c.compare(s, at, trailer); what == "" && at >= c.since && (at == next || p.holes) {
		n, _ := s.Evicted()
		c.m, c.odd, c.whole = s, nil, n == 0 // what it does not hold has expired
		return nil
	}
	if what != "" {
		p.damage(name, 0, at, "I14", what,
			"retries may be taken for new records, or new ones for retries; remove it: the next "+
				"start takes the one before; or: "+p.k.repairCommand())
		p.plan().dropSnapshot(at)
	}
	return nil
}

// snapshotFault is where a snapshot file is wrong: its checksum covers all of it.
func snapshotFault(err error, file []byte) int64 {
	if len(file) < 10 {
		return int64(len(file))
	}
	return 0
}

// segs0 is the base offset of the first segment.
func (p *partCheck) segs0() int64 {
	if len(p.segs) == 0 {
		return p.start
	}
	return p.segs[0].base
}

// compare says how a snapshot differs from the batches below its offset, "" if it does not.
func (c *producerCheck) compare(s *pidmap.Map, at int64, trailer bool) (what string) {
	oldest := int64(math.MaxInt64) // last offset of the least recent producer that has surely not expired
	each(s, func(got pidmap.Producer) bool {
		if got.TxnFirst < 0 && got.N > 0 && trailer && -got.Touch < min(idleSure, c.expireMs) {
			oldest = min(oldest, newest(&got))
		}
		want, ok := c.m.Get(got.PID)
		if what = c.differs(&got, &want, ok, at, trailer); what != "" {
			what = fmt.Sprintf("producer %d: %s", got.PID, what)
		}
		return what == ""
	})
	if what != "" {
		return what
	}
	each(c.m, func(want pidmap.Producer) bool {
		if _, ok := s.Get(want.PID); ok {
			return true
		}
		if want.TxnFirst >= 0 {
			what = fmt.Sprintf("producer %d is not in it, whose transaction is open from offset %d on", want.PID, want.TxnFirst)
		} else if want.N > 0 && newest(&want) > oldest {
			what = fmt.Sprintf("producer %d is not in it, who wrote offset %d, later than others that are", want.PID,
				newest(&want))
		}
		return what == ""
	})
	return what
}

// each calls fn for the producers of a map until it returns false.
func each(m *pidmap.Map, fn func(pidmap.Producer) bool) {
	on := true
	for next := 0; next >= 0 && on; {
		next = m.Each(next, func(p pidmap.Producer) { on = on && fn(p) })
	}
}

// newest is the last offset a producer wrote, -1 where its window is empty.
func newest(p *pidmap.Producer) int64 {
	if p.N == 0 {
		return -1
	}
	return p.Stamps[p.N-1].Last
}

// differsCleaned is differs for a log that was compacted: a snapshot may know of producers and batches whose headers
// went when nobody counted on them any more, but nothing in the log may be newer than what it knows.
func differsCleaned(got, want *pidmap.Producer, known bool) string {
	switch {
	case !known:
		return ""
	case want.Epoch > got.Epoch:
		return fmt.Sprintf("epoch %d, the log below says %d", got.Epoch, want.Epoch)
	case got.TxnFirst != want.TxnFirst:
		return fmt.Sprintf("open transaction from %d, the log below says %d", got.TxnFirst, want.TxnFirst)
	case got.Epoch == want.Epoch && newest(want) > newest(got):
		return fmt.Sprintf("a batch up to offset %d, the log below has one up to %d", newest(got), newest(want))
	}
	return ""
}

// differs compares one producer as a snapshot has it with what the batches say. A state from before what was read may
// know more, one that was forgotten in between less; what both know must agree.
func (c *producerCheck) differs(got, want *pidmap.Producer, known bool, at int64, trailer bool) string {
	last := newest(got)
	if c.p.cleaned && last < at && got.TxnFirst < at {
		return differsCleaned(got, want, known)
	}
	switch {
	case last >= at || got.TxnFirst >= at:
		return fmt.Sprintf("offset %d is at or above the snapshot's", max(last, got.TxnFirst))
	case !known && (c.whole || last >= c.since):
		return "the log below knows nothing of it"
	case !known:
		return ""
	}
	if _, odd := c.odd[got.PID]; odd {
		return ""
	}
	before := func(offset int64) bool { return !c.whole && offset >= 0 && offset < c.since }
	switch {
	case got.Epoch != want.Epoch:
		return fmt.Sprintf("epoch %d, the log below says %d", got.Epoch, want.Epoch)
	case got.TxnFirst != want.TxnFirst && !before(got.TxnFirst):
		return fmt.Sprintf("open transaction from %d, the log below says %d", got.TxnFirst, want.TxnFirst)
	case got.CoordEpoch != want.CoordEpoch && (c.whole || want.CoordEpoch >= 0):
		return fmt.Sprintf("coordinator epoch %d, the log below says %d", got.CoordEpoch, want.CoordEpoch)
	case got.N == 0 && want.N > 0 && got.CoordEpoch < 0:
		return fmt.Sprintf("no batch, the log below has one up to offset %d", newest(want))
	case got.N > 0 && want.N == 0 && !before(last):
		return fmt.Sprintf("a batch up to offset %d that the log below does not have", last)
	}
	n := int(min(got.N, want.N))
	if c.p.holes {
		n = min(n, 1)
	}
	for i := range n {
		g, w := got.Stamps[int(got.N)-1-i], want.Stamps[int(want.N)-1-i]
		if c.p.holes || !trailer {
			g.Time, w.Time = 0, 0
		}
		if g.CRC, w.CRC = 0, 0; g != w {
			return fmt.Sprintf("batch of offsets %d to %d ends with sequence %d, the log below says %d to %d and %d", g.Base(),
				g.Last, g.LastSeq, w.Base(), w.Last, w.LastSeq)
		}
	}
	if n > 0 && trailer && c.whole && !c.p.holes && (got.Span > want.Span || got.LastTime != want.LastTime) {
		return fmt.Sprintf("span %d and time %d, the log below says %d and %d", got.Span, got.LastTime, want.Span,
			want.LastTime)
	}
	return ""
}
