package main

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math"
	"path"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/vfs"
	"sekali/segment"
)

// cursor reads the entries of an index file one after the other, a piece at a time.
type cursor struct {
	name  string
	f     vfs.File // nil: there is no such file
	size  int64
	width int64
	n     int64 // entries consumed
	buf   []byte
	err   error // of reading; io.EOF is none
	bad   *finding
}

const (
	cursorEntries   = 2048
	intervalDefault = 4096 // index.interval.bytes where it is not set
)

func (c *cursor) pos() int64 { return c.n * c.width }

// peek is the next entry, nil behind the last whole one.
func (c *cursor) peek() []byte {
	if len(c.buf) == 0 {
		left := c.size - c.size%c.width - c.pos()
		if c.f == nil || left <= 0 || c.err != nil {
			return nil
		}
		b := make([]byte, min(left, cursorEntries*c.width))
		n, err := c.f.ReadAt(b, c.pos())
		if err != nil && !errors.Is(err, io.EOF) {
			c.err = err
			return nil
		}
		if c.buf = b[:int64(n)-int64(n)%c.width]; len(c.buf) == 0 {
			return nil
		}
	}
	return c.buf[:c.width]
}

func (c *cursor) take() { c.buf, c.n = c.buf[c.width:], c.n+1 }

// wrong notes the first entry that is not what it must be; it and what follows it count for nothing.
func (c *cursor) wrong(offset int64, what string) {
	c.bad = &finding{levelDamage, c.name, c.pos(), offset, "I14", fmt.Sprintf("entry %d: %s", c.n, what), ""}
}

// indexes are the index files of the segment that is read, held against its batches.
//
// After an unclean stop only what lies below the recovery point is vouched for: entries above it may be missing or
// torn, the next start makes them anew (spec/on-disk.md 7 step 4).
type indexes struct {
	p    *partCheck
	base int64

	offset  cursor
	lastRel int64
	lastPos int64 // position of the last right entry; 0: the start of the segment
	gapMin  int64 // smallest distance between two entries, which lies above the interval they were made by
	far     int64 // position of the last batch since then that is vouched for; -1: none
	farAt   int64 // its last offset
	any     bool  // the segment holds a batch

	time     cursor
	lastMs   int64
	timeRel  int64
	max, own int64 // largest time so far, and the last offset of the batch that holds it

	txn    cursor
	unread bool // a part of the segment could not be read
}

// openIndexes opens what there is beside a segment.
func (p *partCheck) openIndexes(s *segFile) (*indexes, error) {
	x := &indexes{p: p, base: s.base, gapMin: math.MaxInt64, far: -1, lastMs: index.NoTime, max: index.NoTime}
	for _, f := range []struct {
		c     *cursor
		kind  string
		width int64
	}{
		{&x.offset, segment.IndexSuffix, index.OffsetEntryLen}, {&x.time, segment.TimeSuffix, index.TimeEntryLen},
		{&x.txn, segment.TxnSuffix, index.TxnEntryLen},
	} {
		name := segment.Name(s.base, f.kind+s.suffix)
		*f.c = cursor{name: path.Join(p.dir, name), width: f.width}
		file, size, err := p.open(name)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, x.close())
		}
		f.c.f, f.c.size = file, size
	}
	return x, nil
}

func (x *indexes) close() (err error) {
	for _, c := range []*cursor{&x.offset, &x.time, &x.txn} {
		if c.f != nil {
			err = errors.Join(err, c.f.Close())
		}
	}
	return err
}

// vouched tells whether entries that name an offset must be there and right.
func (x *indexes) vouched(offset int64) bool { return x.p.k.clean || offset < x.p.recovery }

// batch holds the next batch of the segment against the entries.
func (x *indexes) batch(pos int64, v batch.View, aborted *index.AbortedTxn) {
	last := v.LastOffset()
	x.any = true
	x.offsetEntry(pos, last)
	if x.unread {
		return // what the other files name may have been in the part that is lost
	}
	x.timeEntry(v, last)
	switch {
	case aborted != nil:
		x.txnEntry(aborted)
	case v.Attrs().Control():
		x.spareEntry(v)
	}
}

