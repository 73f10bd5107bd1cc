package broker

import (
	"time"

	"sekali/auth"
	"sekali/pidmap"
	"sekali/wire"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics holds every counter and histogram of a server and the registry that shows them. Its owner is the Server; any
// goroutine may call any method at any time, and no method blocks or allocates once its label is known.
type metrics struct {
	reg *prometheus.Registry

	appendedBytes, appendedRecords, appendedBatches prometheus.Counter

	duplicateWindow, duplicateOld prometheus.Counter
	mismatches                    prometheus.Counter
	outOfOrder, fenced, txnState  prometheus.Counter
	evictedEarly, evictedIdle     prometheus.Counter

	fsync, produce, fetch prometheus.Histogram
	flushedBytes, rolled  prometheus.Counter
	fetchedBytes          prometheus.Counter
	faults                *prometheus.CounterVec
	cutBytes, cutBatches  prometheus.Counter

	cleanedRead, cleanedWritten, cleanedRecords prometheus.Counter

	requests      [kmsg.MaxKey + 1]prometheus.Counter
	produceErrors *prometheus.CounterVec
	badRequests   *prometheus.CounterVec
	authFailures  *prometheus.CounterVec
	denials       *prometheus.CounterVec
	panics        prometheus.Counter
	connections   prometheus.Gauge
	accepted      prometheus.Counter
	refused       *prometheus.CounterVec

	txns txnMetrics
}

// badReason says why bytes from the wire were no request that could be served.
type badReason string

// The reasons told by sekali_bad_requests_total.
const (
	badFrame   badReason = "frame"   // length negative, zero or above the limit of its key
	badHeader  badReason = "header"  // request header does not parse
	badVersion badReason = "version" // key or version that is not advertised
	badBody    badReason = "body"    // body does not parse, or a count exceeds what is left
	badRecords badReason = "records" // records of a Produce refused by validation
	badLogin   badReason = "login"   // before a login, or after it had expired
)

// refusal says why a connection was not kept.
type refusal string

// The reasons told by sekali_connections_refused_total.
const (
	refusedTotal refusal = "max.connections"
	refusedPerIP refusal = "max.connections.per.ip"
)

// latencyBuckets run from 100 µs to 6.6 s, each twice the one before.
var latencyBuckets = prometheus.ExponentialBuckets(100e-6, 2, 17)

// newMetrics returns metrics over a registry of their own, which also shows the Go runtime and the process.
func newMetrics() *metrics {
	m := &metrics{reg: prometheus.NewRegistry()}
	m.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerLog()
	m.registerWire()
	m.registerTxns()
	return m
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.reg.MustRegister(c)
	return c
}

func (m *metrics) vec(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.reg.MustRegister(v)
	return v
}

func (m *metrics) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets})
	m.reg.MustRegister(h)
	return h
}

// registerLog makes the series about what is in the logs.
func (m *metrics) registerLog() {
	m.appendedBytes = m.counter("sekali_appended_bytes_total", "Bytes of client batches written to logs.")
	m.appendedRecords = m.counter("sekali_appended_records_total", "Records of client batches written to logs.")
	m.appendedBatches = m.counter("sekali_appended_batches_total", "Client batches written to logs.")

	dup := m.vec("sekali_duplicates_dropped_total",
		"Batches not stored because they are stored already: found=window, among the last five of their producer; "+
			"found=old, proven by its sequence history.", "found")
	m.duplicateWindow, m.duplicateOld = dup.WithLabelValues("window"), dup.WithLabelValues("old")
	m.mismatches = m.counter("sekali_duplicates_mismatched_total",
		"Duplicates whose bytes differ from the batch stored under their sequence numbers: no retry, a number used twice.")
	refused := m.vec("sekali_batches_refused_total",
		"Batches refused by producer state: out_of_order (error 45), fenced (47), txn_state (48 or 120).", "reason")
	m.outOfOrder, m.fenced = refused.WithLabelValues("out_of_order"), refused.WithLabelValues("fenced")
	m.txnState = refused.WithLabelValues("txn_state")
	evicted := m.vec("sekali_producers_evicted_total",
		"Producers forgotten because a partition reached its cap: early=true, idle for less than 24 hours.", "early")
	m.evictedEarly, m.evictedIdle = evicted.WithLabelValues("true"), evicted.WithLabelValues("false")

	m.fsync = m.histogram("sekali_fsync_seconds", "Duration of one flush of a log to its device.")
	m.flushedBytes = m.counter("sekali_flushed_bytes_total", "Bytes of logs made durable by flushes.")
	m.rolled = m.counter("sekali_segments_rolled_total", "Segments begun after the first of their log.")
	m.faults = m.vec("sekali_storage_faults_total", "Failed operations on storage.", "op")
	for _, op := range []string{"append", "marker", "flush", "roll", "read", "index", "checkpoint",
		"compaction"} {
		m.faults.WithLabelValues(op) // a series that begins above 0 hides its first increase from Prometheus
	}
	m.cutBytes = m.counter("sekali_recovery_cut_bytes_total",
		"Bytes at or above the durable mark that recovery removed, since the process began.")
	m.cutBatches = m.counter("sekali_recovery_cut_batches_total",
		"Whole batches among the bytes that recovery removed, since the process began.")
	m.cleanedRead = m.counter("sekali_compaction_read_bytes_total", "Bytes that compaction read.")
	m.cleanedWritten = m.counter("sekali_compaction_written_bytes_total", "Bytes that compaction wrote.")
	m.cleanedRecords = m.counter("sekali_compaction_removed_records_total",
		"Records and transaction markers that compaction removed.")
}

