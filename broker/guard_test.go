package broker

import (
	"reflect"
	"slices"
	"testing"

	"sekali/auth"
	"sekali/batch"
	"sekali/internal/rawclient"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGuards: every key but those of a login has a guard, or asks for itself.
func TestGuards(t *testing.T) {
	for key := range handlers {
		if (guards[key] == nil) != unguarded[key] {
			t.Errorf("%s: guard %v, unguarded %v", kmsg.NameForKey(key), guards[key] != nil, unguarded[key])
		}
	}
	for key := range guards {
		if handlers[key] == nil {
			t.Errorf("a guard of key %d, which has no handler", key)
		}
	}
}

// codesIn collects every error code of an answer.
func codesIn(v reflect.Value) (codes []int16) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return codesIn(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			codes = append(codes, codesIn(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Name == "ErrorCode":
				codes = append(codes, int16(v.Field(i).Int()))
			case f.IsExported() && f.Name != "UnknownTags":
				codes = append(codes, codesIn(v.Field(i))...)
			}
		}
	}
	return codes
}

// need is one rule.
type need struct {
	op   auth.Operation
	kind auth.ResourceType
	name string
}

// guardCase is one request, what refuses it, and the rules that let it pass, in the order in which they are found
// missing: with each the code is the next.
type guardCase struct {
	r     kmsg.Request
	needs []need
	codes []int16
}

func onTopic(op auth.Operation) need { return need{op, auth.Topic, "t"} }
func onGroup(op auth.Operation) need { return need{op, auth.Group, "g"} }
func onTxn(op auth.Operation) need   { return need{op, auth.TransactionalID, "x"} }
func onAll(op auth.Operation) need   { return need{op, auth.Cluster, auth.ClusterName} }

