package wire

// Keys of the requests this package knows, by Kafka's numbers.
const (
	KeyProduce                     int16 = 0
	KeyFetch                       int16 = 1
	KeyListOffsets                 int16 = 2
	KeyMetadata                    int16 = 3
	KeyOffsetCommit                int16 = 8
	KeyOffsetFetch                 int16 = 9
	KeyFindCoordinator             int16 = 10
	KeyJoinGroup                   int16 = 11
	KeyHeartbeat                   int16 = 12
	KeyLeaveGroup                  int16 = 13
	KeySyncGroup                   int16 = 14
	KeyDescribeGroups              int16 = 15
	KeyListGroups                  int16 = 16
	KeySASLHandshake               int16 = 17
	KeyApiVersions                 int16 = 18
	KeyCreateTopics                int16 = 19
	KeyDeleteTopics                int16 = 20
	KeyDeleteRecords               int16 = 21
	KeyInitProducerID              int16 = 22
	KeyOffsetForLeaderEpoch        int16 = 23
	KeyAddPartitionsToTxn          int16 = 24
	KeyAddOffsetsToTxn             int16 = 25
	KeyEndTxn                      int16 = 26
	KeyWriteTxnMarkers             int16 = 27
	KeyTxnOffsetCommit             int16 = 28
	KeyDescribeACLs                int16 = 29
	KeyCreateACLs                  int16 = 30
	KeyDeleteACLs                  int16 = 31
	KeyDescribeConfigs             int16 = 32
	KeyAlterConfigs                int16 = 33
	KeyAlterReplicaLogDirs         int16 = 34
	KeyDescribeLogDirs             int16 = 35
	KeySASLAuthenticate            int16 = 36
	KeyCreatePartitions            int16 = 37
	KeyDeleteGroups                int16 = 42
	KeyElectLeaders                int16 = 43
	KeyIncrementalAlterConfigs     int16 = 44
	KeyAlterPartitionReassignments int16 = 45
	KeyListPartitionReassignments  int16 = 46
	KeyOffsetDelete                int16 = 47
	KeyDescribeClientQuotas        int16 = 48
	KeyAlterClientQuotas           int16 = 49
	KeyDescribeUserScram           int16 = 50
	KeyAlterUserScram              int16 = 51
	KeyDescribeQuorum              int16 = 55
	KeyUpdateFeatures              int16 = 57
	KeyDescribeCluster             int16 = 60
	KeyDescribeProducers           int16 = 61
	KeyDescribeTransactions        int16 = 65
	KeyListTransactions            int16 = 66
	KeyConsumerGroupHeartbeat      int16 = 68
	KeyConsumerGroupDescribe       int16 = 69
	KeyListConfigResources         int16 = 74
	KeyDescribeTopicPartitions     int16 = 75
)

// Range is what ApiVersions tells about one key; both ends are inclusive.
type Range struct{ Key, Min, Max int16 }

// api is one row of the table: the range advertised, the first flexible version, and the layout of the request.
type api struct {
	Range
	flexible int16
	large    bool // may use the whole of Limits.Other: the request lists topics, groups, members or offsets
	fields   []field
}

// produceMin is the lowest Produce version served. 0 to 2 are advertised because librdkafka before 2.11.1 turns
// compression off unless they are (KAFKA-18659); a request that really bears one of them closes the connection.
const produceMin = 3

// flexibleNever is the first flexible version of a key that has none.
const flexibleNever = 1 << 14

