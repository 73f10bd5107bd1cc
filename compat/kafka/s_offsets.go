package main

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// listOffsets makes a request for one partition.
func listOffsets(version int16, topic string, partition int32, ms int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = version, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ms, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// list sends a ListOffsets request and records the answer. Leader epochs differ by nature; that there is one does not.
func (s *side) list(step string, r *kmsg.ListOffsetsRequest) {
	resp, ok := ask[*kmsg.ListOffsetsResponse](s, r)
	if !ok {
		s.see(step, "%s", s.failure)
		return
	}
	var all []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			text := fmt.Sprintf("code %d, offset %d, time %s", p.ErrorCode, p.Offset, when(p.Timestamp))
			if r.Version >= 4 {
				text += fmt.Sprintf(", epoch %s", epochText(p.LeaderEpoch))
			}
			all = append(all, text)
		}
	}
	s.see(step, "%s", strings.Join(all, "; "))
}

func epochText(e int32) string {
	if e < 0 {
		return fmt.Sprint(e)
	}
	return "E"
}

// filled makes a topic of one partition with ten batches of three records, a minute apart: offsets 0 to 29. The batch
// at offset 15 has the largest timestamp, and the last record of each batch is its oldest.
func (s *side) filled(topic string, set ...string) {
	s.topic(topic, 1, set...)
	for i := range int64(10) {
		base := int64(epochTime + i*60_000)
		if i == 5 {
			base += 3600_000
		}
		m := of(rec{value: []byte("a")}, rec{delta: 1, time: 500, value: []byte("b")}, rec{delta: 2, time: -500})
		m.baseTime, m.maxTime = base, base+500
		resp, ok := ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, topic, 0, m.bytes()))
		if !ok || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			panic(broken{fmt.Errorf("%s: batch %d was refused: %+v", topic, i, resp)})
		}
	}
}

func listing(s *side) {
	s.filled("listing")
	for v := int16(0); v <= 12; v++ {
		for _, ms := range []int64{-1, -2, -3, -4, -5, -6, -7} {
			if v == 0 || v == 12 {
				if ms != -1 {
					continue
				}
			}
			s.list(fmt.Sprintf("version %d, timestamp %d", v, ms), listOffsets(v, "listing", 0, ms))
		}
	}
	for _, at := range []struct {
		name string
		ms   int64
	}{
		{"before all", 0}, {"the first", epochTime}, {"between two batches", epochTime + 1000},
		{"second record of the third batch", epochTime + 120_500}, {"oldest record of the third batch", epochTime + 119_500},
		{"largest but one", epochTime + 300_000}, {"largest", epochTime + 300_000 + 3600_500},
		{"above all", epochTime + 300_000 + 3600_501}, {"end of time", 1<<63 - 1},
	} {
		s.list("time: "+at.name, listOffsets(7, "listing", 0, at.ms))
	}
	r := listOffsets(7, "listing", 0, -1)
	r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
	s.list("a partition twice", r)
	s.list("unknown topic", listOffsets(7, "unknown", 0, -1))
	s.list("unknown partition", listOffsets(7, "listing", 1, -1))
	s.list("partition -1", listOffsets(7, "listing", -1, -1))
	r = listOffsets(7, "listing", 0, -1)
	r.IsolationLevel = 1
	s.list("read committed", r)
	s.list("leader epoch far above", listOffsetsEpoch("listing", 1000))
	s.topic("listing-empty", 1)
	for _, ms := range []int64{-1, -2, -3, -4, -5, 0} {
		s.list(fmt.Sprintf("empty, timestamp %d", ms), listOffsets(9, "listing-empty", 0, ms))
	}
	s.deleteRecords("delete to 16", "listing", 0, 16)
	for _, ms := range []int64{-1, -2, -3, -4, 0, epochTime + 300_000, epochTime + 300_499, epochTime + 360_000} {
		s.list(fmt.Sprintf("after DeleteRecords, timestamp %d", ms), listOffsets(9, "listing", 0, ms))
	}
	s.deleteRecords("delete all", "listing", 0, -1)
	for _, ms := range []int64{-1, -2, -3, 0} {
		s.list(fmt.Sprintf("all deleted, timestamp %d", ms), listOffsets(9, "listing", 0, ms))
	}
}