// guardCases has a row for every key and for the versions that differ.
func guardCases(id [16]byte) []guardCase {
	one := []int32{0}
	v := func(r kmsg.Request, version int16) kmsg.Request {
		r.SetVersion(version)
		return r
	}
	records := rawclient.Batch(0, -1, -1, -1, 1, 10)
	txnRecords := rawclient.Batch(batch.AttrTransactional, 1, 0, 0, 1, 10)
	txnProduce := rawclient.Produce(11, "t", 0, txnRecords)
	txnProduce.TransactionID = text("x")
	fetch13 := rawclient.Fetch(13, "t", 0, 0)
	fetch13.Topics[0].TopicID = id
	commit := func(version int16) kmsg.Request {
		r := commitRequest(version, "g", id, 1)
		r.Topics[0].Topic = "t"
		return r
	}
	txnCommit := func(version int16) kmsg.Request {
		return v(&kmsg.TxnOffsetCommitRequest{TransactionalID: "x", Group: "g", ProducerID: 1, Generation: -1,
			Topics: []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", TopicID: id,
				Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{LeaderEpoch: -1}}}}}, version)
	}
	fetchOffsets := func(version int16) kmsg.Request {
		r := &kmsg.OffsetFetchRequest{Group: "g", Topics: []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: one}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1,
			Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: one}}}}
		return v(r, version)
	}
	coordinator := func(version int16, kind int8, key string) kmsg.Request {
		return v(&kmsg.FindCoordinatorRequest{CoordinatorType: kind, CoordinatorKey: key,
			CoordinatorKeys: []string{key}}, version)
	}
	configs := kmsg.ConfigResourceTypeTopic
	return []guardCase{
		{rawclient.Produce(9, "t", 0, records), []need{onTopic(auth.Write)}, []int16{29}},
		{txnProduce, []need{onTxn(auth.Write), onTopic(auth.Write)}, []int16{53, 29}},
		{rawclient.Fetch(11, "t", 0, 0), []need{onTopic(auth.Read)}, []int16{29}},
		{fetch13, []need{onTopic(auth.Read)}, []int16{29}},
		{endOf("t"), []need{onTopic(auth.Describe)}, []int16{29}},
		{v(&kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: text("t")}}}, 9),
			[]need{onTopic(auth.Describe)}, []int16{29}},
		{v(&kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{TopicID: id}}}, 12),
			[]need{onTopic(auth.Describe)}, []int16{29}},
		{v(&kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{{Topic: text("t")}}}, 0),
			[]need{onTopic(auth.Describe)}, []int16{29}},
		{commit(2), []need{onGroup(auth.Read), onTopic(auth.Read)}, []int16{30, 29}},
		{commit(10), []need{onGroup(auth.Read), onTopic(auth.Read)}, []int16{30, 29}},
		{fetchOffsets(1), []need{onGroup(auth.Describe), onTopic(auth.Describe)}, []int16{30, 29}},
		{fetchOffsets(7), []need{onGroup(auth.Describe), onTopic(auth.Describe)}, []int16{30, 29}},
		{fetchOffsets(8), []need{onGroup(auth.Describe), onTopic(auth.Describe)}, []int16{30, 29}},
		{fetchOffsets(10), []need{onGroup(auth.Describe), onTopic(auth.Describe)}, []int16{30, 29}},
		{coordinator(3, 0, "g"), []need{onGroup(auth.Describe)}, []int16{30}},
		{coordinator(4, 0, "g"), []need{onGroup(auth.Describe)}, []int16{30}},
		{coordinator(3, 1, "x"), []need{onTxn(auth.Describe)}, []int16{53}},
		{coordinator(6, 1, "x"), []need{onTxn(auth.Describe)}, []int16{53}},
		{v(&kmsg.JoinGroupRequest{Group: "g", SessionTimeoutMillis: 1}, 5), []need{onGroup(auth.Read)}, []int16{30}},
		{v(&kmsg.HeartbeatRequest{Group: "g"}, 3), []need{onGroup(auth.Read)}, []int16{30}},
		{v(&kmsg.LeaveGroupRequest{Group: "g"}, 3), []need{onGroup(auth.Read)}, []int16{30}},
		{v(&kmsg.SyncGroupRequest{Group: "g"}, 3), []need{onGroup(auth.Read)}, []int16{30}},
		{v(&kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, 5), []need{onGroup(auth.Describe)}, []int16{30}},
		{v(&kmsg.DeleteGroupsRequest{Groups: []string{"g"}}, 2), []need{onGroup(auth.Delete)}, []int16{30}},
		{v(&kmsg.OffsetDeleteRequest{Group: "g", Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: "t",
			Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}}, 0), []need{onGroup(auth.Delete)}, []int16{30}},
		{v(&kmsg.ConsumerGroupHeartbeatRequest{Group: "g", MemberID: "m", MemberEpoch: 0, RebalanceTimeoutMillis: 1000,
			SubscribedTopicNames: []string{"t"}, Topics: []kmsg.ConsumerGroupHeartbeatRequestTopic{}}, 0),
			[]need{onGroup(auth.Read), onTopic(auth.Describe)}, []int16{30, 29}},
		{v(&kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}}, 0), // its member has to do with the topic
			[]need{onGroup(auth.Describe), onTopic(auth.Describe)}, []int16{30, 29}},

		{v(&kmsg.InitProducerIDRequest{TransactionalID: text("x"), TransactionTimeoutMillis: 1000, ProducerID: -1,
			ProducerEpoch: -1}, 4), []need{onTxn(auth.Write)}, []int16{53}},
		{v(&kmsg.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1}, 4), []need{onAll(auth.IdempotentWrite)},
			[]int16{31}},
		{v(&kmsg.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1}, 4), []need{onTopic(auth.Write)},
			[]int16{31}},
		{v(&kmsg.AddPartitionsToTxnRequest{TransactionalID: "x", ProducerID: 1,
			Topics: []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: one}}}, 3),
			[]need{onTxn(auth.Write), onTopic(auth.Write)}, []int16{53, 29}},
		{v(&kmsg.AddPartitionsToTxnRequest{}, 4), []need{onAll(auth.ClusterAction)}, []int16{31}},
		{v(&kmsg.AddOffsetsToTxnRequest{TransactionalID: "x", Group: "g"}, 3),
			[]need{onTxn(auth.Write), onGroup(auth.Read)}, []int16{53, 30}},
		{v(&kmsg.EndTxnRequest{TransactionalID: "x"}, 3), []need{onTxn(auth.Write)}, []int16{53}},
		{v(&kmsg.WriteTxnMarkersRequest{Markers: []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 1,
			Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: one}}}}}, 1),
			[]need{onAll(auth.Alter)}, []int16{31}},
		{txnCommit(3), []need{onTxn(auth.Write), onGroup(auth.Read), onTopic(auth.Read)}, []int16{53, 30, 29}},
		{txnCommit(6), []need{onTxn(auth.Write), onGroup(auth.Read), onTopic(auth.Read)}, []int16{53, 30, 29}},
		{v(&kmsg.DescribeTransactionsRequest{TransactionalIDs: []string{"x"}}, 0), []need{onTxn(auth.Describe)},
			[]int16{53}},

		{v(&kmsg.CreateTopicsRequest{ValidateOnly: true, Topics: []kmsg.CreateTopicsRequestTopic{{Topic: "new",
			NumPartitions:     1,
			ReplicationFactor: 1}}}, 5), []need{{auth.Create, auth.Topic, "new"}}, []int16{29}},
		{v(&kmsg.CreateTopicsRequest{ValidateOnly: true, Topics: []kmsg.CreateTopicsRequestTopic{{Topic: "new",
			NumPartitions:     1,
			ReplicationFactor: 1}}}, 5), []need{onAll(auth.Create)}, []int16{29}},
		{v(&kmsg.DeleteTopicsRequest{TopicNames: []string{"nope"}}, 5), []need{{auth.Delete, auth.Topic, "nope"}},
			[]int16{29}},
		{v(&kmsg.DeleteTopicsRequest{Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: text("nope")}}}, 6),
			[]need{{auth.Delete, auth.Topic, "nope"}}, []int16{29}},
		{v(&kmsg.DeleteRecordsRequest{Topics: []kmsg.DeleteRecordsRequestTopic{{Topic: "t",
			Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{}}}}}, 2), []need{onTopic(auth.Delete)},
			[]int16{29}},
		{v(&kmsg.OffsetForLeaderEpochRequest{ReplicaID: -2, Topics: []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t",
			Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}}, 4),
			[]need{onTopic(auth.Describe)}, []int16{29}},
		{v(&kmsg.CreatePartitionsRequest{ValidateOnly: true, Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: "t",
			Count: 2}}}, 3),
			[]need{onTopic(auth.Alter)}, []int16{29}},
		{v(&kmsg.DescribeProducersRequest{Topics: []kmsg.DescribeProducersRequestTopic{{Topic: "t",
			Partitions: one}}}, 0),
			[]need{onTopic(auth.Read)}, []int16{29}},
		{v(&kmsg.DescribeTopicPartitionsRequest{Topics: []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}},
			ResponsePartitionLimit: 10}, 0), []need{onTopic(auth.Describe)}, []int16{29}},
		{v(&kmsg.DescribeConfigsRequest{Resources: []kmsg.DescribeConfigsRequestResource{{ResourceType: configs,
			ResourceName: "t"}}}, 4),
			[]need{onTopic(auth.DescribeConfigs)}, []int16{29}},
		{v(&kmsg.DescribeConfigsRequest{Resources: []kmsg.DescribeConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeBroker}}}, 4), []need{onAll(auth.DescribeConfigs)}, []int16{31}},
		{v(&kmsg.AlterConfigsRequest{Resources: []kmsg.AlterConfigsRequestResource{{ResourceType: configs,
			ResourceName: "t"}}}, 2),
			[]need{onTopic(auth.AlterConfigs)}, []int16{29}},
		{v(&kmsg.IncrementalAlterConfigsRequest{Resources: []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeBroker}}}, 1), []need{onAll(auth.AlterConfigs)}, []int16{31}},

		{v(&kmsg.DescribeACLsRequest{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}, 3),
			[]need{onAll(auth.Describe)}, []int16{31}},
		{v(&kmsg.CreateACLsRequest{Creations: []kmsg.CreateACLsRequestCreation{{ResourceType: 2, ResourceName: "t",
			ResourcePatternType: 3, Principal: "User:z", Host: "*", Operation: 3, PermissionType: 3}}}, 3),
			[]need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.DeleteACLsRequest{Filters: []kmsg.DeleteACLsRequestFilter{{ResourceType: 6, ResourcePatternType: 1,
			Operation:      1,
			PermissionType: 1}}}, 3), []need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.AlterReplicaLogDirsRequest{Dirs: []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/data",
			Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: one}}}}}, 2),
			[]need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.DescribeLogDirsRequest{}, 4), []need{onAll(auth.Describe)}, []int16{31}},
		{v(&kmsg.ElectLeadersRequest{Topics: []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: one}}}, 2),
			[]need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.AlterPartitionAssignmentsRequest{}, 0), []need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.ListPartitionReassignmentsRequest{}, 0), []need{onAll(auth.Describe)}, []int16{31}},
		{v(&kmsg.DescribeClientQuotasRequest{}, 1), []need{onAll(auth.DescribeConfigs)}, []int16{31}},
		{v(&kmsg.AlterClientQuotasRequest{Entries: []kmsg.AlterClientQuotasRequestEntry{{}}}, 1),
			[]need{onAll(auth.AlterConfigs)}, []int16{31}},
		{v(&kmsg.DescribeUserSCRAMCredentialsRequest{}, 0), []need{onAll(auth.Describe)}, []int16{31}},
		{v(&kmsg.AlterUserSCRAMCredentialsRequest{
			Deletions: []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "z", Mechanism: 1}}}, 0),
			[]need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.DescribeQuorumRequest{}, 2), []need{onAll(auth.Describe)}, []int16{31}},
		{v(&kmsg.UpdateFeaturesRequest{ValidateOnly: true}, 2), []need{onAll(auth.Alter)}, []int16{31}},
		{v(&kmsg.ListConfigResourcesRequest{}, 1), []need{onAll(auth.DescribeConfigs)}, []int16{31}},
	}
}

