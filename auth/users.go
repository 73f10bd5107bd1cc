package auth

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"unicode/utf8"

	"sekali/meta"
)

// Mechanism is a SCRAM mechanism, by Kafka's numbers (KIP-554).
type Mechanism int8

// The SCRAM mechanisms.
const (
	SHA256 Mechanism = 1
	SHA512 Mechanism = 2
)

// The SASL mechanisms by name.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// Mechanisms lists the SASL mechanisms there are.
var Mechanisms = []string{Plain, ScramSHA256, ScramSHA512}

// String is the SASL name.
func (m Mechanism) String() string {
	switch m {
	case SHA256:
		return ScramSHA256
	case SHA512:
		return ScramSHA512
	}
	return "UNKNOWN"
}

// Known reports whether the number is that of a mechanism.
func (m Mechanism) Known() bool { return m == SHA256 || m == SHA512 }

func (m Mechanism) hash() func() hash.Hash {
	if m == SHA512 {
		return sha512.New
	}
	return sha256.New
}

// The bounds of iterations (ScramMechanism, ScramControlManager), and what a new password gets by default.
const (
	IterationsMin     = 4096
	IterationsMax     = 16384
	IterationsDefault = 4096
)

// Credential proves a password without telling it (RFC 5802).
type Credential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int
}

// Credentials are those of one user, by mechanism; one without iterations is not there.
type Credentials [SHA512 + 1]Credential

// Has lists the mechanisms for which there is a credential.
func (c *Credentials) Has() (ms []Mechanism) {
	for m := SHA256; m <= SHA512; m++ {
		if c[m].Iterations > 0 {
			ms = append(ms, m)
		}
	}
	return ms
}

var errCredential = errors.New("impossible credential")

func (c Credential) check(m Mechanism) error {
	n := m.hash()().Size()
	if len(c.Salt) == 0 || len(c.StoredKey) != n || len(c.ServerKey) != n || c.Iterations <= 0 {
		return errCredential
	}
	return nil
}

// NewCredential makes one of a password with a salt of its own.
func NewCredential(m Mechanism, password string, iterations int) (Credential, error) {
	salt := make([]byte, 24)
	rand.Read(salt)
	salted, err := pbkdf2.Key(m.hash(), password, salt, iterations, m.hash()().Size())
	if err != nil {
		return Credential{}, fmt.Errorf("auth: derive key: %w", err)
	}
	return FromSalted(m, salt, salted, iterations), nil
}

// FromSalted makes a credential of a password that the client has salted itself (KIP-554).
func FromSalted(m Mechanism, salt, salted []byte, iterations int) Credential {
	mac := func(key []byte, text string) []byte {
		h := hmac.New(m.hash(), key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := m.hash()()
	stored.Write(mac(salted, "Client Key"))
	return Credential{Salt: slices.Clone(salt), StoredKey: stored.Sum(nil), ServerKey: mac(salted, "Server Key"),
		Iterations: iterations}
}

// proves reports whether the password is that of the credential, in time that does not tell how far it was right.
func (c Credential) proves(m Mechanism, password string) bool {
	salted, err := pbkdf2.Key(m.hash(), password, c.Salt, c.Iterations, m.hash()().Size())
	return err == nil && hmac.Equal(FromSalted(m, c.Salt, salted, c.Iterations).StoredKey, c.StoredKey)
}

func scramKey(m Mechanism, user string) string { return scramPrefix + m.String() + "/" + user }

func splitScramKey(key string) (m Mechanism, user string, err error) {
	name, user, ok := strings.Cut(strings.TrimPrefix(key, scramPrefix), "/")
	for m := SHA256; m <= SHA512; m++ {
		if ok && name == m.String() && user != "" {
			return m, user, nil
		}
	}
	return 0, "", errors.New("unknown mechanism")
}

// Change is one credential to be set, or with a nil Credential deleted.
type Change struct {
	User       string
	Mechanism  Mechanism
	Credential *Credential
}

// userMax bounds the name of a user in bytes; it is part of a key of the metadata store.
const userMax = 255

// ErrUser wraps why a name cannot be a user's.
var ErrUser = errors.New("auth: not a user")

// CheckUser refuses a name that is empty, longer than 255 bytes or not UTF-8.
func CheckUser(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: no name", ErrUser)
	case len(name) > userMax:
		return fmt.Errorf("%w: a name longer than %d bytes", ErrUser, userMax)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: a name that is not UTF-8", ErrUser)
	}
	return nil
}

// ErrNoCredential refuses to delete a credential that does not exist.
var ErrNoCredential = errors.New("auth: no such credential")

// Apply makes all changes or none. Connections that have logged in stay. Errors: ErrUser, ErrNoCredential, and those of
// the metadata store.
func (s *Store) Apply(ctx context.Context, changes []Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ops []meta.Op
	for _, c := range changes {
		if err := CheckUser(c.User); err != nil {
			return err
		}
		op := meta.Op{Key: scramKey(c.Mechanism, c.User)}
		if c.Credential == nil {
			if !s.HasCredential(c.User, c.Mechanism) {
				return ErrNoCredential
			}
			ops = append(ops, op)
			continue
		}
		value, err := json.Marshal(storedCredential{
			Salt:      base64.StdEncoding.EncodeToString(c.Credential.Salt),
			StoredKey: base64.StdEncoding.EncodeToString(c.Credential.StoredKey),
			ServerKey: base64.StdEncoding.EncodeToString(c.Credential.ServerKey), Iterations: c.Credential.Iterations})
		if err != nil {
			return fmt.Errorf("auth: store: %w", err)
		}
		op.Value = value
		ops = append(ops, op)
	}
	return s.change(ctx, ops)
}

// HasCredential reports whether a user can log in by a mechanism.
func (s *Store) HasCredential(user string, m Mechanism) bool {
	all := s.now.Load().users[user]
	return m.Known() && all[m].Iterations > 0
}

// Users lists everybody who has a credential, sorted.
func (s *Store) Users() []string {
	var out []string
	for u := range s.now.Load().users {
		out = append(out, u)
	}
	slices.Sort(out)
	return out
}

// User gives the credentials of a user; false: there are none.
func (s *Store) User(name string) (Credentials, bool) {
	c, ok := s.now.Load().users[name]
	return c, ok
}
