package broker

import (
	"sekali/auth"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func guardListOffsets(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.ListOffsetsRequest)
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.ListOffsetsRequestTopic) bool { return g.topic(auth.Describe, t.Topic) },
		func(resp *kmsg.ListOffsetsResponse, t *kmsg.ListOffsetsRequestTopic) {
			out := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition,
					Timestamp: -1, Offset: -1, LeaderEpoch: -1, ErrorCode: noTopic.Code})
			}
			resp.Topics = append(resp.Topics, out)
		})
	return nil
}

// guardMetadata: Describe of each topic; Create of the cluster or the topic where asking for it would make it. Of all
// topics those that may not be seen are left out.
func guardMetadata(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.MetadataRequest)
	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
	var no []kmsg.MetadataRequestTopic
	if !all {
		req.Topics, no = split(req.Topics, func(t *kmsg.MetadataRequestTopic) bool { return g.maySee(req, t) })
		if req.Version == 0 && len(req.Topics) == 0 {
			req.Version = 1 // an empty list is not all of them
			g.amend(func(r kmsg.Response) { r.SetVersion(0) })
		}
		if req.Topics == nil {
			req.Topics = []kmsg.MetadataRequestTopic{}
		}
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.MetadataResponse)
		if all {
			resp.Topics, _ = split(resp.Topics, func(t *kmsg.MetadataResponseTopic) bool {
				return t.Topic == nil || g.quietly(auth.Describe, auth.Topic, *t.Topic)
			})
		}
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.Topic != nil && t.AuthorizedOperations != noOperations {
				t.AuthorizedOperations = g.operations(auth.Topic, *t.Topic)
			}
		}
		if resp.AuthorizedOperations != noOperations {
			resp.AuthorizedOperations = 0
			if g.quietly(auth.Describe, auth.Cluster, auth.ClusterName) {
				resp.AuthorizedOperations = g.operations(auth.Cluster, auth.ClusterName)
			}
		}
		for _, t := range no {
			out := topicError(t.Topic, noTopic.Code)
			out.TopicID = t.TopicID
			resp.Topics = append(resp.Topics, out)
		}
	})
	return nil
}

func (g *guarded) maySee(req *kmsg.MetadataRequest, t *kmsg.MetadataRequestTopic) bool {
	if id := store.TopicID(t.TopicID); id != (store.TopicID{}) {
		name, known := g.nameOf(true, "", id)
		return !known || g.topic(auth.Describe, name)
	}
	if t.Topic == nil {
		return true // refused by the handler
	}
	if !g.topic(auth.Describe, *t.Topic) {
		return false
	}
	create := g.s.settings.conf().AutoCreate && (req.Version < 4 || req.AllowAutoTopicCreation)
	if !create || g.s.store.Catalog().ByName[*t.Topic] != nil {
		return true
	}
	return g.mayCreate(*t.Topic)
}

func (g *guarded) mayCreate(name string) bool {
	return g.quietly(auth.Create, auth.Cluster, auth.ClusterName) || g.topic(auth.Create, name)
}

// guardCreateTopics: Create of the cluster or of the topic; its settings are told to those who may see them.
func guardCreateTopics(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.CreateTopicsRequest)
	var no []kmsg.CreateTopicsRequestTopic
	req.Topics, no = split(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) bool { return g.mayCreate(t.Topic) })
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.CreateTopicsResponse)
		for i := range resp.Topics {
			t := &resp.Topics[i]
			if t.ErrorCode == 0 && !g.quietly(auth.DescribeConfigs, auth.Topic, t.Topic) {
				t.ConfigErrorCode, t.NumPartitions, t.ReplicationFactor, t.Configs = noTopic.Code, -1, -1, nil
			}
		}
		for _, t := range no {
			resp.Topics = append(resp.Topics, kmsg.CreateTopicsResponseTopic{Topic: t.Topic, NumPartitions: -1,
				ReplicationFactor: -1, ErrorCode: noTopic.Code, ErrorMessage: text("Authorization failed."),
				Configs: []kmsg.CreateTopicsResponseTopicConfig{}})
		}
	})
	return nil
}