// registerWire makes the series about connections and requests.
func (m *metrics) registerWire() {
	m.produce = m.histogram("sekali_produce_seconds",
		"Time from a Produce request being read to its answer being ready; waiting for the flush included.")
	m.produceErrors = m.vec("sekali_produce_errors_total",
		"Partitions of Produce requests answered with an error, by its protocol name.", "error")
	for _, e := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState,
		kerr.TransactionAbortable, kerr.KafkaStorageError, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
		kerr.MessageTooLarge, kerr.InvalidRecord, kerr.CorruptMessage, kerr.UnknownTopicOrPartition} {
		m.produceErrors.WithLabelValues(e.Message)
	}
	m.fetch = m.histogram("sekali_fetch_seconds",
		"Time from a Fetch request being read to its answer being ready; waiting for data included.")
	m.fetchedBytes = m.counter("sekali_fetched_bytes_total", "Bytes of batches handed out in Fetch answers.")

	requests := m.vec("sekali_requests_total", "Requests decoded, by API.", "api")
	for _, r := range wire.Versions() {
		m.requests[r.Key] = requests.WithLabelValues(kmsg.NameForKey(r.Key))
	}
	m.badRequests = m.vec("sekali_bad_requests_total", "Requests that could not be served as sent, by reason.", "reason")
	for _, r := range []badReason{badFrame, badHeader, badVersion, badBody, badRecords, badLogin} {
		m.badRequests.WithLabelValues(string(r))
	}
	m.authFailures = m.vec("sekali_authentication_failures_total",
		"Logins and TLS handshakes that failed, by mechanism.", "mechanism")
	for _, name := range append([]string{authTLS}, auth.Mechanisms...) {
		m.authFailures.WithLabelValues(name)
	}
	m.denials = m.vec("sekali_authorization_denials_total", "What somebody asked for and may not do, by operation.",
		"operation")
	m.panics = m.counter("sekali_request_panics_total",
		"Requests whose handling broke an invariant; each cost its connection.")
	m.connections = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sekali_connections", Help: "Client connections open now."})
	m.reg.MustRegister(m.connections)
	m.accepted = m.counter("sekali_connections_accepted_total", "Client connections accepted and kept.")
	m.refused = m.vec("sekali_connections_refused_total",
		"Client connections closed at once because a limit was reached, by the setting of the limit.", "limit")
	for _, r := range []refusal{refusedTotal, refusedPerIP} {
		m.refused.WithLabelValues(string(r))
	}
}

// appended counts one batch of a client that was written to a log; duplicates do not count.
func (m *metrics) appended(bytes, records int) {
	m.appendedBytes.Add(float64(bytes))
	m.appendedRecords.Add(float64(records))
	m.appendedBatches.Inc()
}

// mismatched counts a duplicate whose bytes are not those that were stored.
func (m *metrics) mismatched() { m.mismatches.Inc() }

// produceLatency counts one answered Produce request, d after it was read.
func (m *metrics) produceLatency(d time.Duration) { m.produce.Observe(d.Seconds()) }

// produceError counts one partition of a Produce request that was answered with an error code.
func (m *metrics) produceError(code int16) { m.produceErrors.WithLabelValues(codeName(code)).Inc() }

// fetchLatency counts one answered Fetch request, d after it was read.
func (m *metrics) fetchLatency(d time.Duration) { m.fetch.Observe(d.Seconds()) }

// fetched counts bytes of batches handed out in a Fetch answer.
func (m *metrics) fetched(bytes int) { m.fetchedBytes.Add(float64(bytes)) }

// panicked counts a request whose handling broke an invariant and cost its connection.
func (m *metrics) panicked() { m.panics.Inc() }

// codeName is the protocol's name of an error code, one of a bounded set.
func codeName(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "NONE"
}

// request counts one decoded request of an advertised key.
func (m *metrics) request(key int16) {
	if key >= 0 && int(key) < len(m.requests) && m.requests[key] != nil {
		m.requests[key].Inc()
	}
}

// badRequest counts bytes from the wire that could not be served.
func (m *metrics) badRequest(r badReason) { m.badRequests.WithLabelValues(string(r)).Inc() }

// authTLS stands for a failed handshake where the mechanism of a login is told.
const authTLS = "TLS"

// authFailed counts a login that failed, or a TLS handshake.
func (m *metrics) authFailed(mechanism string) { m.authFailures.WithLabelValues(mechanism).Inc() }

// denied counts what somebody may not do.
func (m *metrics) denied(op auth.Operation) { m.denials.WithLabelValues(op.String()).Inc() }

// connOpened counts a connection that is kept; connClosed follows once for each.
func (m *metrics) connOpened() {
	m.connections.Inc()
	m.accepted.Inc()
}

func (m *metrics) connClosed() { m.connections.Dec() }

// connRefused counts a connection closed at once.
func (m *metrics) connRefused(r refusal) { m.refused.WithLabelValues(string(r)).Inc() }

// watchInFlight shows what fn returns as the bytes of requests held now. It is called once, before the first scrape;
// fn must be safe for any goroutine.
func (m *metrics) watchInFlight(fn func() int64) {
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sekali_in_flight_bytes", Help: "Bytes of requests charged to the in-flight budget now.",
	}, func() float64 { return float64(fn()) }))
}

// rejected counts a batch that producer state refused. One that is not verified yet is a question to the coordinator;
// unconfirmed counts it if the answer is no.
func (m *metrics) rejected(v pidmap.Verdict) {
	switch v {
	case pidmap.OutOfOrder:
		m.outOfOrder.Inc()
	case pidmap.Fenced:
		m.fenced.Inc()
	case pidmap.TxnOpen:
		m.txnState.Inc()
	}
}

// unconfirmed counts a batch that the coordinator did not let into its transaction.
func (m *metrics) unconfirmed() { m.txnState.Inc() }
