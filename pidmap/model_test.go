package pidmap

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the specification as slow code: per producer every batch ever written, with sequence numbers that never
// wrap. Nothing of it is shared with the map's arithmetic.
type model struct {
	mod     int64
	pids    map[int64]*history
	open    map[int64]int64 // first offset -> pid
	closing []ending        // closed, marker not durable
	written map[place]int64 // offset of each record
	durable int64
}

type ending struct{ first, marker int64 }

// place is what must be written at most once: a number of an epoch, unless the producer was forgotten in between.
type place struct {
	pid, seq int64
	life     int
	epoch    int16
}

// history is one producer. Numbers are unwrapped.
type history struct {
	known, held bool // held: left by Refuse
	epoch       int16
	coord       int32
	life        int    // raised whenever the state was lost
	batches     []span // of this epoch and life
	slots       int    // of them the newest ones remembered exactly
	proven      int64  // every number from here to the last is proven written
	txn         int64
}

type span struct {
	first, last, base int64
	crc               uint32
}

func (h *history) last() int64 { return h.batches[len(h.batches)-1].last }

func newModel(mod int64) *model {
	return &model{mod: mod, pids: map[int64]*history{}, open: map[int64]int64{}, written: map[place]int64{}}
}

func (m *model) get(pid int64) *history {
	if m.pids[pid] == nil {
		m.pids[pid] = &history{txn: -1}
	}
	return m.pids[pid]
}

// try is a batch in unwrapped numbers.
type try struct {
	pid, first, last int64
	epoch            int16
	txn, fromZero    bool
	verified         bool // holds the guard
}

// verdict is section 4 of the specification, row by row.
func (m *model) verdict(b try) (Verdict, span) {
	h := m.get(b.pid)
	zero := b.first%m.mod == 0
	if !h.known && !h.held {
		if b.txn && !b.verified {
			return TxnUnverified, span{}
		}
		if !zero && b.fromZero {
			return OutOfOrder, span{}
		}
		return Accept, span{}
	}
	if b.epoch < h.epoch {
		return Fenced, span{}
	}
	next := zero
	if b.epoch == h.epoch && len(h.batches) > 0 {
		for i := len(h.batches) - h.slots; i < len(h.batches); i++ {
			if s := h.batches[i]; s.first == b.first && s.last == b.last {
				return Duplicate, s
			}
		}
		if b.first >= h.proven && b.last <= h.last() && h.last()-b.first < m.mod/2-1 {
			return DuplicateOld, span{}
		}
		next = b.first == h.last()+1
	}
	switch {
	case b.txn && !(h.txn >= 0 && b.epoch == h.epoch) && !b.verified:
		return TxnUnverified, span{}
	case !next:
		return OutOfOrder, span{}
	case !b.txn && h.txn >= 0:
		return TxnOpen, span{}
	}
	return Accept, span{}
}

// append writes an accepted batch and fails if a number of it was written before.
func (m *model) append(t *rapid.T, b try, base int64, crc uint32) {
	h := m.get(b.pid)
	if !h.known {
		h.known, h.held, h.epoch, h.coord, h.batches, h.slots = true, false, b.epoch, -1, nil, 0
	}
	if b.epoch != h.epoch {
		h.epoch, h.batches, h.slots = b.epoch, nil, 0
	}
	if len(h.batches) == 0 {
		h.proven = b.first
	}
	h.batches = append(h.batches, span{b.first, b.last, base, crc})
	h.slots = min(h.slots+1, Window)
	for s := b.first; s <= b.last; s++ {
		k := place{b.pid, s, h.life, b.epoch}
		if at, twice := m.written[k]; twice {
			t.Fatalf("producer %d epoch %d: record %d written at %d and again at %d", b.pid, b.epoch, s, at, base+s-b.first)
		}
		m.written[k] = base + s - b.first
	}
	if b.txn && h.txn < 0 {
		h.txn = base
		m.open[base] = b.pid
	}
}

// proof fails unless every record of a batch called a duplicate is in the log.
func (m *model) proof(t *rapid.T, b try, base int64) {
	h := m.get(b.pid)
	for s := b.first; s <= b.last; s++ {
		at, ok := m.written[place{b.pid, s, h.life, b.epoch}]
		if !ok {
			t.Fatalf("producer %d epoch %d: record %d called a duplicate, it was never written", b.pid, b.epoch, s)
		}
		if base >= 0 && at != base+s-b.first {
			t.Fatalf("producer %d: record %d is at %d, answered %d", b.pid, s, at, base+s-b.first)
		}
	}
}

// forget loses a producer: expiry.
func (h *history) forget() {
	h.known, h.held, h.batches, h.slots, h.life, h.epoch = false, false, nil, 0, h.life+1, 0
}

func (m *model) unstable() int64 {
	low := int64(-1)
	for first := range m.open {
		if low < 0 || first < low {
			low = first
		}
	}
	for _, e := range m.closing {
		if e.marker >= m.durable && (low < 0 || e.first < low) {
			low = e.first
		}
	}
	return low
}

// machine runs the map and the model side by side.
type machine struct {
	*partition
	model *model
}

