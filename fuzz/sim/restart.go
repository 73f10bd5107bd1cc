package sim

import (
	"math/rand/v2"

	"sekali/internal/vfs"
	"sekali/plog"
)

// randomPlan is a power cut: from one that leaves nothing unflushed to one that leaves nearly everything, garbled or
// not.
func randomPlan(r *rand.Rand) *vfs.CrashPlan {
	return &vfs.CrashPlan{
		Seed: r.Uint64(), KeepUnsynced: pick(r, 0, 0, 10, 50, 90, 100), Garble: r.IntN(2) == 0,
		SectorSize: pick(r, 512, 512, 4096),
	}
}

// plant lets the process die before the count-th change of a file from now on.
func (n *node) plant(count int, plan *vfs.CrashPlan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mine, n.plan = count, plan
}

// kill ends the process now, alone or with the power, and starts the next; it may die while it recovers.
func (w *world) kill(plan *vfs.CrashPlan, r *rand.Rand) {
	if w.node.dead() {
		return
	}
	w.node.end(plan)
	if plan == nil {
		w.stats.Kills++
	} else {
		w.stats.Cuts++
	}
	w.bury()
	w.boot(r)
}

// bury takes the dead process away; the next one finds what it left.
func (w *world) bury() {
	w.node.rest()
	w.take()
	w.drop()
	_ = w.node.stop() // of a dead process: every call to the disk fails
	w.answers.take()
	w.succeed(w.node.next, w.node.plan != nil)
}

// succeed makes the next process on a disk. cut: the power was lost, and with it faults and all that was not flushed.
func (w *world) succeed(m *vfs.Mem, cut bool) {
	w.alive += w.node.clk.Mono()
	w.wall = w.node.clk.Wall() + 2500
	for _, p := range w.parts {
		p.log = nil
		p.fragile = p.fragile || cut || w.losing
	}
	if w.badWrites = nil; cut {
		w.badFlushes, w.losing, w.untold = nil, false, false
	}
	w.faulty, w.limited = len(w.badFlushes) > 0 || w.untold, w.capped
	w.node = newNode(m, w.wall)
}

// boot starts processes until one serves. With dice each of them may be made to die while it recovers.
func (w *world) boot(r *rand.Rand) {
	for attempt := 0; ; attempt++ {
		if r != nil && attempt < 3 && r.IntN(3) == 0 {
			w.node.plant(1+r.IntN(pick(r, 5, 40)), pick(r, nil, randomPlan(r)))
		}
		w.tell("a process starts")
		w.starts++
		err := w.node.start(w.node.config(&w.setup, rand.New(rand.NewPCG(w.seed, 100+w.starts))))
		if err == nil && !w.node.dead() {
			err = w.topic()
		}
		if w.node.dead() {
			w.stats.Recovering++
			w.bury()
			continue
		}
		if err == nil {
			break
		}
		if !w.faulty && !w.limited {
			w.fail("start: %v", err)
		}
		w.heal()
		_ = w.node.stop() // of a start that failed
		w.succeed(w.node.mem.Kill(), false)
	}
	w.retained()
	for _, p := range w.parts {
		w.watch(p)
	}
}

// settle comes after every operation: the process rests, a dead one is replaced, every partition is compared.
func (w *world) settle() {
	w.node.rest()
	if w.node.dead() {
		w.stats.Mines++
		w.bury()
		w.boot(nil)
	}
	w.take()
	for _, p := range w.parts {
		w.watch(p)
	}
}

// restart stops in order and starts again.
func (w *world) restart() {
	w.drop()
	w.node.pass(-1)
	w.take()
	whole := true
	for _, p := range w.parts {
		whole = whole && w.log(p) != nil
	}
	err := w.node.stop()
	if w.node.dead() {
		w.stats.Mines++
		w.answers.take()
		w.succeed(w.node.next, w.node.plan != nil)
		w.boot(nil)
		return
	}
	if err != nil && !w.faulty && !w.limited {
		w.fail("stop: %v", err)
	}
	w.take()
	if err == nil {
		w.stats.Restarts++
		for _, p := range w.parts {
			p.m.Sure = p.m.End()
		}
	}
	w.succeed(w.node.mem.Kill(), false)
	w.boot(nil)
	if rec := w.node.store.Recovery(); err == nil && whole && (!rec.Clean || rec.Batches > 0 || rec.CutBytes > 0) {
		w.fail("after a clean stop: %+v", rec)
	}
}

