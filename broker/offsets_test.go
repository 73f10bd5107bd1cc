package broker

import (
	"slices"
	"testing"

	"sekali/batch"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produce stores one batch of n records, the first at time ms and each one millisecond later, and returns its base
// offset. pid -1: no producer.
func (c *rawConn) produce(topic string, partition int32, pid int64, seq int32, ms int64, n int) int64 {
	c.t.Helper()
	b := batch.Builder{BaseTime: ms}
	for i := range n {
		b.Add(batch.Record{TimeDelta: int64(i), Value: []byte("value")})
	}
	epoch := int16(0)
	if pid < 0 {
		epoch, seq = -1, -1
	}
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 10_000
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{
		{Partition: partition, Records: b.Done(0, pid, epoch, seq)}}}}
	p := ask[*kmsg.ProduceResponse](c, at(r, 9)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.t.Fatalf("produce to %s-%d: error %d", topic, partition, p.ErrorCode)
	}
	return p.BaseOffset
}

func listOffsets(c *rawConn, version int16, committed bool,
	parts ...kmsg.ListOffsetsRequestTopicPartition) []kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	r := kmsg.NewPtrListOffsetsRequest()
	r.ReplicaID = -1
	if committed {
		r.IsolationLevel = 1
	}
	r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: parts}}
	return ask[*kmsg.ListOffsetsResponse](c, at(r, version)).Topics[0].Partitions
}

func timestamp(ms int64) kmsg.ListOffsetsRequestTopicPartition {
	return kmsg.ListOffsetsRequestTopicPartition{CurrentLeaderEpoch: -1, Timestamp: ms}
}

func TestListOffsetsTable(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1)
	for _, ms := range []int64{1000, 2000, 1500} { // offsets 0-9, 10-19 and, out of order, 20-29
		c.produce("t", 0, -1, -1, ms, 10)
	}
	for _, tc := range []struct {
		what         string
		ts           int64
		since        int16
		offset, time int64
	}{
		{"latest", -1, 1, 30, -1},
		{"earliest", -2, 1, 0, -1},
		{"of the largest timestamp", -3, 7, 19, 2009},
		{"earliest local", -4, 8, 0, -1},
		{"latest tiered", -5, 9, -1, -1},
		{"earliest not uploaded", -6, 11, -1, -1},
		{"no such question", -7, 99, -1, -1},
		{"before all", 0, 1, 0, 1000},
		{"exactly the first", 1000, 1, 0, 1000},
		{"inside a batch", 1004, 1, 4, 1004},
		{"between batches", 1010, 1, 10, 2000},
		{"the last", 2009, 1, 19, 2009},
		{"after all", 2010, 1, -1, -1},
		{"the end of time", 1<<63 - 1, 1, -1, -1},
	} {
		for version := int16(1); version <= 11; version++ {
			got := listOffsets(c, version, false, timestamp(tc.ts))[0]
			wantCode, wantOffset, wantTime := int16(0), tc.offset, tc.time
			if version < tc.since {
				wantCode, wantOffset, wantTime = 35, -1, -1
			}
			wantEpoch := int32(-1)
			if version >= 4 && wantOffset >= 0 {
				wantEpoch = n.epoch
			}
			if got.ErrorCode != wantCode || got.Offset != wantOffset || got.Timestamp != wantTime ||
				got.LeaderEpoch != wantEpoch {
				t.Errorf("%s, version %d: %+v, want code %d offset %d time %d epoch %d",
					tc.what, version, got, wantCode, wantOffset, wantTime, wantEpoch)
			}
		}
	}
	for _, committed := range []bool{false, true} {
		if got := listOffsets(c, 11, committed, timestamp(-1))[0]; got.Offset != 30 {
			t.Errorf("latest, committed %v: %d, want 30: no transaction is open", committed, got.Offset)
		}
	}
}

