package cases

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A1. A lost acknowledgement: the same bytes sent again are answered as the first time and stored once.
func TestA1LostAcknowledgement(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a1", 1), n.init()
	b := n.records(who, 0, 3)
	c := n.dial()
	n.must(c.Send(request(p, b)))
	n.until("the batch is stored", func() bool { return n.high(p) == 3 })
	n.must(c.Close())
	for i := range 10 {
		c := n.dial()
		n.want(fmt.Sprintf("retry %d", i), n.produceOn(c, p, b), codeNone, 0)
		n.must(c.Close())
	}
	if got := n.read(p); got.high != 3 || len(got.records()) != 3 {
		t.Errorf("high watermark %d, %d records; want 3 and 3", got.high, len(got.records()))
	}
}

// A2. Five batches are remembered; of older ones the answer is the true offset or 46.
func TestA2WindowOfFive(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a2", 1), n.init()
	for s := range int32(7) {
		n.want(fmt.Sprint("s=", s), n.P(p, who, s, 1), codeNone, int64(s))
	}
	n.unchanged(p, func() {
		for s := int32(6); s >= 0; s-- {
			a := n.P(p, who, s, 1)
			if s >= 2 || a.code == codeNone {
				n.want(fmt.Sprint("retry of s=", s), a, codeNone, int64(s))
			} else {
				n.refused(fmt.Sprint("retry of s=", s), a, codeDuplicate)
			}
		}
	})
	n.want("s=7", n.P(p, who, 7, 1), codeNone, 7)
}

// A3. Sequence numbers count records, not batches.
func TestA3SequencesCountRecords(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a3", 1), n.init()
	n.want("s=0 n=10", n.P(p, who, 0, 10), codeNone, 0)
	n.unchanged(p, func() { n.refused("s=1 n=1", n.P(p, who, 1, 1), codeOutOfOrder, codeDuplicate) })
	n.want("s=10 n=1", n.P(p, who, 10, 1), codeNone, 10)
}

// A4. The sequence wraps at the top of int32, with and without a KILL before every step.
func TestA4Wrap(t *testing.T) {
	n := launch(t, options{})
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill=", kill), func(t *testing.T) {
			step := func() {
				if kill {
					n.restart("KILL")
				}
			}
			// begun is a partition that has held a record, and a producer that has come to a last sequence there.
			begun := func(name string, last int32) (tp, producer) {
				p := n.topic(fmt.Sprintf("a4-%s-%v", name, kill), 1)
				n.want("first record", n.P(p, n.init(), 0, 1), codeNone, 0)
				who := n.init()
				n.want("start", n.P(p, who, last-9, 10), codeNone, 1)
				return p, who
			}

			p, who := begun("straddle", math.MaxInt32-2)
			b := n.records(who, math.MaxInt32-1, 4)
			step()
			n.want("straddling", n.produce(p, b), codeNone, 11)
			step()
			n.unchanged(p, func() { n.want("straddling again", n.produce(p, b), codeNone, 11) })
			step()
			n.want("s=2", n.P(p, who, 2, 1), codeNone, 15)

			p, who = begun("border", math.MaxInt32)
			step()
			n.want("s=0 behind 2147483647", n.P(p, who, 0, 1), codeNone, 11)
			n.wantHigh(p, 12)

			p, who = begun("negative", math.MaxInt32-2)
			step()
			n.unchanged(p, func() {
				n.refused("s=-2147483648", n.P(p, who, math.MinInt32, 1), codeRecord, codeOutOfOrder)
			})
		})
	}
}

// A5. A gap is refused and leaves no trace.
func TestA5Gap(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a5", 1), n.init()
	n.want("s=0..4", n.P(p, who, 0, 5), codeNone, 0)
	n.refused("s=7", n.P(p, who, 7, 1), codeOutOfOrder)
	n.want("s=5", n.P(p, who, 5, 1), codeNone, 5)
	n.refused("s=7", n.P(p, who, 7, 1), codeOutOfOrder)
	n.want("s=6", n.P(p, who, 6, 1), codeNone, 6)
	n.wantHigh(p, 7)
}