func listOffsetsEpoch(topic string, epoch int32) *kmsg.ListOffsetsRequest {
	r := listOffsets(7, topic, 0, -1)
	r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
	return r
}

// deleteRecords sends a DeleteRecords request and records the answer.
func (s *side) deleteRecords(step, topic string, partition int32, offset int64) {
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.Version, r.TimeoutMillis = 2, 10_000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	t.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}
	r.Topics = append(r.Topics, t)
	resp, _ := ask[*kmsg.DeleteRecordsResponse](s, r)
	p := resp.Topics[0].Partitions[0]
	s.see(step, "code %d, low watermark %d", p.ErrorCode, p.LowWatermark)
}

func deleting(s *side) {
	s.filled("deleting")
	s.deleteRecords("above the end", "deleting", 0, 31)
	s.deleteRecords("offset -2", "deleting", 0, -2)
	s.deleteRecords("to 0", "deleting", 0, 0)
	s.deleteRecords("to the middle of a batch", "deleting", 0, 4)
	s.deleteRecords("again", "deleting", 0, 4)
	s.deleteRecords("below the start", "deleting", 0, 2)
	s.fetched("fetch below the start", rawclient.Fetch(12, "deleting", 0, 3))
	s.fetched("fetch at the start", rawclient.Fetch(12, "deleting", 0, 4))
	s.produce("produce tells the start", 9, "deleting", 0, by(5, 0, 0, 1).bytes())
	s.produce("so does a duplicate", 9, "deleting", 0, by(5, 0, 0, 1).bytes())
	s.produce("so does a gap", 9, "deleting", 0, by(5, 0, 9, 1).bytes())
	s.deleteRecords("to the end", "deleting", 0, -1)
	s.produce("duplicate of what was deleted", 9, "deleting", 0, by(5, 0, 0, 1).bytes())
	s.produce("next of who was deleted", 9, "deleting", 0, by(5, 0, 1, 1).bytes())
	s.deleteRecords("unknown topic", "unknown", 0, 0)
	s.deleteRecords("unknown partition", "deleting", 1, 0)
	s.topic("deleting-empty", 1)
	s.deleteRecords("empty log", "deleting-empty", 0, -1)
	s.deleteRecords("empty log to 1", "deleting-empty", 0, 1)
	s.topic("deleting-none", 1, "cleanup.policy", "")
	s.deleteRecords("empty cleanup.policy", "deleting-none", 0, -1)
}

// epochs asks OffsetForLeaderEpoch. The epoch of the leader is not the same on both sides, so the answer is told by it.
func epochs(s *side) {
	s.filled("epochs")
	s.topic("epochs-empty", 1)
	m := kmsg.NewPtrMetadataRequest()
	m.Version = 9
	m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("epochs")}}
	meta, _ := ask[*kmsg.MetadataResponse](s, m)
	now := meta.Topics[0].Partitions[0].LeaderEpoch
	for _, c := range []struct {
		name           string
		topic          string
		current, epoch int32
		partition      int32
	}{
		{"the present epoch", "epochs", -1, now, 0},
		{"the present epoch, current given", "epochs", now, now, 0},
		{"an epoch above", "epochs", -1, now + 5, 0},
		{"current above", "epochs", now + 5, now, 0},
		{"epoch -1", "epochs", -1, -1, 0},
		{"empty log, the present epoch", "epochs-empty", -1, now, 0},
		{"unknown topic", "unknown", -1, now, 0},
		{"unknown partition", "epochs", -1, now, 3},
	} {
		for v := int16(2); v <= 4; v++ {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			r.Version, r.ReplicaID = v, -1
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = c.topic
			t.Partitions = []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: c.partition,
				CurrentLeaderEpoch: c.current, LeaderEpoch: c.epoch}}
			r.Topics = append(r.Topics, t)
			resp, ok := ask[*kmsg.OffsetForLeaderEpochResponse](s, r)
			step := fmt.Sprintf("%s, version %d", c.name, v)
			if !ok {
				s.see(step, "%s", s.failure)
				continue
			}
			p := resp.Topics[0].Partitions[0]
			epoch := fmt.Sprint(p.LeaderEpoch)
			if p.LeaderEpoch == now {
				epoch = "the present"
			}
			s.see(step, "code %d, epoch %s, end %d", p.ErrorCode, epoch, p.EndOffset)
		}
	}
}
