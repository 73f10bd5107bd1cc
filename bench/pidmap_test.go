package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sekali/pidmap"
)

// bareTable is the floor the producer map is measured against: open addressing over 16-byte slots {key, value}, at most
// 3/4 full, which remembers the last sequence of a producer and nothing else.
type bareTable struct {
	slots []bareSlot
	shift uint
}

type bareSlot struct{ key, value uint64 } // key + 1; 0: empty

func newBareTable(n int) *bareTable {
	size, shift := 16, uint(60)
	for size*3 < n*4 {
		size, shift = 2*size, shift-1
	}
	return &bareTable{slots: make([]bareSlot, size), shift: shift}
}

func (t *bareTable) at(key uint64) *bareSlot {
	mask := uint64(len(t.slots) - 1)
	for i := (key * 0x9e3779b97f4a7c15) >> t.shift; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.key == key+1 || s.key == 0 {
			return s
		}
	}
}

// next takes over a number that follows the last one; it returns 0.
func (t *bareTable) next(key uint64) int {
	s := t.at(key)
	s.key = key + 1
	s.value++
	return int(s.value >> 63)
}

// producers is a filled map and what each producer sends next.
type producers struct {
	m      *pidmap.Map
	seq    []int32
	offset int64
}

// newProducers appends five batches for each of n producers, so that every window is full.
func newProducers(n int) *producers {
	p := &producers{m: pidmap.New(pidmap.Options{}), seq: make([]int32, n)}
	for range pidmap.Window {
		for pid := range int64(n) {
			p.append(pid)
		}
	}
	return p
}

// append decides about the next batch of a producer and takes it over; it returns 0.
func (p *producers) append(pid int64) int {
	f := p.seq[pid]
	b := pidmap.Batch{PID: pid, FirstSeq: f, LastSeq: f + 15, CRC: uint32(f), Touch: p.offset >> 10}
	d := p.m.Check(&b)
	if d.Verdict != pidmap.Accept {
		panic(fmt.Sprint("verdict ", d.Verdict))
	}
	p.m.Commit(&b, pidmap.At{Base: p.offset, Last: p.offset + 15, Time: p.offset})
	p.offset += 16
	p.seq[pid] = (f + 16) & (1<<31 - 1)
	return int(d.Verdict)
}

// BenchmarkPidmapAppend is Check + Commit on a uniformly random producer with a full window, paired in blocks with the
// bare table. In both each key depends on the answer before, as one batch waits for the write of the one before it:
// without that the processor overlaps the misses of a dozen accesses, which no append path can. ns/op is the map's,
// "bare-ns" the table's, "ratio" the median of the blocks' ratios.
func BenchmarkPidmapAppend(b *testing.B) {
	const block = 4096
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, bare := newProducers(n), newBareTable(n)
			for pid := range uint64(n) {
				bare.next(pid)
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			keys := make([]int64, block)
			var ours, floor time.Duration
			var ratios []float64
			b.ReportAllocs()
			b.ResetTimer()
			b.StopTimer()
			for done := 0; done < b.N; done += block {
				for i := range keys {
					keys[i] = rnd.Int64N(int64(n))
				}
				t0 := time.Now()
				for i, r := 0, 0; i < block; i++ {
					r = bare.next(uint64(keys[i+r]))
				}
				t1 := time.Now()
				for i := range keys {
					keys[i] = rnd.Int64N(int64(n)) // not the lines the table has just pulled in
				}
				count := min(block, b.N-done)
				t2 := time.Now()
				b.StartTimer()
				for i, r := 0, 0; i < count; i++ {
					r = p.append(keys[i+r])
				}
				b.StopTimer()
				t3 := time.Now()
				ours, floor = ours+t3.Sub(t2), floor+t1.Sub(t0)*time.Duration(count)/block
				if count == block {
					ratios = append(ratios, float64(t3.Sub(t2))/float64(t1.Sub(t0)))
				}
			}
			b.ReportMetric(float64(floor)/float64(b.N), "bare-ns")
			if slices.Sort(ratios); len(ratios) > 0 {
				b.ReportMetric(ratios[len(ratios)/2], "ratio")
			}
		})
	}
}

