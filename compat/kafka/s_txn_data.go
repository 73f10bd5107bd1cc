package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// writeRows are the tables of Produce with transactional batches.
var writeRows = []tableRow{
	{"no transactional id", func(a *actor) {
		a.init().add(0)
		for _, v := range []int16{3, 9, 11, 12} {
			a.writeAs(v, nil, false, 0, a.pid, a.epoch, 0, 1)
		}
		a.log(0)
	}},
	{"partition not in the transaction", func(a *actor) {
		a.init().add(1)
		for _, v := range []int16{3, 9, 10, 11} {
			a.writeAs(v, &a.id, false, 0, a.pid, a.epoch, 0, 1)
		}
		a.log(0).state()
		a.writeAs(12, &a.id, false, 0, a.pid, a.epoch, 0, 1)
		a.log(0).state()
	}},
	{"no transaction", func(a *actor) {
		a.init()
		for _, v := range []int16{9, 11} {
			a.writeAs(v, &a.id, false, 0, a.pid, a.epoch, 0, 1)
		}
		a.state()
	}},
	{"unknown transactional id", func(a *actor) {
		other := a.id + "-unknown"
		a.init().add(0)
		for _, v := range []int16{9, 11, 12} {
			a.writeAs(v, &other, false, 0, a.pid, a.epoch, 0, 1)
		}
	}},
	{"another producer id", func(a *actor) {
		a.init().add(0)
		for _, v := range []int16{9, 11, 12} {
			a.writeAs(v, &a.id, false, 0, a.pid+1_000_000, a.epoch, 0, 1)
		}
	}},
	{"another epoch", func(a *actor) {
		a.init().init().add(0)
		for _, v := range []int16{9, 11, 12} {
			a.writeAs(v, &a.id, false, 0, a.pid, a.epoch-1, 0, 1)
			a.writeAs(v, &a.id, false, 0, a.pid, a.epoch+1, 0, 1)
		}
		a.log(0)
	}},
	{"two producers in a request", func(a *actor) {
		a.init().add(0, 1)
		r := rawclient.Produce(11, a.topic, 0, transactional(a.pid, a.epoch, 0))
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = 1, transactional(a.pid+1, a.epoch, 0)
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		r.TransactionID = &a.id
		resp, _ := ask[*kmsg.ProduceResponse](a.s, r)
		a.see("write", "%s", produceText(resp))
		a.log(0).log(1)
	}},
	{"a transactional and a plain batch in a request", func(a *actor) {
		a.init().add(0, 1)
		r := rawclient.Produce(11, a.topic, 0, transactional(a.pid, a.epoch, 0))
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = 1, plain(1).bytes()
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		r.TransactionID = &a.id
		resp, _ := ask[*kmsg.ProduceResponse](a.s, r)
		a.see("write", "%s", produceText(resp))
		a.log(0).log(1)
	}},
	{"plain batch of a producer with an open transaction", func(a *actor) {
		a.init().begin(0, 0)
		a.writeAs(11, nil, true, 0, a.pid, a.epoch, 1, 1)
		a.writeAs(12, &a.id, true, 0, a.pid, a.epoch, 1, 1)
		a.log(0)
	}},
	{"plain batch of a transactional producer", func(a *actor) {
		a.init()
		a.writeAs(11, nil, true, 0, a.pid, a.epoch, 0, 1)
		a.writeAs(12, &a.id, true, 0, a.pid, a.epoch, 1, 1)
		a.log(0).state()
	}},
	{"acks 1", func(a *actor) {
		a.init().add(0)
		r := rawclient.Produce(11, a.topic, 0, transactional(a.pid, a.epoch, 0))
		r.TransactionID, r.Acks = &a.id, 1
		resp, ok := ask[*kmsg.ProduceResponse](a.s, r)
		if !ok {
			a.see("write", "%s", a.s.failure)
			return
		}
		a.see("write", "%s", produceText(resp))
		a.log(0)
	}},
	{"internal topic", func(a *actor) {
		a.init()
		a.topic = "__transaction_state"
		a.writeAs(12, &a.id, false, 0, a.pid, a.epoch, 0, 1)
	}},
	{"unknown partition", func(a *actor) { a.init(); a.writeAs(12, &a.id, false, 5, a.pid, a.epoch, 0, 1); a.state() }},
}

