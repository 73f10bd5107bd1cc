package meta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"
)

// local is the store of one node. Its goroutine (run) is the only one that writes: files, cur, hist.
type local struct {
	dir string
	fs  vfs.FS

	cur  atomic.Pointer[version]
	hist *history

	// Of the goroutine alone.
	f        vfs.File
	size     int64 // of the log: everything below is synced
	reserved int64 // blocks of the log are reserved up to here, if the file system can
	snapLen  int64 // of the newest snapshot
	snapAt   int64 // size of the log at which the next snapshot is due
	buf      []byte
	fault    error // final: nothing is written any more

	reqs     chan *request
	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	closing  error
	loops    sync.WaitGroup // run and the watchers

	mu       sync.Mutex // sessions, dead, and the start of watchers against Close
	sessions map[*session]struct{}
	dead     bool // no session lives any more: failed or closed
	closed   bool
}

type version struct {
	state *State
	rev   Rev
}

type request struct {
	conds []Cond
	ops   []Op
	done  chan result // of one place
}

type result struct {
	out Outcome
	err error
}

// Open opens or creates the local store in dir: the files sekali.meta (append log) and sekali.meta.snapshot. A torn
// last record is cut, damage before it is a *CorruptError. What Open found is durable before it returns. The closer
// ends the goroutine, the watchers and the sessions; it is called once, after the last use. A local session cannot
// expire, since it lives in the process that keeps it alive; the clock is here for the implementations that must
// measure one.
func Open(dir string, fs vfs.FS, _ clock.Clock) (MetadataStore, io.Closer, error) {
	s := &local{
		dir: dir, fs: fs,
		reqs: make(chan *request), stop: make(chan struct{}),
		sessions: map[*session]struct{}{},
	}
	if err := s.load(); err != nil {
		return nil, nil, err
	}
	s.loops.Go(s.run)
	return s, s, nil
}

func (s *local) logPath() string  { return path.Join(s.dir, LogName) }
func (s *local) snapPath() string { return path.Join(s.dir, SnapshotName) }

func (s *local) run() {
	for {
		select {
		case r := <-s.reqs:
			out, err := s.commit(r)
			r.done <- result{out, err}
			s.compact()
		case <-s.stop:
			if s.f != nil {
				s.closing = s.f.Close()
			}
			return
		}
	}
}

// fail makes err the last word: no descriptor of the store is written to again (I15).
func (s *local) fail(err error) {
	s.fault = err
	s.endSessions()
}

func (s *local) commit(r *request) (Outcome, error) {
	if s.fault != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrFailed, s.fault)
	}
	v := s.cur.Load()
	if !holds(v.state, r.conds) {
		out := Outcome{Rev: v.rev}
		for _, c := range r.conds {
			if it, ok := v.state.Get(c.Key); ok {
				out.Now = append(out.Now, it)
			}
		}
		return out, nil
	}
	if len(r.ops) == 0 {
		return Outcome{Applied: true, Rev: v.rev}, nil
	}
	c := Change{Rev: v.rev + 1, Ops: r.ops}
	if err := s.write(c); err != nil {
		return Outcome{}, err
	}
	s.cur.Store(&version{state: v.state.apply(r.ops, c.Rev), rev: c.Rev})
	s.hist.append(c)
	return Outcome{Applied: true, Rev: c.Rev}, nil
}

func holds(s *State, conds []Cond) bool {
	for _, c := range conds {
		it, ok := s.Get(c.Key)
		if ok != (c.Rev != 0) || ok && it.Rev != c.Rev {
			return false
		}
	}
	return true
}

// write appends the record of c and returns once it is durable.
func (s *local) write(c Change) error {
	s.buf = appendRecord(s.buf[:0], s.size, c)
	if len(s.buf) > recordBytesMax {
		s.buf = nil
		return fmt.Errorf("%w: larger than %d bytes", ErrInvalid, recordBytesMax)
	}
	if _, err := s.f.WriteAt(s.buf, s.size); err != nil {
		return s.unwrite(err)
	}
	if err := s.f.Datasync(); err != nil {
		s.fail(fmt.Errorf("flush of %s: %w", s.logPath(), err))
		return fmt.Errorf("%w: %w", ErrUnknown, s.fault)
	}
	s.size += int64(len(s.buf))
	if s.size+reserveBytes/2 > s.reserved {
		s.reserve()
	}
	if cap(s.buf) > logBytesMin {
		s.buf = nil
	}
	return nil
}

