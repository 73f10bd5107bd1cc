// Package broker is one node: it assembles the engine and serves Kafka's protocol over it. Requests of one connection
// are executed in order and answered in order (I13); limits of bytes, connections and time hold before anything is
// believed; storage and decode errors become codes in one place (errmap.go).
package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"sekali/auth"
	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/meta"
	"sekali/plog"
	"sekali/store"
	"sekali/wire"
)

// Listener is one address to serve. An empty Advertise means the address the connection came in on; a wildcard is
// never advertised.
type Listener struct {
	Name, Addr, Advertise string
	Ln                    net.Listener // already open; Addr is then not listened on
}

// Config is everything a server needs; Open fills zero values with the defaults of limits.go. Bytes, milliseconds and
// durations as the names say.
type Config struct {
	Listeners             []Listener
	Admin                 string // metrics, health, pprof; empty: none
	Limits                wire.Limits
	InFlightBytesMax      int64
	ConnsMax, PipelineMax int
	ConnsMaxPerIP         int
	IdleMax, WriteTimeout time.Duration
	FetchWaitMaxMs        int32
	FetchBytesMax         int32
	Security              Security
	AutoCreate            bool
	KeepTopics            bool  // delete.topic.enable=false
	NumPartitions         int32 // of topics made on first use or with -1
	NodeID                int32 // 0: as the data directory says
	PIDBlock              int64 // producer ids reserved at a time
	Txns                  coord.Config
	Groups                group.Config
	TxnPartitions         int32 // of __transaction_state, when it is made
	TxnSegmentBytes       int64
	OffsetsPartitions     int32 // of __consumer_offsets, when it is made
	OffsetsSegmentBytes   int64
	VerifyOff             bool         // transaction.partition.verification.enable=false
	WatermarksMax         int          // partitions whose watermarks are shown as metrics
	Store                 store.Config // Epoch, Meta, Shared, Events are filled in by Open
	Clock                 clock.Clock
	Log                   *slog.Logger
	LogLevel              *slog.LevelVar
}

// listener is a Listener that is open.
type listener struct {
	cfg  Listener
	ln   net.Listener
	host string // advertised; empty: where the connection came in
	port int32

	security listenerSecurity
}

// Server is one running node. The fields of the first group are set by Open and constant from then on; what changes
// while it runs is behind the types it names. Owner: the caller of Open, who calls Serve once and Shutdown once.
type Server struct {
	cfg    Config
	store  *store.Store
	meta   meta.MetadataStore
	engine *engine.Engine

	closeEngine func() // once; who comes second waits for the first
	clusterID   string
	nodeID      int32
	epoch       int32 // of this start, told by Metadata for every partition
	metrics     *metrics
	openAges    *openAges
	settings    *settings
	admin       *adminServer
	log         *slog.Logger
	clk         clock.Clock
	pool        *buf.Pool
	budget      budget
	auth        *auth.Store
	authorizer  *auth.Authorizer // nil: everybody may do everything
	sessions    *sessions
	parkings    parkings
	handlers    map[int16]handler
	shared      *plog.Shared
	lock        io.Closer
	metaClose   io.Closer
	securities  []listenerSecurity // of the listeners, in their order
	listeners   []*listener

	reopened   reopened
	door       door
	complaints complaints
	goroutines sync.WaitGroup // acceptors and connections
	ticker     sync.WaitGroup // housekeeping

	mu       sync.Mutex
	conns    map[*conn]struct{}
	stopping bool
	stopped  chan struct{} // closed when stopping begins
	quiet    chan struct{} // closed when no connection is left
	sweeper  clock.Timer
}

// Addrs are the addresses served, in the order of Config.Listeners.
func (s *Server) Addrs() []net.Addr {
	out := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		out[i] = l.ln.Addr()
	}
	return out
}

// Epoch is the leader epoch of this start.
func (s *Server) Epoch() int32 { return s.epoch }

// AdminAddr is where the admin port listens, nil without one.
func (s *Server) AdminAddr() net.Addr { return s.adminAddr() }

// Recovery tells what opening the store found. It may be called at any time.
func (s *Server) Recovery() store.Recovery { return s.store.Recovery() }

// Serve accepts connections until Shutdown is called; then it returns nil when the last connection has ended. It is
// called once. A listener that cannot accept for a while (no descriptors left) is told in the log and tried again.
func (s *Server) Serve() error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return nil
	}
	s.sweeper = s.clk.AfterFunc(sweepEvery, s.sweep)
	for _, l := range s.listeners {
		s.goroutines.Go(func() { s.acceptAll(l) })
	}
	s.mu.Unlock()
	s.adminReady()
	s.goroutines.Wait()
	return nil
}

// acceptAll takes connections from one listener until it is closed.
func (s *Server) acceptAll(l *listener) {
	pause := acceptPause
	for {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			s.admit(l, nc)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors, or a peer gone before it was accepted: wait and go on.
			s.complaints.warn("accept failed", "listener", l.cfg.Name, "err", err)
			if !s.sleep(pause) {
				return
			}
			pause = min(2*pause, acceptPauseMax)
		}
	}
}

// sleep waits for d; false: the server stops meanwhile.
func (s *Server) sleep(d time.Duration) bool { return s.sleepUnless(d, s.stopped) }

