package broker

import (
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one decoded request on its connection. It belongs to the goroutine that executes it.
type request struct {
	hdr  wire.Header
	msg  kmsg.Request
	conn *conn

	slot     *slot
	deferred bool // the answer comes by the function that later gave
	amends   []func(kmsg.Response)
}

// later says that the answer comes by another way than the handler's return value, perhaps minutes later: the handler
// then returns nil, and whoever has the answer calls the function, once, on any goroutine; it does not block. Until
// then the next request of the connection waits, but no goroutine does, so that a peer which goes away is noticed.
func (r *request) later() func(kmsg.Response) {
	r.deferred = true
	c, s := r.conn, r.slot
	return func(resp kmsg.Response) {
		resp = r.amended(resp)
		s.msg, s.hangup = resp, resp == nil
		c.complete(s)
		c.signal()
	}
}

// handler answers one request. It may block (a topic is created durably): only its own connection waits. Handlers of
// one connection never overlap; those of different connections do. A nil answer closes the connection, unless later was
// called.
type handler func(s *Server, r *request) kmsg.Response

// handlers lists every advertised key but Produce and Fetch, which have paths of their own. A test holds it against
// wire.Versions.
var handlers = map[int16]handler{
	2:  (*Server).handleListOffsets,
	3:  (*Server).handleMetadata,
	8:  (*Server).handleOffsetCommit,
	9:  (*Server).handleOffsetFetch,
	10: (*Server).handleFindCoordinator,
	11: (*Server).handleJoinGroup,
	12: (*Server).handleHeartbeat,
	13: (*Server).handleLeaveGroup,
	14: (*Server).handleSyncGroup,
	15: (*Server).handleDescribeGroups,
	16: (*Server).handleListGroups,
	17: (*Server).handleSASLHandshake,
	18: (*Server).handleApiVersions,
	19: (*Server).handleCreateTopics,
	20: (*Server).handleDeleteTopics,
	21: (*Server).handleDeleteRecords,
	22: (*Server).handleInitProducerID,
	23: (*Server).handleOffsetForLeaderEpoch,
	24: (*Server).handleAddPartitionsToTxn,
	25: (*Server).handleAddOffsetsToTxn,
	26: (*Server).handleEndTxn,
	27: (*Server).handleWriteTxnMarkers,
	28: (*Server).handleTxnOffsetCommit,
	29: (*Server).handleDescribeACLs,
	30: (*Server).handleCreateACLs,
	31: (*Server).handleDeleteACLs,
	32: (*Server).handleDescribeConfigs,
	33: (*Server).handleAlterConfigs,
	34: (*Server).handleAlterReplicaLogDirs,
	35: (*Server).handleDescribeLogDirs,
	36: (*Server).handleSASLAuthenticate,
	37: (*Server).handleCreatePartitions,
	42: (*Server).handleDeleteGroups,
	43: (*Server).handleElectLeaders,
	44: (*Server).handleIncrementalAlterConfigs,
	45: (*Server).handleAlterPartitionReassignments,
	46: (*Server).handleListPartitionReassignments,
	47: (*Server).handleOffsetDelete,
	48: (*Server).handleDescribeClientQuotas,
	49: (*Server).handleAlterClientQuotas,
	50: (*Server).handleDescribeUserScram,
	51: (*Server).handleAlterUserScram,
	55: (*Server).handleDescribeQuorum,
	57: (*Server).handleUpdateFeatures,
	60: (*Server).handleDescribeCluster,
	61: (*Server).handleDescribeProducers,
	65: (*Server).handleDescribeTransactions,
	66: (*Server).handleListTransactions,
	68: (*Server).handleConsumerGroupHeartbeat,
	69: (*Server).handleConsumerGroupDescribe,
	74: (*Server).handleListConfigResources,
	75: (*Server).handleDescribeTopicPartitions,
}
