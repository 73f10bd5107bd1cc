package plog

import (
	"errors"
	"fmt"

	"sekali/batch"
	"sekali/internal/check"
	"sekali/internal/vfs"
	"sekali/pidmap"
)

// Origin is who wrote a batch: it decides which tests are made and which fields are stamped.
type Origin uint8

// Clients are tested for epoch, duplicates, sequence and transaction; coordinators (group offsets, sequence -1) for
// epoch and transaction; replicas (AppendAsFollower) for nothing.
const (
	Client Origin = iota
	Coordinator
	Replica
)

// AppendIn is one batch to append.
type AppendIn struct {
	Batch   batch.View // stamped in place; not kept after return
	Checked batch.Checked
	Origin  Origin
	Version int16  // of the Produce request
	Guard   uint64 // from RejectError.Decision after a TxnUnverified answer
	Lazy    bool   // nobody waits for its flush: it comes with the next one of the log, or after Options.Lazy
}

// AppendOut is what became of a batch. Base and Last are -1 where nothing is known to be stored, Time is -1 unless the
// topic says LogAppendTime.
type AppendOut struct {
	Base, Last, Time, Start int64
	Until                   int64 // exclusive; the answer at acks=all waits until this is durable; 0: no wait
	Duplicate               bool
	Mismatch                bool  // of a duplicate: the numbers agree, the checksum does not
	Unproven                bool  // an unknown producer went on where it says it stood
	Err                     error // of this batch, in AppendAll
}

// pending is a batch that was accepted and waits for its write.
type pending struct {
	v     batch.View
	dedup bool // it has a producer id
	b     pidmap.Batch
}

// Append stores one batch at the end of the log and returns when its bytes are written, not when they are durable.
// Errors: *RejectError (after DuplicateOld with Until set: that answer waits too), ErrTooLarge, ErrFull, ErrOffline,
// ErrClosed, ErrDeleted. After ErrOffline the batch may be found by recovery, else it is not stored.
func (l *Log) Append(in AppendIn) (AppendOut, error) {
	var out AppendOut
	if err := l.enter(); err != nil {
		l.unborn(&in, &out, err)
		return out, err
	}
	var p pending
	touch := l.touch()
	if err := l.lockForWrite(); err != nil {
		return l.nothing(), err
	}
	wrote := false
	if l.judge(&in, &p, &out, l.end.Load(), touch) {
		out.Err = l.write(&p)
		if wrote = out.Err == nil; !wrote {
			l.refused(&p, &out)
		}
	}
	l.unlock()
	switch {
	case !wrote:
		l.settle(&out)
	case in.Lazy:
		l.o.Lazy()
	default:
		l.o.Dirty()
	}
	return out, out.Err
}

// nothing is the answer for a batch that was not looked at.
func (l *Log) nothing() AppendOut {
	return AppendOut{Base: -1, Last: -1, Time: -1, Start: l.lim.start.Load()}
}

// judge decides about a batch that would get offset next, and stamps it if it is accepted; under mu. If not, out says
// what it is instead.
func (l *Log) judge(in *AppendIn, p *pending, out *AppendOut, next, touch int64) bool {
	*out = l.nothing()
	v := in.Batch
	if int64(len(v)) > l.cfg.SegmentBytes {
		out.Err = ErrTooLarge
		return false
	}
	l.describe(in, p, next, touch)
	if l.holding && p.dedup && p.b.Txn {
		l.pids.Refuse(&p.b)
		out.Err = ErrUnsettled
		return false
	}
	if p.dedup {
		d := l.pids.Check(&p.b)
		if d.Verdict != pidmap.Accept {
			l.decline(&d, p, out)
			return false
		}
		out.Unproven = d.Unproven
	}
	l.stamp(in, next)
	out.Base, out.Last = next, v.LastOffset()
	out.Until = out.Last + 1
	if l.cfg.AppendTime {
		out.Time = v.MaxTime()
	}
	return true
}

// describe fills p with what the producer state asks about a batch as received.
func (l *Log) describe(in *AppendIn, p *pending, next, touch int64) {
	v := in.Batch
	pid, epoch := v.Producer()
	p.v, p.dedup = v, pid >= 0
	if !p.dedup {
		return
	}
	first, last := v.Sequence()
	if in.Origin == Coordinator {
		first, last = -1, -1
	}
	txn := v.Attrs().Transactional()
	p.b = pidmap.Batch{
		PID: pid, Epoch: epoch, FirstSeq: first, LastSeq: last, CRC: v.CRC(), Txn: txn,
		FromZero: next == 0 || txn && in.Version >= implicitAddVersion, Guard: in.Guard, Touch: touch,
	}
}

// implicitAddVersion is the Produce version from which on a write may add its partition to a transaction (KIP-890).
const implicitAddVersion = 12

