package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"syscall"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/segment"
)

const (
	// decodedMax is what a stored batch may decompress to: the most a topic can allow.
	decodedMax = math.MaxInt32 - 8
	// resyncLen is how many bytes are looked through at once for the next whole batch.
	resyncLen = 256 << 10
	// resyncFactor bounds the bytes summed up on the way, in multiples of those looked through.
	resyncFactor = 4
)

// reasons are what a segment reader says about bytes, as against a failure to read them.
var reasons = []error{
	segment.ErrShort, segment.ErrLength, segment.ErrMagic, segment.ErrBase, segment.ErrEpoch, segment.ErrDelta,
	segment.ErrChecksum,
}

func isReason(err error) bool {
	for _, r := range reasons {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// reasonText is a reason without the name of the package it comes from.
func reasonText(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r) {
			return r.Error()[len("segment: "):]
		}
	}
	return err.Error()
}

// segment reads one segment, p.segs[p.at], whole.
func (p *partCheck) segment() error {
	s := &p.segs[p.at]
	if !p.joins(s) {
		return nil
	}
	f, size, err := p.open(segment.Name(s.base, segment.LogSuffix+s.suffix))
	if err != nil {
		return err
	}
	defer f.Close()
	if size > segment.SizeMax {
		p.segDamage(segment.SizeMax, p.next, "I2", "the file is larger than a segment can be", p.logHelp())
		size = segment.SizeMax
	}
	ix, err := p.openIndexes(s)
	if err != nil {
		return err
	}
	defer ix.close()
	r := segment.NewReader(f, s.base, size)
	r.Next, r.Epoch, r.Holes = p.next, p.leader, p.holesTo()
	if err := p.walk(f, r, size, ix); err != nil {
		return err
	}
	return ix.end(p.next)
}

// joins decides, as the next start will, whether a segment continues the log.
func (p *partCheck) joins(s *segFile) bool {
	name := segment.Name(s.base, segment.LogSuffix+s.suffix)
	switch {
	case p.next < 0:
		p.next = s.base
		p.prods.from(s.base)
		return true
	case s.base == p.next, s.base > p.next && s.base <= p.holesTo():
		p.next = s.base
		return true
	case s.base <= p.start && s.base > p.next:
		p.note(name, ruleFiles, fmt.Sprintf("what lies in front of it, below the log start %d, is not all there: the next "+
			"start removes it", p.start), "")
		p.lose(s.base)
		return true
	case s.size == 0:
		p.note(name, ruleFiles, "an empty segment that continues nothing, the next start removes it", "")
		return false
	case p.next >= p.guarded:
		p.cutTail(0, errors.New("it does not continue the log"))
		return false
	case s.base < p.next:
		p.damage(name, 0, s.base, "I4", fmt.Sprintf("it begins at %d, but offsets below %d are in the segments before",
			s.base, p.next), p.logHelp())
		p.plan().cut(p.at, 0, p.next)
		return false
	}
	before := &p.segs[p.at-1]
	p.damage(segment.Name(before.base, segment.LogSuffix+before.suffix), before.size, p.next, "I4", fmt.Sprintf(
		"%s are missing: the segment ends, and the next one is %s", span(p.next, s.base-1), name), p.logHelp())
	p.plan().cut(p.at, 0, p.next)
	p.lose(s.base)
	return true
}

// holesTo is the base offset up to which compaction may have left holes, as the next start sees it (plog.Open).
func (p *partCheck) holesTo() int64 {
	switch {
	case !p.holes:
		return 0
	case !p.k.ours:
		return math.MaxInt64
	}
	return p.mark
}

func (p *partCheck) logHelp() string {
	return "put the file back from a copy, or accept the loss: " + p.k.repairCommand()
}

// below tells whether the whole segment lies below the log start, where nobody can ask for it.
func (p *partCheck) below() bool { return p.at+1 < len(p.segs) && p.segs[p.at+1].base <= p.start }

// segDamage is damage in the .log that is read; below the log start a note: the next start removes the file.
func (p *partCheck) segDamage(pos, offset int64, rule, what, help string) {
	s := &p.segs[p.at]
	name := segment.Name(s.base, segment.LogSuffix+s.suffix)
	if p.below() {
		p.note(name, rule, fmt.Sprintf("position %d: %s; all of it lies below the log start %d", pos, what, p.start),
			"the next start removes it")
		return
	}
	p.damage(name, pos, offset, rule, what, help)
}

