// Package segment keeps one file of a partition's log: it appends batches with pwritev behind a tracked end, serves
// byte ranges from a read-only mapping of the same file, seals a full segment and recovers one after a crash.
//
// Nothing here decides what is durable or visible; the package says what is written (Size) and flushes when told
// (Sync). Formats: spec/on-disk.md 3, 4, 7 and 11. Invariants kept: I2 (bytes below a published size never change and
// are never unmapped while pinned) and, in Recover, I4 (offsets are dense; only compaction leaves holes).
//
// Three kinds of callers: the owner (holder of Log.mu, or who opens the log) appends and retires; any goroutine syncs
// and asks for sizes; readers hold a pin. Offsets are inclusive and absolute, positions are bytes from the start of
// the file, times are milliseconds.
package segment

import (
	"errors"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"sekali/batch"
	"sekali/index"
	"sekali/internal/check"
	"sekali/internal/vfs"
)

// ID names a segment by its base offset, which is its file name: 20 digits.
type ID struct{ Base int64 }

// Options of a segment. Immutable.
type Options struct {
	Size       int64 // segment.bytes, at most SizeMax; the mapping of an active segment spans it
	RollMs     int64 // segment.ms less its jitter; 0: no roll by time
	IndexEvery int   // index.interval.bytes: bytes between index entries; 0: 4096
	IndexBytes int   // segment.index.bytes: size at which an index file is full; 0: 10 MiB
	FS         vfs.FS
	Cache      *index.Cache // of sealed indexes; nil: they are read anew each time
	Handles    *Handles     // of sealed segments; nil: what was opened stays open

	// Fault is told what no caller waits for: errors of unlink, unmap and close, and a wrong index entry that reads went
	// around. It is called from any goroutine, outside every lock. nil: nobody wants to know.
	Fault func(op string, err error)
}

func (o Options) withDefaults() Options {
	check.AtMost(1, o.Size, "segment size")
	check.AtMost(o.Size, SizeMax, "segment size")
	if o.IndexEvery <= 0 {
		o.IndexEvery = indexEvery
	}
	if o.IndexBytes <= 0 {
		o.IndexBytes = indexBytes
	}
	return o
}

// handle is an open file and its mapping (nil until someone needs it). Immutable; Segment swaps the whole of it.
type handle struct {
	f vfs.File
	m *vfs.Mapping
}

// Segment is one file. The owner (holder of Log.mu) is its only mutator; which methods others may call, and whether
// they need a pin, is said at each. Writers publish by size: bytes, offsets and index entries are stored before it.
type Segment struct {
	size atomic.Int64 // published end of the file in bytes
	_    [56]byte     // what readers write lies on another cache line than what the owner writes
	pins atomic.Int64 // owner's one and readers'; pinLock while the handle is being taken away
	used atomic.Bool  // handle was asked for since the LRU looked last
	_    [48]byte

	id     ID
	dir    string
	o      Options
	load   func() (*index.Sealed, error) // s.loadSealed, bound once: a method value allocates
	handle atomic.Pointer[handle]
	sealed atomic.Bool
	broken atomic.Bool // a wrong index entry was reported
	synced atomic.Int64
	key    atomic.Uint64 // in the cache of sealed indexes

	active     atomic.Pointer[index.Active] // nil once sealed
	aborted    atomic.Pointer[index.Aborted]
	hasAborted atomic.Bool

	next      atomic.Int64
	firstTime atomic.Int64
	max       stamp

	w writer // owner

	mu     sync.Mutex // guards suffix, and opening and loading against renames
	suffix string     // of the stage: "", ".cleaned", ".swap", ".<key>.deleted"
	remove bool       // the files go with the last pin; written before the owner's is given back

	retired bool // guarded by Handles.mu

	smu    sync.Mutex // held over a flush of the log
	failed error      // guarded by smu; of a flush: final (I15)

	fmu  sync.Mutex // guards disk: FlushIndex may overlap Append
	disk onDisk
}

// writer is the owner's part of an active segment.
type writer struct {
	f        vfs.File
	end      int64 // == size, without the atomic
	gap      int64 // bytes since the last index entry, or since the start
	limit    int64 // Options.Size, or less after Limit
	rollMs   int64
	reserved int64 // blocks are reserved up to here
	step     int64
	torn     bool // a failed write may have left bytes behind end
	iov      [][]byte
}

// stamp is the largest time and the last offset of the first batch that holds it, under a sequence lock: odd while the
// owner changes it.
type stamp struct {
	seq      atomic.Uint32
	ms, last atomic.Int64
}

func (t *stamp) set(ms, last int64) {
	t.seq.Add(1)
	t.ms.Store(ms)
	t.last.Store(last)
	t.seq.Add(1)
}

func (t *stamp) get() (ms, last int64) {
	for {
		seq := t.seq.Load()
		ms, last = t.ms.Load(), t.last.Load()
		if seq&1 == 0 && t.seq.Load() == seq {
			return ms, last
		}
	}
}

func newSegment(dir string, id ID, o Options) *Segment {
	check.AtMost(0, id.Base, "base offset")
	s := &Segment{id: id, dir: dir, o: o.withDefaults()}
	s.load = s.loadSealed
	s.pins.Store(1)
	s.next.Store(id.Base)
	s.reset()
	s.w.limit, s.w.rollMs, s.w.step = s.o.Size, s.o.RollMs, reserveMin
	return s
}

// reset forgets what was derived from the batches; the owner derives it anew.
func (s *Segment) reset() {
	s.active.Store(index.NewActive(s.id.Base, entriesMax))
	s.aborted.Store(&index.Aborted{})
	s.hasAborted.Store(false)
	s.next.Store(s.id.Base)
	s.firstTime.Store(index.NoTime)
	s.max.set(index.NoTime, index.NoTime)
	s.w.gap, s.w.end = 0, 0
	s.size.Store(0)
}

