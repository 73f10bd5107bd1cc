package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
	"sekali/internal/clock"
)

// Manager is the group coordinator of the node. Its methods may be called from any goroutine (with Config.Inline from
// one at a time). Every done runs exactly once, on the shard of its group or inside the call, and must not block. Until
// Load has replayed the partition of a group, requests for it are answered COORDINATOR_LOAD_IN_PROGRESS, heartbeats
// with no error (spec 1.3); after Close everything is answered COORDINATOR_NOT_AVAILABLE.
type Manager struct {
	cfg    Config
	topics Topics
	snaps  Snapshots
	clk    clock.Clock

	shards atomic.Pointer[[]*shard] // nil before Load
	closed atomic.Bool
	mu     sync.Mutex // replacing shards
	wg     sync.WaitGroup
}

// New makes a Manager without partitions; they come with Load.
func New(c Config, topics Topics, snaps Snapshots, clk clock.Clock) *Manager {
	return &Manager{cfg: c, topics: topics, snaps: snaps, clk: clk}
}

// Load replays the journals, one per partition of __consumer_offsets and in their order, and begins to serve. It is
// called once and returns when every partition has been replayed or failed, with the first error; a partition whose
// journal failed answers NOT_COORDINATOR until Reload, the others are served.
func (m *Manager) Load(ctx context.Context, journals []Journal) error {
	shards := make([]*shard, len(journals))
	loaded := make(chan error, len(journals))
	for i, j := range journals {
		shards[i] = newShard(m, int32(i), j)
	}
	m.mu.Lock()
	if m.closed.Load() {
		m.mu.Unlock()
		return ErrClosed
	}
	m.shards.Store(&shards)
	for _, s := range shards {
		m.start(s, loaded)
	}
	m.mu.Unlock()
	m.topics.Watch(m.topicsChanged)
	var first error
	for range shards {
		select {
		case err := <-loaded:
			if first == nil {
				first = err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return first
}

// Reload replaces one partition whose journal was closed and opened anew: what waits in the old one is answered
// NOT_COORDINATOR, then the partition is replayed. It returns when the partition is served.
func (m *Manager) Reload(partition int, j Journal) error {
	loaded := make(chan error, 1)
	m.mu.Lock()
	list := m.shards.Load()
	if m.closed.Load() || list == nil || partition < 0 || partition >= len(*list) {
		m.mu.Unlock()
		return fmt.Errorf("group: reload of partition %d: %w", partition, ErrClosed)
	}
	shards := slices.Clone(*list)
	old, s := shards[partition], newShard(m, int32(partition), j)
	shards[partition] = s
	m.shards.Store(&shards)
	old.post(func() { old.close(kerr.NotCoordinator) })
	m.start(s, loaded)
	m.mu.Unlock()
	return <-loaded
}

// start runs the shard and posts its load. The caller holds m.mu.
func (m *Manager) start(s *shard, loaded chan<- error) {
	if !m.cfg.Inline {
		m.wg.Go(s.loop)
	}
	s.post(func() {
		if s.closing {
			loaded <- ErrClosed
			return
		}
		begin := s.now()
		err := s.load(s.journal)
		if err == nil {
			s.ready.Store(true)
			if f := m.cfg.Events.Loaded; f != nil {
				f(s.id, s.now()-begin)
			}
		} else {
			s.broken.Store(true)
		}
		loaded <- err
	})
}

// Close answers everything that waits with COORDINATOR_NOT_AVAILABLE and ends the goroutines once the appends on their
// way are done; it waits for that, so the journals are closed after it. It may be called twice.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed.Store(true)
	for _, s := range m.all() {
		s.post(func() { s.close(kerr.CoordinatorNotAvailable) })
	}
	m.mu.Unlock()
	m.wg.Wait()
}

func (m *Manager) all() []*shard {
	if p := m.shards.Load(); p != nil {
		return *p
	}
	return nil
}

// Tick runs the timers that are due. It is called every 100 ms or so and costs nothing for shards without a due timer.
func (m *Manager) Tick() {
	now := int64(m.clk.Mono())
	for _, s := range m.all() {
		if s.due.Load() <= now && s.ready.Load() {
			s.post(s.fire)
		}
	}
}

// topicsChanged is the watch on topics.
func (m *Manager) topicsChanged(changed []string) {
	for _, s := range m.all() {
		s.post(func() {
			if s.ready.Load() && !s.closing {
				s.consumerTopicsChanged(changed)
			}
		})
	}
}

// on runs fn on the shard of a group, or refuse at once.
func (m *Manager) on(id string, refuse codeDone, fn func(s *shard)) {
	shards := m.all()
	if m.closed.Load() {
		refuse(kerr.CoordinatorNotAvailable)
		return
	}
	if len(shards) == 0 {
		refuse(kerr.CoordinatorLoadInProgress)
		return
	}
	s := shards[Partition(id, int32(len(shards)))]
	switch {
	case s.broken.Load():
		refuse(kerr.NotCoordinator)
		return
	case !s.ready.Load():
		refuse(kerr.CoordinatorLoadInProgress)
		return
	}
	posted := s.post(func() {
		if g := s.groups[id]; s.closing || g != nil && g.dead {
			refuse(kerr.CoordinatorNotAvailable)
			return
		}
		fn(s)
	})
	if !posted {
		refuse(kerr.CoordinatorNotAvailable)
	}
}

// Join is a JoinGroup. done may run minutes later: when the rebalance ends.
func (m *Manager) Join(in JoinIn, done func(JoinOut, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(JoinOut{Member: in.Member.Member, Generation: -1}, code) }
	switch {
	case in.Group == "":
		refuse(kerr.InvalidGroupID)
	case in.SessionMs < m.cfg.SessionMinMs || in.SessionMs > m.cfg.SessionMaxMs:
		refuse(kerr.InvalidSessionTimeout)
	default:
		m.on(in.Group, refuse, func(s *shard) { s.join(in, done) })
	}
}

// Sync is a SyncGroup. done runs when the leader's assignment is durable.
func (m *Manager) Sync(in SyncIn, done func(SyncOut, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(SyncOut{}, code) }
	if in.Group == "" {
		refuse(kerr.InvalidGroupID)
		return
	}
	m.on(in.Group, refuse, func(s *shard) { s.sync(in, done) })
}

// Heartbeat is a Heartbeat of the classic protocol.
func (m *Manager) Heartbeat(in Member, done func(*kerr.Error)) {
	if in.Group == "" {
		done(kerr.InvalidGroupID)
		return
	}
	refuse := func(code *kerr.Error) {
		if errors.Is(code, kerr.CoordinatorLoadInProgress) {
			code = nil
		}
		done(code)
	}
	m.on(in.Group, refuse, func(s *shard) { done(s.heartbeat(in)) })
}

// Leave is a LeaveGroup; Generation of the members is not looked at. codes[i] is that of members[i].
func (m *Manager) Leave(group string, members []Member, done func(codes []*kerr.Error, code *kerr.Error)) {
	if group == "" {
		done(nil, kerr.InvalidGroupID)
		return
	}
	refuse := func(code *kerr.Error) { done(nil, code) }
	m.on(group, refuse, func(s *shard) { done(s.leave(group, members), nil) })
}

// ConsumerHeartbeat is a ConsumerGroupHeartbeat (KIP-848). done runs when what it changed is durable.
func (m *Manager) ConsumerHeartbeat(in ConsumerIn, done func(ConsumerOut, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(ConsumerOut{Member: in.Member.Member}, code) }
	m.on(in.Group, refuse, func(s *shard) { s.consumerHeartbeat(in, done) })
}

// Commit is an OffsetCommit or, with a PID, a TxnOffsetCommit; codes are in the order of in.TPs. A guard in done means
// that nothing was staged: ask the coordinator, then commit again with CommitIn.Guard. done runs when the offsets are
// durable.
func (m *Manager) Commit(in CommitIn, done func(codes []*kerr.Error, guard uint64)) {
	refuse := func(code *kerr.Error) { done(repeat(code, len(in.TPs)), 0) }
	m.on(in.Group, refuse, func(s *shard) { s.commit(in, done) })
}

// Fetch is an OffsetFetch of one group. A partition without an offset has Offset -1.
func (m *Manager) Fetch(in FetchIn, done func(map[TP]Fetched, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(nil, code) }
	m.on(in.Group, refuse, func(s *shard) { s.fetch(in, done) })
}

// OffsetDelete removes committed offsets; codes are in the order of tps.
func (m *Manager) OffsetDelete(group string, tps []TP, done func(codes []*kerr.Error, code *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(nil, code) }
	m.on(group, refuse, func(s *shard) { s.offsetDelete(group, tps, done) })
}

// OnMarker tells that a marker of a transaction was appended to a partition of __consumer_offsets at offset and is
// durable (I12). A marker told twice changes nothing; after Close nothing does.
func (m *Manager) OnMarker(partition int32, offset int64, mk batch.Marker) {
	shards := m.all()
	if int(partition) >= len(shards) || partition < 0 {
		return
	}
	s := shards[partition]
	s.post(func() {
		if s.ready.Load() && !s.closing {
			s.marker(offset, mk)
		}
	})
}

// TopicsDeleted removes all offsets of topics (name and id count), committed and staged; done runs when that is durable
// in every partition, before the partitions of the topics may close.
func (m *Manager) TopicsDeleted(topics []TP, done func(error)) {
	shards := m.all()
	g := newGather(len(shards), done)
	for _, s := range shards {
		posted := s.post(func() {
			switch {
			case s.closing:
				g.one(ErrClosed)
			case !s.ready.Load():
				g.one(ErrStorage)
			default:
				s.topicsDeleted(topics, g.one)
			}
		})
		if !posted {
			g.one(ErrClosed)
		}
	}
	g.one(nil)
}

// gather runs done after n+1 calls of one, with the first error.
type gather struct {
	mu   sync.Mutex
	left int
	err  error
	done func(error)
}

func newGather(n int, done func(error)) *gather { return &gather{left: n + 1, done: done} }

func (g *gather) one(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.left--
	last := g.left == 0
	err = g.err
	g.mu.Unlock()
	if last {
		g.done(err)
	}
}

// repeat is n times the same code.
func repeat(code *kerr.Error, n int) []*kerr.Error {
	codes := make([]*kerr.Error, n)
	for i := range codes {
		codes[i] = code
	}
	return codes
}

// journalCode translates an error of a Journal.
func journalCode(err error) (code *kerr.Error, guard uint64) {
	var u *Unverified
	switch {
	case err == nil:
		return nil, 0
	case errors.As(err, &u):
		return kerr.InvalidTxnState, u.Guard
	case errors.Is(err, ErrTooLarge):
		return kerr.MessageTooLarge, 0
	case errors.Is(err, ErrClosed), errors.Is(err, ErrStorage):
		return kerr.NotCoordinator, 0
	case errors.Is(err, ErrFenced):
		return kerr.InvalidProducerEpoch, 0
	case errors.Is(err, ErrTxnState):
		return kerr.InvalidTxnState, 0
	}
	return kerr.CoordinatorNotAvailable, 0
}
