package coord

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tags of a value that are Kafka's (KIP-890, KIP-939).
const (
	tagPrevPID   = 0
	tagNextPID   = 1
	tagClientTV  = 2
	tagNextEpoch = 3
)

// Tags of a value that are ours alone; Kafka's own readers skip tags they do not know (spec/transactions.md 3).
const (
	tagLastEpoch = 1000 // int16: the epoch before the last transition
	tagTopicIDs  = 1001 // 16 bytes for each topic of the partition array, in its order
	tagRemaining = 1002 // int64 ms: what was left of the timeout in Ongoing, of the expiry in Empty and Complete*
)

// noRemaining stands for a record without tagRemaining: its time counts as fresh.
const noRemaining = -1

// Errors of a record of __transaction_state. Whoever reads a journal adds partition and offset.
var (
	// ErrRecord: the bytes are no record of the schemas of spec/transactions.md 3.1.
	ErrRecord = errors.New("coord: malformed transaction record")
	// ErrVersion: the value is of a version this program does not know. The load of its partition fails: the state of
	// an id must not be guessed.
	ErrVersion = errors.New("coord: unknown version of a transaction record")
	// ErrKey: the key is of a version this program does not know. Readers skip the record, as Kafka does.
	ErrKey = errors.New("coord: unknown kind of transaction record")
)

// encodeKey is the key, version 0, of an id's records.
func encodeKey(id string) []byte {
	b := make([]byte, 4, 4+len(id))
	binary.BigEndian.PutUint16(b[2:], uint16(len(id)))
	return append(b, id...)
}

// decodeKey gives the id of a key; ErrKey for a version other than 0.
func decodeKey(b []byte) (string, error) {
	id, err := keyID(b)
	return string(id), err
}

// keyID is decodeKey without a copy.
func keyID(b []byte) ([]byte, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: key of %d bytes", ErrRecord, len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != 0 {
		return nil, fmt.Errorf("%w: key version %d", ErrKey, v)
	}
	if len(b) < 4 || len(b) != 4+int(int16(binary.BigEndian.Uint16(b[2:]))) {
		return nil, fmt.Errorf("%w: key of %d bytes", ErrRecord, len(b))
	}
	return b[4:], nil
}

// encodeValue is the value of an id's record at version 1; remainingMs below 0 leaves its tag out.
func encodeValue(t *txn, remainingMs int64) []byte { return appendValue(nil, 1, t, remainingMs) }

// record is the record of an id as this server's transaction version has it: at level 0 the value is of version 0,
// which keeps neither previous and next producer id nor private tags.
func (s *shard) record(id string, t *txn, remainingMs int64) Record {
	version := int16(1)
	if s.c.cfg.TV < 1 {
		version = 0
	}
	n := *t
	n.updateMs = max(n.updateMs, s.c.clk.Wall()) // what is left of its time is as of now
	return Record{Key: encodeKey(id), Value: appendValue(nil, version, &n, remainingMs)}
}

// appendValue appends the value of t at the version given, 0 or 1. It is written by hand, unlike the reading, because
// every transaction writes three of them.
func appendValue(dst []byte, version int16, t *txn, remainingMs int64) []byte {
	if dst == nil {
		dst = make([]byte, 0, valueSize(t))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.pid))
	dst = binary.BigEndian.AppendUint16(dst, uint16(t.epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.timeoutMs))
	dst = append(dst, byte(t.state))
	topics := 0
	switch t.state {
	case Empty:
		topics = -1
	case Ongoing, PrepareCommit, PrepareAbort:
		for rest := t.tps; len(rest) > 0; topics++ {
			rest = rest[sameTopic(rest):]
		}
	}
	dst = appendLen(dst, version, 4, topics)
	for rest := t.tps; topics > 0; topics-- {
		n := sameTopic(rest)
		dst = appendLen(dst, version, 2, len(rest[0].Topic))
		dst = append(dst, rest[0].Topic...)
		dst = appendLen(dst, version, 4, n)
		for _, tp := range rest[:n] {
			dst = binary.BigEndian.AppendUint32(dst, uint32(tp.Partition))
		}
		if version > 0 {
			dst = append(dst, 0) // no tags
		}
		rest = rest[n:]
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.updateMs))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.startMs))
	if version > 0 {
		dst = appendTags(dst, t, remainingMs)
	}
	return dst
}

// valueSize is about what the value of t takes.
func valueSize(t *txn) int {
	n := 96
	for rest := t.tps; len(rest) > 0; {
		same := sameTopic(rest)
		n += len(rest[0].Topic) + 4*same + 32
		rest = rest[same:]
	}
	return n
}