// A6. A retry cut at other boundaries stores no part of itself.
func TestA6OtherBoundaries(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a6", 1), n.init()
	n.want("s=0 n=10", n.P(p, who, 0, 10), codeNone, 0)
	n.unchanged(p, func() {
		for _, x := range []struct {
			seq   int32
			count int
		}{{0, 4}, {4, 6}, {0, 11}, {8, 5}} {
			what := fmt.Sprintf("s=%d n=%d", x.seq, x.count)
			n.refused(what, n.P(p, who, x.seq, x.count), codeOutOfOrder, codeDuplicate)
		}
	})
	n.want("s=10", n.P(p, who, 10, 1), codeNone, 10)
}

// A7. Five requests in flight on one connection, alone and beside four other producers of the same partition.
func TestA7FiveInFlight(t *testing.T) {
	n := launch(t, options{realTime: true})
	rounds := size(40, 2000)
	for _, others := range []int{0, 4} {
		p := n.topic(fmt.Sprint("a7-", others), 1)
		var all []*pipeliner
		for range 1 + others {
			all = append(all, &pipeliner{n: n, p: p, who: n.init(), c: n.dial(), last: -1})
		}
		var load sync.WaitGroup
		done := make(chan struct{})
		for _, x := range all[1:] {
			load.Go(func() {
				for x.err == nil {
					select {
					case <-done:
						return
					default:
						x.round()
					}
				}
			})
		}
		for range rounds {
			if all[0].round(); all[0].err != nil {
				break
			}
		}
		close(done)
		load.Wait()
		sent := int64(0)
		for i, x := range all {
			if x.err != nil {
				t.Errorf("producer %d of %d: %v", i, len(all), x.err)
			}
			sent += int64(x.seq)
		}
		n.wantHigh(p, sent)
	}
}

// pipeliner sends five batches with one write and reads their answers, of one goroutine.
type pipeliner struct {
	n    *node
	p    tp
	who  producer
	c    *rawclient.Client
	seq  int32
	last int64 // offset of its last record
	err  error
}

func (x *pipeliner) round() {
	var reqs []kmsg.Request
	for i := range int32(5) {
		reqs = append(reqs, request(x.p, x.n.records(x.who, x.seq+i, 1)))
	}
	if x.err = x.c.Send(reqs...); x.err != nil {
		return
	}
	for i, r := range reqs {
		resp, err := x.c.Receive(r) // in the order of the requests, or an error
		if err != nil {
			x.err = err
			return
		}
		a := answerOf(resp.(*kmsg.ProduceResponse))
		if a.code != 0 || a.base <= x.last {
			x.err = fmt.Errorf("s=%d: %v behind offset %d", x.seq+int32(i), a, x.last)
			return
		}
		x.last = a.base
	}
	x.seq += 5
}

// A8. The producer the broker has forgotten is not turned away with 45.
func TestA8ForgottenProducer(t *testing.T) {
	n := launch(t, options{settings: map[string]string{"producer.id.expiration.ms": "5000"}})
	for _, trimmed := range []bool{false, true} {
		p, who := n.topic(fmt.Sprint("a8-", trimmed), 1), n.init()
		for s := range int32(5) {
			n.want(fmt.Sprint("s=", s), n.P(p, who, s, 1), codeNone, int64(s))
		}
		if trimmed {
			if code, low := n.deleteRecords(p, -1); code != 0 || low != 5 {
				t.Fatalf("DeleteRecords: code %d, low watermark %d", code, low)
			}
		}
		if !n.knows(p, who) {
			t.Fatal("forgotten before its time")
		}
		n.until("the producer is forgotten", func() bool { return !n.knows(p, who) })
		b := n.records(who, 5, 1)
		a := n.produce(p, b)
		if a.code == codeUnknownProducer {
			continue
		}
		n.want("s=5", a, codeNone, 5)
		n.want("s=6", n.P(p, who, 6, 1), codeNone, 6)
		n.unchanged(p, func() { n.want("s=5 again", n.produce(p, b), codeNone, 5) })
	}
}

