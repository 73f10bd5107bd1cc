package broker

import (
	"errors"
	"maps"
	"slices"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The operations a client may do, as bit fields over Kafka's AclOperation numbers. There is no authorizer: everything a
// resource knows is allowed.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	noOperations      = -1 << 31 // not asked for
)

// reserved reports whether clients may neither create nor delete a topic of this name: coordinators make theirs, and
// one name is taken in every Kafka cluster.
func reserved(name string) bool { return store.IsInternalName(name) || name == "__cluster_metadata" }

// handleMetadata tells the node, its topics and their partitions. A named topic that does not exist is created if the
// node and the request allow it. This answer says that it does not exist, as Kafka's does, and the next one has it: who
// looks whether a topic is gone makes it again, but must see first that it was.
func (s *Server) handleMetadata(r *request) kmsg.Response {
	req := r.msg.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	host, port := r.conn.advertised()
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: s.nodeID, Host: host, Port: port}}
	resp.ClusterID = &s.clusterID
	resp.ControllerID = s.nodeID
	resp.AuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	resp.Topics = s.metadataTopics(req)
	if req.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			resp.Topics[i].AuthorizedOperations = topicOperations
		}
	}
	return resp
}

func (s *Server) metadataTopics(req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		return s.allTopics()
	}
	if req.Version < 12 && slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
		return t.Topic == nil || t.TopicID != store.TopicID{}
	}) {
		return refusedTopics(req.Topics)
	}
	create := s.settings.conf().AutoCreate && (req.Version < 4 || req.AllowAutoTopicCreation)
	topics := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	names, ids := map[string]bool{}, map[store.TopicID]bool{}
	for _, t := range req.Topics {
		if id := store.TopicID(t.TopicID); id != (store.TopicID{}) {
			if !ids[id] {
				ids[id] = true
				topics = append(topics, s.topicByID(id))
			}
			continue
		}
		if t.Topic == nil {
			topics = append(topics, topicError(nil, kerr.InvalidRequest.Code))
		} else if !names[*t.Topic] {
			names[*t.Topic] = true
			topics = append(topics, s.topicByName(*t.Topic, create))
		}
	}
	return topics
}

// refusedTopics answers a request that names topics in a way its version does not know: 42 for each.
func refusedTopics(asked []kmsg.MetadataRequestTopic) []kmsg.MetadataResponseTopic {
	topics := make([]kmsg.MetadataResponseTopic, len(asked))
	for i, t := range asked {
		if t.Topic == nil {
			t.Topic = new(string)
		}
		topics[i] = topicError(t.Topic, kerr.InvalidRequest.Code)
		topics[i].TopicID = t.TopicID
	}
	return topics
}

func (s *Server) allTopics() []kmsg.MetadataResponseTopic {
	byName := s.store.Catalog().ByName
	topics := make([]kmsg.MetadataResponseTopic, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		topics = append(topics, s.topicMetadata(byName[name]))
	}
	return topics
}

func topicError(name *string, code int16) kmsg.MetadataResponseTopic {
	return kmsg.MetadataResponseTopic{Topic: name, ErrorCode: code, AuthorizedOperations: noOperations}
}

func (s *Server) topicByID(id store.TopicID) kmsg.MetadataResponseTopic {
	if t := s.store.Catalog().ByID[id]; t != nil {
		return s.topicMetadata(t)
	}
	unknown := topicError(nil, kerr.UnknownTopicID.Code)
	unknown.TopicID = id
	return unknown
}

func (s *Server) topicByName(name string, create bool) kmsg.MetadataResponseTopic {
	if t := s.store.Catalog().ByName[name]; t != nil {
		return s.topicMetadata(t)
	}
	if reserved(name) || !create {
		code := kerr.UnknownTopicOrPartition.Code
		if !topicNameValid(name) {
			code = kerr.InvalidTopicException.Code
		}
		unknown := topicError(&name, code)
		unknown.IsInternal = store.IsInternalName(name)
		return unknown
	}
	fresh := store.NewTopic{Name: name, Partitions: s.settings.conf().NumPartitions}
	if _, err := s.store.CreateTopics(fresh); err != nil && !errors.Is(err, store.ErrTopicExists) {
		s.complaints.warn("topic was not created on first use", "topic", name, "err", err)
		return topicError(&name, codeOf(err))
	}
	return topicError(&name, kerr.UnknownTopicOrPartition.Code)
}

func (s *Server) topicMetadata(t *store.Topic) kmsg.MetadataResponseTopic {
	name := t.Name
	parts := make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	self := []int32{s.nodeID}
	for i := range parts {
		parts[i] = kmsg.MetadataResponseTopicPartition{
			Partition: int32(i), Leader: s.nodeID, LeaderEpoch: s.epoch, Replicas: self, ISR: self}
		if offline(t, int32(i)) {
			parts[i].ErrorCode = kerr.LeaderNotAvailable.Code
			parts[i].Leader = -1
			parts[i].OfflineReplicas = self
		}
	}
	return kmsg.MetadataResponseTopic{Topic: &name, TopicID: t.ID, IsInternal: t.Internal, Partitions: parts,
		AuthorizedOperations: noOperations}
}

// offline reports whether a partition of the topic has no log that takes requests.
func offline(t *store.Topic, partition int32) bool {
	l := t.Partitions[partition]
	return l == nil || l.Err() != nil
}

// handleDescribeCluster tells the node, asked as a broker; asked as a controller it answers 114, as anything else 115
// (KIP-919).
func (s *Server) handleDescribeCluster(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = noOperations
	resp.EndpointType = endpointBroker
	if req.Version >= 1 && req.EndpointType != endpointBroker {
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		if req.EndpointType == endpointController {
			resp.ErrorCode = kerr.MismatchedEndpointType.Code
		}
		resp.ErrorMessage = text("this is a broker endpoint")
		resp.ControllerID = -1
		return resp
	}
	host, port := r.conn.advertised()
	resp.ClusterID = s.clusterID
	resp.ControllerID = s.nodeID
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{{NodeID: s.nodeID, Host: host, Port: port}}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}

// The endpoint types of DescribeCluster (KIP-919).
const (
	endpointBroker     = 1
	endpointController = 2
)

// text is a pointer to a copy of v, for nullable strings of answers.
func text(v string) *string { return &v }
