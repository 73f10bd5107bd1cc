package pidmap

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestExpire: idle time by the monotonic clock decides, record timestamps do not, open transactions stay.
func TestExpire(t *testing.T) {
	p := &partition{Map: New(Options{ExpireAfter: time.Minute}), end: 100}
	p.touch = 0
	p.want(t, p.batch(1, 0, 0, 1), Accept)
	p.want(t, p.txn(2, 0, 0, 1), Accept)
	p.Refuse(p.batch(3, 0, 0, 1))
	p.touch = 30_000
	p.want(t, p.batch(4, 0, 0, 1), Accept)
	old := p.batch(5, 0, 0, 1)
	p.Commit(old, At{Base: p.end, Last: p.end, Time: 1}) // a record of 1970
	p.end++
	if n := p.Expire(59_900, 1000); n != 0 || p.Len() != 5 {
		t.Fatalf("%d expired after 59.9 s", n)
	}
	if n := p.Expire(60_000, 1000); n != 2 || p.Len() != 3 {
		t.Fatalf("%d expired after 60 s, %d left", n, p.Len())
	}
	for pid, want := range map[int64]bool{1: false, 2: true, 3: false, 4: true, 5: true} {
		if _, e := p.lookup(pid, hash(pid)); (e != nil) != want {
			t.Errorf("producer %d held: %v", pid, e != nil)
		}
	}
	if n := p.Expire(10_000_000, 1000); n != 2 || p.Len() != 1 {
		t.Fatalf("%d expired, %d left: an open transaction is never forgotten", n, p.Len())
	}
	p.mark(2, 0, 1, 1) // touched by the clock Expire brought
	if n := p.Expire(10_059_000, 1000); n != 0 {
		t.Fatal("a marker is an append")
	}
	if n := p.Expire(10_060_000, 1000); n != 1 || p.Len() != 0 || p.chunks != nil || p.dir != nil {
		t.Fatalf("%d expired, %d left, the memory of an empty map is given back", n, p.Len())
	}
	if n, _ := p.Evicted(); n != 0 {
		t.Fatal("expiry was counted as eviction")
	}
	p.want(t, p.batch(1, 0, 7, 1), Accept) // unknown again, goes on
	never := newPartition(1 << 31)
	never.want(t, never.batch(1, 0, 0, 1), Accept)
	if never.Expire(math.MaxInt64, 10) != 0 {
		t.Fatal("expired without an expiry time")
	}
}

// TestExpireBudget: a call looks at a bounded part and the next one goes on.
func TestExpireBudget(t *testing.T) {
	p := &partition{Map: New(Options{ExpireAfter: time.Second})}
	const producers = 10 * chunkEntries
	for pid := range int64(producers) {
		p.want(t, p.batch(pid, 0, 0, 1), Accept)
	}
	calls, removed := 0, 0
	for ; p.Len() > 0; calls++ {
		n := p.Expire(1000, chunkEntries)
		if n > chunkEntries {
			t.Fatalf("%d removed by one call", n)
		}
		removed += n
	}
	if calls != 10 || removed != producers {
		t.Fatalf("%d calls removed %d", calls, removed)
	}
}

// TestEviction: beyond the cap the least recently touched producer without an open transaction goes, and it is told.
func TestEviction(t *testing.T) {
	const hour = 3_600_000
	p := &partition{Map: New(Options{ProducersMax: 3}), end: 100}
	add := func(pid int64, touch int64, txn bool) {
		t.Helper()
		p.touch = touch
		b := p.batch(pid, 0, 0, 1)
		b.Txn = txn
		p.want(t, b, Accept)
	}
	told := func(want int, wantEarly bool) {
		t.Helper()
		if n, early := p.Evicted(); n != want || early != wantEarly {
			t.Fatalf("%d evicted (early %v), want %d (%v)", n, early, want, wantEarly)
		}
	}
	add(1, 0, true)
	add(2, hour, false)
	add(3, 2*hour, false)
	told(0, false)
	p.touch = 3 * hour
	p.want(t, p.batch(2, 0, 1, 1), Accept)
	add(4, 26*hour, false) // 3 has been idle for 24 hours, 2 for 23
	told(1, false)
	add(5, 26*hour+1000, false)
	told(1, true)
	told(0, false)
	if fmt.Sprint(keys(p.state())) != "[1 4 5]" {
		t.Fatalf("left are %v", keys(p.state()))
	}
	p.touch = 27 * hour
	p.want(t, p.txn(4, 0, 1, 1), Accept)
	p.want(t, p.txn(5, 0, 1, 1), Accept)
	add(6, 27*hour, true) // nobody can go: beyond the cap
	told(0, false)
	if p.Len() != 4 {
		t.Fatalf("%d held", p.Len())
	}
	p.mark(1, 0, 1, 1)
	add(7, 28*hour, false)
	told(1, true)
	if fmt.Sprint(keys(p.state())) != "[4 5 6 7]" {
		t.Fatalf("left are %v", keys(p.state()))
	}
}

