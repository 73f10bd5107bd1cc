package broker

import (
	"strconv"

	"sekali/store"

	"github.com/prometheus/client_golang/prometheus"
)

// storeCollector shows what a store holds at the time of a scrape. It keeps nothing itself.
type storeCollector struct {
	store         *store.Store
	partitionsMax int // above it watermarks are not shown; negative: always shown

	topics, partitions, offline, producers, bytes *prometheus.Desc
	start, stable, high, end                      *prometheus.Desc
	recLogs, recBytes, recBatches                 *prometheus.Desc
	recCutBytes, recCutBatches, recSeconds        *prometheus.Desc
}

// watchStore shows the store's figures from now on; it is called once. partitionsMax bounds the series of watermarks:
// with more partitions than that they are left out, a negative number means that they always show.
func (m *metrics) watchStore(s *store.Store, partitionsMax int) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	tp := []string{"topic", "partition"}
	m.reg.MustRegister(&storeCollector{
		store: s, partitionsMax: partitionsMax,
		topics:     desc("sekali_topics", "Topics that exist."),
		partitions: desc("sekali_partitions", "Partitions that exist."),
		offline:    desc("sekali_partitions_offline", "Partitions that serve nothing because their storage failed."),
		producers:  desc("sekali_producers", "Producers known, summed over partitions."),
		bytes:      desc("sekali_log_bytes", "Bytes of all segments of all logs."),
		start:      desc("sekali_log_start_offset", "First offset of a partition.", tp...),
		stable:     desc("sekali_last_stable_offset", "End of what read_committed may read.", tp...),
		high:       desc("sekali_high_watermark", "End of what is durable and may be read.", tp...),
		end:        desc("sekali_log_end_offset", "End of what is written.", tp...),
		recLogs:    desc("sekali_recovery_logs", "Logs opened when the process began."),
		recBytes:   desc("sekali_recovery_scanned_bytes", "Bytes of logs read to recover when the process began."),
		recBatches: desc("sekali_recovery_scanned_batches", "Batches read to recover when the process began."),
		recCutBytes: desc("sekali_recovery_cut_bytes",
			"Bytes at or above the durable mark removed when the process began."),
		recCutBatches: desc("sekali_recovery_cut_batches",
			"Whole batches among the bytes removed when the process began."),
		recSeconds: desc("sekali_recovery_seconds", "Time to open and recover all logs when the process began."),
	})
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.topics, c.partitions, c.offline, c.producers, c.bytes, c.start, c.stable,
		c.high, c.end, c.recLogs, c.recBytes, c.recBatches, c.recCutBytes, c.recCutBatches, c.recSeconds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	catalog := c.store.Catalog()
	partitions := 0
	for _, t := range catalog.ByName {
		partitions += len(t.Partitions)
	}
	watermarks := c.partitionsMax < 0 || partitions <= c.partitionsMax
	var offlineCount, producers int
	var bytes int64
	for _, t := range catalog.ByName {
		for i, l := range t.Partitions {
			if l == nil || l.Err() != nil {
				offlineCount++
				continue
			}
			producers += l.ProducerCount()
			bytes += l.Size()
			if !watermarks {
				continue
			}
			at, n := l.Offsets(), strconv.Itoa(i)
			gauge(c.start, float64(at.Start), t.Name, n)
			gauge(c.stable, float64(at.Stable), t.Name, n)
			gauge(c.high, float64(at.High), t.Name, n)
			gauge(c.end, float64(at.End), t.Name, n)
		}
	}
	gauge(c.topics, float64(len(catalog.ByName)))
	gauge(c.partitions, float64(partitions))
	gauge(c.offline, float64(offlineCount))
	gauge(c.producers, float64(producers))
	gauge(c.bytes, float64(bytes))
	rec := c.store.Recovery()
	gauge(c.recLogs, float64(rec.Logs))
	gauge(c.recBytes, float64(rec.ScannedBytes))
	gauge(c.recBatches, float64(rec.Batches))
	gauge(c.recCutBytes, float64(rec.CutBytes))
	gauge(c.recCutBatches, float64(rec.CutBatches))
	gauge(c.recSeconds, rec.Took.Seconds())
}
