// Package engine joins the store with the transaction coordinator and the consumer groups: their journals are
// partitions of the internal topics, markers go through it into the partitions of the store, and a transactional batch
// is appended by it, with the coordinator's consent, in the order that exactly-once needs (I8).
//
// It knows no protocol and no sockets. A server drives it by requests, a simulator by calls; with Config.Txns.Inline
// and Config.Groups.Inline it owns no goroutine.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sekali/coord"
	"sekali/group"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/store"
)

// Names of the internal topics.
const (
	TxnTopic     = "__transaction_state"
	OffsetsTopic = "__consumer_offsets"
)

// Config is what New needs. Zero numbers are replaced by the defaults of limits.go.
type Config struct {
	Store    *store.Store
	Meta     meta.MetadataStore
	FS       vfs.FS
	Clock    clock.Clock
	PIDBlock int64 // producer ids reserved at a time

	Txns   coord.Config
	Groups group.Config

	TxnPartitions       int32 // transaction.state.log.num.partitions, when the topic is made
	TxnSegmentBytes     int64 // transaction.state.log.segment.bytes, when the topic is made
	OffsetsPartitions   int32 // offsets.topic.num.partitions, when the topic is made
	OffsetsSegmentBytes int64 // offsets.topic.segment.bytes, when the topic is made

	VerifyOff bool          // transaction.partition.verification.enable=false
	RetryFor  time.Duration // an Add that meets a transaction about to end is repeated so long; negative: not at all

	// Fault is told of what failed and is not answered to anybody. It must not block.
	Fault func(what string, err error)
}

// Engine is one running coordinator with its groups. Its methods may be called from any goroutine; Load, Close and
// Tick by one caller at a time, and nothing after Close but what the comments of the parts allow. Owner: the maker.
type Engine struct {
	c      Config
	st     *store.Store
	clk    clock.Clock
	pids   *coord.ProducerIDs
	txns   *coord.Coordinator
	groups *group.Manager

	txnParts, offsetsParts atomic.Pointer[[]*partition] // nil until the topic exists
	loaded                 atomic.Bool

	making sync.Mutex // one creation and loading at a time

	stopping context.Context
	stop     context.CancelFunc
}

// New joins a store that is open. Nothing is loaded yet: until Load or Ensure coordinator and groups answer that they
// are loading, while producer ids are given out, above all that partitions remember.
func New(c Config) *Engine {
	c.fill()
	e := &Engine{c: c, st: c.Store, clk: c.Clock}
	e.stopping, e.stop = context.WithCancel(context.Background())
	e.pids = coord.NewProducerIDs(pidBlocks{c.Meta}, c.PIDBlock)
	e.pids.Above(e.usedPIDs())
	snaps := func(prefix string, of *atomic.Pointer[[]*partition]) *snapshots {
		return &snapshots{fs: c.FS, dir: c.Store.Dir(), prefix: prefix, fault: c.Fault,
			journal: func(shard int) *partition { return nth(of.Load(), shard) }}
	}
	e.groups = group.New(c.Groups, topics{c.Store}, snaps(GroupSnapshotPrefix, &e.offsetsParts), c.Clock)
	e.txns = coord.New(c.Txns, e.pids, sink{e}, snaps(TxnSnapshotPrefix, &e.txnParts), c.Clock)
	return e
}

func nth(ps *[]*partition, n int) *partition {
	if ps == nil || n < 0 || n >= len(*ps) {
		return nil
	}
	return (*ps)[n]
}

// PIDs gives out producer ids. They need no journal.
func (e *Engine) PIDs() *coord.ProducerIDs { return e.pids }

// Txns is the transaction coordinator.
func (e *Engine) Txns() *coord.Coordinator { return e.txns }

// Groups are the consumer groups.
func (e *Engine) Groups() *group.Manager { return e.groups }

// Loaded reports whether the journals have been read: before that every request about a transaction or a group is
// answered that the coordinator is loading.
func (e *Engine) Loaded() bool { return e.loaded.Load() }

// Idle reports that there are no internal topics yet, so that no transaction and no group can exist.
func (e *Engine) Idle() bool {
	byName := e.st.Catalog().ByName
	return byName[TxnTopic] == nil && byName[OffsetsTopic] == nil
}

// Tick lets time pass: timeouts, sessions, expiry, steps of rewriting. It is called about every 100 ms and costs what
// is due.
func (e *Engine) Tick() {
	if !e.loaded.Load() {
		return
	}
	e.groups.Tick()
	e.txns.Tick()
}

// CloseGroups answers everything that waits for a group and ends the groups. Close does it, too; a server calls it
// before, so that nobody waits for a rebalance while it stops. Markers that arrive later count at the next start.
func (e *Engine) CloseGroups() { e.groups.Close() }

// Close ends coordinator, groups and producer ids. What waits for an answer gets one. The store must still be open.
func (e *Engine) Close() {
	e.stop()
	e.txns.Close()
	e.groups.Close()
	e.pids.Close()
}

// BeforeDelete tells coordinator and groups that a topic goes and returns when what they wrote about it is durable
// (store.DeleteTopic): no marker and no offset of it will reach a topic that is made under its name later. An error
// leaves the deletion to be tried again.
func (e *Engine) BeforeDelete(t store.Topic) error {
	if e.Idle() {
		return nil // nobody knows any topic
	}
	if !e.loaded.Load() {
		return ErrLoading
	}
	answers := make(chan error, 2)
	e.txns.TopicsDeleted([][16]byte{t.ID}, func(err error) { answers <- err })
	e.groups.TopicsDeleted([]group.TP{{Topic: t.Name, ID: t.ID}}, func(err error) { answers <- err })
	if err := errors.Join(<-answers, <-answers); err != nil {
		return err
	}
	return e.flush()
}

// flush makes durable what the journals hold. Their answers mean that only with durability=fsync; with
// durability=written a power cut could give the offsets of a deleted topic to one made anew under its name.
func (e *Engine) flush() error {
	for _, parts := range []*[]*partition{e.offsetsParts.Load(), e.txnParts.Load()} {
		for _, p := range *parts {
			if err := p.flush(); err != nil {
				return fmt.Errorf("engine: flush %s: %w", p.tp, err)
			}
		}
	}
	return nil
}

// ErrLoading: the journals of coordinator and groups are not read yet.
var ErrLoading = errors.New("engine: coordinators are loading")
