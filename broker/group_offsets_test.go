package broker

import (
	"testing"

	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitRequest commits offset for partition 0 of t1, or of the topic with the id from version 10 on.
func commitRequest(version int16, group string, id [16]byte, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation, r.RetentionTimeMillis = version, group, -1, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch, p.Metadata = offset, 3, text("note")
	r.Topics = []kmsg.OffsetCommitRequestTopic{
		{Topic: "t1", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return r
}

func commitCode(t *testing.T, c *rawclient.Client, r *kmsg.OffsetCommitRequest) int16 {
	t.Helper()
	return call[*kmsg.OffsetCommitResponse](t, c, r).Topics[0].Partitions[0].ErrorCode
}

// position is what a group has committed for one partition, as version 8 tells.
func position(t *testing.T, c *rawclient.Client, group, topic string, partition int32,
	stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	t.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.RequireStable = 8, stable
	r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1,
		Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}}}
	resp := call[*kmsg.OffsetFetchResponse](t, c, r)
	if resp.Groups[0].ErrorCode != 0 {
		t.Fatalf("fetch: code %d", resp.Groups[0].ErrorCode)
	}
	return resp.Groups[0].Topics[0].Partitions[0]
}

func TestCommitAndFetchInAllVersions(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 2, nil)
	for v := int16(2); v <= 10; v++ {
		group := "g" + itoa(int32(v))
		if code := commitCode(t, c, commitRequest(v, group, id, 100+int64(v))); code != 0 {
			t.Fatalf("commit version %d: code %d", v, code)
		}
		for f := int16(1); f <= 10; f++ {
			r := kmsg.NewPtrOffsetFetchRequest()
			r.Version, r.Group = f, group
			r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t1", Partitions: []int32{0, 1, 9}}}
			r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, MemberEpoch: -1,
				Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t1", TopicID: id, Partitions: []int32{0, 1, 9}}}}}
			checkFetched(t, call[*kmsg.OffsetFetchResponse](t, c, r), v, f)
			if f >= 2 { // all partitions
				r.Topics, r.Groups[0].Topics = nil, nil
				checkAll(t, call[*kmsg.OffsetFetchResponse](t, c, r), id, v, f)
			}
		}
	}
}

func checkFetched(t *testing.T, resp *kmsg.OffsetFetchResponse, v, f int16) {
	t.Helper()
	epoch := int32(-1)
	if v >= 6 && f >= 5 {
		epoch = 3
	}
	if f < 8 {
		ps := resp.Topics[0].Partitions
		if p := ps[0]; p.Offset != 100+int64(v) || p.LeaderEpoch != epoch || *p.Metadata != "note" || p.ErrorCode != 0 {
			t.Fatalf("commit %d fetch %d: %+v", v, f, p)
		}
		for _, p := range ps[1:] {
			if p.Offset != -1 || p.LeaderEpoch != -1 || *p.Metadata != "" || p.ErrorCode != 0 {
				t.Fatalf("commit %d fetch %d: %+v", v, f, p)
			}
		}
		return
	}
	ps := resp.Groups[0].Topics[0].Partitions
	if p := ps[0]; p.Offset != 100+int64(v) || p.LeaderEpoch != epoch || *p.Metadata != "note" || p.ErrorCode != 0 {
		t.Fatalf("commit %d fetch %d: %+v", v, f, p)
	}
	for _, p := range ps[1:] {
		if p.Offset != -1 || p.LeaderEpoch != -1 || *p.Metadata != "" || p.ErrorCode != 0 {
			t.Fatalf("commit %d fetch %d: %+v", v, f, p)
		}
	}
}

func checkAll(t *testing.T, resp *kmsg.OffsetFetchResponse, id [16]byte, v, f int16) {
	t.Helper()
	if f < 8 {
		if len(resp.Topics) != 1 || resp.Topics[0].Topic != "t1" || len(resp.Topics[0].Partitions) != 1 ||
			resp.Topics[0].Partitions[0].Offset != 100+int64(v) {
			t.Fatalf("commit %d fetch %d: %+v", v, f, resp.Topics)
		}
		return
	}
	ts := resp.Groups[0].Topics
	if len(ts) != 1 || len(ts[0].Partitions) != 1 || ts[0].Partitions[0].Offset != 100+int64(v) ||
		f < 10 && ts[0].Topic != "t1" || f >= 10 && ts[0].TopicID != id {
		t.Fatalf("commit %d fetch %d: %+v", v, f, ts)
	}
}