// reserve keeps blocks for the next records, so that a full disk does not refuse the deletion of what fills it. It
// is an attempt: the write itself tells.
func (s *local) reserve() {
	if s.f.Allocate(s.size+reserveBytes) == nil {
		s.reserved = s.size + reserveBytes
	}
}

// unwrite takes back a record that did not fit on the disk. Any other failed write is final. The record is incomplete
// either way, so the transaction did not happen.
func (s *local) unwrite(err error) error {
	err = fmt.Errorf("meta: write to %s at %d: %w", s.logPath(), s.size, err)
	if !vfs.IsNoSpace(err) {
		s.fail(err)
		return err
	}
	if terr := s.f.Truncate(s.size); terr != nil {
		s.fail(fmt.Errorf("cut of %s at %d: %w", s.logPath(), s.size, terr))
		return errors.Join(err, s.fault)
	}
	return err
}

func (s *local) Snapshot(ctx context.Context) (*State, Rev, error) {
	if err := s.alive(ctx); err != nil {
		return nil, 0, err
	}
	v := s.cur.Load()
	return v.state, v.rev, nil
}

func (s *local) Barrier(ctx context.Context) (Rev, error) {
	if err := s.alive(ctx); err != nil {
		return 0, err
	}
	return s.cur.Load().rev, nil
}

func (s *local) alive(ctx context.Context) error {
	select {
	case <-s.stop:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

func (s *local) Watch(ctx context.Context, after Rev) (<-chan Change, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if _, _, ok := s.hist.since(after); !ok {
		return nil, fmt.Errorf("%w: changes above %d", ErrCompacted, after)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	out := make(chan Change)
	s.loops.Go(func() { s.hist.watch(ctx, s.stop, after, out) })
	return out, nil
}

func (s *local) Txn(ctx context.Context, conds []Cond, then []Op) (Outcome, error) {
	if err := s.alive(ctx); err != nil {
		return Outcome{}, err
	}
	r := &request{conds: append([]Cond(nil), conds...), done: make(chan result, 1)}
	var err error
	if r.ops, err = vet(conds, then); err != nil {
		return Outcome{}, err
	}
	select {
	case s.reqs <- r:
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	case <-s.stop:
		return Outcome{}, ErrClosed
	}
	select {
	case res := <-r.done:
		return res.out, res.err
	case <-ctx.Done():
		return Outcome{}, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// vet checks the limits and copies what the caller may change after the call.
func vet(conds []Cond, then []Op) ([]Op, error) {
	if len(then) > OpsMax || len(conds) > OpsMax {
		return nil, fmt.Errorf("%w: more than %d operations or conditions", ErrInvalid, OpsMax)
	}
	seen := make(map[string]struct{}, len(then))
	ops := make([]Op, len(then))
	for i, op := range then {
		if op.Key == "" || len(op.Key) > KeyBytesMax || len(op.Value) > ValueBytesMax {
			return nil, fmt.Errorf("%w: key of %d bytes, value of %d", ErrInvalid, len(op.Key), len(op.Value))
		}
		if _, twice := seen[op.Key]; twice {
			return nil, fmt.Errorf("%w: key %q occurs twice", ErrInvalid, op.Key)
		}
		seen[op.Key] = struct{}{}
		ops[i] = Op{Key: op.Key}
		if op.Value != nil {
			ops[i].Value = append([]byte{}, op.Value...)
		}
	}
	return ops, nil
}

// Close ends the store. A transaction that waits for its turn is refused with ErrClosed, the one at work ends first.
func (s *local) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopOnce.Do(func() { close(s.stop) })
	s.loops.Wait()
	s.endSessions()
	return s.closing
}

// session is owned by whoever opened it; the store ends all of them when it fails or closes.
type session struct {
	s    *local
	lost chan struct{}
	once sync.Once
}

func (s *local) OpenSession(ctx context.Context, ttl time.Duration) (Session, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if ttl <= 0 {
		return nil, fmt.Errorf("%w: session of %v", ErrInvalid, ttl)
	}
	x := &session{s: s, lost: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.dead {
		return nil, ErrFailed
	}
	s.sessions[x] = struct{}{}
	return x, nil
}

func (s *local) endSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	for x := range s.sessions {
		x.end()
	}
	clear(s.sessions)
}

func (x *session) Lost() <-chan struct{} { return x.lost }

func (x *session) end() { x.once.Do(func() { close(x.lost) }) }

func (x *session) Close() error {
	x.s.mu.Lock()
	delete(x.s.sessions, x)
	x.s.mu.Unlock()
	x.end()
	return nil
}
