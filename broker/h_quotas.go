package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What administration tools ask about quotas, of which there are none.

// The kinds of entity a quota can be for.
const (
	quotaUser   = "user"
	quotaClient = "client-id"
	quotaIP     = "ip"
)

// handleDescribeClientQuotas answers that there are none, once the filter is one that Kafka takes.
func (s *Server) handleDescribeClientQuotas(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	if no := checkQuotaFilter(req.Components); no != nil {
		resp.ErrorCode, resp.ErrorMessage = no.code, text(no.why)
		return resp
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	return resp
}

func checkQuotaFilter(components []kmsg.DescribeClientQuotasRequestComponent) *refused {
	seen := map[string]bool{}
	for _, c := range components {
		switch {
		case c.EntityType == "":
			return refuse(kerr.InvalidRequest, "Invalid empty entity type.")
		case seen[c.EntityType]:
			return refuse(kerr.InvalidRequest,
				"Entity type "+clip(c.EntityType)+" cannot appear more than once in the filter.")
		case !slices.Contains([]string{quotaUser, quotaClient, quotaIP}, c.EntityType):
			return refuse(kerr.UnsupportedVersion, "Unsupported entity type "+clip(c.EntityType))
		case c.MatchType < kmsg.QuotasMatchTypeExact || c.MatchType > kmsg.QuotasMatchTypeAny:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("Unknown match type %d", c.MatchType))
		case c.MatchType == kmsg.QuotasMatchTypeExact && c.Match == nil:
			return refuse(kerr.InvalidRequest, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
		case c.MatchType != kmsg.QuotasMatchTypeExact && c.Match != nil:
			return refuse(kerr.InvalidRequest, "Request specified "+c.MatchType.String()+", but also specified a match string.")
		}
		seen[c.EntityType] = true
	}
	if seen[quotaIP] && (seen[quotaUser] || seen[quotaClient]) {
		return refuse(kerr.InvalidRequest, "Invalid entity filter component combination. IP filter component should "+
			"not be used with user or clientId filter component.")
	}
	return nil
}

// handleAlterClientQuotas refuses to set a quota, since none would be kept to. Removing one is done: there is none.
func (s *Server) handleAlterClientQuotas(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	for _, e := range req.Entries {
		out := kmsg.AlterClientQuotasResponseEntry{}
		for _, x := range e.Entity {
			out.Entity = append(out.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: x.Type, Name: x.Name})
		}
		if no := checkQuota(&e); no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		resp.Entries = append(resp.Entries, out)
	}
	return resp
}

func checkQuota(e *kmsg.AlterClientQuotasRequestEntry) *refused {
	if len(e.Entity) == 0 {
		return refuse(kerr.InvalidRequest, "Invalid empty client quota entity.")
	}
	for _, op := range e.Ops {
		if !op.Remove {
			return refuse(kerr.InvalidRequest, "This node has no quotas: "+clip(op.Key)+" would have no effect.")
		}
	}
	return nil
}
