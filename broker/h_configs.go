package broker

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rootLogger is the one logger of the node, by Kafka's name for it (KIP-412). Changes of its level last until the next
// start; the setting sekali.log.level lasts.
const rootLogger = "root"

type describedConfig = kmsg.DescribeConfigsResponseResourceConfig

// handleDescribeConfigs tells the settings of topics, of the node, of all nodes and of the logger, with their sources,
// synonyms, types and documentation (KIP-133, KIP-226, KIP-569).
func (s *Server) handleDescribeConfigs(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	seen := map[resource]bool{}
	for _, res := range req.Resources {
		out := kmsg.DescribeConfigsResponseResource{ResourceType: res.ResourceType, ResourceName: res.ResourceName}
		at := resource{res.ResourceType, res.ResourceName}
		no := again(seen[at])
		if seen[at] = true; no == nil {
			out.Configs, no = s.describeResource(&res, req.IncludeSynonyms, req.IncludeDocumentation)
		}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (s *Server) describeResource(res *kmsg.DescribeConfigsRequestResource, synonyms, docs bool) (
	[]describedConfig, *refused) {
	switch res.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		t, no := s.topicResource(res.ResourceName)
		if no != nil {
			return nil, no
		}
		return s.describeTopic(t.Config, res.ConfigNames, synonyms, docs), nil
	case kmsg.ConfigResourceTypeBroker:
		if res.ResourceName == "" {
			return s.describeNode(res.ConfigNames, true, synonyms, docs), nil
		}
		if no := s.nodeResource(res.ResourceName); no != nil {
			return nil, no
		}
		return s.describeNode(res.ConfigNames, false, synonyms, docs), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		if no := s.nodeResource(res.ResourceName); no != nil {
			return nil, no
		}
		return s.describeLogger(res.ConfigNames), nil
	}
	return nil, unknownResource(res.ResourceType)
}

func unknownResource(t kmsg.ConfigResourceType) *refused {
	return refuse(kerr.InvalidRequest, "Unsupported resource type "+strconv.Itoa(int(t)))
}

// topicResource finds the topic a resource names.
func (s *Server) topicResource(name string) (*store.Topic, *refused) {
	if t := s.store.Catalog().ByName[name]; t != nil {
		return t, nil
	}
	if !topicNameValid(name) {
		return nil, refuse(kerr.InvalidTopicException, kerr.InvalidTopicException.Description)
	}
	return nil, refuse(kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Description)
}

// nodeResource checks that a resource names this node. There is one way to write its number, so that asking for a
// resource twice cannot hide.
func (s *Server) nodeResource(name string) *refused {
	if name != strconv.Itoa(int(s.nodeID)) {
		return refuse(kerr.InvalidRequest,
			"Unexpected broker id, expected "+strconv.Itoa(int(s.nodeID))+", but received "+name)
	}
	return nil
}

// asked reports whether a setting is among the names of a request; no names mean all.
func asked(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// describeTopic tells the settings of a topic: its own come first, then what holds for the node.
func (s *Server) describeTopic(c store.TopicConfig, names []string, synonyms, docs bool) []describedConfig {
	var all []describedConfig
	for _, t := range store.Settings() {
		if t.Hidden || !asked(names, t.Name) {
			continue
		}
		var chain []sourced
		if v, ok := c.Set[t.Name]; ok {
			chain = append(chain, sourced{t.Name, v, kmsg.ConfigSourceDynamicTopicConfig})
		}
		if t.Server != "" {
			chain = append(chain, s.settings.chain(t.Server, t.Synonyms, t.Default)...)
		} else {
			chain = append(chain, sourced{t.Name, t.Default, kmsg.ConfigSourceDefaultConfig})
		}
		all = append(all, described(t.Name, c.Value(t.Name), kmsg.ConfigType(t.Type), t.Doc, chain, synonyms, docs))
	}
	return all
}

// described builds one answer from a chain of sources, of which the first holds.
func described(name, value string, kind kmsg.ConfigType, doc string, chain []sourced, synonyms,
	docs bool) describedConfig {
	d := describedConfig{Name: name, Value: text(value), ConfigType: kind, Source: chain[0].source,
		IsDefault: chain[0].source == kmsg.ConfigSourceDefaultConfig}
	if docs {
		d.Documentation = text(doc)
	}
	if synonyms {
		for _, c := range chain {
			d.ConfigSynonyms = append(d.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
				Name: c.name, Value: text(c.value), Source: c.source})
		}
	}
	return d
}

// describeNode tells the server-wide settings: of this node all of them, of all nodes only what was changed at run
// time.
func (s *Server) describeNode(names []string, all, synonyms, docs bool) []describedConfig {
	changed := s.settings.changes(true)
	defaults := s.store.Defaults()
	var out []describedConfig
	add := func(name, value string, kind kmsg.ConfigType, doc string, dynamic bool, chain []sourced) {
		if !asked(names, name) {
			return
		}
		if all {
			v, ok := changed[name]
			if !ok {
				return
			}
			value, chain = v, []sourced{{name, v, kmsg.ConfigSourceDynamicDefaultBrokerConfig}}
		}
		d := described(name, value, kind, doc, chain, synonyms, docs)
		d.ReadOnly = !dynamic
		out = append(out, d)
	}
	conf := s.settings.conf()
	for _, t := range serverSettings {
		add(t.Name, t.get(conf), t.Type, t.Doc, t.Dynamic, s.settings.chain(t.Name, nil, ""))
	}
	for _, t := range store.Settings() {
		if t.Server != "" && !t.Hidden {
			add(t.Server, defaults.Value(t.Name), kmsg.ConfigType(t.Type), t.Doc, true,
				s.settings.chain(t.Server, t.Synonyms, t.Default))
		}
	}
	slices.SortFunc(out, func(a, b describedConfig) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s *Server) describeLogger(names []string) []describedConfig {
	if !asked(names, rootLogger) || s.cfg.LogLevel == nil {
		return nil
	}
	return []describedConfig{{Name: rootLogger, Value: text(s.cfg.LogLevel.Level().String()),
		Source: kmsg.ConfigSourceDynamicBrokerLoggerConfig}}
}

// handleListConfigResources tells which resources have settings: topics, this node and its logger. Version 0 asks for
// client metrics alone, of which there are none (KIP-714, KIP-1142).
func (s *Server) handleListConfigResources(r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if req.Version == 0 {
		return resp
	}
	types := slices.Compact(slices.Sorted(slices.Values(req.ResourceTypes)))
	if len(types) == 0 {
		types = []int8{int8(kmsg.ConfigResourceTypeTopic), int8(kmsg.ConfigResourceTypeBroker),
			int8(kmsg.ConfigResourceTypeBrokerLogger), int8(kmsg.ConfigResourceTypeClientMetrics),
			int8(kmsg.ConfigResourceTypeGroupConfig)}
	}
	add := func(name string, t int8) {
		resp.ConfigResources = append(resp.ConfigResources,
			kmsg.ListConfigResourcesResponseConfigResource{Name: name, Type: t})
	}
	for _, t := range types {
		switch kmsg.ConfigResourceType(t) {
		case kmsg.ConfigResourceTypeTopic:
			for name := range s.store.Catalog().ByName {
				add(name, t)
			}
		case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
			add(s.settings.nodeName(), t)
		case kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
			// none are kept
		default:
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			resp.ConfigResources = nil
			return resp
		}
	}
	return resp
}

// setLogger changes the level of the one logger; it is not stored.
func (s *Server) setLogger(ops []kmsg.IncrementalAlterConfigsRequestResourceConfig, validateOnly bool) *refused {
	level := slog.Level(0)
	change := false
	for _, op := range ops {
		if op.Name != rootLogger {
			return refuse(kerr.InvalidConfig, "Logger "+op.Name+" does not exist!")
		}
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			var ok bool
			if level, ok = parseLevel(*op.Value); !ok {
				return refuse(kerr.InvalidConfig, "Cannot set the log level of "+op.Name+" to "+*op.Value)
			}
			change = true
		case kmsg.IncrementalAlterConfigOpDelete:
			return refuse(kerr.InvalidRequest, "Removing the log level of the root logger is not allowed.")
		default:
			return refuse(kerr.InvalidRequest, "Only a set is allowed for the level of a logger.")
		}
	}
	if change && !validateOnly && s.cfg.LogLevel != nil {
		s.cfg.LogLevel.Set(level)
		s.log.Info("log level changed", "level", level.String())
	}
	return nil
}