// BenchmarkPidmapVerdicts is Check alone, for the answers that change nothing.
func BenchmarkPidmapVerdicts(b *testing.B) {
	p := newProducers(1000)
	last := p.seq[7]
	for _, c := range []struct {
		name string
		b    pidmap.Batch
		want pidmap.Verdict
	}{
		{"duplicate", pidmap.Batch{PID: 7, FirstSeq: last - 80, LastSeq: last - 65}, pidmap.Duplicate},
		{"old", pidmap.Batch{PID: 7, FirstSeq: last - 78, LastSeq: last - 65}, pidmap.DuplicateOld},
		{"gap", pidmap.Batch{PID: 7, FirstSeq: last + 1, LastSeq: last + 16}, pidmap.OutOfOrder},
		{"unknown", pidmap.Batch{PID: 1 << 40, FirstSeq: 0, LastSeq: 15}, pidmap.Accept},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := p.m.Check(&c.b); d.Verdict != c.want {
					b.Fatalf("verdict %d", d.Verdict)
				}
			}
		})
	}
}

// insertTimes appends the first batch of n new producers and returns what each cost in processor time of its thread,
// which leaves out the time it waited for a processor on a busy machine.
func insertTimes(m *pidmap.Map, from, n int64) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times := make([]time.Duration, n)
	for i := range n {
		b := pidmap.Batch{PID: from + i, LastSeq: 15, Touch: i >> 10}
		at := pidmap.At{Base: 16 * (from + i), Last: 16*(from+i) + 15}
		t := threadTime()
		if d := m.Check(&b); d.Verdict == pidmap.Accept {
			m.Commit(&b, at)
		}
		times[i] = threadTime() - t
	}
	return times
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// reportTail reports the times of all runs. Half of p50 is the price of reading the clock.
func reportTail(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	n := len(times)
	b.ReportMetric(float64(times[n/2]), "p50-ns")
	b.ReportMetric(float64(times[n-1-n/10_000])/1e3, "p99.99-us")
	b.ReportMetric(float64(times[n-1])/1e3, "worst-us")
}

// BenchmarkPidmapInsert makes 1,000,000 producers, one after the other, and reports the slowest.
func BenchmarkPidmapInsert(b *testing.B) {
	var all []time.Duration
	for b.Loop() {
		runtime.GC()
		all = append(all, insertTimes(pidmap.New(pidmap.Options{}), 0, 1_000_000)...)
	}
	reportTail(b, all)
}

// BenchmarkPidmapEvict makes 20,000 producers more than a full map of 1,000,000 may hold, after an append of each, in
// random order, has put all that eviction knows out of date.
func BenchmarkPidmapEvict(b *testing.B) {
	const full, more = 1_000_000, 20_000
	var all []time.Duration
	for b.Loop() {
		m := pidmap.New(pidmap.Options{ProducersMax: full})
		insertTimes(m, 0, full)
		rnd := rand.New(rand.NewPCG(3, 4))
		for i, pid := range rnd.Perm(full) {
			c := pidmap.Batch{PID: int64(pid), FirstSeq: 16, LastSeq: 31, Touch: 1000 + int64(i)/10}
			m.Commit(&c, pidmap.At{Base: 16 * int64(full+i), Last: 16*int64(full+i) + 15})
		}
		all = append(all, insertTimes(m, full, more)...)
		if n, _ := m.Evicted(); n != more || m.Len() != full {
			b.Fatalf("%d evicted, %d held", n, m.Len())
		}
	}
	reportTail(b, all)
}

// BenchmarkPidmapSnapshot copies and encodes 1,000,000 producers with full windows; "lock-us" is the longest time one
// Copy holds the partition. Load reads the file back.
func BenchmarkPidmapSnapshot(b *testing.B) {
	p := newProducers(1_000_000)
	var file []byte
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		var longest time.Duration
		var c pidmap.Copy
		for b.Loop() {
			p.m.Begin(p.offset, 0)
			entries, trailer := make([]byte, 0, 46_000_000), make([]byte, 0, 140_000_000)
			for {
				t := time.Now()
				more := p.m.Copy(&c)
				longest = max(longest, time.Since(t))
				if !more {
					break
				}
				entries, trailer = c.Append(entries, trailer)
			}
			p.m.Finish()
			file = pidmap.SnapshotFile(entries, trailer)
		}
		b.SetBytes(int64(len(file)))
		b.ReportMetric(float64(longest)/1e3, "lock-us")
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(int64(len(file)))
		for b.Loop() {
			m := pidmap.New(pidmap.Options{})
			if err := m.Load(file, 0); err != nil || m.Len() != len(p.seq) {
				b.Fatal(err)
			}
		}
	})
}
