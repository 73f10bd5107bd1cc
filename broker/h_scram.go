package broker

import (
	"context"

	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeUserScram tells who can log in by which mechanism (KIP-554), never a key. No names mean everybody.
func (s *Server) handleDescribeUserScram(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	if len(req.Users) == 0 {
		for _, name := range s.auth.Users() {
			resp.Results = append(resp.Results, s.describeUser(name))
		}
		return resp
	}
	count := map[string]int{}
	for _, u := range req.Users {
		count[u.Name]++
	}
	for _, u := range req.Users {
		switch count[u.Name] {
		case 0:
			continue // told already
		case 1:
			resp.Results = append(resp.Results, s.describeUser(u.Name))
		default:
			resp.Results = append(resp.Results, kmsg.DescribeUserSCRAMCredentialsResponseResult{
				User: u.Name, ErrorCode: kerr.DuplicateResource.Code,
				ErrorMessage: text("Cannot describe SCRAM credentials for the same user twice in a single request.")})
		}
		count[u.Name] = 0
	}
	return resp
}

func (s *Server) describeUser(name string) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	out := kmsg.DescribeUserSCRAMCredentialsResponseResult{User: name}
	c, ok := s.auth.User(name)
	if !ok {
		out.ErrorCode = kerr.ResourceNotFound.Code
		out.ErrorMessage = text("Attempt to describe a user credential that does not exist: " + clip(name))
		return out
	}
	for _, m := range c.Has() {
		out.CredentialInfos = append(out.CredentialInfos, kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo{
			Mechanism: int8(m), Iterations: int32(c[m].Iterations)})
	}
	return out
}

// handleAlterUserScram sets and deletes credentials. A user is altered whole or not at all, and once in a request.
func (s *Server) handleAlterUserScram(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	var order []string
	changes := map[string][]auth.Change{}
	refusals := map[string]*refused{}
	seen := map[auth.Change]bool{}
	take := func(user string, m auth.Mechanism, no *refused, c *auth.Credential) {
		if _, met := changes[user]; !met {
			order = append(order, user)
			changes[user] = []auth.Change{}
		}
		key := auth.Change{User: user, Mechanism: m}
		if seen[key] {
			no = refuse(kerr.DuplicateResource, "A user credential cannot be altered twice in the same request")
		}
		seen[key] = true
		if no != nil && (refusals[user] == nil || no.code == kerr.DuplicateResource.Code) {
			refusals[user] = no
		}
		changes[user] = append(changes[user], auth.Change{User: user, Mechanism: m, Credential: c})
	}
	for _, d := range req.Deletions {
		m := auth.Mechanism(d.Mechanism)
		no := checkScram(d.Name, m)
		if no == nil && !s.auth.HasCredential(d.Name, m) {
			no = refuse(kerr.ResourceNotFound, "Attempt to delete a user credential that does not exist")
		}
		take(d.Name, m, no, nil)
	}
	for _, u := range req.Upsertions {
		m := auth.Mechanism(u.Mechanism)
		no := checkScram(u.Name, m)
		if no == nil {
			no = checkUpsertion(&u)
		}
		var c auth.Credential
		if no == nil {
			c = auth.FromSalted(m, u.Salt, u.SaltedPassword, int(u.Iterations))
		}
		take(u.Name, m, no, &c)
	}
	for _, user := range order {
		out := kmsg.AlterUserSCRAMCredentialsResponseResult{User: user}
		if no := refusals[user]; no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		} else if err := s.auth.Apply(context.Background(), changes[user]); err != nil {
			s.log.Error("credentials were not stored", "user", clip(user), "err", err)
			out.ErrorCode, out.ErrorMessage = authCode(err)
		} else {
			s.log.Info("credentials changed", "user", clip(user), "by", r.conn.who().Name)
		}
		resp.Results = append(resp.Results, out)
	}
	return resp
}

// saltMax bounds the salt of a credential in bytes.
const saltMax = 255

func checkScram(user string, m auth.Mechanism) *refused {
	if err := auth.CheckUser(user); err != nil {
		return refuse(kerr.UnacceptableCredential, err.Error())
	}
	if !m.Known() {
		return refuse(kerr.UnsupportedSaslMechanism, "Unknown SCRAM mechanism")
	}
	return nil
}

func checkUpsertion(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) *refused {
	switch {
	case u.Iterations < auth.IterationsMin:
		return refuse(kerr.UnacceptableCredential, "Too few iterations")
	case u.Iterations > auth.IterationsMax:
		return refuse(kerr.UnacceptableCredential, "Too many iterations")
	case len(u.Salt) == 0, len(u.SaltedPassword) == 0:
		return refuse(kerr.UnacceptableCredential, "Neither salt nor salted password may be empty")
	case len(u.Salt) > saltMax:
		return refuse(kerr.UnacceptableCredential, "The salt is too long")
	}
	return nil
}
