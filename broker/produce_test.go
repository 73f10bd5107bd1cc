package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/clock"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A7 and A1, small: five Produce frames in one write, rounds in a row, with other producers on the same partition: no
// error, answers in request order, offsets rising; a retry of the last five answers what the first try answered.
func TestA7FiveInOneWrite(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	var wg sync.WaitGroup
	for pid := range int64(3) {
		c := n.dial()
		wg.Go(func() {
			last := int64(-1)
			for round := range int32(60) {
				var rs []kmsg.Request
				for i := range int32(5) {
					rs = append(rs, rawclient.Produce(9, "t", 0, rawclient.Batch(0, pid, 0, 5*round+i, 1, 20)))
				}
				first := make([]int64, 5)
				for try := range 2 {
					if err := c.Send(rs...); err != nil {
						t.Error(err)
						return
					}
					for i, r := range rs {
						resp, err := c.Receive(r)
						if err != nil {
							t.Error(err)
							return
						}
						p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
						switch {
						case p.ErrorCode != 0:
							t.Errorf("pid %d round %d request %d try %d: code %d", pid, round, i, try, p.ErrorCode)
							return
						case try == 1 && p.BaseOffset != first[i]:
							t.Errorf("retry answered %d, stored at %d", p.BaseOffset, first[i])
						case try == 0 && p.BaseOffset <= last:
							t.Errorf("offset %d after %d", p.BaseOffset, last)
						}
						if try == 0 {
							first[i], last = p.BaseOffset, p.BaseOffset
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if got := high(t, n.dial(), "t"); got != 3*60*5 {
		t.Fatalf("high watermark %d, want %d: a retry was stored", got, 3*60*5)
	}
}

// A10: one Produce, four outcomes, each in its own slot.
func TestA10MixedOutcome(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 13} {
		n := start(t, nil)
		id := n.topic("t", 3, nil)
		c := n.dial()
		send := func(parts ...[3]int32) []kmsg.ProduceResponseTopicPartition { // partition, sequence, count
			r := rawclient.Produce(version, "t", 0, nil)
			r.Topics[0].TopicID = id
			r.Topics[0].Partitions = nil
			for _, p := range parts {
				q := kmsg.NewProduceRequestTopicPartition()
				q.Partition, q.Records = p[0], rawclient.Batch(0, 77, 0, p[1], int(p[2]), 10)
				r.Topics[0].Partitions = append(r.Topics[0].Partitions, q)
			}
			return call[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions
		}
		for p := range int32(3) {
			if got := send([3]int32{p, 0, 2}); got[0].ErrorCode != 0 {
				t.Fatalf("v%d: code %d", version, got[0].ErrorCode)
			}
		}
		got := send([3]int32{0, 2, 3}, [3]int32{1, 0, 2}, [3]int32{2, 9, 1}, [3]int32{3, 0, 1})
		want := [][3]int64{{0, 0, 2}, {1, 0, 0}, {2, 45, -1}, {3, 3, -1}}
		for i, w := range want {
			if g := got[i]; [3]int64{int64(g.Partition), int64(g.ErrorCode), g.BaseOffset} != w {
				t.Errorf("v%d: partition %d: code %d, offset %d, want %v", version, g.Partition, g.ErrorCode, g.BaseOffset, w)
			}
		}
		if version >= 5 && (got[2].LogStartOffset != 0 || got[3].LogStartOffset != -1) {
			t.Errorf("v%d: log start %d with 45, want 0; %d with 3, want -1",
				version, got[2].LogStartOffset, got[3].LogStartOffset)
		}
		for p, w := range []int64{5, 2, 2} {
			if h := fetched(t, c, rawclient.Fetch(12, "t", int32(p), 0)).HighWatermark; h != w {
				t.Errorf("v%d: partition %d at %d, want %d", version, p, h, w)
			}
		}
		n.stop()
	}
}

// A12: two whole batches in one entry are refused together, plain and compressed.
func TestA12TwoBatches(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, nil)
	c := n.dial()
	for _, a := range []batch.Attrs{0, batch.Attrs(batch.LZ4)} {
		two := append(bytes.Clone(rawclient.Batch(a, 5, 0, 0, 2, 30)), rawclient.Batch(a, 5, 0, 2, 2, 30)...)
		p := produced(t, c, rawclient.Produce(9, "t", 0, two))
		if p.ErrorCode != kerr.InvalidRecord.Code || p.ErrorMessage == nil || len(p.ErrorRecords) != 1 {
			t.Errorf("codec %d: code %d, message %v", a, p.ErrorCode, p.ErrorMessage)
		}
		if h := high(t, c, "t"); h != 0 {
			t.Errorf("high watermark %d", h)
		}
	}
}

// A13 and I6: what is refused uses up no sequence and leaves the log alone; clients may not write control batches.
func TestA13RefusedUsesNoSequence(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, map[string]string{"max.message.bytes": "2000"})
	c := n.dial()
	good := func() batch.View { return rawclient.Batch(0, 9, 0, 0, 1, 100) }
	reseal := func(v batch.View, fn func(batch.View)) batch.View {
		fn(v)
		binary.BigEndian.PutUint32(v[17:], crc32.Checksum(v[21:], crc32.MakeTable(crc32.Castagnoli)))
		return v
	}
	flag := func(bits uint16) func(batch.View) {
		return func(v batch.View) { binary.BigEndian.PutUint16(v[21:], bits) }
	}
	marker := batch.AppendMarker(nil, 0, -1, batch.Marker{PID: 9, Epoch: 0, Commit: true})
	for _, x := range []struct {
		what    string
		records []byte
		version int16
		code    int16
	}{
		{"wrong CRC", func() []byte { v := good(); v[len(v)-1] ^= 1; return v }(), 9, 2},
		{"wrong CRC in the transactional bit", func() []byte { v := good(); v[22] ^= 0x10; return v }(), 9, 2},
		{"too large", rawclient.Batch(0, 9, 0, 0, 1, 3000), 9, 10},
		{"codec 5", reseal(good(), flag(5)), 9, 87},
		{"codec 7", reseal(good(), flag(7)), 9, 87},
		{"zstd in version 6", rawclient.Batch(batch.Attrs(batch.Zstd), 9, 0, 0, 1, 100), 6, 76},
		{"control", reseal(good(), flag(0x20)), 9, 87},
		{"control and transactional", reseal(good(), flag(0x30)), 9, 53},
		{"a perfect marker", marker, 9, 53},
		{"append time", reseal(good(), flag(0x08)), 9, 32},
		{"delete horizon", reseal(good(), flag(0x40)), 9, 87},
		{"magic 1", func() []byte { v := good(); v[16] = 1; return v }(), 9, 87},
		{"magic 3", func() []byte { v := good(); v[16] = 3; return v }(), 9, 2},
		{"nothing", nil, 9, 87},
		{"no whole batch", good()[:70], 9, 87},
		{"a batch and a partial second", append(good(), good()[:30]...), 9, 87},
		{"base offset 1", func() []byte { v := good(); v[7] = 1; return v }(), 9, 87},
	} {
		p := produced(t, c, rawclient.Produce(x.version, "t", 0, x.records))
		if p.ErrorCode != x.code || p.BaseOffset != -1 || p.LogAppendTime != -1 {
			t.Errorf("%s: code %d, want %d; offset %d", x.what, p.ErrorCode, x.code, p.BaseOffset)
		}
		if h := high(t, c, "t"); h != 0 {
			t.Fatalf("%s: high watermark %d", x.what, h)
		}
	}
	r := rawclient.Produce(9, "t", 0, marker)
	r.TransactionID = kmsg.StringPtr("txn")
	if p := produced(t, c, r); p.ErrorCode != 87 {
		t.Errorf("a marker with a transactional id: code %d, want 87", p.ErrorCode)
	}
	if p := produced(t, c, rawclient.Produce(9, "t", 0, good())); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("the correct batch: code %d at %d", p.ErrorCode, p.BaseOffset)
	}
}

// TestProduceRequestCodes: what refuses a whole request, in every partition of it.
func TestProduceRequestCodes(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 2, map[string]string{"min.insync.replicas": "1"})
	n.topic("two", 1, map[string]string{"min.insync.replicas": "2"})
	c := n.dial()
	two := func(topic string, acks int16, txn *string, epoch int16, attrs batch.Attrs) []int16 {
		r := rawclient.Produce(9, topic, 0, rawclient.Batch(attrs, 4, 0, 0, 1, 9))
		r.Acks, r.TransactionID = acks, txn
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = 1, rawclient.Batch(attrs, 4, epoch, 0, 1, 9)
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, q)
		ps := call[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions
		return []int16{ps[0].ErrorCode, ps[1].ErrorCode}
	}
	x := kmsg.StringPtr("x")
	early := two("t", -1, x, 0, batch.AttrTransactional)
	n.coordinate()
	for _, w := range []struct {
		what string
		got  []int16
		want [2]int16
	}{
		{"acks 2", two("t", 2, nil, 0, 0), [2]int16{21, 21}},
		{"transactional without id", two("t", -1, nil, 0, batch.AttrTransactional), [2]int16{53, 53}},
		{"two epochs", two("t", -1, x, 1, batch.AttrTransactional), [2]int16{49, 49}},
		{"no coordinator yet", early, [2]int16{19, 19}},
		{"no transaction", two("t", -1, x, 0, batch.AttrTransactional), [2]int16{49, 49}},
		{"one replica of two", two("two", -1, nil, 0, 0), [2]int16{19, 3}},
		{"one replica of two, acks 1", two("two", 1, nil, 0, 0), [2]int16{0, 3}},
		{"plain", two("t", -1, nil, 0, 0), [2]int16{0, 0}},
	} {
		if w.got[0] != w.want[0] || w.got[1] != w.want[1] {
			t.Errorf("%s: codes %v, want %v", w.what, w.got, w.want)
		}
	}
	p := produced(t, c, rawclient.Produce(9, "__consumer_offsets", 0, rawclient.Batch(0, -1, -1, -1, 1, 1)))
	if p.ErrorCode != kerr.UnknownTopicOrPartition.Code && p.ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("internal topic: code %d", p.ErrorCode)
	}
	// Topics are made by Metadata alone.
	if p := produced(t, c, rawclient.Produce(9, "nobody", 0, rawclient.Batch(0, -1, -1, -1, 1, 1))); p.ErrorCode != 3 {
		t.Errorf("unknown topic: code %d", p.ErrorCode)
	}
	r := rawclient.Produce(13, "", 0, rawclient.Batch(0, -1, -1, -1, 1, 1))
	r.Topics[0].TopicID = [16]byte{9}
	if p := produced(t, c, r); p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("unknown topic id: code %d", p.ErrorCode)
	}
}

// TestRecordErrors: from Produce 8 on the first faulty record is named.
func TestRecordErrors(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, map[string]string{"message.timestamp.after.max.ms": "1000"})
	c := n.dial()
	b := batch.Builder{BaseTime: time.Now().UnixMilli()}
	for i := range 4 {
		b.Add(batch.Record{TimeDelta: int64(i) * 3_600_000, Value: []byte("v")})
	}
	v := b.Done(0, -1, -1, -1)
	for version := int16(7); version <= 9; version++ {
		p := produced(t, c, rawclient.Produce(version, "t", 0, bytes.Clone(v)))
		if p.ErrorCode != kerr.InvalidTimestamp.Code {
			t.Errorf("v%d: code %d", version, p.ErrorCode)
		}
		if version >= 8 && (len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorMessage == nil) {
			t.Errorf("v%d: records %+v, message %v", version, p.ErrorRecords, p.ErrorMessage)
		}
	}
}

