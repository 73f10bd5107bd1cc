package broker

import (
	"slices"

	"sekali/wire"
)

// run executes what may run now, in order. Reader and writer call it; whoever finds the execution turn taken leaves,
// and its holder looks again before it lets go.
func (c *conn) run() {
	for {
		c.mu.Lock()
		f, ok := c.parked, false
		var p pending
		switch {
		case c.running || c.closed.Load():
		case f != nil:
			if ok = f.due(); ok {
				c.parked = nil
			}
		case c.queue.len() > 0 && c.mayRun(c.queue.first()):
			p, ok = c.queue.take(), true
			c.queued -= p.charge.n
		}
		c.running = c.running || ok
		c.mu.Unlock()
		if !ok {
			return
		}
		if f != nil {
			f.resume()
		} else {
			c.execute(&p)
		}
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	}
}

// queue is requests in order. It keeps its room, so that a connection in steady state allocates nothing for it.
type queue struct {
	all []pending
	at  int // of the first
}

func (q *queue) len() int        { return len(q.all) - q.at }
func (q *queue) first() *pending { return &q.all[q.at] }
func (q *queue) rest() []pending { return q.all[q.at:] }

func (q *queue) add(p *pending) {
	if q.at > 0 && len(q.all) == cap(q.all) {
		q.all, q.at = slices.Delete(q.all, 0, q.at), 0
	}
	q.all = append(q.all, *p)
}

func (q *queue) take() pending {
	p := q.all[q.at]
	q.all[q.at] = pending{}
	if q.at++; q.at == len(q.all) {
		q.all, q.at = q.all[:0], 0
	}
	return p
}

// mayRun: everything before it is complete and flushed, or it is a Produce and all that is not complete are, too: they
// only wait for a flush. A parked Fetch is looked at before.
func (c *conn) mayRun(p *pending) bool {
	return p.slot.hdr.Key == wire.KeyProduce || c.waiting.Load() == 0 && c.unflushed.Load() == 0
}

// execute runs one request under the execution turn.
func (c *conn) execute(p *pending) {
	c.waiting.Add(1)
	defer c.drop(p)
	switch key := p.slot.hdr.Key; key {
	case wire.KeyProduce:
		c.s.produce(c, p)
	case wire.KeyFetch:
		c.s.fetch(c, p)
	default:
		r := &request{hdr: p.slot.hdr, msg: p.msg, conn: c, slot: p.slot}
		resp := c.s.refusal(r)
		if resp == nil {
			if resp = c.s.handlers[key](c.s, r); r.deferred {
				return
			}
			resp = r.amended(resp)
		}
		p.slot.msg, p.slot.hangup = resp, resp == nil
		c.complete(p.slot)
		c.slots.flush()
	}
}

// complete marks an answer as ready. It does not block and takes no lock, so a syncer may call it; who sends the
// answer is up to the caller.
func (c *conn) complete(s *slot) {
	s.ready()
	c.waiting.Add(-1)
}
