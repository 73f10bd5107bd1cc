package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tools runs commands against one daemon.
type tools struct {
	t *testing.T
	d *daemon
}

// withDaemon starts a daemon with settings for the length of the test.
func withDaemon(t *testing.T, settings ...string) *tools {
	t.Helper()
	words := []string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "none"}
	for _, s := range append(settings, "offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2") {
		words = append(words, "--set", s)
	}
	d := startDaemon(t, words...)
	t.Cleanup(func() { d.stop(t) })
	return &tools{t, d}
}

func (x *tools) run(words ...string) (code int, out, errs string) {
	return command("", append(words, "--bootstrap", x.d.addr)...)
}

// must runs a command that succeeds.
func (x *tools) must(words ...string) string {
	x.t.Helper()
	code, out, errs := x.run(words...)
	if code != exitOK {
		x.t.Fatalf("%v: status %d: %s", words, code, errs)
	}
	return out
}

// refused runs a command that fails and says so.
func (x *tools) refused(says string, words ...string) {
	x.t.Helper()
	if code, out, errs := x.run(words...); code == exitOK || !strings.Contains(errs, says) {
		x.t.Errorf("%v: status %d, printed %q, said %q, want %q", words, code, out, errs, says)
	}
}

// read runs a command with --json.
func read[T any](x *tools, words ...string) T {
	x.t.Helper()
	var v T
	out := x.must(append(words, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		x.t.Fatalf("%v: %v: %s", words, err, out)
	}
	return v
}

func (x *tools) client(opts ...kgo.Opt) *kgo.Client {
	x.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(x.d.addr)}, opts...)...)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(cl.Close)
	return cl
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTxnTools: a transaction is listed and described while it is open and after; aborting one that its coordinator
// knows needs --force.
func TestTxnTools(t *testing.T) {
	x := withDaemon(t)
	x.must("topic", "create", "orders", "--partitions", "2")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w := x.client(kgo.TransactionalID("pay-1"), kgo.DefaultProduceTopic("orders"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ok(t, w.BeginTransaction())
	ok(t, w.ProduceSync(ctx, &kgo.Record{Partition: 1, Value: []byte("a")}).FirstErr())
	listed := read[[]listedTxn](x, "txn", "list")
	if len(listed) != 1 || listed[0].ID != "pay-1" || listed[0].State != "Ongoing" || listed[0].ProducerID < 0 {
		t.Fatalf("listed %+v", listed)
	}
	if out := x.must("txn", "list"); !strings.HasPrefix(out, "TRANSACTIONAL-ID") || strings.Count(out, "\n") != 2 {
		t.Errorf("listed as %q", out)
	}
	for words, want := range map[string]int{"--state Ongoing": 1, "--state Empty": 0, "--longer-than 1h": 0,
		fmt.Sprintf("--producer-id %d", listed[0].ProducerID): 1, "--producer-id 99": 0} {
		got := read[[]listedTxn](x, append([]string{"txn", "list"}, strings.Fields(words)...)...)
		if len(got) != want {
			t.Errorf("%s: %+v, want %d", words, got, want)
		}
	}
	d := read[[]describedTxn](x, "txn", "describe", "pay-1")[0]
	if d.State != "Ongoing" || d.Started <= 0 || len(d.Partitions) != 1 || d.Partitions[0].Name != "orders" ||
		len(d.Partitions[0].Partitions) != 1 || d.Partitions[0].Partitions[0] != 1 {
		t.Errorf("described %+v", d)
	}
	if out := x.must("txn", "describe", "pay-1"); !strings.Contains(out, "orders: 1\n") ||
		!strings.Contains(out, "open since") {
		t.Errorf("described as %q", out)
	}
	x.refused("pay-2: no such transactional id", "txn", "describe", "pay-1", "pay-2")
	x.must("txn", "find-hanging")
	at := []string{"txn", "abort", "--topic", "orders", "--partition"}
	x.refused("no transaction is open in orders-0", append(at, "0", "--start-offset", "0")...)
	x.refused("sekali: open transactions of nope-0: UNKNOWN_TOPIC_OR_PARTITION",
		"txn", "abort", "--topic", "nope", "--partition", "0", "--start-offset", "0")
	x.refused("those that are open start at 0", append(at, "1", "--start-offset", "7")...)
	x.refused("transactional id pay-1, which is Ongoing", append(at, "1", "--start-offset", "0")...)
	if out := x.must(append(at, "1", "--start-offset", "0", "--force")...); !strings.Contains(out, "aborted") {
		t.Errorf("abort said %q", out)
	}
	x.refused("no transaction is open in orders-1", append(at, "1", "--start-offset", "0")...)
	ok(t, w.EndTransaction(ctx, kgo.TryAbort))
	if d := read[[]describedTxn](x, "txn", "describe", "pay-1")[0]; d.State != "CompleteAbort" || len(d.Partitions) != 0 {
		t.Errorf("after the abort: %+v", d)
	}
}

// TestHanging: the table of what is a hanging transaction.
func TestHanging(t *testing.T) {
	p := kadm.DescribedProducer{Topic: "orders", Partition: 1, ProducerID: 5, ProducerEpoch: 3}
	in := kadm.TopicsSet{"orders": {1: {}}}
	for _, c := range []struct {
		name string
		t    *kadm.DescribedTransaction
		want bool
	}{
		{"nobody has the producer id", nil, true},
		{"part of the open transaction", &kadm.DescribedTransaction{State: "Ongoing", ProducerEpoch: 3, Topics: in}, false},
		{"not part of it", &kadm.DescribedTransaction{State: "Ongoing", ProducerEpoch: 3,
			Topics: kadm.TopicsSet{"orders": {0: {}}}}, true},
		{"decided long ago", &kadm.DescribedTransaction{State: "CompleteCommit", ProducerEpoch: 3}, true},
		{"being decided, next epoch", &kadm.DescribedTransaction{State: "PrepareAbort", ProducerEpoch: 4, Topics: in}, false},
		{"part of a later one", &kadm.DescribedTransaction{State: "Ongoing", ProducerEpoch: 4, Topics: in}, true},
	} {
		if got := hanging(p, c.t); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestFindHanging: with a limit in the future every open transaction is looked at; one that its coordinator counts is
// not hanging; the flags that name partitions are checked.
func TestFindHanging(t *testing.T) {
	x := withDaemon(t)
	x.must("topic", "create", "orders")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w := x.client(kgo.TransactionalID("pay-1"), kgo.DefaultProduceTopic("orders"))
	ok(t, w.BeginTransaction())
	ok(t, w.ProduceSync(ctx, &kgo.Record{Value: []byte("a")}).FirstErr())
	look := []string{"txn", "find-hanging", "--max-transaction-timeout=-1h"}
	if got := read[[]hangingTxn](x, look...); len(got) != 0 {
		t.Errorf("found %+v", got)
	}
	x.must(append(look, "--topic", "orders", "-p", "0")...)
	x.refused("exactly one --topic", append(look, "-p", "0")...)
	x.refused("nothing-here", append(look, "--topic", "nothing-here")...)
	ok(t, w.EndTransaction(ctx, kgo.TryCommit))
}