// sequenceRows are sequence numbers and repetitions within and after transactions, in both generations.
var sequenceRows = []tableRow{
	{"repetition in the transaction", func(a *actor) { a.init().begin(0, 0).write(0, 0, 1).write(0, 1, 2).write(0, 0, 1).log(0) }},
	{"gap in the transaction", func(a *actor) { a.init().begin(0, 0).write(0, 5, 1).write(0, 1, 1).log(0) }},
	{"repetition after the commit", func(a *actor) {
		a.init().begin(0, 0)
		old := *a
		a.end(true)
		for _, v := range []int16{9, 11, 12} {
			a.writeAs(v, &a.id, false, 0, old.pid, old.epoch, 0, 1)
		}
		a.state().log(0)
	}},
	{"repetition after the abort", func(a *actor) {
		a.init().begin(0, 0)
		old := *a
		a.end(false)
		for _, v := range []int16{9, 11, 12} {
			a.writeAs(v, &a.id, false, 0, old.pid, old.epoch, 0, 1)
		}
		a.state().log(0)
	}},
	{"next transaction from 0", func(a *actor) { a.init().begin(0, 0).write(0, 1, 1).end(true).begin(0, 0).log(0) }},
	{"next transaction from the next number", func(a *actor) { a.init().begin(0, 0).write(0, 1, 1).end(true).begin(0, 2).log(0) }},
	{"first batch from 7", func(a *actor) { a.init().begin(0, 7).log(0) }},
	{"first batch from 7 after others' records", func(a *actor) {
		a.s.must(produced(ask[*kmsg.ProduceResponse](a.s, rawclient.Produce(9, a.topic, 0, plain(2).bytes()))))
		a.init().begin(0, 7).log(0)
	}},
	{"new epoch from 3", func(a *actor) { a.init().begin(0, 0).end(true).init().begin(0, 3).begin(0, 0).log(0) }},
	{"records of others between", func(a *actor) {
		a.init().begin(0, 0)
		a.s.must(produced(ask[*kmsg.ProduceResponse](a.s, rawclient.Produce(9, a.topic, 0, plain(2).bytes()))))
		a.log(0).end(true).log(0)
	}},
}

// transactional is a transactional batch of one record.
func transactional(pid int64, epoch int16, seq int32) []byte {
	m := by(pid, epoch, seq, 1)
	m.attrs |= attrTransactional
	return m.bytes()
}

// produced is an error if a batch was refused.
func produced(resp *kmsg.ProduceResponse, ok bool) error {
	if !ok || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return fmt.Errorf("a batch was refused: %+v", resp)
	}
	return nil
}

// commitOffset sends TxnOffsetCommit of offset 5 for partition 0, as a member where one is given.
func (a *actor) commitOffset(version int16, group string, pid int64, epoch int16, generation int32, member string) {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.TransactionalID, r.Group, r.ProducerID, r.ProducerEpoch = version, a.id, group, pid, epoch
	r.Generation, r.MemberID = generation, member
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = a.topic
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = 0, 5, kmsg.StringPtr("m")
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	what := fmt.Sprintf("offset v%d of %q%s", version, group, a.as(pid, epoch))
	if generation >= 0 || member != "" {
		what += fmt.Sprintf(", generation %s of %s", a.sentEpoch(generation), a.s.memberText(member))
	}
	resp, ok := ask[*kmsg.TxnOffsetCommitResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	a.see(what, "code %d", resp.Topics[0].Partitions[0].ErrorCode)
}

// committed records what the group has committed, as a reader that wants stable offsets sees it, and as one that does
// not.
func (a *actor) committed(group string) *actor {
	var all []string
	for _, stable := range []bool{true, false} {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version, r.Group, r.RequireStable = 7, group, stable
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = a.topic, []int32{0, 1}
		r.Topics = append(r.Topics, t)
		resp, ok := ask[*kmsg.OffsetFetchResponse](a.s, r)
		if !ok {
			all = append(all, a.s.failure)
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				meta := "null"
				if p.Metadata != nil {
					meta = fmt.Sprintf("%q", *p.Metadata)
				}
				all = append(all, fmt.Sprintf("%d code %d at %d %s", p.Partition, p.ErrorCode, p.Offset, meta))
			}
		}
		slices.Sort(all)
		all = append(all, fmt.Sprintf("code %d stable %v", resp.ErrorCode, stable))
	}
	a.see("committed of "+group, "%s", strings.Join(all, ", "))
	return a
}

