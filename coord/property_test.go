package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
	"sekali/batch"
	"sekali/internal/clock"
)

// op is what a partition of the model holds: a data batch or a marker.
type op struct {
	pid    int64
	epoch  int16
	data   *instance // nil: a marker
	commit bool
	coord  int32
}

// partition is a log of the model: what is written, of it what is durable.
type partition struct {
	tp     TP
	ops    []op
	synced int
	dones  []func() // of markers behind synced
}

// entryOf folds the log into what it knows of a producer: its epoch (-1: unknown), the open transaction, the highest
// coordinator epoch and the number of markers.
func (p *partition) entryOf(pid int64) (epoch int16, open *op, coord int32, markers int) {
	epoch, coord = -1, -1
	for i := range p.ops {
		o := &p.ops[i]
		switch {
		case o.pid != pid:
			continue
		case o.data != nil && open == nil:
			open = o
		case o.data == nil:
			open, coord = nil, o.coord
			markers++
		}
		epoch = o.epoch
	}
	return epoch, open, coord, markers
}

// instance is one transaction of one session, as its application sees it.
type instance struct {
	name string
	told *bool // the outcome its EndTxn was answered with
}

// session is a producer: it knows the pair it was told, and never learns of other sessions of its id.
type session struct {
	name   string
	id     string
	tv     int8
	at     InitOut // PID -1: not initialised
	dead   bool
	busy   int   // requests on their way
	ending *bool // the outcome it has asked for and must go on asking for
	failed bool  // a batch failed: only an abort may follow
	inst   *instance
	acked  int // batches acknowledged in this transaction
	asked  int // batches sent
	count  int
}

type pair struct {
	pid   int64
	epoch int16
}

// decision is a durable Prepare record.
type decision struct {
	id      string
	at      pair
	startMs int64
}

// world is a machine with clients, whose process may die at any moment.
type world struct {
	t     *rapid.T
	cfg   Config
	clk   *clock.Sim
	pids  *counter
	ids   *ProducerIDs
	c     *Coordinator
	j     *fakeJournal
	parts []*partition
	gen   int // process; callbacks of an earlier one are not heard
	coord int32

	sessions []*session
	born     int
	handed   map[pair]string // to which session
	owner    map[int64]string
	newest   map[string]pair
	retired  map[int64]bool
	seen     int64 // journal records looked at
	outcome  map[decision]bool
	prepared map[pair]map[bool]bool // markers that may be written
	recovery bool
	loose    map[pair]bool // aborts of the reconciliation
	found    int           // open transactions it was given
}

// bits are 12 fair ones. rapid's own ranges prefer small numbers, with which clients would fence each other all the
// time.
var bits = rapid.Custom(func(t *rapid.T) int {
	n := 0
	for range 12 {
		n <<= 1
		if rapid.Bool().Draw(t, "bit") {
			n++
		}
	}
	return n
})

// n is a number below limit (at most 4096).
func (w *world) n(limit int, what string) int { return bits.Draw(w.t, what) * limit / 4096 }

// marker takes a marker: the rules of spec/transactions.md 5.7.
func (w *world) marker(tp TP, m batch.Marker, redo bool, done func(error)) {
	w.look()
	p := w.part(tp)
	at := pair{m.PID, m.Epoch}
	epoch, open, coord, _ := p.entryOf(m.PID)
	if w.recovery && !m.Commit && !w.prepared[at][false] {
		if open != nil && m.Epoch <= epoch && epoch <= maxClientEpoch {
			w.t.Fatalf("reconciliation aborts epoch %d with %d: the window of the producer would stay", epoch, m.Epoch)
		}
		w.loose[at] = true
	}
	if !w.prepared[at][m.Commit] && !(w.loose[at] && !m.Commit) {
		w.t.Fatalf("marker %+v of %v without a durable decision (I9)", m, tp)
	}
	if w.n(10, "marker fails") == 0 {
		done(errors.New("offline"))
		return
	}
	switch {
	case m.CoordEpoch < coord, m.Version < 2 && m.Epoch < epoch,
		m.Version >= 2 && m.Epoch <= epoch && !(m.Epoch == epoch && open == nil):
		done(ErrFenced)
	case redo && open == nil && epoch == m.Epoch:
		p.await(func() { done(nil) })
	default:
		w.t.Logf("marker %+v in %s-%d", m, tp.Topic, tp.Partition)
		p.ops = append(p.ops, op{pid: m.PID, epoch: m.Epoch, commit: m.Commit, coord: m.CoordEpoch})
		p.await(func() { done(nil) })
	}
}

