// Package store is the data directory: its lock, its identity, the topic catalog, all partitions, the workers that
// flush them, and the schedule of housekeeping.
//
// The catalog is a watch on the metadata store: an administrative call is a metadata transaction, and it returns
// when the catalog shows it. What must be on disk before a topic can be seen (directories, ids) is on disk before
// the transaction; what must be gone before a name is free is gone before the transaction that frees it.
//
// Lock order: Store.admin, part.chore, syncer.turn, Store.mu, then the locks of plog. No lock of the store is held
// while a callback runs.
package store

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/plog"
)

// Config is what Open needs. It is not changed afterwards.
type Config struct {
	Dir      string
	Syncers  int  // workers that flush; 0: 4
	SyncFS   bool // sekali.flush=syncfs
	Written  bool // durability=written
	UnsafeFS bool // sekali.unsafe.fs
	Topic    TopicConfig
	Epoch    int32 // start epoch, raised in meta
	Meta     meta.MetadataStore
	Shared   *plog.Shared
	FS       vfs.FS
	Clock    clock.Clock
	Events   func(tp TP) plog.Events // may be called before Open returns
	Notice   func(Notice)            // nil: none; must not block, nor call the store

	HoldTxns        bool          // who hears NoticeReopened reconciles, then plog.Log.HoldTxns(false)
	NodeID          int32         // 0: as meta.properties says, else 1
	ProducersMax    int           // per partition; of pidmap.Options
	ProducerExpire  time.Duration // producer.id.expiration.ms; of pidmap.Options
	RecoveryThreads int           // partitions opened or closed at a time; 0: 2
	FilesMax        int           // limit of open files; 0: unknown
	Rand            io.Reader     // source of ids; nil: crypto/rand
	Clean           CleanConfig
}

func (c *Config) threads() int {
	if c.RecoveryThreads <= 0 {
		return recoverersUsual
	}
	return c.RecoveryThreads
}

func (c *Config) notice(n Notice) {
	if c.Notice != nil {
		c.Notice(n)
	}
}

// NoticeKind tells what a Notice is about.
type NoticeKind uint8

const (
	NoticeFileSystem NoticeKind = iota // the file system is accepted with a warning
	NoticeForeign                      // a name in the data directory that is not ours; left alone
	NoticeStray                        // a partition directory of no known topic; set aside
	NoticeRemoved                      // a leftover was removed
	NoticeAdopted                      // a topic written by Apache Kafka was taken over
	NoticeCheckpoint                   // an offset file was unreadable or could not be written
	NoticeSetting                      // a stored setting that this version does not take was left out
	NoticeLoss                         // durability=written: records that had been visible are gone
	NoticeOffline                      // a partition does not serve
	NoticeReopened                     // a partition serves again
	NoticeFault                        // background work failed and will be tried again
)

// Notice is something an operator should read. Which fields are set depends on the kind.
type Notice struct {
	Kind NoticeKind
	TP   TP
	Path string
	Text string
	N    int64 // of NoticeLoss: records lost, at least
	Err  error
}

// Topic is immutable, with its partitions and settings as they were when the catalog was made.
type Topic struct {
	ID         TopicID
	Name       string
	Internal   bool
	Config     TopicConfig
	Partitions []*plog.Log // nil: the partition could not be opened
	Faults     []error     // why; nil where the log is there

	parts []*part
}

// Catalog is immutable; Store swaps the whole of it. Topics whose deletion has begun are not in it.
type Catalog struct {
	ByName map[string]*Topic
	ByID   map[TopicID]*Topic
}

// Recovery is what opening the directory cost and found.
type Recovery struct {
	Logs, Offline         int
	ScannedBytes, Batches int64
	CutBytes, CutBatches  int64
	Clean                 bool // the last stop was clean
	Took                  time.Duration
}

// Store is one open data directory. All methods may be called from any goroutine; Tick from one at a time.
type Store struct {
	c        Config
	id       Identity
	cat      atomic.Pointer[Catalog]
	load     plog.Load
	reserve  reserve
	sync     *syncer
	adopting bool // written by Apache Kafka, not yet ours
	clean    bool // the last stop was clean
	recovery Recovery

	recoveryFile, startFile, cleanerFile *offsetFile

	admin sync.Mutex // one administrative transaction at a time
	marks sync.Mutex // the durable marks: one writer

	mu       sync.Mutex // everything below
	applied  meta.Rev   // the catalog shows this revision
	moved    chan struct{}
	defaults TopicConfig
	records  map[string]record            // by name: what meta says
	sets     map[string]map[string]string // topic settings by name
	servers  map[string]map[string]string // server settings by node, "": of all
	prepared map[TopicID][]*part          // opened before their topic can be seen, from the first new partition on
	leaving  map[TopicID]*leaving         // deletions that have begun
	watchers []func(names []string)

	stop      chan struct{}  // closed by Close
	loops     sync.WaitGroup // watch, rounds, reopening
	helpers   sync.WaitGroup // of the syncer
	stopWatch func()
	closing   atomic.Bool
	risen     atomic.Int64 // how often a recovery point rose
	filed     atomic.Int64 // the same, as of the file
	sched     schedule
}

