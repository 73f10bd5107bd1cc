package broker

import (
	"errors"
	"slices"
	"strings"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// resource names one thing that has settings.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// handleAlterConfigs replaces the whole set of a resource's own settings; what is not named falls back to its default.
func (s *Server) handleAlterConfigs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	count := map[resource]int{}
	for _, res := range req.Resources {
		count[resource{res.ResourceType, res.ResourceName}]++
	}
	for _, res := range req.Resources {
		at := resource{res.ResourceType, res.ResourceName}
		out := kmsg.AlterConfigsResponseResource{ResourceType: at.kind, ResourceName: at.name}
		no := twice(count[at])
		if no == nil {
			no = s.replaceConfigs(at, res.Configs, req.ValidateOnly)
		}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (s *Server) replaceConfigs(at resource, configs []kmsg.AlterConfigsRequestResourceConfig,
	validateOnly bool) *refused {
	set := map[string]string{}
	for _, c := range configs {
		if _, dup := set[c.Name]; dup {
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		if c.Value == nil {
			return refuse(kerr.InvalidRequest, "Null value not supported for : "+c.Name)
		}
		set[c.Name] = *c.Value
	}
	if at.kind == kmsg.ConfigResourceTypeBrokerLogger {
		return unknownResource(at.kind) // the level of a logger can only be altered incrementally
	}
	return s.alterResource(at, validateOnly, func(own map[string]string, _ func(string) (string, bool)) error {
		clear(own)
		for name, value := range set {
			own[name] = value
		}
		return nil
	})
}

// handleIncrementalAlterConfigs sets, deletes, appends to and subtracts from single settings (KIP-339). All changes of
// one resource hold or none does.
func (s *Server) handleIncrementalAlterConfigs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	count := map[resource]int{}
	for _, res := range req.Resources {
		count[resource{res.ResourceType, res.ResourceName}]++
	}
	for _, res := range req.Resources {
		at := resource{res.ResourceType, res.ResourceName}
		out := kmsg.IncrementalAlterConfigsResponseResource{ResourceType: at.kind, ResourceName: at.name}
		no := twice(count[at])
		if no == nil {
			no = s.changeConfigs(at, res.Configs, req.ValidateOnly)
		}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func twice(n int) *refused { return again(n > 1) }

// again refuses what a request has named before: an answer for each time it is named could be many thousand times as
// large as the request.
func again(before bool) *refused {
	if before {
		return refuse(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	return nil
}

func (s *Server) changeConfigs(at resource, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig,
	validateOnly bool) *refused {
	seen := map[string]bool{}
	for _, op := range ops {
		switch {
		case seen[op.Name]:
			return refuse(kerr.InvalidRequest, "Error due to duplicate config keys")
		case op.Op < kmsg.IncrementalAlterConfigOpSet || op.Op > kmsg.IncrementalAlterConfigOpSubtract:
			return refuse(kerr.InvalidRequest, "Unknown operation on "+op.Name)
		case op.Op != kmsg.IncrementalAlterConfigOpDelete && op.Value == nil:
			return refuse(kerr.InvalidRequest, "Null value not supported for : "+op.Name)
		}
		seen[op.Name] = true
	}
	if at.kind == kmsg.ConfigResourceTypeBrokerLogger {
		if no := s.nodeResource(at.name); no != nil {
			return no
		}
		return s.setLogger(ops, validateOnly)
	}
	return s.alterResource(at, validateOnly, func(own map[string]string, list func(string) (string, bool)) error {
		for _, op := range ops {
			if no := applyOp(own, op, list); no != nil {
				return no
			}
		}
		return nil
	})
}

// applyOp changes one setting. list returns the value a list setting has now, false if the setting is no list.
func applyOp(own map[string]string, op kmsg.IncrementalAlterConfigsRequestResourceConfig,
	list func(string) (string, bool)) *refused {
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		own[op.Name] = *op.Value
		return nil
	case kmsg.IncrementalAlterConfigOpDelete:
		delete(own, op.Name)
		return nil
	}
	value, ok := list(op.Name)
	if !ok {
		return refuse(kerr.InvalidConfig, "Config value append or subtract is not allowed for config key: "+op.Name)
	}
	if v, set := own[op.Name]; set {
		value = v
	}
	parts := splitList(value)
	for _, p := range splitList(*op.Value) {
		i := slices.Index(parts, p)
		switch {
		case op.Op == kmsg.IncrementalAlterConfigOpAppend && i < 0:
			parts = append(parts, p)
		case op.Op == kmsg.IncrementalAlterConfigOpSubtract && i >= 0:
			parts = slices.Delete(parts, i, i+1)
		}
	}
	own[op.Name] = strings.Join(parts, ",")
	return nil
}

func splitList(v string) []string {
	var parts []string
	for p := range strings.SplitSeq(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

// alterFunc changes a resource's own settings in place. list returns the value that a list setting has by default,
// false if the setting is no list.
type alterFunc func(own map[string]string, list func(string) (string, bool)) error

// alterResource changes the own settings of a topic, of this node or of all nodes; they are durable and hold when it
// returns. With validateOnly every check is made and nothing else.
func (s *Server) alterResource(at resource, validateOnly bool, fn alterFunc) *refused {
	switch at.kind {
	case kmsg.ConfigResourceTypeTopic:
		t, no := s.topicResource(at.name)
		if no != nil {
			return no
		}
		return s.alterTopic(t, validateOnly, fn)
	case kmsg.ConfigResourceTypeBroker:
		if at.name != "" {
			if no := s.nodeResource(at.name); no != nil {
				return no
			}
		}
		err := s.settings.change(at.name == "", validateOnly, func(own map[string]string) error {
			return fn(own, s.serverList)
		})
		if err != nil {
			return refuseErr(err)
		}
		return nil
	}
	return unknownResource(at.kind)
}

func (s *Server) alterTopic(t *store.Topic, validateOnly bool, fn alterFunc) *refused {
	defaults := s.store.Defaults()
	list := func(name string) (string, bool) { return defaults.Value(name), topicList(name) }
	change := func(own map[string]string) (map[string]string, error) { return own, fn(own, list) }
	update := s.store.Update
	if validateOnly {
		update = s.store.ValidateUpdate
	}
	if err := update(t.ID, change); err != nil {
		return refuseErr(err)
	}
	return nil
}

// topicList reports whether a topic setting is a list.
func topicList(name string) bool {
	return slices.ContainsFunc(store.Settings(), func(t store.Setting) bool {
		return t.Name == name && kmsg.ConfigType(t.Type) == kmsg.ConfigTypeList
	})
}

// serverList returns the value of a server-wide list setting as it is without run-time changes for this resource.
func (s *Server) serverList(name string) (string, bool) {
	if t, ok := settingNamed(name); ok {
		return t.get(s.settings.conf()), t.Type == kmsg.ConfigTypeList
	}
	for _, t := range store.Settings() {
		if t.Server == name {
			return s.store.Defaults().Value(t.Name), kmsg.ConfigType(t.Type) == kmsg.ConfigTypeList
		}
	}
	return "", false
}

// refused says that one item of an administrative request is not done: the code, and where the version has room, why.
type refused struct {
	code int16
	why  string
}

// Error is what the client is told.
func (r *refused) Error() string { return r.why }

// refuse makes a refusal from an error of the protocol.
func refuse(e *kerr.Error, why string) *refused { return &refused{e.Code, why} }

// refuseErr makes a refusal from an error of the store or of the settings.
func refuseErr(err error) *refused {
	var no *refused
	var setting *SettingError
	switch {
	case errors.As(err, &no):
		return no
	case errors.As(err, &setting):
		return refuse(kerr.InvalidConfig, "Setting "+setting.Name+"="+setting.Value+": "+setting.Reason)
	case errors.Is(err, errReadOnly):
		return refuse(kerr.InvalidRequest, strings.TrimPrefix(err.Error(), "broker: "))
	}
	return &refused{codeOf(err), clientText(err)}
}

// clientText is what a client is told of an error: without the places in our code, which say nothing to it.
func clientText(err error) string {
	if t, ok := errors.AsType[*store.TopicError](err); ok {
		if err = t.Err; errors.Is(err, store.ErrTopicExists) {
			return "Topic '" + t.Topic + "' already exists."
		}
	}
	return strings.TrimPrefix(err.Error(), "store: ")
}