func TestCommitTable(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 1, nil)
	j := stable(t, c, "g")
	long := make([]byte, 4097)
	for i := range long {
		long[i] = 'x'
	}
	member := func(v int16, generation int32) *kmsg.OffsetCommitRequest {
		r := commitRequest(v, "g", id, 7)
		r.MemberID, r.Generation = j.MemberID, generation
		return r
	}
	edit := func(r *kmsg.OffsetCommitRequest, fn func(*kmsg.OffsetCommitRequest)) *kmsg.OffsetCommitRequest {
		fn(r)
		return r
	}
	for _, k := range []struct {
		name string
		r    *kmsg.OffsetCommitRequest
		code int16
	}{
		{"a member", member(8, 1), 0},
		{"empty group id", commitRequest(8, "", id, 1), 0},
		{"nobody, while there are members", commitRequest(8, "g", id, 1), kerr.UnknownMemberID.Code},
		{"old generation", member(8, 0), kerr.IllegalGeneration.Code},
		{"old generation, consumers know epochs", member(9, 0), kerr.IllegalGeneration.Code},
		{"missing group, generation given", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) { r.Group = "no" }),
			kerr.IllegalGeneration.Code},
		{"missing group, generation given, 9", edit(member(9, 1), func(r *kmsg.OffsetCommitRequest) { r.Group = "no" }),
			kerr.GroupIDNotFound.Code},
		{"other member", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) { r.MemberID = "x" }),
			kerr.UnknownMemberID.Code},
		{"unknown topic", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Topic = "no" }),
			kerr.UnknownTopicOrPartition.Code},
		{"unknown partition", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Partition = 5
		}), kerr.UnknownTopicOrPartition.Code},
		{"unknown topic id", edit(member(10, 1), func(r *kmsg.OffsetCommitRequest) { r.Topics[0].TopicID[3]++ }),
			kerr.UnknownTopicID.Code},
		{"long metadata", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Metadata = text(string(long))
		}), kerr.OffsetMetadataTooLarge.Code},
		{"null metadata", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Metadata = nil
		}), 0},
		{"negative offset", edit(member(8, 1), func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Offset = -5
		}), 0},
	} {
		if code := commitCode(t, c, k.r); code != k.code {
			t.Errorf("%s: code %d, want %d", k.name, code, k.code)
		}
	}
	if p := position(t, c, "g", "t1", 0, true); p.Offset != -5 {
		t.Fatalf("%+v", p)
	}
}

func TestFetchOfWhatIsUnknown(t *testing.T) {
	n, c := grouped(t, nil)
	n.topic("t1", 1, nil)
	for _, topic := range []string{"t1", "no"} {
		if p := position(t, c, "nobody", topic, 0, false); p.Offset != -1 || p.ErrorCode != 0 || *p.Metadata != "" ||
			p.LeaderEpoch != -1 {
			t.Fatalf("%+v", p)
		}
	}
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 10
	r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1,
		Topics: []kmsg.OffsetFetchRequestGroupTopic{{TopicID: [16]byte{9}, Partitions: []int32{0}}}}}
	g := call[*kmsg.OffsetFetchResponse](t, c, r).Groups[0]
	if p := g.Topics[0].Partitions[0]; g.ErrorCode != 0 || p.ErrorCode != kerr.UnknownTopicID.Code || p.Offset != -1 ||
		g.Topics[0].TopicID != [16]byte{9} {
		t.Fatalf("%+v", g)
	}
}

// TestFetchWithoutACoordinator: before the internal topics exist the coordinator is loading.
func TestFetchWithoutACoordinator(t *testing.T) {
	n := start(t, nil)
	c := n.dial()
	for v := int16(1); v <= 8; v++ {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version, r.Group = v, "g"
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t1", Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1}}
		resp := call[*kmsg.OffsetFetchResponse](t, c, r)
		code := resp.ErrorCode
		switch {
		case v < 2:
			code = resp.Topics[0].Partitions[0].ErrorCode
		case v >= 8:
			code = resp.Groups[0].ErrorCode
		}
		if code != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("version %d: code %d", v, code)
		}
	}
	if code := beat(t, c, 4, "g", &kmsg.JoinGroupResponse{}); code != 0 {
		t.Fatalf("heartbeat: code %d", code)
	}
}