// sleepUnless waits for d; false: over was closed meanwhile.
func (s *Server) sleepUnless(d time.Duration, over <-chan struct{}) bool {
	done := make(chan struct{})
	t := s.clk.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-over:
		return false
	}
}

// admit starts a connection, or refuses it.
func (s *Server) admit(l *listener, nc net.Conn) {
	ip := hostOf(nc.RemoteAddr())
	conf := s.settings.conf()
	why, ok := s.door.enter(ip, conf.ConnsMax, conf.ConnsMaxPerIP)
	if !ok {
		s.metrics.connRefused(why)
		s.complaints.warn("connection refused", "remote", ip, "listener", l.cfg.Name, "limit", string(why))
		s.hangUp(nc)
		return
	}
	c := newConn(s, l, nc, ip)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		s.door.leave(ip)
		s.hangUp(nc)
		return
	}
	s.conns[c] = struct{}{}
	s.metrics.connOpened()
	s.goroutines.Go(c.read)
	s.goroutines.Go(c.write)
	s.mu.Unlock()
}

func (s *Server) hangUp(nc net.Conn) {
	if err := nc.Close(); err != nil {
		s.log.Debug("close", "err", err)
	}
}

// forget is called by the writer of a connection as the last thing.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.door.leave(c.ip)
	s.metrics.connClosed()
}

// open lists the connections there are.
func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// sweep looks over all connections once a second.
func (s *Server) sweep() {
	now := s.clk.Mono()
	for _, c := range s.open() {
		c.sweep(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.sweeper.Reset(sweepEvery)
	}
}

// housekeep gives the store its turn once a second until the server stops.
func (s *Server) housekeep() {
	told := map[store.TopicID]bool{}
	for s.sleep(tickEvery) {
		s.endDeletions(told)
		s.store.Tick()
		s.openAges.look()
	}
}

// tickEngine lets time pass for coordinator and groups until the last connection is gone: an EndTxn that waits for its
// markers is answered by it, also while the server stops.
func (s *Server) tickEngine() {
	for s.sleepUnless(engineTickEvery, s.quiet) {
		s.engine.Tick()
	}
}

// Shutdown stops in order: nothing more is accepted or read, parked fetches are answered with what is there, requests
// that were read are answered, then the store is closed with everything flushed, and the next start is told that it
// was. Connections that are not done after five seconds are cut off. When ctx ends before all this Shutdown returns
// its error, and the closing goes on: the directory stays locked meanwhile and is in no worse state than after a
// crash. It is called once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.adminStopping()
	s.mu.Lock()
	s.stopping = true
	close(s.stopped)
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	s.mu.Unlock()
	var errs []error
	for _, l := range s.listeners {
		if err := l.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("broker: close listener %s: %w", l.cfg.Name, err))
		}
	}
	for _, c := range s.open() {
		c.drain()
	}
	patience := s.clk.AfterFunc(drainMax, s.cutOff)
	done := make(chan error, 1)
	go func() {
		// Who waits for a rebalance would wait longer than a stop may take. Transactions go on: their answers are on the
		// way.
		s.engine.CloseGroups()
		s.goroutines.Wait()
		close(s.quiet)
		patience.Stop()
		s.ticker.Wait()
		done <- s.release(ctx)
	}()
	select {
	case err := <-done:
		return errors.Join(append(errs, err)...)
	case <-ctx.Done():
		s.cutOff()
		return errors.Join(append(errs, fmt.Errorf("broker: stopping: %w", context.Cause(ctx)))...)
	}
}

// cutOff closes every connection that is still open, and the engine, so that no request waits for it any longer.
func (s *Server) cutOff() {
	for _, c := range s.open() {
		c.close(errStop)
	}
	go s.closeEngine()
}

// release closes what Open opened, in the opposite order; a part that was not opened is nil. ctx bounds the admin port
// alone: no lock is given back before the store is closed.
func (s *Server) release(ctx context.Context) error {
	var errs []error
	keep := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("broker: close %s: %w", what, err))
		}
	}
	if s.engine != nil {
		s.closeEngine()
	}
	if s.store != nil {
		keep("store", s.store.Close(context.WithoutCancel(ctx)))
	}
	if s.shared != nil {
		s.shared.Close()
	}
	if s.metaClose != nil {
		keep("metadata", s.metaClose.Close())
	}
	keep("admin port", s.stopAdmin(ctx))
	if s.lock != nil {
		keep("lock", s.lock.Close())
	}
	return errors.Join(errs...)
}

// advertise splits a listener's advertised address. A wildcard is refused: a client cannot connect to it.
func (l *listener) advertise() error {
	if l.cfg.Advertise == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(l.cfg.Advertise)
	if err != nil {
		return fmt.Errorf("broker: listener %s: advertised address: %w", l.cfg.Name, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("broker: listener %s: advertised port: %w", l.cfg.Name, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("broker: listener %s: a wildcard cannot be advertised", l.cfg.Name)
	}
	l.host, l.port = host, int32(n)
	if a, ok := l.ln.Addr().(*net.TCPAddr); ok && n == 0 {
		l.port = int32(a.Port)
	}
	return nil
}
