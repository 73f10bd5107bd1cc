package broker

import (
	"errors"

	"sekali/batch"
	"sekali/pidmap"
	"sekali/plog"
	"sekali/store"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errSeveral refuses what Kafka would cut or merge: one batch for each partition of a request, nothing behind it.
var errSeveral = &batch.RecordError{Code: kerr.InvalidRecord.Code, Text: "more than one batch for a partition"}

// codeOf is the one place where errors of the storage packages become codes of the protocol. What it does not know is
// a storage error: clients retry it, and no client takes it for the proof that nothing was written (-1 makes some
// reuse sequence numbers).
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	if r, ok := errors.AsType[*plog.RejectError](err); ok {
		return verdictCode(r.Decision.Verdict)
	}
	if code := batch.Code(err); code != kerr.UnknownServerError.Code {
		return code
	}
	if code := catalogCode(err); code != 0 {
		return code
	}
	switch {
	case errors.Is(err, plog.ErrRange):
		return kerr.OffsetOutOfRange.Code
	case errors.Is(err, plog.ErrTooLarge):
		return kerr.RecordListTooLarge.Code
	case errors.Is(err, plog.ErrDeleted):
		return kerr.UnknownTopicOrPartition.Code
	case errors.Is(err, plog.ErrClosed):
		return kerr.NotLeaderForPartition.Code
	}
	return kerr.KafkaStorageError.Code
}

// catalogCode is the code of an error about topics, their names and settings; 0 for any other.
func catalogCode(err error) int16 {
	if _, ok := errors.AsType[*store.InvalidConfigError](err); ok {
		return kerr.InvalidConfig.Code
	}
	switch {
	case errors.Is(err, store.ErrUnknownTopic), errors.Is(err, store.ErrUnknownPartition):
		return kerr.UnknownTopicOrPartition.Code
	case errors.Is(err, store.ErrUnknownTopicID):
		return kerr.UnknownTopicID.Code
	case errors.Is(err, store.ErrTopicExists):
		return kerr.TopicAlreadyExists.Code
	case errors.Is(err, store.ErrInvalidName):
		return kerr.InvalidTopicException.Code
	case errors.Is(err, store.ErrPartitions), errors.Is(err, store.ErrTooMany):
		return kerr.InvalidPartitions.Code
	case errors.Is(err, store.ErrTwice):
		return kerr.InvalidRequest.Code
	case errors.Is(err, store.ErrClosed):
		return kerr.NotController.Code
	}
	return 0
}

// verdictCode is the decision table's column of codes (spec/producer-state.md 4).
func verdictCode(v pidmap.Verdict) int16 {
	switch v {
	case pidmap.DuplicateOld:
		return kerr.DuplicateSequenceNumber.Code
	case pidmap.Fenced:
		return kerr.InvalidProducerEpoch.Code
	case pidmap.TxnOpen, pidmap.TxnUnverified:
		return kerr.InvalidTxnState.Code
	case pidmap.Full:
		return kerr.KafkaStorageError.Code
	}
	return kerr.OutOfOrderSequenceNumber.Code
}

// byID turns the unknown topic of a request that names topics by name into that of one that names them by id.
func byID(code int16, ids bool) int16 {
	if ids && code == kerr.UnknownTopicOrPartition.Code {
		return kerr.UnknownTopicID.Code
	}
	return code
}

// logOf finds a partition of a topic, which may be nil. A partition that could not be opened is a storage error. An
// unknown partition of a known topic is 3 whether the topic was named by name or by id.
func logOf(t *store.Topic, partition int32, ids bool) (*plog.Log, int16) {
	if t == nil {
		return nil, byID(kerr.UnknownTopicOrPartition.Code, ids)
	}
	if partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	if log := t.Partitions[partition]; log != nil {
		return log, 0
	}
	return nil, kerr.KafkaStorageError.Code
}
