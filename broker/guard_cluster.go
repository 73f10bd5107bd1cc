package broker

import (
	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is asked of the cluster as a whole: one operation of the cluster, and 31 without it.

// the lets a request pass if its sender may do op with the cluster, else fill puts 31 into the answer.
func the[R kmsg.Response](g *guarded, op auth.Operation, fill func(R, int16, *string)) kmsg.Response {
	if g.cluster(op) {
		return nil
	}
	resp := g.msg.ResponseKind().(R)
	fill(resp, noCluster.Code, text(noCluster.Description))
	return resp
}

func guardDescribeACLs(g *guarded) kmsg.Response {
	return the(g, auth.Describe, func(r *kmsg.DescribeACLsResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardCreateACLs(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.CreateACLsResponse, code int16, why *string) {
		for range g.msg.(*kmsg.CreateACLsRequest).Creations {
			r.Results = append(r.Results, kmsg.CreateACLsResponseResult{ErrorCode: code, ErrorMessage: why})
		}
	})
}

func guardDeleteACLs(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.DeleteACLsResponse, code int16, why *string) {
		for range g.msg.(*kmsg.DeleteACLsRequest).Filters {
			r.Results = append(r.Results, kmsg.DeleteACLsResponseResult{ErrorCode: code, ErrorMessage: why})
		}
	})
}

func guardAlterReplicaLogDirs(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.AlterReplicaLogDirsResponse, code int16, _ *string) {
		for _, d := range g.msg.(*kmsg.AlterReplicaLogDirsRequest).Dirs {
			for _, t := range d.Topics {
				out := kmsg.AlterReplicaLogDirsResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					out.Partitions = append(out.Partitions,
						kmsg.AlterReplicaLogDirsResponseTopicPartition{Partition: p, ErrorCode: code})
				}
				r.Topics = append(r.Topics, out)
			}
		}
	})
}

func guardDescribeLogDirs(g *guarded) kmsg.Response {
	return the(g, auth.Describe, func(r *kmsg.DescribeLogDirsResponse, code int16, _ *string) { r.ErrorCode = code })
}

func guardElectLeaders(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.ElectLeadersResponse, code int16, why *string) {
		r.ErrorCode = code
		for _, t := range g.msg.(*kmsg.ElectLeadersRequest).Topics {
			out := kmsg.ElectLeadersResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				out.Partitions = append(out.Partitions,
					kmsg.ElectLeadersResponseTopicPartition{Partition: p, ErrorCode: code, ErrorMessage: why})
			}
			r.Topics = append(r.Topics, out)
		}
	})
}

func guardAlterPartitionReassignments(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.AlterPartitionAssignmentsResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardListPartitionReassignments(g *guarded) kmsg.Response {
	return the(g, auth.Describe, func(r *kmsg.ListPartitionReassignmentsResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardDescribeClientQuotas(g *guarded) kmsg.Response {
	return the(g, auth.DescribeConfigs, func(r *kmsg.DescribeClientQuotasResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardAlterClientQuotas(g *guarded) kmsg.Response {
	return the(g, auth.AlterConfigs, func(r *kmsg.AlterClientQuotasResponse, code int16, why *string) {
		for _, e := range g.msg.(*kmsg.AlterClientQuotasRequest).Entries {
			out := kmsg.AlterClientQuotasResponseEntry{ErrorCode: code, ErrorMessage: why}
			for _, x := range e.Entity {
				out.Entity = append(out.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: x.Type, Name: x.Name})
			}
			r.Entries = append(r.Entries, out)
		}
	})
}

func guardDescribeUserScram(g *guarded) kmsg.Response {
	return the(g, auth.Describe, func(r *kmsg.DescribeUserSCRAMCredentialsResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardAlterUserScram(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.AlterUserSCRAMCredentialsResponse, code int16, why *string) {
		told := map[string]bool{}
		add := func(user string) {
			if !told[user] {
				told[user] = true
				r.Results = append(r.Results,
					kmsg.AlterUserSCRAMCredentialsResponseResult{User: user, ErrorCode: code, ErrorMessage: why})
			}
		}
		req := g.msg.(*kmsg.AlterUserSCRAMCredentialsRequest)
		for _, d := range req.Deletions {
			add(d.Name)
		}
		for _, u := range req.Upsertions {
			add(u.Name)
		}
	})
}

func guardDescribeQuorum(g *guarded) kmsg.Response {
	return the(g, auth.Describe, func(r *kmsg.DescribeQuorumResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardUpdateFeatures(g *guarded) kmsg.Response {
	return the(g, auth.Alter, func(r *kmsg.UpdateFeaturesResponse, code int16, why *string) {
		r.ErrorCode, r.ErrorMessage = code, why
	})
}

func guardListConfigResources(g *guarded) kmsg.Response {
	return the(g, auth.DescribeConfigs, func(r *kmsg.ListConfigResourcesResponse, code int16, _ *string) {
		r.ErrorCode = code
	})
}

// guardDescribeCluster lets everybody see the nodes; what may be done is told to those who may describe the cluster.
func guardDescribeCluster(g *guarded) kmsg.Response {
	g.amend(func(r kmsg.Response) {
		resp := r.(*kmsg.DescribeClusterResponse)
		if resp.ClusterAuthorizedOperations != noOperations {
			resp.ClusterAuthorizedOperations = 0
			if g.quietly(auth.Describe, auth.Cluster, auth.ClusterName) {
				resp.ClusterAuthorizedOperations = g.operations(auth.Cluster, auth.ClusterName)
			}
		}
	})
	return nil
}
