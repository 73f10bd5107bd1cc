package broker

import (
	"fmt"
	"slices"
	"testing"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAlterReplicaLogDirs(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	for _, tc := range []struct {
		dir, topic string
		partition  int32
		want       int16
	}{
		{n.store.Dir(), "t", 0, 0},
		{n.store.Dir() + "/", "t", 1, 0},
		{n.store.Dir(), "t", 2, 3},
		{n.store.Dir(), "t", -1, 3},
		{n.store.Dir(), "none", 0, 3},
		{"/elsewhere", "t", 0, 57},
		{"", "none", 0, 57},
	} {
		r := kmsg.NewPtrAlterReplicaLogDirsRequest()
		r.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: tc.dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{
			Topic: tc.topic, Partitions: []int32{tc.partition}}}}}
		for version := int16(1); version <= 2; version++ {
			p := ask[*kmsg.AlterReplicaLogDirsResponse](c, at(r, version)).Topics[0].Partitions[0]
			if p.Partition != tc.partition || p.ErrorCode != tc.want {
				t.Errorf("%+v version %d: %+v", tc, version, p)
			}
		}
	}
}

// offlinePartition takes the log of a partition away from the node, as a failed disk does.
func (n *adminNode) offlinePartition(topic string, partition int32) {
	n.t.Helper()
	l, err := n.store.Partition(store.TP{Topic: topic, Partition: partition})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		n.t.Fatal(err)
	}
}

func TestElectLeaders(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("a", 2)
	c.makeTopic("b", 1)
	elect := func(version int16, kind int8, topics ...string) (out []string) {
		r := kmsg.NewPtrElectLeadersRequest()
		r.ElectionType = kind
		if topics != nil {
			r.Topics = []kmsg.ElectLeadersRequestTopic{}
		}
		for _, name := range topics {
			r.Topics = append(r.Topics, kmsg.ElectLeadersRequestTopic{Topic: name, Partitions: []int32{0, 1}})
		}
		resp := ask[*kmsg.ElectLeadersResponse](c, at(r, version))
		if resp.ErrorCode != 0 {
			return []string{fmt.Sprint(resp.ErrorCode)}
		}
		for _, topic := range resp.Topics {
			s := topic.Topic
			for _, p := range topic.Partitions {
				s += fmt.Sprintf(" %d:%d", p.Partition, p.ErrorCode)
			}
			out = append(out, s)
		}
		return out
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for version := int16(0); version <= 2; version++ {
		check("named", elect(version, 0, "a", "b", "none"), "a 0:84 1:84", "b 0:84 1:3", "none 0:3 1:3")
		check("all", elect(version, 0), "a", "b")
		check("none", elect(version, 0, []string{}...))
	}
	check("unclean", elect(2, 1, "a"), "a 0:84 1:84")
	check("unknown kind", elect(1, 2, "a"), "42")
	n.offlinePartition("a", 1)
	check("preferred, offline", elect(2, 0), "a 1:80", "b")
	check("unclean, offline", elect(2, 1, "a"), "a 0:84 1:83")
	n.abandon()
}

func TestAlterPartitionReassignments(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	for _, tc := range []struct {
		topic     string
		partition int32
		replicas  []int32
		want      int16
	}{
		{"t", 0, []int32{n.nodeID}, 0},
		{"t", 1, []int32{n.nodeID + 1}, 39},
		{"t", 1, []int32{n.nodeID, n.nodeID + 1}, 39},
		{"t", 1, []int32{n.nodeID, n.nodeID}, 39},
		{"t", 1, []int32{}, 39},
		{"t", 1, nil, 85},
		{"t", 2, []int32{n.nodeID}, 3},
		{"t", -1, nil, 3},
		{"none", 0, []int32{n.nodeID}, 3},
	} {
		r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: tc.topic,
			Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{
				Partition: tc.partition, Replicas: tc.replicas}}}}
		for version := int16(0); version <= 1; version++ {
			resp := ask[*kmsg.AlterPartitionAssignmentsResponse](c, at(r, version))
			p := resp.Topics[0].Partitions[0]
			if resp.ErrorCode != 0 || p.Partition != tc.partition || p.ErrorCode != tc.want ||
				(p.ErrorMessage != nil) != (tc.want != 0) {
				t.Errorf("%+v version %d: %+v", tc, version, resp)
			}
		}
	}
}

