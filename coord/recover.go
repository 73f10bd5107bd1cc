package coord

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// LoadError tells why a journal could not be loaded. Offset is that of the record, -1 if it is not about one.
type LoadError struct {
	Shard  int
	Offset int64
	Err    error
}

// Error names the place and the cause.
func (e *LoadError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("coord: load partition %d of the transaction log: %v", e.Shard, e.Err)
	}
	return fmt.Sprintf("coord: load partition %d of the transaction log, offset %d: %v", e.Shard, e.Offset, e.Err)
}

// Unwrap gives the cause.
func (e *LoadError) Unwrap() error { return e.Err }

// ErrNoJournal is returned by Recover without journals.
var ErrNoJournal = errors.New("coord: no journal")

// Recover loads the journals, reconciles the open transactions found in the partitions with them, and begins to serve
// and to send the markers of decided transactions again (spec/transactions.md 8). epoch is the coordinator epoch of
// this start, above that of every earlier one. The partitions and the groups must be loaded before, and no request may
// change a partition meanwhile; requests about transactional ids get COORDINATOR_LOAD_IN_PROGRESS. A journal that
// cannot be replayed does not keep the others from serving: its shard answers NOT_COORDINATOR, Events.Failed is told of
// it, and open transactions of producer ids found nowhere are left alone, since it might know them. The error is
// ErrNoJournal or that of ctx; then nothing was begun. To be called once.
func (c *Coordinator) Recover(ctx context.Context, journals []Journal, epoch int32, open []OpenTxn) error {
	if len(journals) == 0 {
		return ErrNoJournal
	}
	shards := make([]*shard, len(journals))
	for i, j := range journals {
		shards[i] = newShard(c, i, j)
		shards[i].epoch = epoch
	}
	c.shards.Store(&shards)
	errs := c.replay(ctx, shards)
	if err := ctx.Err(); err != nil {
		c.shards.Store(nil)
		for _, s := range shards {
			s.stop(kerr.CoordinatorNotAvailable)
		}
		return fmt.Errorf("coord: recover: %w", err)
	}
	whole := true
	for i, err := range errs {
		if err != nil {
			whole = false
			shards[i].post(func() { shards[i].fail(err) })
		}
	}
	c.ids.Above(highest(shards, open))
	reconcileAll(shards, open, whole)
	for _, s := range shards {
		s.live()
	}
	return nil
}

// highest is the highest producer id known after the load, -1 for none (I6 of spec/transactions.md: none is given
// twice). One that a client made up does not hide the others (FoundPIDsBelow).
func highest(shards []*shard, open []OpenTxn) int64 {
	pid := int64(-1)
	for _, s := range shards {
		for _, e := range s.entries {
			for _, id := range e.t.pids() {
				if id < FoundPIDsBelow {
					pid = max(pid, id)
				}
			}
		}
	}
	for _, o := range open {
		if o.PID < FoundPIDsBelow {
			pid = max(pid, o.PID)
		}
	}
	return pid
}

// Reload loads the journal of one shard again, after its log went offline and was opened anew. What waits at the shard
// is answered with an error, requests get COORDINATOR_LOAD_IN_PROGRESS until it returns. open are the open transactions
// found now in the partitions; those of producer ids that this shard does not know are left alone: Reconcile behind it
// settles them. It returns a LoadError if the journal cannot be replayed; then the shard answers NOT_COORDINATOR. To be
// called after Recover returned, not from a callback, and calls must not overlap.
func (c *Coordinator) Reload(index int, j Journal, open []OpenTxn) error {
	old := c.all()
	if index < 0 || index >= len(old) || c.closed.Load() {
		return &LoadError{Shard: index, Offset: -1, Err: ErrClosed}
	}
	old[index].seal()
	s := newShard(c, index, j)
	s.epoch = old[index].epoch
	shards := slices.Clone(old)
	shards[index] = s
	c.shards.Store(&shards)
	old[index].stop(kerr.NotCoordinator)
	if c.closed.Load() {
		s.stop(kerr.CoordinatorNotAvailable)
		return &LoadError{Shard: index, Offset: -1, Err: ErrClosed}
	}
	err := s.replay(context.Background())
	if err != nil {
		s.post(func() { s.fail(err) })
	} else {
		c.ids.Above(highest([]*shard{s}, nil)) // one that could not be read at the start may know higher ones
		reconcileAll([]*shard{s}, open, false)
	}
	s.live()
	return err
}

// sealed is the journal of a shard that was replaced.
type sealed struct{ Journal }

// Append is Journal's.
func (sealed) Append(_ []Record, _ bool, written func(int64, error), _ func(error)) {
	written(0, ErrStorage)
}

// DropBefore is Journal's.
func (sealed) DropBefore(int64) error { return ErrStorage }

