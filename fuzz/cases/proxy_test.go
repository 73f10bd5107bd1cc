package cases

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between clients and a broker that may come and go. It passes requests on as whole frames and shows each
// one first; a connection can be dropped when the broker has a request whose answer nobody will see.
type proxy struct {
	ln     net.Listener
	target atomic.Pointer[string]
	seen   func(frame []byte) (drop bool) // any goroutine; the frame without its length
	ends   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func newProxy(t *testing.T, seen func(frame []byte) bool) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, seen: seen, conns: map[net.Conn]struct{}{}}
	p.ends.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// dialer connects to the proxy, whatever address is asked for.
func (p *proxy) dialer() func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, p.address())
	}
}

func (p *proxy) address() string { return p.ln.Addr().String() }

// follow sends connections from now on to an address.
func (p *proxy) follow(addr string) { p.target.Store(&addr) }

func (p *proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.ends.Wait()
}

// keep notes a connection so that close can end it; false: too late.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.ends.Go(func() { p.serve(c) })
	}
}

// lostAnswerWait is how long the broker has for a request whose client is gone already.
const lostAnswerWait = 200 * time.Millisecond

func (p *proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	// A reset, as from a machine that is gone: franz-go takes an end of file in answer to its first request for a broker
	// that wants TLS, and gives up.
	_ = client.(*net.TCPConn).SetLinger(0)
	addr := p.target.Load()
	if addr == nil {
		return
	}
	broker, err := net.DialTimeout("tcp", *addr, 5*time.Second)
	if err != nil || !p.keep(broker) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, broker) // whoever ends it, the other side notices
		client.Close()
		_, _ = io.Copy(io.Discard, broker) // else the broker would be reset before it has read all
	})
	if p.forward(client, broker) {
		client.Close()
		time.Sleep(lostAnswerWait)
	}
	p.drop(broker)
	back.Wait()
}

// forward passes frames on until one side ends or one is to be the last.
func (p *proxy) forward(client, broker net.Conn) (dropped bool) {
	r := bufio.NewReader(client)
	for {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return false
		}
		frame := make([]byte, binary.BigEndian.Uint32(h[:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			return false
		}
		drop := p.seen(frame)
		if _, err := broker.Write(append(h[:], frame...)); err != nil || drop {
			return drop
		}
	}
}
