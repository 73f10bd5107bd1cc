// Package model is the specification of a partition as small slow code: the log is a list, what is known of a producer
// follows from its batches in that list, and every decision about a batch is made from them anew. It shares no code
// with the packages it judges, but for the form in which a partition lists its producers. The simulator in fuzz/sim
// compares real partitions with it after every step.
//
// Offsets are record offsets; ends are exclusive. Sequence numbers are first and last of a batch, both inclusive, and
// wrap at Modulus. Times are wall clock milliseconds, durations monotonic. Rules are those of the producer state
// (window of five, span, epochs, expiry); invariants I1 to I15 are those of docs/INVARIANTS.md.
package model

import (
	"fmt"
	"sort"
	"time"
)

// Window is how many batches of a producer are remembered one by one.
const Window = 5

// Slack is how far the partition's idea of idle time may lie from the model's: it counts in tenths of a second.
const Slack = 200 * time.Millisecond

// Batch is one batch of the log, as the specification wants it stored.
type Batch struct {
	Base, Last int64
	PID        int64
	Epoch      int16
	First, End int32  // sequence numbers
	CRC        uint32 // as received
	Rewritten  bool   // the stored checksum is not the received one
	Time       int64  // largest timestamp as stored
	Times      []int64
	Leader     int32
	Bytes      []byte
	Touch      time.Duration // when it was appended
}

func (b *Batch) count() int64 { return b.Last - b.Base + 1 }

// Request is a batch as a client sends it.
type Request struct {
	PID        int64
	Epoch      int16
	First, End int32
	Bytes      []byte  // base offset 0, leader epoch -1
	Times      []int64 // of the records
}

// Partition is the history of one partition. Its owner is one goroutine.
type Partition struct {
	Batches []*Batch // from offset 0 on, also those below Start
	Start   int64
	Sure    int64 // everything below is on the disk, whatever happens
	Expire  time.Duration
	Stamped bool // LogAppendTime

	life    map[int64]int64   // batches of a producer below this offset are forgotten
	refused map[int64]refusal // unknown producers whose first batch was refused by a retriable code
}

// refusal is what Refuse leaves: an epoch with nothing in it.
type refusal struct {
	epoch int16
	at    time.Duration
}

// New is an empty partition that forgets producers idle for expire.
func New(expire time.Duration, stamped bool) *Partition {
	return &Partition{Expire: expire, Stamped: stamped, life: map[int64]int64{}, refused: map[int64]refusal{}}
}

// End is the offset of the next record.
func (p *Partition) End() int64 {
	if len(p.Batches) == 0 {
		return 0
	}
	return p.Batches[len(p.Batches)-1].Last + 1
}

// Index is the number of the batch that holds offset, or of the first one behind it.
func (p *Partition) Index(offset int64) int {
	return sort.Search(len(p.Batches), func(i int) bool { return p.Batches[i].Last >= offset })
}

// State is what is known of a producer.
type State struct {
	Known    bool
	Epoch    int16
	Span     uint32
	Slots    []*Batch // oldest first
	LastTime int64
	Touch    time.Duration
}

// last is the newest sequence number, -1 if there is none.
func (s *State) last() int32 {
	if len(s.Slots) == 0 {
		return -1
	}
	return s.Slots[len(s.Slots)-1].End
}

// State follows from the batches that are not forgotten.
func (p *Partition) State(pid int64) State { return p.stateFrom(pid, p.life[pid]) }

func (p *Partition) stateFrom(pid, from int64) (s State) {
	for _, b := range p.Batches[p.Index(from):] {
		if b.PID == pid {
			s.take(b)
		}
	}
	return s
}

// take is the effect of one stored batch. A log that restarts from a snapshot may show a lower epoch after a higher
// one, and numbers that do not follow: the higher epoch stays, and numbers that do not follow prove only themselves.
func (s *State) take(b *Batch) {
	s.LastTime, s.Touch = b.Time, b.Touch
	switch {
	case s.Known && b.Epoch < s.Epoch:
		return
	case !s.Known || b.Epoch > s.Epoch:
		*s = State{Known: true, Epoch: b.Epoch, LastTime: b.Time, Touch: b.Touch}
	}
	if b.First != next(s.last()) {
		s.Span = 0
	}
	s.Span = uint32(min(int64(s.Span)+b.count(), Modulus/2-1))
	s.Slots = append(s.Slots[:len(s.Slots):len(s.Slots)], b)
	if len(s.Slots) > Window {
		s.Slots = s.Slots[1:]
	}
}

func next(last int32) int32 { return int32((int64(last) + 1) % Modulus) }

// behind is how far s lies before last.
func behind(last, s int32) int64 { return (int64(last) - int64(s) + Modulus) % Modulus }

// covered reports whether every number of the request is proven written in this epoch.
func (s *State) covered(r *Request) bool {
	if s.Span == 0 {
		return false
	}
	from, to := behind(s.last(), r.First), behind(s.last(), r.End)
	return from < int64(s.Span) && to < int64(s.Span) && from-to == r.count()-1
}

