package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A stock administration client does its daily work.
func TestStockAdminClient(t *testing.T) {
	n := startNode(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	made, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("99000")}, "orders")
	must(err)
	if made.NumPartitions != 3 || made.ReplicationFactor != 1 || *made.Configs["retention.ms"].Value != "99000" {
		t.Errorf("created: %+v", made)
	}
	_, err = adm.CreateTopic(ctx, 1, 1, nil, "orders")
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("created twice: %v", err)
	}
	grown, err := adm.UpdatePartitions(ctx, 5, "orders")
	must(err)
	must(grown.Error())

	for range 10 {
		must(cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: 2, Value: []byte("v")}).FirstErr())
	}
	meta, err := adm.Metadata(ctx)
	must(err)
	if len(meta.Brokers) != 1 || meta.Controller != n.nodeID || meta.Cluster != n.clusterID ||
		len(meta.Topics["orders"].Partitions) != 5 {
		t.Errorf("metadata: %+v", meta)
	}
	ends, err := adm.ListEndOffsets(ctx, "orders")
	must(err)
	must(ends.Error())
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != 10 {
		t.Errorf("%d records, want 10", total)
	}
	starts, err := adm.ListStartOffsets(ctx, "orders")
	must(err)
	must(starts.Error())
	after, err := adm.ListOffsetsAfterMilli(ctx, time.Now().Add(time.Hour).UnixMilli(), "orders")
	must(err)
	must(after.Error())

	offsets := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) { offsets.AddOffset(o.Topic, o.Partition, o.Offset, -1) })
	gone, err := adm.DeleteRecords(ctx, offsets)
	must(err)
	must(gone.Error())

	_, err = adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes",
		Value: kadm.StringPtr("1048576")}}, "orders")
	must(err)
	described, err := adm.DescribeTopicConfigs(ctx, "orders")
	must(err)
	if _, err := described.On("orders", func(r *kadm.ResourceConfig) error {
		for _, c := range r.Configs {
			if c.Key == "segment.bytes" && *c.Value != "1048576" {
				t.Errorf("segment.bytes is %s", *c.Value)
			}
		}
		return r.Err
	}); err != nil {
		t.Error(err)
	}
	nodes, err := adm.DescribeBrokerConfigs(ctx, n.nodeID)
	must(err)
	if _, err := nodes.On(itoa(n.nodeID), func(r *kadm.ResourceConfig) error { return r.Err }); err != nil {
		t.Error(err)
	}

	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	must(err)
	size := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) { size += d.Size() })
	if size == 0 {
		t.Errorf("log dirs: %+v", dirs)
	}
	producers, err := adm.DescribeProducers(ctx, kadm.TopicsSet{"orders": {0: {}, 1: {}, 2: {}, 3: {}, 4: {}}})
	must(err)
	if known := producers.SortedProducers(); len(known) == 0 || known[0].LastSequence < 0 {
		t.Errorf("producers: %+v", known)
	}
	versions, err := adm.ApiVersions(ctx)
	must(err)
	must(versions[n.nodeID].Err)

	deleted, err := adm.DeleteTopic(ctx, "orders")
	must(err)
	must(deleted.Err)
	fresh, err := kgo.NewClient(kgo.SeedBrokers(n.addr)) // the first one remembers what it was told
	must(err)
	defer fresh.Close()
	if left, err := kadm.NewClient(fresh).ListTopics(ctx); err != nil || len(left) != 0 {
		t.Errorf("topics left: %v, %v", left.Names(), err)
	}
}