// lose goes on at an offset behind what cannot be read: who wrote what in between is not known.
func (p *partCheck) lose(next int64) {
	p.next = next
	p.prods.lose(next)
	p.epochs.lose()
}

// walk reads the batches of a segment to its end, or to where the log ends.
func (p *partCheck) walk(f vfs.File, r *segment.Reader, size int64, ix *indexes) error {
	for unread := int64(0); ; {
		pos := r.Pos
		v, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			p.k.bar.add(unread)
			return nil
		case errors.Is(err, syscall.EIO):
			p.segDamage(pos, p.next, "I2", "it cannot be read: "+err.Error(), p.logHelp())
			if !p.below() {
				p.plan().cut(p.at, pos, p.next)
			}
			p.lost(pos, size, ix)
			return nil
		case err != nil && !isReason(err):
			return err
		case err != nil:
			if on, err := p.bad(f, r, size, err, ix); !on || err != nil {
				return err
			}
			continue
		}
		if err := p.batch(pos, v, ix); err != nil {
			return err
		}
		if unread += int64(len(v)); unread >= 1<<20 {
			p.k.bar.add(unread)
			unread = 0
		}
	}
}

// bad judges a place where no batch is. At or above the durable mark the log ends there; below it is damage, and the
// walk goes on at the next whole batch, if there is one.
func (p *partCheck) bad(f vfs.File, r *segment.Reader, size int64, reason error, ix *indexes) (on bool, err error) {
	pos := r.Pos
	if p.next >= p.guarded {
		p.cutTail(pos, reason)
		return false, nil
	}
	upper := int64(math.MaxInt64)
	if p.at+1 < len(p.segs) {
		upper = p.segs[p.at+1].base
	}
	to, base, ok, err := resync(f, p.segs[p.at].base, size, pos, p.next, upper)
	if err != nil {
		return false, err
	}
	what := reasonText(reason)
	switch {
	case ok && base == p.next:
		what += ", though the batch there is whole"
	case ok:
		what += fmt.Sprintf("; %s cannot be read, whole batches follow at position %d", span(p.next, base-1), to)
	case upper < math.MaxInt64:
		what += fmt.Sprintf("; %s cannot be read", span(p.next, upper-1))
	default:
		what += fmt.Sprintf("; %s cannot be read", span(p.next, max(p.mark-1, p.next)))
	}
	if !p.below() {
		at := spot{p.at, pos, p.next}
		if p.newer != nil && errors.Is(reason, segment.ErrEpoch) {
			at = *p.newer // it falls behind one that nobody has handed out
		}
		p.plan().cut(at.seg, at.pos, at.base)
	}
	p.segDamage(pos, p.next, ruleOf(reason), what, p.logHelp())
	if !ok {
		p.lost(pos, size, ix)
		return false, nil
	}
	if base > p.next || to > pos {
		ix.skip(pos, to)
		p.lose(base)
	}
	r.Pos, r.Next, r.Epoch = to, base, math.MinInt32
	return true, nil
}

// lost gives up the rest of a segment.
func (p *partCheck) lost(pos, size int64, ix *indexes) {
	ix.skip(pos, size)
	if p.at+1 < len(p.segs) {
		p.lose(p.segs[p.at+1].base)
		return
	}
	p.endless = true
}

// span names a range of offsets.
func span(from, to int64) string {
	if from == to {
		return fmt.Sprintf("offset %d", from)
	}
	return fmt.Sprintf("offsets %d to %d", from, to)
}

func ruleOf(reason error) string {
	switch {
	case errors.Is(reason, segment.ErrBase), errors.Is(reason, segment.ErrDelta):
		return "I4"
	case errors.Is(reason, segment.ErrEpoch):
		return ruleEpoch
	case errors.Is(reason, segment.ErrShort):
		return "I7"
	}
	return "I2"
}

// cutTail ends the log at pos of the segment that is read, as the next start will.
func (p *partCheck) cutTail(pos int64, reason error) {
	s := &p.segs[p.at]
	bytes := s.size - pos
	for _, later := range p.segs[p.at+1:] {
		bytes += later.size
	}
	p.tail, p.out.TailBytes = true, bytes
	name := segment.Name(s.base, segment.LogSuffix+s.suffix)
	what := fmt.Sprintf("a tail of %d bytes above the durable mark is no part of the log (%s)", bytes, reasonText(reason))
	if !p.k.clean {
		p.finds.add(finding{levelNote, p.dir + "/" + name, pos, p.next, "I7", "unclean: " + what,
			"it will be cut at the next start"})
		return
	}
	p.damage(name, pos, p.next, "I7", what+" although the last stop was clean", "the next start cuts it")
}