// TestEveryRequestIsGuarded: each request, in the versions that differ, is refused with Kafka's code until its sender
// has the rules that Kafka asks for, one after the other; a rule for somebody else does not help.
func TestEveryRequestIsGuarded(t *testing.T) {
	s := startSecure(t, nil)
	s.coordinate()
	id := s.topic("t", 1, nil)
	all := auth.Filter{Type: auth.AnyResource, Pattern: auth.AnyPattern, Operation: auth.AnyOperation,
		Permission: auth.AnyPermission}
	denials := []int16{29, 30, 31, 53}
	met := map[int16]bool{0: true, 1: true}
	for _, gc := range guardCases(id) {
		met[gc.r.Key()] = true
		if _, err := s.auth.Remove(t.Context(), []auth.Filter{all}); err != nil {
			t.Fatal(err)
		}
		c := s.loggedIn("alice")
		for i, want := range gc.codes {
			codes := codesIn(reflect.ValueOf(call[kmsg.Response](t, c, gc.r)))
			if !slices.Contains(codes, want) {
				t.Errorf("%s version %d with %d rules: codes %v, want %d", kmsg.NameForKey(gc.r.Key()),
					gc.r.GetVersion(), i,
					codes, want)
			}
			n := gc.needs[i]
			s.allow("bob", n.op, n.kind, n.name)
			s.allow("alice", n.op, n.kind, n.name)
		}
		codes := codesIn(reflect.ValueOf(call[kmsg.Response](t, c, gc.r)))
		if slices.ContainsFunc(codes, func(c int16) bool { return slices.Contains(denials, c) }) {
			t.Errorf("%s version %d with its rules: codes %v", kmsg.NameForKey(gc.r.Key()), gc.r.GetVersion(), codes)
		}
	}
	for key := range guards {
		switch key {
		case wire.KeyListGroups, wire.KeyListTransactions, wire.KeyDescribeCluster: // lists: TestListsAreFiltered
		default:
			if !met[key] {
				t.Errorf("%s is not tried", kmsg.NameForKey(key))
			}
		}
	}
}