func guardDeleteTopics(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DeleteTopicsRequest)
	var names []string
	var no []kmsg.DeleteTopicsRequestTopic
	req.TopicNames, names = split(req.TopicNames, func(name *string) bool { return g.topic(auth.Delete, *name) })
	req.Topics, no = split(req.Topics, func(t *kmsg.DeleteTopicsRequestTopic) bool {
		if t.Topic != nil {
			return g.topic(auth.Delete, *t.Topic)
		}
		name, known := g.nameOf(true, "", t.TopicID)
		return !known || g.topic(auth.Delete, name)
	})
	for _, name := range names {
		no = append(no, kmsg.DeleteTopicsRequestTopic{Topic: text(name)})
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.DeleteTopicsResponse)
		for _, t := range no {
			resp.Topics = append(resp.Topics, kmsg.DeleteTopicsResponseTopic{Topic: t.Topic, TopicID: t.TopicID,
				ErrorCode: noTopic.Code, ErrorMessage: text(noTopic.Description)})
		}
	})
	return nil
}

func guardCreatePartitions(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.CreatePartitionsRequest)
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.CreatePartitionsRequestTopic) bool { return g.topic(auth.Alter, t.Topic) },
		func(resp *kmsg.CreatePartitionsResponse, t *kmsg.CreatePartitionsRequestTopic) {
			resp.Topics = append(resp.Topics, kmsg.CreatePartitionsResponseTopic{Topic: t.Topic,
				ErrorCode: noTopic.Code, ErrorMessage: text(noTopic.Description)})
		})
	return nil
}

func guardDeleteRecords(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DeleteRecordsRequest)
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.DeleteRecordsRequestTopic) bool { return g.topic(auth.Delete, t.Topic) },
		func(resp *kmsg.DeleteRecordsResponse, t *kmsg.DeleteRecordsRequestTopic) {
			out := kmsg.DeleteRecordsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.DeleteRecordsResponseTopicPartition{Partition: p.Partition,
					LowWatermark: -1, ErrorCode: noTopic.Code})
			}
			resp.Topics = append(resp.Topics, out)
		})
	return nil
}

func guardOffsetForLeaderEpoch(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.OffsetForLeaderEpochRequest)
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.OffsetForLeaderEpochRequestTopic) bool { return g.topic(auth.Describe, t.Topic) },
		func(resp *kmsg.OffsetForLeaderEpochResponse, t *kmsg.OffsetForLeaderEpochRequestTopic) {
			out := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.OffsetForLeaderEpochResponseTopicPartition{
					Partition: p.Partition, LeaderEpoch: -1, EndOffset: -1, ErrorCode: noTopic.Code})
			}
			resp.Topics = append(resp.Topics, out)
		})
	return nil
}

func guardDescribeProducers(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DescribeProducersRequest)
	req.Topics = hold(g, req.Topics,
		func(t *kmsg.DescribeProducersRequestTopic) bool { return g.topic(auth.Read, t.Topic) },
		func(resp *kmsg.DescribeProducersResponse, t *kmsg.DescribeProducersRequestTopic) {
			out := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions, kmsg.DescribeProducersResponseTopicPartition{Partition: p,
					ErrorCode: noTopic.Code, ErrorMessage: text(noTopic.Description)})
			}
			resp.Topics = append(resp.Topics, out)
		})
	return nil
}

