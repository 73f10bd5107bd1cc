package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/buf"
	"sekali/internal/clock"
	"sekali/internal/vfs"
	"sekali/plog"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Places in a batch header that a client fills.
const (
	atEpoch = 12
	atCRC   = 17
	atPID   = 43
	atSeq   = 53
)

// payload is a set of batches as a client sends them, made anew for each block outside the timed part.
type payload struct {
	views   []batch.View
	records int
}

// newPayload makes n batches of records of size bytes that do not compress.
func newPayload(n, records, size int) *payload {
	p := &payload{records: records}
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		b := batch.Builder{BaseTime: 1_700_000_000_000}
		for i := range records {
			v := make([]byte, size)
			for k := 0; k+8 <= size; k += 8 {
				binary.LittleEndian.PutUint64(v[k:], r.Uint64())
			}
			b.Add(batch.Record{TimeDelta: int64(i), Value: v})
		}
		p.views = append(p.views, b.Done(0, 1, 0, 0))
	}
	return p
}

// address gives batch i to a producer, as it came from the wire.
func (p *payload) address(i int, pid int64, seq int32) {
	v := p.views[i]
	binary.BigEndian.PutUint64(v, 0)
	binary.BigEndian.PutUint32(v[atEpoch:], 1<<32-1)
	binary.BigEndian.PutUint64(v[atPID:], uint64(pid))
	binary.BigEndian.PutUint32(v[atSeq:], uint32(seq))
	binary.BigEndian.PutUint32(v[atCRC:], crc32.Checksum(v[21:], castagnoli))
}

// engine is one log on a real disk, with what its clients remember.
type engine struct {
	log     *plog.Log
	dir     string
	seq     []int32
	waiters []plog.Waiter
	load    plog.Load
	dirty   chan struct{}
}

