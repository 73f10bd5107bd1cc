// Package plog is one partition: the only place where a batch becomes part of history. It joins segments, producer
// state, leader epochs and watermarks, and decides order, deduplication, visibility and waiting.
//
// One mutex per log, Log.mu, is the single writer: check, stamp, write, commit, publish. Nothing that waits for the
// disk runs under it: flushes, Persist, snapshots, sealing and the walk back for old duplicates lie outside. Readers
// take no lock: they load an immutable view of the segments, pin what they use, and bound themselves by limits that
// are stored after the bytes they cover.
//
// Offsets are record offsets; "end" offsets are exclusive. Positions and sizes are bytes. Times named ms are wall clock
// milliseconds since 1970, touch is monotonic milliseconds. Invariants I1 to I15 are those of docs/INVARIANTS.md.
package plog

import (
	"sync"
	"sync/atomic"
	"time"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// Config is the resolved form of the topic settings a log needs; Configure swaps it in a running log. Negative
// RetainMs and RetainBytes mean no limit, as in Kafka.
type Config struct {
	SegmentBytes  int64 // segment.bytes
	SegmentMs     int64 // segment.ms less this log's jitter
	RetainMs      int64 // retention.ms
	RetainBytes   int64 // retention.bytes
	IndexInterval int   // index.interval.bytes
	IndexBytesMax int   // segment.index.bytes

	DeleteHorizonMs int64 // delete.retention.ms
	CompactLagMinMs int64 // min.compaction.lag.ms
	CompactLagMaxMs int64 // max.compaction.lag.ms; 0: none
	BatchBytesMax   int   // max.message.bytes; the broker tests it

	AppendTime bool // message.timestamp.type=LogAppendTime
	Compact    bool // cleanup.policy has compact: a scan accepts holes between offsets
	Delete     bool // cleanup.policy has delete: retention by time and size
}

// MarkKind names one of the offsets the data directory keeps per log.
type MarkKind uint8

const (
	MarkDurable  MarkKind = iota // known to be fsynced (replication-offset-checkpoint)
	MarkRecovery                 // indexes and snapshot too (recovery-point-offset-checkpoint)
	MarkStart                    // log start: returns when durable
	MarkClean                    // first dirty offset of the cleaner
)

// Events tells what an operator must know. Calls come outside Log.mu, from any goroutine; they must not block, nor call
// Tick, Close, Delete, DeleteBefore or TruncateTo of the log.
type Events interface {
	Fault(op string, err error)          // of the storage; the log may have gone offline by it (Log.Err)
	Cut(c segment.Cut)                   // recovery removed an unsynced tail
	Rolled(base int64)                   // a new segment begins at base
	Synced(d time.Duration, bytes int64) // one flush: how long, and what it made durable
	Duplicate(old bool)                  // a batch was recognised; old: by the walk back, not by the window
	Reject(v pidmap.Verdict)             // a batch was refused
	Evicted(producers int, early bool)   // the cap on producers; early: one was idle for less than 24 h
	Cleaned(c Cleaned)                   // one call of Clean that did something
}

// Shared is what all logs of a process use together: sealed-index cache, handle LRU, buffer pool. Its maker owns it and
// closes it after the last log.
type Shared struct {
	cache   *index.Cache
	handles *segment.Handles
	pool    *buf.Pool
}

// NewShared makes a cache of indexBytes for sealed indexes and an LRU of handles descriptors of sealed segments.
func NewShared(indexBytes int64, handles int, pool *buf.Pool) (*Shared, error) {
	cache, err := index.NewCache(indexBytes)
	if err != nil {
		return nil, err
	}
	return &Shared{cache: cache, handles: segment.NewHandles(handles), pool: pool}, nil
}

// Sweep closes descriptors and mappings of sealed segments nobody used since the last Sweep. Call it about once a
// minute.
func (s *Shared) Sweep() { s.handles.Sweep() }

// Close ends the cache's goroutines.
func (s *Shared) Close() { s.cache.Close() }

// Load is shared by the logs of one device; the syncer sizes its wait by it.
type Load struct {
	Waiting atomic.Int64 // waiters of AfterDurable not yet fired
	Bytes   atomic.Int64 // written, not flushed

	Short atomic.Bool // set by a log that found no room on the disk; whoever looks after room takes it back
	Full  atomic.Bool // set by its owner while client appends are to leave the room there is to others: ErrFull
}

// Options are fixed while the log is open, except Config.
type Options struct {
	Dir     string // <topic>-<partition>, exists
	TopicID [16]byte
	Epoch   int32 // of this start; enters the epoch cache, synced, before the first append
	Config  Config
	Pids    pidmap.Options
	Written bool // durability=written
	FS      vfs.FS
	Clock   clock.Clock
	Shared  *Shared
	Load    *Load  // of the device; nil: none
	Events  Events // nil: none
	// Dirty is called outside every lock after each write that waits for a flush; it must not block. Nil: none.
	Dirty func()
	// Lazy is called in place of Dirty after a write for whose flush nobody waits: some time later is soon enough. Nil: as
	// Dirty.
	Lazy func()
	// Hurry, in written mode, is called like Dirty after a roll: the high watermark stands still until the rolled segment
	// is flushed, so the log should have a round now. Nil: none.
	Hurry func()

	// What the data directory knows; the files are the caller's. Unknown offsets are 0, an unknown LogStart is -1: the
	// first segment then begins the log. A known one is exact, and a first segment above it is corruption.
	Recovery, LogStart, Mark, FirstDirty int64
	Clean                                bool // the last stop was clean
	// Adopt: Kafka wrote the directory, which makes a transaction index only where there is something to put into it.
	// Open adds the empty ones.
	Adopt bool
	// Persist stores an offset in the data directory's files. It is never called under Log.mu and never twice at once
	// for one log. MarkStart returns when durable, with every MarkRecovery told before it; MarkDurable, and a MarkRecovery
	// that rises, may return before. A log start may be told again. Values only rise, except those of TruncateTo.
	Persist func(kind MarkKind, offset int64) error
}

// Log is one open partition. Its methods may be called from any goroutine; those of the commit round (BeginSync to
// EndSync) by one syncer at a time. Log.mu owns everything below it; the fields above are read without it.
type Log struct {
	o     Options
	epoch int32

	view    atomic.Pointer[view]
	down    atomic.Pointer[down] // nil while the log serves
	epochs  atomic.Pointer[[]epochStart]
	entered atomic.Bool   // the epoch of this start is in the cache and on disk
	readers atomic.Int64  // fetches not yet released
	drained chan struct{} // told when there are none any more, once the log is down

	_   [cacheLine]byte
	lim limits
	_   [cacheLine]byte
	end atomic.Int64
	_   [cacheLine]byte

	late lateFaults

	firstDirty atomic.Int64 // of compaction; above 0 there may be holes. The holder of cleaner stores
	quit       atomic.Int32 // how many wait for compaction to end

	// Taken in this order, each before mu: one compaction, one housekeeper (Tick, Close, Delete, TruncateTo), one Persist,
	// one writer of the epoch checkpoint.
	cleaner sync.Mutex
	chore   sync.Mutex
	marks   sync.Mutex
	epochMu sync.Mutex

	mu      sync.Mutex
	stopped bool // Close has begun: no more writes
	holding bool // HoldTxns
	todo    todo // what must happen once mu is free
	cfg     Config
	pids    *pidmap.Map

	segs     []*segment.Segment // the view's, for the owner
	active   *segment.Segment
	from     int64              // position in active up to which it is flushed
	unsynced []*segment.Segment // rolled, or recovered past the durable mark, not flushed since
	unsealed []*segment.Segment // rolled, indexes not complete on disk
	dirDirty bool               // a file was created since the last flush of the directory
	born     time.Duration      // monotonic: since when active is

	inRound   bool  // between BeginSync and EndSync
	owed      int   // rolled segments not flushed
	durable   int64 // fsynced end; equals high unless Options.Written
	unflushed int64 // bytes written and not flushed
	tail      peak  // largest timestamp of active
	top       peak  // the same below high
	grown     int64 // bytes appended since the last checkpoint began

	waiting    list // AfterDurable, by offset
	highWait   list // AfterReadable, read_uncommitted
	stableWait list // AfterReadable, read_committed

	ck     checkpoint // of the housekeeper; ck.begun under mu
	gather gather     // scratch of AppendAll
	marker [batch.MarkerLen]byte
}

// todo collects what may only happen outside mu: waiters to fire, events to tell.
type todo struct {
	any     bool
	fire    list // with nil
	fail    list // with err
	durable int  // of both, how many came from AfterDurable
	err     error
	fault   string // op of err, to be told
	rolled  []int64
	hurry   bool // Options.Hurry
	dirty   bool // Options.Dirty, of what no append has written
}

// unlock gives mu back and does what was put off until now.
func (l *Log) unlock() {
	if !l.todo.any {
		l.mu.Unlock()
	} else {
		t := l.todo
		l.todo = todo{}
		l.mu.Unlock()
		l.do(&t)
	}
	if l.late.some.Load() {
		for _, f := range l.late.take() {
			l.o.Events.Fault(f.op, f.err)
		}
	}
}

func (l *Log) do(t *todo) {
	fireAll(t.fire, nil)
	fireAll(t.fail, t.err)
	if t.dirty {
		l.o.Dirty()
	}
	if t.hurry {
		l.o.Hurry()
	}
	if t.fault != "" {
		l.o.Events.Fault(t.fault, t.err)
	}
	for _, base := range t.rolled {
		l.o.Events.Rolled(base)
	}
}

// takeDown ends the service for good; under mu. The first cause stays, except that a close or deletion follows an
// offline log. All waiters are fired with the error once mu is free.
func (l *Log) takeDown(d *down, op string) {
	if old := l.down.Load(); old == nil || op == "" {
		l.down.Store(d)
	} else {
		d, op = old, ""
	}
	for _, q := range []*list{&l.waiting, &l.highWait, &l.stableWait} {
		for q.first != nil {
			l.detach(q, q.first, &l.todo.fail)
		}
	}
	l.todo.any, l.todo.err, l.todo.fault = true, d.err, op
	l.o.Load.Bytes.Add(-l.unflushed)
	l.unflushed = 0
}

// fail takes the log offline because of a storage fault; mu is free. It returns the error that callers get from now on.
func (l *Log) fail(op string, err error) error {
	l.mu.Lock()
	l.takeDown(offline(op, err), op)
	l.unlock()
	return l.down.Load().err
}

// Err is nil while the log serves, else the reason: it wraps ErrOffline (with the cause), ErrClosed or ErrDeleted.
func (l *Log) Err() error {
	if d := l.down.Load(); d != nil {
		return d.err
	}
	return nil
}

// Configure swaps the settings of a running log. They hold for the next append, read and Tick; a larger segment size
// holds from the next segment on.
func (l *Log) Configure(c Config) {
	l.mu.Lock()
	l.cfg = c
	if l.down.Load() == nil {
		l.active.Limit(c.SegmentBytes, c.SegmentMs)
	}
	l.mu.Unlock()
}

// config is the present settings.
func (l *Log) config() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

// segOptions is how segments of this log are made under settings c.
func (l *Log) segOptions(c *Config) segment.Options {
	return segment.Options{
		Size: c.SegmentBytes, RollMs: c.SegmentMs, IndexEvery: c.IndexInterval, IndexBytes: c.IndexBytesMax,
		FS: l.o.FS, Cache: l.o.Shared.cache, Handles: l.o.Shared.handles, Fault: l.segFault,
	}
}

// segFault passes on what a segment could not do by the way. Some of its calls run under mu, where nobody may be told:
// then whoever gives mu back does it.
func (l *Log) segFault(op string, err error) {
	l.late.put(op, err)
	if l.mu.TryLock() {
		l.unlock()
	}
}

// lateFaults are storage errors that wait to be told. Any goroutine puts, unlock takes.
type lateFaults struct {
	some atomic.Bool
	mu   sync.Mutex
	list []lateFault
}

type lateFault struct {
	op  string
	err error
}

func (f *lateFaults) put(op string, err error) {
	f.mu.Lock()
	f.list = append(f.list, lateFault{op, err})
	f.mu.Unlock()
	f.some.Store(true)
}

func (f *lateFaults) take() []lateFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.some.Store(false)
	list := f.list
	f.list = nil
	return list
}

// fault tells of a storage error that did not take the log offline; mu is free.
func (l *Log) fault(op string, err error) { l.o.Events.Fault(op, err) }

// touch is the monotonic clock in milliseconds, as the producer map wants it.
func (l *Log) touch() int64 { return l.o.Clock.Mono().Milliseconds() }

// Epoch is the leader epoch stamped into batches: that of this start, or a larger one a copied directory brought along.
func (l *Log) Epoch() int32 { return l.epoch }

// Size is the published bytes of all segments.
func (l *Log) Size() (n int64) {
	for _, s := range l.view.Load().segs {
		n += s.Size()
	}
	return n
}

// ProducerCount is the number of producers the log remembers.
func (l *Log) ProducerCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pids.Len()
}