func (s *machine) wrap(n int64) int32 { return int32(n % s.model.mod) }

func (s *machine) batch(b try) *Batch {
	return &Batch{
		PID: b.pid, Epoch: b.epoch, FirstSeq: s.wrap(b.first), LastSeq: s.wrap(b.last), CRC: uint32(b.first*7 + b.last),
		Txn: b.txn, FromZero: b.fromZero, Touch: s.touch,
	}
}

// send offers a batch, with and then without the guard where one is asked for, and compares verdicts.
func (s *machine) send(t *rapid.T, b try) {
	w := s.batch(b)
	d := s.Check(w)
	want, slot := s.model.verdict(b)
	if d.Verdict != want {
		t.Fatalf("%+v: verdict %d, want %d\nmodel %+v\nmap %+v", b, d.Verdict, want, s.model.get(b.pid), s.current(b.pid))
	}
	switch d.Verdict {
	case TxnUnverified:
		// A batch that is dropped here leaves its guard; the model knows no guards, so only lone ones are looked at.
		w.Guard, b.verified = d.Guard, true
		if d = s.Check(w); d.Verdict == OutOfOrder && s.overtakes(w) {
			return
		}
		if want, _ = s.model.verdict(b); d.Verdict != want {
			t.Fatalf("%+v: verdict %d with the guard, want %d", b, d.Verdict, want)
		}
	case Duplicate:
		s.model.proof(t, b, d.Stamp.Base())
		if d.Stamp.Base() != slot.base || d.Stamp.CRC != slot.crc {
			t.Fatalf("%+v: duplicate of %+v, want %+v", b, d.Stamp, slot)
		}
	case DuplicateOld:
		s.model.proof(t, b, -1)
		if h := s.model.get(b.pid); d.Seek.Until != s.end64(h) || d.Seek.Before != h.batches[len(h.batches)-h.slots].base {
			t.Fatalf("%+v: %+v", b, d.Seek)
		}
	}
	if d.Verdict == Accept {
		at := At{Base: s.end, Last: s.end + b.last - b.first, Time: s.end, Pos: s.end}
		s.Commit(w, at)
		s.model.append(t, b, s.end, w.CRC)
		s.end = at.Last + 1
	}
}

func (s *machine) end64(h *history) int64 {
	b := h.batches[len(h.batches)-1]
	return b.base + b.last - b.first
}

// mark offers a marker and compares.
func (s *machine) mark(t *rapid.T, k Marker) {
	h := s.model.get(k.PID)
	d, err := s.CheckMarker(&k)
	var want error
	switch {
	case !h.known:
	case k.Epoch < h.epoch, k.Version >= 2 && k.Epoch == h.epoch && h.txn >= 0:
		want = ErrFenced
	case k.CoordEpoch < h.coord:
		want = ErrCoordFenced
	}
	if err != want {
		t.Fatalf("%+v: %v, want %v", k, err, want)
	}
	if err != nil {
		return
	}
	delete(s.model.open, h.txn)
	stable := int64(-1)
	for first := range s.model.open {
		if stable < 0 || first < stable {
			stable = first
		}
	}
	if d.First != h.txn || d.Had != (h.txn >= 0) || d.Stable != stable {
		t.Fatalf("%+v: %+v, want first %d, stable %d", k, d, h.txn, stable)
	}
	s.CommitMarker(&k, At{Base: s.end, Last: s.end, Time: k.Time})
	if h.txn >= 0 {
		s.model.closing = append(s.model.closing, ending{h.txn, s.end})
	}
	if !h.known || h.epoch != k.Epoch {
		h.batches, h.slots = nil, 0
	}
	h.known, h.held, h.epoch, h.coord, h.txn = true, false, k.Epoch, k.CoordEpoch, -1
	s.end++
}

// restart saves and loads, as Kafka's file or as ours.
func (s *machine) restart(t *rapid.T, trailer bool) {
	file := s.snapshot(t)
	if !trailer {
		n := int(file[9]) | int(file[8])<<8
		file = file[:headLen+n*entryLen]
		seal(file)
	}
	fresh := newMap(Options{ExpireAfter: time.Minute}, uint64(s.model.mod))
	if err := fresh.Load(file, s.touch); err != nil {
		t.Fatal(err)
	}
	before := s.state()
	s.Map = fresh
	if trailer && !maps.Equal(s.state(), before) {
		t.Fatalf("after the restart: %s", difference(s.state(), before))
	}
	s.model.durable, s.model.closing = s.end, nil // what a restart shows is synced first
	for _, h := range s.model.pids {
		h.held = false
		if !h.known {
			h.epoch = 0
		}
		if !trailer && len(h.batches) > 0 {
			newest := &h.batches[len(h.batches)-1]
			h.slots, h.proven, newest.crc = 1, newest.first, 0
		}
	}
}

// expire lets idle producers go.
func (s *machine) expire() {
	s.touch += 60_000
	s.Expire(s.touch, 1<<20)
	for _, h := range s.model.pids {
		if h.txn < 0 {
			h.forget()
		}
	}
}

