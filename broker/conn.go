package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sekali/internal/check"
	"sekali/internal/clock"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	errIdle  = errors.New("broker: connection idle")
	errStall = errors.New("broker: peer too slow")
	errPanic = errors.New("broker: request handling failed")
	errStop  = errors.New("broker: stopping")
)

// pending is a request that was read and decoded and waits for its turn. Its frame is nil unless records alias it.
type pending struct {
	slot   *slot
	msg    kmsg.Request
	frame  []byte
	charge charge
}

// conn is one connection. Two goroutines own it: the reader reads, decodes and reserves slots; the writer sends what
// others completed and ends the connection. Requests are executed by whichever of the two holds the execution turn,
// one at a time and in order; only a Produce runs ahead of a Produce that still waits for its flush.
type conn struct {
	s          *Server
	nc         net.Conn // the bare *net.TCPConn, behind a wrapper one writev becomes many writes; or a *tls.Conn
	raw        net.Conn // the *net.TCPConn below it
	lis        *listener
	remote, ip string
	br         *bufio.Reader
	ctx        context.Context // ends when nothing more is to be read
	cancel     context.CancelCauseFunc

	slots    *slots
	wake     chan struct{} // to the writer
	readDone atomic.Bool
	closed   atomic.Bool
	draining atomic.Bool

	mu      sync.Mutex
	queue   queue
	queued  int64 // bytes charged for the queue
	running bool  // the execution turn is taken
	parked  *fetch
	waits   []*produce // Produce requests that wait for a flush, oldest first
	timer   clock.Timer
	alarm   time.Duration // when timer fires; 0: not armed

	waiting   atomic.Int32 // requests begun and not complete
	unflushed atomic.Int32 // batches answered (acks 0 and 1) and not yet durable
	clientID  string       // of the last request, reader only
	alone     bool         // the last request is to be answered before another one is read; reader only

	ident atomic.Pointer[identity] // nil before login
	login login

	// For the sweeper, monotonic; 0: none.
	active, frameEnds, writeEnds atomic.Int64
}

func newConn(s *Server, lis *listener, nc net.Conn, ip string) *conn {
	c := &conn{s: s, nc: nc, raw: nc, lis: lis, remote: nc.RemoteAddr().String(), ip: ip, wake: make(chan struct{}, 1)}
	if lis.security.tls != nil {
		c.nc = tls.Server(nc, lis.security.tls.outer)
	}
	c.br = bufio.NewReaderSize(c.nc, readBuffer)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.slots = newSlots(s.cfg.PipelineMax, c.send, c.close)
	c.active.Store(int64(s.clk.Mono()))
	return c
}

// signal wakes the writer; it never blocks, so a syncer may call it.
func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close ends the connection at once. Any goroutine may call it, any number of times.
func (c *conn) close(cause error) {
	if c.closed.Swap(true) {
		return
	}
	c.cancel(cause)
	// The bare connection: to close one with TLS may wait for the peer.
	if err := c.raw.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.s.log.Debug("close", "remote", c.remote, "err", err)
	}
	c.signal()
}

// drain lets the connection answer what it has read and then close; a parked Fetch is answered with what is there.
func (c *conn) drain() {
	c.draining.Store(true)
	c.cancel(errStop)
	// A deadline in the past ends a read that waits. The call fails only on a connection that is closed already.
	_ = c.nc.SetReadDeadline(past)
	c.signal()
}

var past = time.Unix(1, 0)

// advertised is the address clients of this connection are told: the listener's, or the one they came in on.
func (c *conn) advertised() (host string, port int32) {
	if c.lis.host != "" {
		return c.lis.host, c.lis.port
	}
	if a, ok := c.nc.LocalAddr().(*net.TCPAddr); ok {
		return a.IP.String(), int32(a.Port)
	}
	return "", -1
}

// read is the reader goroutine.
func (c *conn) read() {
	defer func() {
		c.readDone.Store(true)
		c.signal()
	}()
	defer c.catch()
	err := c.handshake()
	if err == nil {
		err = c.identify()
	}
	for {
		if err == nil {
			err = c.next()
		}
		if err == nil {
			c.run()
			continue
		}
		if c.draining.Load() && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errStop)) {
			return
		}
		c.complain(err)
		c.close(err)
		return
	}
}

