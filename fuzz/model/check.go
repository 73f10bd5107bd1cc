package model

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"sekali/pidmap"
)

// ErrUnjustified: the log start passed a batch that no rule of retention lets go.
var ErrUnjustified = errors.New("a batch was removed without a reason")

// SameBytes compares what was read from offset from on with the log: whole batches, the first one holds from, none is
// missing, every byte as it must be stored (I3, I4). It returns the offset behind what was read.
func (p *Partition) SameBytes(from int64, parts [][]byte) (int64, error) {
	at := from
	i := p.Index(from)
	for n, b := range parts {
		for len(b) > 0 {
			if i == len(p.Batches) {
				return at, fmt.Errorf("part %d: %d bytes behind the end %d of the log", n, len(b), p.End())
			}
			want := p.Batches[i]
			if len(b) < len(want.Bytes) || !bytes.Equal(b[:len(want.Bytes)], want.Bytes) {
				return at, fmt.Errorf("part %d: the batch at %d..%d reads as %s, it was stored as %s",
					n, want.Base, want.Last, short(b, len(want.Bytes)), short(want.Bytes, len(want.Bytes)))
			}
			b = b[len(want.Bytes):]
			at = want.Last + 1
			i++
		}
	}
	return at, nil
}

func short(b []byte, n int) string {
	b = b[:min(len(b), n)]
	if len(b) > 96 {
		return fmt.Sprintf("%x... (%d bytes)", b[:96], len(b))
	}
	return fmt.Sprintf("%x", b)
}

// Removable tells whether retention may raise the log start from p.Start to start: every batch that goes is older than
// retainMs, or at least retainBytes remain behind it. Negative limits are none.
func (p *Partition) Removable(start, wall, retainMs, retainBytes int64) error {
	rest := int64(0)
	for i := len(p.Batches) - 1; i >= 0; i-- {
		b := p.Batches[i]
		if b.Last < start && b.Last >= p.Start {
			old := retainMs >= 0 && wall-b.Time > retainMs
			if big := retainBytes >= 0 && rest >= retainBytes; !old && !big {
				return fmt.Errorf("%w: %d..%d of time %d at %d, %d bytes behind it", ErrUnjustified, b.Base, b.Last,
					b.Time, wall, rest)
			}
		}
		rest += int64(len(b.Bytes))
	}
	return nil
}

// AtTime is the first record in [p.Start, high) whose timestamp is at or above ms, -1 and -1 if there is none.
func (p *Partition) AtTime(ms, high int64) (offset, time int64) {
	for _, b := range p.Batches[p.Index(p.Start):] {
		for k, t := range b.Times {
			if at := b.Base + int64(k); at >= p.Start && at < high && t >= ms {
				return at, t
			}
		}
	}
	return -1, -1
}

// MaxTime is the first record in [p.Start, high) with the largest timestamp, -1 and -1 if there is none.
func (p *Partition) MaxTime(high int64) (offset, time int64) {
	offset, time = -1, -1
	for _, b := range p.Batches[p.Index(p.Start):] {
		for k, t := range b.Times {
			if at := b.Base + int64(k); at >= p.Start && at < high && t > time {
				offset, time = at, t
			}
		}
	}
	return offset, time
}

// EpochEnd is the end of a leader epoch that has a batch at or above p.Start; ok is false for others.
func (p *Partition) EpochEnd(epoch int32) (end int64, ok bool) {
	for _, b := range p.Batches[p.Index(p.Start):] {
		ok = ok || b.Leader == epoch
		if b.Leader > epoch {
			return b.Base, ok
		}
	}
	return p.End(), ok
}

// pids are the producers that ever wrote.
func (p *Partition) pids() map[int64]bool {
	m := map[int64]bool{}
	for _, b := range p.Batches {
		m[b.PID] = true
	}
	return m
}

// SameProducers compares what the partition knows of its producers with what follows from the log (I14), and learns
// which of them it has forgotten: only those that were idle long enough may be missing. fresh: the state was rebuilt by
// a start, which may know a producer again that had been forgotten, or may have forgotten what lay before a long pause.
func (p *Partition) SameProducers(all []pidmap.Producer, now time.Duration, fresh bool) error {
	found := map[int64]*pidmap.Producer{}
	for i := range all {
		if found[all[i].PID] != nil {
			return fmt.Errorf("producer %d stands twice in the producer state", all[i].PID)
		}
		found[all[i].PID] = &all[i]
	}
	for pid := range p.pids() {
		if err := p.sameProducer(pid, found[pid], now, fresh); err != nil {
			return err
		}
		delete(found, pid)
	}
	for pid := range found {
		return fmt.Errorf("producer %d is known, but never wrote here", pid)
	}
	return nil
}

func (p *Partition) sameProducer(pid int64, got *pidmap.Producer, now time.Duration, fresh bool) error {
	s := p.State(pid)
	if got == nil {
		if s.Known && now-s.Touch < p.Expire-Slack {
			return fmt.Errorf("producer %d is forgotten after %v, expiry is %v", pid, now-s.Touch, p.Expire)
		}
		p.life[pid] = p.End()
		return nil
	}
	why := s.differs(got)
	if why == "" {
		return nil
	}
	if fresh {
		for _, from := range p.lives(pid) {
			if s := p.stateFrom(pid, from); s.differs(got) == "" {
				p.life[pid] = from
				return nil
			}
		}
	}
	return fmt.Errorf("producer %d: %s", pid, why)
}

// lives are the offsets from which on a start may know a producer: the beginning, and every batch after a long pause.
func (p *Partition) lives(pid int64) []int64 {
	from := []int64{0}
	var before *Batch
	for _, b := range p.Batches {
		if b.PID != pid {
			continue
		}
		if before != nil && b.Touch-before.Touch >= p.Expire-Slack {
			from = append(from, b.Base)
		}
		before = b
	}
	return from
}

// differs says in what the partition's entry is not what the log tells; empty: in nothing.
func (s *State) differs(got *pidmap.Producer) string {
	switch {
	case !s.Known:
		return "known, but it had been forgotten"
	case got.Epoch != s.Epoch:
		return fmt.Sprintf("epoch %d, by the log %d", got.Epoch, s.Epoch)
	case got.Span != s.Span:
		return fmt.Sprintf("span %d, by the log %d", got.Span, s.Span)
	case int(got.N) != len(s.Slots):
		return fmt.Sprintf("%d batches remembered, by the log %d", got.N, len(s.Slots))
	case got.LastTime != s.LastTime:
		return fmt.Sprintf("last time %d, by the log %d", got.LastTime, s.LastTime)
	case got.TxnFirst != -1:
		return "an open transaction"
	}
	for i, b := range s.Slots {
		g := got.Stamps[i]
		if g.LastSeq != b.End || g.FirstSeq() != b.First || g.Last != b.Last || g.Base() != b.Base || g.Time != b.Time {
			return fmt.Sprintf("batch %d remembered as %+v, by the log %d..%d with numbers %d..%d, time %d", i, g, b.Base,
				b.Last, b.First, b.End, b.Time)
		}
		if g.CRC != b.CRC && !b.Rewritten {
			return fmt.Sprintf("batch %d remembered with checksum %08x, received %08x", i, g.CRC, b.CRC)
		}
	}
	return ""
}
