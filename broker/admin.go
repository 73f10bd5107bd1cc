package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// adminServer answers operators over HTTP: /metrics in Prometheus' text form, /healthz (the process runs), /readyz
// (clients are served) and the profiles of net/http/pprof. It knows no client data and asks for no login, so its
// address should not be reachable by clients. Owner: the Server; its goroutine ends with close.
type adminServer struct {
	ln    net.Listener
	srv   *http.Server
	wg    sync.WaitGroup
	phase atomic.Int32
}

// The phases of a node as /readyz tells them.
const (
	phaseStarting int32 = iota
	phaseReady
	phaseStopping
)

// startAdmin opens the admin port of the configuration, if it names one. It is called before recovery, so that an
// operator can watch it; s.metrics must be set.
func (s *Server) startAdmin() error {
	if s.cfg.Admin == "" {
		return nil
	}
	a, err := openAdmin(s.cfg.Admin, s.metrics)
	s.admin = a
	return err
}

// adminReady and adminStopping tell /readyz that clients are served, and that they are served no more.
func (s *Server) adminReady() {
	if s.admin != nil {
		s.admin.phase.CompareAndSwap(phaseStarting, phaseReady)
	}
}

func (s *Server) adminStopping() {
	if s.admin != nil {
		s.admin.phase.Store(phaseStopping)
	}
}

// stopAdmin closes the admin port, if there is one; answers under way may finish until ctx ends.
func (s *Server) stopAdmin(ctx context.Context) error {
	if s.admin == nil {
		return nil
	}
	return s.admin.close(ctx)
}

// adminAddr is where the admin port listens, nil without one.
func (s *Server) adminAddr() net.Addr {
	if s.admin == nil {
		return nil
	}
	return s.admin.ln.Addr()
}

// openAdmin listens on addr and answers from then on; /readyz says no until the node is ready.
func openAdmin(addr string, m *metrics) (*adminServer, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("broker: admin port: %w", err)
	}
	a := &adminServer{ln: ln}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{Registry: m.reg}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	a.srv = &http.Server{Handler: mux, ReadHeaderTimeout: adminHeaderTimeout, IdleTimeout: adminIdleTimeout}
	a.wg.Go(func() {
		// Serve returns at close; a listener that fails before leaves the node serving without its admin port.
		_ = a.srv.Serve(ln)
	})
	return a, nil
}

func (a *adminServer) readyz(w http.ResponseWriter, _ *http.Request) {
	switch a.phase.Load() {
	case phaseReady:
		say(w, http.StatusOK, "ready")
	case phaseStopping:
		say(w, http.StatusServiceUnavailable, "stopping")
	default:
		say(w, http.StatusServiceUnavailable, "starting")
	}
}

// say writes a one-line answer. A reader that went away is nobody's fault.
func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text)
}

// close stops listening, lets answers under way finish until ctx ends, then cuts them off. It returns when no goroutine
// of the admin port is left.
func (a *adminServer) close(ctx context.Context) error {
	a.phase.Store(phaseStopping)
	err := a.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, a.srv.Close())
	}
	a.wg.Wait()
	return err
}