// TestListsAreFiltered: what somebody may not see is not in what they list.
func TestListsAreFiltered(t *testing.T) {
	s := startSecure(t, nil)
	s.coordinate()
	for _, name := range []string{"mine", "theirs"} {
		id := s.topic(name, 1, nil)
		r := commitRequest(8, name, id, 1)
		r.Topics[0].Topic = name
		if code := commitCode(t, s.dial(), r); code != 0 {
			t.Fatal(code)
		}
		init := &kmsg.InitProducerIDRequest{TransactionalID: text(name), TransactionTimeoutMillis: 1000,
			ProducerID: -1, ProducerEpoch: -1}
		if resp := call[*kmsg.InitProducerIDResponse](t, s.dial(), at(init, 4)); resp.ErrorCode != 0 {
			t.Fatal(resp.ErrorCode)
		}
	}
	c := s.loggedIn("alice")
	look := func(c *rawclient.Client) (got []string) {
		m := call[*kmsg.MetadataResponse](t, c, at(&kmsg.MetadataRequest{IncludeTopicAuthorizedOperations: true}, 8))
		for _, topic := range m.Topics {
			if topic.IsInternal {
				continue
			}
			got = append(got, *topic.Topic)
			if want := int32(1 << auth.Describe); c != nil && topic.AuthorizedOperations&want == 0 {
				t.Errorf("operations on %s: %b", *topic.Topic, topic.AuthorizedOperations)
			}
		}
		p := call[*kmsg.DescribeTopicPartitionsResponse](t, c,
			at(&kmsg.DescribeTopicPartitionsRequest{ResponsePartitionLimit: 100}, 0))
		for _, topic := range p.Topics {
			if !topic.IsInternal {
				got = append(got, *topic.Topic)
			}
		}
		for _, g := range call[*kmsg.ListGroupsResponse](t, c, at(&kmsg.ListGroupsRequest{}, 4)).Groups {
			got = append(got, g.Group)
		}
		for _, x := range call[*kmsg.ListTransactionsResponse](t, c, at(&kmsg.ListTransactionsRequest{},
			0)).TransactionStates {
			got = append(got, x.TransactionalID)
		}
		f := &kmsg.OffsetFetchRequest{Groups: []kmsg.OffsetFetchRequestGroup{{Group: "mine", MemberEpoch: -1}}}
		for _, g := range call[*kmsg.OffsetFetchResponse](t, c, at(f, 8)).Groups {
			for _, topic := range g.Topics {
				got = append(got, topic.Topic)
			}
		}
		slices.Sort(got)
		return got
	}
	if got := look(c); len(got) != 0 {
		t.Errorf("without a rule: %v", got)
	}
	s.allow("alice", auth.Describe, auth.Topic, "mine")
	s.allow("alice", auth.Describe, auth.Group, "mine")
	s.allow("alice", auth.Describe, auth.TransactionalID, "mine")
	if got := look(c); !slices.Equal(got, []string{"mine", "mine", "mine", "mine", "mine"}) {
		t.Errorf("with rules for mine: %v", got)
	}
	d := call[*kmsg.DescribeClusterResponse](t, c,
		at(&kmsg.DescribeClusterRequest{IncludeClusterAuthorizedOperations: true}, 0))
	if d.ErrorCode != 0 || d.ClusterAuthorizedOperations != 0 || len(d.Brokers) != 1 {
		t.Errorf("the cluster: %+v", d)
	}
	s.allow("alice", auth.Describe, auth.Cluster, auth.ClusterName)
	d = call[*kmsg.DescribeClusterResponse](t, c,
		at(&kmsg.DescribeClusterRequest{IncludeClusterAuthorizedOperations: true}, 0))
	if d.ClusterAuthorizedOperations != 1<<auth.Describe {
		t.Errorf("the cluster with a rule: %b", d.ClusterAuthorizedOperations)
	}
}