// stamp writes what the log decides: base offset and leader epoch always, timestamps of client batches as the topic
// says (I3). The checksum is redone only where a field it covers changes.
func (l *Log) stamp(in *AppendIn, next int64) {
	in.Batch.Stamp(next, l.epoch)
	if in.Origin != Client {
		return
	}
	if l.cfg.AppendTime {
		in.Batch.StampAppendTime(l.o.Clock.Wall())
	} else if in.Checked.MaxTime != in.Batch.MaxTime() {
		in.Batch.StampMaxTime(in.Checked.MaxTime)
	}
}

// decline turns a verdict that is not Accept into the answer. A duplicate is answered with the place of its original.
func (l *Log) decline(d *pidmap.Decision, p *pending, out *AppendOut) {
	if d.Verdict != pidmap.Duplicate {
		out.Err = &RejectError{Decision: *d}
		return
	}
	out.Duplicate = true
	out.Base, out.Last, out.Until = d.Stamp.Base(), d.Stamp.Last, d.Stamp.Last+1
	out.Mismatch = d.Stamp.CRC != 0 && d.Stamp.CRC != p.b.CRC
	if l.cfg.AppendTime {
		out.Time = d.Stamp.Time
	}
}

// write stores one accepted batch; under mu. Check came before, Commit comes after the bytes are in the file (I5).
func (l *Log) write(p *pending) error {
	if l.o.Load.Full.Load() {
		return ErrFull
	}
	if !l.active.Fits(p.v) {
		if err := l.roll(); err != nil {
			return err
		}
	}
	pos, err := l.active.Append(p.v)
	if err != nil {
		return l.writeFailed("append", err)
	}
	l.commit(p, pos)
	l.publish()
	return nil
}

// commit takes a batch that is in the file into the state that follows from it; under mu.
func (l *Log) commit(p *pending, pos int64) {
	v := p.v
	base, last, time := v.BaseOffset(), v.LastOffset(), v.MaxTime()
	check.Equal(base, l.end.Load(), "I4: base offset of a batch")
	if p.dedup {
		l.pids.Commit(&p.b, pidmap.At{Base: base, Last: last, Time: time, Pos: pos})
	}
	l.wrote(int64(len(v)), last, time)
}

// wrote accounts for bytes in the file and publishes the end that follows: bytes, size, end; under mu.
func (l *Log) wrote(n, last, time int64) {
	if time > l.tail.time {
		l.tail.time, l.tail.last = time, last
	}
	l.unflushed += n
	l.grown += n
	l.o.Load.Bytes.Add(n)
	l.end.Store(last + 1)
}

// publish ends a write: in written mode readers see it at once, unless an older segment is still to be flushed; under
// mu.
func (l *Log) publish() {
	if l.o.Written && l.owed == 0 {
		l.raiseWritten()
	}
}

// writeFailed handles a write that did not succeed; under mu. A full disk is no failed flush: the file is cut back to
// its published size and the next append tries again. Anything else takes the log offline.
func (l *Log) writeFailed(op string, err error) error {
	if vfs.IsNoSpace(err) {
		cut := l.active.Unwrite()
		if cut == nil {
			l.todo.any, l.todo.fault, l.todo.err = true, op, err
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		err = errors.Join(err, cut)
	}
	l.takeDown(offline(op, err), op)
	return l.down.Load().err
}

// refused takes back the answer of an accepted batch that was not written. The producer state stays as it was, except
// that a first batch holds back those behind it (I5).
func (l *Log) refused(p *pending, out *AppendOut) {
	err := out.Err
	*out = l.nothing()
	out.Err = err
	if p.dedup {
		l.pids.Refuse(&p.b)
	}
}

// unborn answers a batch whose log could not begin this start's epoch. It is a retriable refusal like any other.
func (l *Log) unborn(in *AppendIn, out *AppendOut, err error) {
	*out = l.nothing()
	out.Err = err
	var p pending
	touch := l.touch()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.describe(in, &p, l.end.Load(), touch)
	if p.dedup {
		l.pids.Refuse(&p.b)
	}
}

// Refuse records that a client batch was refused by a retriable code (19, 51) before it came here: if it is the first
// batch of an unknown producer, those behind it are then refused as out of order instead of being taken as the first.
func (l *Log) Refuse(v batch.View) {
	in := AppendIn{Batch: v}
	var out AppendOut
	l.unborn(&in, &out, nil)
}

// settle finishes a batch that was not written, once mu is free: the walk back for a proven duplicate older than the
// window, and the events.
func (l *Log) settle(out *AppendOut) {
	if out.Duplicate {
		l.o.Events.Duplicate(false)
		return
	}
	r, ok := out.Err.(*RejectError)
	if !ok {
		return
	}
	if r.Decision.Verdict == pidmap.DuplicateOld {
		l.answerOld(&r.Decision.Seek, out)
		if out.Duplicate {
			l.o.Events.Duplicate(true)
			return
		}
	}
	l.o.Events.Reject(r.Decision.Verdict)
}
