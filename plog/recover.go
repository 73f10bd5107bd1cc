package plog

import (
	"errors"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sekali/internal/check"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

// Report says what Open found.
type Report struct {
	Cut     segment.Cut // removed behind the end: bytes and batches in all, place and reason of the first
	Scanned int64       // bytes read and checked
	Batches int         // in them
	Removed []string    // names of files that interrupted work had left, or that were damaged, and that are gone now
}

// Open recovers a log: leftovers of interrupted work are cleared away, the newest producer snapshot below the recovery
// point is loaded, batches from there on are checked and replayed, and a tail above the durable mark that is torn is
// cut. Below the mark nothing is repaired: the error is *CorruptError then. high starts at max(Mark, Recovery,
// LogStart); what the scan found above it is dirty, and the caller runs a round over the log before it serves it (I7).
func Open(o Options) (*Log, Report, error) {
	l := newLog(o)
	r := recovery{l: l, o: &l.o, mark: max(o.Mark, o.Recovery, o.LogStart), start: max(o.LogStart, 0)}
	if err := r.run(); err != nil {
		r.release()
		return nil, r.rep, err
	}
	err := l.begin(&r)
	if err == nil {
		err = r.tellRemoved()
	}
	if err != nil {
		r.release()
		return nil, r.rep, err
	}
	if r.rep.Cut.Bytes > 0 {
		l.o.Events.Cut(r.rep.Cut)
	}
	return l, r.rep, nil
}

// newLog is a log that is not open yet, with the optional parts of its options filled in.
func newLog(o Options) *Log {
	if o.Events == nil {
		o.Events = silent{}
	}
	if o.Load == nil {
		o.Load = new(Load)
	}
	o.Events = watchRoom{o.Events, o.Load}
	if o.Dirty == nil {
		o.Dirty = func() {}
	}
	if o.Lazy == nil {
		o.Lazy = o.Dirty
	}
	if o.Hurry == nil {
		o.Hurry = func() {}
	}
	if o.Persist == nil {
		o.Persist = func(MarkKind, int64) error { return nil }
	}
	return &Log{o: o, cfg: o.Config, epoch: o.Epoch, drained: make(chan struct{}, 1)}
}

// watchRoom notes in the Load of a log that the disk is full.
type watchRoom struct {
	Events
	load *Load
}

// Fault implements Events.
func (e watchRoom) Fault(op string, err error) {
	if vfs.IsNoSpace(err) {
		e.load.Short.Store(true)
	}
	e.Events.Fault(op, err)
}

// silent is Events for nobody.
type silent struct{}

func (silent) Fault(string, error)               {}
func (silent) Cut(segment.Cut)                   {}
func (silent) Rolled(int64)                      {}
func (silent) Synced(time.Duration, int64)       {}
func (silent) Duplicate(bool)                    {}
func (silent) Reject(pidmap.Verdict)             {}
func (silent) Evicted(producers int, early bool) {}
func (silent) Cleaned(Cleaned)                   {}

// recovery is one Open under way; one goroutine owns it.
type recovery struct {
	l     *Log
	o     *Options
	mark  int64 // known to be on disk: the durable mark, the recovery point or the log start, whichever is highest
	start int64 // log start, as far as it is known
	rep   Report

	headless Report // what went before the scan, because the segment at the log start is not there

	found  []string // names of all files at the beginning
	bases  []int64  // of the segments, ascending
	snaps  []int64  // offsets of the snapshots, ascending
	cached []epochStart
	lost   bool // the epoch checkpoint is missing or damaged

	// pids is the producer state as of offset state (a snapshot, or nothing at the first base) and on from there. Where
	// an index must be made anew below it, older is the state from which its aborted transactions follow, and the scan
	// begins that much lower; else older is nil.
	pids, older *pidmap.Map
	state, from int64

	epochs  []epochStart
	segs    []*segment.Segment
	created bool  // the active segment is new
	again   bool  // the pass was given up for one that begins lower
	seen    int64 // offset behind the last batch the scan has read
	touch   int64
}

func (r *recovery) run() (err error) {
	if err := r.list(); err != nil {
		return err
	}
	if err := r.beginning(); err != nil {
		return err
	}
	if err := r.settle(); err != nil {
		return err
	}
	r.touch = r.l.touch()
	if err := r.restart(); err != nil {
		return err
	}
	if !r.lost && !r.epochsAgree() {
		r.loseEpochs()
	}
	for r.again = true; r.again; {
		r.release()
		err := r.pass()
		if errors.Is(err, segment.ErrEpoch) && !r.lost {
			r.loseEpochs()
			r.again = true
			continue
		}
		if err != nil {
			return r.explain(err)
		}
	}
	if err := r.finish(); err != nil {
		return err
	}
	if r.lost {
		return r.walkEpochs()
	}
	return nil
}

// beginning holds the first segment against the log start. Where the start is not known, the first segment tells it;
// where it is, a first segment above it means that data in front of it has vanished: acknowledged data, if the durable
// mark lies above the start, and else the beginning of a tail that was never flushed.
func (r *recovery) beginning() error {
	if len(r.bases) == 0 {
		return nil
	}
	first := r.bases[0]
	if r.o.LogStart < 0 {
		r.start = first
		r.mark = max(r.mark, first)
	}
	if first <= r.start {
		return nil
	}
	if r.mark <= r.start {
		// A power cut took the newest segment's name and left those of segments rolled after it: the log ended at its
		// start, and what lies behind the gap was never acknowledged.
		err := r.discard(0, len(r.bases))
		r.headless = r.rep
		return err
	}
	return &CorruptError{
		Dir: r.o.Dir, End: r.start, Mark: r.mark, Err: errHead, HelpCommand: r.help(),
		Path: path.Join(r.o.Dir, segment.Name(first, segment.LogSuffix)),
	}
}

// loseEpochs gives the leader epoch checkpoint up; the cache is made anew from the batches.
func (r *recovery) loseEpochs() {
	r.l.fault("leader epoch", errEpochs)
	r.cached, r.lost = nil, true
}

// restart chooses the state to begin with, and removes what lies below both it and the log start: segments whose
// removal a crash has interrupted, of which any part may be missing.
func (r *recovery) restart() (err error) {
	if r.pids, r.state, err = r.newest(r.o.Recovery); err != nil {
		return err
	}
	r.older, r.from = nil, r.state
	n := 0
	for n+1 < len(r.bases) && r.bases[n+1] <= min(r.start, r.state) {
		n++
	}
	return r.behead(n)
}

// behead removes the first n segments, all of them below the log start.
func (r *recovery) behead(n int) error {
	for _, base := range r.bases[:n] {
		for _, suffix := range []string{
			segment.LogSuffix, segment.IndexSuffix, segment.TimeSuffix, segment.TxnSuffix,
		} {
			if err := gone(r.o.FS.Remove(path.Join(r.o.Dir, segment.Name(base, suffix)))); err != nil {
				return err
			}
		}
	}
	r.bases = r.bases[n:]
	return nil
}

// release lets go of the segments opened so far.
func (r *recovery) release() {
	for _, s := range r.segs {
		s.Retire(false)
	}
	r.segs = nil
}

// list clears leftovers away and learns what there is: segments, snapshots, leader epochs.
func (r *recovery) list() (err error) {
	if r.found, err = r.o.FS.ReadDir(r.o.Dir); err != nil {
		return err
	}
	if r.bases, err = segment.List(r.o.Dir, r.o.FS); err != nil {
		return err
	}
	if err := r.adopt(); err != nil {
		return err
	}
	names, err := r.o.FS.ReadDir(r.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		at, suffix, ok := segment.ParseName(name)
		switch {
		case ok && suffix == snapshotSuffix:
			r.snaps = append(r.snaps, at)
		case ok && suffix == snapshotSuffix+".tmp", name == epochFile+".tmp",
			ok && strings.HasPrefix(suffix, snapshotSuffix+".") && strings.HasSuffix(suffix, segment.DeletedSuffix):
			if err := r.o.FS.Remove(path.Join(r.o.Dir, name)); err != nil {
				return err
			}
		}
	}
	slices.Sort(r.snaps)
	list, found, err := readEpochs(r.o.FS, r.o.Dir)
	if errors.Is(err, errEpochs) {
		r.loseEpochs()
		return nil
	}
	r.cached, r.lost = list, !found
	return err
}

// adopt adds the transaction indexes that Kafka has not made because they would be empty.
func (r *recovery) adopt() error {
	if !r.o.Adopt || len(r.bases) == 0 {
		return nil
	}
	for _, base := range r.bases {
		f, err := r.o.FS.OpenFile(path.Join(r.o.Dir, segment.Name(base, segment.TxnSuffix)), os.O_RDWR|os.O_CREATE, 0o644)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return r.o.FS.SyncDir(r.o.Dir)
}

// newest loads the newest snapshot a scan can continue from, and returns its offset: at or below limit, and not below
// the first segment, for what it does not reflect must still be there. One that cannot be read is removed and the one
// before taken; without any the state is empty at the first base.
func (r *recovery) newest(limit int64) (m *pidmap.Map, at int64, err error) {
	m = pidmap.New(r.o.Pids)
	first := r.start
	if len(r.bases) > 0 {
		first = r.bases[0]
	}
	for i := len(r.snaps) - 1; i >= 0; i-- {
		at := r.snaps[i]
		if at > limit || at < first {
			continue
		}
		b, err := vfs.ReadFile(r.o.FS, path.Join(r.o.Dir, segment.Name(at, snapshotSuffix)))
		if err == nil {
			err = m.Load(b, r.touch)
		}
		if err == nil && r.misplaced(m, at) {
			err = errMisplaced
		}
		if err == nil {
			return m, at, nil
		}
		r.l.fault("producer snapshot", err)
		if err := r.removeSnapshot(i); err != nil {
			return nil, 0, err
		}
	}
	return m, first, nil
}

// tellRemoved notes in the report which files are no longer there. One that a finished swap has renamed is not meant.
func (r *recovery) tellRemoved() error {
	names, err := r.o.FS.ReadDir(r.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range r.found {
		if _, there := slices.BinarySearch(names, name); there || strings.HasSuffix(name, segment.SwapSuffix) {
			continue
		}
		r.rep.Removed = append(r.rep.Removed, name)
	}
	return nil
}

func (r *recovery) removeSnapshot(i int) error {
	name := segment.Name(r.snaps[i], snapshotSuffix)
	r.snaps = slices.Delete(r.snaps, i, i+1)
	return gone(r.o.FS.Remove(path.Join(r.o.Dir, name)))
}

// finish judges where the log ends, and sees to it that there is an active segment.
func (r *recovery) finish() error {
	end := int64(-1)
	if n := len(r.segs); n > 0 {
		end = r.segs[n-1].NextOffset()
	}
	if end >= r.mark {
		return nil
	}
	if r.guarded() > 0 {
		return r.short(end)
	}
	// All of it lies below the log start, where nobody can ask for it.
	r.release()
	if err := r.discard(0, len(r.bases)); err != nil {
		return err
	}
	s, err := segment.Create(r.o.Dir, segment.ID{Base: r.mark}, r.l.segOptions(&r.o.Config))
	if err != nil {
		return err
	}
	r.segs, r.bases = []*segment.Segment{s}, []int64{r.mark}
	r.created = true
	return nil
}

// short is the error of a log that ends below what was acknowledged.
func (r *recovery) short(end int64) error {
	e := &CorruptError{Dir: r.o.Dir, End: max(end, r.start), Mark: r.mark, HelpCommand: r.help()}
	e.Path = r.o.Dir
	if n := len(r.segs); n > 0 {
		s := r.segs[n-1]
		e.Path, e.Pos = path.Join(r.o.Dir, segment.Name(s.ID().Base, segment.LogSuffix)), s.Size()
	}
	return e
}

func (r *recovery) help() string { return "sekali check --repair " + path.Dir(r.o.Dir) }

// explain adds to damage found in a segment what the whole log knows.
func (r *recovery) explain(err error) error {
	var c *segment.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	end := max(r.from, r.seen)
	if n := len(r.segs); n > 0 {
		end = max(r.seen, r.segs[n-1].NextOffset())
	}
	return &CorruptError{
		Dir: r.o.Dir, End: end, Mark: r.mark, Path: c.Path, Pos: c.Pos, Err: err, HelpCommand: r.help(),
	}
}

// walkEpochs makes the leader epoch cache anew from the batch headers of the whole log.
func (r *recovery) walkEpochs() error {
	r.epochs = nil
	for _, s := range r.segs {
		w := r.l.walk(s, s.Size())
		for pos := int64(0); pos < w.end; {
			h, next, err := w.header(pos)
			if err != nil {
				w.close()
				return err
			}
			if n := len(r.epochs); h.LeaderEpoch() >= 0 && (n == 0 || r.epochs[n-1].epoch < h.LeaderEpoch()) {
				r.epochs = addEpoch(r.epochs, h.LeaderEpoch(), h.BaseOffset())
			}
			pos = next
		}
		w.close()
	}
	return nil
}

// begin makes the recovered parts the state of the log. Its watermarks hold what the marks vouch for; the tail above
// becomes visible with the first round.
func (l *Log) begin(r *recovery) error {
	l.pids, l.dirDirty = r.pids, r.created
	l.setSegs(r.segs)
	end := l.active.NextOffset()
	start := max(r.start, r.segs[0].ID().Base)
	high := spot{offset: end, base: l.active.ID().Base, pos: l.active.Size()}
	if r.mark < end {
		s := r.segs[max(l.view.Load().floor(r.mark), 0)]
		pos, err := s.Find(r.mark)
		if err != nil {
			return err
		}
		high = spot{offset: r.mark, base: s.ID().Base, pos: pos}
	}
	l.end.Store(end)
	if r.o.FirstDirty > 0 {
		l.firstDirty.Store(max(min(r.o.FirstDirty, end), 1))
	}
	l.lim.set(high, l.stableBelow(high, start))
	l.lim.start.Store(start)
	check.Ordered(start, l.lim.stable.Load(), high.offset, end, "I1: watermarks at open")
	l.beginTail(r, high)
	l.beginMarks(r, start)
	return nil
}

// beginTail notes what of the recovered log is not known to be on disk, or not complete there.
func (l *Log) beginTail(r *recovery, high spot) {
	l.durable = high.offset
	if high.base == l.active.ID().Base {
		l.from = high.pos
	}
	for _, s := range r.segs[:len(r.segs)-1] {
		if s.NextOffset() > high.offset {
			l.unsynced = append(l.unsynced, s)
		}
		if !s.Sealed() {
			l.unsealed = append(l.unsealed, s)
		}
	}
	l.owed = len(l.unsynced)
	l.tail.base = l.active.ID().Base
	l.tail.time, l.tail.last = l.active.MaxTime()
	l.top = peak{base: high.base, time: -1, last: -1}
	if high.offset == l.end.Load() {
		l.top = l.tail
	}
	l.born = l.o.Clock.Mono()
}

// beginMarks sets epochs and checkpoints. A recovered state deserves a snapshot soon, so that the next start is short.
func (l *Log) beginMarks(r *recovery, start int64) {
	for _, e := range r.cached {
		// Its batches went with the segments below the log start, so no scan has met them.
		if n := len(r.epochs); e.start < start && (n == 0 || e.epoch > r.epochs[n-1].epoch) {
			r.epochs = addEpoch(r.epochs, e.epoch, e.start)
		}
	}
	epochs := cutEpochs(r.epochs, start, math.MaxInt64)
	if n := len(epochs); n > 0 {
		l.epoch = max(l.epoch, epochs[n-1].epoch)
	}
	l.epochs.Store(&epochs)
	l.grown = r.rep.Scanned
	l.ck = checkpoint{written: -1, recovery: r.state, when: l.born, wanted: r.rep.Batches > 0 || r.rep.Cut.Bytes > 0}
	for i := len(r.snaps) - 1; i >= 0 && r.snaps[i] > r.o.Recovery; i-- {
		if err := r.removeSnapshot(i); err != nil {
			l.fault("producer snapshot", err)
		}
	}
	l.ck.files = r.snaps
}