// A9. A refusal on one partition does not touch another.
func TestA9PartitionsApart(t *testing.T) {
	n := launch(t, options{})
	p0, who := n.topic("a9", 2), n.init()
	p1 := tp{"a9", 1}
	for _, p := range []tp{p0, p1} {
		n.want("s=0..4", n.P(p, who, 0, 5), codeNone, 0)
		n.want("s=5..9", n.P(p, who, 5, 5), codeNone, 5)
	}
	n.refused("a gap on p0", n.P(p0, who, 20, 1), codeOutOfOrder)
	n.unchanged(p1, func() { n.want("retry on p1", n.P(p1, who, 5, 5), codeNone, 5) })
	n.want("next on p1", n.P(p1, who, 10, 1), codeNone, 10)
}

// A10. Four partitions of one request have four outcomes, each in its own slot.
func TestA10MixedOutcome(t *testing.T) {
	n := launch(t, options{})
	who := n.init()
	n.topic("a10", 3)
	for i := range int32(3) {
		n.want("begin", n.P(tp{"a10", i}, who, 0, 5), codeNone, 0)
	}
	r := request(tp{"a10", 0}, n.records(who, 5, 2))
	retry := n.records(who, 0, 5)
	for i, b := range []batch.View{retry, n.records(who, 9, 1), n.records(who, 0, 1)} {
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = int32(i+1), b
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, q)
	}
	var before [3]contents
	for i := range before {
		before[i] = n.read(tp{"a10", int32(i)})
	}
	got := ask[*kmsg.ProduceResponse](n, r).Topics[0].Partitions
	want := []struct {
		code int16
		base int64
	}{{codeNone, 5}, {codeNone, 0}, {codeOutOfOrder, -1}, {codeUnknown, -1}}
	if len(got) != len(want) {
		t.Fatalf("%d answers for %d partitions", len(got), len(want))
	}
	for i, g := range got {
		if g.Partition != int32(i) || g.ErrorCode != want[i].code || g.BaseOffset != want[i].base {
			t.Errorf("slot %d: partition %d, code %d, base offset %d; want %v",
				i, g.Partition, g.ErrorCode, g.BaseOffset, want[i])
		}
	}
	n.wantHigh(tp{"a10", 0}, 7)
	n.same(tp{"a10", 1}, before[1])
	n.same(tp{"a10", 2}, before[2])
}

// A11. A duplicate's acknowledgement tells the true offset, and on a LogAppendTime topic the first append time.
func TestA11TrueOffset(t *testing.T) {
	n := launch(t, options{})
	for _, kind := range []string{"CreateTime", "LogAppendTime"} {
		p := n.topic("a11-"+kind, 1, "message.timestamp.type", kind, "segment.bytes", "1048576")
		n.want("far", n.P(p, n.init(), 0, 1000), codeNone, 0)
		x := n.init()
		b := n.records(x, 0, 3)
		first := n.produce(p, b)
		n.want("first", first, codeNone, 1000)
		if (first.time >= 0) != (kind == "LogAppendTime") {
			t.Errorf("%s: append time %d", kind, first.time)
		}
		n.pass(size(2*time.Second, 50*time.Millisecond)) // the time of a retry is another one
		again := func(when string) {
			t.Helper()
			if a := n.produce(p, b); a != first {
				t.Errorf("%s, %s: %v; the first answer was %v", kind, when, a, first)
			}
		}
		again("at once")
		for range 100 {
			n.P(p, n.init(), 0, 2)
		}
		again("behind 100 producers")
		n.restart("KILL")
		again("after KILL")
		for i := range 12 {
			n.P(p, n.init(), 0, 1, shape{size: 100_000})
			if s := n.segments(p); i == 11 && len(s) < 2 {
				t.Fatalf("no roll: %v", s)
			}
		}
		again("behind a roll")
		n.restart("KILL")
		again("behind a roll, after KILL")
		n.restart("STOP")
		again("behind a roll, after STOP")
		n.wantHigh(p, 1000+3+200+12)
	}
}