// batch checks one batch whose frame and checksum are right and that lies in its place.
func (p *partCheck) batch(pos int64, v batch.View, ix *indexes) error {
	base, last := v.BaseOffset(), v.LastOffset()
	if err := p.prods.reach(base); err != nil {
		return err
	}
	p.out.Batches++
	p.out.Records += int64(v.Count())
	p.out.Bytes += int64(len(v))
	if p.fix != nil {
		p.fix.behind(last + 1)
	}
	if p.records(pos, v) && p.journal != nil && !v.Attrs().Control() {
		p.journal.batch(pos, v)
	}
	p.leaderEpoch(pos, v)
	aborted := p.prods.batch(pos, v)
	ix.batch(pos, v, aborted)
	p.next, p.leader = last+1, v.LeaderEpoch()
	return nil
}

// records checks what lies inside a batch: the records as a walk finds them, their count, their largest time. It
// tells whether they can be walked.
func (p *partCheck) records(pos int64, v batch.View) (walked bool) {
	const help = "the bytes are as they were written: consumers cannot read past this batch; please report it"
	base := v.BaseOffset()
	found, err := v.Validate(batch.Limits{Deep: true, Stored: true, DecodedMax: decodedMax})
	if err != nil {
		what := err.Error()
		var r *batch.RecordError
		if errors.As(err, &r) {
			what = fmt.Sprintf("record %d: %s", r.Index, what)
		}
		p.segDamage(pos, base, "I3", what, help)
		return false
	}
	control := v.Attrs().Control()
	if n := int64(v.LastOffsetDelta()) + 1; !p.holes && int64(v.Count()) != n {
		p.segDamage(pos, base, "I4", fmt.Sprintf("%d records for %d offsets in a log that was never compacted", v.Count(), n),
			help)
	}
	if t := max(v.MaxTime(), -1); v.Count() > 0 && t != found.MaxTime {
		p.segDamage(pos, base, "I3", fmt.Sprintf("the header says %d for the largest time of its records, it is %d", t,
			found.MaxTime), "searching by time may miss it; please report it")
	}
	if control {
		if _, err := batch.ParseMarker(v); err != nil && !errors.Is(err, batch.ErrNoMarker) {
			p.segDamage(pos, base, "I3", "control batch: "+err.Error(), help)
		}
	}
	return true
}

// resync finds the next whole batch at or behind from that can follow: its base offset at or above next and below
// upper. Behind damage nothing tells where it begins, so every place is tried, within a bound.
func resync(f vfs.File, segBase, size, from, next, upper int64) (pos, base int64, ok bool, err error) {
	const magicAt = 16
	r := segment.NewReader(f, segBase, size)
	buf := make([]byte, min(resyncLen, max(size-from, 0)))
	effort := resyncFactor * (size - from)
	for at := from; size-at >= batch.HeaderLen; {
		b := buf[:min(int64(len(buf)), size-at)]
		if n, err := f.ReadAt(b, at); n < len(b) {
			return 0, 0, false, err
		}
		last := len(b) - batch.HeaderLen // where a header can begin
		for i := 0; i <= last; i++ {
			k := bytes.IndexByte(b[i+magicAt:last+magicAt+1], 2)
			if k < 0 {
				break
			}
			i += k
			v := batch.View(b[i : i+batch.HeaderLen])
			n := int64(int32(binary.BigEndian.Uint32(b[i+8:]))) + 12
			if n < batch.HeaderLen || n > size-at-int64(i) || v.BaseOffset() < next || v.LastOffset() >= upper {
				continue
			}
			if effort -= n; effort < 0 {
				return 0, 0, false, nil
			}
			r.Pos, r.Next, r.Epoch, r.Holes = at+int64(i), next, math.MinInt32, math.MaxInt64
			if w, err := r.Read(); err == nil {
				return at + int64(i), w.BaseOffset(), true, nil
			} else if !isReason(err) {
				return 0, 0, false, err
			}
		}
		at += int64(last) + 1
	}
	return 0, 0, false, nil
}
