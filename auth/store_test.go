package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"

	"github.com/xdg-go/scram"
)

// opened is a store over a directory of fs, closed with the test.
func opened(t *testing.T, fs vfs.FS) (*Store, meta.MetadataStore) {
	t.Helper()
	m, c, err := meta.Open("/data", fs, clock.NewSim(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := Open(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func newFS(t *testing.T) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestRulesAreKept: rules are there at once and after a restart, one that is added twice is one, and filters remove.
func TestRulesAreKept(t *testing.T) {
	fs := newFS(t)
	s, _ := opened(t, fs)
	read, write := rule(t, "TOPIC t LITERAL User:alice * READ ALLOW"), rule(t,
		"TOPIC t LITERAL User:alice * WRITE ALLOW")
	for range 2 {
		if err := s.Add(t.Context(), []Binding{read, write, read}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(t.Context(), []Binding{read, {}}); !errors.Is(err, ErrBinding) {
		t.Errorf("what is no rule: %v", err)
	}
	any := Filter{Type: AnyResource, Pattern: AnyPattern, Operation: AnyOperation, Permission: AnyPermission}
	s, _ = opened(t, fs)
	if got := s.Find(any); !slices.Equal(got, []Binding{read, write}) {
		t.Errorf("after a restart: %v", got)
	}
	if a := (&Authorizer{Store: s}); !a.May(alice, Read, Topic, "t") || a.May(alice, Read, Topic, "u") {
		t.Error("the rules are not applied")
	}
	only := any
	only.Operation = Read
	removed, err := s.Remove(t.Context(), []Filter{only, any})
	if err != nil || len(removed) != 2 || len(removed[0]) != 1 || len(removed[1]) != 2 {
		t.Errorf("removed %v, %v", removed, err)
	}
	s, _ = opened(t, fs)
	if got := s.Find(any); len(got) != 0 {
		t.Errorf("after the removal: %v", got)
	}
}

// TestDamagedEntry: a part of the rules or of the users is not taken for the whole.
func TestDamagedEntry(t *testing.T) {
	for key, value := range map[string]string{
		"acl/1": "{", "acl/2": `{"resourceType":2}`, "scram/SCRAM-SHA-256/u": `{"salt":"","iterations":4096}`,
		"scram/SCRAM-SHA-1/u":   `{}`,
		"scram/SCRAM-SHA-256/v": `{"salt":"AAAA","storedKey":"AA==","serverKey":"AA==","iterations":1}`,
	} {
		_, m := opened(t, newFS(t))
		if _, err := m.Txn(t.Context(), nil, []meta.Op{{Key: key, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), m); !errors.Is(err, ErrStored) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// user stores one credential.
func user(t *testing.T, s *Store, name, password string, m Mechanism) {
	t.Helper()
	c, err := NewCredential(m, password, IterationsMin)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), []Change{{User: name, Mechanism: m, Credential: &c}}); err != nil {
		t.Fatal(err)
	}
}

// scramClient plays the client's side.
func scramClient(t *testing.T, l Login, f scram.HashGeneratorFcn, name, password string) (done bool, err error) {
	t.Helper()
	c, err := f.NewClient(name, password, "")
	if err != nil {
		t.Fatal(err)
	}
	conv := c.NewConversation()
	out, err := conv.Step("")
	for err == nil && !done {
		var in []byte
		if in, done, err = l.Step([]byte(out)); err == nil {
			out, err = conv.Step(string(in))
		}
	}
	return done && conv.Valid(), err
}

// TestLogins: right and wrong names and passwords by each mechanism, also after a restart.
func TestLogins(t *testing.T) {
	fs := newFS(t)
	s, _ := opened(t, fs)
	user(t, s, "a=b,c", "pencil", SHA256)
	user(t, s, "a=b,c", "pencil", SHA512)
	user(t, s, "old", "pencil", SHA256)
	s, _ = opened(t, fs)
	for _, c := range []struct {
		mechanism, name, password string
		want                      bool
	}{
		{ScramSHA256, "a=b,c", "pencil", true}, {ScramSHA512, "a=b,c", "pencil", true}, {Plain, "a=b,c", "pencil",
			true},
		{ScramSHA256, "a=b,c", "pen", false}, {ScramSHA512, "a=b,c", "pencil2", false}, {Plain, "a=b,c", "Pencil",
			false},
		{ScramSHA256, "nobody", "pencil", false}, {ScramSHA512, "nobody", "pencil", false}, {Plain, "nobody",
			"pencil", false},
		{ScramSHA256, "old", "pencil", true}, {ScramSHA512, "old", "pencil", false}, {Plain, "old", "pencil", true},
	} {
		l := s.NewLogin(c.mechanism)
		var done bool
		var err error
		switch c.mechanism {
		case Plain:
			_, done, err = l.Step([]byte("\x00" + c.name + "\x00" + c.password))
		case ScramSHA256:
			done, err = scramClient(t, l, scram.SHA256, c.name, c.password)
		case ScramSHA512:
			done, err = scramClient(t, l, scram.SHA512, c.name, c.password)
		}
		if done != c.want || c.want != (err == nil) || !c.want && !errors.Is(err, ErrLogin) {
			t.Errorf("%s as %s with %s: %v, %v", c.mechanism, c.name, c.password, done, err)
		}
		if c.want && l.Principal() != "User:"+c.name {
			t.Errorf("%s: principal %s", c.mechanism, l.Principal())
		}
	}
	if s.NewLogin("GSSAPI") != nil {
		t.Error("a mechanism there is not")
	}
}

// TestBadTokens: none of them is a login, none a panic.
func TestBadTokens(t *testing.T) {
	s, _ := opened(t, newFS(t))
	user(t, s, "u", "p", SHA256)
	for _, mechanism := range Mechanisms {
		for _, in := range []string{"", "\x00", "\x00u", "\x00u\x00", "\x00\x00p", "x\x00u\x00p", "u\x00p",
			"\x00u\x00p\x00", "\xff\x00u\x00p",
			"n,,n=u", "n,,r=x", "y,,n=u,r=x", "p=tls-unique,,n=u,r=x", "n,a=v,n=u,r=x,", "n,,n=u,r=x,tokenauth=true",
			"c=biws,r=x,p=AAAA", strings.Repeat("\x00", 100_000)} {
			l := s.NewLogin(mechanism)
			for range 3 { // whatever is answered, the same again does not help
				_, done, err := l.Step([]byte(in))
				if done {
					t.Errorf("%s: %q is a login", mechanism, in)
				}
				if err != nil && !errors.Is(err, ErrLogin) {
					t.Errorf("%s: %q: %v", mechanism, in, err)
				}
			}
		}
	}
}

// TestStrangersLookLikeUsers: what a stranger is told has the form of what a user is told, and is the same each time.
func TestStrangersLookLikeUsers(t *testing.T) {
	s, _ := opened(t, newFS(t))
	user(t, s, "known", "p", SHA256)
	salt := func(name string) string {
		out, _, err := s.NewLogin(ScramSHA256).Step([]byte("n,,n=" + name + ",r=abc"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		parts := strings.Split(string(out), ",")
		if len(parts) != 3 || parts[2] != "i=4096" {
			t.Fatalf("%s: %s", name, out)
		}
		return parts[1]
	}
	if a, b := salt("known"), salt("stranger"); len(a) != len(b) || b != salt("stranger") || b == salt("other") {
		t.Errorf("salts %s and %s", a, b)
	}
}

// TestDeletedCredential: who was deleted does not log in, and deleting nobody is refused.
func TestDeletedCredential(t *testing.T) {
	s, _ := opened(t, newFS(t))
	user(t, s, "u", "p", SHA256)
	gone := []Change{{User: "u", Mechanism: SHA256}}
	if err := s.Apply(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), gone); !errors.Is(err, ErrNoCredential) {
		t.Errorf("deleted twice: %v", err)
	}
	if _, done, _ := s.NewLogin(Plain).Step([]byte("\x00u\x00p")); done || len(s.Users()) != 0 {
		t.Error("the user is still there")
	}
}

// TestNamesThatAreNone: what could not be read back is not stored.
func TestNamesThatAreNone(t *testing.T) {
	fs := newFS(t)
	s, _ := opened(t, fs)
	c, err := NewCredential(SHA256, "p", IterationsMin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("x", 256), "u\xff"} {
		if err := s.Apply(t.Context(), []Change{{User: name, Mechanism: SHA256, Credential: &c}}); !errors.Is(err,
			ErrUser) {
			t.Errorf("user %.10q: %v", name, err)
		}
	}
	user(t, s, strings.Repeat("x", 255), "p", SHA512)
	good := rule(t, "TOPIC t LITERAL User:alice * READ DENY")
	for _, change := range []func(*Binding){
		func(b *Binding) { b.Name = "t\xff" }, func(b *Binding) { b.Principal = "User:\xff" },
		func(b *Binding) { b.Host = "\xff" },
	} {
		b := good
		change(&b)
		if err := s.Add(t.Context(), []Binding{b}); !errors.Is(err, ErrBinding) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	opened(t, fs)
}
