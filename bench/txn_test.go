package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkTxnFsync is one client of a daemon with durability=fsync that commits transactions of one record, against
// the flush of the same disk: a write of the same size behind the end of a file with blocks reserved, and fdatasync.
// The two run in turn, in blocks. "end/fsync" is from EndTxn sent to its answer, "txn/fsync" from the first request of
// the transaction sent to the commit answered, both in flushes: the medians of a block divided. A block is one ratio;
// least and most are those of the blocks.
func BenchmarkTxnFsync(b *testing.B) {
	const block = 25
	for _, p := range protocols {
		b.Run(p.name, func(b *testing.B) {
			d := startDaemon(b, "durability=fsync")
			d.topic("bench", 1)
			x, f := d.committer(p, "bench", "bench", 100), newFloor(b)
			v := make([]byte, 200)
			var end, whole, fsync, trip []float64
			for i := range b.N + 1 {
				var flush, ends, txns, trips []time.Duration
				for range block {
					began := time.Now()
					f.write(b, v)
					if err := f.f.Datasync(); err != nil {
						b.Fatal(err)
					}
					flush = append(flush, time.Since(began))
				}
				for range block {
					began := time.Now()
					x.begin(0)
					decided := time.Now()
					x.end(true)
					done := time.Now()
					ends, txns = append(ends, done.Sub(decided)), append(txns, done.Sub(began))
				}
				for range block {
					began := time.Now()
					x.c.roundTrip()
					trips = append(trips, time.Since(began))
				}
				if i == 0 {
					continue // files are new, nothing is warm
				}
				one := float64(median(flush))
				fsync, trip = append(fsync, one/1e3), append(trip, float64(median(trips))/1e3)
				end, whole = append(end, float64(median(ends))/one), append(whole, float64(median(txns))/one)
			}
			spread(b, end, "end/fsync")
			spread(b, whole, "txn/fsync")
			b.ReportMetric(median(fsync), "fsync-us")
			b.ReportMetric(median(trip), "round-trip-us")
			b.ReportMetric(0, "ns/op")
			if !p.implicit {
				b.ReportMetric(100*float64(x.busy)/float64(x.asked), "51-percent")
			}
			f.remove(b)
		})
	}
}

// BenchmarkTxnWritten is one client of a daemon with durability=written that commits transactions of one record.
func BenchmarkTxnWritten(b *testing.B) {
	for _, p := range protocols {
		b.Run(fmt.Sprint(p.name), func(b *testing.B) {
			d := startDaemon(b, "durability=written")
			d.topic("bench", 1)
			x := d.committer(p, "bench", "bench", 100)
			for b.Loop() {
				x.begin(0)
				x.end(true)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
			if !p.implicit {
				b.ReportMetric(100*float64(x.busy)/float64(x.asked), "51-percent")
			}
		})
	}
}
