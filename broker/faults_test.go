package broker

import (
	"sync"
	"syscall"
	"testing"

	"sekali/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A partition whose storage failed is told as such by every administrative answer; its neighbours are not.
func TestOfflinePartitionIsTold(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	c.produce("t", 0, -1, -1, 1000, 1)
	c.produce("t", 1, -1, -1, 1000, 1)
	n.fs.FailSync("/data/t-0/*", 1, syscall.EIO)
	b := batch.Builder{BaseTime: 1000}
	b.Add(batch.Record{Value: []byte("v")})
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 10_000
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{
		{Records: b.Done(0, -1, -1, -1)}}}}
	if p := ask[*kmsg.ProduceResponse](c, at(r, 9)).Topics[0].Partitions[0]; p.ErrorCode != 56 {
		t.Fatalf("produce over a failed flush: error %d, want 56", p.ErrorCode)
	}

	parts := metadataOf(c, 9, false, "t").Topics[0].Partitions
	if p := parts[0]; p.ErrorCode != 5 || p.Leader != -1 || len(p.OfflineReplicas) != 1 ||
		p.OfflineReplicas[0] != n.nodeID {
		t.Errorf("Metadata: %+v, want error 5 and no leader", p)
	}
	if p := parts[1]; p.ErrorCode != 0 || p.Leader != n.nodeID || len(p.OfflineReplicas) != 0 {
		t.Errorf("Metadata of its neighbour: %+v", p)
	}
	described := describePartitions(c, 10, nil, "t").Topics[0].Partitions
	if described[0].ErrorCode != 5 || described[0].LeaderID != -1 || described[1].ErrorCode != 0 {
		t.Errorf("DescribeTopicPartitions: %+v", described)
	}
	neighbour := timestamp(-1)
	neighbour.Partition = 1
	if got := listOffsets(c, 11, false, timestamp(-1), timestamp(-2), neighbour); got[0].ErrorCode != 42 {
		t.Errorf("ListOffsets: %+v, want 42 for the partition named twice", got)
	}
	for _, ts := range []int64{-1, -2, -3, 0} {
		got := listOffsets(c, 11, false, timestamp(ts), neighbour)
		if got[0].ErrorCode != 56 || got[0].Offset != -1 || got[1].ErrorCode != 0 || got[1].Offset != 1 {
			t.Errorf("ListOffsets of %d: %+v, want 56 and 0", ts, got)
		}
	}
	if got := epochEnd(c, 4, "t", 0, -1, n.epoch); got.ErrorCode != 56 || got.EndOffset != -1 {
		t.Errorf("OffsetForLeaderEpoch: %+v, want 56", got)
	}
	if low, code := deleteRecords(c, 2, "t", 0, -1); code != 56 || low != -1 {
		t.Errorf("DeleteRecords: %d, error %d, want 56", low, code)
	}
	if low, code := deleteRecords(c, 2, "t", 1, -1); code != 0 || low != 1 {
		t.Errorf("DeleteRecords of its neighbour: %d, error %d", low, code)
	}
	dp := kmsg.NewPtrDescribeProducersRequest()
	dp.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	if got := ask[*kmsg.DescribeProducersResponse](c, dp).Topics[0].Partitions; got[0].ErrorCode != 56 ||
		got[1].ErrorCode != 0 {
		t.Errorf("DescribeProducers: %+v, want 56 and 0", got)
	}
	got := scrape(t, n.metrics)
	if got["sekali_partitions_offline"] != 1 || got["sekali_partitions"] != 2 {
		t.Errorf("%v of %v partitions offline", got["sekali_partitions_offline"], got["sekali_partitions"])
	}
	if _, shown := got[`sekali_high_watermark{partition="0",topic="t"}`]; shown {
		t.Error("watermarks of a partition that is offline")
	}
	// It can still be deleted, and its name is free then.
	if gone := deleteTopics(c, 6, kmsg.DeleteTopicsRequestTopic{Topic: text("t")}); gone[0].ErrorCode != 0 {
		t.Errorf("delete: %+v", gone[0])
	}
	c.makeTopic("t", 1)
	if base := c.produce("t", 0, -1, -1, 1000, 1); base != 0 {
		t.Errorf("the new topic begins at %d", base)
	}
}

// Without a durable reservation no id is handed out: the client is told to come back.
func TestNoProducerIDWithoutReservation(t *testing.T) {
	var lines logLines
	n := startNode(t, func(c *Config) { c.PIDBlock, c.Log = 1, lines.logger() })
	c := n.dial()
	if got := ask[*kmsg.InitProducerIDResponse](c, initPID(4)); got.ErrorCode != 0 {
		t.Fatalf("error %d", got.ErrorCode)
	}
	n.fs.FailSync("/data/sekali.meta*", 1, syscall.EIO)
	failed := false
	for range 3 { // one id may be left in a block reserved ahead
		got := ask[*kmsg.InitProducerIDResponse](c, initPID(4))
		if got.ErrorCode == 0 {
			continue
		}
		failed = true
		if got.ErrorCode != 14 || got.ProducerID != -1 || got.ProducerEpoch != -1 {
			t.Errorf("%+v, want 14 and no id", got)
		}
	}
	if !failed {
		t.Error("ids were given out over a failed reservation")
	}
	if said := lines.with("msg", "no producer id could be reserved"); len(said) == 0 {
		t.Error("nothing was logged")
	}
	n.abandon()
}

// Changes of different settings made at the same time are all kept.
func TestSettingsChangedAtTheSameTime(t *testing.T) {
	n := startNode(t)
	changes := []op{set("log.retention.ms", "1000001"), set("log.segment.bytes", "2000002"),
		set("log.retention.bytes", "3000003"), set("max.connections.per.ip", "44"), set("message.max.bytes", "500005")}
	var wg sync.WaitGroup
	for _, o := range changes {
		c := n.dial()
		wg.Go(func() {
			r := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: brokerKind, Configs: []op{o}}}
			resp, err := c.try(at(r, 1))
			if err != nil || resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode != 0 {
				t.Errorf("%s: %v %+v", o.Name, err, resp)
			}
		})
	}
	wg.Wait()
	all := describe(n.dial(), brokerKind, "")
	for _, o := range changes {
		if got := value(all, o.Name); got != *o.Value+"/3" {
			t.Errorf("%s is %q, want %s", o.Name, got, *o.Value)
		}
	}
}