// part is one partition for as long as its topic lives: its log comes and goes with storage faults, what the offset
// files say about it stays.
type part struct {
	s   *Store
	tp  TP
	dir string

	log  atomic.Pointer[plog.Log] // nil: not open
	flag atomic.Uint32            // of the syncer: idle, queued, queued again
	out  atomic.Bool              // the syncer leaves it alone
	lazy atomic.Bool              // in the syncer's lazy

	round  plog.Round // of the syncer
	begun  error      // of StartWrite, for EndSync
	picked bool       // in the batch; under syncer.turn

	since   uint64 // failed SyncAlls when its round began; under syncer.turn
	trusted uint64 // failed SyncAlls when the last round ended by its own flush began; under syncer.turn

	durable  atomic.Int64 // known to be fsynced
	recovery atomic.Int64
	start    atomic.Int64 // -1: not known, the first segment begins the log
	cleaned  atomic.Int64 // first dirty offset of the cleaner
	seen     int64        // durable, a second ago; under Store.marks
	filed    int64        // durable mark in the file; under Store.marks

	chore sync.Mutex // opening, reopening and taking away of the log
	gone  bool       // deleted; under chore
	laid  bool       // its directory was made by this process, for a topic that is not yet there

	fault   error         // why log is nil; under Store.mu
	told    bool          // NoticeOffline was given; of the ticker
	retries int           // of the ticker
	retryAt time.Duration // of the ticker
	badAt   time.Duration // when it was last seen not to serve; of the ticker

	cleanAfter time.Duration // monotonic: compaction leaves it alone until then; of the cleaner
}

// Catalog returns the present catalog.
func (s *Store) Catalog() *Catalog { return s.cat.Load() }

// topic finds a topic by id if there is one, else by name.
func (s *Store) topic(tp TP) (*Topic, error) {
	cat := s.cat.Load()
	if tp.ID != (TopicID{}) {
		t, ok := cat.ByID[tp.ID]
		if !ok || tp.Topic != "" && tp.Topic != t.Name {
			return nil, ErrUnknownTopicID
		}
		return t, nil
	}
	t, ok := cat.ByName[tp.Topic]
	if !ok {
		return nil, ErrUnknownTopic
	}
	return t, nil
}

// Partition returns the log of a partition that serves. Errors: ErrUnknownTopic, ErrUnknownTopicID,
// ErrUnknownPartition, *OfflineError. A zero id means whatever topic bears the name; with an id the name may be
// empty.
func (s *Store) Partition(tp TP) (*plog.Log, error) {
	t, err := s.topic(tp)
	if err != nil {
		return nil, err
	}
	return t.Partition(tp.Partition)
}

// Partition returns the log of one partition. Errors: ErrUnknownPartition, *OfflineError.
func (t *Topic) Partition(n int32) (*plog.Log, error) {
	if n < 0 || int(n) >= len(t.Partitions) {
		return nil, ErrUnknownPartition
	}
	l := t.Partitions[n]
	if l == nil {
		return nil, &OfflineError{TP: TP{t.Name, t.ID, n}, Err: t.Faults[n]}
	}
	return l, nil
}

// Log is Partition for callers that need no reason.
func (s *Store) Log(tp TP) (*plog.Log, bool) {
	l, err := s.Partition(tp)
	return l, err == nil
}

// ClusterID is the cluster's id, 22 characters, the same for the life of the directory.
func (s *Store) ClusterID() string { return s.id.ClusterID }

// DirectoryID is the id of this data directory.
func (s *Store) DirectoryID() string { return s.id.DirectoryID }

// NodeID is the id of this node.
func (s *Store) NodeID() int32 { return s.id.NodeID }

// Epoch is the leader epoch of this start.
func (s *Store) Epoch() int32 { return s.c.Epoch }

// Dir is the data directory.
func (s *Store) Dir() string { return s.c.Dir }

// Recovery tells what opening the directory cost and found.
func (s *Store) Recovery() Recovery { return s.recovery }

// PartitionSize is the bytes one partition takes, without its index files.
type PartitionSize struct {
	TP    TP
	Bytes int64
}

// Sizes lists every partition; one that is not open counts 0.
func (s *Store) Sizes() []PartitionSize {
	var out []PartitionSize
	for _, t := range s.cat.Load().ByID {
		for _, p := range t.parts {
			size := PartitionSize{TP: p.tp}
			if l := p.log.Load(); l != nil {
				size.Bytes = l.Size()
			}
			out = append(out, size)
		}
	}
	return out
}

// parts calls fn with every partition of the catalog.
func (s *Store) parts(fn func(*part)) {
	for _, t := range s.cat.Load().ByID {
		for _, p := range t.parts {
			fn(p)
		}
	}
}