func (r *Request) count() int64 { return (int64(r.End)-int64(r.First)+Modulus)%Modulus + 1 }

// Verdict is what must become of a request.
type Verdict uint8

// The verdicts of the decision table.
const (
	Append Verdict = iota
	Duplicate
	Old // proven written, not in the window: the true offset if the batch is found, else error 46
	OutOfOrder
	Fenced
)

// String names the verdict.
func (v Verdict) String() string {
	return [...]string{"append", "duplicate", "old duplicate", "out of order", "fenced"}[v]
}

// Answer is a decision.
type Answer struct {
	Verdict  Verdict
	At       *Batch // the original of a duplicate; of an old one nil if no batch has exactly these numbers
	Before   int64  // of an old one: base offset of the oldest batch in the window
	Until    int64  // of a duplicate: what must be durable before it is answered
	Unproven bool
}

// Decide makes the decision table's decision about a request of a client without a transaction. Where the partition
// may have forgotten that it refused a first batch, both answers are right and other is the second.
func (p *Partition) Decide(r *Request, now time.Duration) (a Answer, other *Answer) {
	s := p.State(r.PID)
	if f, ok := p.refused[r.PID]; ok && !s.Known {
		if now-f.at >= p.Expire-Slack {
			b := p.decide(r, &s)
			other = &b
		}
		s = State{Known: true, Epoch: f.epoch}
	}
	return p.decide(r, &s), other
}

func (p *Partition) decide(r *Request, s *State) Answer {
	switch {
	case !s.Known && r.First == 0:
		return Answer{}
	case !s.Known && p.End() == 0:
		return Answer{Verdict: OutOfOrder}
	case !s.Known:
		return Answer{Unproven: true}
	case r.Epoch < s.Epoch:
		return Answer{Verdict: Fenced}
	case r.Epoch > s.Epoch && r.First == 0:
		return Answer{}
	case r.Epoch > s.Epoch:
		return Answer{Verdict: OutOfOrder}
	}
	// Numbers that follow and stand in the window too: a start has brought back what had been forgotten when they were
	// stored again. Nothing tells whether they are meant a third time, so they are taken as what follows.
	if r.First == next(s.last()) {
		return Answer{}
	}
	for i := len(s.Slots) - 1; i >= 0; i-- {
		if b := s.Slots[i]; b.First == r.First && b.End == r.End {
			return Answer{Verdict: Duplicate, At: b, Until: b.Last + 1}
		}
	}
	if s.covered(r) {
		a := Answer{Verdict: Old, Before: s.Slots[0].Base, Until: s.Slots[len(s.Slots)-1].Last + 1}
		for _, b := range p.Batches[:p.Index(a.Before)] {
			if b.PID == r.PID && b.Epoch == r.Epoch && b.First == r.First && b.End == r.End {
				a.At = b
			}
		}
		return a
	}
	return Answer{Verdict: OutOfOrder}
}

// Original is the batch at a base offset, if it bears the numbers of the request. A producer that was forgotten may
// have stored them more than once.
func (p *Partition) Original(r *Request, base int64) *Batch {
	if i := p.Index(base); i < len(p.Batches) {
		b := p.Batches[i]
		if b.Base == base && b.PID == r.PID && b.Epoch == r.Epoch && b.First == r.First && b.End == r.End {
			return b
		}
	}
	return nil
}

// Append stores a request at the end. appendTime is the wall clock of the write, for topics with LogAppendTime.
func (p *Partition) Append(r *Request, leader int32, appendTime int64, now time.Duration) *Batch {
	delete(p.refused, r.PID)
	b := p.stored(r, leader, appendTime)
	b.Touch = now
	p.Batches = append(p.Batches, b)
	return b
}

// Refuse notes that a request was refused by a retriable code: what comes behind the first batch of an unknown producer
// must wait for it.
func (p *Partition) Refuse(r *Request, now time.Duration) {
	if _, ok := p.refused[r.PID]; !ok && r.First == 0 && !p.State(r.PID).Known {
		p.refused[r.PID] = refusal{epoch: r.Epoch, at: now}
	}
}

// Fits reports whether stored bytes are what a request must become at an offset.
func (p *Partition) Fits(r *Request, leader int32, appendTime int64, stored []byte) bool {
	return string(p.stored(r, leader, appendTime).Bytes) == string(stored)
}

// Truncate takes out the batches from end on: a restart has found the log to end there. It is an error if that was on
// the disk, or is no batch border. What was known in memory alone is gone.
func (p *Partition) Truncate(end int64) error {
	if end < p.Sure {
		return fmt.Errorf("the log ends at %d, but everything below %d was on the disk", end, p.Sure)
	}
	i := p.Index(end)
	if i < len(p.Batches) && p.Batches[i].Base != end || end > p.End() {
		return fmt.Errorf("the log ends at %d, which is no batch border (written: %d)", end, p.End())
	}
	p.Batches = p.Batches[:i]
	for pid, from := range p.life {
		p.life[pid] = min(from, end)
	}
	clear(p.refused)
	return nil
}
