package broker

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sekali/coord"
	"sekali/group"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What coordinator and groups tell is counted under the names an operator sees, and what went wrong is said.
func TestTxnEventsAreCounted(t *testing.T) {
	n := startNode(t)
	var said []string
	e := n.metrics.txnEvents(n.log, func(msg string, _ ...any) { said = append(said, msg) })
	for cause, times := range map[coord.Cause]int{coord.ByClient: 1, coord.ByTimeout: 2, coord.ByFence: 3} {
		for range times {
			e.Aborted(cause)
		}
	}
	e.Fenced()
	e.Busy()
	e.Committed(0.5)
	e.Committed(0.25)
	e.Retried(coord.TP{Topic: "t"}, errors.New("x"))
	e.GaveUp(coord.TP{Topic: "t"}, coord.ErrFenced)
	e.Failed(3, errors.New("x"))
	g := n.metrics.groupEvents()
	g.Rebalanced(group.TypeClassic, time.Second, 3)
	g.SessionExpired(group.TypeConsumer)
	g.Committed(4, false)
	g.Committed(5, true)
	g.Settled(3, true)
	g.Settled(2, false)
	g.Expired(6)
	got := scrape(t, n.metrics)
	for name, want := range map[string]float64{
		`sekali_transactions_aborted_total{cause="client"}`:               1,
		`sekali_transactions_aborted_total{cause="timeout"}`:              2,
		`sekali_transactions_aborted_total{cause="fence"}`:                3,
		"sekali_producers_fenced_total":                                   1,
		"sekali_transactions_busy_total":                                  1,
		"sekali_transaction_commit_seconds_count":                         2,
		"sekali_transaction_commit_seconds_sum":                           0.75,
		"sekali_transaction_marker_retries_total":                         1,
		"sekali_transaction_markers_fenced_total":                         1,
		"sekali_transaction_log_failures_total":                           1,
		`sekali_group_rebalance_seconds_count{type="classic"}`:            1,
		`sekali_group_rebalance_seconds_count{type="consumer"}`:           0,
		`sekali_group_sessions_expired_total{type="consumer"}`:            1,
		`sekali_group_offsets_committed_total{transactional="false"}`:     4,
		`sekali_group_offsets_committed_total{transactional="true"}`:      5,
		`sekali_group_offsets_settled_total{outcome="commit"}`:            3,
		`sekali_group_offsets_settled_total{outcome="abort"}`:             2,
		"sekali_group_offsets_expired_total":                              6,
		`sekali_transactional_ids{state="Ongoing"}`:                       0,
		"sekali_groups_behind":                                            0,
		`sekali_group_members{type="classic"}`:                            0,
		`sekali_transaction_oldest_open_seconds`:                          0,
		`sekali_group_sessions_expired_total{type="classic"}`:             0,
		`sekali_transactional_ids{state="CompleteAbort"}`:                 0,
		`sekali_group_rebalance_seconds_bucket{type="classic",le="+Inf"}`: 1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
		}
	}
	if len(said) != 2 {
		t.Errorf("said %q", said)
	}
}

// Transactional ids are counted by state from the coordinator itself.
func TestTransactionalIDsByState(t *testing.T) {
	n := startNode(t)
	if err := n.engine.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		done := make(chan *kerr.Error, 1)
		n.engine.Txns().Init(coord.InitIn{TxnID: id, TimeoutMs: 1000, PID: -1, Epoch: -1},
			func(_ coord.InitOut, code *kerr.Error) { done <- code })
		if code := <-done; code != nil {
			t.Fatal(code)
		}
	}
	if got := scrape(t, n.metrics)[`sekali_transactional_ids{state="Empty"}`]; got != 2 {
		t.Errorf("%v ids are Empty, want 2", got)
	}
}

// The lag of a group is what it has not committed of what is decided, over all its partitions.
func TestGroupLag(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	made := c.makeTopic("t", 2)
	for range 5 {
		c.produce("t", 0, -1, -1, 1000, 2)
		c.produce("t", 1, -1, -1, 1000, 1)
	}
	if err := n.engine.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.openTxn("t", 1, 7, 4) // is not there to be read yet
	odd := "g\xff" + strings.Repeat("ä", 300)
	commit := func(id string, partition int32, offset int64) {
		t.Helper()
		done := make(chan *kerr.Error, 1)
		n.engine.Groups().Commit(group.CommitIn{
			Member: group.Member{Group: id, Generation: -1}, Version: 8, PID: -1, RetainMs: -1,
			TPs:     []group.TP{{Topic: "t", ID: made.TopicID, Partition: partition}},
			Offsets: []group.Offset{{Offset: offset, LeaderEpoch: -1}},
		}, func(codes []*kerr.Error, _ uint64) { done <- codes[0] })
		if code := <-done; code != nil {
			t.Fatalf("commit of %s: %v", id, code)
		}
	}
	commit("half", 0, 4)
	commit("half", 1, 2)
	commit("done", 0, 10)
	commit(odd, 1, 0)
	got := scrape(t, n.metrics)
	for name, want := range map[string]float64{
		`sekali_group_lag{group="half"}`:                     6 + 3,
		`sekali_group_lag{group="done"}`:                     0,
		`sekali_group_lag{group="` + labelText(odd) + `"}`:   5,
		"sekali_groups_behind":                               2,
		`sekali_groups{state="Empty",type="classic"}`:        3,
		`sekali_last_stable_offset{partition="1",topic="t"}`: 5,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestLabelText(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"\xff":                         "?",
		strings.Repeat("x", 300):       strings.Repeat("x", labelTextMax),
		"x" + strings.Repeat("ä", 200): "x" + strings.Repeat("ä", (labelTextMax-2)/2) + "?",
	} {
		if got := labelText(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%.20q...: %q, want %q", in, got, want)
		}
	}
}
