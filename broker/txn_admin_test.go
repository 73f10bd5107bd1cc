package broker

import (
	"fmt"
	"slices"
	"testing"

	"sekali/internal/rawclient"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// markers sends one marker and returns the code of partition 0.
func writeMarker(t *testing.T, c *rawclient.Client, version int16, topic string,
	m kmsg.WriteTxnMarkersRequestMarker) int16 {
	t.Helper()
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	r.Version = version
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{0}}}
	r.Markers = []kmsg.WriteTxnMarkersRequestMarker{m}
	resp := call[*kmsg.WriteTxnMarkersResponse](t, c, r)
	if len(resp.Markers) != 1 || resp.Markers[0].ProducerID != m.ProducerID {
		t.Fatalf("%+v", resp)
	}
	return resp.Markers[0].Topics[0].Partitions[0].ErrorCode
}

// TestWriteTxnMarkers is the table of section 5.7 on the wire, and the way out of a hanging transaction: the marker
// that an administrator writes lets readers go on.
func TestWriteTxnMarkers(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	if code := writeMarker(t, c, 1, "__consumer_offsets", kmsg.WriteTxnMarkersRequestMarker{ProducerID: 1}); code != 6 {
		t.Errorf("offsets before the coordinators are loaded: code %d, want 6", code)
	}
	n.coordinate()
	n.topic("t", 1, nil)
	x := n.transact("x")
	hang := func() {
		t.Helper()
		if p := x.produce(12, "t", 0); p.ErrorCode != 0 {
			t.Fatalf("produce: %d", p.ErrorCode)
		}
	}
	hang()
	marker := func(epoch int16, coordinator int32, tv int8) kmsg.WriteTxnMarkersRequestMarker {
		return kmsg.WriteTxnMarkersRequestMarker{
			ProducerID: x.pid, ProducerEpoch: epoch, CoordinatorEpoch: coordinator, TransactionVersion: tv}
	}
	for _, w := range []struct {
		what    string
		version int16
		topic   string
		m       kmsg.WriteTxnMarkersRequestMarker
		want    int16
	}{
		{"unknown topic", 1, "nowhere", marker(x.epoch, 5, 0), 3},
		{"no producer", 1, "t", kmsg.WriteTxnMarkersRequestMarker{ProducerID: -1}, 42},
		{"equal epoch, version 2, open", 2, "t", marker(x.epoch, 5, 2), 47},
		{"equal epoch", 1, "t", marker(x.epoch, 5, 0), 0},
		{"equal epoch, version 2, ended", 2, "t", marker(x.epoch, 5, 2), 0},
		{"older coordinator", 1, "t", marker(x.epoch, 4, 0), 52},
		{"higher epoch", 2, "t", marker(x.epoch+5, 5, 2), 0},
		{"older epoch", 1, "t", marker(x.epoch, 5, 0), 47},
	} {
		if code := writeMarker(t, c, w.version, w.topic, w.m); code != w.want {
			t.Errorf("%s: code %d, want %d", w.what, code, w.want)
		}
	}
	if s, h := lastStable(t, c, "t"), high(t, c, "t"); s != 4 || h != 4 {
		t.Errorf("stable %d, high %d, want 4 and 4: one record and three markers", s, h)
	}
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	r.Version = 2
	for _, pid := range []int64{70, 71, 70} {
		r.Markers = append(r.Markers, kmsg.WriteTxnMarkersRequestMarker{ProducerID: pid,
			Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0, 1}}}})
	}
	resp := call[*kmsg.WriteTxnMarkersResponse](t, c, r)
	if len(resp.Markers) != 2 || len(resp.Markers[0].Topics) != 2 || len(resp.Markers[1].Topics) != 1 {
		t.Fatalf("not grouped by producer: %+v", resp.Markers)
	}
	for _, p := range resp.Markers[0].Topics[1].Partitions {
		if want := int16(3 * p.Partition); p.ErrorCode != want {
			t.Errorf("partition %d: code %d, want %d", p.Partition, p.ErrorCode, want)
		}
	}
}