// txnOffsetRows are the tables of TxnOffsetCommit.
var txnOffsetRows = []tableRow{
	{"group not in the transaction", func(a *actor) {
		a.init()
		for v := range int16(5) {
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "")
		}
		a.state().committed(a.id)
	}},
	{"added by the commit", func(a *actor) {
		a.two = true
		a.init().commitOffset(5, a.id, a.pid, a.epoch, -1, "")
		a.state().committed(a.id).end(true).committed(a.id).state()
	}},
	{"unknown transactional id", func(a *actor) {
		for _, v := range []int16{0, 3, 4, 5} {
			a.commitOffset(v, a.id, 5, 0, -1, "")
		}
	}},
	{"another producer id", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		for _, v := range []int16{0, 3, 4, 5} {
			a.commitOffset(v, a.id, a.pid+1_000_000, a.epoch, -1, "")
		}
		a.committed(a.id)
	}},
	{"another epoch", func(a *actor) {
		a.init().init().addOffsets(3, a.id, a.pid, a.epoch)
		for _, v := range []int16{0, 3, 4, 5} {
			a.commitOffset(v, a.id, a.pid, a.epoch-1, -1, "")
			a.commitOffset(v, a.id, a.pid, a.epoch+1, -1, "")
		}
		a.committed(a.id)
	}},
	{"empty group", func(a *actor) {
		a.init().addOffsets(3, "", a.pid, a.epoch)
		for _, v := range []int16{0, 3, 5} {
			a.commitOffset(v, "", a.pid, a.epoch, -1, "")
		}
	}},
	{"generation without a group", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		for _, v := range []int16{3, 4, 5} {
			a.commitOffset(v, a.id, a.pid, a.epoch, 1, "member")
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "member")
		}
		a.committed(a.id)
	}},
	{"unknown topic", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.topic = "unknown"
		for _, v := range []int16{0, 3, 5} {
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "")
		}
	}},
	{"every version", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		for v := range int16(6) {
			a.commitOffset(v, a.id, a.pid, a.epoch, -1, "")
		}
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"abort", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, -1, "")
		a.end(false).committed(a.id)
	}},
	{"plain commit during the transaction", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, -1, "")
		a.plainCommit(a.id, 9)
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"plain commit before the transaction's", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.plainCommit(a.id, 9)
		a.commitOffset(3, a.id, a.pid, a.epoch, -1, "")
		a.committed(a.id).end(true).committed(a.id)
	}},
	{"fenced by the next instance", func(a *actor) {
		a.init().addOffsets(3, a.id, a.pid, a.epoch)
		a.commitOffset(3, a.id, a.pid, a.epoch, -1, "")
		a.initAs(4, -1, -1, 60_000)
		a.init().committed(a.id)
	}},
}

// plainCommit commits an offset of partition 0 outside of any transaction.
func (a *actor) plainCommit(group string, offset int64) {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 7, group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = a.topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 0, offset
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	resp, ok := ask[*kmsg.OffsetCommitResponse](a.s, r)
	if !ok {
		a.see("plain commit", "%s", a.s.failure)
		return
	}
	a.see("plain commit", "code %d", resp.Topics[0].Partitions[0].ErrorCode)
}
