package broker

import (
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"sekali/auth"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// identity is who a connection belongs to. Immutable.
type identity struct {
	auth.Principal
	mechanism string        // "" without SASL
	expires   time.Duration // monotonic; 0: never (KIP-368)
}

// login is the state of SASL on a connection that asks for it (spec/api.md 3). It belongs to the execution turn, but
// for tokens without a header, which the reader hands over while nothing else can run.
type login struct {
	mechanism string
	exchange  auth.Login // nil: no handshake yet
	bare      bool       // tokens come without a header (SaslHandshake 0)
}

var (
	errLoginFirst = errors.New("broker: request before login")
	errExpired    = errors.New("broker: login has expired")
	errNobody     = errors.New("broker: no principal for the client certificate")
)

// who is the principal of the connection; only called once it has one.
func (c *conn) who() auth.Principal { return c.ident.Load().Principal }

// identify gives the connection its identity where no SASL is asked for: the name in the client certificate, or
// nobody's.
func (c *conn) identify() error {
	if len(c.lis.security.mechanisms) > 0 {
		return nil
	}
	id := &identity{Principal: auth.Principal{Name: auth.Anonymous, Host: c.ip}}
	if t, ok := c.nc.(*tls.Conn); ok {
		if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
			name, ok := c.lis.security.names.Principal(certs[0].RawSubject)
			if !ok {
				c.s.complaints.warn("client certificate without a principal, connection closed", "remote", c.remote,
					"subject", clip(certs[0].Subject.String()))
				return errNobody
			}
			id.Name = name
		}
	}
	c.ident.Store(id)
	return nil
}

// allowed holds a request against the state of the login: before it nothing but what leads to it, after its end
// nothing but what renews it.
func (c *conn) allowed(key int16) error {
	switch key {
	case wire.KeyApiVersions, wire.KeySASLHandshake, wire.KeySASLAuthenticate:
		return nil
	}
	switch id := c.ident.Load(); {
	case id == nil:
		return errLoginFirst
	case id.expires != 0 && c.s.clk.Mono() > id.expires:
		return errExpired
	}
	return nil
}

// handleSASLHandshake begins a login, or the renewal of one.
func (s *Server) handleSASLHandshake(r *request) kmsg.Response {
	req := r.msg.(*kmsg.SASLHandshakeRequest)
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	c, sec := r.conn, &r.conn.lis.security
	resp.SupportedMechanisms = sec.mechanisms
	id := c.ident.Load()
	switch {
	case len(sec.mechanisms) == 0, id != nil && (id.expires == 0 || req.Version == 0): // renewed by version 1
		resp.ErrorCode = kerr.IllegalSaslState.Code // somebody who is in stays in
		return resp
	case c.login.exchange != nil:
		resp.ErrorCode = kerr.IllegalSaslState.Code
		return r.lastAnswer(resp, 0)
	case !slices.Contains(sec.mechanisms, req.Mechanism), id != nil && id.mechanism != req.Mechanism:
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return r.lastAnswer(resp, 0)
	}
	c.login = login{mechanism: req.Mechanism, exchange: s.auth.NewLogin(req.Mechanism), bare: req.Version == 0}
	return resp
}

// handleSASLAuthenticate takes the client's next token.
func (s *Server) handleSASLAuthenticate(r *request) kmsg.Response {
	req := r.msg.(*kmsg.SASLAuthenticateRequest)
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	resp.SASLAuthBytes = []byte{}
	c := r.conn
	if c.login.exchange == nil || c.login.bare {
		resp.ErrorCode, resp.ErrorMessage = kerr.IllegalSaslState.Code,
			text("SaslAuthenticate without a SaslHandshake.")
		if c.ident.Load() != nil {
			return resp
		}
		return r.lastAnswer(resp, 0)
	}
	out, lifetime, err := c.step(req.SASLAuthBytes)
	if err != nil {
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = text("Authentication failed: invalid credentials.")
		return r.lastAnswer(resp, s.cfg.Security.FailDelay)
	}
	resp.SASLAuthBytes = orBytes(out)
	if req.Version >= 1 {
		resp.SessionLifetimeMillis = lifetime.Milliseconds()
	}
	return resp
}

// step goes on with the exchange. After the last token the connection has its identity; lifetime is how long, 0 for
// ever. A renewal has to be by the same user.
func (c *conn) step(in []byte) (out []byte, lifetime time.Duration, err error) {
	out, done, err := c.login.exchange.Step(in)
	was := c.ident.Load()
	if err == nil && done && was != nil && was.Name != c.login.exchange.Principal() {
		err = auth.ErrLogin
	}
	if err != nil {
		c.s.metrics.authFailed(c.login.mechanism)
		c.s.complaints.warn("login failed, connection closed", "remote", c.remote, "listener", c.lis.cfg.Name,
			"mechanism", c.login.mechanism)
		return nil, 0, err
	}
	if !done {
		return out, 0, nil
	}
	id := &identity{Principal: auth.Principal{Name: c.login.exchange.Principal(), Host: c.ip},
		mechanism: c.login.mechanism}
	if lifetime = c.lis.security.renew; lifetime > 0 {
		id.expires = c.s.clk.Mono() + lifetime
	}
	c.login = login{}
	c.ident.Store(id)
	c.s.log.Debug("logged in", "remote", c.remote, "principal", clip(id.Name), "mechanism", id.mechanism)
	return out, lifetime, nil
}

// lastAnswer closes the connection behind the answer, which leaves after a while: who guesses has to wait.
func (r *request) lastAnswer(resp kmsg.Response, after time.Duration) kmsg.Response {
	r.deferred = true
	c, s := r.conn, r.slot
	answer := func() {
		s.msg, s.hangup = resp, true
		c.complete(s)
		c.signal()
	}
	if after <= 0 {
		answer()
	} else {
		c.s.clk.AfterFunc(after, answer)
	}
	return nil
}

// token reads one token without a header and answers it in the same form (SaslHandshake 0). Reader only, while no
// request is open.
func (c *conn) token() error {
	c.frameEnds.Store(int64(c.s.clk.Mono() + frameGrace))
	defer c.frameEnds.Store(0)
	in, err := wire.ReadToken(c.br, c.s.cfg.Limits.BeforeLogin)
	if err != nil {
		return err
	}
	out, _, err := c.step(in)
	if err != nil {
		if !c.s.sleep(c.s.cfg.Security.FailDelay) {
			return errStop
		}
		return err
	}
	sl := c.slots.reserve(wire.Header{}, c.s.clk.Mono())
	c.waiting.Add(1)
	sl.frame = wire.Token(out)
	c.complete(sl)
	c.slots.flush()
	return nil
}
