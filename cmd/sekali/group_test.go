package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fill writes n records to each of the partitions of a topic, one a second of record time from 2026-01-01 on.
func (x *tools) fill(topic string, partitions, n int) {
	x.t.Helper()
	w := x.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		for p := range partitions {
			w.Produce(x.t.Context(), &kgo.Record{Partition: int32(p), Value: fmt.Append(nil, i),
				Timestamp: from.Add(time.Duration(i) * time.Second)}, nil)
		}
	}
	ok(x.t, w.Flush(x.t.Context()))
}

// join makes a member of a group that has read and committed everything there is.
func (x *tools) join(group, topic string, records int, opts ...kgo.Opt) *kgo.Client {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	r := x.client(append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	for n := 0; n < records; {
		fs := r.PollFetches(ctx)
		ok(x.t, fs.Err())
		n += fs.NumRecords()
	}
	ok(x.t, r.CommitUncommittedOffsets(ctx))
	return r
}

// TestGroupTools: groups of both protocols are listed and described with members and lag, and can be deleted once they
// have none.
func TestGroupTools(t *testing.T) {
	x := withDaemon(t, "group.initial.rebalance.delay.ms=0")
	x.must("topic", "create", "orders", "--partitions", "2", "--set", "retention.ms=-1")
	x.fill("orders", 2, 5)
	classic := x.join("old", "orders", 10, kgo.InstanceID("i"))
	consumer := x.join("new", "orders", 10, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	x.fill("orders", 1, 3)
	groups := read[[]listedGroup](x, "group", "list")
	if len(groups) != 2 || groups[0] != (listedGroup{"new", "consumer", "Stable", "consumer"}) ||
		groups[1] != (listedGroup{"old", "classic", "Stable", "consumer"}) {
		t.Errorf("listed %+v", groups)
	}
	if got := read[[]listedGroup](x, "group", "list", "--type", "consumer", "--state", "Stable"); len(got) != 1 {
		t.Errorf("consumer groups: %+v", got)
	}
	for _, g := range read[[]describedGroup](x, "group", "describe") {
		if len(g.Members) != 1 || len(g.Members[0].Partitions) != 1 || len(g.Members[0].Partitions[0].Partitions) != 2 ||
			g.Lag != 3 || len(g.Offsets) != 2 || g.Offsets[0].Lag != 3 || g.Offsets[1].Lag != 0 ||
			g.Offsets[0].Committed != 5 || g.Offsets[0].End != 8 || g.Offsets[0].Member != g.Members[0].ID ||
			g.Members[0].Host != "/127.0.0.1" || (g.Group == "old") != (g.Members[0].Instance == "i") {
			t.Errorf("described %+v", g)
		}
	}
	out := x.must("group", "describe", "new")
	if !strings.HasPrefix(out, "new  consumer, Stable, 1 members, lag 3\n") || !strings.Contains(out, "COMMITTED") {
		t.Errorf("described as %q", out)
	}
	x.refused("none: no such group", "group", "describe", "none")
	x.refused("it has members", "group", "delete", "old")
	x.refused("it has no members; stop", "group", "reset-offsets", "old", "--all-topics", "--to-latest")
	classic.LeaveGroup()
	consumer.LeaveGroup()
	x.must("group", "delete", "none", "--if-exists")
	x.refused("none: no such group", "group", "delete", "none")
	for _, g := range []string{"new", "old"} {
		if g == "old" { // a static member stays when its client goes
			x.must("group", "describe", "old")
			continue
		}
		if out := x.must("group", "delete", g); out != "deleted "+g+"\n" {
			t.Errorf("delete said %q", out)
		}
	}
}

// TestGroupResetOffsets: each way to name the new offset; nothing is done without --execute.
func TestGroupResetOffsets(t *testing.T) {
	x := withDaemon(t, "group.initial.rebalance.delay.ms=0")
	x.must("topic", "create", "orders", "--partitions", "2", "--set", "retention.ms=-1")
	x.fill("orders", 2, 10)
	x.join("g", "orders", 20).LeaveGroup()
	reset := []string{"group", "reset-offsets", "g", "--execute"}
	for _, c := range []struct {
		how  string
		p0   int64
		p1   int64
		note string
	}{
		{"--topic orders --to-earliest", 0, 0, ""},
		{"--all-topics --to-offset 4", 4, 4, ""},
		{"--all-topics --shift-by 3", 7, 7, ""},
		{"--all-topics --shift-by=-2", 5, 5, ""},
		{"--all-topics --shift-by 9223372036854775807", 10, 10, "lowered to the end"},
		{"--all-topics --to-offset 5", 5, 5, ""},
		{"--topic orders:1 --to-offset 99", 5, 10, "lowered to the end"},
		{"--topic orders:0,1 --to-offset=-3", 0, 0, "raised to the first record kept"},
		{"--topic orders:0 --to-latest", 10, 0, ""},
		{"--all-topics --to-datetime 2026-01-01T00:00:06Z", 6, 6, ""},
		{"--all-topics --to-datetime 2026-01-01T00:00:07", 7, 7, ""},
		{"--all-topics --to-datetime 2026-02-01", 10, 10, ""},
		{"--all-topics --by-duration 1h", 10, 10, ""},
	} {
		before := committed(x)
		shown := append([]string{"group", "reset-offsets", "g"}, strings.Fields(c.how)...)
		if code, _, errs := x.run(shown...); code != exitOK || !strings.Contains(errs, "add --execute") ||
			committed(x) != before {
			t.Errorf("%s: status %d, said %q, offsets %v", c.how, code, errs, committed(x))
		}
		done := read[[]resetOffset](x, append(reset, strings.Fields(c.how)...)...)
		if got := committed(x); got != [2]int64{c.p0, c.p1} || done[len(done)-1].Note != c.note {
			t.Errorf("%s: %v, %+v, want %d, %d", c.how, got, done, c.p0, c.p1)
		}
	}
	x.must("group", "reset-offsets", "fresh", "--topic", "orders", "--to-latest", "--execute")
	if g := read[[]describedGroup](x, "group", "describe", "fresh")[0]; g.State != "Empty" || g.Lag != 0 ||
		len(g.Offsets) != 2 {
		t.Errorf("a group made by setting offsets: %+v", g)
	}
	for how, says := range map[string]string{
		"g --all-topics": "missing flags",
		"g --all-topics --to-latest --to-earliest": "can't be used together",
		"g --to-latest": "--all-topics",
		"g --all-topics --topic orders --to-latest":  "--all-topics",
		"g --topic orders:x --to-latest":             "not the number of a partition",
		"g --topic orders:7 --to-latest":             "orders-7: no such partition",
		"g --topic none --to-latest":                 "sekali topic list",
		"none --all-topics --to-latest":              "has committed nothing",
		"none --topic orders --shift-by 1":           "nothing is committed",
		"g --all-topics --to-datetime yesterday":     "not a time",
		"g --all-topics --to-latest --execute --dry": "dry",
	} {
		x.refused(says, append([]string{"group", "reset-offsets"}, strings.Fields(how)...)...)
	}
}

// committed are the offsets of group g in the two partitions.
func committed(x *tools) (at [2]int64) {
	x.t.Helper()
	for _, o := range read[[]describedGroup](x, "group", "describe", "g")[0].Offsets {
		at[o.Partition] = o.Committed
	}
	return at
}
