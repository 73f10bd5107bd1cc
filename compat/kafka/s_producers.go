package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// send is one batch of a producer.
type send struct {
	pid   int64
	epoch int16
	seq   int32
	n     int
}

func (b send) String() string {
	return fmt.Sprintf("%d/%d from %d, %d records", b.pid, b.epoch, b.seq, b.n)
}

// producerRows are the rows of the table that decides about duplicates, sequences and epochs, each with a partition of
// its own. 99 is another producer, whose batch keeps the log from being empty.
var producerRows = []struct {
	name  string
	sends []send
}{
	{"lower epoch", []send{{1, 1, 0, 1}, {1, 0, 1, 1}, {1, 0, 0, 1}}},
	{"exact old copy under a lower epoch", []send{{1, 0, 0, 1}, {1, 1, 0, 1}, {1, 0, 0, 1}}},
	{"newest batch again", []send{{1, 0, 0, 3}, {1, 0, 0, 3}, {1, 0, 0, 3}, {1, 0, 3, 1}}},
	{"each of five batches again", []send{{1, 0, 0, 1}, {1, 0, 1, 2}, {1, 0, 3, 3}, {1, 0, 6, 1}, {1, 0, 7, 1},
		{1, 0, 0, 1}, {1, 0, 1, 2}, {1, 0, 3, 3}, {1, 0, 6, 1}, {1, 0, 7, 1}, {1, 0, 8, 1}}},
	{"older than five batches", []send{{1, 0, 0, 1}, {1, 0, 1, 1}, {1, 0, 2, 1}, {1, 0, 3, 1}, {1, 0, 4, 1}, {1, 0, 5, 1},
		{1, 0, 6, 1}, {1, 0, 0, 1}, {1, 0, 1, 1}, {1, 0, 2, 1}, {1, 0, 7, 1}}},
	{"covered with other borders", []send{{1, 0, 0, 4}, {1, 0, 4, 4}, {1, 0, 0, 2}, {1, 0, 2, 4}, {1, 0, 6, 2}, {1, 0, 8, 1}}},
	{"next", []send{{1, 0, 0, 10}, {1, 0, 1, 1}, {1, 0, 10, 1}}},
	{"gap", []send{{1, 0, 0, 1}, {1, 0, 2, 1}, {1, 0, 1, 1}, {1, 0, 2, 1}}},
	{"partial overlap", []send{{1, 0, 0, 5}, {1, 0, 3, 5}, {1, 0, 4, 2}, {1, 0, 5, 1}}},
	{"behind what is proven", []send{{99, 0, 0, 1}, {1, 0, 500, 10}, {1, 0, 400, 10}, {1, 0, 500, 10}, {1, 0, 510, 1}}},
	{"higher epoch from 0", []send{{1, 0, 0, 3}, {1, 1, 0, 1}, {1, 1, 1, 1}}},
	{"higher epoch from 3", []send{{1, 0, 0, 3}, {1, 1, 3, 1}, {1, 0, 3, 1}}},
	{"epoch jumps", []send{{1, 0, 0, 1}, {1, 7, 0, 1}, {1, 32767, 0, 1}, {1, 32766, 0, 1}}},
	{"unknown producer from 0", []send{{99, 0, 0, 1}, {1, 0, 0, 1}, {1, 5, 0, 1}}},
	{"unknown producer from 7", []send{{99, 0, 0, 1}, {1, 0, 7, 1}, {1, 0, 8, 1}, {1, 0, 7, 1}}},
	{"unknown producer from 7 with epoch 3", []send{{99, 0, 0, 1}, {1, 3, 7, 1}, {1, 3, 8, 1}}},
	{"unknown producer from 7, empty log", []send{{1, 0, 7, 1}, {1, 0, 0, 1}, {1, 0, 7, 1}}},
	{"wrap within a batch", []send{{99, 0, 0, 1}, {1, 0, 1<<31 - 3, 1}, {1, 0, 1<<31 - 2, 4}, {1, 0, 1<<31 - 2, 4},
		{1, 0, 2, 1}, {1, 0, 1<<31 - 3, 1}}},
	{"wrap between batches", []send{{99, 0, 0, 1}, {1, 0, 1<<31 - 2, 2}, {1, 0, 0, 1}, {1, 0, 1, 1}, {1, 0, 1<<31 - 2, 2}}},
	{"last number is not before the first of an epoch", []send{{1, 0, 0, 1}, {1, 0, 1<<31 - 1, 1}, {1, 1, 1<<31 - 1, 1}}},
	{"no producer between", []send{{1, 0, 0, 1}, {-1, -1, -1, 2}, {1, 0, 1, 1}, {1, 0, 0, 1}}},
	{"two producers", []send{{1, 0, 0, 1}, {2, 0, 0, 2}, {1, 0, 1, 1}, {2, 0, 2, 1}, {2, 0, 0, 2}, {1, 0, 0, 1}}},
}