func TestListOffsetsRefusals(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	epoch := func(e int32) kmsg.ListOffsetsRequestTopicPartition {
		p := timestamp(-1)
		p.CurrentLeaderEpoch = e
		return p
	}
	part := func(i int32) kmsg.ListOffsetsRequestTopicPartition {
		p := timestamp(-1)
		p.Partition = i
		return p
	}
	for _, tc := range []struct {
		what string
		in   []kmsg.ListOffsetsRequestTopicPartition
		want []int16
	}{
		{"our epoch", []kmsg.ListOffsetsRequestTopicPartition{epoch(n.epoch)}, []int16{0}},
		{"an epoch before", []kmsg.ListOffsetsRequestTopicPartition{epoch(n.epoch - 1)}, []int16{74}},
		{"an epoch to come", []kmsg.ListOffsetsRequestTopicPartition{epoch(n.epoch + 1)}, []int16{75}},
		{"unknown partitions", []kmsg.ListOffsetsRequestTopicPartition{part(2), part(-1), part(1)}, []int16{3, 3, 0}},
		{"twice", []kmsg.ListOffsetsRequestTopicPartition{part(0), part(1), part(0)}, []int16{42, 0, 42}},
	} {
		var codes []int16
		for _, got := range listOffsets(c, 11, false, tc.in...) {
			codes = append(codes, got.ErrorCode)
			if got.ErrorCode != 0 && (got.Offset != -1 || got.Timestamp != -1 || got.LeaderEpoch != -1) {
				t.Errorf("%s: a refusal with %+v", tc.what, got)
			}
		}
		if !slices.Equal(codes, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, codes, tc.want)
		}
	}
	r := kmsg.NewPtrListOffsetsRequest()
	r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "nope",
		Partitions: []kmsg.ListOffsetsRequestTopicPartition{timestamp(-1)}}}
	if got := ask[*kmsg.ListOffsetsResponse](c, at(r, 11)).Topics[0].Partitions[0]; got.ErrorCode != 3 {
		t.Errorf("unknown topic: %+v, want 3", got)
	}
}

// Epochs of old starts stay known: the end of each is where the next one began, and offsets tell under which they were
// written.
func TestEpochsOfEarlierStarts(t *testing.T) {
	fs := vfs.NewMem()
	var epochs []int32
	for start := range 4 {
		n := startNodeOn(t, fs)
		c := n.dial()
		if start == 0 {
			c.makeTopic("t", 1)
		}
		if start != 2 { // nothing is written in the third
			epochs = append(epochs, n.epoch)
			c.produce("t", 0, -1, -1, int64(1000*(start+1)), 10)
		}
		if start < 3 {
			n.stop()
			continue
		}
		for i, ask := range []struct {
			ask, epoch int32
			end        int64
		}{
			{epochs[0], epochs[0], 10},
			{epochs[1], epochs[1], 20},
			{epochs[1] + 1, epochs[1], 20},
			{n.epoch, n.epoch, 30},
			{n.epoch + 1, -1, -1},
			{-1, -1, -1},
		} {
			for version := int16(2); version <= 4; version++ {
				got := epochEnd(c, version, "t", 0, -1, ask.ask)
				if got.ErrorCode != 0 || got.LeaderEpoch != ask.epoch || got.EndOffset != ask.end {
					t.Errorf("question %d, version %d: %+v, want epoch %d end %d", i, version, got, ask.epoch, ask.end)
				}
			}
		}
		for ms, want := range map[int64]int32{1005: epochs[0], 2005: epochs[1], 4005: epochs[2], -2: epochs[0], -1: n.epoch} {
			if got := listOffsets(c, 11, false, timestamp(ms))[0]; got.LeaderEpoch != want {
				t.Errorf("offset %d of time %d: epoch %d, want %d", got.Offset, ms, got.LeaderEpoch, want)
			}
		}
	}
}

func epochEnd(c *rawConn, version int16, topic string, partition, current,
	epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	c.t.Helper()
	r := kmsg.NewPtrOffsetForLeaderEpochRequest()
	r.ReplicaID = -1
	r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: topic,
		Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
			{Partition: partition, CurrentLeaderEpoch: current, LeaderEpoch: epoch}}}}
	return ask[*kmsg.OffsetForLeaderEpochResponse](c, at(r, version)).Topics[0].Partitions[0]
}