// apis is the one table: what is advertised, what is parsed and how. It is ordered by key.
var apis = []api{
	{Range{KeyProduce, 0, 13}, 9, true, nil},
	{Range{KeyFetch, 4, 18}, 12, true, fetchFields},
	{Range{KeyListOffsets, 1, 11}, 6, true, listOffsetsFields},
	{Range{KeyMetadata, 0, 13}, 9, true, metadataFields},
	{Range{KeyOffsetCommit, 2, 10}, 8, true, offsetCommitFields},
	{Range{KeyOffsetFetch, 1, 10}, 6, true, offsetFetchFields},
	{Range{KeyFindCoordinator, 0, 6}, 3, false, findCoordinatorFields},
	{Range{KeyJoinGroup, 0, 9}, 6, true, joinGroupFields},
	{Range{KeyHeartbeat, 0, 4}, 4, false, heartbeatFields},
	{Range{KeyLeaveGroup, 0, 5}, 4, true, leaveGroupFields},
	{Range{KeySyncGroup, 0, 5}, 4, true, syncGroupFields},
	{Range{KeyDescribeGroups, 0, 6}, 5, true, describeGroupsFields},
	{Range{KeyListGroups, 0, 5}, 3, false, listGroupsFields},
	{Range{KeySASLHandshake, 0, 1}, flexibleNever, false, saslHandshakeFields},
	{Range{KeyApiVersions, 0, 5}, 3, false, apiVersionsFields},
	{Range{KeyCreateTopics, 2, 7}, 5, true, createTopicsFields},
	{Range{KeyDeleteTopics, 1, 6}, 4, true, deleteTopicsFields},
	{Range{KeyDeleteRecords, 0, 2}, 2, true, deleteRecordsFields},
	{Range{KeyInitProducerID, 0, 5}, 2, false, initProducerIDFields},
	{Range{KeyOffsetForLeaderEpoch, 2, 4}, 4, true, offsetForLeaderEpochFields},
	{Range{KeyAddPartitionsToTxn, 0, 5}, 3, true, addPartitionsToTxnFields},
	{Range{KeyAddOffsetsToTxn, 0, 4}, 3, false, addOffsetsToTxnFields},
	{Range{KeyEndTxn, 0, 5}, 3, false, endTxnFields},
	{Range{KeyWriteTxnMarkers, 1, 2}, 1, true, writeTxnMarkersFields},
	{Range{KeyTxnOffsetCommit, 0, 6}, 3, true, txnOffsetCommitFields},
	{Range{KeyDescribeACLs, 1, 3}, 2, false, describeACLsFields},
	{Range{KeyCreateACLs, 1, 3}, 2, false, createACLsFields},
	{Range{KeyDeleteACLs, 1, 3}, 2, false, deleteACLsFields},
	{Range{KeyDescribeConfigs, 1, 4}, 4, true, describeConfigsFields},
	{Range{KeyAlterConfigs, 0, 2}, 2, false, alterConfigsFields},
	{Range{KeyAlterReplicaLogDirs, 1, 2}, 2, true, alterReplicaLogDirsFields},
	{Range{KeyDescribeLogDirs, 1, 5}, 2, true, describeLogDirsFields},
	{Range{KeySASLAuthenticate, 0, 2}, 2, false, saslAuthenticateFields},
	{Range{KeyCreatePartitions, 0, 3}, 2, true, createPartitionsFields},
	{Range{KeyDeleteGroups, 0, 3}, 2, true, deleteGroupsFields},
	{Range{KeyElectLeaders, 0, 2}, 2, true, electLeadersFields},
	{Range{KeyIncrementalAlterConfigs, 0, 1}, 1, false, incrementalAlterConfigsFields},
	{Range{KeyAlterPartitionReassignments, 0, 1}, 0, true, alterPartitionReassignmentsFields},
	{Range{KeyListPartitionReassignments, 0, 0}, 0, true, listPartitionReassignmentsFields},
	{Range{KeyOffsetDelete, 0, 0}, 1, true, offsetDeleteFields},
	{Range{KeyDescribeClientQuotas, 0, 1}, 1, false, describeClientQuotasFields},
	{Range{KeyAlterClientQuotas, 0, 1}, 1, false, alterClientQuotasFields},
	{Range{KeyDescribeUserScram, 0, 0}, 0, false, describeUserScramFields},
	{Range{KeyAlterUserScram, 0, 0}, 0, false, alterUserScramFields},
	{Range{KeyDescribeQuorum, 0, 2}, 0, true, describeQuorumFields},
	{Range{KeyUpdateFeatures, 0, 2}, 0, false, updateFeaturesFields},
	{Range{KeyDescribeCluster, 0, 2}, 0, false, describeClusterFields},
	{Range{KeyDescribeProducers, 0, 0}, 0, true, describeProducersFields},
	{Range{KeyDescribeTransactions, 0, 0}, 0, false, describeTransactionsFields},
	{Range{KeyListTransactions, 0, 2}, 0, false, listTransactionsFields},
	{Range{KeyConsumerGroupHeartbeat, 0, 1}, 0, true, consumerGroupHeartbeatFields},
	{Range{KeyConsumerGroupDescribe, 0, 1}, 0, true, consumerGroupDescribeFields},
	{Range{KeyListConfigResources, 0, 1}, 0, false, listConfigResourcesFields},
	{Range{KeyDescribeTopicPartitions, 0, 0}, 0, true, describeTopicPartitionsFields},
}

// byKey finds a row in one step.
var byKey = func() (t [keyMax + 1]*api) {
	for i := range apis {
		t[apis[i].Key] = &apis[i]
	}
	return t
}()

const keyMax = 75

func lookup(key int16) *api {
	if key < 0 || key > keyMax {
		return nil
	}
	return byKey[key]
}

// Versions is the one table that ApiVersions answers from and the router checks against, ordered by key. The slice is
// the caller's.
func Versions() []Range {
	out := make([]Range, len(apis))
	for i := range apis {
		out[i] = apis[i].Range
	}
	return out
}

// Advertised returns the range of one key; ok is false for a key that is not served.
func Advertised(key int16) (r Range, ok bool) {
	a := lookup(key)
	if a == nil {
		return Range{Key: key, Min: -1, Max: -1}, false
	}
	return a.Range, true
}

// Served reports whether a request of this key and version is parsed: advertised, and not Produce 0 to 2.
func Served(key, version int16) bool {
	a := lookup(key)
	return a != nil && version >= a.Min && version <= a.Max && (key != KeyProduce || version >= produceMin)
}

// Flexible reports whether this version uses compact lengths and tagged fields (KIP-482), and with them request header
// v2 and, but for ApiVersions, response header v1.
func Flexible(key, version int16) bool {
	a := lookup(key)
	return a != nil && version >= a.flexible
}