// guardDescribeTopicPartitions: Describe of each topic; of all topics those that may not be seen are left out.
func guardDescribeTopicPartitions(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DescribeTopicPartitionsRequest)
	var no []kmsg.DescribeTopicPartitionsRequestTopic
	if len(req.Topics) == 0 {
		for name := range g.s.store.Catalog().ByName {
			if g.quietly(auth.Describe, auth.Topic, name) {
				req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
			}
		}
		if c := req.Cursor; c != nil {
			// Where to go on may have been deleted meanwhile, which an unnamed list bears.
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: c.Topic})
			gone := g.s.store.Catalog().ByName[c.Topic] == nil
			g.amend(func(r kmsg.Response) {
				resp := r.(*kmsg.DescribeTopicPartitionsResponse)
				resp.Topics, _ = split(resp.Topics, func(t *kmsg.DescribeTopicPartitionsResponseTopic) bool {
					return !gone || t.Topic == nil || *t.Topic != c.Topic
				})
			})
		}
	} else {
		req.Topics, no = split(req.Topics, func(t *kmsg.DescribeTopicPartitionsRequestTopic) bool {
			return g.topic(auth.Describe, t.Topic)
		})
	}
	refuse := func(resp *kmsg.DescribeTopicPartitionsResponse) {
		for _, t := range no {
			resp.Topics = append(resp.Topics, kmsg.DescribeTopicPartitionsResponseTopic{Topic: text(t.Topic),
				ErrorCode: noTopic.Code, AuthorizedOperations: noOperations})
		}
	}
	if len(req.Topics) == 0 { // none left would stand for all of them
		resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
		refuse(resp)
		return resp
	}
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.DescribeTopicPartitionsResponse)
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.Topic != nil && t.AuthorizedOperations != noOperations {
				t.AuthorizedOperations = g.operations(auth.Topic, *t.Topic)
			}
		}
		refuse(resp)
	})
	return nil
}

// config asks for the settings of a resource.
func (g *guarded) config(op auth.Operation, kind kmsg.ConfigResourceType, name string) bool {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return g.topic(op, name)
	case kmsg.ConfigResourceTypeGroupConfig:
		return g.group(op, name)
	}
	return g.cluster(op)
}

// noConfig is the code where config says no.
func noConfig(kind kmsg.ConfigResourceType) *kerr.Error {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return noTopic
	case kmsg.ConfigResourceTypeGroupConfig:
		return noGroup
	}
	return noCluster
}

func guardDescribeConfigs(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.DescribeConfigsRequest)
	req.Resources = hold(g, req.Resources, func(r *kmsg.DescribeConfigsRequestResource) bool {
		return g.config(auth.DescribeConfigs, r.ResourceType, r.ResourceName)
	}, func(resp *kmsg.DescribeConfigsResponse, r *kmsg.DescribeConfigsRequestResource) {
		code := noConfig(r.ResourceType)
		resp.Resources = append(resp.Resources, kmsg.DescribeConfigsResponseResource{ResourceType: r.ResourceType,
			ResourceName: r.ResourceName, ErrorCode: code.Code, ErrorMessage: text(code.Description)})
	})
	return nil
}

func guardAlterConfigs(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.AlterConfigsRequest)
	req.Resources = hold(g, req.Resources, func(r *kmsg.AlterConfigsRequestResource) bool {
		return g.config(auth.AlterConfigs, r.ResourceType, r.ResourceName)
	}, func(resp *kmsg.AlterConfigsResponse, r *kmsg.AlterConfigsRequestResource) {
		code := noConfig(r.ResourceType)
		resp.Resources = append(resp.Resources, kmsg.AlterConfigsResponseResource{ResourceType: r.ResourceType,
			ResourceName: r.ResourceName, ErrorCode: code.Code, ErrorMessage: text(code.Description)})
	})
	return nil
}

func guardIncrementalAlterConfigs(g *guarded) kmsg.Response {
	req := g.msg.(*kmsg.IncrementalAlterConfigsRequest)
	req.Resources = hold(g, req.Resources, func(r *kmsg.IncrementalAlterConfigsRequestResource) bool {
		return g.config(auth.AlterConfigs, r.ResourceType, r.ResourceName)
	}, func(resp *kmsg.IncrementalAlterConfigsResponse, r *kmsg.IncrementalAlterConfigsRequestResource) {
		code := noConfig(r.ResourceType)
		resp.Resources = append(resp.Resources,
			kmsg.IncrementalAlterConfigsResponseResource{ResourceType: r.ResourceType,
				ResourceName: r.ResourceName, ErrorCode: code.Code, ErrorMessage: text(code.Description)})
	})
	return nil
}
