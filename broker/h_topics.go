package broker

import (
	"errors"
	"fmt"
	"slices"

	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// plannedTopic is a topic of a CreateTopics request: what to create, or why not.
type plannedTopic struct {
	spec store.NewTopic
	no   *refused
	made *store.Topic
}

// handleCreateTopics creates topics in one durable step; a Metadata request after the answer sees them. With
// validateOnly every check is made and nothing else. timeoutMs is not looked at: the work is done before the answer.
func (s *Server) handleCreateTopics(r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	plans := s.planTopics(req)
	if !req.ValidateOnly {
		s.createPlanned(plans)
	}
	for i := range plans {
		resp.Topics = append(resp.Topics, s.createdTopic(&plans[i]))
	}
	return resp
}

// planTopics checks every topic of the request. A name that occurs more than once is refused, and told once.
func (s *Server) planTopics(req *kmsg.CreateTopicsRequest) []plannedTopic {
	count := map[string]int{}
	for _, t := range req.Topics {
		count[t.Topic]++
	}
	var plans []plannedTopic
	total := int64(0)
	for _, t := range req.Topics {
		if count[t.Topic] == 0 {
			continue
		}
		plan := plannedTopic{spec: store.NewTopic{Name: t.Topic}}
		if count[t.Topic] > 1 {
			count[t.Topic] = 0
			plan.no = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			plan.spec, plan.no = s.planTopic(&t)
		}
		if plan.no == nil {
			if total += int64(plan.spec.Partitions); total > partitionsPerRequestMax {
				plan.no = tooMany()
			}
		}
		plans = append(plans, plan)
	}
	return plans
}

// tooMany refuses to make so many partitions in one request.
func tooMany() *refused {
	return refuse(kerr.PolicyViolation, fmt.Sprintf("More than %d partitions in one request.", partitionsPerRequestMax))
}

// planTopic checks one topic in the order Kafka does: name and existence, settings, then counts and assignments.
func (s *Server) planTopic(t *kmsg.CreateTopicsRequestTopic) (store.NewTopic, *refused) {
	spec := store.NewTopic{Name: t.Topic, Partitions: 1}
	if reserved(t.Topic) {
		return spec, refuse(kerr.InvalidRequest, "Topic "+t.Topic+" is internal and made by the node alone.")
	}
	if err := s.store.Validate(spec); errors.Is(err, store.ErrInvalidName) || errors.Is(err, store.ErrTopicExists) {
		return spec, refuseErr(err)
	}
	set := map[string]string{}
	for _, c := range t.Configs {
		if c.Value == nil {
			return spec, refuse(kerr.InvalidConfig, "Null value not supported for topic config "+c.Name)
		}
		set[c.Name] = *c.Value
	}
	config, err := store.ParseTopic(set, s.store.Defaults())
	if err != nil {
		return spec, refuseErr(err)
	}
	spec.Config = config
	var no *refused
	if spec.Partitions, no = s.plannedPartitions(t); no != nil {
		return spec, no
	}
	if spec.Partitions > partitionsPerRequestMax {
		return spec, tooMany()
	}
	if err := s.store.Validate(spec); err != nil {
		return spec, refuseErr(err)
	}
	return spec, nil
}

// plannedPartitions is the number of partitions asked for, by count or by assignment.
func (s *Server) plannedPartitions(t *kmsg.CreateTopicsRequestTopic) (int32, *refused) {
	if len(t.ReplicaAssignment) > 0 {
		return s.assignedPartitions(t)
	}
	switch {
	case t.ReplicationFactor == 0 || t.ReplicationFactor < -1:
		return 0, refuse(kerr.InvalidReplicationFactor,
			"Replication factor must be larger than 0, or -1 to use the default value.")
	case t.NumPartitions == 0 || t.NumPartitions < -1:
		return 0, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case t.ReplicationFactor > 1:
		return 0, refuse(kerr.InvalidReplicationFactor,
			fmt.Sprintf("Replication factor %d on one node: only 1 can be had.", t.ReplicationFactor))
	case t.NumPartitions == -1:
		return s.settings.conf().NumPartitions, nil
	}
	return t.NumPartitions, nil
}

// assignedPartitions checks a manual assignment: partitions 0 to n-1 once each, and this node as the only replica.
func (s *Server) assignedPartitions(t *kmsg.CreateTopicsRequestTopic) (int32, *refused) {
	if t.ReplicationFactor != -1 || t.NumPartitions != -1 {
		return 0, refuse(kerr.InvalidRequest,
			"A manual partition assignment was specified, but partitions or replication factor were not set to -1.")
	}
	seen := map[int32]bool{}
	for _, a := range t.ReplicaAssignment {
		if seen[a.Partition] {
			return 0, refuse(kerr.InvalidReplicaAssignment,
				fmt.Sprintf("Partition %d is assigned more than once.", a.Partition))
		}
		seen[a.Partition] = true
		if no := s.checkReplicas(a.Replicas); no != nil {
			return 0, no
		}
	}
	for i := range int32(len(seen)) {
		if !seen[i] {
			return 0, refuse(kerr.InvalidReplicaAssignment, "Partitions should be a consecutive 0-based sequence.")
		}
	}
	return int32(len(seen)), nil
}

func (s *Server) checkReplicas(replicas []int32) *refused {
	if len(replicas) != 1 || replicas[0] != s.nodeID {
		return refuse(kerr.InvalidReplicaAssignment,
			fmt.Sprintf("Replicas %v: the only possible assignment is [%d].", replicas, s.nodeID))
	}
	return nil
}

// createPlanned creates all that was not refused in one step. If that fails because of one topic (somebody created it
// meanwhile, say) the others are created one by one, so that each gets the answer that is its own.
func (s *Server) createPlanned(plans []plannedTopic) {
	var todo []*plannedTopic
	var specs []store.NewTopic
	for i := range plans {
		if plans[i].no == nil {
			todo, specs = append(todo, &plans[i]), append(specs, plans[i].spec)
		}
	}
	if len(todo) == 0 {
		return
	}
	made, err := s.store.CreateTopics(specs...)
	for i, p := range todo {
		switch one := (*store.TopicError)(nil); {
		case err == nil:
			p.made = made[i]
		case len(todo) > 1 && errors.As(err, &one):
			p.made, p.no = s.createOne(p.spec)
		default:
			p.no = refuseErr(err)
		}
	}
	if err != nil {
		s.complaints.warn("topics were not created", "err", err)
	}
}

func (s *Server) createOne(spec store.NewTopic) (*store.Topic, *refused) {
	made, err := s.store.CreateTopics(spec)
	if err != nil {
		return nil, refuseErr(err)
	}
	return made[0], nil
}

// createdTopic is the answer for one topic; versions 5 and up tell its settings, also when it was only validated.
func (s *Server) createdTopic(p *plannedTopic) kmsg.CreateTopicsResponseTopic {
	t := kmsg.CreateTopicsResponseTopic{Topic: p.spec.Name, NumPartitions: -1, ReplicationFactor: -1,
		Configs: []kmsg.CreateTopicsResponseTopicConfig{}}
	if p.no != nil {
		t.ErrorCode, t.ErrorMessage = p.no.code, text(p.no.why)
		return t
	}
	if p.made != nil {
		t.TopicID = p.made.ID
	}
	t.NumPartitions, t.ReplicationFactor = p.spec.Partitions, 1
	for _, c := range s.describeTopic(p.spec.Config, nil, false, false) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsResponseTopicConfig{
			Name: c.Name, Value: c.Value, ReadOnly: c.ReadOnly, Source: int8(c.Source), IsSensitive: c.IsSensitive})
	}
	return t
}