// I4, small: bombs of every codec cost an answer of 10 and little memory.
func TestI4Bombs(t *testing.T) {
	n := start(t, nil)
	n.topic("t", 1, map[string]string{"max.decompressed.message.bytes": "1000000"})
	c := n.dial()
	for _, codec := range []uint8{batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		var b batch.Builder
		b.Add(batch.Record{Value: make([]byte, 8<<20)})
		v := b.Done(batch.Attrs(codec), -1, -1, -1)
		if len(v) > 1<<20 {
			t.Fatalf("codec %d: the bomb has %d bytes", codec, len(v))
		}
		if p := produced(t, c, rawclient.Produce(9, "t", 0, v)); p.ErrorCode != kerr.MessageTooLarge.Code {
			t.Errorf("codec %d: code %d", codec, p.ErrorCode)
		}
	}
	if h := high(t, c, "t"); h != 0 {
		t.Fatalf("high watermark %d", h)
	}
}

// slowDisk is a server whose flushes take d.
func slowDisk(d time.Duration) func(*Config) {
	return func(c *Config) {
		c.Store.FS = vfs.Inject(c.Store.FS, vfs.Rule{Op: "datasync", Match: "*.log", Delay: d})
	}
}

// gate is a disk whose flushes of logs stand still while it is shut.
type gate struct {
	mu      sync.RWMutex
	flushes atomic.Int32
}