// spareEntry passes over the entry of an abort marker whose data retention took, for they lay before all that is there,
// or compaction: it does no harm, and goes with the marker.
func (x *indexes) spareEntry(v batch.View) {
	e := x.txn.peek()
	if e == nil || x.txn.bad != nil {
		return
	}
	version, got := index.TxnAt(e, 0)
	m, err := batch.ParseMarker(v)
	if err == nil && version == 0 && !m.Commit && got.PID == m.PID && got.Last == v.LastOffset() &&
		(x.p.cleaned || got.First < x.p.segs0()) {
		x.txn.take()
	}
}

func (x *indexes) offsetEntry(pos, last int64) {
	c := &x.offset
	if e := c.peek(); e != nil && c.bad == nil {
		rel, at := index.OffsetAt(e, 0, 0)
		switch {
		case rel <= x.lastRel || at <= x.lastPos && x.lastPos > 0 || at <= 0:
			c.wrong(x.base+rel, fmt.Sprintf("offset %d at position %d does not ascend", x.base+rel, at))
		case at < pos:
			c.wrong(x.base+rel, fmt.Sprintf("no batch begins at position %d", at))
		case at == pos && rel != last-x.base:
			c.wrong(x.base+rel, fmt.Sprintf("the batch at position %d ends at offset %d, not %d", at, last, x.base+rel))
		case at == pos:
			x.gapMin = min(x.gapMin, pos-x.lastPos)
			x.lastRel, x.lastPos, x.far = rel, at, -1
			c.take()
			return
		}
	}
	if x.vouched(last) {
		x.far, x.farAt = pos, last
	}
}

// due tells whether an entry is missing behind the last right one; sure: by any interval the entries there are may have
// been made by. The daemon's may be another than check knows, or was another then, but it lies below the smallest
// distance between two entries.
func (x *indexes) due() (due, sure bool) {
	every := int64(x.p.cfg.IndexInterval)
	if every <= 0 {
		every = intervalDefault
	}
	gap := x.far - x.lastPos
	return gap > every, gap > every && (x.gapMin == math.MaxInt64 || gap >= x.gapMin)
}

func (x *indexes) timeEntry(v batch.View, last int64) {
	if t := v.MaxTime(); v.Count() > 0 && t > x.max {
		x.max, x.own = t, last
	}
	c := &x.time
	e := c.peek()
	if e == nil || c.bad != nil {
		return
	}
	ms, rel := index.TimeAt(e, 0, 0)
	at := x.base + rel
	switch {
	case ms <= x.lastMs || rel < x.timeRel:
		c.wrong(at, fmt.Sprintf("time %d of offset %d does not ascend", ms, at))
	case at < last:
		c.wrong(at, fmt.Sprintf("no batch ends at offset %d", at))
	case at == last && (v.MaxTime() != ms || x.own != last):
		c.wrong(at, fmt.Sprintf("the largest time up to offset %d is %d, not %d", at, x.max, ms))
	case at == last:
		x.lastMs, x.timeRel = ms, rel
		c.take()
	}
}

// txnEntry expects the entry of a transaction that was aborted. What began before all that was read is not known in
// full.
func (x *indexes) txnEntry(want *index.AbortedTxn) {
	c := &x.txn
	if c.bad != nil {
		return
	}
	e := c.peek()
	if e == nil {
		if x.vouched(want.Last) {
			c.wrong(want.Last, fmt.Sprintf("it is missing: the transaction of producer %d from offset %d, aborted at %d",
				want.PID, want.First, want.Last))
		}
		return
	}
	version, got := index.TxnAt(e, 0)
	same := got == *want
	if !x.p.prods.whole || x.p.cleaned {
		same = got.PID == want.PID && got.Last == want.Last && got.First <= want.First
	}
	if version != 0 || !same {
		c.wrong(want.Last, fmt.Sprintf("version %d, producer %d, offsets %d to %d, stable %d; the log says producer %d, "+
			"offsets %d to %d, stable %d", version, got.PID, got.First, got.Last, got.Stable, want.PID, want.First, want.Last,
			want.Stable))
		return
	}
	c.take()
}

// skip passes over the entries that name what cannot be read.
func (x *indexes) skip(from, to int64) {
	x.unread = true
	for e := x.offset.peek(); e != nil && x.offset.bad == nil; e = x.offset.peek() {
		rel, at := index.OffsetAt(e, 0, 0)
		if at >= to || rel <= x.lastRel {
			break
		}
		x.lastRel = rel
		x.offset.take()
	}
	x.lastPos, x.far = to, -1
}