// next reads one request and puts it into the queue. The head is waited for first, room after it: that a peer has
// gone away shows while a Fetch is parked.
func (c *conn) next() error {
	if c.ident.Load() == nil {
		// What comes next, a token without a header or a request of any size, is known when the login's last request is
		// answered.
		if err := c.waitRoom(); err != nil {
			return err
		}
		if c.login.bare {
			return c.token()
		}
	}
	h, err := wire.ReadHead(c.br, c.s.cfg.Limits, c.ident.Load() != nil)
	if err != nil {
		return err
	}
	if err := c.waitRoom(); err != nil {
		return err
	}
	if err := c.allowed(h.Key); err != nil {
		return err
	}
	first, err := c.begin(h)
	if err != nil {
		return err
	}
	p := pending{}
	if p.charge, err = c.s.budget.begin(c.ctx, first); err != nil {
		return err
	}
	if err = c.body(&p, h, first); err == nil {
		now := c.s.clk.Mono()
		c.active.Store(int64(now))
		err = c.accept(&p, now)
	}
	if err != nil {
		c.drop(&p)
	}
	return err
}

// begin waits for the first bytes of a frame, for which nothing is charged, and returns with how many to begin.
func (c *conn) begin(h wire.Head) (first int, err error) {
	c.frameEnds.Store(int64(c.s.clk.Mono() + frameGrace))
	_, err = c.br.Peek(min(h.Size, wire.FirstBytes))
	c.frameEnds.Store(0)
	return h.First(c.br.Buffered()), err
}

// body reads the frame that h announces and charges what decoding it needs. Each piece has its own time to arrive, so
// that a claim holds no more for no longer than the bytes behind it; the clock stands still while the budget is waited
// for. The one frame that goes on beyond the budget has a short time for all that is left of it.
func (c *conn) body(p *pending, h wire.Head, first int) (err error) {
	overEnds := time.Duration(0)
	arm := func(n int) {
		now := c.s.clk.Mono()
		ends := now + frameGrace + time.Duration(n/rateMin)*time.Second
		if p.charge.over {
			if overEnds == 0 {
				overEnds = now + overGrace + time.Duration(h.Size/overRate)*time.Second
			}
			ends = min(ends, overEnds)
		}
		c.frameEnds.Store(int64(ends))
	}
	more := func(n int) error {
		c.frameEnds.Store(0)
		if err := c.s.budget.grow(c.ctx, &p.charge, n); err != nil {
			return err
		}
		arm(n)
		return nil
	}
	arm(first)
	p.frame, err = wire.ReadBody(c.br, h, first, c.s.pool, more)
	if err == nil {
		if n := wire.Charge(h.Key, h.Size); n > 0 {
			err = more(n)
		}
	}
	c.frameEnds.Store(0)
	return err
}

// accept decodes a frame, reserves its slot and queues it.
func (c *conn) accept(p *pending, now time.Duration) error {
	h, body, err := wire.ParseHeader(p.frame, c.clientID)
	switch {
	case errors.Is(err, wire.ErrVersion) && h.Key == wire.KeyApiVersions:
		// The answer, in the layout of version 0, tells which versions there are (KIP-511).
		p.msg = &kmsg.ApiVersionsRequest{}
	case err != nil:
		return err
	default:
		c.clientID = h.ClientID
		if p.msg, err = wire.Decode(h, body); err != nil {
			return err
		}
	}
	if h.Key != wire.KeyProduce {
		c.s.pool.Put(p.frame)
		p.frame = nil
	}
	c.s.metrics.request(h.Key)
	c.alone = answersAlone(p.msg)
	p.slot = c.slots.reserve(h, now)
	c.mu.Lock()
	c.queue.add(p)
	c.queued += p.charge.n
	c.mu.Unlock()
	return nil
}

// answersAlone reports whether an answer may be much larger than what asks for it: any but that to a Produce of a usual
// size. Nothing is read behind such a request until its answer has left, so that a connection whose peer takes nothing
// holds one of them, and what would have to wait behind a parked Fetch holds nothing of the budget. It costs no time:
// such requests are executed one after the other.
func answersAlone(r kmsg.Request) bool {
	p, ok := r.(*kmsg.ProduceRequest)
	if !ok {
		return true
	}
	n := 0
	for i := range p.Topics {
		n += len(p.Topics[i].Partitions)
	}
	return n > pipelinedPartsMax
}

// drop gives back what a request holds.
func (c *conn) drop(p *pending) {
	if p.frame != nil {
		c.s.pool.Put(p.frame)
		p.frame = nil
	}
	c.s.budget.release(&p.charge)
}