func (g *gate) config(c *Config) {
	c.Store.FS = vfs.Inject(c.Store.FS, vfs.Rule{Op: "datasync", Match: "*.log", Do: func() {
		g.flushes.Add(1)
		g.mu.RLock()
		g.mu.RUnlock()
	}})
}

// TestPipelineSharesFlushes: five Produce frames do not wait for one another's flush, and a request that is no Produce
// waits for all of them.
func TestPipelineSharesFlushes(t *testing.T) {
	var g gate
	n := start(t, g.config)
	n.topic("t", 1, nil)
	c := n.dial()
	put(t, c, "t", 1, 10)
	g.mu.Lock()
	g.flushes.Store(0)
	var rs []kmsg.Request
	for i := range int32(5) {
		rs = append(rs, rawclient.Produce(9, "t", 0, rawclient.Batch(0, 3, 0, i, 1, 10)))
	}
	rs = append(rs, rawclient.Fetch(12, "t", 0, 1))
	if err := c.Send(rs...); err != nil {
		t.Fatal(err)
	}
	l, _ := n.store.Log(store.TP{Topic: "t"})
	for l.Offsets().End < 6 { // all five are written while not one of them is flushed
		runtime.Gosched()
	}
	g.mu.Unlock()
	for _, r := range rs[:5] {
		if p := receive[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Fatalf("code %d", p.ErrorCode)
		}
	}
	if k := g.flushes.Load(); k > 2 {
		t.Errorf("five pipelined requests took %d flushes, want one or two", k)
	}
	p := receive[*kmsg.FetchResponse](t, c, rs[5]).Topics[0].Partitions[0]
	if p.HighWatermark != 6 || len(batches(t, p.RecordBatches)) != 5 {
		t.Errorf("a Fetch behind them sees %d: it ran before they were durable", p.HighWatermark)
	}
}

