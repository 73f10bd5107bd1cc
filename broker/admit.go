package broker

import (
	"context"
	"net"
	"sync"

	"sekali/internal/buf"
)

// door counts connections and refuses those beyond a limit. Owner: the Server; any goroutine may call it.
type door struct {
	mu    sync.Mutex
	total int
	perIP map[string]int
}

// enter admits one connection from ip, or says which limit is reached. What was admitted must leave once.
func (d *door) enter(ip string, total, perIP int) (refusal, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total >= total {
		return refusedTotal, false
	}
	if d.perIP[ip] >= perIP {
		return refusedPerIP, false
	}
	if d.perIP == nil {
		d.perIP = map[string]int{}
	}
	d.total++
	d.perIP[ip]++
	return "", true
}

func (d *door) leave(ip string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	if d.perIP[ip]--; d.perIP[ip] <= 0 {
		delete(d.perIP, ip)
	}
}

// hostOf is the address of a peer without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// budget bounds the bytes of requests held at a time; a full one pauses reading, which is the back-pressure. A
// request is charged for what has arrived of it and for what decoding it needs, not for what its length claims, so
// who keeps others out has to send the bytes.
//
// Requests that each hold a part and wait for more could wait for one another. So the first piece waits in the order
// of asking, holding nothing; if there is no room for more of a frame that has begun, one frame at a time goes on
// beyond the budget, and the others wait for it or for room. All held is at most the budget and one frame. Owner: the
// Server.
type budget struct {
	all   *buf.Pool
	over  chan struct{} // holds one element while a frame is beyond the budget
	freed chan struct{} // signalled by release
}

// charge is what one request took from the budget.
type charge struct {
	n    int64
	over bool
}

func newBudget(bytes int64) budget {
	return budget{all: buf.New(bytes), over: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// begin charges the first n bytes of a request. The error is the cause of ctx.
func (b budget) begin(ctx context.Context, n int) (charge, error) {
	got, err := b.all.Acquire(ctx, int64(n))
	return charge{n: got}, err
}

// grow charges n more bytes to a request that has begun.
func (b budget) grow(ctx context.Context, c *charge, n int) error {
	for !c.over {
		if got, ok := b.all.TryAcquire(int64(n)); ok {
			c.n += got
			b.signal() // there may be room for the next one
			return nil
		}
		select {
		case b.over <- struct{}{}:
			c.over = true
		case <-b.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// release gives a charge back and empties it.
func (b budget) release(c *charge) {
	if c.over {
		<-b.over
	}
	if c.n > 0 {
		b.all.Release(c.n)
		b.signal()
	}
	*c = charge{}
}

func (b budget) signal() {
	select {
	case b.freed <- struct{}{}:
	default:
	}
}