// Create makes an empty active segment and its index files; empty files and index files left over under these names
// are taken over, a .log that holds anything is an error that is fs.ErrExist. The caller owns the segment, and syncs
// the directory before anything in the new file is acknowledged.
func Create(dir string, id ID, o Options) (*Segment, error) { return create(dir, id, o, "") }

// CreateCleaned makes an empty segment for the cleaner's output under names that end in .cleaned. Batches may leave
// holes in the offsets. After Seal and Sync, Promote moves it into place.
func CreateCleaned(dir string, id ID, o Options) (*Segment, error) {
	return create(dir, id, o, CleanedSuffix)
}

func create(dir string, id ID, o Options, suffix string) (*Segment, error) {
	s := newSegment(dir, id, o)
	s.suffix = suffix
	if err := s.createLog(); err != nil {
		return nil, err
	}
	if err := s.createIndexes(); err != nil {
		// The empty log stays; the next attempt takes it over.
		return nil, errors.Join(err, s.handle.Swap(nil).close())
	}
	s.disk.newFiles = true
	return s, nil
}

func (s *Segment) createIndexes() error {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	for _, kind := range []string{IndexSuffix, TimeSuffix, TxnSuffix} {
		f, err := s.o.FS.OpenFile(s.path(kind), flags, 0o644)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// createLog makes the .log. Only the cleaner's left-overs may be overwritten.
func (s *Segment) createLog() error {
	flags := os.O_RDWR | os.O_CREATE
	if s.suffix == CleanedSuffix {
		flags |= os.O_TRUNC
	}
	f, err := s.o.FS.OpenFile(s.path(LogSuffix), flags, 0o644)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && size > 0 {
		err = &os.PathError{Op: "create", Path: s.path(LogSuffix), Err: os.ErrExist}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return s.activate(f)
}

// activate makes f, which is size bytes long, the file this segment is appended to: the mapping spans everything it
// may grow to.
func (s *Segment) activate(f vfs.File) error {
	m, err := f.Map(max(s.o.Size, s.size.Load()))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.handle.Store(&handle{f, m})
	s.w.f = f
	s.w.end = s.size.Load()
	s.w.reserved = s.w.end
	return nil
}

// path returns the current path of one of the segment's files. Callers hold mu, or own the segment.
func (s *Segment) path(kind string) string { return path.Join(s.dir, Name(s.id.Base, kind+s.suffix)) }

// pathNow returns the path of the .log file. Callers hold no lock of the segment.
func (s *Segment) pathNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.path(LogSuffix)
}

func (s *Segment) fault(op string, err error) {
	if err != nil && s.o.Fault != nil {
		s.o.Fault(op, err)
	}
}

func missingIsFine(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// ID returns the segment's identity. Any goroutine.
func (s *Segment) ID() ID { return s.id }

// Size returns the published size in bytes. Any goroutine; it only grows, but for TruncateTo.
func (s *Segment) Size() int64 { return s.size.Load() }

// NextOffset returns the offset behind the last batch; the base offset if there is none. Any goroutine.
func (s *Segment) NextOffset() int64 { return s.next.Load() }

// MaxTime returns the largest timestamp and the last offset of the first batch that holds it, or -1 and -1. Any
// goroutine. Retention and ListOffsets -3 ask for it.
func (s *Segment) MaxTime() (ms, offset int64) { return s.max.get() }

// FirstTime returns the largest timestamp of the first batch, or -1: no batch, or one without timestamps, or a segment
// opened by OpenSealed. The time rule of a roll counts from it. Any goroutine.
func (s *Segment) FirstTime() int64 { return s.firstTime.Load() }

// Sealed tells whether the segment takes no more appends. Any goroutine.
func (s *Segment) Sealed() bool { return s.sealed.Load() }

// HasAborted tells whether an abort marker lies in the segment, without reading an index. Any goroutine.
func (s *Segment) HasAborted() bool { return s.hasAborted.Load() }

// track notes a batch of n bytes that lies at pos, of which v is the header at least: times, the sparse index rule
// (spec/on-disk.md 4), the next offset. Owner.
func (s *Segment) track(pos int64, v batch.View, n int64) {
	last := v.LastOffset()
	// A batch that compaction emptied has no record whose time an entry could name.
	if t := v.MaxTime(); v.Count() > 0 {
		if ms := s.max.ms.Load(); t > ms {
			s.max.set(t, last)
		}
	}
	if pos == 0 {
		s.firstTime.Store(v.MaxTime())
	}
	if s.w.gap > int64(s.o.IndexEvery) {
		s.active.Load().Add(s.entry(pos, last))
		s.w.gap = 0
	}
	s.w.gap += n
	s.next.Store(last + 1)
}

// entry makes the index entry of the batch at pos whose last offset is last.
func (s *Segment) entry(pos, last int64) index.Entry {
	e := index.Entry{Rel: uint32(last - s.id.Base), Pos: uint32(pos), MaxTime: index.NoTime}
	if ms, holder := s.max.ms.Load(), s.max.last.Load(); ms > index.NoTime {
		e.MaxTime, e.TimeRel = ms, uint32(holder-s.id.Base)
	}
	return e
}

// AddAborted notes a transaction whose abort marker lies in this segment. Owner, before the last stable offset passes
// the marker.
func (s *Segment) AddAborted(t index.AbortedTxn) {
	s.aborted.Load().Add(t)
	s.hasAborted.Store(true)
}

// Limit sets the roll rules of changed topic settings. Owner. size never counts above Options.Size.
func (s *Segment) Limit(size, rollMs int64) {
	s.w.limit, s.w.rollMs = min(size, s.o.Size), rollMs
}