func newEngine(b *testing.B, shared *plog.Shared, producers int) *engine {
	b.Helper()
	dir, err := os.MkdirTemp("", "sekali-bench-")
	if err != nil {
		b.Fatal(err)
	}
	e := &engine{dir: filepath.Join(dir, "topic-0"), seq: make([]int32, producers), dirty: make(chan struct{}, 1)}
	if err := os.Mkdir(e.dir, 0o755); err != nil {
		b.Fatal(err)
	}
	e.log, _, err = plog.Open(plog.Options{
		Dir: e.dir, Epoch: 1, FS: vfs.OS(), Clock: clock.Real(), Shared: shared, Clean: true, Load: &e.load,
		Config: plog.Config{SegmentBytes: 1 << 30, RetainMs: -1, RetainBytes: -1, Delete: true},
		Dirty: func() {
			select {
			case e.dirty <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func (e *engine) remove(b *testing.B) {
	if err := errors.Join(e.log.Close(), os.RemoveAll(filepath.Dir(e.dir))); err != nil {
		b.Fatal(err)
	}
}

// append is what one batch costs between socket and page cache: validation with its walk over the records, then check,
// stamp, write, commit and publication in the log, and the waiter for its flush.
func (e *engine) append(v batch.View, w *plog.Waiter) error {
	checked, err := v.Validate(batch.Limits{BytesMax: 2 << 20, AllowZstd: true, Deep: true})
	if err != nil {
		return err
	}
	out, err := e.log.Append(plog.AppendIn{Batch: v, Checked: checked, Version: 9})
	if err != nil {
		return err
	}
	e.log.AfterDurable(out.Until, w)
	return nil
}

// settle publishes without a flush, so that the waiters of a block are free again; outside the timed part.
func (e *engine) settle() {
	var r plog.Round
	e.log.BeginSync(&r)
	e.log.EndSync(&r, nil)
}

// run appends the whole payload, each batch by a producer that pick chooses, and returns the time of the appends alone.
func (e *engine) run(b *testing.B, p *payload, pick func() int) time.Duration {
	for i := range p.views {
		pid := pick()
		p.address(i, int64(pid), e.seq[pid])
		e.seq[pid] = batch.SeqAdd(e.seq[pid], int32(p.records))
	}
	if e.waiters == nil {
		e.waiters = make([]plog.Waiter, len(p.views))
		for i := range e.waiters {
			e.waiters[i].Fn = func(error) {}
		}
	}
	began := time.Now()
	for i, v := range p.views {
		if err := e.append(v, &e.waiters[i]); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	e.settle()
	return took
}

// floor is a file of the same shape, written by the same call with blocks reserved in the same steps.
type floor struct {
	f             vfs.File
	dir           string
	end, reserved int64
	step          int64
	sum           uint32
}

func newFloor(b *testing.B) *floor {
	dir, err := os.MkdirTemp("", "sekali-floor-")
	if err != nil {
		b.Fatal(err)
	}
	f, err := vfs.OS().OpenFile(filepath.Join(dir, "floor.log"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	return &floor{f: f, dir: dir, step: 1 << 20}
}

func (f *floor) remove(b *testing.B) {
	if err := errors.Join(f.f.Close(), os.RemoveAll(f.dir)); err != nil {
		b.Fatal(err)
	}
}

func (f *floor) reserve(b *testing.B, n int64) {
	if f.end+n <= f.reserved {
		return
	}
	f.reserved = f.end + max(f.step, n)
	f.step = min(2*f.step, 64<<20)
	if err := f.f.Allocate(f.reserved); err != nil {
		b.Fatal(err)
	}
}

func (f *floor) write(b *testing.B, v []byte) {
	f.reserve(b, int64(len(v)))
	if _, err := f.f.WriteAt(v, f.end); err != nil {
		b.Fatal(err)
	}
	f.end += int64(len(v))
}

func (f *floor) run(b *testing.B, p *payload) time.Duration {
	began := time.Now()
	for _, v := range p.views {
		f.sum ^= crc32.Checksum(v[21:], castagnoli)
		f.write(b, v)
	}
	return time.Since(began)
}

func newBenchShared(b *testing.B) *plog.Shared {
	shared, err := plog.NewShared(1<<20, 64, buf.New(64<<20))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(shared.Close)
	return shared
}

// pairs collects the times of two things run in turn, per unit.
type pairs struct{ a, b []float64 }

func (p *pairs) add(a, b time.Duration, units int) {
	p.a = append(p.a, float64(a.Nanoseconds())/float64(units))
	p.b = append(p.b, float64(b.Nanoseconds())/float64(units))
}

// report gives the medians of both, and the median of the ratios of neighbours.
func (p *pairs) report(b *testing.B, nameA, nameB, ratio string) {
	ratios := make([]float64, len(p.a))
	for i := range p.a {
		ratios[i] = p.a[i] / p.b[i]
	}
	slices.Sort(ratios)
	slices.Sort(p.a)
	slices.Sort(p.b)
	n := len(ratios) / 2
	b.ReportMetric(p.a[n], nameA)
	b.ReportMetric(p.b[n], nameB)
	b.ReportMetric(ratios[n], ratio)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppend is the append path of one partition against a loop that computes CRC-32C and makes the same write
// call on the same bytes, in turn, blocks of 64 batches, a fresh file for each iteration. "of-floor" is the rate of
// the engine in parts of the floor's: the median over the blocks.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name          string
		records, size int
	}{{"16x1KiB", 16, 1024}, {"1x1KiB", 1, 1024}, {"128x128B", 128, 128}, {"16x64KiB", 16, 64 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			shared := newBenchShared(b)
			p := newPayload(64, c.records, c.size)
			blocks := max(1, min(64, 64<<20/(64*c.records*c.size)))
			var times pairs
			for range b.N {
				e, f := newEngine(b, shared, 1), newFloor(b)
				e.run(b, p, func() int { return 0 })
				f.run(b, p)
				for k := range blocks {
					var te, tf time.Duration
					if k%2 == 0 {
						te = e.run(b, p, func() int { return 0 })
						tf = f.run(b, p)
					} else {
						tf = f.run(b, p)
						te = e.run(b, p, func() int { return 0 })
					}
					times.add(tf, te, len(p.views))
				}
				e.remove(b)
				f.remove(b)
			}
			times.report(b, "floor-ns/batch", "engine-ns/batch", "of-floor")
		})
	}
}

// BenchmarkAppendGathered is the same with AppendAll and one pwritev for 8 and 64 batches of as many producers.
func BenchmarkAppendGathered(b *testing.B) {
	for _, group := range []int{8, 64} {
		b.Run(fmt.Sprint(group), func(b *testing.B) {
			shared := newBenchShared(b)
			p := newPayload(64, 16, 1024)
			var times pairs
			for range b.N {
				e, f := newEngine(b, shared, 64), newFloor(b)
				next := 0
				pick := func() int { next++; return next % 64 }
				for k := range 64 {
					if k%2 == 0 {
						te := e.gathered(b, p, group, pick)
						times.add(f.gathered(b, p, group), te, len(p.views))
					} else {
						tf := f.gathered(b, p, group)
						times.add(tf, e.gathered(b, p, group, pick), len(p.views))
					}
				}
				e.remove(b)
				f.remove(b)
			}
			times.report(b, "floor-ns/batch", "engine-ns/batch", "of-floor")
		})
	}
}

func (e *engine) gathered(b *testing.B, p *payload, group int, pick func() int) time.Duration {
	for i := range p.views {
		pid := pick()
		p.address(i, int64(pid), e.seq[pid])
		e.seq[pid] = batch.SeqAdd(e.seq[pid], int32(p.records))
	}
	in, out := make([]plog.AppendIn, group), make([]plog.AppendOut, group)
	began := time.Now()
	for at := 0; at < len(p.views); at += group {
		for i, v := range p.views[at : at+group] {
			checked, err := v.Validate(batch.Limits{BytesMax: 2 << 20, AllowZstd: true, Deep: true})
			if err != nil {
				b.Fatal(err)
			}
			in[i] = plog.AppendIn{Batch: v, Checked: checked, Version: 9}
		}
		if err := e.log.AppendAll(in, out); err != nil || out[group-1].Err != nil {
			b.Fatal(err, out[group-1].Err)
		}
	}
	took := time.Since(began)
	e.settle()
	return took
}

func (f *floor) gathered(b *testing.B, p *payload, group int) time.Duration {
	iov := make([][]byte, 0, group)
	began := time.Now()
	for at := 0; at < len(p.views); at += group {
		iov = iov[:0]
		n := int64(0)
		for _, v := range p.views[at : at+group] {
			f.sum ^= crc32.Checksum(v[21:], castagnoli)
			iov = append(iov, v)
			n += int64(len(v))
		}
		f.reserve(b, n)
		if _, err := f.f.WritevAt(iov, f.end); err != nil {
			b.Fatal(err)
		}
		f.end += n
	}
	return time.Since(began)
}

// BenchmarkAppendProducers is the whole append of 16 KiB by a uniformly random one of 1,000,000 live producers against
// the same with 1,000, in turn. "million-of-thousand" is the median ratio of the times.
func BenchmarkAppendProducers(b *testing.B) {
	shared := newBenchShared(b)
	p := newPayload(64, 16, 1024)
	small, large := prefilled(b, shared, 1_000), prefilled(b, shared, 1_000_000)
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(e *engine) func() int { return func() int { return r.IntN(len(e.seq)) } }
	var times pairs
	for i := range b.N {
		if i%2 == 0 {
			t := large.run(b, p, pick(large))
			times.add(t, small.run(b, p, pick(small)), len(p.views))
		} else {
			t := small.run(b, p, pick(small))
			times.add(large.run(b, p, pick(large)), t, len(p.views))
		}
	}
	times.report(b, "million-ns/batch", "thousand-ns/batch", "million-of-thousand")
}

// prefilled is an engine in which each producer has appended one small batch.
func prefilled(b *testing.B, shared *plog.Shared, producers int) *engine {
	e := newEngine(b, shared, producers)
	b.Cleanup(func() { e.remove(b) })
	p := newPayload(64, 1, 8)
	in, out := make([]plog.AppendIn, 64), make([]plog.AppendOut, 64)
	for pid := 0; pid < producers; pid += 64 {
		n := min(64, producers-pid)
		for i := range n {
			p.address(i, int64(pid+i), 0)
			e.seq[pid+i] = 1
			in[i] = plog.AppendIn{Batch: p.views[i], Checked: batch.Checked{MaxTime: p.views[i].MaxTime()}, Version: 9}
		}
		if err := e.log.AppendAll(in[:n], out[:n]); err != nil {
			b.Fatal(err)
		}
	}
	e.settle()
	runtime.GC()
	return e
}

// syncer runs commit rounds over one log until stop, back to back, each after a short wait for the crowd of the round
// before, as the data directory's syncer does.
func (e *engine) syncer(stop *atomic.Bool) {
	var r plog.Round
	var expect int64
	mean := time.Duration(0)
	for !stop.Load() {
		<-e.dirty
		for began := time.Now(); e.load.Waiting.Load() < expect && time.Since(began) < mean/4; {
			runtime.Gosched()
		}
		began := time.Now()
		e.log.BeginSync(&r)
		err := r.Datasync()
		fired := e.log.EndSync(&r, err)
		mean = (7*mean + time.Since(began)) / 8
		expect = int64(fired) + e.load.Waiting.Load()
	}
}

// BenchmarkGroupCommit is 64 writers that each append 16 KiB and wait until it is durable, against 64 batches and one
// flush on a file of the same shape, in turn. "of-floor" is the rate in parts of the floor's.
func BenchmarkGroupCommit(b *testing.B) {
	const writers, rounds = 64, 8
	shared := newBenchShared(b)
	e, f := newEngine(b, shared, writers), newFloor(b)
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Go(func() { e.syncer(&stop) })
	own := make([]*payload, writers)
	for i := range own {
		own[i] = newPayload(rounds, 16, 1024)
	}
	p := newPayload(writers, 16, 1024)
	var times pairs
	for range b.N {
		te := e.commit(b, own)
		began := time.Now()
		for range rounds {
			for _, v := range p.views {
				f.sum ^= crc32.Checksum(v[21:], castagnoli)
				f.write(b, v)
			}
			if err := f.f.Datasync(); err != nil {
				b.Fatal(err)
			}
		}
		times.add(time.Since(began), te, writers*rounds)
	}
	stop.Store(true)
	e.dirty <- struct{}{}
	done.Wait()
	times.report(b, "floor-ns/batch", "engine-ns/batch", "of-floor")
	e.remove(b)
	f.remove(b)
}

// commit lets every writer send its batches one after the other, each when the one before is durable.
func (e *engine) commit(b *testing.B, own []*payload) time.Duration {
	for w, p := range own {
		for i := range p.views {
			p.address(i, int64(w), e.seq[w])
			e.seq[w] = batch.SeqAdd(e.seq[w], int32(p.records))
		}
	}
	var wg sync.WaitGroup
	began := time.Now()
	for _, p := range own {
		wg.Go(func() {
			durable := make(chan error, 1)
			w := plog.Waiter{Fn: func(err error) { durable <- err }}
			for _, v := range p.views {
				if err := e.append(v, &w); err != nil {
					b.Error(err)
					return
				}
				if err := <-durable; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
