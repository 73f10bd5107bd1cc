package main

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// marker sends WriteTxnMarkers for one partition.
func (a *actor) marker(version int16, generation int8, p int32, pid int64, epoch int16, coordinator int32, commit bool) {
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	r.Version = version
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch = pid, epoch, commit, coordinator
	m.TransactionVersion = generation
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = a.topic, []int32{p}
	m.Topics = append(m.Topics, t)
	r.Markers = append(r.Markers, m)
	what := fmt.Sprintf("marker v%d, TV%d, commit %v, coordinator %d%s", version, generation, commit, coordinator,
		a.as(pid, epoch))
	resp, ok := ask[*kmsg.WriteTxnMarkersResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	a.see(what, "%s code %d", a.s.pidText(resp.Markers[0].ProducerID), resp.Markers[0].Topics[0].Partitions[0].ErrorCode)
}

// coordinatorEpoch of markers of tests: above any that the broker's own coordinator has.
const coordinatorEpoch = 1000

// markerRows are the tables of WriteTxnMarkers.
var markerRows = []tableRow{
	{"unknown topic and partition", func(a *actor) {
		a.init()
		for _, v := range []int16{1, 2} {
			a.marker(v, 0, 7, a.pid, a.epoch, coordinatorEpoch, false)
		}
		a.topic = "unknown"
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, false)
	}},
	{"unknown producer", func(a *actor) {
		a.init()
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, true)
		a.log(0).producers(0)
	}},
	{"open transaction, the same epoch", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, false)
		a.log(0).producers(0)
	}},
	{"open transaction, epoch below", func(a *actor) {
		a.init().init().begin(0, 0)
		a.marker(1, 0, 0, a.pid, a.epoch-1, coordinatorEpoch, false)
		a.marker(2, 2, 0, a.pid, a.epoch-1, coordinatorEpoch, false)
		a.log(0)
	}},
	{"open transaction, epoch above", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(1, 0, 0, a.pid, a.epoch+1, coordinatorEpoch, true)
		a.log(0).producers(0)
	}},
	{"open transaction, TV2, the same epoch", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(2, 2, 0, a.pid, a.epoch, coordinatorEpoch, true)
		a.log(0)
	}},
	{"open transaction, TV2, epoch above, then again", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(2, 2, 0, a.pid, a.epoch+1, coordinatorEpoch, true)
		a.marker(2, 2, 0, a.pid, a.epoch+1, coordinatorEpoch, true)
		a.log(0)
	}},
	{"an older coordinator", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, true)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch-1, true)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch+1, true)
		a.log(0).producers(0)
	}},
	{"no transaction", func(a *actor) {
		a.init().begin(0, 0).end(true)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, false)
		a.log(0)
	}},
	{"retry of the aborted after the marker", func(a *actor) {
		a.init().begin(0, 0)
		a.marker(1, 0, 0, a.pid, a.epoch, coordinatorEpoch, false)
		a.write(0, 0, 1).write(0, 1, 1).log(0)
	}},
	{"two transactions, the first is decided last", func(a *actor) {
		a.init().begin(0, 0)
		b := *a
		b.id, b.n = a.id+"-other", 100
		b.init().begin(0, 0).end(false).log(0)
		a.n = 200
		a.write(0, 1, 1).end(false).log(0)
	}},
	{"versions", func(a *actor) {
		a.init().begin(0, 0)
		for _, v := range []int16{0, 3} {
			a.marker(v, 0, 0, a.pid, a.epoch, coordinatorEpoch, true)
		}
		a.log(0)
	}},
}

// producers records DescribeProducers of a partition.
func (a *actor) producers(p int32) *actor {
	r := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = a.topic, []int32{p}
	r.Topics = append(r.Topics, t)
	resp, _ := ask[*kmsg.DescribeProducersResponse](a.s, r)
	q := resp.Topics[0].Partitions[0]
	text := fmt.Sprintf("code %d", q.ErrorCode)
	for _, x := range q.ActiveProducers { // of one producer: Kafka's order is that of a hash table
		text += fmt.Sprintf(", %s/%d sequence %d coordinator %d open from %d", a.s.pidText(x.ProducerID), x.ProducerEpoch,
			x.LastSequence, x.CoordinatorEpoch, x.CurrentTxnStartOffset)
	}
	a.see("producers", "%s", text)
	return a
}

