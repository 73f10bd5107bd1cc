package broker

import (
	"sekali/coord"

	"github.com/twmb/franz-go/pkg/kerr"
)

// verifyTxn asks the coordinator about partitions of a transaction, for TxnOffsetCommit: whether they are registered,
// or, with add, to register them (KIP-890). There is one code for each of in.TPs, as the coordinator gives it; txnCode
// makes the client's of it; nil: go on. It waits for the answer. durable is called exactly once, at any time and on any
// goroutine, if add is set and all codes are nil: when the registration is on disk, which the answer to the client must
// wait for (I8).
func (s *Server) verifyTxn(in coord.Part, add bool, durable func(*kerr.Error)) (codes []*kerr.Error) {
	return s.engine.Confirm(in, add, durable)
}

// offsetsTP is the partition that keeps a group's offsets, as a participant of transactions. It is zero while there are
// no internal topics; the coordinator refuses everything then.
func (s *Server) offsetsTP(group string) coord.TP {
	tp, _ := s.engine.OffsetsTP(group)
	return tp
}