func (p *partition) await(done func()) {
	if p.synced == len(p.ops) {
		done()
		return
	}
	p.dones = append(p.dones, done)
}

func (p *partition) flush() {
	p.synced = len(p.ops)
	dones := p.dones
	p.dones = nil
	for _, fn := range dones {
		fn()
	}
}

func (w *world) part(tp TP) *partition {
	for _, p := range w.parts {
		if p.tp == tp {
			return p
		}
	}
	w.t.Fatalf("marker for %v, which nobody wrote to", tp)
	return nil
}

// process is the sink of one process: a dead one writes nothing.
type process struct {
	w   *world
	gen int
}

// Marker is Sink's.
func (k process) Marker(tp TP, m batch.Marker, redo bool, done func(error)) {
	if k.gen == k.w.gen {
		k.w.marker(tp, m, redo, done)
	}
}

// start begins a process over what is durable.
func (w *world) start() {
	w.gen++
	w.coord++
	w.t.Logf("process %d", w.coord)
	w.ids = NewProducerIDs(w.pids, 4)
	w.c = New(w.cfg, w.ids, process{w, w.gen}, nil, w.clk)
	var open []OpenTxn
	for _, p := range w.parts {
		pids := map[int64]bool{}
		for i, o := range p.ops {
			if pids[o.pid] {
				continue
			}
			pids[o.pid] = true
			if epoch, first, _, _ := p.entryOf(o.pid); first != nil {
				open = append(open, OpenTxn{TP: p.tp, PID: o.pid, Epoch: epoch, First: int64(i)})
			}
		}
	}
	w.look()
	w.found += len(open)
	w.recovery = true
	if err := w.c.Recover(context.Background(), []Journal{w.j}, w.coord, open); err != nil {
		w.t.Fatal(err)
	}
	w.recovery = false
}

// crash ends the process; of what is not durable any prefix of each log is kept.
func (w *world) crash() {
	w.gen++
	w.c.Close()
	w.ids.Close()
	w.j = w.j.crash(w.n(4, "records kept"))
	for _, p := range w.parts {
		p.synced = min(len(p.ops), p.synced+w.n(4, "batches kept"))
		p.ops, p.dones = slices.Clone(p.ops[:p.synced]), nil
	}
	for _, s := range w.sessions {
		if s.busy > 0 && s.ending == nil && s.asked > s.acked {
			s.failed = true
		}
		s.busy = 0
	}
	w.start()
}

// look reads what became durable in the journal, and judges it (I6, I10).
func (w *world) look() {
	for ; w.seen < w.j.synced; w.seen++ {
		l, err := DecodeRecord(w.j.recs[w.seen])
		if err != nil {
			w.t.Fatal(err)
		}
		if l.Deleted {
			w.retired[w.newest[l.TxnID].pid] = true
			delete(w.newest, l.TxnID)
			continue
		}
		w.t.Logf("durable: %+v", l.Info)
		at := pair{l.PID, l.Epoch}
		if o, ok := w.owner[at.pid]; ok && o != l.TxnID {
			w.t.Fatalf("producer id %d of %q and %q", at.pid, o, l.TxnID)
		}
		w.owner[at.pid] = l.TxnID
		before, ok := w.newest[l.TxnID]
		switch {
		case w.retired[at.pid]:
			w.t.Fatalf("%q is back at producer id %d", l.TxnID, at.pid)
		case ok && before.pid == at.pid && at.epoch < before.epoch:
			w.t.Fatalf("%q went from epoch %d back to %d", l.TxnID, before.epoch, at.epoch)
		case ok && before.pid != at.pid:
			w.retired[before.pid] = true
		}
		w.newest[l.TxnID] = at
		if l.State != PrepareCommit && l.State != PrepareAbort {
			continue
		}
		commit := l.State == PrepareCommit
		d := decision{l.TxnID, at, l.StartedMs}
		if was, ok := w.outcome[d]; ok && was != commit {
			w.t.Fatalf("%+v decided both ways (I10)", d)
		}
		w.outcome[d] = commit
		if w.prepared[at] == nil {
			w.prepared[at] = map[bool]bool{}
		}
		if l.ClientTV == 2 && w.prepared[at][!commit] {
			w.t.Fatalf("two outcomes of %+v under transaction version 2", at)
		}
		w.prepared[at][commit] = true
	}
}