// tellRows are DescribeTransactions and ListTransactions.
var tellRows = []tableRow{
	{"unknown id", func(a *actor) { a.state() }},
	{"empty id", func(a *actor) { a.id = ""; a.state() }},
	{"states", func(a *actor) {
		a.init().state().begin(0, 0).begin(1, 0).state().end(true).state().begin(0, 1).end(false).state()
	}},
	{"several ids", func(a *actor) {
		a.init()
		r := kmsg.NewPtrDescribeTransactionsRequest()
		r.TransactionalIDs = []string{a.id, "unknown", "", a.id}
		resp, _ := ask[*kmsg.DescribeTransactionsResponse](a.s, r)
		var all []string
		for _, t := range resp.TransactionStates {
			all = append(all, fmt.Sprintf("%q code %d %s", t.TransactionalID, t.ErrorCode, t.State))
		}
		a.see("describe", "%s", strings.Join(all, ", "))
	}},
	{"list", func(a *actor) {
		name := a.id
		for _, end := range []string{"empty", "open", "committed", "aborted"} {
			b := *a
			b.id, b.n = name+"-"+end, a.n+1
			b.init()
			if end != "empty" {
				b.begin(int32(len(end)%2), 0)
			}
			if end == "committed" || end == "aborted" {
				b.end(end == "committed")
			}
			a.n, a.pid = b.n+1, b.pid
		}
		for v := range int16(3) {
			a.listTransactions(fmt.Sprintf("list v%d", v), v, func(*kmsg.ListTransactionsRequest) {})
		}
		for _, states := range [][]string{{"Ongoing"}, {"Empty", "CompleteAbort"}, {"ongoing"}, {"Nothing", "Ongoing"}, {"Dead"},
			{"PrepareEpochFence"}} {
			a.listTransactions(fmt.Sprintf("list of states %v", states), 0,
				func(r *kmsg.ListTransactionsRequest) { r.StateFilters = states })
		}
		a.listTransactions("list of a producer", 0,
			func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{a.pid} })
		a.listTransactions("list of producer -1", 0,
			func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{-1} })
		for _, ms := range []int64{-1, 0, 1 << 40} {
			a.listTransactions(fmt.Sprintf("list longer than %d ms", ms), 1,
				func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = ms })
		}
		for _, pattern := range []string{name + "-o.*", ".*open", "open", "", "(", "(?i).*OPEN", "(?=x)"} {
			a.listTransactions(fmt.Sprintf("list like %q", pattern), 2,
				func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &pattern })
		}
	}},
}

// isolated is read_committed in Fetch and ListOffsets over a partition with every kind of transaction.
func isolated(s *side) {
	s.coordinated()
	s.topic("isolated", 2, "segment.ms", longest)
	actors := map[string]*actor{}
	for _, name := range []string{"a", "b", "c"} {
		actors[name] = &actor{s: s, row: name, id: "isolated-" + name, topic: "isolated"}
		actors[name].init()
	}
	a, b, c := actors["a"], actors["b"], actors["c"]
	plainly := func() {
		s.must(produced(ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, "isolated", 0, plain(1).bytes()))))
	}
	plainly()        // 0
	a.begin(0, 0)    // 1
	a.end(true)      // 2 marker
	b.begin(0, 0)    // 3
	c.begin(0, 0)    // 4
	b.write(0, 1, 2) // 5, 6
	c.end(false)     // 7 marker
	plainly()        // 8
	b.end(false)     // 9 marker
	a.begin(0, 1)    // 10, open
	plainly()        // 11
	c.begin(0, 1)    // 12
	c.end(false)     // 13 marker
	a.begin(1, 0)    // the other partition
	read := func(when string) {
		for _, isolation := range []int8{0, 1, 2} {
			for _, at := range []int64{0, 4, 7, 9, 10, 12, 14, 15} {
				r := rawclient.Fetch(12, "isolated", 0, at)
				r.IsolationLevel = isolation
				s.isolatedFetch(fmt.Sprintf("%s: isolation %d, from %d", when, isolation, at), r)
			}
			for _, ms := range []int64{-1, -2, -3, 0, epochTime, epochTime + 1} {
				r := listOffsets(7, "isolated", 0, ms)
				r.IsolationLevel = isolation
				s.list(fmt.Sprintf("%s: isolation %d, list %d", when, isolation, ms), r)
			}
		}
		small := rawclient.Fetch(12, "isolated", 0, 3)
		small.IsolationLevel, small.Topics[0].Partitions[0].PartitionMaxBytes = 1, 1
		s.isolatedFetch(when+": one byte from 3", small)
	}
	read("open")
	a.end(true) // 14 marker
	read("decided")
}

// isolatedFetch records the watermarks, the aborted transactions and the batches of one partition.
func (s *side) isolatedFetch(step string, r *kmsg.FetchRequest) {
	resp, ok := ask[*kmsg.FetchResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	p := resp.Topics[0].Partitions[0]
	text := fmt.Sprintf("code %d, stable %d of %d, aborted", p.ErrorCode, p.LastStableOffset, p.HighWatermark)
	if p.AbortedTransactions == nil {
		text += " null"
	}
	for _, t := range p.AbortedTransactions {
		text += fmt.Sprintf(" %s from %d", s.pidText(t.ProducerID), t.FirstOffset)
	}
	for b := p.RecordBatches; len(b) > 0; {
		var one string
		one, b = s.batchText(b)
		text += "; " + one
	}
	s.see(step, "%s", text)
}