// TestEarlyMeansSomethingLost: what Refuse left claims nothing, so its eviction is counted but not told as early.
func TestEarlyMeansSomethingLost(t *testing.T) {
	p := newPartition(1 << 31)
	p.max = 2
	p.Refuse(p.batch(1, 0, 0, 1))
	p.want(t, p.batch(2, 0, 0, 1), Accept)
	p.want(t, p.batch(3, 0, 0, 1), Accept)
	if n, early := p.Evicted(); n != 1 || early || fmt.Sprint(keys(p.state())) != "[2 3]" {
		t.Fatalf("%d evicted, early %v, left %v", n, early, keys(p.state()))
	}
}

// TestFull: where nothing can be evicted and no number is left, unknown producers are refused for a while.
func TestFull(t *testing.T) {
	p := newPartition(1 << 31)
	p.max, p.limit = 3, 3
	for pid := range int64(3) {
		p.want(t, p.txn(pid, 0, 0, 1), Accept)
	}
	p.want(t, p.txn(3, 0, 0, 1), Full)
	p.want(t, p.batch(3, 0, 0, 1), Full)
	if _, err := p.mark(3, 0, 1, 1); err != ErrFull {
		t.Fatalf("marker of an unknown producer: %v", err)
	}
	p.want(t, p.txn(1, 0, 1, 1), Accept)
	p.mark(1, 0, 1, 1)
	p.want(t, p.batch(3, 0, 0, 1), Accept)
	if fmt.Sprint(keys(p.state())) != "[0 2 3]" {
		t.Fatalf("left are %v", keys(p.state()))
	}
}

// TestEvictionOrder compares every victim with the one a plain search finds: by clock, and within a step of it by
// offset, so that a replay, which brings one reading for all, evicts in the order of the log.
func TestEvictionOrder(t *testing.T) {
	type known struct {
		last int64
		at   int32
		open bool
	}
	rapid.Check(t, func(t *rapid.T) {
		p := newPartition(1 << 31)
		p.max = rapid.SampledFrom([]int{1, 3, 40, 3 * chunkEntries}).Draw(t, "max")
		model := map[int64]*known{}
		seq := map[int64]int32{}
		pids := int64(p.max + p.max/2 + 2)
		rnd := rapid.Uint64().Draw(t, "seed")
		for range 4*p.max + 20 {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			pid := int64(rnd>>33) % pids
			k := model[pid]
			if k == nil && len(model) >= p.max {
				victim := int64(-1)
				for id, v := range model {
					if !v.open && (victim < 0 || earlier(v.at, v.last, model[victim].at, model[victim].last)) {
						victim = id
					}
				}
				if victim >= 0 {
					delete(model, victim)
					delete(seq, victim)
				}
			}
			if k == nil {
				k = &known{}
				model[pid] = k
			}
			p.touch += int64(rnd>>20) % 3 * 40
			b := p.batch(pid, 0, seq[pid], 1)
			b.Txn = k.open || rnd>>40%20 == 0
			k.last, k.at, k.open = p.end, tenths(p.touch), b.Txn
			if d := p.send(b); d.Verdict != Accept {
				t.Fatalf("verdict %d", d.Verdict)
			}
			seq[pid]++
			if rnd>>30%64 == 0 {
				p.expire = int32(max(10, p.max/2))
				p.Expire(p.touch, 1<<30)
				for id, v := range model {
					if !v.open && p.now-v.at >= p.expire {
						delete(model, id)
						delete(seq, id)
					}
				}
			}
			if k.open && rnd>>50%3 == 0 {
				p.mark(pid, 0, 1, 1)
				k.open = false
				k.at = p.now
			}
			if p.Len() != len(model) {
				t.Fatalf("%d held, want %d", p.Len(), len(model))
			}
		}
		for id := range model {
			if _, e := p.lookup(id, hash(id)); e == nil {
				t.Fatalf("producer %d is gone, the model holds it", id)
			}
		}
	})
}