// TestNothingIsWrittenWithoutARule: a request for two topics of which one may be written leaves the other as it is.
func TestNothingIsWrittenWithoutARule(t *testing.T) {
	s := startSecure(t, nil)
	s.topic("mine", 1, nil)
	s.topic("theirs", 1, nil)
	s.allow("alice", auth.Write, auth.Topic, "mine")
	r := rawclient.Produce(9, "mine", 0, rawclient.Batch(0, -1, -1, -1, 1, 10))
	r.Topics = append(r.Topics, rawclient.Produce(9, "theirs", 0, rawclient.Batch(0, -1, -1, -1, 1, 10)).Topics...)
	resp := call[*kmsg.ProduceResponse](t, s.loggedIn("alice"), r)
	if a, b := resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode; a != 0 || b != 29 {
		t.Errorf("codes %d and %d, want 0 and 29", a, b)
	}
	for topic, want := range map[string]int64{"mine": 1, "theirs": 0} {
		if got := call[*kmsg.ListOffsetsResponse](t, s.dial(),
			endOf(topic)).Topics[0].Partitions[0].Offset; got != want {
			t.Errorf("%s ends at %d, want %d", topic, got, want)
		}
	}
	// Nobody makes a topic by asking for it without the rule.
	m := &kmsg.MetadataRequest{AllowAutoTopicCreation: true, Topics: []kmsg.MetadataRequestTopic{{Topic: text("new")}}}
	s.allow("alice", auth.Describe, auth.Topic, "new")
	if code := call[*kmsg.MetadataResponse](t, s.loggedIn("alice"), at(m, 9)).Topics[0].ErrorCode; code != 29 {
		t.Errorf("a new topic: code %d, want 29", code)
	}
	if s.store.Catalog().ByName["new"] != nil {
		t.Error("the topic was made")
	}
	s.allow("alice", auth.Create, auth.Topic, "new")
	for i, want := range []int16{3, 0} { // made by the first, told by the second
		if code := call[*kmsg.MetadataResponse](t, s.loggedIn("alice"), at(m, 9)).Topics[0].ErrorCode; code != want {
			t.Errorf("a new topic with the rule, asked %d times: code %d, want %d", i+1, code, want)
		}
	}
}