// adopt compares a log that was just opened with the model: nothing that was on the disk is missing, nothing was made
// up, what is shown is whole, and the state is that of the log (I3, I4, I7, I14).
func (w *world) adopt(p *part, l *plog.Log) {
	o := l.Offsets()
	w.tell("partition %d was opened: %+v, producers %+v", p.n, o, producersOf(l))
	if o.High != o.End {
		w.fail("partition %d: opened with high watermark %d, end %d: not flushed before it is served", p.n, o.High, o.End)
	}
	// Retention has counted what a power cut took after it: the start is judged first.
	if o.Start < p.m.Start {
		w.fail("partition %d: the log start falls from %d to %d", p.n, p.m.Start, o.Start)
	}
	if o.Start > p.m.Start && o.Start > p.starts && len(p.maybe) == 0 && !p.changed {
		w.started(p, o.Start, w.node.clk.Wall())
	}
	p.m.Start = o.Start
	w.adoptEnd(p, l, o)
	p.log, p.last, p.maybe, p.fragile, p.flushes, p.changed = l, o, nil, w.losing, 0, false
	p.m.Sure = max(p.m.Sure, o.End)
	w.readAll(p, l)
	w.producers(p, l, true)
}

// adoptEnd finds out where the log ends.
func (w *world) adoptEnd(p *part, l *plog.Log, o plog.Offsets) {
	if end := p.m.End(); o.End < end && !p.fragile {
		w.fail("partition %d: ends at %d, %d was written and nothing can have taken it", p.n, o.End, end)
	} else if o.End < end {
		w.stats.Tails++
	}
	if err := p.m.Truncate(min(o.End, p.m.End())); err != nil {
		w.fail("partition %d: %v", p.n, err)
	}
	for p.m.End() < o.Start && len(p.maybe) > 0 { // it was stored, and housekeeping has removed it since
		c := p.maybe[0]
		p.maybe = p.maybe[1:]
		p.m.Append(&c.s.Request, c.leader, c.wall, c.now)
	}
	for _, v := range w.batchesFrom(p, l, p.m.End(), o.End) {
		if !w.adoptBatch(p, v) {
			w.fail("partition %d: a batch at %d that nobody sent: %x", p.n, p.m.End(), v)
		}
	}
}

// adoptBatch takes over a batch of which it was not known whether it was stored.
func (w *world) adoptBatch(p *part, v []byte) bool {
	for len(p.maybe) > 0 {
		c := p.maybe[0]
		p.maybe = p.maybe[1:]
		if p.m.Fits(&c.s.Request, c.leader, c.wall, v) {
			p.m.Append(&c.s.Request, c.leader, c.wall, c.now)
			return true
		}
	}
	return false
}

// finish ends a run: all faults end, every client gets an answer for all it sent, and what was answered survives a
// power cut that leaves nothing unflushed, and a clean stop.
func (w *world) finish() {
	w.heal()
	w.node.plant(0, nil)
	w.steady()
	for _, c := range w.clients {
		for _, p := range w.parts {
			w.drain(p, c)
		}
	}
	w.kill(&vfs.CrashPlan{Seed: w.seed}, nil)
	w.settle()
	w.restart()
	w.settle()
	w.drop()
	if err := w.node.stop(); err != nil {
		w.fail("stop: %v", err)
	}
}

// steady brings all partitions back on a disk that is healthy again. An error that nobody has been told yet may come
// first.
func (w *world) steady() {
	for tries := 0; ; tries++ {
		w.settle()
		down := error(nil)
		for _, p := range w.parts {
			if l, err := w.node.store.Partition(w.tp(p.n)); err != nil {
				down = err
			} else if l.Err() != nil {
				down = l.Err()
			}
		}
		if down == nil {
			return
		}
		if tries > 3 {
			w.fail("offline on a healthy disk: %v", down)
		}
		w.reopen()
	}
}

// drain repeats a client's batches until all are answered, and then one more. A client whose first batch was taken back
// by a power cut (durability=written), or that has lost its place otherwise, gives up once and begins a new epoch.
func (w *world) drain(p *part, c *client) {
	s := c.streams[p.n]
	r := rand.New(rand.NewPCG(w.seed, uint64(c.pid)))
	bumped, troubles := false, 0
	for one := false; len(s.queue) > 0 || !one; {
		if len(s.queue) == 0 {
			one = w.make(p, c, r) != nil
		}
		refused, waiting := w.stats.Refused, len(s.queue)
		w.deliver(p, []*sent{s.queue[0]}, false)
		w.node.pass(-1)
		w.settle()
		switch {
		case w.stats.Refused > refused && !bumped:
			c.bump()
			bumped, one = true, false
		case w.log(p) == nil && troubles < 3: // by the error of a flush that failed before
			w.steady()
			troubles++
		case len(s.queue) >= waiting:
			w.fail("partition %d: client %d gets no answer for %s", p.n, c.name, s.queue[0])
		}
	}
}