// TestEvictionLooksAtABoundedPart: with many chunks whose bounds are out of date the victim is still an old one.
func TestEvictionLooksAtABoundedPart(t *testing.T) {
	const producers = (evictScanMax + 100) * chunkEntries
	m := New(Options{ProducersMax: producers})
	gone := int64(-1)
	add := func(pid, touch int64, f int32) {
		b := Batch{PID: pid, FirstSeq: f, LastSeq: f, Touch: touch}
		m.Commit(&b, At{Base: touch, Last: touch})
	}
	for pid := range int64(producers) {
		add(pid, pid, 0)
	}
	touched := make([]int64, producers)
	for k := range int64(producers) {
		pid := k * 7919 % producers
		touched[pid] = producers + k
		add(pid, touched[pid], 1) // every bound is out of date now
	}
	left := func() (oldest int64) {
		oldest = math.MaxInt64
		for pid := range int64(producers) {
			if _, e := m.lookup(pid, hash(pid)); e != nil {
				oldest = min(oldest, touched[pid])
			} else {
				gone = max(gone, touched[pid])
			}
		}
		return oldest
	}
	add(producers, 3*producers, 0)
	if n, _ := m.Evicted(); n != 1 || m.Len() != producers {
		t.Fatalf("%d evicted, %d held", n, m.Len())
	}
	// Of the 182,272 producers 131,072 are looked at: the victim is among the oldest few.
	if oldest := left(); gone < 0 || gone > oldest+1000 {
		t.Fatalf("evicted one touched at %d, the oldest left was touched at %d", gone, oldest)
	}
	for i := range int64(300) {
		add(producers+1+i, 3*producers, 0)
	}
	if n, _ := m.Evicted(); n != 300 {
		t.Fatalf("%d evicted", n)
	}
	if oldest := left(); oldest < producers+290 {
		t.Fatalf("300 evictions later one touched at %d is left", oldest)
	}
}

// TestEvictionOrderAfterExpiry: a pass of expiry raises bounds anywhere among many chunks; the oldest one left still
// goes first.
func TestEvictionOrderAfterExpiry(t *testing.T) {
	const producers = 15 * chunkEntries
	for seed := range uint64(20) {
		rnd := seed + 1
		next := func(n uint64) int64 {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			return int64(rnd >> 33 % n)
		}
		m := New(Options{ProducersMax: producers, ExpireAfter: 20 * time.Second})
		fill(m, 0, producers)
		for k := range int64(producers) {
			pid := next(producers) // some often, some never
			m.Replay(&Batch{PID: pid, FirstSeq: 9, LastSeq: 9, Touch: k * 4}, At{Last: 5*producers + k})
			if k == producers/2 {
				m.max = m.Len()
				m.Replay(&Batch{PID: producers, Touch: k * 4}, At{Last: 1}) // sorts the chunks by bounds that age
			}
		}
		m.Expire(producers*4, 1<<20)
		m.max = m.Len()
		for i := range int64(100) {
			victim := survey{touch: nothing}
			for c := range m.chunks {
				if s := m.survey(uint32(c)); s.found && earlier(s.touch, s.last, victim.touch, victim.last) {
					victim = s
				}
			}
			pid := m.at(victim.no).pid
			fill(m, 2*producers+i, 1)
			if _, e := m.lookup(pid, hash(pid)); e != nil {
				t.Fatalf("seed %d: eviction %d left producer %d, the least recently touched", seed, i, pid)
			}
		}
	}
}

// TestCommitOfAForgottenProducer: a group is checked first and committed afterwards, and a commit may evict the
// producer of a later one, or hand its number on. What was accepted is taken over all the same.
func TestCommitOfAForgottenProducer(t *testing.T) {
	p := newPartition(1 << 31)
	p.max = 1
	p.want(t, p.batch(1, 0, 0, 5), Accept)
	known, unknown := p.batch(1, 0, 5, 5), p.batch(2, 0, 0, 5)
	if p.Check(unknown).Verdict != Accept || p.Check(known).Verdict != Accept {
		t.Fatal("not accepted")
	}
	p.Commit(unknown, p.place(unknown))
	p.Commit(known, p.place(known))
	if n, early := p.Evicted(); n != 2 || !early || p.Len() != 1 {
		t.Fatalf("%d evicted, %d held", n, p.Len())
	}
	if s := p.state()[1]; s.N != 1 || s.Span != 5 || s.Stamps[0].LastSeq != 9 || s.Stamps[0].Base() != 110 {
		t.Fatalf("state %+v", s)
	}
	sound(t, p.Map)

	p.max, p.expire = 10, 10
	next := p.batch(1, 0, 10, 5)
	if p.Check(next).Verdict != Accept {
		t.Fatal("not accepted")
	}
	p.Expire(p.touch+1000, 100)
	if p.Len() != 0 {
		t.Fatal("not expired")
	}
	p.Commit(next, p.place(next))
	if s := p.state()[1]; s.N != 1 || s.Span != 5 || s.Stamps[0].LastSeq != 14 {
		t.Fatalf("state %+v", s)
	}
	sound(t, p.Map)
}
