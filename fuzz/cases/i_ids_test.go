package cases

import (
	"slices"
	"strings"
	"testing"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// longestName is the most a name of the protocol can have, in bytes.
const longestName = 1<<15 - 1

// I5, names of groups and transactions: they are data only. Names like paths, of 32 KiB, and names that differ in case
// alone each have a producer, a group and an outcome of their own, and no file.
func TestI5IDsAreData(t *testing.T) {
	ids := []string{".", "..", "../x", "../../x", "/x", "a/b", `a\b`, "a\x00b", "a\nb", "ä", " ", "%2e%2e%2f", "case",
		"Case", "CASE", "__transaction_state-0", "__consumer_offsets", strings.Repeat("i", longestName),
		strings.Repeat("../", longestName/3)}
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("i5", 1)
		n.coordinator(1, "i5")
		n.coordinator(0, "i5")
		outside := n.outside()
		inside := n.list("", "")
		first := map[int64]string{}
		for i, id := range ids {
			x := n.INIT(g, id)
			if other, taken := first[x.who.id]; taken {
				t.Errorf("producer id %d is given to %.40q and %.40q", x.who.id, other, id)
			}
			first[x.who.id] = id
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 1)
			n.oneOf("AddOffsetsToTxn", x.addOffsets(id), 0)
			n.oneOf("TOC", x.TOC(id, p, int64(i)), 0)
			x.ended(true)
		}
		n.settledIDs(ids, p)
		n.restart("KILL")
		n.coordinator(1, "i5")
		n.coordinator(0, "i5")
		for _, id := range ids {
			if x := n.INIT(g, id); first[x.who.id] != id || x.who.epoch == 0 {
				t.Errorf("after KILL %.40q is %+v, which was of %.40q", id, x.who, first[x.who.id])
			}
		}
		n.settledIDs(ids, p)
		if got := n.committed(p, 0, 1<<20); len(got) != len(ids) {
			t.Errorf("%d records, want %d", len(got), len(ids))
		}
		if after := n.outside(); !slices.Equal(after, outside) {
			t.Errorf("outside the data directory: %q, was %q", after, outside)
		}
		for _, name := range n.list("", "") {
			if !slices.Contains(inside, name) && !strings.HasPrefix(name, "__") && !strings.HasSuffix(name, "-checkpoint") {
				t.Errorf("in the data directory: %q is new", name)
			}
		}
	})
}

// settledIDs demands that every group stands at its place in the list, and that all names are listed.
func (n *node) settledIDs(ids []string, p tp) {
	n.t.Helper()
	var txns, groups []string
	for _, x := range ask[*kmsg.ListTransactionsResponse](n, kmsg.NewPtrListTransactionsRequest()).TransactionStates {
		txns = append(txns, x.TransactionalID)
	}
	r := kmsg.NewPtrListGroupsRequest()
	r.Version = 4
	for _, x := range ask[*kmsg.ListGroupsResponse](n, r).Groups {
		groups = append(groups, x.Group)
	}
	for i, id := range ids {
		n.settledOffsets(id, p)
		n.at("group", id, p, true, int64(i), 0)
		if !slices.Contains(txns, id) || !slices.Contains(groups, id) {
			n.t.Errorf("%.40q is not listed among %d transactions and %d groups", id, len(txns), len(groups))
		}
	}
}

// I5, names longer than the protocol allows, which a compact string can hold: the request is refused or the connection
// closed, and nothing of them is kept.
func TestI5IDsTooLong(t *testing.T) {
	n := launch(t, options{})
	p := n.topic("i5", 1)
	n.coordinator(1, "i5")
	n.coordinator(0, "i5")
	long := strings.Repeat("x", longestName+1)
	init := initRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &long, txnDefaultTimeoutMs
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKey = 3, 1, long
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, long, -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: p.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{
		{Partition: p.partition, Offset: 1, LeaderEpoch: -1}}}}
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Version, join.Group, join.MemberID, join.RebalanceTimeoutMillis = 1, long, "m", 1000
	join.SubscribedTopicNames = []string{p.topic}
	end := (&txn{g: txnV2, id: long}).endRequest(producer{1, 1}, true)
	for _, r := range []kmsg.Request{init, find, commit, join, end} {
		c, err := rawclient.Dial(n.address())
		n.must(err)
		resp, err := c.Call(r)
		if err != nil && !closed(err) {
			t.Errorf("key %d: %v", r.Key(), err)
		}
		if err == nil {
			t.Errorf("key %d: %+v; want a closed connection", r.Key(), resp)
		}
		c.Close()
	}
	n.restart("KILL")
	n.coordinator(1, "i5")
	n.coordinator(0, "i5")
	x := n.INIT(txnV2, "i5")
	x.must(p, 1)
	x.ended(true)
	if l := ask[*kmsg.ListTransactionsResponse](n, kmsg.NewPtrListTransactionsRequest()).TransactionStates; len(l) != 1 {
		t.Errorf("%d transactional ids are listed", len(l))
	}
	if l := ask[*kmsg.ListGroupsResponse](n, kmsg.NewPtrListGroupsRequest()).Groups; len(l) != 0 {
		t.Errorf("%d groups are listed", len(l))
	}
}
