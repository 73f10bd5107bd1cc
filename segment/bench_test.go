package segment

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/vfs"
)

// BenchmarkAppend pairs the append of a batch with its floor: CRC-32C of the same bytes and one pwrite of them into a
// file with blocks reserved the same way. The two run in turn on fresh files, the figures are medians of rounds; x is
// append to floor.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1023, 16_365, 1_048_575} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { pairAppend(b, size, 1) })
	}
	b.Run("16365x8", func(b *testing.B) { pairAppend(b, 16_365, 8) })
}

func pairAppend(b *testing.B, size, group int) {
	n := max(32, min(2048, 16<<20/size/group*group))
	v := sizedBatch(size)
	dir := b.TempDir()
	var floors, appends []float64
	for round := 0; b.Loop(); round++ {
		run := []func(){
			func() { floors = append(floors, floorRound(b, dir, v, n, group)) },
			func() { appends = append(appends, appendRound(b, dir, v, n, group)) },
		}
		run[round%2]()
		run[1-round%2]()
	}
	b.ReportMetric(median(floors), "floor-ns/batch")
	b.ReportMetric(median(appends), "append-ns/batch")
	b.ReportMetric(median(appends)/median(floors), "x")
	b.ReportMetric(0, "ns/op")
}

func sizedBatch(size int) batch.View {
	v := batch.View(nil)
	for pad := size - batch.HeaderLen - 16; len(v) != size; pad += size - len(v) {
		var builder batch.Builder
		builder.Add(batch.Record{Value: make([]byte, pad)})
		v = builder.Done(0, -1, -1, -1)
	}
	return v
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

var sink uint32

func floorRound(b *testing.B, dir string, v batch.View, n, group int) float64 {
	name := filepath.Join(dir, "floor")
	f, err := vfs.OS().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	ok(b, err)
	iov := make([][]byte, group)
	for i := range iov {
		iov[i] = v
	}
	pos, reserved, step := int64(0), int64(0), int64(reserveMin)
	begin := time.Now()
	for range n / group {
		for range group {
			sink += crc32.Checksum(v[crcFrom:], castagnoli)
		}
		end := pos + int64(len(v)*group)
		if end > reserved {
			reserved = max(pos+step, end)
			step = min(2*step, reserveMax)
			ok(b, f.Allocate(reserved))
		}
		if group == 1 {
			_, err = f.WriteAt(v, pos)
		} else {
			_, err = f.WritevAt(iov, pos)
		}
		ok(b, err)
		pos = end
	}
	took := time.Since(begin)
	ok(b, f.Close())
	ok(b, os.Remove(name))
	return float64(took.Nanoseconds()) / float64(n)
}

func appendRound(b *testing.B, dir string, v batch.View, n, group int) float64 {
	o := Options{Size: 1 << 30, FS: vfs.OS()}
	s := created(b, dir, 0, o)
	vs, at := make([]batch.View, group), make([]int64, 0, group)
	for i := range vs {
		vs[i] = slices.Clone(v)
	}
	next := int64(0)
	begin := time.Now()
	for range n / group {
		for _, v := range vs {
			sink += crc32.Checksum(v[crcFrom:], castagnoli)
			v.Stamp(next, 0)
			next++
		}
		if group == 1 {
			if !s.Fits(vs[0]) {
				b.Fatal("full")
			}
			_, err := s.Append(vs[0])
			ok(b, err)
			continue
		}
		if s.FitsAll(vs) != group {
			b.Fatal("full")
		}
		_, err := s.AppendAll(at, vs)
		ok(b, err)
	}
	took := time.Since(begin)
	s.Retire(true)
	return float64(took.Nanoseconds()) / float64(n)
}

// BenchmarkFind looks offsets up in the hot end of an active segment and in a part that is read with pread.
func BenchmarkFind(b *testing.B) {
	s := created(b, b.TempDir(), 0, Options{Size: 64 << 20, FS: vfs.OS()})
	defer s.Retire(true)
	v := sizedBatch(1023)
	for next := int64(0); s.Size() < 16<<20; next++ {
		v.Stamp(next, 0)
		_, err := s.Append(v)
		ok(b, err)
	}
	s.TryPin()
	defer s.Unpin()
	for name, from := range map[string]int64{"hot": s.NextOffset() - 2000, "pread": 2000} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if _, err := s.Find(from + i*7%1900); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPin is what a reader pays to hold a segment.
func BenchmarkPin(b *testing.B) {
	s := created(b, b.TempDir(), 0, Options{Size: 1 << 20, FS: vfs.OS()})
	defer s.Retire(true)
	for b.Loop() {
		if s.TryPin() {
			s.Unpin()
		}
	}
}