// TestRulesOverTheWire: rules are added, found and removed; a bad one is refused by itself.
func TestRulesOverTheWire(t *testing.T) {
	s := startSecure(t, nil)
	c := s.dial()
	row := func(kind kmsg.ACLResourceType, name, principal string) kmsg.CreateACLsRequestCreation {
		return kmsg.CreateACLsRequestCreation{ResourceType: kind, ResourceName: name, ResourcePatternType: 3,
			Principal: principal, Host: "*", Operation: 3, PermissionType: 3}
	}
	for version := int16(1); version <= 3; version++ {
		made := call[*kmsg.CreateACLsResponse](t, c,
			at(&kmsg.CreateACLsRequest{Creations: []kmsg.CreateACLsRequestCreation{
				row(2, "t", "User:alice"), row(2, "", "User:alice"), row(4, "other", "User:alice"), row(2, "t", "alice"),
				row(3, "g", "User:alice")}}, version))
		for i, want := range []int16{0, 42, 42, 42, 0} {
			if r := made.Results[i]; r.ErrorCode != want || (r.ErrorMessage == nil) != (want == 0) {
				t.Errorf("version %d rule %d: %+v, want %d", version, i, r, want)
			}
		}
		found := call[*kmsg.DescribeACLsResponse](t, c, at(&kmsg.DescribeACLsRequest{ResourceType: 1,
			ResourcePatternType: 1,
			Operation:           1, PermissionType: 1}, version))
		if found.ErrorCode != 0 || len(found.Resources) != 2 || len(found.Resources[0].ACLs) != 1 {
			t.Errorf("version %d: found %+v", version, found)
		}
		gone := call[*kmsg.DeleteACLsResponse](t, c, at(&kmsg.DeleteACLsRequest{Filters: []kmsg.DeleteACLsRequestFilter{
			{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}, {}}}, version))
		if len(gone.Results) != 2 || len(gone.Results[0].MatchingACLs) != 2 || gone.Results[1].ErrorCode != 42 {
			t.Errorf("version %d: removed %+v", version, gone)
		}
	}
}