// compare fails unless map and model hold the same.
func (s *machine) compare(t *rapid.T) {
	if s.model.durable = max(s.model.durable, s.end-rapid.Int64Range(0, 40).Draw(t, "lag")); true {
		o, _, ok := s.Unstable(s.model.durable)
		if want := s.model.unstable(); o != want || ok != (want >= 0) {
			t.Fatalf("unstable from %d, want %d", o, want)
		}
	}
	known := 0
	for pid, h := range s.model.pids {
		p := s.current(pid)
		if !h.known {
			if p.PID != 0 || p.N != 0 {
				t.Fatalf("producer %d should be unknown: %+v", pid, p)
			}
			continue
		}
		known++
		proven := int64(0)
		if len(h.batches) > 0 {
			proven = min(h.last()-h.proven+1, s.model.mod/2-1)
		}
		if p.PID != pid || p.Epoch != h.epoch || int(p.N) != h.slots || p.TxnFirst != h.txn || int64(p.Span) != proven {
			t.Fatalf("map %+v\nmodel %+v", p, h)
		}
		for i, b := range h.batches[len(h.batches)-h.slots:] {
			if st := p.Stamps[i]; st.Base() != b.base || st.LastSeq != s.wrap(b.last) || int64(st.Delta) != b.last-b.first {
				t.Fatalf("slot %d of producer %d: %+v, want %+v", i, pid, st, b)
			}
		}
	}
	if got := len(s.state()); got != known {
		t.Fatalf("%d producers, want %d", got, known)
	}
}

// step does something a client, a coordinator or the clock may do.
func (s *machine) step(t *rapid.T) {
	pid := rapid.Int64Range(1, 3).Draw(t, "pid")
	h := s.model.get(pid)
	b := try{pid: pid, epoch: h.epoch, txn: rapid.Bool().Draw(t, "txn")}
	n := rapid.Int64Range(0, 5).Draw(t, "delta") // five batches stay below half of 64 numbers
	switch what := rapid.IntRange(0, 15).Draw(t, "what"); {
	case what <= 5: // the next batch
		if len(h.batches) > 0 {
			b.first = h.last() + 1
		}
		if !h.known && !h.held && rapid.Bool().Draw(t, "later") {
			b.first = rapid.Int64Range(s.model.mod-12, s.model.mod-1).Draw(t, "from")
			b.fromZero = rapid.Bool().Draw(t, "strict")
		}
		b.last = b.first + n
		s.send(t, b)
	case what <= 8: // a retry of any earlier batch within half the range
		if len(h.batches) == 0 {
			return
		}
		old := rapid.SampledFrom(h.batches).Draw(t, "old")
		if h.last()-old.first >= s.model.mod/2 {
			return
		}
		b.first, b.last = old.first, old.last
		b.epoch -= int16(rapid.IntRange(0, 9).Draw(t, "zombie") / 9)
		s.send(t, b)
	case what <= 10: // other borders
		if len(h.batches) == 0 {
			return
		}
		b.first = h.last() + rapid.Int64Range(-s.model.half()+1, 8).Draw(t, "shift")
		if b.first < 0 {
			return
		}
		b.last = b.first + n
		s.send(t, b)
	case what == 11: // a raised epoch, at 0 or not
		b.epoch += int16(rapid.IntRange(1, 3).Draw(t, "raise"))
		b.first = rapid.SampledFrom([]int64{0, 0, 0, 1, s.model.mod - 1}).Draw(t, "from")
		b.last = b.first + n
		s.send(t, b)
	case what <= 13:
		s.mark(t, Marker{
			PID: pid, Epoch: max(0, h.epoch+int16(rapid.IntRange(-1, 2).Draw(t, "raise"))),
			CoordEpoch: max(0, h.coord+int32(rapid.IntRange(-1, 1).Draw(t, "coordinator"))),
			Version:    int8(rapid.IntRange(1, 2).Draw(t, "version")), Time: s.end,
		})
	case what == 14:
		s.restart(t, rapid.Bool().Draw(t, "trailer"))
	default:
		if rapid.Bool().Draw(t, "refuse") {
			b.last = n
			s.Refuse(s.batch(b))
			h.held = h.held || !h.known
		} else if rapid.IntRange(0, 3).Draw(t, "expire") == 0 {
			s.expire()
		}
	}
	s.compare(t)
}

// half is the farthest shift behind that the small modulus still tells from one ahead.
func (m *model) half() int64 { return min(m.mod/2, 40) }

// TestModel: in random streams of appends, retries, raised epochs, markers, restarts and expiries each record of a
// producer's life is accepted once, a duplicate is claimed only where it is proven, and the state is the model's.
func TestModel(t *testing.T) {
	for _, mod := range []int64{64, 1 << 31} {
		t.Run(fmt.Sprint(mod), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := &machine{&partition{
					Map: newMap(Options{ExpireAfter: time.Minute}, uint64(mod)), end: 100, touch: 1000,
				}, newModel(mod)}
				for range rapid.IntRange(1, 300).Draw(t, "steps") {
					s.step(t)
				}
			})
		})
	}
}