// TestProduceTimeout: timeoutMs answers 7 while the flush goes on; the retry is a duplicate, stored once (D3).
func TestProduceTimeout(t *testing.T) {
	var g gate
	n := start(t, g.config)
	n.topic("t", 1, nil)
	c := n.dial()
	g.mu.Lock()
	r := rawclient.Produce(9, "t", 0, rawclient.Batch(0, 3, 0, 0, 2, 10))
	r.TimeoutMillis = 20
	late := rawclient.Produce(9, "t", 0, rawclient.Batch(0, 3, 0, 2, 1, 10))
	if err := c.Send(r, late); err != nil {
		t.Fatal(err)
	}
	if p := receive[*kmsg.ProduceResponse](t, c, r).Topics[0].Partitions[0]; p.ErrorCode != 7 || p.BaseOffset != -1 {
		t.Fatalf("code %d at %d, want 7 at -1", p.ErrorCode, p.BaseOffset)
	}
	g.mu.Unlock()
	if p := receive[*kmsg.ProduceResponse](t, c, late).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 2 {
		t.Fatalf("the one behind: code %d at %d", p.ErrorCode, p.BaseOffset)
	}
	r.TimeoutMillis = 10_000
	if p := produced(t, c, r); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Fatalf("retry: code %d at %d, want the original at 0", p.ErrorCode, p.BaseOffset)
	}
	if h := high(t, c, "t"); h != 3 {
		t.Fatalf("high watermark %d", h)
	}
}

