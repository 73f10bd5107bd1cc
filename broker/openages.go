package broker

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"sekali/internal/clock"
	"sekali/store"

	"github.com/prometheus/client_golang/prometheus"
)

// openAges tells how long the oldest open transaction of each partition has held the last stable offset where it is. It
// looks at the offsets of the logs alone, so it also sees a transaction that no coordinator knows. What it tells is
// exact to the time between two looks, and counts from the start of the process at the earliest. It implements
// prometheus.Collector. Owner: the Server; look is called by its housekeeping, the rest by any goroutine.
type openAges struct {
	store *store.Store
	clk   clock.Clock

	mu   sync.Mutex
	held map[store.TP]held // partitions whose last stable offset lies below the high watermark

	oldest, partitions, age, lag *prometheus.Desc
}

// held is a last stable offset that does not follow the high watermark.
type held struct {
	tp           store.TP
	stable, high int64
	since        time.Duration // of the clock
}

// watchOpenAges shows open transactions from now on; it is called once.
func (m *metrics) watchOpenAges(s *store.Store, clk clock.Clock) *openAges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	a := &openAges{
		store: s, clk: clk,
		oldest: desc("sekali_transaction_oldest_open_seconds",
			"Age of the oldest open transaction found in any partition; 0: none is open."),
		partitions: desc("sekali_transaction_open_partitions",
			"Partitions whose last stable offset an open transaction holds."),
		age: desc("sekali_partition_oldest_open_transaction_seconds",
			"Age of the oldest open transaction of a partition; the oldest 200 are told.", "topic", "partition"),
		lag: desc("sekali_partition_last_stable_offset_lag",
			"Offsets between the last stable offset and the high watermark of these partitions.", "topic", "partition"),
	}
	m.reg.MustRegister(a)
	return a
}

// look notes where each last stable offset is.
func (a *openAges) look() {
	now := a.clk.Mono()
	a.mu.Lock()
	was := a.held
	a.mu.Unlock()
	is := map[store.TP]held{}
	for _, t := range a.store.Catalog().ByName {
		for i, l := range t.Partitions {
			if l == nil || l.Err() != nil {
				continue
			}
			at := l.Offsets()
			if at.Stable >= at.High {
				continue
			}
			h := held{store.TP{Topic: t.Name, Partition: int32(i)}, at.Stable, at.High, now}
			if old, ok := was[h.tp]; ok && old.stable == h.stable {
				h.since = old.since
			}
			is[h.tp] = h
		}
	}
	a.mu.Lock()
	a.held = is
	a.mu.Unlock()
}

// Describe implements prometheus.Collector.
func (a *openAges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{a.oldest, a.partitions, a.age, a.lag} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (a *openAges) Collect(ch chan<- prometheus.Metric) {
	now := a.clk.Mono()
	a.mu.Lock()
	all := make([]held, 0, len(a.held))
	for _, h := range a.held {
		all = append(all, h)
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y held) int {
		return cmp.Or(cmp.Compare(x.since, y.since), cmp.Compare(x.tp.Topic, y.tp.Topic),
			cmp.Compare(x.tp.Partition, y.tp.Partition))
	})
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	oldest := 0.0
	if len(all) > 0 {
		oldest = (now - all[0].since).Seconds()
	}
	gauge(a.oldest, oldest)
	gauge(a.partitions, float64(len(all)))
	for _, h := range all[:min(len(all), openSeriesMax)] {
		n := strconv.Itoa(int(h.tp.Partition))
		gauge(a.age, (now - h.since).Seconds(), h.tp.Topic, n)
		gauge(a.lag, float64(h.high-h.stable), h.tp.Topic, n)
	}
}
