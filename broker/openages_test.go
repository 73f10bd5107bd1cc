package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/clock"
	"sekali/internal/rawclient"
	"sekali/plog"
	"sekali/store"

	"github.com/prometheus/client_golang/prometheus"
)

// openTxn writes n records of an open transaction of pid into a partition, as the coordinator would let it.
func (n *adminNode) openTxn(topic string, partition int32, pid int64, records int) *plog.Log {
	n.t.Helper()
	l, err := n.store.Partition(store.TP{Topic: topic, Partition: partition})
	if err != nil {
		n.t.Fatal(err)
	}
	v := rawclient.Batch(batch.AttrTransactional, pid, 0, 0, records, 10)
	in := plog.AppendIn{Batch: v, Version: 9, Checked: batch.Checked{MaxTime: v.MaxTime()}}
	_, err = l.Append(in)
	if r, ok := errors.AsType[*plog.RejectError](err); ok && r.Decision.Guard != 0 {
		in.Guard = r.Decision.Guard
		_, err = l.Append(in)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, "flush", func() bool { at := l.Offsets(); return at.High == at.End })
	return l
}

// The age of an open transaction counts from the first look that saw it, ends with its marker, and starts anew with the
// next one behind it; the lag is what the last stable offset lacks of the high watermark.
func TestOpenAges(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("a", 2)
	c.makeTopic("quiet", 1)
	clk := clock.NewSim(0)
	m := &metrics{reg: prometheus.NewRegistry()}
	ages := m.watchOpenAges(n.store, clk)
	const whole, open = "sekali_transaction_oldest_open_seconds", "sekali_transaction_open_partitions"
	age := func(p int) string {
		return fmt.Sprintf(`sekali_partition_oldest_open_transaction_seconds{partition="%d",topic="a"}`, p)
	}
	lag := func(p int) string {
		return fmt.Sprintf(`sekali_partition_last_stable_offset_lag{partition="%d",topic="a"}`, p)
	}
	check := func(what string, want map[string]float64) {
		t.Helper()
		ages.look()
		got := scrape(t, m)
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s is %v, want %v", what, name, got[name], v)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("nothing open", map[string]float64{whole: 0, open: 0})

	first := n.openTxn("a", 0, 7, 3)
	check("seen", map[string]float64{whole: 0, open: 1, age(0): 0, lag(0): 3})
	clk.Advance(10 * time.Second)
	n.openTxn("a", 0, 8, 2) // a younger one behind it
	n.openTxn("a", 1, 7, 1)
	check("two partitions", map[string]float64{whole: 10, open: 2, age(0): 10, lag(0): 5, age(1): 0, lag(1): 1})
	clk.Advance(5 * time.Second)

	end := func(l *plog.Log, pid int64) {
		t.Helper()
		if _, err := l.AppendMarker(batch.Marker{PID: pid, Commit: true}, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "flush", func() bool { at := l.Offsets(); return at.High == at.End })
	}
	end(first, 7)
	check("the oldest ended", map[string]float64{whole: 5, open: 2, age(0): 0, lag(0): 3, age(1): 5, lag(1): 1})
	end(first, 8)
	check("one partition decided", map[string]float64{whole: 5, open: 1, age(1): 5, lag(1): 1})
}

// Above the bound the oldest are told one by one, and all of them are counted.
func TestOpenAgesAreBounded(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("a", 1)
	clk := clock.NewSim(0)
	m := &metrics{reg: prometheus.NewRegistry()}
	ages := m.watchOpenAges(n.store, clk)
	ages.held = map[store.TP]held{}
	for i := range int32(openSeriesMax + 50) {
		tp := store.TP{Topic: "t", Partition: i}
		ages.held[tp] = held{tp: tp, high: 1, since: time.Duration(i) * time.Second}
	}
	clk.Advance(time.Hour)
	got := scrape(t, m)
	if len(got) != 2+2*openSeriesMax || got["sekali_transaction_open_partitions"] != openSeriesMax+50 {
		t.Errorf("%d series", len(got))
	}
	for i := range openSeriesMax {
		name := fmt.Sprintf(`sekali_partition_oldest_open_transaction_seconds{partition="%d",topic="t"}`, i)
		if got[name] != float64(3600-i) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
}
