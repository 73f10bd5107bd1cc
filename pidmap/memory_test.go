package pidmap

import (
	"runtime"
	"testing"
)

// heap is what the live heap holds now.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// fill appends one batch for each of n producers, with the ids a coordinator hands out.
func fill(m *Map, from, n int64) {
	for pid := from; pid < from+n; pid++ {
		b := Batch{PID: pid, LastSeq: 4, CRC: 1}
		m.Commit(&b, At{Base: 5 * pid, Last: 5*pid + 4, Time: 1})
	}
}

// TestBytesPerProducer: entries, slots, directory, chunk table and what slabs hold ready, at 1,000,000 producers and at
// sizes on both sides of where the index splits.
func TestBytesPerProducer(t *testing.T) {
	before := heap()
	m := New(Options{})
	last := int64(0)
	for _, n := range []int64{50_000, 100_000, 200_000, 400_000, 800_000, 1_000_000} {
		fill(m, last, n-last)
		last = n
		per := float64(heap()-before) / float64(n)
		t.Logf("%d producers: %.1f bytes each", n, per)
		if per > 192 {
			t.Errorf("%d producers take %.1f bytes each, at most 192", n, per)
		}
	}
	if m.Len() != 1_000_000 {
		t.Fatalf("%d producers", m.Len())
	}
	runtime.KeepAlive(m)
}

// TestSmallMapBytes: thousands of partitions have a handful of producers each.
func TestSmallMapBytes(t *testing.T) {
	const partitions = 1000
	before := heap()
	maps := make([]*Map, partitions)
	for i := range maps {
		maps[i] = New(Options{})
		fill(maps[i], int64(i), 3)
	}
	per := (heap() - before) / partitions
	t.Logf("3 producers: %d bytes a map", per)
	if per > 2048 {
		t.Errorf("a map of 3 producers takes %d bytes", per)
	}
	runtime.KeepAlive(maps)
}

// TestNoAllocations: deciding about a batch and taking it over allocates nothing, whatever the verdict.
func TestNoAllocations(t *testing.T) {
	m := newMap(Options{}, 1<<31)
	fill(m, 0, 2000)
	offset := int64(10_000)
	commit := func(b *Batch) {
		if d := m.Check(b); d.Verdict != Accept {
			t.Fatalf("verdict %d", d.Verdict)
		}
		m.Commit(b, At{Base: offset, Last: offset + int64(b.LastSeq-b.FirstSeq)})
		offset += 5
	}
	next := Batch{PID: 7, FirstSeq: 5, LastSeq: 9}
	var txn [2]Batch
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"append", func() {
			commit(&next)
			next.FirstSeq, next.LastSeq = next.FirstSeq+5, next.LastSeq+5
		}},
		{"refused", func() {
			for _, b := range []Batch{
				{PID: 8, FirstSeq: 0, LastSeq: 4}, {PID: 8, FirstSeq: 0, LastSeq: 3}, {PID: 8, FirstSeq: 9, LastSeq: 9},
				{PID: 8, Epoch: -1}, {PID: 1 << 40, FirstSeq: 1, LastSeq: 1, FromZero: true},
			} {
				if m.Check(&b).Verdict == Accept {
					t.Fatalf("accepted %+v", b)
				}
			}
		}},
		{"transaction", func() {
			b := &txn[0]
			b.PID, b.Txn, b.Guard = 9, true, 0
			b.Epoch++
			d := m.Check(b)
			b.Guard = d.Guard
			commit(b)
			k := Marker{PID: 9, Epoch: b.Epoch, Version: 1}
			if e, err := m.CheckMarker(&k); err != nil || !e.Had {
				t.Fatalf("%+v %v", e, err)
			}
			m.CommitMarker(&k, At{Base: offset, Last: offset})
			offset++
			m.Unstable(offset)
		}},
		{"evict", func() {
			m.max = m.Len()
			b := Batch{PID: 100_000 + offset, LastSeq: 4}
			commit(&b)
		}},
		{"expire and each", func() {
			m.Expire(0, 512)
			m.Each(1, func(Producer) {})
		}},
	} {
		c.run()
		if n := testing.AllocsPerRun(1000, c.run); n != 0 {
			t.Errorf("%s: %v allocations a run", c.name, n)
		}
	}
}

// TestCopyAllocatesOnce: a writer's buffers are used again for every chunk.
func TestCopyAllocatesOnce(t *testing.T) {
	m := New(Options{})
	fill(m, 0, 20*chunkEntries)
	var c Copy
	m.Begin(1<<40, 0)
	m.Copy(&c)
	m.Finish()
	if n := testing.AllocsPerRun(3, func() {
		m.Begin(1<<40, 0)
		for m.Copy(&c) {
			continue
		}
		m.Finish()
	}); n != 0 {
		t.Errorf("%v allocations a snapshot", n)
	}
}
