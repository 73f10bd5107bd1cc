package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"sekali/auth"
	"sekali/internal/clock"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// signer makes certificates.
type signer struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	n    int64
}

func newSigner(t *testing.T) *signer {
	s := &signer{t: t}
	s.key, s.cert = s.sign(pkix.Name{CommonName: "signer"}, true)
	return s
}

// sign makes a key and a certificate for it, which signs itself if it is the first.
func (s *signer) sign(name pkix.Name, ca bool) (*ecdsa.PrivateKey, *x509.Certificate) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	s.n++
	form := &x509.Certificate{SerialNumber: big.NewInt(s.n), Subject: name, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: ca, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	parent, by := s.cert, s.key
	if parent == nil {
		parent, by = form, key
	}
	der, err := x509.CreateCertificate(rand.Reader, form, parent, &key.PublicKey, by)
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return key, cert
}

// file is a PEM file with key and certificate.
func (s *signer) file(key *ecdsa.PrivateKey, cert *x509.Certificate) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
}

func (s *signer) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.cert)
	return p
}

// client is the TLS configuration of a client with a certificate of that name, or with none.
func (s *signer) client(name string) *tls.Config {
	c := &tls.Config{RootCAs: s.pool(), ServerName: "127.0.0.1"}
	if name != "" {
		key, cert := s.sign(pkix.Name{CommonName: name, Organization: []string{"Sekali"}}, false)
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	return c
}

// secure is a node with a listener of each protocol, users alice and bob with the password of their name, and rules.
type secure struct {
	*node
	ca *signer
	fs vfs.FS
}

const adminUser = "User:ANONYMOUS" // whoever comes in over the plain listener

func startSecure(t *testing.T, change func(*Config)) *secure {
	t.Helper()
	s := &secure{ca: newSigner(t), fs: vfs.NewMem()}
	putFile(t, s.fs, "/tls/node.pem", s.ca.file(s.ca.sign(pkix.Name{CommonName: "node"}, false)))
	putFile(t, s.fs, "/tls/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.cert.Raw}))
	s.node = start(t, func(c *Config) {
		c.Store.FS = s.fs
		c.Groups.InitialDelayMs = 0
		c.TxnPartitions, c.OffsetsPartitions = 2, 2
		c.Listeners = nil
		for _, name := range []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"} {
			c.Listeners = append(c.Listeners, Listener{Name: name, Addr: "127.0.0.1:0"})
		}
		for name, v := range map[string]string{
			"ssl.keystore.location": "/tls/node.pem", "ssl.truststore.location": "/tls/ca.pem",
			"listener.name.ssl.ssl.client.auth": "requested",
			"sasl.enabled.mechanisms":           "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"ssl.principal.mapping.rules":       "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
			"authorizer.class.name":             "acl", "super.users": adminUser,
			"connection.failed.authentication.delay.ms": "1",
		} {
			if err := c.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			change(c)
		}
	})
	for _, name := range []string{"alice", "bob"} {
		s.user(name, name, auth.SHA256)
		s.user(name, name, auth.SHA512)
	}
	return s
}

func putFile(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	if err := fs.MkdirAll(name[:strings.LastIndexByte(name, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
}

// user sets a password over the wire.
func (s *secure) user(name, password string, m auth.Mechanism) {
	s.t.Helper()
	c, err := auth.NewCredential(m, password, auth.IterationsMin)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.auth.Apply(s.t.Context(), []auth.Change{{User: name, Mechanism: m, Credential: &c}}); err != nil {
		s.t.Fatal(err)
	}
}

// allow adds a rule for a user.
func (s *secure) allow(user string, op auth.Operation, kind auth.ResourceType, name string) {
	s.t.Helper()
	err := s.auth.Add(s.t.Context(), []auth.Binding{{Type: kind, Name: name, Pattern: auth.Literal,
		Principal: auth.UserPrefix + user, Host: auth.Wildcard, Operation: op, Permission: auth.Allow}})
	if err != nil {
		s.t.Fatal(err)
	}
}

// at is the address of a listener.
func (s *secure) at(listener string) string {
	for _, l := range s.listeners {
		if l.cfg.Name == listener {
			return l.ln.Addr().String()
		}
	}
	s.t.Fatalf("no listener %s", listener)
	return ""
}

// raw connects to a listener without TLS.
func (s *secure) raw(listener string) *rawclient.Client {
	s.t.Helper()
	c, err := rawclient.Dial(s.at(listener))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// loggedIn is a raw client on the SASL listener that is in as a user.
func (s *secure) loggedIn(user string) *rawclient.Client {
	s.t.Helper()
	c := s.raw("SASL_PLAINTEXT")
	if code := handshake(s.t, c, 1, auth.Plain); code != 0 {
		s.t.Fatalf("handshake: code %d", code)
	}
	if resp := authenticate(s.t, c, "\x00"+user+"\x00"+user); resp.ErrorCode != 0 {
		s.t.Fatalf("login: code %d", resp.ErrorCode)
	}
	return c
}

func handshake(t *testing.T, c *rawclient.Client, version int16, mechanism string) int16 {
	t.Helper()
	r := kmsg.NewPtrSASLHandshakeRequest()
	r.Version, r.Mechanism = version, mechanism
	return call[*kmsg.SASLHandshakeResponse](t, c, r).ErrorCode
}

func authenticate(t *testing.T, c *rawclient.Client, token string) *kmsg.SASLAuthenticateResponse {
	t.Helper()
	r := kmsg.NewPtrSASLAuthenticateRequest()
	r.Version, r.SASLAuthBytes = 2, []byte(token)
	return call[*kmsg.SASLAuthenticateResponse](t, c, r)
}

// TestStockClientComesIn: franz-go writes and reads by every protocol and mechanism, and is who it says it is.
func TestStockClientComesIn(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("t", 1, nil)
	for _, op := range []auth.Operation{auth.Read, auth.Write} {
		s.allow("alice", op, auth.Topic, "t")
	}
	mechanisms := map[string]sasl.Mechanism{
		auth.Plain:       plain.Auth{User: "alice", Pass: "alice"}.AsMechanism(),
		auth.ScramSHA256: scram.Auth{User: "alice", Pass: "alice"}.AsSha256Mechanism(),
		auth.ScramSHA512: scram.Auth{User: "alice", Pass: "alice"}.AsSha512Mechanism(),
	}
	for _, listener := range []string{"SSL", "SASL_PLAINTEXT", "SASL_SSL"} {
		for name, m := range mechanisms {
			opts := []kgo.Opt{kgo.SeedBrokers(s.at(listener)), kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t")}
			if strings.HasSuffix(listener, "SSL") {
				user := ""
				if listener == "SSL" {
					user = "Alice"
				}
				opts = append(opts, kgo.DialTLSConfig(s.ca.client(user)))
			}
			if strings.HasPrefix(listener, "SASL") {
				opts = append(opts, kgo.SASL(m))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			cl, err := kgo.NewClient(opts...)
			if err != nil {
				t.Fatal(err)
			}
			value := make([]byte, 200_000)
			if err := cl.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
				t.Errorf("%s %s: produce: %v", listener, name, err)
			} else if fs := cl.PollFetches(ctx); fs.Err() != nil || fs.NumRecords() == 0 {
				t.Errorf("%s %s: fetch: %v, %d records", listener, name, fs.Err(), fs.NumRecords())
			}
			cl.Close()
			cancel()
		}
	}
}

// TestCaseI2BeforeLogin: before login nothing is parsed but what leads to it, and nothing large is taken in.
func TestCaseI2BeforeLogin(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("t", 1, nil)
	closed := func(what string, c *rawclient.Client) {
		t.Helper()
		if !c.Closed(10 * time.Second) {
			t.Errorf("%s: the connection is open", what)
		}
	}
	for _, size := range []uint32{100 << 20, 512<<10 + 1} {
		c := s.raw("SASL_PLAINTEXT")
		if err := c.SendRaw([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size), 0, 36, 0,
			0}); err != nil {
			t.Fatal(err)
		}
		closed("a large frame", c)
	}
	c := s.raw("SASL_PLAINTEXT")
	if resp := authenticate(t, c, "\x00alice\x00alice"); resp.ErrorCode != 34 {
		t.Errorf("SaslAuthenticate first: code %d, want 34", resp.ErrorCode)
	}
	closed("SaslAuthenticate first", c)

	c = s.raw("SASL_PLAINTEXT")
	if code := handshake(t, c, 1, "GSSAPI"); code != 33 {
		t.Errorf("unknown mechanism: code %d, want 33", code)
	}
	closed("unknown mechanism", c)

	c = s.raw("SASL_PLAINTEXT")
	if code := handshake(t, c, 1, auth.Plain); code != 0 {
		t.Errorf("handshake: code %d", code)
	}
	if code := handshake(t, c, 1, auth.Plain); code != 34 {
		t.Errorf("second handshake: code %d, want 34", code)
	}
	closed("second handshake", c)

	c = s.raw("SASL_PLAINTEXT")
	handshake(t, c, 1, auth.Plain)
	// Produce follows the failing token at once.
	a := kmsg.NewPtrSASLAuthenticateRequest()
	a.Version, a.SASLAuthBytes = 2, []byte("\x00alice\x00wrong")
	p := rawclient.Produce(9, "t", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	if err := c.Send(a, p); err != nil {
		t.Fatal(err)
	}
	if resp := receive[*kmsg.SASLAuthenticateResponse](t, c, a); resp.ErrorCode != 58 || resp.ErrorMessage == nil ||
		strings.Contains(*resp.ErrorMessage, "alice") {
		t.Errorf("wrong password: %+v", resp)
	}
	closed("wrong password", c)

	d := s.dial()
	if code := call[*kmsg.ListOffsetsResponse](t, d, endOf("t")).Topics[0].Partitions[0].Offset; code != 0 {
		t.Errorf("%d records came in without a login", code)
	}
	if resp := call[*kmsg.ApiVersionsResponse](t, s.raw("SASL_PLAINTEXT"), at(kmsg.NewPtrApiVersionsRequest(),
		0)); resp.ErrorCode != 0 ||
		len(resp.ApiKeys) == 0 {
		t.Errorf("ApiVersions before login: %+v", resp)
	}
}

func endOf(topic string) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = 7, -1
	r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic,
		Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	return r
}

// TestCaseI3SkippingLogin: no request succeeds on a connection that is not logged in, whatever another one is, and who
// is in does not become somebody else.
func TestCaseI3SkippingLogin(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("t", 1, nil)
	s.loggedIn("alice")
	for key := range guards {
		c := s.raw("SASL_PLAINTEXT")
		v, _ := versionsOf(t, key)
		if err := c.Send(minimal(key, v)); err != nil {
			t.Fatal(err)
		}
		if !c.Closed(10 * time.Second) {
			t.Errorf("%s was served without a login", kmsg.NameForKey(key))
		}
	}
	for _, key := range []int16{0, 1} {
		c := s.raw("SASL_PLAINTEXT")
		if err := c.Send(minimal(key, 4)); err != nil {
			t.Fatal(err)
		}
		if !c.Closed(10 * time.Second) {
			t.Errorf("%s was served without a login", kmsg.NameForKey(key))
		}
	}
	c := s.loggedIn("alice")
	if code := handshake(t, c, 1, auth.Plain); code != 34 {
		t.Errorf("a handshake behind the login: code %d, want 34", code)
	}
	if resp := authenticate(t, c, "\x00bob\x00bob"); resp.ErrorCode != 34 {
		t.Errorf("a login behind the login: code %d, want 34", resp.ErrorCode)
	}
	// Plain requests on the TLS listener, and TLS on the plain one, are no requests.
	c = s.raw("SSL")
	if err := c.Send(at(kmsg.NewPtrMetadataRequest(), 9)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(at(kmsg.NewPtrMetadataRequest(), 9)); err == nil {
		t.Error("a plain request on the TLS listener was answered")
	}
	if tc, err := tls.Dial("tcp", s.at("PLAINTEXT"), s.ca.client("")); err == nil {
		tc.Close()
		t.Error("TLS on the plain listener")
	}
}

// TestLoginRenewed: a login that has a time is renewed by the same user alone, and without that ends (KIP-368).
func TestLoginRenewed(t *testing.T) {
	clk := clock.NewSim(1_700_000_000_000)
	s := startSecure(t, func(c *Config) { c.Clock, c.Security.Set["connections.max.reauth.ms"] = clk, "300" })
	s.topic("t", 1, nil)
	s.allow("alice", auth.Describe, auth.Topic, "t")
	c := s.raw("SASL_PLAINTEXT")
	handshake(t, c, 1, auth.Plain)
	if resp := authenticate(t, c, "\x00alice\x00alice"); resp.SessionLifetimeMillis != 300 {
		t.Fatalf("lifetime %d, want 300", resp.SessionLifetimeMillis)
	}
	for range 3 {
		clk.Advance(200 * time.Millisecond)
		if code := handshake(t, c, 1, auth.Plain); code != 0 {
			t.Fatalf("renewal: code %d", code)
		}
		if resp := authenticate(t, c, "\x00alice\x00alice"); resp.ErrorCode != 0 {
			t.Fatalf("renewal: code %d", resp.ErrorCode)
		}
		if code := call[*kmsg.ListOffsetsResponse](t, c, endOf("t")).Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Fatalf("behind the renewal: code %d", code)
		}
	}
	other := s.loggedIn("alice")
	if code := handshake(t, other, 0, auth.Plain); code != 34 {
		t.Errorf("renewal by tokens without headers: code %d, want 34", code)
	}
	handshake(t, other, 1, auth.Plain)
	as := kmsg.NewPtrSASLAuthenticateRequest()
	as.Version, as.SASLAuthBytes = 2, []byte("\x00bob\x00bob")
	if err := other.Send(as); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go func() { // the answer waits for the clock
		for {
			select {
			case <-stop:
				return
			default:
				clk.Advance(time.Millisecond)
				time.Sleep(time.Millisecond)
			}
		}
	}()
	if resp := receive[*kmsg.SASLAuthenticateResponse](t, other, as); resp.ErrorCode != 58 ||
		!other.Closed(10*time.Second) {
		t.Errorf("renewal as somebody else: code %d", resp.ErrorCode)
	}
	close(stop)
	clk.Advance(400 * time.Millisecond)
	if err := c.Send(endOf("t")); err != nil {
		t.Fatal(err)
	}
	if !c.Closed(10 * time.Second) {
		t.Error("served behind the end of the login")
	}
}

// TestBareTokens: tokens without a header, as SaslHandshake 0 asks for.
func TestBareTokens(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("t", 1, nil)
	s.allow("alice", auth.Describe, auth.Topic, "t")
	token := func(c *rawclient.Client, text string) {
		t.Helper()
		if err := c.SendRaw(append([]byte{0, 0, 0, byte(len(text))}, text...)); err != nil {
			t.Fatal(err)
		}
	}
	c := s.raw("SASL_PLAINTEXT")
	if code := handshake(t, c, 0, auth.Plain); code != 0 {
		t.Fatalf("handshake: code %d", code)
	}
	token(c, "\x00alice\x00alice")
	size := make([]byte, 4)
	if _, err := c.Conn.Read(size); err != nil || string(size) != "\x00\x00\x00\x00" {
		t.Fatalf("answer %q, %v", size, err)
	}
	if code := call[*kmsg.ListOffsetsResponse](t, c, endOf("t")).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Errorf("behind the login: code %d", code)
	}
	c = s.raw("SASL_PLAINTEXT")
	handshake(t, c, 0, auth.Plain)
	token(c, "\x00alice\x00")
	if !c.Closed(10 * time.Second) {
		t.Error("a bare token with a wrong password")
	}
	c = s.raw("SASL_PLAINTEXT")
	handshake(t, c, 0, auth.Plain)
	if err := c.SendRaw([]byte{0x7f, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if !c.Closed(10 * time.Second) {
		t.Error("a bare token of 2 GiB")
	}
}

// TestTLSFilesChange: a new certificate holds without a restart; one that cannot be used leaves the old one in force.
func TestTLSFilesChange(t *testing.T) {
	s := startSecure(t, nil)
	serial := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", s.at("SSL"), s.ca.client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	was := serial()
	look := func() {
		for i := range s.securities {
			if tls := s.securities[i].tls; tls != nil {
				tls.next.Store(0)
			}
		}
	}
	putFile(t, s.fs, "/tls/node.pem", []byte("nonsense"))
	look()
	if got := serial(); got != was {
		t.Errorf("certificate %d, want the old one, %d", got, was)
	}
	key, cert := s.ca.sign(pkix.Name{CommonName: "node"}, false)
	putFile(t, s.fs, "/tls/node.pem", s.ca.file(key, cert))
	look()
	if got := serial(); got != cert.SerialNumber.Int64() {
		t.Errorf("certificate %d, want the new one, %d", got, cert.SerialNumber.Int64())
	}
}

// TestClientCertificates: who has to show one and has none, or one nobody knows, does not come in.
func TestClientCertificates(t *testing.T) {
	s := startSecure(t, func(c *Config) { c.Security.ByListener["ssl"]["ssl.client.auth"] = "required" })
	stranger := newSigner(t)
	for name, c := range map[string]*tls.Config{
		"none": s.ca.client(""), "signed by a stranger": {RootCAs: s.ca.pool(), ServerName: "127.0.0.1",
			Certificates: stranger.client("alice").Certificates},
	} {
		tc, err := tls.Dial("tcp", s.at("SSL"), c)
		if err != nil {
			continue
		}
		if _, err := tc.Write(rawclient.Frame(1, "x", at(kmsg.NewPtrApiVersionsRequest(), 3))); err == nil {
			_ = tc.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := tc.Read(make([]byte, 10)); err == nil {
				t.Errorf("%s: came in, %d bytes", name, n)
			}
		}
		tc.Close()
	}
}

// TestLargeRequestBehindTheLogin: the limit of what comes before a login ends with it, also for a client that sends its
// first large request right behind the last token.
func TestLargeRequestBehindTheLogin(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("t", 1, nil)
	s.allow("alice", auth.Write, auth.Topic, "t")
	for range 20 {
		c := s.raw("SASL_PLAINTEXT")
		handshake(t, c, 1, auth.Plain)
		a := kmsg.NewPtrSASLAuthenticateRequest()
		a.Version, a.SASLAuthBytes = 2, []byte("\x00alice\x00alice")
		p := rawclient.Produce(9, "t", 0, rawclient.Batch(0, -1, -1, -1, 1, 900_000))
		if err := c.Send(a, p); err != nil {
			t.Fatal(err)
		}
		if resp := receive[*kmsg.SASLAuthenticateResponse](t, c, a); resp.ErrorCode != 0 {
			t.Fatalf("login: code %d", resp.ErrorCode)
		}
		if part := receive[*kmsg.ProduceResponse](t, c, p).Topics[0].Partitions[0]; part.ErrorCode != 0 {
			t.Fatalf("a large request behind the login: code %d", part.ErrorCode)
		}
	}
}
