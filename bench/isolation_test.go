package bench

import (
	"io"
	"testing"
	"time"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkFetchCommitted reads decided transactions of 16 KiB, a tenth of them aborted, as read_committed and as
// read_uncommitted in turn, over two connections: all 32 MiB
// with each request, or a request for each MiB. "of-uncommitted"
// is the rate of the former in parts of the latter's, the median of neighbours, with the least and the greatest of
// blocks of eight.
func BenchmarkFetchCommitted(b *testing.B) {
	const transactions, perMiB = 2048, 64
	d := startDaemon(b, "durability=written")
	d.topic("bench", 1)
	x := d.committer(protocols[1], "bench", "bench", 16<<10)
	for i := range transactions {
		x.begin(0)
		x.end(i%10 != 9)
	}
	for _, c := range []struct {
		name string
		step int
	}{{"32MiB", transactions}, {"1MiB", perMiB}} {
		b.Run(c.name, func(b *testing.B) {
			readers := [2]*client{d.dial(), d.dial()}
			var rates [2][]float64
			var ratios []float64
			for range b.N {
				var took [2][]time.Duration
				for k := range 8 {
					for i := range 2 {
						level := int8((i + k) % 2)
						began := time.Now()
						n := readers[level].readAll(level, c.step, transactions)
						took[level] = append(took[level], time.Since(began))
						if n < transactions*16<<10 {
							b.Fatalf("isolation level %d: %d bytes", level, n)
						}
					}
				}
				times := [2]float64{median(took[0]).Seconds(), median(took[1]).Seconds()}
				for level, t := range times {
					rates[level] = append(rates[level], transactions*16.0/1024/t)
				}
				ratios = append(ratios, times[0]/times[1])
			}
			spread(b, ratios, "of-uncommitted")
			b.ReportMetric(median(rates[0]), "uncommitted-MiB/s")
			b.ReportMetric(median(rates[1]), "committed-MiB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// readAll fetches the partition with so many transactions a request, each of a record and a marker, and returns the
// bytes of the answers. They are not decoded, which would be most of the time.
func (c *client) readAll(level int8, step, transactions int) (total int) {
	for at := 0; at < transactions; at += step {
		r := rawclient.Fetch(12, "bench", 0, int64(2*at))
		r.IsolationLevel = level
		r.Topics[0].Partitions[0].PartitionMaxBytes = int32(step * (17 << 10))
		n := c.fetchRaw(r)
		total += n
	}
	return total
}

// fetchRaw reads an answer without looking at it and returns its length.
func (c *client) fetchRaw(r *kmsg.FetchRequest) int {
	if err := c.SendRaw(rawclient.Frame(1, "bench", r)); err != nil {
		c.b.Fatal(err)
	}
	_, body, err := c.ReceiveFrame(rawclient.Wait)
	if err != nil && err != io.EOF || len(body) < 100 {
		c.b.Fatalf("Fetch: %d bytes, %v", len(body), err)
	}
	return len(body)
}