// give notes a pair a session was told; it must not be another one's (I6).
func (w *world) give(s *session, out InitOut) {
	at := pair{out.PID, out.Epoch}
	if name, ok := w.handed[at]; ok && name != s.name {
		w.t.Fatalf("%+v handed to %s and %s", at, name, s.name)
	}
	if out.Epoch > maxClientEpoch || out.Epoch < 0 || out.PID < 0 {
		w.t.Fatalf("%s was told %+v", s.name, at)
	}
	w.handed[at] = s.name
	s.at = out
	s.begin()
}

func (s *session) begin() {
	s.count++
	s.inst = &instance{name: fmt.Sprintf("%s transaction %d", s.name, s.count)}
	s.failed, s.acked, s.asked, s.ending = false, 0, 0, nil
}

// fatal reports whether a code ends the session, as it does a client.
func fatal(code *kerr.Error) bool {
	switch code {
	case kerr.ProducerFenced, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState:
		return true
	}
	return false
}

// heard wraps a callback: only the process that was asked may answer, and only once.
func (w *world) heard(s *session, fn func()) func() {
	gen, n := w.gen, 0
	s.busy++
	return func() {
		if gen != w.gen {
			return
		}
		if n++; n != 1 {
			w.t.Fatalf("%s: answered twice", s.name)
		}
		s.busy--
		fn()
	}
}

func (w *world) init(s *session) {
	var code *kerr.Error
	var out InitOut
	got := w.heard(s, func() {
		w.t.Logf("%s of %q: init %v answered %v %v", s.name, s.id, s.at, out, code)
		switch {
		case code == nil:
			w.look()
			w.give(s, out)
		case fatal(code):
			s.dead = true
		}
	})
	timeout := int32(5+w.n(55, "timeout")) * 1000
	w.c.Init(InitIn{s.id, timeout, s.at.PID, s.at.Epoch}, func(o InitOut, c *kerr.Error) { out, code = o, c; got() })
}

// produce registers a partition and writes a batch behind the registration, or, under version 1, when it is durable and
// verified. The batch is acknowledged when both are durable.
func (w *world) produce(s *session, p *partition) {
	at, inst := s.at, s.inst
	_, _, _, guard := p.entryOf(at.PID)
	in := Part{TxnID: s.id, PID: at.PID, Epoch: at.Epoch, TV: s.tv, TPs: []TP{p.tp}}
	gen, stored, registered, failed := w.gen, false, false, false
	s.asked++
	var got func()
	fail := func(code *kerr.Error) {
		failed = true
		got()
		if s.inst == inst {
			s.failed = true
			s.dead = s.dead || fatal(code)
		}
	}
	ack := func() {
		if registered && stored && !failed {
			got()
			if s.inst == inst {
				s.acked++
			}
		}
	}
	got = w.heard(s, func() {})
	write := func() {
		if gen != w.gen || failed {
			return
		}
		epoch, open, _, markers := p.entryOf(at.PID)
		if epoch > at.Epoch || markers != guard && open == nil {
			fail(kerr.InvalidTxnState)
			return
		}
		w.t.Logf("%s: batch %v in %s-%d", inst.name, at, p.tp.Topic, p.tp.Partition)
		p.ops = append(p.ops, op{pid: at.PID, epoch: at.Epoch, data: inst})
		p.await(func() {
			stored = gen == w.gen
			ack()
		})
	}
	w.c.Add(in, func(code *kerr.Error) {
		if code == nil && s.tv >= 2 {
			write()
		}
	}, func(code *kerr.Error) {
		switch {
		case gen != w.gen, failed:
		case code != nil:
			fail(code)
		case s.tv >= 2:
			registered = true
			ack()
		default:
			_, _, _, guard = p.entryOf(at.PID)
			w.c.Verify(in, func(codes []*kerr.Error) {
				if gen != w.gen {
					return
				}
				if codes[0] != nil {
					fail(codes[0])
					return
				}
				registered = true
				write()
			})
		}
	})
}