// seal takes the journal from a shard, for another one to read: when it returns, nothing more is appended. What happens
// still, such as the last marker of a transaction, ends without a record.
func (s *shard) seal() {
	done := make(chan struct{})
	ok := s.post(func() {
		s.journal, s.offline = sealed{s.journal}, true
		close(done)
	})
	if ok && !s.c.cfg.Inline {
		<-done
	}
}

// replay loads all shards, several at a time unless inline, and returns an error for each that could not be loaded.
func (c *Coordinator) replay(ctx context.Context, shards []*shard) []error {
	errs := make([]error, len(shards))
	if c.cfg.Inline {
		for i, s := range shards {
			errs[i] = s.replay(ctx)
		}
		return errs
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, s := range shards {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = s.replay(ctx)
			<-slots
		})
	}
	wg.Wait()
	return errs
}

// replay fills a new shard from its snapshot and the journal behind it, or from the whole journal. Nothing else may run
// on the shard but requests, which find it loading. After an error the shard is empty.
func (s *shard) replay(ctx context.Context) error {
	f, from := s.snapshot()
	n := 0
	err := s.journal.Replay(from, func(offset int64, r Record) error {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		switch err := f.apply(offset, r); {
		case errors.Is(err, ErrKey):
			s.skipped(offset, err)
		case err != nil:
			return &LoadError{Shard: s.index, Offset: offset, Err: err}
		}
		return nil
	})
	if err == nil {
		return s.fill(f)
	}
	if at, ok := errors.AsType[*LoadError](err); ok {
		return at
	}
	return &LoadError{Shard: s.index, Offset: -1, Err: err}
}

func (s *shard) skipped(offset int64, err error) {
	if s.c.cfg.Events.Skipped != nil {
		s.c.cfg.Events.Skipped(s.index, offset, err)
	}
}

// snapshot is the state to replay on, and from where: that of the snapshot if it lies within the journal, else none. A
// snapshot from before the log start may hold ids whose tombstone is gone, one from behind the end records that are.
func (s *shard) snapshot() (f *fold, from int64) {
	start := s.journal.Start()
	if s.c.snaps == nil {
		return newFold(), start
	}
	asOf, b, err := s.c.snaps.Load(s.index)
	if err != nil || b == nil || asOf < start || asOf > s.journal.End() {
		return newFold(), start
	}
	f, err = parseSnapshot(b, s.index, asOf)
	if err != nil {
		s.skipped(-1, err)
		return newFold(), start
	}
	return f, asOf
}

// fold is the last record of each id in a stretch of a journal, and what rewriteState counts of it. Values are decoded
// once, at the end: most records of a journal are dead.
type fold struct {
	last                    map[string]*folded
	start, written, snapped int64 // bytes up to the log start, the end and the snapshot
}

type folded struct {
	id                string
	value             []byte
	offset, pos, size int64
}

func newFold() *fold { return &fold{last: make(map[string]*folded)} }

// apply adds a record. r is not kept. An ErrKey leaves the fold as it was, but for the bytes counted.
func (f *fold) apply(offset int64, r Record) error {
	pos := f.written
	f.written += recordSize(r)
	id, err := keyID(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		delete(f.last, string(id))
		return nil
	}
	if len(r.Value) < 2 {
		return fmt.Errorf("%w: value of %d bytes", ErrRecord, len(r.Value))
	}
	if v := int16(binary.BigEndian.Uint16(r.Value)); v < 0 || v > 1 {
		return fmt.Errorf("%w: value version %d", ErrVersion, v)
	}
	x := f.last[string(id)]
	if x == nil {
		x = &folded{id: string(id)}
		f.last[x.id] = x
	}
	x.value = append(x.value[:0], r.Value...)
	x.offset, x.pos, x.size = offset, pos, recordSize(r)
	return nil
}

// fill makes the entries of a shard out of f.
func (s *shard) fill(f *fold) error {
	all := make([]*folded, 0, len(f.last))
	for _, x := range f.last {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *folded) int { return cmp.Compare(a.offset, b.offset) })
	txns := make([]txn, len(all))
	remaining := make([]int64, len(all))
	names := make(map[string]string)
	for i, x := range all {
		var err error
		if txns[i], remaining[i], err = decodeValue(x.value); err != nil {
			return &LoadError{Shard: s.index, Offset: x.offset, Err: fmt.Errorf("%q: %w", x.id, err)}
		}
		intern(txns[i].tps, names)
	}
	for i, x := range all {
		e := s.load(x.id, txns[i], remaining[i], x.offset)
		s.rw.link(e, x.pos, x.size)
	}
	end := s.journal.End()
	s.rw.start, s.rw.written, s.rw.snap.last = f.start, f.written, f.snapped
	s.rw.end, s.rw.durable = end, end
	return nil
}

// intern makes the topics of many ids share their names.
func intern(tps []TP, names map[string]string) {
	for i := range tps {
		name, ok := names[tps[i].Topic]
		if !ok {
			name = tps[i].Topic
			names[name] = name
		}
		tps[i].Topic = name
	}
}
