package cases

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tireless is a transactional client that repeats every request until it is answered with a code that does not pass,
// over as many connections as it takes, and remembers all codes.
type tireless struct {
	n     *node // for its clock and address
	g     generation
	id    string
	c     *rawclient.Client
	codes map[int16]int
	stop  *atomic.Bool
}

// call sends a request until an answer has a final code; false: the client is to stop.
func (x *tireless) call(r kmsg.Request, codeOf func(kmsg.Response) int16) (kmsg.Response, bool) {
	for {
		if x.c == nil {
			if x.c, _ = rawclient.Dial(x.n.address()); x.c == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if x.c != nil {
			resp, err := x.c.Call(r)
			if err != nil {
				x.c.Close()
				x.c = nil
			} else {
				code := codeOf(resp)
				if code == codeStorage && !full {
					code = codeLoading // of a broker in this process that was killed: its disk is gone already
				}
				x.codes[code]++
				if !retriable(code) {
					return resp, code == 0
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		if x.stop.Load() {
			return nil, false
		}
	}
}

// run commits one transaction after the other and counts them; it ends when told, or by a code that does not pass.
func (x *tireless) run(p tp, group string) (committed int, wrong string) {
	defer func() {
		if x.c != nil {
			x.c.Close()
		}
	}()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKey = 3, 1, x.id
	x.call(find, func(r kmsg.Response) int16 { return r.(*kmsg.FindCoordinatorResponse).ErrorCode })
	init := initRequest()
	init.Version, init.TransactionalID, init.TransactionTimeoutMillis = x.g.init, &x.id, 60_000
	resp, ok := x.call(init, func(r kmsg.Response) int16 { return r.(*kmsg.InitProducerIDResponse).ErrorCode })
	if !ok {
		return 0, x.ended("INIT")
	}
	who := producer{resp.(*kmsg.InitProducerIDResponse).ProducerID, resp.(*kmsg.InitProducerIDResponse).ProducerEpoch}
	for seq := int32(0); !x.stop.Load(); {
		if what := x.write(p, who, seq, group, int64(committed)); what != "" {
			return committed, x.ended(what)
		}
		end := kmsg.NewPtrEndTxnRequest()
		end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch = x.g.end, x.id, who.id, who.epoch
		end.Commit = true
		resp, ok := x.call(end, func(r kmsg.Response) int16 { return r.(*kmsg.EndTxnResponse).ErrorCode })
		if !ok {
			return committed, x.ended("END")
		}
		committed++
		seq++
		if a := resp.(*kmsg.EndTxnResponse); x.g.v2 {
			who, seq = producer{a.ProducerID, a.ProducerEpoch}, 0
		}
	}
	return committed, ""
}

// write is what happens inside one transaction; it returns which request was refused for good.
func (x *tireless) write(p tp, who producer, seq int32, group string, offset int64) string {
	if !x.g.v2 {
		add := (&txn{g: x.g, id: x.id, who: who}).addRequest(p)
		if _, ok := x.call(add, func(r kmsg.Response) int16 {
			return r.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
		}); !ok {
			return "ADD"
		}
		offsets := kmsg.NewPtrAddOffsetsToTxnRequest()
		offsets.Version, offsets.TransactionalID, offsets.Group = 3, x.id, group
		offsets.ProducerID, offsets.ProducerEpoch = who.id, who.epoch
		if _, ok := x.call(offsets, func(r kmsg.Response) int16 {
			return r.(*kmsg.AddOffsetsToTxnResponse).ErrorCode
		}); !ok {
			return "AddOffsetsToTxn"
		}
	}
	b := x.n.records(who, seq, 1, shape{attrs: batch.AttrTransactional})
	put := rawclient.Produce(x.g.produce, p.topic, p.partition, b)
	put.TransactionID = &x.id
	if _, ok := x.call(put, func(r kmsg.Response) int16 {
		return answerOf(r.(*kmsg.ProduceResponse)).code
	}); !ok {
		return "Produce"
	}
	toc := kmsg.NewPtrTxnOffsetCommitRequest()
	toc.Version, toc.TransactionalID, toc.Group, toc.Generation = x.g.offsets, x.id, group, -1
	toc.ProducerID, toc.ProducerEpoch = who.id, who.epoch
	at := kmsg.TxnOffsetCommitRequestTopicPartition{Partition: p.partition, Offset: offset, LeaderEpoch: -1}
	toc.Topics = []kmsg.TxnOffsetCommitRequestTopic{{
		Topic: p.topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{at},
	}}
	if _, ok := x.call(toc, func(r kmsg.Response) int16 {
		return r.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}); !ok {
		return "TxnOffsetCommit"
	}
	return ""
}

// ended says what ended the client, unless it was told to stop.
func (x *tireless) ended(what string) string {
	if x.stop.Load() {
		return ""
	}
	return fmt.Sprintf("%s of %s was refused; codes %v", what, x.id, x.codes)
}

// G4. No -1, and nothing but retriable codes or closed connections, for things that pass: transactions go on over STOP
// and KILL, and every commit that was answered is there once.
func TestG4NothingFatal(t *testing.T) {
	n := launch(t, options{realTime: true})
	p := n.topic("g4", 4)
	n.coordinator(1, "g4")
	var stop atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	committed, codes := map[int32]int{}, map[int16]int{}
	for i := range int32(4) {
		x := &tireless{n: n, g: []generation{txnV1, txnV2}[i%2], id: fmt.Sprint("g4-", i), stop: &stop,
			codes: map[int16]int{}}
		wg.Go(func() {
			c, wrong := x.run(tp{p.topic, i}, fmt.Sprint("g4-", i))
			mu.Lock()
			defer mu.Unlock()
			if committed[i] = c; wrong != "" {
				t.Error(wrong)
			}
			for code, n := range x.codes {
				codes[code] += n
			}
		})
	}
	for i := range size(6, 30) {
		time.Sleep(size(100*time.Millisecond, time.Second))
		n.restart([]string{"KILL", "STOP"}[i%2])
	}
	time.Sleep(100 * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	for code, times := range codes {
		if code != 0 && !retriable(code) {
			t.Errorf("code %d, %d times", code, times)
		}
	}
	for i := range int32(4) {
		q := tp{p.topic, i}
		n.INIT(txnV1, fmt.Sprint("g4-", i)) // ends what is open
		n.decided(q)
		got := len(n.committed(q, 0, 1<<20))
		if got < committed[i] || got > committed[i]+1 || committed[i] == 0 {
			t.Errorf("partition %d: %d records, %d transactions were answered as committed", i, got, committed[i])
		}
		offset, code := n.OF(fmt.Sprint("g4-", i), q, true)
		if code != 0 || offset < int64(committed[i])-1 || offset > int64(committed[i]) {
			t.Errorf("group %d at %d, code %d; %d commits were answered", i, offset, code, committed[i])
		}
	}
	t.Logf("transactions %v, codes %v", committed, codes)
}
