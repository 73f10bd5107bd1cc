package broker

import (
	"slices"

	"sekali/coord"
	"sekali/group"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// commitByID is the version from which OffsetCommit and OffsetFetch name topics by id, txnCommitByID that of
	// TxnOffsetCommit.
	commitByID    = 10
	txnCommitByID = 6
	// txnCommitAdds is the version from which TxnOffsetCommit registers the partition of the group (KIP-890).
	txnCommitAdds = 5
)

// commit is what an OffsetCommit or TxnOffsetCommit asks for: the partitions that exist go to the group.
type commit struct {
	in    group.CommitIn
	codes []int16 // of all partitions, in the order of the request
	at    []int   // in.TPs[i] is partition at[i] of the request
}

// offer adds one partition of the request.
func (c *commit) offer(t *store.Topic, ids bool, partition int32, o group.Offset) {
	_, code := logOf(t, partition, ids)
	if code == kerr.KafkaStorageError.Code {
		code = 0 // its offsets are kept elsewhere
	}
	if code == 0 {
		c.at = append(c.at, len(c.codes))
		c.in.TPs = append(c.in.TPs, group.TP{Topic: t.Name, ID: t.ID, Partition: partition})
		c.in.Offsets = append(c.in.Offsets, o)
	}
	c.codes = append(c.codes, code)
}

// settle puts the group's codes in their places, each translated.
func (c *commit) settle(codes []*kerr.Error, number func(*kerr.Error) int16) {
	for i, code := range codes {
		c.codes[c.at[i]] = number(code)
	}
}

// handleOffsetCommit stores positions of a group. The answer comes when they are durable.
func (s *Server) handleOffsetCommit(r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetCommitRequest)
	ids := req.Version >= commitByID
	c := commit{in: group.CommitIn{
		Member:  group.Member{Group: req.Group, Member: req.MemberID, Generation: req.Generation},
		Version: req.Version, PID: -1, Epoch: -1, RetainMs: -1,
	}}
	if req.Version >= 7 {
		c.in.Instance = orEmpty(req.InstanceID)
	}
	if req.Version <= 4 {
		c.in.RetainMs = req.RetentionTimeMillis
	}
	cat := s.store.Catalog()
	for _, t := range req.Topics {
		topic := topicOf(cat, ids, t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			o := group.Offset{Offset: p.Offset, LeaderEpoch: -1, Metadata: orEmpty(p.Metadata)}
			if req.Version >= 6 {
				o.LeaderEpoch = p.LeaderEpoch
			}
			c.offer(topic, ids, p.Partition, o)
		}
	}
	if len(c.in.TPs) == 0 {
		return commitAnswer(req, c.codes)
	}
	answer := r.later()
	s.engine.Groups().Commit(c.in, func(codes []*kerr.Error, _ uint64) {
		c.settle(codes, func(code *kerr.Error) int16 { return byID(codeNumber(code), ids) })
		answer(commitAnswer(req, c.codes))
	})
	return nil
}

// topicOf finds the topic a request names, by its id in the versions that have ids; nil: there is none.
func topicOf(cat *store.Catalog, ids bool, name string, id store.TopicID) *store.Topic {
	if ids {
		return cat.ByID[id]
	}
	return cat.ByName[name]
}

func commitAnswer(req *kmsg.OffsetCommitRequest, codes []int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range req.Topics {
		out := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions,
				kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: codes[0]})
			codes = codes[1:]
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// handleTxnOffsetCommit stages positions of a group in a transaction: they hold from its commit marker on (I12). The
// answer comes when they, and where the request registers the partition of the group the registration, are durable.
func (s *Server) handleTxnOffsetCommit(r *request) kmsg.Response {
	req := r.msg.(*kmsg.TxnOffsetCommitRequest)
	ids := req.Version >= txnCommitByID
	c := commit{in: group.CommitIn{
		Member:  group.Member{Group: req.Group, Generation: -1},
		Version: req.Version, PID: req.ProducerID, Epoch: req.ProducerEpoch, RetainMs: -1,
	}}
	if req.Version >= 3 {
		c.in.Generation, c.in.Member.Member = req.Generation, req.MemberID
		c.in.Instance = orEmpty(req.InstanceID)
	}
	cat := s.store.Catalog()
	for _, t := range req.Topics {
		topic := topicOf(cat, ids, t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			o := group.Offset{Offset: p.Offset, LeaderEpoch: -1, Metadata: orEmpty(p.Metadata)}
			if req.Version >= 2 {
				o.LeaderEpoch = p.LeaderEpoch
			}
			c.offer(topic, ids, p.Partition, o)
		}
	}
	if len(c.in.TPs) > 0 {
		c.settle(s.commitTxn(&c.in, req.TransactionalID), func(code *kerr.Error) int16 {
			return byID(txnCode(req.Key(), req.Version, code), ids)
		})
	}
	return txnCommitAnswer(req, c.codes)
}

func txnCommitAnswer(req *kmsg.TxnOffsetCommitRequest, codes []int16) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for _, t := range req.Topics {
		out := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions,
				kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: codes[0]})
			codes = codes[1:]
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// commitTxn stages the offsets, with the coordinator's consent where the transaction is not open in the group's
// partition yet (I8). Kafka asks the coordinator before it looks at the group; so its refusal goes before the group's,
// which is told by the first attempt.
func (s *Server) commitTxn(in *group.CommitIn, txnID string) []*kerr.Error {
	switch {
	case in.Group == "":
		return slices.Repeat([]*kerr.Error{kerr.InvalidGroupID}, len(in.TPs))
	case in.PID < 0:
		return slices.Repeat([]*kerr.Error{kerr.InvalidProducerIDMapping}, len(in.TPs))
	}
	codes, guard := s.commitOnce(in)
	if guard == 0 && !slices.ContainsFunc(codes, refusesMember) {
		return codes
	}
	registered := make(chan *kerr.Error, 1)
	add := in.Version >= txnCommitAdds
	part := coord.Part{TxnID: txnID, PID: in.PID, Epoch: in.Epoch, TPs: []coord.TP{s.offsetsTP(in.Group)}}
	asked := s.verifyTxn(part, add, func(code *kerr.Error) { registered <- code })
	if asked[0] != nil {
		return slices.Repeat(asked, len(in.TPs))
	}
	if guard != 0 {
		in.Guard = guard
		codes, guard = s.commitOnce(in)
		if guard != 0 && add { // void, though registered: the marker of the transaction before came between
			codes = slices.Repeat([]*kerr.Error{kerr.ConcurrentTransactions}, len(in.TPs))
		}
	}
	if !add {
		return codes
	}
	if code := <-registered; code != nil {
		s.engine.Doubt(part)
		return slices.Repeat([]*kerr.Error{code}, len(in.TPs))
	}
	return codes
}

func (s *Server) commitOnce(in *group.CommitIn) ([]*kerr.Error, uint64) {
	type answer struct {
		codes []*kerr.Error
		guard uint64
	}
	ch := make(chan answer, 1)
	s.engine.Groups().Commit(*in, func(codes []*kerr.Error, guard uint64) { ch <- answer{codes, guard} })
	a := <-ch
	return a.codes, a.guard
}

// refusesMember reports that the group does not take the sender of a transactional commit for a member of its present
// generation.
func refusesMember(code *kerr.Error) bool {
	switch code {
	case kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.GroupIDNotFound, kerr.FencedInstanceID, kerr.StaleMemberEpoch:
		return true
	}
	return false
}