// handleDeleteTopics deletes topics by name or, from version 6 on, by id. A topic is gone from Metadata when the answer
// leaves. Each topic may be named once.
func (s *Server) handleDeleteTopics(r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := req.Topics
	if req.Version < 6 {
		asked = nil
		for _, name := range req.TopicNames {
			asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: text(name)})
		}
	}
	catalog := s.store.Catalog()
	names, ids, targets := map[string]int{}, map[store.TopicID]int{}, map[store.TopicID]int{}
	for _, t := range asked {
		if t.Topic != nil {
			names[*t.Topic]++
		} else {
			ids[t.TopicID]++
		}
		if found := findTopic(catalog, t); found != nil {
			targets[found.ID]++
		}
	}
	for _, t := range asked {
		out := kmsg.DeleteTopicsResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		var no *refused
		switch {
		case t.Topic != nil && names[*t.Topic] == 0 || t.Topic == nil && ids[t.TopicID] == 0:
			continue // told already
		case t.Topic != nil && names[*t.Topic] > 1:
			names[*t.Topic] = 0
			no = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		case t.Topic == nil && t.TopicID != [16]byte{} && ids[t.TopicID] > 1:
			ids[t.TopicID] = 0
			no = refuse(kerr.InvalidRequest, "Duplicate topic id.")
		default:
			var gone *store.Topic
			if gone, no = s.deleteTopic(catalog, t, targets); gone != nil {
				out.Topic, out.TopicID = text(gone.Name), gone.ID
			}
		}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
			if no.code == kerr.TopicDeletionDisabled.Code && req.Version < 3 {
				out.ErrorCode = kerr.InvalidRequest.Code
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func findTopic(c *store.Catalog, t kmsg.DeleteTopicsRequestTopic) *store.Topic {
	if t.Topic != nil {
		return c.ByName[*t.Topic]
	}
	return c.ByID[t.TopicID]
}

// deleteTopic deletes one topic; it returns the topic it was about, if there is one.
func (s *Server) deleteTopic(c *store.Catalog, t kmsg.DeleteTopicsRequestTopic, targets map[store.TopicID]int) (
	*store.Topic, *refused) {
	byID := t.TopicID != [16]byte{}
	switch {
	case t.Topic == nil && !byID:
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case t.Topic != nil && byID:
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case s.settings.conf().KeepTopics:
		return nil, refuse(kerr.TopicDeletionDisabled, "Topic deletion is disabled.")
	}
	found := findTopic(c, t)
	switch {
	case found == nil && byID:
		return nil, refuse(kerr.UnknownTopicID, kerr.UnknownTopicID.Description)
	case found == nil:
		return nil, refuse(kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Description)
	case targets[found.ID] > 1:
		return found, refuse(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
	case found.Internal:
		return found, refuse(kerr.InvalidRequest, "Topic "+found.Name+" is internal and cannot be deleted.")
	}
	if err := s.store.DeleteTopic(found.ID, s.engine.BeforeDelete); err != nil {
		s.complaints.warn("topic was not deleted", "topic", found.Name, "err", err)
		return found, refuseErr(err)
	}
	return found, nil
}

// handleCreatePartitions raises the number of partitions of topics. With validateOnly every check is made and nothing
// else.
func (s *Server) handleCreatePartitions(r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	count := map[string]int{}
	for _, t := range req.Topics {
		count[t.Topic]++
	}
	for _, t := range req.Topics {
		out := kmsg.CreatePartitionsResponseTopic{Topic: t.Topic}
		var no *refused
		switch count[t.Topic] {
		case 0:
			continue // told already
		case 1:
			no = s.createPartitions(&t, req.ValidateOnly)
		default:
			count[t.Topic] = 0
			no = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		}
		if no != nil {
			out.ErrorCode, out.ErrorMessage = no.code, text(no.why)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (s *Server) createPartitions(t *kmsg.CreatePartitionsRequestTopic, validateOnly bool) *refused {
	topic := s.store.Catalog().ByName[t.Topic]
	if topic == nil {
		return refuse(kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Description)
	}
	have := int32(len(topic.Partitions))
	switch {
	case topic.Internal:
		return refuse(kerr.InvalidRequest, "Topic "+t.Topic+" is internal; its partitions are fixed.")
	case t.Count == have:
		return refuse(kerr.InvalidPartitions, fmt.Sprintf("Topic already has %d partition(s).", have))
	case t.Count < have:
		return refuse(kerr.InvalidPartitions, fmt.Sprintf(
			"The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, have, t.Count))
	case t.Count-have > partitionsPerRequestMax:
		return tooMany()
	case t.Assignment != nil && len(t.Assignment) != int(t.Count-have):
		return refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf(
			"Attempted to add %d additional partition(s), but only %d assignment(s) were specified.",
			t.Count-have, len(t.Assignment)))
	}
	if i := slices.IndexFunc(t.Assignment, func(a kmsg.CreatePartitionsRequestTopicAssignment) bool {
		return s.checkReplicas(a.Replicas) != nil
	}); i >= 0 {
		return s.checkReplicas(t.Assignment[i].Replicas)
	}
	add := s.store.AddPartitions
	if validateOnly {
		add = s.store.ValidatePartitions
	}
	if err := add(t.Topic, t.Count); err != nil {
		s.complaints.warn("partitions were not added", "topic", t.Topic, "total", t.Count, "err", err)
		return refuseErr(err)
	}
	return nil
}