func TestOffsetDelete(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 2, nil)
	n.topic("t2", 1, nil)
	remove := func(group string) *kmsg.OffsetDeleteResponse {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		r.Topics = []kmsg.OffsetDeleteRequestTopic{
			{Topic: "no", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
			{Topic: "t1", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 7}, {Partition: 0}}},
			{Topic: "t2", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
		return call[*kmsg.OffsetDeleteResponse](t, c, r)
	}
	if r := remove("g"); r.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Fatalf("%+v", r)
	}
	j := stable(t, c, "g") // subscribes t1
	r := commitRequest(8, "g", id, 5)
	r.MemberID, r.Generation = j.MemberID, j.Generation
	commitCode(t, c, r)
	got := remove("g")
	if got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code ||
		got.Topics[1].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code ||
		got.Topics[1].Partitions[1].ErrorCode != kerr.GroupSubscribedToTopic.Code ||
		got.Topics[2].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	commitCode(t, c, commitRequest(8, "simple", id, 5))
	if got = remove("simple"); got.ErrorCode != 0 || got.Topics[1].Partitions[1].ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if p := position(t, c, "simple", "t1", 0, false); p.Offset != -1 {
		t.Fatalf("%+v", p)
	}
}

// TestDeletedTopicTakesItsOffsetsAlong, so that a topic of the same name begins without them.
func TestDeletedTopicTakesItsOffsetsAlong(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 1, nil)
	commitCode(t, c, commitRequest(8, "g", id, 5))
	d := kmsg.NewPtrDeleteTopicsRequest()
	d.Version, d.TopicNames, d.TimeoutMillis = 3, []string{"t1"}, 5000
	if resp := call[*kmsg.DeleteTopicsResponse](t, c, d); resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	if again := n.topic("t1", 1, nil); again == id {
		t.Fatal("the same id")
	}
	if p := position(t, c, "g", "t1", 0, false); p.Offset != -1 {
		t.Fatalf("%+v", p)
	}
	if code := commitCode(t, c, commitRequest(10, "g", id, 5)); code != kerr.UnknownTopicID.Code {
		t.Fatalf("commit by the old id: code %d", code)
	}
}

// TestNamedTwice: what a request names again is not described again: an answer is no thousand times as large as what
// asks for it.
func TestNamedTwice(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 2, nil)
	if code := commitCode(t, c, commitRequest(8, "g", id, 7)); code != 0 {
		t.Fatal(code)
	}
	f := kmsg.NewPtrOffsetFetchRequest()
	f.Version = 8
	twice := []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t1", Partitions: []int32{0, 0, 1}}, {Topic: "t1",
		Partitions: []int32{0}}}
	f.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: twice}, {Group: "g",
		MemberEpoch: -1}}
	got := call[*kmsg.OffsetFetchResponse](t, c, f).Groups
	told := 0
	for _, topic := range got[0].Topics {
		told += len(topic.Partitions)
	}
	if len(got) != 2 || told != 2 || got[1].ErrorCode != 42 || len(got[1].Topics) != 0 {
		t.Errorf("OffsetFetch: %+v", got)
	}
	d := &kmsg.DescribeGroupsRequest{Version: 5, Groups: []string{"g", "g", "h"}}
	for i, want := range []int16{0, 42, 0} {
		if g := call[*kmsg.DescribeGroupsResponse](t, c, d).Groups[i]; g.ErrorCode != want {
			t.Errorf("DescribeGroups %d: code %d, want %d", i, g.ErrorCode, want)
		}
	}
	g := &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"h", "h"}}
	if got := call[*kmsg.ConsumerGroupDescribeResponse](t, c, g).Groups[1]; got.ErrorCode != 42 {
		t.Errorf("ConsumerGroupDescribe: code %d", got.ErrorCode)
	}
	x := &kmsg.DescribeTransactionsRequest{TransactionalIDs: []string{"x", "x"}}
	if got := call[*kmsg.DescribeTransactionsResponse](t, c, x).TransactionStates[1]; got.ErrorCode != 42 {
		t.Errorf("DescribeTransactions: code %d", got.ErrorCode)
	}
}
