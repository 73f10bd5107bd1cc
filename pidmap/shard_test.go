package pidmap

import (
	"testing"

	"pgregory.net/rapid"
)

// failer is a test, of testing or of rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// sound checks the whole index: every entry in use is found, loads keep their limit, the directory is consistent.
func sound(t failer, m *Map) {
	t.Helper()
	seen := map[*shard]int{}
	slots := 0
	for i, s := range m.dir {
		if seen[s]++; seen[s] > 1 {
			if m.dir[i-1] != s {
				t.Fatalf("shard at %d lies apart from its first place", i)
			}
			continue
		}
		n := uint32(0)
		for _, v := range s.slots {
			if v == 0 {
				continue
			}
			n++
			no := v&numberMask - 1
			e := m.at(no)
			if got, f := m.lookup(e.pid, hash(e.pid)); f != e || got != no {
				t.Fatalf("entry %d of producer %d is not found", no, e.pid)
			}
		}
		if n != s.n || int(n)*4 > len(s.slots)*3 {
			t.Fatalf("%d slots in use, counted %d of %d", n, s.n, len(s.slots))
		}
		slots += int(n)
	}
	for s, n := range seen {
		if depth := uint8(64 - m.shift); n != 1<<(depth-s.depth) {
			t.Fatalf("a shard of depth %d has %d places in a directory of depth %d", s.depth, n, depth)
		}
	}
	live := 0
	for _, c := range m.chunks {
		for i := range c.entries {
			if c.entries[i].pid >= 0 {
				live++
			}
		}
	}
	if slots != m.n || live != m.n {
		t.Fatalf("%d slots and %d entries in use of %d producers", slots, live, m.n)
	}
	free := 0
	for no := m.free; no != 0; no = m.at(no - 1).span {
		free++
	}
	if free+live != int(m.used) {
		t.Fatalf("%d free and %d live of %d numbers", free, live, m.used)
	}
}

// TestIndexModel inserts and removes at random and compares with a Go map, over growing, splitting and closing gaps.
func TestIndexModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(Options{})
		model := map[int64]bool{}
		pids := int64(rapid.SampledFrom([]int{8, 100, 2000, 20_000}).Draw(t, "pids"))
		rnd := rapid.Uint64().Draw(t, "seed")
		shrink := uint64(rapid.IntRange(1, 9).Draw(t, "removals"))
		for range min(3*pids, 30_000) {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			pid := int64(rnd>>20) % pids * 0x1_0000_0001
			no, e := m.lookup(pid, hash(pid))
			if (e != nil) != model[pid] {
				t.Fatalf("producer %d held: %v", pid, e != nil)
			}
			switch {
			case e == nil:
				m.insert(pid, hash(pid))
				model[pid] = true
			case rnd>>8%10 < shrink:
				m.remove(no)
				delete(model, pid)
			}
		}
		if m.Len() != len(model) {
			t.Fatalf("%d held, want %d", m.Len(), len(model))
		}
		sound(t, m)
	})
}

// TestCollisions gives the index only PIDs whose hashes share their leading bits, as if the secret were known: it
// deepens up to its bound, then shards grow, and every producer is found.
func TestCollisions(t *testing.T) {
	m := New(Options{})
	const want = 3000
	pid := int64(0)
	for n := 0; n < want; pid++ {
		if hash(pid)>>53 == 0 { // 11 leading bits
			m.insert(pid, hash(pid))
			n++
		}
	}
	if depth := 64 - m.shift; depth < 11 || depth > dirDepthMax {
		t.Fatalf("depth %d", depth)
	}
	sound(t, m)
}

// TestDepthIsBounded: at the greatest depth a shard doubles its slots instead of splitting.
func TestDepthIsBounded(t *testing.T) {
	m := New(Options{})
	m.dir, m.shift = []*shard{{slots: make([]uint32, shardMin), depth: dirDepthMax}}, 64
	for pid := range int64(2 * shardMax) {
		m.insert(pid, hash(pid))
	}
	if s := m.dir[0]; len(m.dir) != 1 || len(s.slots) != 4*shardMax || int(s.n) != 2*shardMax {
		t.Fatalf("%d shards, %d slots, %d in use", len(m.dir), len(s.slots), s.n)
	}
	for pid := range int64(2 * shardMax) {
		if _, e := m.lookup(pid, hash(pid)); e == nil {
			t.Fatalf("producer %d is not found", pid)
		}
	}
}

// TestSmallMap: a partition with few producers is small, and grows by doubling.
func TestSmallMap(t *testing.T) {
	m := New(Options{})
	for pid := range int64(chunkEntries + 1) {
		m.insert(pid, hash(pid))
		if n := cap(m.chunks[0].entries); n > max(chunkMin, 2*int(pid)) && n > chunkMin {
			t.Fatalf("room for %d entries with %d producers", n, pid+1)
		}
	}
	if len(m.chunks) != 2 || cap(m.chunks[1].entries) != chunkEntries {
		t.Fatalf("%d chunks", len(m.chunks))
	}
	sound(t, m)
}
