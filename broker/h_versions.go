package broker

import (
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleApiVersions tells which versions of which keys are served (KIP-35, KIP-511, KIP-584, KIP-1242). A request of a
// version above ours is not decoded by the caller and arrives with the body of version 0: the answer is error 35 in the
// layout of version 0 with the range of this key alone.
func (s *Server) handleApiVersions(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for _, v := range wire.Versions() {
		if v.Key == req.Key() && (r.hdr.Version < v.Min || r.hdr.Version > v.Max) {
			resp.Version = 0
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: v.Key, MinVersion: v.Min, MaxVersion: v.Max}}
			return resp
		}
	}
	if code := s.checkApiVersions(req); code != 0 {
		resp.ErrorCode = code
		return resp
	}
	for _, v := range wire.Versions() {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{
			ApiKey: v.Key, MinVersion: v.Min, MaxVersion: v.Max})
	}
	tellFeatures(req.Version, resp)
	return resp
}

// checkApiVersions tests what a client says about itself (version 3 on) and about whom it means to talk to (version 5).
func (s *Server) checkApiVersions(req *kmsg.ApiVersionsRequest) int16 {
	if req.Version >= 3 && (!softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion)) {
		return kerr.InvalidRequest.Code
	}
	if req.Version >= 5 {
		switch cluster, node := req.ClusterID != nil, req.NodeID != -1; {
		case cluster != node:
			return kerr.InvalidRequest.Code
		case cluster && (*req.ClusterID != s.clusterID || req.NodeID != s.nodeID):
			return kerr.RebootstrapRequired.Code
		}
	}
	return 0
}

// softwareName reports whether a client's software name or version has the form KIP-511 asks for: letters, digits, '-'
// and '.', the first and the last one a letter or digit.
func softwareName(s string) bool {
	alnum := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && s[i] != '-' && s[i] != '.' {
			return false
		}
	}
	return true
}
