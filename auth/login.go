package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/xdg-go/scram"
)

// Login is one SASL exchange from the server's side. It belongs to one goroutine.
type Login interface {
	// Step takes what the client sent and gives what to answer. done: the client is Principal from now on. An error
	// ends the exchange; it says nothing about which part of name and password was wrong.
	Step(in []byte) (out []byte, done bool, err error)
	// Principal is "User:" and the name, once Step has said done.
	Principal() string
}

// ErrLogin is told for every login that fails: the client must not learn why.
var ErrLogin = errors.New("auth: authentication failed")

// NewLogin begins an exchange by a mechanism of Mechanisms; nil for another.
func (s *Store) NewLogin(mechanism string) Login {
	switch mechanism {
	case Plain:
		return &plainLogin{users: s}
	case ScramSHA256:
		return s.newScram(SHA256, scram.SHA256)
	case ScramSHA512:
		return s.newScram(SHA512, scram.SHA512)
	}
	return nil
}

// plainLogin is PLAIN (RFC 4616): one message, checked against any of the user's SCRAM credentials, so that no password
// is stored in clear.
type plainLogin struct {
	users *Store
	name  string
}

// plainMax bounds name and password: hashing costs time.
const plainMax = 1024

// Step is Login's.
func (l *plainLogin) Step(in []byte) ([]byte, bool, error) {
	parts := bytes.Split(in, []byte{0})
	if len(in) > 3*plainMax || len(parts) != 3 || !utf8.Valid(in) {
		return nil, false, ErrLogin
	}
	as, name, password := string(parts[0]), string(parts[1]), string(parts[2])
	if name == "" || password == "" || as != "" && as != name {
		return nil, false, ErrLogin
	}
	if !l.users.checkPassword(name, password) {
		return nil, false, ErrLogin
	}
	l.name = name
	return nil, true, nil
}

// Principal is Login's.
func (l *plainLogin) Principal() string { return UserPrefix + l.name }

// checkPassword takes as long for a name that does not exist as for one that does.
func (s *Store) checkPassword(name, password string) bool {
	c, ok := s.User(name)
	m := SHA256
	if ok {
		m = c.Has()[len(c.Has())-1]
	} else {
		c[m] = nobody(m, name)
	}
	return c[m].proves(m, password) && ok
}

// secret makes what a client learns about a name that does not exist look like what it would learn of one that does,
// and the same each time.
var secret = func() (b [32]byte) {
	rand.Read(b[:])
	return b
}()

func nobody(m Mechanism, name string) Credential {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte(name))
	n := m.hash()().Size()
	c := Credential{Salt: mac.Sum(nil)[:24], Iterations: IterationsDefault, StoredKey: make([]byte, n),
		ServerKey: make([]byte, n)}
	rand.Read(c.StoredKey)
	rand.Read(c.ServerKey)
	return c
}

// saslName undoes what a client does to a name with a comma or an equals sign (RFC 5802, 5.1).
var saslName = strings.NewReplacer("=2C", ",", "=3D", "=")

// scramLogin is SCRAM (RFC 5802, RFC 7677) without channel binding.
type scramLogin struct {
	conv  *scram.ServerConversation
	known bool
}

func (s *Store) newScram(m Mechanism, f scram.HashGeneratorFcn) Login {
	l := &scramLogin{}
	server, err := f.NewServer(func(name string) (scram.StoredCredentials, error) {
		all, _ := s.User(saslName.Replace(name))
		c := all[m]
		if l.known = c.Iterations > 0; !l.known {
			c = nobody(m, name)
		}
		return scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: c.Iterations},
			StoredKey: c.StoredKey, ServerKey: c.ServerKey}, nil
	})
	if err != nil {
		return nil // no such hash
	}
	l.conv = server.NewConversation()
	return l
}

// Step is Login's. The attributes of a client that came in with a delegation token are not known here.
func (l *scramLogin) Step(in []byte) ([]byte, bool, error) {
	if l.conv.Done() || !utf8.Valid(in) {
		return nil, false, ErrLogin
	}
	out, err := l.conv.Step(string(in))
	if err != nil || l.conv.Done() && (!l.conv.Valid() || !l.known) {
		return nil, false, ErrLogin
	}
	if as := l.conv.AuthzID(); as != "" && as != l.conv.Username() || strings.Contains(string(in), "tokenauth=true") {
		return nil, false, ErrLogin
	}
	return []byte(out), l.conv.Done(), nil
}

// Principal is Login's.
func (l *scramLogin) Principal() string { return UserPrefix + saslName.Replace(l.conv.Username()) }
