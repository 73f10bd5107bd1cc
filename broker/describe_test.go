package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeLogDirs(t *testing.T) {
	fs := vfs.NewMem()
	fs.SetCapacity(64 << 20)
	n := startNodeOn(t, fs)
	c := n.dial()
	c.makeTopic("a", 2)
	c.makeTopic("b", 1)
	c.produce("a", 1, -1, -1, 1000, 10)
	part := func(topic string, parts ...int32) kmsg.DescribeLogDirsRequestTopic {
		return kmsg.DescribeLogDirsRequestTopic{Topic: topic, Partitions: parts}
	}
	for _, tc := range []struct {
		what string
		in   []kmsg.DescribeLogDirsRequestTopic
		want string
	}{
		{"null: all", nil, "a-0 a-1+ b-0"},
		{"none", []kmsg.DescribeLogDirsRequestTopic{}, ""},
		{"some, known or not", []kmsg.DescribeLogDirsRequestTopic{part("a", 1, 7, -1), part("nope", 0)}, "a-1+"},
	} {
		for version := int16(1); version <= 5; version++ {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = tc.in
			resp := ask[*kmsg.DescribeLogDirsResponse](c, at(r, version))
			dir := resp.Dirs[0]
			var got []string
			for _, topic := range dir.Topics {
				for _, p := range topic.Partitions {
					name := fmt.Sprintf("%s-%d", topic.Topic, p.Partition)
					if p.Size > 0 {
						name += "+"
					}
					if p.OffsetLag != 0 || p.IsFuture {
						t.Errorf("%+v", p)
					}
					got = append(got, name)
				}
			}
			if len(resp.Dirs) != 1 || dir.ErrorCode != 0 || dir.Dir != "/data" || strings.Join(got, " ") != tc.want {
				t.Errorf("%s, version %d: %+v, want %q", tc.what, version, dir, tc.want)
			}
			if version >= 4 && (dir.TotalBytes != 64<<20 || dir.UsableBytes <= 0 || dir.UsableBytes >= 64<<20) {
				t.Errorf("version %d: %d of %d bytes usable", version, dir.UsableBytes, dir.TotalBytes)
			}
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.makeTopic("t", 2)
	first := ask[*kmsg.InitProducerIDResponse](c, initPID(4)).ProducerID
	second := ask[*kmsg.InitProducerIDResponse](c, initPID(4)).ProducerID
	c.produce("t", 0, first, 0, 1000, 3)
	c.produce("t", 0, first, 3, 2000, 4)
	c.produce("t", 0, second, 0, 1500, 1)
	r := kmsg.NewPtrDescribeProducersRequest()
	for _, topic := range []string{"t", "nope", "a/b"} {
		r.Topics = append(r.Topics, kmsg.DescribeProducersRequestTopic{Topic: topic, Partitions: []int32{0, 1, 9}})
	}
	resp := ask[*kmsg.DescribeProducersResponse](c, r)
	active := resp.Topics[0].Partitions[0].ActiveProducers
	slices.SortFunc(active, func(a, b kmsg.DescribeProducersResponseTopicPartitionActiveProducer) int {
		return int(a.ProducerID - b.ProducerID)
	})
	want := []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
		{ProducerID: first, LastSequence: 6, LastTimestamp: 2003, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1},
		{ProducerID: second, LastSequence: 0, LastTimestamp: 1500, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1},
	}
	if fmt.Sprint(active) != fmt.Sprint(want) {
		t.Errorf("producers %+v, want %+v", active, want)
	}
	for topic, codes := range [][]int16{{0, 0, 3}, {3, 3, 3}, {17, 17, 17}} {
		for i, code := range codes {
			got := resp.Topics[topic].Partitions[i]
			if got.ErrorCode != code || (code != 0) != (got.ErrorMessage != nil) {
				t.Errorf("%s: %+v, want error %d", resp.Topics[topic].Topic, got, code)
			}
		}
	}
	r.Topics = append(r.Topics[:1], kmsg.DescribeProducersRequestTopic{Topic: "t", Partitions: []int32{0}})
	twice := ask[*kmsg.DescribeProducersResponse](c, r).Topics[1].Partitions[0]
	if twice.ErrorCode != 42 || len(twice.ActiveProducers) != 0 {
		t.Errorf("named again: %+v", twice)
	}
	if idle := resp.Topics[0].Partitions[1].ActiveProducers; len(idle) != 0 {
		t.Errorf("a partition nobody wrote to: %+v", idle)
	}
}

func TestListPartitionReassignments(t *testing.T) {
	n := startNode(t)
	r := kmsg.NewPtrListPartitionReassignmentsRequest()
	r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	if resp := ask[*kmsg.ListPartitionReassignmentsResponse](n.dial(), r); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("%+v, want nothing", resp)
	}
}