func TestOffsetForLeaderEpochRefusals(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 1)
	for _, tc := range []struct {
		topic              string
		partition, current int32
		want               int16
	}{
		{"t", 0, n.epoch, 0}, {"t", 0, n.epoch - 1, 74}, {"t", 0, n.epoch + 1, 75}, {"t", 9, -1, 3}, {"nope", 0, -1, 3},
	} {
		got := epochEnd(c, 4, tc.topic, tc.partition, tc.current, n.epoch)
		if got.ErrorCode != tc.want || got.ErrorCode != 0 && (got.EndOffset != -1 || got.LeaderEpoch != -1) {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
}

func deleteRecords(c *rawConn, version int16, topic string, partition int32, offset int64) (low int64, code int16) {
	c.t.Helper()
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{
		{Partition: partition, Offset: offset}}}}
	p := ask[*kmsg.DeleteRecordsResponse](c, at(r, version)).Topics[0].Partitions[0]
	return p.LowWatermark, p.ErrorCode
}

func TestDeleteRecords(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	c := n.dial()
	c.makeTopic("t", 1)
	c.makeTopic("keep", 1, "cleanup.policy", "")
	for i := range 3 {
		c.produce("t", 0, -1, -1, int64(i), 10)
	}
	for i, tc := range []struct {
		topic     string
		partition int32
		offset    int64
		low       int64
		code      int16
	}{
		{"t", 0, 0, 0, 0},     // nothing to do
		{"t", 0, 31, -1, 1},   // beyond the high watermark
		{"t", 0, -2, -1, 1},   // no offset
		{"t", 0, 13, 13, 0},   // inside a batch
		{"t", 0, 5, 13, 0},    // below the start: stays
		{"t", 1, 0, -1, 3},    // no such partition
		{"nope", 0, 0, -1, 3}, // no such topic
		{"keep", 0, 0, 0, 0},  // an empty cleanup.policy keeps everything until it is asked to delete
		{"t", 0, -1, 30, 0},   // up to the high watermark
		{"t", 0, 30, 30, 0},
	} {
		low, code := deleteRecords(c, int16(i%3), tc.topic, tc.partition, tc.offset)
		if low != tc.low || code != tc.code {
			t.Errorf("case %d (%+v): low watermark %d, error %d", i, tc, low, code)
		}
	}
	// The new start is durable: it is there after power is lost, and offsets go on where they were.
	fs = fs.Crash(vfs.CrashPlan{Seed: 1})
	n.abandon()
	n = startNodeOn(t, fs)
	c = n.dial()
	if got := listOffsets(c, 11, false, timestamp(-2))[0]; got.Offset != 30 || got.ErrorCode != 0 {
		t.Errorf("earliest after a power cut: %+v, want offset 30", got)
	}
	if base := c.produce("t", 0, -1, -1, 9, 1); base != 30 {
		t.Errorf("the next batch has offset %d, want 30", base)
	}
}

// Case D2 (without transactions): reading committed data where there is nothing.
func TestCaseD2NothingToRead(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	c.produce("t", 1, -1, -1, 1000, 5)
	if low, code := deleteRecords(c, 2, "t", 1, -1); low != 5 || code != 0 {
		t.Fatalf("delete all: %d, error %d", low, code)
	}
	for partition, at := range []int64{0, 5} {
		part := timestamp(-1)
		part.Partition = int32(partition)
		if got := listOffsets(c, 7, true, part)[0]; got.Offset != at || got.ErrorCode != 0 {
			t.Errorf("partition %d: latest %+v, want %d", partition, got, at)
		}
		r := kmsg.NewPtrFetchRequest()
		r.IsolationLevel, r.MaxBytes, r.ReplicaID = 1, 1<<20, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(partition), at, 1<<20
		r.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		r.SetVersion(11)
		got := ask[*kmsg.FetchResponse](c, r).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != at || got.LastStableOffset != at ||
			got.LogStartOffset != at {
			t.Errorf("partition %d: fetch %+v, want nothing and %d everywhere", partition, got, at)
		}
	}
}