func (w *world) end(s *session) {
	if s.ending == nil {
		commit := !s.failed && s.acked > 0 && w.n(4, "commit") > 0
		s.ending = &commit
	}
	commit, inst := *s.ending, s.inst
	at := s.at
	var code *kerr.Error
	var out InitOut
	got := w.heard(s, func() {
		w.t.Logf("%s of %q: end TV%d %v commit %v answered %v %v", inst.name, s.id, s.tv, at, commit, out, code)
		switch {
		case code == nil:
			w.look()
			inst.told = &commit
			decided := pair{at.PID, at.Epoch}
			if s.tv >= 2 {
				decided.epoch++
			}
			if !w.prepared[decided][commit] {
				w.t.Fatalf("%s: commit %v answered before it is durable", inst.name, commit)
			}
			if s.tv >= 2 {
				w.give(s, out)
			} else {
				s.begin()
			}
		case fatal(code):
			s.dead = true
		}
	})
	w.c.End(EndIn{s.id, at.PID, at.Epoch, s.tv, commit}, func(o InitOut, c *kerr.Error) { out, code = o, c; got() })
}

// act lets a session send one request, as a client would.
func (w *world) act() {
	w.sessions = slices.DeleteFunc(w.sessions, func(s *session) bool { return s.dead && s.busy == 0 })
	if len(w.sessions) == 0 || len(w.sessions) < 6 && w.n(60, "new session") == 0 {
		w.born++
		s := &session{name: fmt.Sprintf("session %d", w.born), at: noOut}
		s.id = []string{"x", "y", "worn"}[w.n(3, "id")]
		if w.cfg.TV == 2 && w.n(3, "version") > 0 {
			s.tv = 2
		}
		s.begin()
		w.sessions = append(w.sessions, s)
	}
	s := w.sessions[w.n(len(w.sessions), "session")]
	k := w.n(20, "request")
	switch {
	case s.dead:
	case s.at.PID == -1:
		if s.busy == 0 {
			w.init(s)
		}
	case s.ending == nil && !s.failed && k < 10:
		w.produce(s, w.parts[w.n(len(w.parts), "partition")])
	case s.busy > 0:
	case k == 19:
		w.init(s) // KIP-360
	case s.ending != nil || s.asked > 0:
		w.end(s)
	}
}

// step is one thing that happens to the machine.
func (w *world) step() {
	switch k := w.n(200, "step"); {
	case k < 110:
		w.act()
	case k < 140:
		w.j.flush()
	case k < 190:
		w.parts[w.n(len(w.parts), "flushed")].flush()
	case k < 192:
		w.j.refuse = []error{errors.New("full")}
	case k < 195:
		w.clk.Advance(time.Duration(w.n(3000, "ms")) * time.Millisecond)
		w.c.Tick()
	case k < 196:
		w.clk.Advance(time.Duration(w.n(100, "s")) * time.Second)
		w.c.Tick()
	case k < 199:
		w.crash()
	default:
		w.j.broken = errors.New("fsync")
		w.j.flush()
		w.j.broken = nil
		w.crash()
	}
}

