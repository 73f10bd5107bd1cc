package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"sekali/internal/clock"
	"sekali/internal/vfs"
)

// tlsFiles is what TLS of one listener is made of: PEM files by path, and who has to show a certificate.
type tlsFiles struct {
	keyStore   string // private key and certificate chain
	trustStore string // certificates of those who sign clients' certificates; empty: nobody is trusted
	clients    tls.ClientAuthType
	least      uint16 // version of TLS
}

// tlsSource gives the TLS configuration of a listener and reads the files again once they have changed, so that a new
// certificate needs no restart. What cannot be read leaves the last configuration in force and is told once. Any
// goroutine may call it; owner of what it read: mu.
type tlsSource struct {
	files tlsFiles
	fs    vfs.FS
	clk   clock.Clock
	log   *slog.Logger

	outer *tls.Config // what every connection begins with: it asks for the one below
	now   atomic.Pointer[tls.Config]
	next  atomic.Int64 // Mono from which the files are looked at again

	mu         sync.Mutex
	key, trust []byte // as read last, good or not
}

// newTLSSource reads the files; an error names the file.
func newTLSSource(f tlsFiles, fs vfs.FS, clk clock.Clock, log *slog.Logger) (*tlsSource, error) {
	s := &tlsSource{files: f, fs: fs, clk: clk, log: log}
	if _, err := s.read(); err != nil {
		return nil, err
	}
	// The files are read by the goroutine of the connection that shakes hands, not by the one that accepts.
	s.outer = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config(), nil }}
	return s, nil
}

// config is the configuration for a connection that begins now.
func (s *tlsSource) config() *tls.Config {
	now, next := int64(s.clk.Mono()), s.next.Load()
	if now >= next && s.next.CompareAndSwap(next, now+int64(tlsLookEvery)) {
		if changed, err := s.read(); err != nil {
			if changed {
				s.log.Error("TLS files cannot be used, the last ones stay in force", "err", err)
			}
		} else if changed {
			s.log.Info("TLS files read again", "keystore", s.files.keyStore, "truststore", s.files.trustStore)
		}
	}
	return s.now.Load()
}

// read takes the files over if they are not those read last.
func (s *tlsSource) read() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := vfs.ReadFile(s.fs, s.files.keyStore)
	if err != nil {
		return false, fmt.Errorf("broker: ssl.keystore.location: %w", err)
	}
	var trust []byte
	if s.files.trustStore != "" {
		if trust, err = vfs.ReadFile(s.fs, s.files.trustStore); err != nil {
			return false, fmt.Errorf("broker: ssl.truststore.location: %w", err)
		}
	}
	if s.key != nil && bytes.Equal(key, s.key) && bytes.Equal(trust, s.trust) {
		return false, nil
	}
	s.key, s.trust = key, trust
	conf, err := s.files.parse(key, trust)
	if err != nil {
		return true, err
	}
	s.now.Store(conf)
	return true, nil
}

var errNoCertificates = errors.New("no certificate in PEM form")

func (f *tlsFiles) parse(key, trust []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(key, key)
	if err != nil {
		return nil, fmt.Errorf("broker: ssl.keystore.location %s: %w", f.keyStore, err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: f.least, ClientAuth: f.clients}
	conf.ClientCAs = x509.NewCertPool()
	if f.trustStore != "" && !conf.ClientCAs.AppendCertsFromPEM(trust) {
		return nil, fmt.Errorf("broker: ssl.truststore.location %s: %w", f.trustStore, errNoCertificates)
	}
	return conf, nil
}

// handshake is the first thing the reader of a TLS connection does.
func (c *conn) handshake() error {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	c.frameEnds.Store(int64(c.s.clk.Mono() + handshakeMax))
	err := t.HandshakeContext(c.ctx)
	c.frameEnds.Store(0)
	if err != nil {
		c.s.metrics.authFailed(authTLS)
		c.s.complaints.warn("TLS handshake failed, connection closed", "remote", c.remote, "listener", c.lis.cfg.Name,
			"err", err)
		return fmt.Errorf("broker: TLS handshake: %w", err)
	}
	return nil
}

// farewell tells the peer that the end of the stream is meant.
func (c *conn) farewell() {
	t, ok := c.nc.(*tls.Conn)
	if !ok || c.closed.Load() {
		return
	}
	// Whoever does not take it is closed all the same.
	patience := c.s.clk.AfterFunc(farewellMax, func() { c.close(errStall) })
	_ = t.CloseWrite()
	patience.Stop()
}
