package sim

import (
	"math/rand/v2"
	"syscall"
	"time"

	"sekali/fuzz/model"
	"sekali/internal/vfs"
)

// do plays one operation.
func (w *world) do(o *Op) {
	r := rand.New(rand.NewPCG(uint64(o.A)<<32|uint64(o.B), uint64(o.C)))
	p := w.parts[int(o.B)%len(w.parts)]
	c := w.clients[int(o.A)%len(w.clients)]
	switch o.Kind {
	case Send:
		w.send(p, c, r)
	case Group:
		w.group(p, r)
	case Retry:
		if s := c.streams[p.n].some(r); s != nil {
			w.deliver(p, []*sent{s}, r.IntN(4) == 0)
		}
	case Stale:
		if len(p.copies) > 0 {
			w.deliver(p, []*sent{p.copies[r.IntN(len(p.copies))]}, true)
		}
	case Gap, Recut:
		w.odd(p, c, r, o.Kind == Gap)
	case Bump:
		c.bump()
	case Fresh:
		w.fresh(int(o.A)%len(w.clients), r)
	case Flush:
		w.node.pass(pick(r, 1, 1, 2, -1))
	case Read, Hold:
		w.read(p, r, o.Kind == Hold)
	case Drop:
		w.look(p)
	case Lookup:
		w.lookup(p, r)
	case Tick:
		w.tick(r)
	case Wall:
		w.unjudged()
		w.node.clk.SetWall(w.node.clk.Wall() + r.Int64N(4_000_000) - 2_000_000)
	case Delete:
		w.delete(p, r)
	case Retain:
		w.retain(r)
	case Remake:
		w.remake()
	default:
		w.disturb(o.Kind, r)
	}
}

// disturb plays the operations that are no part of a quiet life.
func (w *world) disturb(k Kind, r *rand.Rand) {
	switch k {
	case Kill:
		w.kill(nil, r)
		if r.IntN(3) == 0 {
			w.settle()
			w.kill(randomPlan(r), r) // before anything has flushed what the dead process left
		}
	case Cut:
		w.kill(randomPlan(r), r)
	case Mine:
		w.node.plant(1+r.IntN(pick(r, 4, 20, 60)), pick(r, nil, randomPlan(r)))
	case BadFlush:
		w.badFlush(r)
	case BadWrite:
		w.badWrite(r)
	case Full:
		w.limited, w.capped = true, true
		w.node.mem.SetCapacity(w.node.mem.Used() + pick[int64](r, 0, 4096, 4096, 8192, 32768))
	case Heal:
		w.heal()
	case Restart:
		w.restart()
	case Reopen:
		w.reopen()
	}
}

// some is a batch to repeat: one not answered, mostly, or one answered not long ago.
func (s *stream) some(r *rand.Rand) *sent {
	switch {
	case len(s.queue) > 0 && (len(s.done) == 0 || r.IntN(3) > 0):
		return s.queue[r.IntN(len(s.queue))]
	case len(s.done) > 0:
		return s.done[len(s.done)-1-r.IntN(min(len(s.done), pick(r, 2, 6, 12)))]
	}
	return nil
}

// make builds a client's next batch; nil if it has enough under way.
func (w *world) make(p *part, c *client, r *rand.Rand) *sent {
	s := c.streams[p.n]
	if len(s.queue) >= inFlightMax {
		return nil
	}
	n, dice := 1+r.IntN(pick(r, 1, 3, 6)), r.Uint32()
	b := c.build(p.n, s.next, n, w.node.clk.Wall(), dice)
	if int64(len(b.Bytes)) > w.setup.SegmentBytes {
		b = c.build(p.n, s.next, 1, w.node.clk.Wall(), dice)
	}
	s.next = int32((int64(b.End) + 1) % model.Modulus)
	s.queue = append(s.queue, b)
	w.remember(p, b)
	return b
}

func (w *world) remember(p *part, b *sent) {
	if p.copies = append(p.copies, b); len(p.copies) > 200 {
		p.copies = p.copies[1:]
	}
}

// send lets a client send its next batch, or repeat the first one if it has enough under way. A client that is told
// that its first batch does not follow begins a new epoch, as real ones do.
func (w *world) send(p *part, c *client, r *rand.Rand) {
	if b := w.make(p, c, r); b != nil {
		w.deliver(p, []*sent{b}, r.IntN(6) == 0)
		return
	}
	b := c.streams[p.n].queue[0]
	before := w.stats.Refused
	if w.deliver(p, []*sent{b}, false); w.stats.Refused > before {
		c.bump()
	}
}

// group lets several clients send at once, new batches and repeated ones mixed.
func (w *world) group(p *part, r *rand.Rand) {
	var all []*sent
	for range 2 + r.IntN(5) {
		c := w.clients[r.IntN(len(w.clients))]
		b := c.streams[p.n].some(r)
		if b == nil || r.IntN(3) > 0 {
			b = w.make(p, c, r)
		}
		if b != nil {
			all = append(all, b)
		}
	}
	w.deliver(p, all, r.IntN(6) == 0)
}

// odd sends a batch no well-behaved client sends: with a gap before it, or numbers cut at other borders.
func (w *world) odd(p *part, c *client, r *rand.Rand, gap bool) {
	s := c.streams[p.n]
	first := int64(s.next) + 1 + r.Int64N(4)
	if !gap {
		first = int64(s.next) - 1 - r.Int64N(20)
	}
	first = (first + model.Modulus) % model.Modulus
	b := c.build(p.n, int32(first), 1+r.IntN(8), w.node.clk.Wall(), r.Uint32())
	b.late = true
	before := len(p.m.Batches)
	w.deliver(p, []*sent{b}, true)
	if len(p.m.Batches) > before {
		c.bump() // an unknown producer was taken at its word; its own numbering is of no use any more
	}
	w.remember(p, b)
}