// settled asserts what must hold when all is said and written: nothing stays undecided, and a transaction has one
// outcome everywhere (I8, I10).
func (w *world) settled() {
	s := w.c.all()[0]
	for _, p := range w.parts {
		outcomes := map[*instance]map[bool]int{}
		for i, o := range p.ops {
			if o.data == nil {
				continue
			}
			end := slices.IndexFunc(p.ops[i:], func(m op) bool { return m.data == nil && m.pid == o.pid })
			if end < 0 {
				e := s.entries[w.owner[o.pid]]
				if e == nil || e.t.state != Ongoing || e.t.pid != o.pid || e.t.epoch != o.epoch || !contains(e.t.tps, []TP{p.tp}) {
					w.t.Fatalf("%s hangs in %v", o.data.name, p.tp)
				}
				continue
			}
			if outcomes[o.data] == nil {
				outcomes[o.data] = map[bool]int{}
			}
			outcomes[o.data][p.ops[i+end].commit]++
		}
		for in, got := range outcomes {
			if len(got) != 1 || in.told != nil && got[*in.told] == 0 {
				w.t.Fatalf("%s in %v: outcomes %v, told %v", in.name, p.tp, got, in.told)
			}
		}
	}
	for id, e := range s.entries {
		if e.t.state == PrepareCommit || e.t.state == PrepareAbort || e.t.pending != noState || e.comp != nil {
			w.t.Fatalf("%q stays in %v, pending %v", id, e.t.state, e.t.pending)
		}
	}
}

// TestEveryInterleavingKeepsThePromises runs random clients of both generations, zombies among them, against a
// coordinator whose completions are delayed, whose log refuses records and whose process dies, and checks I8 to I10: an
// outcome never changes after a durable Prepare, no marker before it, every (producer id, epoch) is handed out once,
// epochs never go back, one outcome for each (producer id, epoch) under transaction version 2.
func TestEveryInterleavingKeepsThePromises(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			t: t, clk: clock.NewSim(1_000_000), pids: &counter{next: 1000},
			handed: map[pair]string{}, owner: map[int64]string{}, newest: map[string]pair{}, retired: map[int64]bool{},
			outcome: map[decision]bool{}, prepared: map[pair]map[bool]bool{}, loose: map[pair]bool{},
			parts: []*partition{{tp: tp("a", 0)}, {tp: tp("a", 1)}, {tp: tp("offsets", 0)}},
		}
		w.cfg = Config{TimeoutMaxMs: 900_000, IDExpireMs: 600_000, TV: int8(1 + w.n(2, "level")), Inline: true}
		worn := newTxn(900)
		worn.epoch, worn.timeoutMs = 32764, 60_000
		w.j = &fakeJournal{hold: true, recs: []Record{{encodeKey("worn"), encodeValue(&worn, -1)}}, synced: 1}
		w.start()
		defer func() { w.gen++; w.c.Close(); w.ids.Close() }()
		for range 700 {
			w.step()
			w.clk.Advance(time.Millisecond) // starts are unlike
			w.look()
		}
		w.j.refuse = nil
		for range 100 {
			w.j.flush()
			for _, p := range w.parts {
				p.flush()
			}
			w.clk.Advance(time.Second)
			w.c.Tick()
		}
		w.look()
		w.settled()
		for d, commit := range w.outcome {
			seen[fmt.Sprintf("TV%d commit %v", w.cfg.TV, commit)]++
			if d.at.epoch == 32767 {
				seen["exhausted"]++
			}
		}
		seen["open at a start"] += w.found
		seen["loose aborts"] += len(w.loose)
		seen["pairs"] += len(w.handed)
	})
	for _, what := range []string{
		"TV1 commit true", "TV1 commit false", "TV2 commit true", "TV2 commit false", "exhausted", "open at a start",
	} {
		if seen[what] < 5 {
			t.Errorf("%s: %d times, so the test shows little", what, seen[what])
		}
	}
	t.Log(seen)
}