// end judges what is left once the segment was read up to offset next.
func (x *indexes) end(next int64) error {
	all := x.p.k.clean || x.any && x.vouched(next-1)
	sealed := x.p.k.clean || x.any && next < x.p.recovery
	x.missing(&x.offset, all)
	x.missing(&x.time, all)
	x.endOffset(next, all)
	if !x.unread {
		x.endTime(next, sealed)
	}
	x.endTxn(next, all)
	for _, c := range []*cursor{&x.offset, &x.time, &x.txn} {
		if c.err != nil {
			return c.err
		}
		if c.bad != nil {
			x.tell(c)
		}
	}
	return nil
}

// tell makes the wrong entry of a file a finding, and the files something to make anew.
func (x *indexes) tell(c *cursor) {
	if x.p.below() {
		return // goes with the next start
	}
	c.bad.Help = "reads go around it; make the index anew with: " + x.p.k.repairCommand()
	if c == &x.txn {
		c.bad.Help = "readers of committed data may be shown aborted records; make it anew with: " + x.p.k.repairCommand()
	}
	if c.bad.Level == levelNote {
		c.bad.Help = "reads walk a little further; the next start adds it"
		x.p.finds.add(*c.bad)
		return
	}
	x.p.finds.add(*c.bad)
	x.p.plan().reindex(x.base)
}

// missing tells of a file that must be there.
func (x *indexes) missing(c *cursor, all bool) {
	if c.f == nil && all && c.bad == nil {
		c.bad = &finding{levelDamage, c.name, -1, -1, "I14", "there is none", ""}
	}
}

func (x *indexes) endOffset(next int64, all bool) {
	c := &x.offset
	due, sure := x.due()
	switch {
	case c.bad != nil && !all && !sure:
		c.bad = nil // torn above the recovery point, and nothing below it is missing
	case c.bad != nil:
	case c.f == nil:
		if sure {
			x.missing(c, true)
		}
	case c.peek() != nil && all && !x.unread:
		rel, at := index.OffsetAt(c.peek(), 0, 0)
		c.wrong(x.base+rel, fmt.Sprintf("offset %d at position %d lies behind the last batch, which ends at %d", x.base+rel,
			at,
			next-1))
	case c.size%c.width != 0 && all:
		c.wrong(-1, fmt.Sprintf("the file ends with %d bytes of an entry", c.size%c.width))
	case due:
		c.wrong(x.farAt, fmt.Sprintf("it is missing: the batch at position %d lies %d bytes behind the last entry", x.far,
			x.far-x.lastPos))
		if !sure {
			c.bad.Level = levelNote
		}
	}
}

func (x *indexes) endTime(next int64, sealed bool) {
	c := &x.time
	switch {
	case c.bad != nil && !sealed && c.f != nil:
		c.bad = nil // the last entry is written over in place; the next start checks it
	case c.bad != nil || c.f == nil || !sealed:
	case c.peek() != nil:
		ms, rel := index.TimeAt(c.peek(), 0, 0)
		c.wrong(x.base+rel, fmt.Sprintf("time %d of offset %d lies behind the last batch, which ends at %d", ms, x.base+rel,
			next-1))
	case c.size%c.width != 0:
		c.wrong(-1, fmt.Sprintf("the file ends with %d bytes of an entry", c.size%c.width))
	case x.max > x.lastMs && x.max > index.NoTime:
		c.wrong(x.own, fmt.Sprintf("it is missing: the largest time is %d, at offset %d", x.max, x.own))
	}
}

func (x *indexes) endTxn(next int64, all bool) {
	c := &x.txn
	if c.bad != nil || c.f == nil || !all || x.unread {
		return
	}
	if e := c.peek(); e != nil {
		_, t := index.TxnAt(e, 0)
		c.wrong(t.Last, fmt.Sprintf("no transaction of producer %d was aborted at offset %d", t.PID, t.Last))
	} else if c.size%c.width != 0 {
		c.wrong(-1, fmt.Sprintf("the file ends with %d bytes of an entry", c.size%c.width))
	}
}