// fresh replaces a client by one with a new producer id; some begin close to where the numbers wrap.
func (w *world) fresh(i int, r *rand.Rand) {
	w.clients[i] = w.newClient(w.clients[i].name + 100)
	if r.IntN(2) == 0 {
		for _, s := range w.clients[i].streams {
			s.next = int32(model.Modulus - 1 - r.Int64N(12))
		}
	}
}

// tick lets time pass and does the housekeeping of it.
func (w *world) tick(r *rand.Rand) {
	d := time.Duration(r.IntN(1500)) * time.Millisecond
	if far := r.IntN(20); far < 6 {
		d = time.Duration(r.IntN(100)) * time.Second
	} else if far < 6+w.setup.Patience {
		d = pick(r, 4*time.Minute, 11*time.Minute, 25*time.Hour)
	}
	w.node.clk.Advance(d)
	for range pick(r, 1, 1, 1, 3) {
		w.node.clk.Advance(time.Second)
		if w.reopens() {
			w.node.through(w.node.store.Tick)
		} else {
			w.node.store.Tick()
			w.node.rest()
		}
		w.ticked()
	}
}

// reopens reports whether a Tick may flush logs in its own goroutine, where it would meet the round that stands at the
// gate: it reopens a partition that is offline, or was since the last Tick, and retention flushes what is only written
// under durability=written.
func (w *world) reopens() bool {
	sick := w.setup.Written
	for _, p := range w.parts {
		sick = sick || p.away || p.sick || w.log(p) == nil
		p.sick = p.away || w.log(p) == nil
	}
	return sick
}

// ticked looks at what housekeeping did: log starts, producers.
func (w *world) ticked() {
	if w.node.dead() {
		return
	}
	for _, p := range w.parts {
		l := w.log(p)
		if l == nil || l != p.log {
			continue
		}
		p.flushes = p.m.End()
		if start := l.Offsets().Start; start != p.m.Start {
			w.started(p, start, w.node.clk.Wall())
			w.stats.Retained++
		}
		w.producers(p, l, false)
	}
}

// started takes over a log start that retention has raised.
func (w *world) started(p *part, start, wall int64) {
	if start < p.m.Start || start > p.m.End() {
		w.fail("partition %d: log start %d, it was %d, the log ends at %d", p.n, start, p.m.Start, p.m.End())
	}
	if err := p.m.Removable(start, wall, w.retainMs, w.retainBytes); err != nil {
		w.fail("partition %d: log start raised from %d to %d: %v", p.n, p.m.Start, start, err)
	}
	p.m.Start = start
}

// delete is DeleteRecords.
func (w *world) delete(p *part, r *rand.Rand) {
	l := w.log(p)
	if l == nil {
		return
	}
	high := l.Offsets().High
	to := p.m.Start + r.Int64N(high-p.m.Start+1)
	if r.IntN(4) == 0 {
		to = high
	}
	var err error
	if w.setup.Written {
		w.node.through(func() { err = l.DeleteBefore(to) }) // as for Tick
	} else {
		err = l.DeleteBefore(to)
	}
	switch {
	case err == nil:
		p.m.Start = max(p.m.Start, to)
		w.stats.Deleted++
	case w.node.dead() || w.faulty || w.limited:
		p.starts = max(p.starts, to)
	default:
		w.fail("partition %d: delete before %d of %d: %v", p.n, to, high, err)
	}
}

// badFlush makes a flush to come fail (I15).
func (w *world) badFlush(r *rand.Rand) {
	match := pick(r, "*.log", "*.log", "*.log", "*.index", "*.timeindex", "*.snapshot.tmp", topicName+"-0", "data",
		"*checkpoint*")
	w.faulty = true
	w.losing = w.losing || match == "*.log"
	w.badFlushes = append(w.badFlushes, w.node.mem.FailSync(match, 1+r.IntN(4), syscall.EIO))
}

// badWrite makes a write to come fail, perhaps after a part of it.
func (w *world) badWrite(r *rand.Rand) {
	w.faulty = true
	rule := vfs.Rule{Op: pick(r, "writevat", "writeat"), Match: pick(r, "*.log", "*.log", "*"), Nth: 1 + r.IntN(4),
		Err: syscall.EIO, Short: pick(r, 0, 1, 30, 100, 1000)}
	w.badWrites = append(w.badWrites, w.node.inj.Add(rule).Remove)
}

// heal ends all faults. What they did may show as long as the process lives.
func (w *world) heal() {
	for _, undo := range append(w.badFlushes, w.badWrites...) {
		undo()
	}
	for _, p := range w.parts {
		p.fragile = p.fragile || w.losing // of a SyncAll that failed a log may be told only later
	}
	w.untold = w.untold || len(w.badFlushes) > 0
	w.badFlushes, w.badWrites, w.losing, w.capped = nil, nil, false, false
	w.node.mem.SetCapacity(0)
}

// reopen brings offline partitions back by hand.
func (w *world) reopen() {
	for _, p := range w.parts {
		if w.log(p) == nil && !w.node.dead() {
			w.node.through(func() { _ = w.node.store.Reopen(w.tp(p.n)) }) // settle finds out what came of it
		}
	}
}
