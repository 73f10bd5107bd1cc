package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What administration tools ask about access control, quotas and users of a node that has none of them.

const noAuthorizer = "No Authorizer is configured."

// handleDescribeACLs answers 54: there is no authorizer.
func (s *Server) handleDescribeACLs(r *request) kmsg.Response {
	resp := r.msg.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, text(noAuthorizer)
	return resp
}

// handleCreateACLs answers 54 for each.
func (s *Server) handleCreateACLs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for range req.Creations {
		resp.Results = append(resp.Results, kmsg.CreateACLsResponseResult{
			ErrorCode: kerr.SecurityDisabled.Code, ErrorMessage: text(noAuthorizer)})
	}
	return resp
}

// handleDeleteACLs answers 54 for each.
func (s *Server) handleDeleteACLs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for range req.Filters {
		resp.Results = append(resp.Results, kmsg.DeleteACLsResponseResult{
			ErrorCode: kerr.SecurityDisabled.Code, ErrorMessage: text(noAuthorizer)})
	}
	return resp
}

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

// handleDescribeUserScram tells the users with SCRAM credentials: none. One asked for by name is not found.
func (s *Server) handleDescribeUserScram(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	count := map[string]int{}
	for _, u := range req.Users {
		count[u.Name]++
	}
	for _, u := range req.Users {
		no := refuse(kerr.ResourceNotFound, "Attempt to describe a user credential that does not exist.")
		switch count[u.Name] {
		case 0:
			continue // told already
		case 1:
		default:
			no = refuse(kerr.DuplicateResource,
				"Cannot describe SCRAM credentials for the same user twice in a single request.")
		}
		count[u.Name] = 0
		resp.Results = append(resp.Results, kmsg.DescribeUserSCRAMCredentialsResponseResult{
			User: u.Name, ErrorCode: no.code, ErrorMessage: text(no.why)})
	}
	return resp
}

// handleAlterUserScram refuses to keep credentials nobody could log in with; one to be deleted does not exist.
func (s *Server) handleAlterUserScram(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	var order []string
	answers := map[string]*refused{}
	answer := func(user string, no *refused) {
		if _, twice := answers[user]; twice {
			no = refuse(kerr.DuplicateResource, "A user credential cannot be altered twice in the same request")
		} else {
			order = append(order, user)
		}
		answers[user] = no
	}
	for _, d := range req.Deletions {
		answer(d.Name, checkScram(d.Name, d.Mechanism,
			refuse(kerr.ResourceNotFound, "Attempt to delete a user credential that does not exist")))
	}
	for _, u := range req.Upsertions {
		answer(u.Name, checkScram(u.Name, u.Mechanism,
			refuse(kerr.SecurityDisabled, "This node has no SASL: nobody could log in with these credentials.")))
	}
	for _, user := range order {
		resp.Results = append(resp.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{
			User: user, ErrorCode: answers[user].code, ErrorMessage: text(answers[user].why)})
	}
	return resp
}

// The SCRAM mechanisms by their numbers: SHA-256 and SHA-512.
const (
	scramFirst = 1
	scramLast  = 2
)

func checkScram(user string, mechanism int8, otherwise *refused) *refused {
	switch {
	case user == "":
		return refuse(kerr.UnacceptableCredential, "Username must not be empty")
	case mechanism < scramFirst || mechanism > scramLast:
		return refuse(kerr.UnsupportedSaslMechanism, "Unknown SCRAM mechanism")
	}
	return otherwise
}
