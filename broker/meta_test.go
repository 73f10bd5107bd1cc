package broker

import (
	"strings"
	"testing"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataOf(c *rawConn, version int16, create bool, names ...string) *kmsg.MetadataResponse {
	r := kmsg.NewPtrMetadataRequest()
	r.AllowAutoTopicCreation = create
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		r.Topics = append(r.Topics, kmsg.MetadataRequestTopic{Topic: text(name)})
	}
	return ask[*kmsg.MetadataResponse](c, at(r, version))
}

func TestMetadataAllVersions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	made := c.makeTopic("orders", 3)
	for version := int16(0); version <= 13; version++ {
		resp := metadataOf(c, version, false, "orders")
		host, port := resp.Brokers[0].Host, resp.Brokers[0].Port
		if len(resp.Brokers) != 1 || host != "127.0.0.1" || !strings.HasSuffix(n.addr, ":"+itoa(port)) {
			t.Fatalf("version %d: brokers %+v, want %s", version, resp.Brokers, n.addr)
		}
		if version >= 1 && resp.ControllerID != n.nodeID {
			t.Errorf("version %d: controller %d", version, resp.ControllerID)
		}
		if version >= 2 && (resp.ClusterID == nil || len(*resp.ClusterID) != 22) {
			t.Errorf("version %d: cluster id %v, want 22 characters", version, resp.ClusterID)
		}
		topic := resp.Topics[0]
		if topic.ErrorCode != 0 || topic.IsInternal || len(topic.Partitions) != 3 {
			t.Fatalf("version %d: topic %+v", version, topic)
		}
		if version >= 10 && topic.TopicID != made.TopicID {
			t.Errorf("version %d: topic id %x, want %x", version, topic.TopicID, made.TopicID)
		}
		for i, p := range topic.Partitions {
			if p.ErrorCode != 0 || int(p.Partition) != i || p.Leader != n.nodeID || len(p.Replicas) != 1 ||
				p.Replicas[0] != n.nodeID || len(p.ISR) != 1 || len(p.OfflineReplicas) != 0 {
				t.Errorf("version %d: partition %+v", version, p)
			}
			if version >= 7 && p.LeaderEpoch != n.epoch {
				t.Errorf("version %d: leader epoch %d, want the start epoch %d", version, p.LeaderEpoch, n.epoch)
			}
		}
		if topic.AuthorizedOperations != noOperations || resp.AuthorizedOperations != noOperations {
			t.Errorf("version %d: operations told that were not asked for", version)
		}
	}
}

func itoa(n int32) string {
	s := ""
	for ; n > 0; n /= 10 {
		s = string(rune('0'+n%10)) + s
	}
	return s
}

