package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"sekali/auth"
)

// Security is what a configuration says about who may come in and what they may do, by Kafka's names; secured makes of
// it what a listener does. Durations are what Kafka tells in milliseconds.
type Security struct {
	Protocols  map[string]string            // listener.security.protocol.map: listener name to protocol
	Set        map[string]string            // settings that a listener may have of its own
	ByListener map[string]map[string]string // listener.name.<name>.: those it has, by its name in small letters
	Authorizer string                       // authorizer.class.name; empty: everybody may do everything
	Supers     string                       // super.users
	Open       bool                         // allow.everyone.if.no.acl.found
	FailDelay  time.Duration                // connection.failed.authentication.delay.ms
}

// The protocols of listeners.
const (
	protocolPlain    = "PLAINTEXT"
	protocolTLS      = "SSL"
	protocolSASL     = "SASL_PLAINTEXT"
	protocolSASLTLS  = "SASL_SSL"
	controllerListen = "CONTROLLER"
)

var protocols = []string{protocolPlain, protocolTLS, protocolSASL, protocolSASLTLS}

// authorizers are the names under which the one there is may be asked for: Kafka's own and a short one.
var authorizers = []string{"acl", "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}

// listenerSecurity is what one listener asks of a connection. Immutable.
type listenerSecurity struct {
	tls        *tlsSource // nil: none
	mechanisms []string   // of SASL; empty: no login
	names      auth.NameRules
	renew      time.Duration // how long a login holds; 0: for ever
}

// protocol is that of a listener; one without an entry in the map has that of its name.
func (c *Security) protocol(listener string) (string, error) {
	p, ok := c.Protocols[listener]
	if !ok {
		p = listener
	}
	if !slices.Contains(protocols, p) {
		return "", fmt.Errorf("broker: listener %s: no security protocol; set listener.security.protocol.map=%s:%s",
			listener, listener, strings.Join(protocols, "|"))
	}
	return p, nil
}

// of is the value of a setting for one listener.
func (c *Security) of(listener, name string) string {
	if v, ok := c.ByListener[strings.ToLower(listener)][name]; ok {
		return v
	}
	if v, ok := c.Set[name]; ok {
		return v
	}
	return listenerSettings[name].value
}

// secured makes what a listener asks for; an error names the setting.
func (s *Server) secured(name string) (sec listenerSecurity, err error) {
	c := &s.cfg.Security
	protocol, err := c.protocol(name)
	if err != nil {
		return sec, err
	}
	get := func(setting string) string { return c.of(name, setting) }
	if protocol == protocolSASL || protocol == protocolSASLTLS {
		sec.mechanisms = splitList(get("sasl.enabled.mechanisms"))
		if len(sec.mechanisms) == 0 {
			return sec, fmt.Errorf("broker: listener %s: sasl.enabled.mechanisms is empty", name)
		}
		ms, err := parseBetween(get("connections.max.reauth.ms"), 0, maxMillis)
		if err != nil {
			return sec, fmt.Errorf("broker: listener %s: connections.max.reauth.ms: %w", name, err)
		}
		sec.renew = time.Duration(ms) * time.Millisecond
	}
	if protocol != protocolTLS && protocol != protocolSASLTLS {
		return sec, nil
	}
	if sec.names, err = auth.ParseNameRules(get("ssl.principal.mapping.rules")); err != nil {
		return sec, fmt.Errorf("broker: listener %s: %w", name, err)
	}
	files := tlsFiles{keyStore: get("ssl.keystore.location"), trustStore: get("ssl.truststore.location"),
		clients: clientAuth[get("ssl.client.auth")], least: tls.VersionTLS13}
	if strings.Contains(get("ssl.enabled.protocols"), "TLSv1.2") {
		files.least = tls.VersionTLS12
	}
	switch {
	case files.keyStore == "":
		return sec, fmt.Errorf("broker: listener %s: %s needs ssl.keystore.location, a PEM file with key and certificates",
			name, protocol)
	case files.clients != tls.NoClientCert && files.trustStore == "":
		return sec, fmt.Errorf("broker: listener %s: ssl.client.auth=%s needs ssl.truststore.location, a PEM file with "+
			"the certificates of those who sign clients' certificates", name, get("ssl.client.auth"))
	}
	sec.tls, err = newTLSSource(files, s.cfg.Store.FS, s.clk, s.log)
	return sec, err
}

// secureAll is secured for every listener, in their order. A setting of a listener that does not exist would protect
// nothing, and is refused.
func (s *Server) secureAll() error {
	known := map[string]bool{}
	for _, l := range s.cfg.Listeners {
		sec, err := s.secured(listenerName(l.Name))
		if err != nil {
			return err
		}
		known[strings.ToLower(listenerName(l.Name))] = true
		s.securities = append(s.securities, sec)
	}
	for name, set := range s.cfg.Security.ByListener {
		for setting := range set {
			if !known[name] {
				return fmt.Errorf("broker: %s%s.%s: no listener is named %s", listenerPrefix, name, setting, name)
			}
		}
	}
	return nil
}

// clientAuth is what ssl.client.auth can be.
var clientAuth = map[string]tls.ClientAuthType{
	"none": tls.NoClientCert, "requested": tls.VerifyClientCertIfGiven, "required": tls.RequireAndVerifyClientCert,
}

// openAuth reads users and rules; an authorizer there is only if one is asked for.
func (s *Server) openAuth(ctx context.Context) (err error) {
	if s.auth, err = auth.Open(ctx, s.meta); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	c := &s.cfg.Security
	if c.Authorizer == "" {
		return nil
	}
	supers, err := auth.ParseSupers(c.Supers)
	if err != nil {
		return fmt.Errorf("broker: super.users: %w", err)
	}
	s.authorizer = &auth.Authorizer{Store: s.auth, Supers: supers, Open: c.Open}
	return nil
}