// TestDescribeAndListTransactions: states by name, filters, and what is not known.
func TestDescribeAndListTransactions(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	list := func(version int16, edit func(*kmsg.ListTransactionsRequest)) ([]string, *kmsg.ListTransactionsResponse) {
		t.Helper()
		var names []string
		r := kmsg.NewPtrListTransactionsRequest()
		r.Version = version
		if edit != nil {
			edit(r)
		}
		resp := call[*kmsg.ListTransactionsResponse](t, c, r)
		for _, s := range resp.TransactionStates {
			names = append(names, s.TransactionalID+":"+s.TransactionState)
		}
		slices.Sort(names)
		return names, resp
	}
	if names, resp := list(0, nil); len(names) != 0 || resp.ErrorCode != 0 {
		t.Errorf("without coordinators: %v, code %d", names, resp.ErrorCode)
	}
	if d := describeTxn(t, c, "x"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
		t.Errorf("without coordinators: %d", d.ErrorCode)
	}
	n.coordinate()
	n.topic("t", 2, nil)
	a, b := n.transact("a-1"), n.transact("b-1")
	n.transact("c-1")
	a.produce(12, "t", 0)
	b.produce(12, "t", 0)
	b.end(5, false)
	for _, w := range []struct {
		version int16
		edit    func(*kmsg.ListTransactionsRequest)
		want    string
		unknown string
	}{
		{0, nil, "[a-1:Ongoing b-1:CompleteAbort c-1:Empty]", "[]"},
		{0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Empty", "Odd"} },
			"[a-1:Ongoing c-1:Empty]", "[Odd]"},
		{0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Odd"} }, "[]", "[Odd]"},
		{0, func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{b.pid} }, "[b-1:CompleteAbort]", "[]"},
		{1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 }, "[c-1:Empty]", "[]"}, // as Kafka
		{2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = text("[ac]-.*") },
			"[a-1:Ongoing c-1:Empty]", "[]"},
	} {
		names, resp := list(w.version, w.edit)
		if fmt.Sprint(names) != w.want || resp.ErrorCode != 0 || fmt.Sprint(resp.UnknownStateFilters) != w.unknown {
			t.Errorf("%v, code %d, unknown %v, want %s and %s", names, resp.ErrorCode, resp.UnknownStateFilters, w.want,
				w.unknown)
		}
	}
	_, resp := list(2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = text("(") })
	if resp.ErrorCode != 128 {
		t.Errorf("a bad pattern: code %d, want 128", resp.ErrorCode)
	}
	d := describeTxn(t, c, "a-1")
	if d.State != "Ongoing" || d.ProducerID != a.pid || fmt.Sprint(d.Topics[0].Topic, d.Topics[0].Partitions) != "t[0]" &&
		fmt.Sprint(d.Topics[0].Topic, d.Topics[0].Partitions) != "t [0]" {
		t.Errorf("%+v", d)
	}
	for id, want := range map[string]int16{"": 42, "nobody": 105} {
		if d := describeTxn(t, c, id); d.ErrorCode != want {
			t.Errorf("describe %q: code %d, want %d", id, d.ErrorCode, want)
		}
	}
	r := kmsg.NewPtrDescribeProducersRequest()
	r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	for _, p := range call[*kmsg.DescribeProducersResponse](t, c, r).Topics[0].Partitions[0].ActiveProducers {
		want := int64(-1)
		if p.ProducerID == a.pid {
			want = 0
		}
		if p.CurrentTxnStartOffset != want {
			t.Errorf("producer %d: transaction from %d, want %d", p.ProducerID, p.CurrentTxnStartOffset, want)
		}
	}
}

// TestFindCoordinatorVersions: every version gets this node for both kinds of keys.
func TestFindCoordinatorVersions(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	for version := int16(0); version <= 6; version++ {
		for kind := int8(0); kind < 3 && (version > 0 || kind == 0); kind++ {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.Version, r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = version, kind, "k", []string{"k", "l"}
			resp := call[*kmsg.FindCoordinatorResponse](t, c, r)
			node, code := resp.NodeID, resp.ErrorCode
			if version >= 4 {
				if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != "l" {
					t.Fatalf("%+v", resp)
				}
				node, code = resp.Coordinators[1].NodeID, resp.Coordinators[1].ErrorCode
			}
			if kind == 2 && (node != -1 || code != 42) || kind < 2 && (node != n.nodeID || code != 0) {
				t.Errorf("version %d, type %d: node %d, code %d", version, kind, node, code)
			}
		}
	}
}

// TestInternalTopicsAreTheNodes: clients may neither write to them, nor delete or grow them, and can read them.
func TestInternalTopicsAreTheNodes(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	c := n.dial()
	for _, name := range []string{"__transaction_state", "__consumer_offsets"} {
		p := produced(t, c, rawclient.Produce(9, name, 0, rawclient.Batch(0, -1, -1, -1, 1, 1)))
		if p.ErrorCode != kerr.InvalidTopicException.Code {
			t.Errorf("produce to %s: code %d, want 17", name, p.ErrorCode)
		}
		d := kmsg.NewPtrDeleteTopicsRequest()
		d.Version, d.TopicNames = 1, []string{name}
		if resp := call[*kmsg.DeleteTopicsResponse](t, c, d); resp.Topics[0].ErrorCode == 0 {
			t.Errorf("%s was deleted", name)
		}
		if f := fetched(t, c, rawclient.Fetch(12, name, 0, 0)); f.ErrorCode != 0 {
			t.Errorf("fetch from %s: code %d", name, f.ErrorCode)
		}
	}
}

// TestTransactionOverARestart: an open transaction is still open, ended ones are not, and a commit that was answered
// holds; the producer goes on where it stood.
func TestTransactionOverARestart(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	n.coordinate()
	n.topic("t", 1, nil)
	n.topic("u", 1, nil)
	x, y := n.node.transact("x"), n.node.transact("y")
	x.produce(12, "t", 0)
	before := *x
	if resp := x.end(5, true); resp.ErrorCode != 0 {
		t.Fatalf("end: %d", resp.ErrorCode)
	}
	y.produce(12, "u", 0)
	x.produce(12, "t", 0)
	next := fs.Kill()
	n.abandon()

	n = startNodeOn(t, next)
	c := n.node.dial()
	x.c, y.c, before.c = c, n.node.dial(), c
	if s, h := lastStable(t, c, "t"), high(t, c, "t"); s != 2 || h != 3 {
		t.Errorf("stable %d, high %d, want 2 and 3", s, h)
	}
	if p := x.produce(12, "t", 0); p.ErrorCode != 0 || p.BaseOffset != 2 {
		t.Errorf("the retry: code %d at %d, want 0 at 2", p.ErrorCode, p.BaseOffset)
	}
	if p := before.produce(12, "t", 1); p.ErrorCode != kerr.InvalidProducerEpoch.Code {
		t.Errorf("the epoch before: code %d, want 47", p.ErrorCode)
	}
	if resp := x.end(5, true); resp.ErrorCode != 0 {
		t.Errorf("commit after the restart: %d", resp.ErrorCode)
	}
	if resp := y.end(5, false); resp.ErrorCode != 0 {
		t.Errorf("abort after the restart: %d", resp.ErrorCode)
	}
	if s, u := lastStable(t, c, "t"), lastStable(t, c, "u"); s != 4 || u != 2 {
		t.Errorf("stable %d and %d, want 4 and 2", s, u)
	}
}