type cursor = kmsg.DescribeTopicPartitionsRequestCursor

func describePartitions(c *rawConn, limit int32, from *cursor, topics ...string) *kmsg.DescribeTopicPartitionsResponse {
	c.t.Helper()
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit, r.Cursor = limit, from
	for _, topic := range topics {
		r.Topics = append(r.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: topic})
	}
	return ask[*kmsg.DescribeTopicPartitionsResponse](c, r)
}

func TestDescribeTopicPartitions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.makeTopic("a", 3).TopicID
	c.makeTopic("b", 2)
	c.makeTopic("c", 1)
	at := func(topic string, partition int32) *cursor {
		return &cursor{Topic: topic, Partition: partition}
	}
	for _, tc := range []struct {
		what   string
		limit  int32
		from   *cursor
		topics []string
		want   string
	}{
		{"all", 2000, nil, nil, "a:0 a:1 a:2 b:0 b:1 c:0"},
		{"by name, sorted, each once", 2000, nil, []string{"c", "a", "c"}, "a:0 a:1 a:2 c:0"},
		{"unknown and bad names", 2000, nil, []string{"nope", "c", "a/b"}, "a/b!17 c:0 nope!3"},
		{"within a topic", 2, nil, nil, "a:0 a:1 >a:2"},
		{"at the end of a topic", 3, nil, nil, "a:0 a:1 a:2 >b:0"},
		{"at the end of all", 6, nil, nil, "a:0 a:1 a:2 b:0 b:1 c:0"},
		{"goes on within a topic", 2, at("a", 2), nil, "a:2 b:0 >b:1"},
		{"goes on at a topic", 2, at("b", 0), nil, "b:0 b:1 >c:0"},
		{"goes on behind the last partition", 2000, at("a", 9), []string{"a", "c"}, "a c:0"},
		{"no limit is one", 0, nil, nil, "a:0 >a:1"},
		{"a negative limit is one", -5, nil, nil, "a:0 >a:1"},
		{"cursor topic gone meanwhile", 2000, at("aa", 1), nil, "b:0 b:1 c:0"},
		{"cursor topic not asked for", 2000, at("b", 0), []string{"a", "c"}, "a!42 c!42"},
		{"cursor partition negative", 2000, at("a", -1), []string{"a"}, "a!42"},
	} {
		resp := describePartitions(c, tc.limit, tc.from, tc.topics...)
		var got []string
		for _, topic := range resp.Topics {
			switch {
			case topic.ErrorCode != 0:
				got = append(got, fmt.Sprintf("%s!%d", *topic.Topic, topic.ErrorCode))
			case len(topic.Partitions) == 0:
				got = append(got, *topic.Topic)
			}
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s:%d", *topic.Topic, p.Partition))
				if p.ErrorCode != 0 || p.LeaderID != n.nodeID || p.LeaderEpoch != n.epoch || len(p.Replicas) != 1 ||
					len(p.ISR) != 1 {
					t.Errorf("%s: %+v", tc.what, p)
				}
			}
			if *topic.Topic == "a" && topic.ErrorCode == 0 && topic.TopicID != id {
				t.Errorf("%s: id of a is %x", tc.what, topic.TopicID)
			}
		}
		if resp.NextCursor != nil {
			got = append(got, fmt.Sprintf(">%s:%d", resp.NextCursor.Topic, resp.NextCursor.Partition))
		}
		if all := strings.Join(got, " "); all != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, all, tc.want)
		}
	}
}

// Following the cursor tells every partition once, whatever the limit.
func TestDescribeTopicPartitionsInPieces(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for i := range int32(7) {
		c.makeTopic("t"+itoa(i+1), i%4+1)
	}
	for limit := int32(1); limit <= 20; limit++ {
		var from *cursor
		seen := map[string]int{}
		for range 40 {
			resp := describePartitions(c, limit, from)
			count := int32(0)
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					seen[fmt.Sprint(*topic.Topic, p.Partition)]++
					count++
				}
			}
			if count > limit {
				t.Fatalf("limit %d: %d partitions", limit, count)
			}
			if from = nil; resp.NextCursor == nil {
				break
			}
			from = &cursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
		}
		if len(seen) != 1+2+3+4+1+2+3 || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
			t.Errorf("limit %d: %v", limit, seen)
		}
	}
}
