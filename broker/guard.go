package broker

import (
	"sekali/auth"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Access control stands before the handlers: with an authorizer a guard looks at each request first. It refuses the
// request as a whole by giving the answer, or takes out of it what its sender may not touch and leaves to amend what to
// put into the answer about that. Handlers know nothing of it. Produce and Fetch, which have paths of their own, ask
// for themselves. The operations and codes are those of Kafka's KafkaApis and ControllerApis.

// guard returns the answer that refuses a request, nil if its handler may go on with what is left of it.
type guard func(g *guarded) kmsg.Response

// guarded is one request before its guard.
type guarded struct {
	*request
	s   *Server
	who auth.Principal
}

// guards has a row for every key a handler has, but those that anybody may send.
var guards = map[int16]guard{
	2:  guardListOffsets,
	3:  guardMetadata,
	8:  guardOffsetCommit,
	9:  guardOffsetFetch,
	10: guardFindCoordinator,
	11: guardJoinGroup,
	12: guardHeartbeat,
	13: guardLeaveGroup,
	14: guardSyncGroup,
	15: guardDescribeGroups,
	16: guardListGroups,
	19: guardCreateTopics,
	20: guardDeleteTopics,
	21: guardDeleteRecords,
	22: guardInitProducerID,
	23: guardOffsetForLeaderEpoch,
	24: guardAddPartitionsToTxn,
	25: guardAddOffsetsToTxn,
	26: guardEndTxn,
	27: guardWriteTxnMarkers,
	28: guardTxnOffsetCommit,
	29: guardDescribeACLs,
	30: guardCreateACLs,
	31: guardDeleteACLs,
	32: guardDescribeConfigs,
	33: guardAlterConfigs,
	34: guardAlterReplicaLogDirs,
	35: guardDescribeLogDirs,
	37: guardCreatePartitions,
	42: guardDeleteGroups,
	43: guardElectLeaders,
	44: guardIncrementalAlterConfigs,
	45: guardAlterPartitionReassignments,
	46: guardListPartitionReassignments,
	47: guardOffsetDelete,
	48: guardDescribeClientQuotas,
	49: guardAlterClientQuotas,
	50: guardDescribeUserScram,
	51: guardAlterUserScram,
	55: guardDescribeQuorum,
	57: guardUpdateFeatures,
	60: guardDescribeCluster,
	61: guardDescribeProducers,
	65: guardDescribeTransactions,
	66: guardListTransactions,
	68: guardConsumerGroupHeartbeat,
	69: guardConsumerGroupDescribe,
	74: guardListConfigResources,
	75: guardDescribeTopicPartitions,
}

// unguarded are the keys that anybody may send.
var unguarded = map[int16]bool{17: true, 18: true, 36: true}

// refusal asks the guard of a request; nil: go on.
func (s *Server) refusal(r *request) kmsg.Response {
	if s.authorizer == nil {
		return nil
	}
	key := r.hdr.Key
	if unguarded[key] {
		return nil
	}
	// A key without a guard is a fault of this program (a test holds the tables together): the call below costs the
	// connection, and nobody gets in by it.
	return guards[key](&guarded{request: r, s: s, who: r.conn.who()})
}

// may asks the authorizer; a denial is counted and told in the log at debug level.
func (s *Server) may(c *conn, op auth.Operation, kind auth.ResourceType, name string) bool {
	if s.authorizer == nil {
		return true
	}
	who := c.who()
	if s.authorizer.May(who, op, kind, name) {
		return true
	}
	s.metrics.denied(op)
	s.log.Debug("denied", "principal", who.Name, "host", who.Host, "operation", op.String(), "resource", kind.String(),
		"name", clip(name))
	return false
}

// mayTopic is may for a topic by the name it has; t is nil for one that does not exist, and what an id alone names is
// nobody's then.
func (s *Server) mayTopic(c *conn, op auth.Operation, t *store.Topic, name string) bool {
	if t != nil {
		name = t.Name
	}
	return name == "" || s.may(c, op, auth.Topic, name)
}

func (g *guarded) may(op auth.Operation, kind auth.ResourceType, name string) bool {
	return g.s.may(g.conn, op, kind, name)
}

func (g *guarded) topic(op auth.Operation, name string) bool { return g.may(op, auth.Topic, name) }
func (g *guarded) group(op auth.Operation, name string) bool { return g.may(op, auth.Group, name) }
func (g *guarded) txn(op auth.Operation, id string) bool     { return g.may(op, auth.TransactionalID, id) }
func (g *guarded) cluster(op auth.Operation) bool            { return g.may(op, auth.Cluster, auth.ClusterName) }

// quietly is may without counting: what is left out of a list is no refusal.
func (g *guarded) quietly(op auth.Operation, kind auth.ResourceType, name string) bool {
	return g.s.authorizer.May(g.who, op, kind, name)
}

// amend has fn complete the answer of the handler, whenever it comes.
func (r *request) amend(fn func(kmsg.Response)) { r.amends = append(r.amends, fn) }

// amended is the answer with what guards add to it.
func (r *request) amended(resp kmsg.Response) kmsg.Response {
	if resp != nil {
		for _, fn := range r.amends {
			fn(resp)
		}
	}
	return resp
}

// nameOf is the name of a topic that a request names by id in the versions that have ids; false: there is none.
func (g *guarded) nameOf(ids bool, name string, id [16]byte) (string, bool) {
	if !ids {
		return name, true
	}
	if t := g.s.store.Catalog().ByID[id]; t != nil {
		return t.Name, true
	}
	return "", false
}

// split parts a list by whether each may be done. It makes a new list: the old one belongs to others, too.
func split[T any](all []T, may func(*T) bool) (yes, no []T) {
	for i := range all {
		if may(&all[i]) {
			yes = append(yes, all[i])
		} else {
			no = append(no, all[i])
		}
	}
	return yes, no
}

// hold parts a list by whether each may be done, gives what is left and has told put the rest into the answer.
func hold[T any, R kmsg.Response](g *guarded, all []T, may func(*T) bool, told func(R, *T)) []T {
	yes, no := split(all, may)
	if len(no) > 0 {
		g.amend(func(r kmsg.Response) {
			for i := range no {
				told(r.(R), &no[i])
			}
		})
	}
	return yes
}

// operations are those of all that the sender may do with a resource, as a bit field (KIP-430).
func (g *guarded) operations(kind auth.ResourceType, name string) int32 {
	bits := int32(0)
	for _, op := range auth.Operations(kind) {
		if g.quietly(op, kind, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// The refusals.
var (
	noTopic   = kerr.TopicAuthorizationFailed
	noGroup   = kerr.GroupAuthorizationFailed
	noCluster = kerr.ClusterAuthorizationFailed
	noTxn     = kerr.TransactionalIDAuthorizationFailed
)
