package broker

import (
	"context"
	"errors"

	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const noAuthorizer = "No Authorizer is configured."

// handleDescribeACLs lists the rules that a filter finds, by resource; 54 without an authorizer.
func (s *Server) handleDescribeACLs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeACLsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	if s.authorizer == nil {
		resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, text(noAuthorizer)
		return resp
	}
	f := auth.Filter{Type: auth.ResourceType(req.ResourceType), Name: req.ResourceName,
		Pattern: auth.PatternType(req.ResourcePatternType), Principal: req.Principal, Host: req.Host,
		Operation: auth.Operation(req.Operation), Permission: auth.Permission(req.PermissionType)}
	if err := f.Check(); err != nil {
		resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, text(err.Error())
		return resp
	}
	for _, b := range s.auth.Find(f) {
		n := len(resp.Resources)
		if n == 0 || resp.Resources[n-1].ResourceType != kmsg.ACLResourceType(b.Type) ||
			resp.Resources[n-1].ResourceName != b.Name ||
			resp.Resources[n-1].ResourcePatternType != kmsg.ACLResourcePatternType(b.Pattern) {
			resp.Resources = append(resp.Resources, kmsg.DescribeACLsResponseResource{
				ResourceType: kmsg.ACLResourceType(b.Type), ResourceName: b.Name,
				ResourcePatternType: kmsg.ACLResourcePatternType(b.Pattern)})
			n++
		}
		last := &resp.Resources[n-1]
		last.ACLs = append(last.ACLs, kmsg.DescribeACLsResponseResourceACL{Principal: b.Principal, Host: b.Host,
			Operation: kmsg.ACLOperation(b.Operation), PermissionType: kmsg.ACLPermissionType(b.Permission)})
	}
	return resp
}

// handleCreateACLs stores rules durably. One that is none is refused by itself.
func (s *Server) handleCreateACLs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	resp.Results = make([]kmsg.CreateACLsResponseResult, len(req.Creations))
	var bs []auth.Binding
	var at []int
	for i, c := range req.Creations {
		b := auth.Binding{Type: auth.ResourceType(c.ResourceType), Name: c.ResourceName,
			Pattern: auth.PatternType(c.ResourcePatternType), Principal: c.Principal, Host: c.Host,
			Operation: auth.Operation(c.Operation), Permission: auth.Permission(c.PermissionType)}
		out := &resp.Results[i]
		if s.authorizer == nil {
			out.ErrorCode, out.ErrorMessage = kerr.SecurityDisabled.Code, text(noAuthorizer)
		} else if err := b.Check(); err != nil {
			out.ErrorCode, out.ErrorMessage = kerr.InvalidRequest.Code, text(err.Error())
		} else {
			bs, at = append(bs, b), append(at, i)
		}
	}
	if len(bs) == 0 {
		return resp
	}
	if err := s.auth.Add(context.Background(), bs); err != nil {
		s.log.Error("rules were not stored", "err", err)
		for _, i := range at {
			resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = authCode(err)
		}
		return resp
	}
	for _, b := range bs {
		s.log.Info("rule added", "by", r.conn.who().Name, "resource", b.Type.String(), "name", clip(b.Name),
			"pattern", b.Pattern.String(), "principal", clip(b.Principal), "host", clip(b.Host),
			"operation", b.Operation.String(), "permission", b.Permission.String())
	}
	return resp
}

// handleDeleteACLs removes the rules that filters find and tells which those were.
func (s *Server) handleDeleteACLs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	resp.Results = make([]kmsg.DeleteACLsResponseResult, len(req.Filters))
	var fs []auth.Filter
	var at []int
	for i, c := range req.Filters {
		f := auth.Filter{Type: auth.ResourceType(c.ResourceType), Name: c.ResourceName,
			Pattern: auth.PatternType(c.ResourcePatternType), Principal: c.Principal, Host: c.Host,
			Operation: auth.Operation(c.Operation), Permission: auth.Permission(c.PermissionType)}
		out := &resp.Results[i]
		if s.authorizer == nil {
			out.ErrorCode, out.ErrorMessage = kerr.SecurityDisabled.Code, text(noAuthorizer)
		} else if err := f.Check(); err != nil {
			out.ErrorCode, out.ErrorMessage = kerr.InvalidRequest.Code, text(err.Error())
		} else {
			fs, at = append(fs, f), append(at, i)
		}
	}
	if len(fs) == 0 {
		return resp
	}
	removed, err := s.auth.Remove(context.Background(), fs)
	for n, i := range at {
		out := &resp.Results[i]
		if err != nil {
			out.ErrorCode, out.ErrorMessage = authCode(err)
			continue
		}
		for _, b := range removed[n] {
			out.MatchingACLs = append(out.MatchingACLs, kmsg.DeleteACLsResponseResultMatchingACL{
				ResourceType: kmsg.ACLResourceType(b.Type), ResourceName: b.Name,
				ResourcePatternType: kmsg.ACLResourcePatternType(b.Pattern), Principal: b.Principal, Host: b.Host,
				Operation: kmsg.ACLOperation(b.Operation), PermissionType: kmsg.ACLPermissionType(b.Permission)})
			s.log.Info("rule removed", "by", r.conn.who().Name, "resource", b.Type.String(), "name", clip(b.Name),
				"pattern", b.Pattern.String(), "principal", clip(b.Principal), "host", clip(b.Host),
				"operation", b.Operation.String(), "permission", b.Permission.String())
		}
	}
	if err != nil {
		s.log.Error("rules were not removed", "err", err)
	}
	return resp
}

// authCode is the code of a change of rules or users that was not stored.
func authCode(err error) (int16, *string) {
	if errors.Is(err, auth.ErrBinding) {
		return kerr.InvalidRequest.Code, text(err.Error())
	}
	return codeOf(err), text(err.Error())
}