// A12. Two batches in one partition entry: all or nothing.
func TestA12TwoBatches(t *testing.T) {
	n := launch(t, options{})
	for i, codec := range []batch.Attrs{batch.Attrs(batch.None), batch.Attrs(batch.LZ4)} {
		p, who := n.topic(fmt.Sprint("a12-", i), 1), n.init()
		one := n.records(who, 0, 2, shape{attrs: codec, size: 100})
		two := n.records(who, 2, 2, shape{attrs: codec, size: 100})
		before := n.read(p)
		a := n.produce(p, batch.View(append(append([]byte{}, one...), two...)))
		if a.code != codeNone {
			n.refused("two batches", a, codeRecord, codeRequest)
			n.same(p, before)
			continue
		}
		n.want("two batches", a, codeNone, 0)
		var offsets []string
		for _, r := range n.read(p).records() {
			offsets = append(offsets, fmt.Sprint(r.offset, "=", r.value[strings.LastIndex(r.value, "/")+1:]))
		}
		if got := strings.Join(offsets, " "); got != "0=0 1=1 2=2 3=3" {
			t.Errorf("stored %s", got)
		}
		n.want("the first again", n.produce(p, one), codeNone, 0)
		n.want("the second again", n.produce(p, two), codeNone, 2)
		n.wantHigh(p, 4)
	}
}

// A13. A batch that was not stored uses up no sequence.
func TestA13RefusedBatch(t *testing.T) {
	n := launch(t, options{disk: 64 << 20})
	refuse := func(name string, b func(who producer) batch.View, codes ...int16) {
		t.Helper()
		p, who := n.topic("a13-"+name, 1), n.init()
		n.unchanged(p, func() { n.refused(name, n.produce(p, b(who)), codes...) })
		n.want("s=0 behind "+name, n.P(p, who, 0, 1), codeNone, 0)
		n.want("s=1 behind "+name, n.P(p, who, 1, 1), codeNone, 1)
	}
	refuse("crc", func(who producer) batch.View {
		b := n.records(who, 0, 1)
		b[len(b)-1] ^= 1
		return b
	}, codeCorrupt)
	refuse("size", func(who producer) batch.View { return n.records(who, 0, 1, shape{size: 2 << 20}) }, codeTooLarge)
	for codec := batch.Attrs(5); codec <= 7; codec++ {
		refuse(fmt.Sprint("codec-", codec), func(who producer) batch.View {
			return n.records(who, 0, 1, shape{attrs: codec})
		}, codeCodec, codeRecord, codeCorrupt)
	}

	p, who := n.topic("a13-full", 1), n.init()
	n.unchanged(p, func() {
		n.must(n.leave(0))
		n.refused("full disk", n.P(p, who, 0, 1, shape{size: 20_000}), codeStorage)
	})
	n.must(n.leave(-1))
	n.want("s=0 when there is space", n.P(p, who, 0, 1, shape{size: 20_000}), codeNone, 0)
	n.want("s=1", n.P(p, who, 1, 1), codeNone, 1)
}

// A14. A topic created again under the same name knows nothing of its predecessor.
func TestA14SameNameAgain(t *testing.T) {
	n := launch(t, options{})
	p, who := n.topic("a14", 1), n.init()
	for s := range int32(10) {
		n.want(fmt.Sprint("s=", s), n.P(p, who, s, 1), codeNone, int64(s))
	}
	if code := n.deleteTopic("a14"); code != 0 {
		t.Fatalf("DeleteTopics: code %d", code)
	}
	n.topic("a14", 1)
	n.wantHigh(p, 0)
	a := n.P(p, who, 9, 1)
	if a.code == codeNone { // as new
		n.want("s=9", a, codeNone, 0)
		n.wantHigh(p, 1)
		return
	}
	n.refused("s=9", a, codeUnknownProducer, codeOutOfOrder)
	n.wantHigh(p, 0)
	n.want("s=0", n.P(p, who, 0, 1), codeNone, 0)
	n.restart("KILL")
	n.want("s=1", n.P(p, who, 1, 1), codeNone, 1)
	got := n.read(p)
	want := fmt.Sprintf("[{0  %[1]d/0/0} {1  %[1]d/0/1}]", who.id)
	if s := fmt.Sprint(got.records()); s != want || got.high != 2 || got.start != 0 {
		t.Errorf("the new topic holds %s from %d to %d, want %s", s, got.start, got.high, want)
	}
}