// sameTopic counts the partitions of the first topic of tps, which is not empty.
func sameTopic(tps []TP) int {
	n := 1
	for n < len(tps) && tps[n].Topic == tps[0].Topic && tps[n].ID == tps[0].ID {
		n++
	}
	return n
}

// appendLen appends a length, -1 for null: plain in width bytes at version 0, compact else.
func appendLen(dst []byte, version int16, width, n int) []byte {
	switch {
	case version > 0:
		return binary.AppendUvarint(dst, uint64(n+1))
	case width == 2:
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// appendTags appends the tagged fields of a value, those of ours and those that were read and not known included.
func appendTags(dst []byte, t *txn, remainingMs int64) []byte {
	var ids []byte
	if t.state == Ongoing || t.state == PrepareCommit || t.state == PrepareAbort {
		ids = topicIDs(t.tps)
	}
	count := t.unknown.Len()
	for _, there := range [...]bool{
		t.prevPID != -1, t.nextPID != -1, t.clientTV != 0, t.nextEpoch != -1,
		t.lastEpoch != -1, ids != nil, remainingMs >= 0,
	} {
		if there {
			count++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	dst = appendTag64(dst, tagPrevPID, t.prevPID, t.prevPID != -1)
	dst = appendTag64(dst, tagNextPID, t.nextPID, t.nextPID != -1)
	dst = appendTag16(dst, tagClientTV, t.clientTV, t.clientTV != 0)
	dst = appendTag16(dst, tagNextEpoch, t.nextEpoch, t.nextEpoch != -1)
	if t.unknown.Len() > 0 { // tags ascend, and theirs may lie on either side of ours
		tags := privateTags(t, ids, remainingMs)
		return tags.AppendEach(dst)
	}
	dst = appendTag16(dst, tagLastEpoch, t.lastEpoch, t.lastEpoch != -1)
	if ids != nil {
		dst = binary.AppendUvarint(dst, tagTopicIDs)
		dst = binary.AppendUvarint(dst, uint64(len(ids)))
		dst = append(dst, ids...)
	}
	return appendTag64(dst, tagRemaining, remainingMs, remainingMs >= 0)
}

func appendTag64(dst []byte, tag uint64, v int64, there bool) []byte {
	if !there {
		return dst
	}
	dst = append(binary.AppendUvarint(dst, tag), 8)
	return binary.BigEndian.AppendUint64(dst, uint64(v))
}

func appendTag16(dst []byte, tag uint64, v int16, there bool) []byte {
	if !there {
		return dst
	}
	dst = append(binary.AppendUvarint(dst, tag), 2)
	return binary.BigEndian.AppendUint16(dst, uint16(v))
}

// topicIDs are the ids of the topics of tps in their order, nil if none is known.
func topicIDs(tps []TP) (ids []byte) {
	known := false
	for rest := tps; len(rest) > 0; rest = rest[sameTopic(rest):] {
		ids = append(ids, rest[0].ID[:]...)
		known = known || rest[0].ID != [16]byte{}
	}
	if !known {
		return nil
	}
	return ids
}

// privateTags are the tags of ours beside those that were read and not known.
func privateTags(t *txn, ids []byte, remainingMs int64) kmsg.Tags {
	var tags kmsg.Tags
	t.unknown.Each(tags.Set)
	if t.lastEpoch != -1 {
		tags.Set(tagLastEpoch, binary.BigEndian.AppendUint16(nil, uint16(t.lastEpoch)))
	}
	if ids != nil {
		tags.Set(tagTopicIDs, ids)
	}
	if remainingMs >= 0 {
		tags.Set(tagRemaining, binary.BigEndian.AppendUint64(nil, uint64(remainingMs)))
	}
	return tags
}

// decodeValue reads a value of version 0 or 1, which must not be a tombstone's. remainingMs is noRemaining if the
// record has none.
func decodeValue(b []byte) (t txn, remainingMs int64, err error) {
	t, remainingMs = newTxn(-1), noRemaining
	if len(b) < 2 {
		return t, remainingMs, fmt.Errorf("%w: value of %d bytes", ErrRecord, len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v < 0 || v > 1 {
		return t, remainingMs, fmt.Errorf("%w: value version %d", ErrVersion, v)
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(b); err != nil {
		return t, remainingMs, fmt.Errorf("%w: value: %w", ErrRecord, err)
	}
	if v.State < 0 || State(v.State) > CompleteAbort {
		return t, remainingMs, fmt.Errorf("%w: state %d", ErrRecord, v.State)
	}
	t.pid, t.epoch, t.timeoutMs, t.state = v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, State(v.State)
	t.updateMs, t.startMs = v.LastUpdateTimestamp, v.StartTimestamp
	t.prevPID, t.nextPID = v.PreviousProducerID, v.NextProducerID
	t.nextEpoch, t.clientTV = v.NextProducerEpoch, v.ClientTransactionVersion
	var ids []byte
	v.UnknownTags.Each(func(tag uint32, val []byte) {
		switch {
		case tag == tagLastEpoch && len(val) == 2:
			t.lastEpoch = int16(binary.BigEndian.Uint16(val))
		case tag == tagTopicIDs && len(val) == 16*len(v.Topics):
			ids = val
		case tag == tagRemaining && len(val) == 8 && val[0] < 0x80:
			remainingMs = int64(binary.BigEndian.Uint64(val))
		case tag >= tagLastEpoch && tag <= tagRemaining:
			err = fmt.Errorf("%w: tag %d of %d bytes", ErrRecord, tag, len(val))
		default:
			t.unknown.Set(tag, append([]byte(nil), val...))
		}
	})
	if err == nil && (t.state == Ongoing || t.state == PrepareCommit || t.state == PrepareAbort) {
		t.tps = participants(v.Topics, ids)
	}
	return t, remainingMs, err
}

// participants is the partition array as a sorted set; ids, if there are any, hold one topic id for each topic.
func participants(topics []kmsg.TxnMetadataValueTopic, ids []byte) []TP {
	n := 0
	for i := range topics {
		n += len(topics[i].Partitions)
	}
	tps := make([]TP, 0, n)
	for i := range topics {
		tp := TP{Topic: topics[i].Topic}
		if ids != nil {
			copy(tp.ID[:], ids[16*i:])
		}
		for _, tp.Partition = range topics[i].Partitions {
			tps = append(tps, tp)
		}
	}
	return sortTPs(tps)
}

// Logged is one record of __transaction_state in clear, for tools. Its Info is that of the record: TPs are all
// participants in Prepare states too, with an id of zeros if the record has none.
type Logged struct {
	Info
	Deleted     bool  // a tombstone: everything but TxnID is at its default
	PrevPID     int64 // -1: none
	NextPID     int64 // -1: none
	LastEpoch   int16 // -1: none
	NextEpoch   int16 // -1: none
	ClientTV    int16
	UpdatedMs   int64 // wall clock
	RemainingMs int64 // -1: none

	unknown kmsg.Tags
}

// DecodeRecord reads a record of __transaction_state. It returns an ErrKey for a record to be skipped, and ErrRecord or
// ErrVersion for one that a load refuses. Any number of callers may overlap; nothing of r is kept.
func DecodeRecord(r Record) (Logged, error) {
	id, err := decodeKey(r.Key)
	if err != nil {
		return Logged{}, err
	}
	t, remaining := newTxn(-1), int64(noRemaining)
	if r.Value != nil {
		if t, remaining, err = decodeValue(r.Value); err != nil {
			return Logged{}, fmt.Errorf("%q: %w", id, err)
		}
	}
	return Logged{
		Info: Info{TxnID: id, State: t.state, PID: t.pid, Epoch: t.epoch, TimeoutMs: t.timeoutMs, StartedMs: t.startMs,
			TPs: t.tps},
		Deleted: r.Value == nil, PrevPID: t.prevPID, NextPID: t.nextPID, LastEpoch: t.lastEpoch,
		NextEpoch: t.nextEpoch, ClientTV: t.clientTV, UpdatedMs: t.updateMs, RemainingMs: remaining, unknown: t.unknown,
	}, nil
}

// Record encodes l as the coordinator writes it at value version 1. What DecodeRecord returned decodes to the same
// again.
func (l Logged) Record() Record {
	r := Record{Key: encodeKey(l.TxnID)}
	if l.Deleted {
		return r
	}
	r.Value = encodeValue(l.txn(), l.RemainingMs)
	return r
}

// txn is what the coordinator makes of the record.
func (l *Logged) txn() *txn {
	return &txn{
		pid: l.PID, prevPID: l.PrevPID, nextPID: l.NextPID, epoch: l.Epoch, lastEpoch: l.LastEpoch,
		nextEpoch: l.NextEpoch, timeoutMs: l.TimeoutMs, state: l.State, tps: l.TPs, startMs: l.StartedMs,
		updateMs: l.UpdatedMs, clientTV: l.ClientTV, unknown: l.unknown, pending: noState,
	}
}