// waitRoom waits until one more request may be read: a slot is free, what waits for its turn is not too much, and the
// last one is answered if it is of those that are to be alone.
func (c *conn) waitRoom() error {
	for {
		c.mu.Lock()
		queued := c.queued
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		c.alone = c.alone && !c.slots.idle()
		if !c.alone && !c.slots.full() && queued < readAheadMax {
			return nil
		}
		select {
		case <-c.slots.room:
		case <-c.ctx.Done():
		}
	}
}

// complain counts and logs why a connection is closed, if the peer is to blame.
func (c *conn) complain(err error) {
	var reason badReason
	switch {
	case errors.Is(err, wire.ErrFrameSize), errors.Is(err, wire.ErrTooLarge):
		reason = badFrame
	case errors.Is(err, wire.ErrHeader):
		reason = badHeader
	case errors.Is(err, wire.ErrVersion):
		reason = badVersion
	case errors.Is(err, wire.ErrBody):
		reason = badBody
	case errors.Is(err, errLoginFirst), errors.Is(err, errExpired):
		reason = badLogin
	case errors.Is(err, io.EOF), c.closed.Load():
		return
	default:
		c.s.log.Debug("connection ended", "remote", c.remote, "err", err)
		return
	}
	c.s.metrics.badRequest(reason)
	c.s.complaints.warn("bad request, connection closed", "remote", c.remote, "listener", c.lis.cfg.Name,
		"client", clip(c.clientID), "err", err)
}

// write is the writer goroutine; it ends the connection.
func (c *conn) write() {
	defer c.s.forget(c)
	for range c.wake {
		c.work()
		if c.readDone.Load() && (c.closed.Load() || c.quiet()) {
			break
		}
	}
	c.farewell()
	c.close(errStop)
	c.abandon()
}

// work sends what is ready and executes what may run.
func (c *conn) work() {
	defer c.catch()
	c.slots.flush()
	c.run()
	c.slots.flush()
}

// quiet reports that nothing is left to do for what was read.
func (c *conn) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.len() == 0 && !c.running && c.slots.idle()
}

// abandon gives back what a closed connection still holds. The reader has ended, so nobody executes. Produce requests
// that wait for their flush complete into slots nobody looks at.
func (c *conn) abandon() {
	c.mu.Lock()
	left, parked := c.queue.rest(), c.parked
	c.queue, c.queued, c.parked, c.waits = queue{}, 0, nil, nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	for i := range left {
		c.drop(&left[i])
	}
	if parked != nil {
		parked.abandon()
	}
	c.slots.broken.Store(true)
	c.slots.flush()
}

// send writes frames under the write turn.
func (c *conn) send(fs []*wire.Frame) error {
	size := 0
	for _, f := range fs {
		size += f.Size()
	}
	now := c.s.clk.Mono()
	c.writeEnds.Store(int64(now + c.s.cfg.WriteTimeout + time.Duration(size/rateMin)*time.Second))
	var err error
	if c.nc == c.raw {
		_, err = wire.Send(c.raw, fs)
	} else {
		err = wire.SendCopy(c.nc, fs)
	}
	c.writeEnds.Store(0)
	c.active.Store(int64(c.s.clk.Mono()))
	return err
}

// sweep closes the connection if it is idle, or if its peer is too slow to send a frame or to take an answer.
func (c *conn) sweep(now time.Duration) {
	late := func(at *atomic.Int64) bool {
		t := at.Load()
		return t != 0 && int64(now) > t
	}
	switch {
	case late(&c.writeEnds), late(&c.frameEnds):
		c.s.complaints.warn("peer too slow, connection closed", "remote", c.remote, "listener", c.lis.cfg.Name)
		c.close(errStall)
	case now-time.Duration(c.active.Load()) > c.s.cfg.IdleMax && c.slots.idle() && c.frameEnds.Load() == 0:
		c.close(errIdle)
	}
}

// catch turns a panic into the end of this connection. A broken invariant is not caught: the process stops and
// recovery decides what is true.
func (c *conn) catch() {
	v := recover()
	if v == nil {
		return
	}
	c.s.metrics.panicked()
	c.s.log.Error("panic while handling a request", "remote", c.remote, "panic", v, "stack", string(debug.Stack()))
	if broken, ok := v.(*check.Violation); ok {
		check.Fail("%s", broken.Text)
	}
	c.close(errPanic)
}