func TestMetadataWhichTopics(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("b", 1)
	c.makeTopic("a", 1)
	names := func(r *kmsg.MetadataResponse) (all []string) {
		for _, topic := range r.Topics {
			all = append(all, *topic.Topic)
		}
		return all
	}
	all := kmsg.NewPtrMetadataRequest()
	for _, tc := range []struct {
		what string
		r    *kmsg.MetadataResponse
		want string
	}{
		{"version 0, empty: all", metadataOf(c, 0, false), "a b"},
		{"version 1, empty: none", metadataOf(c, 1, false), ""},
		{"version 13, empty: none", metadataOf(c, 13, false), ""},
		{"version 1, null: all", ask[*kmsg.MetadataResponse](c, at(all, 1)), "a b"},
		{"version 13, null: all", ask[*kmsg.MetadataResponse](c, at(all, 13)), "a b"},
		{"named twice: once", metadataOf(c, 9, false, "b", "a", "b"), "b a"},
	} {
		if got := strings.Join(names(tc.r), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
	all.IncludeClusterAuthorizedOperations, all.IncludeTopicAuthorizedOperations = true, true
	resp := ask[*kmsg.MetadataResponse](c, at(all, 9))
	if resp.AuthorizedOperations != 8096 || resp.Topics[0].AuthorizedOperations != 3576 {
		t.Errorf("operations %d and %d, want 8096 and 3576", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
	}
}

func TestMetadataByID(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.makeTopic("byid", 1).TopicID
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{1}}, {Topic: text("byid")}, {}}
	resp := ask[*kmsg.MetadataResponse](c, at(r, 12))
	if got := resp.Topics[0]; got.ErrorCode != 0 || *got.Topic != "byid" || len(got.Partitions) != 1 {
		t.Errorf("known id: %+v", got)
	}
	if got := resp.Topics[1]; got.ErrorCode != 100 || got.Topic != nil || got.TopicID != [16]byte{1} {
		t.Errorf("unknown id: %+v, want 100, no name and the id", got)
	}
	if got := resp.Topics[2]; got.ErrorCode != 0 || got.TopicID != id {
		t.Errorf("name beside ids: %+v", got)
	}
	if got := resp.Topics[3]; got.ErrorCode != 42 {
		t.Errorf("neither name nor id: %+v, want 42", got)
	}
	resp = ask[*kmsg.MetadataResponse](c, at(r, 10))
	for i, got := range resp.Topics {
		if got.ErrorCode != 42 {
			t.Errorf("version 10, topic %d: error %d, want 42: it has no ids in requests", i, got.ErrorCode)
		}
	}
}

func TestTopicsAreCreatedOnFirstUse(t *testing.T) {
	for _, tc := range []struct {
		what    string
		node    bool
		version int16
		request bool
		want    int16
	}{
		{"both allow it", true, 4, true, 0},
		{"newest version", true, 13, true, 0},
		{"before version 4 it is implied", true, 3, false, 0},
		{"the request does not", true, 4, false, 3},
		{"the node does not", false, 4, true, 3},
		{"the node does not, old version", false, 0, true, 3},
	} {
		t.Run(tc.what, func(t *testing.T) {
			n := startNode(t, func(c *Config) { c.AutoCreate, c.NumPartitions = tc.node, 4 })
			c := n.dial()
			got := metadataOf(c, tc.version, tc.request, "fresh").Topics[0]
			if got.ErrorCode != 3 || len(got.Partitions) != 0 {
				t.Fatalf("error %d and %d partitions, want 3 and none: it did not exist", got.ErrorCode, len(got.Partitions))
			}
			parts := 0
			if tc.want == 0 {
				parts = 4
			}
			again := metadataOf(c, 9, false, "fresh").Topics[0]
			if again.ErrorCode != tc.want || len(again.Partitions) != parts {
				t.Errorf("asked again: error %d and %d partitions, want %d and %d", again.ErrorCode, len(again.Partitions),
					tc.want, parts)
			}
		})
	}
}

// Case I5: names that are paths stay data.
func TestCaseI5NamesAsPaths(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	c := n.dial()
	bad := []string{"", ".", "..", "../x", "a/b", `a\b`, "a\x00b", "a\nb", "a b", "ä", strings.Repeat("x", 250)}
	for _, name := range bad {
		if got := metadataOf(c, 9, true, name).Topics[0]; got.ErrorCode != 17 {
			t.Errorf("first use of %q: error %d, want 17", name, got.ErrorCode)
		}
		if got := metadataOf(c, 9, false, name).Topics[0]; got.ErrorCode != 17 {
			t.Errorf("metadata of %q: error %d, want 17", name, got.ErrorCode)
		}
		if code := createCode(c, name); code != 17 {
			t.Errorf("create %q: error %d, want 17", name, code)
		}
	}
	for _, name := range []string{"Case", "case", "a.b", strings.Repeat("x", 249), "...", "-", "a-0", "a-1.x-delete"} {
		if code := createCode(c, name); code != 0 {
			t.Errorf("create %q: error %d, want 0", name, code)
		}
	}
	if code := createCode(c, "a_b"); code != 17 {
		t.Errorf("a_b beside a.b: error %d, want 17", code)
	}
	if got := metadataOf(c, 9, true, "a_b").Topics[0]; got.ErrorCode != 17 {
		t.Errorf("first use of a_b beside a.b: error %d, want 17", got.ErrorCode)
	}
	// Transactional and group ids are data.
	fc := kmsg.NewPtrFindCoordinatorRequest()
	fc.CoordinatorKeys = bad
	if resp := ask[*kmsg.FindCoordinatorResponse](c, at(fc, 6)); len(resp.Coordinators) != len(bad) {
		t.Errorf("%d coordinators for %d groups", len(resp.Coordinators), len(bad))
	}
	if resp := ask[*kmsg.MetadataResponse](c, at(kmsg.NewPtrMetadataRequest(), 9)); len(resp.Topics) != 8+2 {
		t.Errorf("%d topics, want 8 and those of the coordinators", len(resp.Topics))
	}
	n.stop()
	names, err := fs.ReadDir("/")
	if err != nil || len(names) != 1 || names[0] != "data" {
		t.Errorf("the root holds %q (%v), want the data directory alone", names, err)
	}
}

func TestReservedTopicsAreNotCreated(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for _, name := range []string{"__consumer_offsets", "__transaction_state", "__cluster_metadata"} {
		if got := metadataOf(c, 9, true, name).Topics[0]; got.ErrorCode != 3 ||
			got.IsInternal != (name != "__cluster_metadata") {
			t.Errorf("first use of %s: %+v, want error 3", name, got)
		}
		if code := createCode(c, name); code != 42 {
			t.Errorf("create %s: error %d, want 42", name, code)
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for version := int16(0); version <= 2; version++ {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.IncludeClusterAuthorizedOperations = version == 1
		resp := ask[*kmsg.DescribeClusterResponse](c, at(r, version))
		want := int32(noOperations)
		if version == 1 {
			want = 8096
		}
		if resp.ErrorCode != 0 || resp.ClusterID != n.clusterID || resp.ControllerID != n.nodeID ||
			len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != n.nodeID || resp.Brokers[0].Host != "127.0.0.1" ||
			resp.ClusterAuthorizedOperations != want || resp.EndpointType != 1 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
	for endpoint, want := range map[int8]int16{1: 0, 2: 114, 3: 115, 0: 115} {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.EndpointType = endpoint
		if resp := ask[*kmsg.DescribeClusterResponse](c, at(r, 2)); resp.ErrorCode != want {
			t.Errorf("endpoint type %d: error %d, want %d", endpoint, resp.ErrorCode, want)
		}
	}
}

func TestAdvertisedAddress(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Listeners[0].Advertise = "kafka.example:19092" })
	c := n.dial()
	fc := kmsg.NewPtrFindCoordinatorRequest()
	fc.CoordinatorKeys = []string{"g"}
	coordinator := ask[*kmsg.FindCoordinatorResponse](c, at(fc, 6)).Coordinators[0]
	broker := metadataOf(c, 9, false).Brokers[0]
	described := ask[*kmsg.DescribeClusterResponse](c, at(kmsg.NewPtrDescribeClusterRequest(), 2)).Brokers[0]
	for what, got := range map[string]struct {
		host string
		port int32
	}{
		"Metadata":        {broker.Host, broker.Port},
		"FindCoordinator": {coordinator.Host, coordinator.Port},
		"DescribeCluster": {described.Host, described.Port},
	} {
		if got.host != "kafka.example" || got.port != 19092 {
			t.Errorf("%s tells %s:%d", what, got.host, got.port)
		}
	}
}

// The leader epoch of every partition rises with each start and never goes back: Java clients ignore metadata with a
// lower one for ever. Cluster id and topic ids stay.
func TestIdentityAcrossRestarts(t *testing.T) {
	fs := vfs.NewMem()
	var cluster string
	var topic [16]byte
	epoch := int32(-1)
	for start := range 4 {
		n := startNodeOn(t, fs)
		c := n.dial()
		if start == 0 {
			topic = c.makeTopic("kept", 2).TopicID
			cluster = n.clusterID
		}
		resp := metadataOf(c, 13, false, "kept")
		if *resp.ClusterID != cluster || resp.Topics[0].TopicID != topic {
			t.Fatalf("start %d: cluster %s topic %x, want %s and %x", start, *resp.ClusterID, resp.Topics[0].TopicID, cluster,
				topic)
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.LeaderEpoch <= epoch {
				t.Fatalf("start %d: partition %+v after leader epoch %d", start, p, epoch)
			}
		}
		epoch = resp.Topics[0].Partitions[0].LeaderEpoch
		switch start {
		case 0:
			n.stop()
		default:
			fs = fs.Kill()
			n.abandon()
		}
	}
}
