package cases

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"sekali/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// F8. An open transaction survives a restart.
func TestF8OpenTransaction(t *testing.T) {
	for _, how := range []string{"KILL", "STOP"} {
		generations(t, options{}, func(t *testing.T, n *node, g generation) {
			ps := []tp{n.topic("f8", 3), {"f8", 1}, {"f8", 2}}
			n.coordinator(0, "f8")
			x := n.INIT(g, "f8")
			n.oneOf("ADD", x.ADD(ps...), 0)
			x.must(ps[0], 2)
			x.must(ps[1], 1)
			n.oneOf("AddOffsetsToTxn", x.addOffsets("f8"), 0)
			n.oneOf("TOC", x.TOC("f8", ps[0], 9), 0)
			n.restart(how)
			x.again()
			for i, p := range ps {
				if s := n.stable(p); s != 0 {
					t.Errorf("LSO of partition %d after %s: %d", i, how, s)
				}
			}
			x.must(ps[2], 3)
			x.ended(true)
			n.decided(ps...)
			for i, want := range []int{2, 1, 3} {
				if got := n.committed(ps[i], 0, 1<<20); len(got) != want {
					t.Errorf("partition %d: %v, want %d", i, got, want)
				}
			}
			n.settledOffsets("f8", ps[0])
			n.at("the group", "f8", ps[0], true, 9, 0)
		})
	}
}

// G3. Layout of transaction markers.
func TestG3MarkerLayout(t *testing.T) {
	generations(t, options{}, func(t *testing.T, n *node, g generation) {
		p := n.topic("g3", 1)
		x := n.INIT(g, "g3")
		for _, commit := range []bool{true, false} {
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 1)
			who := x.who
			x.ended(commit)
			n.decided(p)
			all := n.read(p).batches()
			v := all[len(all)-1]
			if _, err := v.Validate(batch.Limits{Deep: true, Stored: true}); err != nil {
				t.Errorf("marker: %v", err)
			}
			pid, epoch := v.Producer()
			first, _ := v.Sequence()
			if g.v2 {
				who.epoch++ // the marker bears the raised epoch
			}
			if !v.Attrs().Control() || v.Attrs()&batch.AttrTransactional == 0 || v.Attrs().Codec() != 0 || v.Count() != 1 ||
				first != -1 || (producer{pid, epoch}) != who {
				t.Errorf("marker: attributes %x, %d records, sequence %d, producer %d epoch %d; want %+v", v.Attrs(),
					v.Count(), first, pid, epoch, who)
			}
			key := []byte{0, 0, 0, 0}
			if commit {
				key[3] = 1
			}
			n.must(v.Records(func(r batch.Record) error {
				if !bytes.Equal(r.Key, key) || len(r.Value) != 6 || binary.BigEndian.Uint16(r.Value) != 0 || len(r.Headers) != 0 {
					t.Errorf("marker: key % x, value % x", r.Key, r.Value)
				}
				return nil
			}))
		}
	})
}

// G6. Features and versions agree.
func TestG6FeaturesAgree(t *testing.T) {
	n := launch(t, options{})
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = 4, "g6", "1"
	a := ask[*kmsg.ApiVersionsResponse](n, r)
	level := int16(-1)
	for _, f := range a.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	if level != 2 || a.FinalizedFeaturesEpoch < 0 {
		t.Errorf("transaction.version %d at features epoch %d", level, a.FinalizedFeaturesEpoch)
	}
	most := map[int16]int16{}
	for _, k := range a.ApiKeys {
		most[k.ApiKey] = k.MaxVersion
	}
	if most[0] < 12 || most[26] < 5 || most[28] < 5 || most[22] < 5 || most[24] < 4 {
		t.Errorf("Produce to %d, EndTxn to %d, TxnOffsetCommit to %d, InitProducerId to %d, AddPartitionsToTxn to %d",
			most[0], most[26], most[28], most[22], most[24])
	}
	p := n.topic("g6", 1)
	for _, g := range []generation{txnV1, txnV2} {
		x := n.INIT(g, "g6-"+g.name)
		n.oneOf("ADD", x.ADD(p), 0)
		x.must(p, 1)
		before := x.who
		x.ended(true)
		if g.v2 && x.who.epoch != before.epoch+1 {
			t.Errorf("after EndTxn version %d: %+v, before %+v", g.end, x.who, before)
		}
	}
	x := n.INIT(txnV2, "g6-failed")
	if got := x.at(tp{"g6-missing", 9}, 0, 1); got.code != codeUnknown {
		t.Errorf("write to an unknown partition: %v", got)
	}
	before := x.who
	n.oneOf("abort after a failed first write", x.END(false), 0)
	if x.who.id != before.id || x.who.epoch != before.epoch+1 {
		t.Errorf("after the abort: %+v, before %+v", x.who, before)
	}
	x.must(p, 1)
	x.ended(true)
	n.decided(p)
	n.holds(p, 3)
}

// H6. Small transactions back to back: the share of ADD answered 51, and how long the end takes to show. Times are
// told, not asserted.
func TestH6SmallTransactions(t *testing.T) {
	for _, parts := range []int32{1, 500} {
		g := txnV1
		n := launch(t, options{realTime: true})
		n.topic("h6", parts)
		x := n.INIT(g, "h6")
		all := make([]tp, parts)
		for i := range all {
			all[i] = tp{"h6", int32(i)}
		}
		rounds, asked, busy := size(100, 2000), 0, 0
		if parts > 1 {
			rounds = size(3, 20)
		}
		var slowest time.Duration
		for range rounds {
			x.retry(func() int16 {
				code := x.addOnce(all...)
				asked++
				if code == codeConcurrent {
					busy++
				}
				return code
			})
			for _, p := range all {
				x.must(p, 1)
			}
			begin := time.Now()
			x.ended(true)
			n.decided(all[len(all)-1])
			slowest = max(slowest, time.Since(begin))
		}
		if parts == 1 && busy*20 > asked {
			t.Errorf("%d of %d ADD were answered 51", busy, asked)
		}
		t.Logf("%d partitions: %d of %d ADD answered 51, slowest end %v", parts, busy, asked, slowest)
	}
}