// TestAcks: acks=1 does not wait for the flush, acks=0 has no answer, and one that fails closes the connection after
// the answers before it.
func TestAcks(t *testing.T) {
	var g gate
	n := start(t, g.config)
	n.topic("t", 1, nil)
	c := n.dial()
	g.mu.Lock()
	one := rawclient.Produce(9, "t", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	one.Acks = 1
	if p := produced(t, c, one); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Fatalf("acks=1: code %d at %d", p.ErrorCode, p.BaseOffset)
	}
	g.mu.Unlock() // acks=1 was answered while no flush could end
	if h := high(t, c, "t"); h != 1 {
		t.Errorf("the same connection looks and sees %d: what it has written must be there", h)
	}
	none := rawclient.Produce(9, "t", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	none.Acks = 0
	all := rawclient.Produce(9, "t", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	if err := c.Send(none, all, none, none); err != nil {
		t.Fatal(err)
	}
	if p := receive[*kmsg.ProduceResponse](t, c, all).Topics[0].Partitions[0]; p.BaseOffset != 2 {
		t.Fatalf("behind an acks=0: at %d", p.BaseOffset)
	}
	if !silent(c, 50*time.Millisecond) {
		t.Fatal("acks=0 was answered")
	}
	bad := rawclient.Produce(9, "nobody", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	bad.Acks = 0
	if err := c.Send(all, bad, all); err != nil {
		t.Fatal(err)
	}
	if p := receive[*kmsg.ProduceResponse](t, c, all).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Fatalf("the answer before the failed one: code %d", p.ErrorCode)
	}
	if !c.Closed(5 * time.Second) {
		t.Fatal("a failed acks=0 must close the connection")
	}
}

// TestFailedFlush: a batch whose flush fails is answered 56, never as not stored, and other partitions go on (I15).
func TestFailedFlush(t *testing.T) {
	mem := vfs.NewMem()
	n := start(t, func(c *Config) { c.Store.FS = mem })
	n.topic("a", 1, nil)
	n.topic("b", 1, nil)
	c := n.dial()
	put(t, c, "a", 1, 10)
	defer mem.FailSync("/data/a-0/*.log", 1, errors.New("medium error"))()
	if p := produced(t, c, rawclient.Produce(9, "a", 0, rawclient.Batch(0, 1, 0, 0, 1, 10))); p.ErrorCode != 56 {
		t.Fatalf("code %d, want 56", p.ErrorCode)
	}
	if p := produced(t, c, rawclient.Produce(9, "a", 0, rawclient.Batch(0, 1, 0, 0, 1, 10))); p.ErrorCode != 56 {
		t.Fatalf("offline partition: code %d, want 56", p.ErrorCode)
	}
	if p := fetched(t, c, rawclient.Fetch(12, "a", 0, 0)); p.ErrorCode != 56 {
		t.Fatalf("fetch from it: code %d, want 56", p.ErrorCode)
	}
	put(t, c, "b", 1, 10)
	n.down.Store(true)
	if err := n.Shutdown(t.Context()); !errors.Is(err, plog.ErrOffline) {
		t.Errorf("shutdown: %v: a partition that could not be flushed must be told", err)
	}
	<-n.ended
}

// TestMismatch: a batch that bears the sequence numbers of a stored one and other bytes is answered as a duplicate,
// counted and told.
func TestMismatch(t *testing.T) {
	var logged lines
	n := start(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	n.topic("t", 1, nil)
	c := n.dial()
	for i, size := range []int{50, 50, 51} {
		p := produced(t, c, rawclient.Produce(9, "t", 0, rawclient.Batch(0, 6, 0, 0, 1, size)))
		if p.ErrorCode != 0 || p.BaseOffset != 0 {
			t.Fatalf("try %d: code %d at %d", i, p.ErrorCode, p.BaseOffset)
		}
	}
	if got := scrape(t, n.metrics)["sekali_duplicates_mismatched_total"]; got != 1 {
		t.Errorf("counted %v, want 1", got)
	}
	if k := strings.Count(logged.String(), "other bytes"); k != 1 || high(t, c, "t") != 1 {
		t.Errorf("%d log lines, high watermark %d", k, high(t, c, "t"))
	}
}

// TestManyPartitions: one request over many topics is answered in its order, every partition once.
func TestManyPartitions(t *testing.T) {
	n := start(t, nil)
	r := rawclient.Produce(9, "", 0, nil)
	r.Topics = nil
	for i := range 4 {
		name := fmt.Sprint("t", i)
		n.topic(name, 4, nil)
		q := rawclient.Produce(9, name, 0, nil).Topics[0]
		q.Partitions = nil
		for p := range int32(4) {
			q.Partitions = append(q.Partitions, kmsg.ProduceRequestTopicPartition{
				Partition: p, Records: rawclient.Batch(0, 1, 0, 0, 1, 10)})
		}
		r.Topics = append(r.Topics, q)
	}
	got := call[*kmsg.ProduceResponse](t, n.dial(), r)
	for i, tp := range got.Topics {
		if tp.Topic != r.Topics[i].Topic || len(tp.Partitions) != 4 {
			t.Fatalf("topic %d: %q with %d partitions", i, tp.Topic, len(tp.Partitions))
		}
		for j, p := range tp.Partitions {
			if p.Partition != int32(j) || p.ErrorCode != 0 || p.BaseOffset != 0 {
				t.Errorf("%s-%d: code %d at %d", tp.Topic, p.Partition, p.ErrorCode, p.BaseOffset)
			}
		}
	}
	empty := rawclient.Produce(9, "", 0, nil)
	empty.Topics = nil
	if got := call[*kmsg.ProduceResponse](t, n.dial(), empty); len(got.Topics) != 0 {
		t.Errorf("an empty request: %d topics answered", len(got.Topics))
	}
}

// TestOneAnswerPerPart: when a flush and a timeout meet, one of them answers, and the answer is complete once.
func TestOneAnswerPerPart(t *testing.T) {
	c := &conn{s: &Server{metrics: newMetrics(), clk: clock.NewSim(0)}, wake: make(chan struct{}, 1)}
	req := rawclient.Produce(9, "t", 0, nil)
	for range 3 {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	}
	codes := map[int16]int{}
	for range 3000 {
		sl := &slot{}
		c.waiting.Store(1)
		p := newProduce(c, sl, req)
		var wg sync.WaitGroup
		for _, late := range []bool{false, true} {
			wg.Go(func() {
				for i := range p.parts {
					if late {
						p.parts[i].expire()
					} else {
						p.parts[i].durable(nil)
					}
				}
			})
		}
		wg.Wait()
		if p.left.Load() != 1 || sl.state.Load() == slotReady {
			t.Fatalf("%d parts open, want the executor's one", p.left.Load())
		}
		p.done()
		if sl.state.Load() != slotReady || c.waiting.Load() != 0 {
			t.Fatal("not complete")
		}
		for i := range p.parts {
			codes[p.parts[i].answer.ErrorCode]++
		}
	}
	if codes[0]+codes[7] != 12_000 {
		t.Fatalf("codes %v", codes)
	}
}
