package broker

import (
	"log/slog"
	"time"

	"sekali/coord"
	"sekali/group"

	"github.com/prometheus/client_golang/prometheus"
)

// txnMetrics counts what coordinator and groups tell. Its owner is the metrics; any goroutine may call any method, and
// no method blocks.
type txnMetrics struct {
	commit                    prometheus.Histogram
	aborted                   *prometheus.CounterVec
	byCause                   [3]prometheus.Counter
	fenced, busy              prometheus.Counter
	markerRetries, markerGone prometheus.Counter
	failed                    prometheus.Counter

	rebalances                  *prometheus.HistogramVec
	expired                     *prometheus.CounterVec
	committedPlain              prometheus.Counter
	committedTxn                prometheus.Counter
	settledCommit, settledAbort prometheus.Counter
	offsetsExpired              prometheus.Counter
}

// abortCauses are the values of the label cause, by coord.Cause.
var abortCauses = [...]string{coord.ByClient: "client", coord.ByTimeout: "timeout", coord.ByFence: "fence"}

// rebalanceBuckets run from 1 ms to 8.7 minutes, each twice the one before.
var rebalanceBuckets = prometheus.ExponentialBuckets(1e-3, 2, 20)

// registerTxns makes the series about transactions and groups.
func (m *metrics) registerTxns() {
	t := &m.txns
	t.commit = m.histogram("sekali_transaction_commit_seconds",
		"Time from an EndTxn that commits being read to its answer; its count is the number of commits answered.")
	t.aborted = m.vec("sekali_transactions_aborted_total",
		"Transactions aborted, once that is decided: cause=client, asked for; timeout, transaction.timeout.ms was over; "+
			"fence, another producer began with the same transactional id.", "cause")
	for i, cause := range abortCauses {
		t.byCause[i] = t.aborted.WithLabelValues(cause)
	}
	t.fenced = m.counter("sekali_producers_fenced_total",
		"Requests of transactional producers refused because a newer one has their transactional id.")
	t.busy = m.counter("sekali_transactions_busy_total",
		"Requests answered CONCURRENT_TRANSACTIONS (51): the id's last transaction was still being ended.")
	t.markerRetries = m.counter("sekali_transaction_marker_retries_total",
		"Markers that could not be written and are sent again.")
	t.markerGone = m.counter("sekali_transaction_markers_fenced_total",
		"Markers given up because the partition knows a newer epoch of the producer.")
	t.failed = m.counter("sekali_transaction_log_failures_total",
		"Times a partition of the transaction log went offline; its transactional ids are not served until it is back.")

	t.rebalances = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sekali_group_rebalance_seconds",
		Help: "Time a group took to rebalance; its count is the number of rebalances.", Buckets: rebalanceBuckets},
		[]string{"type"})
	m.reg.MustRegister(t.rebalances)
	t.expired = m.vec("sekali_group_sessions_expired_total",
		"Members of groups removed because they were silent for their session timeout.", "type")
	for _, kind := range []string{group.TypeClassic, group.TypeConsumer} {
		t.rebalances.WithLabelValues(kind)
		t.expired.WithLabelValues(kind)
	}
	committed := m.vec("sekali_group_offsets_committed_total",
		"Offsets of groups committed: transactional=true, staged until their transaction is decided.", "transactional")
	t.committedPlain, t.committedTxn = committed.WithLabelValues("false"), committed.WithLabelValues("true")
	settled := m.vec("sekali_group_offsets_settled_total",
		"Staged offsets whose transaction was decided.", "outcome")
	t.settledCommit, t.settledAbort = settled.WithLabelValues("commit"), settled.WithLabelValues("abort")
	t.offsetsExpired = m.counter("sekali_group_offsets_expired_total",
		"Offsets forgotten after offsets.retention.minutes without a member.")
}

// txnEvents is what the coordinator tells; warn logs what may come often, within bounds.
func (m *metrics) txnEvents(log *slog.Logger, warn func(msg string, args ...any)) coord.Events {
	t := &m.txns
	return coord.Events{
		Aborted: func(c coord.Cause) {
			if int(c) < len(t.byCause) {
				t.byCause[c].Inc()
			}
		},
		Fenced:    t.fenced.Inc,
		Busy:      t.busy.Inc,
		Committed: t.commit.Observe,
		Retried: func(tp coord.TP, err error) {
			t.markerRetries.Inc()
			warn("a transaction marker was not written and will be sent again",
				"topic", tp.Topic, "partition", tp.Partition, "err", err)
		},
		GaveUp: func(tp coord.TP, err error) {
			t.markerGone.Inc()
			warn("a transaction marker was given up", "topic", tp.Topic, "partition", tp.Partition, "err", err)
		},
		Failed: func(shard int, err error) {
			t.failed.Inc()
			log.Error("a partition of the transaction log is offline", "partition", shard, "err", err)
		},
		Skipped: func(shard int, offset int64, err error) {
			log.Warn("part of the transaction log was skipped", "partition", shard, "offset", offset, "err", err)
		},
	}
}

// groupEvents is what the groups tell.
func (m *metrics) groupEvents() group.Events {
	t := &m.txns
	return group.Events{
		Rebalanced: func(kind string, took time.Duration, _ int) {
			t.rebalances.WithLabelValues(kind).Observe(took.Seconds())
		},
		SessionExpired: func(kind string) { t.expired.WithLabelValues(kind).Inc() },
		Committed: func(offsets int, transactional bool) {
			if transactional {
				t.committedTxn.Add(float64(offsets))
			} else {
				t.committedPlain.Add(float64(offsets))
			}
		},
		Settled: func(offsets int, commit bool) {
			if commit {
				t.settledCommit.Add(float64(offsets))
			} else {
				t.settledAbort.Add(float64(offsets))
			}
		},
		Expired: func(offsets int) { t.offsetsExpired.Add(float64(offsets)) },
	}
}

// watchTxns shows the transactional ids by state from now on; it is called once.
func (m *metrics) watchTxns(c *coord.Coordinator) { m.reg.MustRegister(&txnCollector{c}) }

// txnCollector asks a coordinator at the time of a scrape. It implements prometheus.Collector.
type txnCollector struct{ txns *coord.Coordinator }

var txnStates = prometheus.NewDesc("sekali_transactional_ids",
	"Transactional ids by the state of their last transaction.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (c *txnCollector) Describe(ch chan<- *prometheus.Desc) { ch <- txnStates }

// Collect implements prometheus.Collector.
func (c *txnCollector) Collect(ch chan<- prometheus.Metric) {
	counted := make(chan coord.Counts, 1)
	c.txns.Count(func(n coord.Counts) { counted <- n })
	n := <-counted
	for state := coord.Empty; state <= coord.CompleteAbort; state++ {
		ch <- prometheus.MustNewConstMetric(txnStates, prometheus.GaugeValue, float64(n[state]), state.String())
	}
}
