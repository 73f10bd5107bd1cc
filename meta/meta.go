// Package meta keeps what a node knows besides records: topics, settings, feature levels, the producer-id counter and
// the start epoch, as one small ordered store of keys with revisions.
//
// MetadataStore is the contract. Open gives the implementation for one node: an append log and a snapshot file in the
// data directory. Another implementation, for several nodes, must pass the suite in meta/metatest.
//
// Every change is a transaction: conditions and operations that happen together or not at all, and that are durable
// when Txn returns. Revisions are dense: each applied transaction with operations gets the number after the one
// before.
package meta

import (
	"context"
	"time"
)

// Rev numbers a change of the store. The empty store is at 0; the first change is 1.
type Rev int64

// Item is one key. Value belongs to the store: it is shared by all readers and never written to.
type Item struct {
	Key   string
	Value []byte
	Rev   Rev // of its last change
}

// Cond holds if the key's last change is Rev; 0: the key must not exist.
type Cond struct {
	Key string
	Rev Rev
}

// Op sets a key, or deletes it if Value is nil. An empty, non-nil Value is a value.
type Op struct {
	Key   string
	Value []byte
}

// Outcome tells what a transaction did. Refused means Applied is false, nothing changed and Rev is the revision at
// which the conditions were looked at.
type Outcome struct {
	Applied bool
	Rev     Rev
	Now     []Item // on refusal: the current values of the conditions' keys; a key that does not exist is left out
}

// Change is one whole revision.
type Change struct {
	Rev Rev
	Ops []Op
}

// Session is a claim of liveness. It is advisory: what must be exclusive is guarded by conditions, not by a session.
type Session interface {
	// Lost is closed once the session has ended: closed by its owner, expired, or the store can decide nothing any
	// more.
	Lost() <-chan struct{}
	Close() error
}

// MetadataStore is safe for use by any number of goroutines. Every method returns ctx.Err() if ctx ends first; for
// Txn see there. After the store was closed every method returns ErrClosed.
type MetadataStore interface {
	// Snapshot returns the state at a revision that includes every transaction that was acknowledged before the call.
	Snapshot(ctx context.Context) (*State, Rev, error)

	// Watch sends every change above after, whole revisions in order, without a gap. ErrCompacted means that
	// changes above after are no longer kept: take a Snapshot and watch from its revision. The channel is closed
	// when ctx ends, when the store is closed, or when the reader fell too far behind; in the last case Watch again
	// from the last revision received gives ErrCompacted.
	Watch(ctx context.Context, after Rev) (<-chan Change, error)

	// Txn applies the operations if all conditions hold and returns once that is durable. A transaction without
	// operations only tests the conditions and takes no revision. No key may occur twice among the operations.
	// An error that wraps ErrUnknown means that the transaction may or may not have happened, and a later look
	// (after a restart, for the local store) tells; any other error means that it did not.
	Txn(ctx context.Context, conds []Cond, then []Op) (Outcome, error)

	// OpenSession starts a session that is lost when it was not kept alive for ttl; keeping it alive is the store's
	// work.
	OpenSession(ctx context.Context, ttl time.Duration) (Session, error)

	// Barrier returns a revision that is not below that of any transaction acknowledged before the call.
	Barrier(ctx context.Context) (Rev, error)
}
