package broker

import (
	"cmp"
	"slices"

	"sekali/group"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleOffsetFetch tells what groups have committed: one group up to version 7, many above. What is not known, group,
// topic or partition, is no error but offset -1 (only an unknown topic id is one).
func (s *Server) handleOffsetFetch(r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version < 8 {
		s.fetchOneGroup(req, resp)
		return resp
	}
	cat := s.store.Catalog()
	seen := map[string]bool{}
	for i := range req.Groups {
		g := &req.Groups[i]
		if no := again(seen[g.Group]); no != nil {
			resp.Groups = append(resp.Groups, kmsg.OffsetFetchResponseGroup{Group: g.Group, ErrorCode: no.code})
			continue
		}
		seen[g.Group] = true
		in := group.FetchIn{Member: group.Member{Group: g.Group, Generation: -1}, StableOnly: req.RequireStable}
		if req.Version >= 9 {
			in.Member.Member, in.Generation = orEmpty(g.MemberID), g.MemberEpoch
		}
		out := kmsg.OffsetFetchResponseGroup{Group: g.Group}
		wanted := resolveTopics(g, req.Version >= commitByID, cat)
		in.TPs = partitionsOf(wanted)
		found, code := s.fetchOffsets(in)
		if out.ErrorCode = codeNumber(code); code == nil {
			if in.TPs == nil {
				wanted = allTopics(found)
			}
			for _, t := range wanted {
				out.Topics = append(out.Topics, t.answer(found, req.Version >= commitByID))
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// fetchOffsets asks the group; before there are internal topics none has committed anything, which is for
// FindCoordinator to change.
func (s *Server) fetchOffsets(in group.FetchIn) (map[group.TP]group.Fetched, *kerr.Error) {
	return await(func(done func(map[group.TP]group.Fetched, *kerr.Error)) { s.engine.Groups().Fetch(in, done) })
}

// wantedTopic is one topic of a request about offsets. unknown: its id is nobody's.
type wantedTopic struct {
	name       string
	id         [16]byte
	unknown    bool
	partitions []int32
}

// resolveTopics names the topics of a request; nil asks for all.
func resolveTopics(g *kmsg.OffsetFetchRequestGroup, ids bool, cat *store.Catalog) []wantedTopic {
	if g.Topics == nil {
		return nil
	}
	out := make([]wantedTopic, len(g.Topics))
	told := toldOnce{}
	for i, t := range g.Topics {
		out[i] = wantedTopic{name: t.Topic, id: t.TopicID, partitions: told.fresh(t.Topic, t.TopicID, t.Partitions)}
		if !ids {
			continue
		}
		if found := cat.ByID[t.TopicID]; found != nil {
			out[i].name = found.Name
		} else {
			out[i].unknown = true
		}
	}
	return out
}

// toldOnce keeps what a request has named: a partition it names again gets no second answer, which could be a thousand
// times as large as the request.
type toldOnce map[group.TP]bool

// fresh are the partitions that were not named before.
func (o toldOnce) fresh(topic string, id [16]byte, partitions []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(partitions), func(p int32) bool {
		tp := group.TP{Topic: topic, ID: id, Partition: p}
		was := o[tp]
		o[tp] = true
		return was
	})
}

// partitionsOf is what the group is asked for; nil asks for all.
func partitionsOf(topics []wantedTopic) []group.TP {
	if topics == nil {
		return nil
	}
	tps := []group.TP{}
	for i := range topics {
		t := &topics[i]
		for _, p := range t.partitions {
			if !t.unknown {
				tps = append(tps, t.tp(p))
			}
		}
	}
	return tps
}

func (t *wantedTopic) tp(partition int32) group.TP {
	return group.TP{Topic: t.name, ID: t.id, Partition: partition}
}

// allTopics orders everything a group has committed.
func allTopics(found map[group.TP]group.Fetched) []wantedTopic {
	tps := make([]group.TP, 0, len(found))
	for tp := range found {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, func(a, b group.TP) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	var out []wantedTopic
	for _, tp := range tps {
		if n := len(out); n == 0 || out[n-1].name != tp.Topic {
			out = append(out, wantedTopic{name: tp.Topic, id: tp.ID})
		}
		last := &out[len(out)-1]
		last.partitions = append(last.partitions, tp.Partition)
	}
	return out
}

// answer is the topic in the answer.
func (t *wantedTopic) answer(found map[group.TP]group.Fetched, ids bool) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.name}
	if ids {
		out.TopicID = t.id
	}
	for _, p := range t.partitions {
		part := kmsg.OffsetFetchResponseGroupTopicPartition{
			Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: text(""), ErrorCode: kerr.UnknownTopicID.Code}
		if !t.unknown {
			f, ok := found[t.tp(p)]
			if !ok { // of a topic that was made anew meanwhile
				f.Offset.Offset, f.LeaderEpoch = -1, -1
			}
			part.Offset, part.LeaderEpoch, part.Metadata = f.Offset.Offset, f.LeaderEpoch, text(f.Metadata)
			part.ErrorCode = fetchedCode(&f)
		}
		out.Partitions = append(out.Partitions, part)
	}
	return out
}

func fetchedCode(f *group.Fetched) int16 {
	if f.Unstable {
		return kerr.UnstableOffsetCommit.Code
	}
	return 0
}

// fetchOneGroup answers the versions that know one group. Version 1 has no place for the error of the group: every
// partition bears it.
func (s *Server) fetchOneGroup(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	var topics []wantedTopic
	if req.Topics != nil {
		topics = make([]wantedTopic, len(req.Topics))
	}
	told := toldOnce{}
	for i, t := range req.Topics {
		topics[i] = wantedTopic{name: t.Topic, partitions: told.fresh(t.Topic, [16]byte{}, t.Partitions)}
	}
	in := group.FetchIn{Member: group.Member{Group: req.Group, Generation: -1}, TPs: partitionsOf(topics),
		StableOnly: req.RequireStable}
	found, code := s.fetchOffsets(in)
	if resp.ErrorCode = codeNumber(code); code != nil && req.Version >= 2 {
		return
	}
	if topics == nil {
		topics = allTopics(found)
	}
	for _, t := range topics {
		out := kmsg.OffsetFetchResponseTopic{Topic: t.name}
		for _, p := range t.partitions {
			part := kmsg.OffsetFetchResponseTopicPartition{
				Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: text(""), ErrorCode: codeNumber(code)}
			if f, ok := found[t.tp(p)]; ok {
				part.Offset, part.LeaderEpoch, part.Metadata = f.Offset.Offset, f.LeaderEpoch, text(f.Metadata)
				part.ErrorCode = fetchedCode(&f)
			}
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
}
