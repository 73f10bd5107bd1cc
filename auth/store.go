package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"sekali/meta"
)

// Prefixes of the keys in the metadata store.
const (
	aclPrefix   = "acl/"
	scramPrefix = "scram/"
)

// ErrStored wraps a rule or a credential in the metadata store that cannot be read. Nobody is let in or kept out by a
// part of what is stored: the node does not start.
var ErrStored = errors.New("auth: stored entry cannot be read")

// Store keeps rules and credentials. Methods may be called from any goroutine; changes are durable when they return.
// Owner of changes: mu; readers take the snapshot.
type Store struct {
	m meta.MetadataStore

	mu  sync.Mutex
	now atomic.Pointer[snapshot]
}

type snapshot struct {
	rules *rules
	users map[string]Credentials // by user
}

// Open reads what the metadata store holds.
func Open(ctx context.Context, m meta.MetadataStore) (*Store, error) {
	s := &Store{m: m}
	return s, s.load(ctx)
}

// load takes what the metadata store holds now.
func (s *Store) load(ctx context.Context) (err error) {
	state, _, err := s.m.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("auth: read rules and credentials: %w", err)
	}
	var all []Binding
	next := &snapshot{users: map[string]Credentials{}}
	state.Range(aclPrefix, func(it meta.Item) bool {
		var b storedBinding
		if err = json.Unmarshal(it.Value, &b); err == nil {
			err = Binding(b).Check()
		}
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrStored, it.Key, err)
			return false
		}
		all = append(all, Binding(b))
		return true
	})
	if err != nil {
		return err
	}
	state.Range(scramPrefix, func(it meta.Item) bool {
		err = next.addUser(it)
		return err == nil
	})
	if err != nil {
		return err
	}
	next.rules = newRules(all)
	s.now.Store(next)
	return nil
}

// storedBinding is a rule as JSON with Kafka's numbers.
type storedBinding struct {
	Type       ResourceType `json:"resourceType"`
	Name       string       `json:"resourceName"`
	Pattern    PatternType  `json:"patternType"`
	Principal  string       `json:"principal"`
	Host       string       `json:"host"`
	Operation  Operation    `json:"operation"`
	Permission Permission   `json:"permissionType"`
}

// keyOf is the same for equal rules, so that one is stored once. A name may hold bytes a key should not.
func keyOf(b Binding) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %d %q %q %q",
		b.Type, b.Pattern, b.Operation, b.Permission, b.Name, b.Principal, b.Host))
	return aclPrefix + hex.EncodeToString(sum[:16])
}

// change applies ops at once, if there are any, and takes them over.
func (s *Store) change(ctx context.Context, ops []meta.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if _, err := s.m.Txn(ctx, nil, ops); err != nil {
		return fmt.Errorf("auth: store: %w", err)
	}
	return s.load(context.WithoutCancel(ctx))
}

// Add stores rules, all of them or none. One that is there already is not stored again. ErrBinding for what is no rule.
func (s *Store) Add(ctx context.Context, bs []Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ops []meta.Op
	seen := map[Binding]bool{}
	for _, b := range s.now.Load().rules.all {
		seen[b] = true
	}
	for _, b := range bs {
		if err := b.Check(); err != nil {
			return err
		}
		if seen[b] {
			continue
		}
		seen[b] = true
		value, err := json.Marshal(storedBinding(b))
		if err != nil {
			return fmt.Errorf("auth: store: %w", err)
		}
		ops = append(ops, meta.Op{Key: keyOf(b), Value: value})
	}
	return s.change(ctx, ops)
}

// Remove deletes every rule that a filter finds and returns, filter by filter, which those were. A rule that two
// filters find is told with both.
func (s *Store) Remove(ctx context.Context, fs []Filter) ([][]Binding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([][]Binding, len(fs))
	var ops []meta.Op
	gone := map[Binding]bool{}
	for i, f := range fs {
		out[i] = s.Find(f)
		for _, b := range out[i] {
			if !gone[b] {
				gone[b] = true
				ops = append(ops, meta.Op{Key: keyOf(b)})
			}
		}
	}
	return out, s.change(ctx, ops)
}

// Find lists the rules that a filter finds, in the order of resource type, name, pattern and principal.
func (s *Store) Find(f Filter) []Binding {
	var out []Binding
	for _, b := range s.now.Load().rules.all {
		if f.Finds(b) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// addUser takes over one stored credential.
func (n *snapshot) addUser(it meta.Item) error {
	var c storedCredential
	mech, user, err := splitScramKey(it.Key)
	if err == nil {
		err = json.Unmarshal(it.Value, &c)
	}
	if err == nil {
		err = c.credential().check(mech)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStored, it.Key, err)
	}
	all := n.users[user]
	all[mech] = c.credential()
	n.users[user] = all
	return nil
}

// storedCredential is a SCRAM credential as JSON; the keys let nobody log in, but whoever has them can try passwords.
type storedCredential struct {
	Salt       string `json:"salt"`
	StoredKey  string `json:"storedKey"`
	ServerKey  string `json:"serverKey"`
	Iterations int    `json:"iterations"`
}

func (c storedCredential) credential() Credential {
	raw := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil // check refuses it
		}
		return b
	}
	return Credential{Salt: raw(c.Salt), StoredKey: raw(c.StoredKey), ServerKey: raw(c.ServerKey),
		Iterations: c.Iterations}
}