func TestDescribeQuorum(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	quorum := func(version int16, topic string, partitions ...int32) *kmsg.DescribeQuorumResponse {
		r := kmsg.NewPtrDescribeQuorumRequest()
		r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic}}
		for _, p := range partitions {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
		}
		return ask[*kmsg.DescribeQuorumResponse](c, at(r, version))
	}
	last := int64(-1)
	for version := int16(0); version <= 2; version++ {
		c.makeTopic(fmt.Sprint("t", version), 1) // a change of the metadata
		resp := quorum(version, "__cluster_metadata", 0)
		p := resp.Topics[0].Partitions[0]
		if resp.ErrorCode != 0 || p.ErrorCode != 0 || p.LeaderID != n.nodeID || p.LeaderEpoch != n.epoch ||
			len(p.CurrentVoters) != 1 || len(p.Observers) != 0 {
			t.Fatalf("version %d: %+v", version, resp)
		}
		v := p.CurrentVoters[0]
		if v.ReplicaID != n.nodeID || v.LogEndOffset != p.HighWatermark || p.HighWatermark <= last {
			t.Errorf("version %d: voter %+v, high watermark %d after %d", version, v, p.HighWatermark, last)
		}
		if version >= 1 && (v.LastFetchTimestamp <= 0 || v.LastCaughtUpTimestamp <= 0) {
			t.Errorf("version %d: voter %+v", version, v)
		}
		if version == 2 && (len(resp.Nodes) != 1 || resp.Nodes[0].NodeID != n.nodeID ||
			fmt.Sprintf("127.0.0.1:%d", resp.Nodes[0].Listeners[0].Port) != n.addr) {
			t.Errorf("nodes %+v, the node is at %s", resp.Nodes, n.addr)
		}
		last = p.HighWatermark
	}
	for _, resp := range []*kmsg.DescribeQuorumResponse{quorum(2, "t0", 0), quorum(2, "__cluster_metadata", 1),
		quorum(2, "__cluster_metadata", 0, 1)} {
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 3 {
				t.Errorf("%s: %+v", resp.Topics[0].Topic, p)
			}
		}
	}
}

func TestUpdateFeatures(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for _, tc := range []struct {
		feature string
		level   int16
		how     int8
		want    int16
	}{
		{"metadata.version", 33, 1, 0},
		{"metadata.version", 33, 2, 0},
		{"metadata.version", 34, 1, 95},
		{"metadata.version", 32, 1, 95},
		{"metadata.version", 32, 2, 95},
		{"metadata.version", 32, 3, 95},
		{"metadata.version", 0, 3, 95},
		{"metadata.version", -1, 3, 95},
		{"metadata.version", 33, 0, 95},
		{"metadata.version", 33, 4, 95},
		{"transaction.version", 2, 1, 0},
		{"transaction.version", 1, 2, 95},
		{"group.version", 0, 2, 95},
		{"streams.version", 1, 1, 95},
		{"", 1, 1, 95},
	} {
		for version := int16(1); version <= 2; version++ {
			r := kmsg.NewPtrUpdateFeaturesRequest()
			r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{
				Feature: tc.feature, MaxVersionLevel: tc.level, UpgradeType: tc.how}}
			resp := ask[*kmsg.UpdateFeaturesResponse](c, at(r, version))
			got := resp.ErrorCode
			if version == 1 {
				got = resp.Results[0].ErrorCode
			}
			if got != tc.want {
				t.Errorf("%+v version %d: %+v", tc, version, resp)
			}
		}
	}
	r := kmsg.NewPtrUpdateFeaturesRequest()
	r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{
		{Feature: "metadata.version", MaxVersionLevel: 33, UpgradeType: 1},
		{Feature: "metadata.version", MaxVersionLevel: 33, UpgradeType: 1}}
	if resp := ask[*kmsg.UpdateFeaturesResponse](c, at(r, 2)); resp.ErrorCode != 42 {
		t.Errorf("a feature named twice: %d", resp.ErrorCode)
	}
	r.FeatureUpdates = r.FeatureUpdates[:1]
	r.FeatureUpdates[0].MaxVersionLevel, r.FeatureUpdates[0].AllowDowngrade = 30, true
	if resp := ask[*kmsg.UpdateFeaturesResponse](c, at(r, 0)); resp.Results[0].ErrorCode != 95 {
		t.Errorf("version 0, a downgrade: %+v", resp.Results)
	}
}