func producers(s *side) {
	s.topic("producers", int32(len(producerRows)))
	for i, r := range producerRows {
		for j, b := range r.sends {
			m := by(b.pid, b.epoch, b.seq, b.n)
			s.produce(fmt.Sprintf("%s: %d. %v", r.name, j+1, b), 9, "producers", int32(i), m.bytes())
		}
		s.stored(r.name+": stored", "producers", int32(i))
	}
}

// described is what DescribeProducers tells of the same partitions afterwards.
func described(s *side) {
	s.topic("described", 2)
	for i, b := range []send{{7, 0, 0, 3}, {7, 0, 3, 1}, {3, 2, 0, 5}, {9, 0, 0, 1}, {9, 1, 0, 2}} {
		s.produce(fmt.Sprintf("send %d", i), 9, "described", 0, by(b.pid, b.epoch, b.seq, b.n).bytes())
	}
	for _, p := range []struct {
		topic     string
		partition int32
	}{{"described", 0}, {"described", 1}, {"described", 2}, {"unknown", 0}, {"a/b", 0}} {
		r := kmsg.NewPtrDescribeProducersRequest()
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = p.topic, []int32{p.partition}
		r.Topics = append(r.Topics, t)
		resp, _ := ask[*kmsg.DescribeProducersResponse](s, r)
		q := resp.Topics[0].Partitions[0]
		text := fmt.Sprintf("code %d", q.ErrorCode)
		for _, id := range []int64{3, 7, 9} {
			for _, a := range q.ActiveProducers {
				if a.ProducerID == id {
					text += fmt.Sprintf(", %d/%d sequence %d time %d coordinator %d first %d", a.ProducerID, a.ProducerEpoch,
						a.LastSequence, a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset)
				}
			}
		}
		s.see(fmt.Sprintf("%s %d", p.topic, p.partition), "%s", text)
	}
}

// pipelined sends five batches in one write, of which one is refused, and then the same five again.
func pipelined(s *side) {
	s.topic("pipelined", 1)
	for round := range 2 {
		var reqs []kmsg.Request
		for i := range int32(5) {
			reqs = append(reqs, rawclient.Produce(9, "pipelined", 0, by(1, 0, i*2, 2).bytes()))
		}
		reqs = append(reqs, rawclient.Produce(9, "pipelined", 0, by(1, 0, 20, 2).bytes()))
		s.must(s.c.Send(reqs...))
		for i, r := range reqs {
			resp, err := s.c.Receive(r)
			s.must(err)
			s.see(fmt.Sprintf("round %d, request %d", round+1, i+1), "%s", produceText(resp.(*kmsg.ProduceResponse)))
		}
	}
	s.stored("stored", "pipelined", 0)
}

// initProducer asks for producer ids. Ids themselves differ; that they are new, and epoch 0, must not.
func initProducer(s *side) {
	s.until(func() bool { // a broker of Kafka has no ids to give until the controller has given it a block
		resp, _ := ask[*kmsg.InitProducerIDResponse](s, kmsg.NewPtrInitProducerIDRequest())
		return resp.ErrorCode != 14
	})
	last := int64(-1)
	for v := range int16(7) {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.Version, r.TransactionTimeoutMillis = v, 60_000
		resp, ok := ask[*kmsg.InitProducerIDResponse](s, r)
		if !ok {
			s.see(fmt.Sprintf("version %d", v), "%s", s.failure)
			continue
		}
		s.see(fmt.Sprintf("version %d", v), "code %d, epoch %d, new id %v", resp.ErrorCode, resp.ProducerEpoch,
			resp.ProducerID > last)
		last = max(last, resp.ProducerID)
	}
	for _, c := range []struct {
		name  string
		id    int64
		epoch int16
	}{{"id and epoch", 5, 0}, {"id without epoch", 5, -1}, {"epoch without id", -1, 5}} {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.Version, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = 4, 60_000, c.id, c.epoch
		resp, _ := ask[*kmsg.InitProducerIDResponse](s, r)
		s.see(c.name, "code %d, epoch %d, new id %v", resp.ErrorCode, resp.ProducerEpoch, resp.ProducerID > last)
	}
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionTimeoutMillis, r.TransactionalID = 4, 60_000, kmsg.StringPtr("")
	resp, _ := ask[*kmsg.InitProducerIDResponse](s, r)
	s.see("empty transactional id", "code %d, id %d, epoch %d", resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch)
}
