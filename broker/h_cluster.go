package broker

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What administration tools ask of a cluster, answered by a cluster of one node: nothing moves, nothing is elected, and
// there is one directory.

// handleAlterReplicaLogDirs answers 0 for a partition that is to move where it is, into the one data directory there
// is, and 57 for any other directory.
func (s *Server) handleAlterReplicaLogDirs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	catalog := s.store.Catalog()
	for _, dir := range req.Dirs {
		here := filepath.Clean(dir.Dir) == filepath.Clean(s.store.Dir())
		for _, t := range dir.Topics {
			out := kmsg.AlterReplicaLogDirsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				code := kerr.LogDirNotFound.Code
				if here {
					code = s.movable(catalog, t.Topic, p)
				}
				out.Partitions = append(out.Partitions, kmsg.AlterReplicaLogDirsResponseTopicPartition{
					Partition: p, ErrorCode: code})
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp
}

func (s *Server) movable(c *store.Catalog, topic string, partition int32) int16 {
	switch t := c.ByName[topic]; {
	case t == nil || partition < 0 || int(partition) >= len(t.Partitions):
		return kerr.UnknownTopicOrPartition.Code
	case offline(t, partition):
		return kerr.KafkaStorageError.Code
	}
	return 0
}

// The kinds of election ElectLeaders knows (KIP-460).
const (
	electPreferred = 0
	electUnclean   = 1
)

// handleElectLeaders answers that no election is needed where this node leads, and that there is nobody to elect where
// the log is offline. No topics mean all; then only partitions without a leader are told.
func (s *Server) handleElectLeaders(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.Version >= 1 && req.ElectionType != electPreferred && req.ElectionType != electUnclean {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	unclean := req.Version >= 1 && req.ElectionType == electUnclean
	catalog := s.store.Catalog()
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(catalog.ByName)) {
			out := kmsg.ElectLeadersResponseTopic{Topic: name}
			for p := range catalog.ByName[name].Partitions {
				if no := elect(catalog, name, int32(p), unclean); no.code != kerr.ElectionNotNeeded.Code {
					out.Partitions = append(out.Partitions, elected(int32(p), no))
				}
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	for _, t := range req.Topics {
		out := kmsg.ElectLeadersResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, elected(p, elect(catalog, t.Topic, p, unclean)))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// elect says why nobody is elected: it never has anything to do.
func elect(c *store.Catalog, topic string, partition int32, unclean bool) *refused {
	switch t := c.ByName[topic]; {
	case t == nil:
		return refuse(kerr.UnknownTopicOrPartition, "No such topic.")
	case partition < 0 || int(partition) >= len(t.Partitions):
		return refuse(kerr.UnknownTopicOrPartition, "No such partition.")
	case !offline(t, partition):
		return refuse(kerr.ElectionNotNeeded, kerr.ElectionNotNeeded.Description)
	case unclean:
		return refuse(kerr.EligibleLeadersNotAvailable, kerr.EligibleLeadersNotAvailable.Description)
	}
	return refuse(kerr.PreferredLeaderNotAvailable, kerr.PreferredLeaderNotAvailable.Description)
}

func elected(partition int32, no *refused) kmsg.ElectLeadersResponseTopicPartition {
	return kmsg.ElectLeadersResponseTopicPartition{Partition: partition, ErrorCode: no.code, ErrorMessage: text(no.why)}
}

// handleAlterPartitionReassignments accepts the assignment every partition has, this node, and refuses any other.
// Nothing is ever in progress, so there is nothing to cancel.
func (s *Server) handleAlterPartitionReassignments(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	catalog := s.store.Catalog()
	for _, t := range req.Topics {
		out := kmsg.AlterPartitionAssignmentsResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			part := kmsg.AlterPartitionAssignmentsResponseTopicPartition{Partition: p.Partition}
			if no := s.reassign(catalog, t.Topic, &p); no != nil {
				part.ErrorCode, part.ErrorMessage = no.code, text(no.why)
			}
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (s *Server) reassign(c *store.Catalog, topic string,
	p *kmsg.AlterPartitionAssignmentsRequestTopicPartition) *refused {
	switch t := c.ByName[topic]; {
	case t == nil:
		return refuse(kerr.UnknownTopicOrPartition, "Unable to find a topic of this name.")
	case p.Partition < 0 || int(p.Partition) >= len(t.Partitions):
		return refuse(kerr.UnknownTopicOrPartition, "Unable to find this partition.")
	case p.Replicas == nil:
		return refuse(kerr.NoReassignmentInProgress, kerr.NoReassignmentInProgress.Description)
	case len(p.Replicas) != 1 || p.Replicas[0] != s.nodeID:
		return refuse(kerr.InvalidReplicaAssignment, "The only possible assignment is this node alone.")
	}
	return nil
}

// metadataTopic is what the quorum of a Kafka cluster keeps its metadata in.
const metadataTopic = "__cluster_metadata"

// handleDescribeQuorum tells a quorum of one voter, this node, whose log is the metadata store: its revision stands for
// both ends of the log. Only partition 0 of the metadata topic can be asked for.
func (s *Server) handleDescribeQuorum(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeQuorumRequest)
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if len(req.Topics) != 1 || req.Topics[0].Topic != metadataTopic || len(req.Topics[0].Partitions) != 1 ||
		req.Topics[0].Partitions[0].Partition != 0 {
		for _, t := range req.Topics {
			out := kmsg.DescribeQuorumResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.DescribeQuorumResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code})
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	rev, err := s.meta.Barrier(context.Background())
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(err), text(err.Error())
		return resp
	}
	now := s.clk.Wall()
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{{Topic: metadataTopic,
		Partitions: []kmsg.DescribeQuorumResponseTopicPartition{{
			LeaderID: s.nodeID, LeaderEpoch: s.epoch, HighWatermark: int64(rev),
			CurrentVoters: []kmsg.DescribeQuorumResponseTopicPartitionReplicaState{{ReplicaID: s.nodeID,
				LogEndOffset: int64(rev), LastFetchTimestamp: now, LastCaughtUpTimestamp: now}},
		}},
	}}
	host, port := r.conn.advertised()
	resp.Nodes = []kmsg.DescribeQuorumResponseNode{{NodeID: s.nodeID,
		Listeners: []kmsg.DescribeQuorumResponseNodeListener{{
			Name: r.conn.lis.cfg.Name, Host: host, Port: uint16(port)}}}}
	return resp
}
