package broker

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"sekali/auth"
	"sekali/batch"
	"sekali/plog"
	"sekali/store"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// acks of a Produce request.
const (
	acksAll    = -1
	acksNone   = 0
	acksLeader = 1
)

// zstdVersion is the first version of Produce whose batches may be compressed with zstd (KIP-110).
const zstdVersion = 7

// adminClient may write to internal topics, as in Kafka.
const adminClient = "__admin_client"

// produce is one Produce request from its execution until its answer is complete. Every partition is a part; left
// counts those that are open and, while the request is executed, one more. It is not pooled: a log may hold the
// waiter of a part long after its timer answered for it.
type produce struct {
	c       *conn
	slot    *slot
	version int16
	acks    int16
	failed  bool // some partition was refused; executor only
	ends    time.Duration
	left    atomic.Int32
	parts   []part
	txn     []*txnPart // transactional batches, appended when all parts were looked at; executor only
	resp    kmsg.ProduceResponse

	// Room for the common case, so that it takes one allocation.
	part1  [1]part
	topic1 [1]kmsg.ProduceResponseTopic
	resp1  [1]kmsg.ProduceResponseTopicPartition
}

// part is one partition of a Produce request. Who wins taken fills the answer, then lets left fall; a lost claim
// changes nothing. waits counts what the answer waits for: the batch, and of one that registered its partition in a
// transaction the registration, too.
type part struct {
	p      *produce
	waiter plog.Waiter
	taken  atomic.Bool
	waits  atomic.Int32
	ids    bool // the request names topics by id
	code   int16
	out    plog.AppendOut
	answer *kmsg.ProduceResponseTopicPartition
}

// produce appends every partition of a request. It returns when the bytes are written; the answer is complete when
// they are as durable as acks asks.
func (s *Server) produce(c *conn, r *pending) {
	req := r.msg.(*kmsg.ProduceRequest)
	p := newProduce(c, r.slot, req)
	code := s.requestCode(req)
	if code == 0 && req.TransactionID != nil && transactional(req) &&
		!s.may(c, auth.Write, auth.TransactionalID, *req.TransactionID) {
		code = kerr.TransactionalIDAuthorizationFailed.Code
	}
	n := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := s.produceTopic(req.Version, t)
		code := code
		if code == 0 && !s.mayTopic(c, auth.Write, topic, t.Topic) {
			code = kerr.TopicAuthorizationFailed.Code
		}
		for j := range t.Partitions {
			q := &p.parts[n]
			n++
			if code != 0 {
				q.refuse(code, -1)
			} else {
				q.append(s, r.slot.hdr, topic, &t.Partitions[j])
			}
		}
	}
	if len(p.txn) > 0 {
		s.produceTxn(p, req)
	}
	c.drop(r)
	if p.acks == acksNone {
		p.slot.hangup = p.failed
		p.resp.Topics = nil
	} else {
		p.slot.msg = &p.resp
	}
	if p.left.Add(-1) == 0 {
		p.finish()
		return
	}
	c.await(p)
}

func newProduce(c *conn, sl *slot, req *kmsg.ProduceRequest) *produce {
	p := &produce{c: c, slot: sl, version: req.Version, acks: req.Acks}
	p.ends = sl.read + time.Duration(max(req.TimeoutMillis, 0))*time.Millisecond
	p.resp.Version = req.Version
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	p.left.Store(int32(n) + 1)
	answers := p.resp1[:]
	p.resp.Topics, p.parts = p.topic1[:], p.part1[:]
	if len(req.Topics) != 1 {
		p.resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	}
	if n != 1 {
		p.parts, answers = make([]part, n), make([]kmsg.ProduceResponseTopicPartition, n)
	}
	at := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		end := at + len(t.Partitions)
		p.resp.Topics[i] = kmsg.ProduceResponseTopic{
			Topic: t.Topic, TopicID: t.TopicID, Partitions: answers[at:end:end]}
		for j := range t.Partitions {
			q := &p.parts[at+j]
			q.p, q.ids, q.answer = p, req.Version >= 13, &answers[at+j]
			q.waits.Store(1)
			*q.answer = kmsg.NewProduceResponseTopicPartition()
			q.answer.Partition = t.Partitions[j].Partition
			q.answer.BaseOffset = -1
		}
		at = end
	}
	return p
}

// requestCode is what refuses the whole request (spec/batch.md 7, rows 1, 2 and 8).
func (s *Server) requestCode(req *kmsg.ProduceRequest) int16 {
	if req.Acks < acksAll || req.Acks > acksLeader {
		return kerr.InvalidRequiredAcks.Code
	}
	pid, epoch, seen := int64(-1), int16(-1), false
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			v, _, err := batch.Next(req.Topics[i].Partitions[j].Records)
			if err != nil || !v.Attrs().Transactional() {
				continue
			}
			p, e := v.Producer()
			same := !seen || p == pid && e == epoch
			if req.TransactionID != nil && same {
				pid, epoch, seen = p, e, true
				continue
			}
			if _, err := v.Validate(batch.Limits{}); err != nil {
				continue // damaged: what its header says is not believed, and the batch is refused by itself
			}
			if req.TransactionID == nil {
				return kerr.TransactionalIDAuthorizationFailed.Code
			}
			return kerr.InvalidProducerIDMapping.Code
		}
	}
	return 0
}

// transactional reports whether a batch of the request is part of a transaction.
func transactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if v, _, err := batch.Next(req.Topics[i].Partitions[j].Records); err == nil && v.Attrs().Transactional() {
				return true
			}
		}
	}
	return false
}

func (s *Server) produceTopic(version int16, t *kmsg.ProduceRequestTopic) *store.Topic {
	return topicOf(s.store.Catalog(), version >= 13, t.Topic, t.TopicID)
}

// append validates and appends one partition's batch; checks come in the order of spec/batch.md 7.
func (q *part) append(s *Server, h wire.Header, t *store.Topic, in *kmsg.ProduceRequestTopicPartition) {
	log, code := logOf(t, in.Partition, q.ids)
	if code != 0 {
		q.refuse(code, -1)
		return
	}
	v, rest, err := batch.Next(in.Records)
	switch {
	case err != nil:
		q.invalid(err, log)
		return
	case len(rest) > 0:
		q.invalid(errSeveral, log)
		return
	case t.Internal && h.ClientID != adminClient:
		q.refuse(kerr.InvalidTopicException.Code, log.Offsets().Start)
		return
	}
	checked, err := v.Validate(s.limitsOf(h.Version, &t.Config))
	if err != nil {
		q.invalid(err, log)
		return
	}
	if q.p.acks == acksAll && t.Config.MinISR > 1 {
		// One node is never two in-sync replicas. The refusal is retriable, so what the producer has behind this batch
		// must not be taken for its first.
		log.Refuse(v)
		q.refuse(kerr.NotEnoughReplicas.Code, log.Offsets().Start)
		return
	}
	ai := plog.AppendIn{Batch: v, Checked: checked, Origin: plog.Client, Version: h.Version}
	if v.Attrs().Transactional() {
		q.p.txn = append(q.p.txn, newTxnPart(q, log, t, in.Partition, ai))
		return
	}
	q.out, err = log.Append(ai)
	q.appended(s, log, v, store.TP{Topic: t.Name, Partition: in.Partition}, err)
}

// appended goes on with a batch once its log has answered.
func (q *part) appended(s *Server, log *plog.Log, v batch.View, tp store.TP, err error) {
	if err != nil {
		q.rejected(log, err)
		return
	}
	if !q.out.Duplicate {
		s.metrics.appended(len(v), int(v.Count()))
	} else if q.out.Mismatch {
		s.metrics.mismatched()
		s.complaints.warn("a producer used the sequence numbers of a stored batch for other bytes", "remote",
			q.p.c.remote,
			"client", clip(q.p.slot.hdr.ClientID), "topic", tp.Topic, "partition", tp.Partition, "offset", q.out.Base)
	}
	q.settle(log)
}

// limitsOf is what a client's batch is held against.
func (s *Server) limitsOf(version int16, c *store.TopicConfig) batch.Limits {
	l := batch.Limits{
		BytesMax:   c.BatchBytesMax,
		AllowZstd:  version >= zstdVersion,
		Deep:       true,
		DecodedMax: int(c.DecompressedBytesMax),
		RequireKey: c.Compact,
	}
	if c.AppendTime {
		return l
	}
	return l.Times(s.clk.Wall(), c.TimeBeforeMaxMs, c.TimeAfterMaxMs)
}

// rejected handles a refusal by the log. A proven duplicate whose offset nobody knows any more (46) vouches for stored
// data, so it waits like a duplicate (D3).
func (q *part) rejected(log *plog.Log, err error) {
	code := byID(codeOf(err), q.ids)
	if code != kerr.DuplicateSequenceNumber.Code {
		q.refuse(code, log.Offsets().Start)
		return
	}
	q.code, q.out.Base, q.out.Time, q.out.Start = code, -1, -1, log.Offsets().Start
	q.settle(log)
}

// settle lets the answer wait for the flush if acks asks for it. Without that it is given at once, and what this
// connection asks next that is no Produce waits for the flush instead: nothing is visible before it is durable (D2),
// and a client that looks for what it has written finds it.
func (q *part) settle(log *plog.Log) {
	if q.p.acks == acksAll {
		q.waiter.Fn = q.durable
		log.AfterDurable(q.out.Until, &q.waiter)
		return
	}
	q.p.c.unflushed.Add(1)
	q.waiter.Fn = q.flushed
	log.AfterDurable(q.out.Until, &q.waiter)
	q.landed()
}

// landed notes that one of the things the answer waits for is done; the last one gives it.
func (q *part) landed() {
	if q.waits.Add(-1) == 0 && !q.taken.Swap(true) {
		q.fill()
	}
}

// flushed is durable for a part that was answered before.
func (q *part) flushed(error) {
	if q.p.c.unflushed.Add(-1) == 0 {
		q.p.c.signal()
	}
}

// durable is called once the batch, or the original of a duplicate, is durable, or will never be. Any goroutine; it
// does not block.
func (q *part) durable(err error) {
	if err == nil {
		q.landed()
	} else {
		q.fail(q.lost(err))
	}
}

// fail answers a code that says nothing of the log, unless the part is answered already. Any goroutine.
func (q *part) fail(code int16) {
	if q.taken.Swap(true) {
		return
	}
	a := q.answer
	a.ErrorCode, a.BaseOffset, a.LogAppendTime, a.LogStartOffset = code, -1, -1, -1
	q.p.done()
}

// expire answers 7 for a part that is still open: the batch may become durable yet, and its retry is then a duplicate.
func (q *part) expire() { q.fail(kerr.RequestTimedOut.Code) }

// fill writes the answer from what the append gave.
func (q *part) fill() {
	a := q.answer
	a.ErrorCode, a.BaseOffset, a.LogAppendTime, a.LogStartOffset = q.code, q.out.Base, q.out.Time, q.out.Start
	q.p.done()
}

// refuse answers an error. The log start is told where clients judge 45 and 48 by it, and not with those errors that
// say nothing of the log (spec/batch.md 5).
func (q *part) refuse(code int16, start int64) {
	q.p.failed = true
	if q.taken.Swap(true) {
		return // its registration was lost meanwhile
	}
	switch code {
	case kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code, kerr.MessageTooLarge.Code,
		kerr.RecordListTooLarge.Code, kerr.CorruptMessage.Code, kerr.KafkaStorageError.Code, kerr.UnknownTopicID.Code:
		start = -1
	}
	q.answer.ErrorCode, q.answer.LogStartOffset = code, start
	q.p.done()
}

// invalid answers a batch that validation refused, with the record to blame where there is one (KIP-467, Produce 8
// on).
func (q *part) invalid(err error, log *plog.Log) {
	q.p.c.s.metrics.badRequest(badRecords)
	text := err.Error()
	q.answer.ErrorMessage = &text
	if r, ok := errors.AsType[*batch.RecordError](err); ok {
		q.answer.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{
			{RelativeOffset: r.Index, ErrorMessage: &text}}
	}
	q.refuse(batch.Code(err), log.Offsets().Start)
}

// done lets left fall; the last one completes the answer.
func (p *produce) done() {
	if p.left.Add(-1) == 0 {
		p.finish()
	}
}

// finish completes the answer; the writer sends it.
func (p *produce) finish() {
	s := p.c.s
	for i := range p.parts {
		if code := p.parts[i].answer.ErrorCode; code != 0 {
			s.metrics.produceError(code)
		}
	}
	s.metrics.produceLatency(s.clk.Mono() - p.slot.read)
	p.c.complete(p.slot)
	p.c.signal()
}

// await arms the timer of a connection for the earliest answer that is due. One timer serves all: requests are
// answered long before it as a rule.
func (c *conn) await(p *produce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.waits) && c.waits[n].left.Load() == 0 {
		n++
	}
	c.waits = append(slices.Delete(c.waits, 0, n), p)
	c.arm(p.ends)
}

// arm makes the timer fire at the given moment at the latest; under mu.
func (c *conn) arm(at time.Duration) {
	if c.alarm != 0 && c.alarm <= at {
		return
	}
	c.alarm = max(at, 1)
	d := at - c.s.clk.Mono()
	if c.timer == nil {
		c.timer = c.s.clk.AfterFunc(d, c.expire)
	} else {
		c.timer.Reset(d)
	}
}

// expire answers for all Produce requests whose time is up.
func (c *conn) expire() {
	now := c.s.clk.Mono()
	var late []*produce
	c.mu.Lock()
	c.alarm = 0
	kept := c.waits[:0]
	for _, p := range c.waits {
		switch {
		case p.left.Load() == 0:
		case p.ends <= now:
			late = append(late, p)
		default:
			kept = append(kept, p)
			c.arm(p.ends)
		}
	}
	clear(c.waits[len(kept):])
	c.waits = kept
	c.mu.Unlock()
	for _, p := range late {
		for i := range p.parts {
			p.parts[i].expire()
		}
	}
}

// lost is the code for a batch that was written and whose flush failed: the client must not take it as not stored.
func (q *part) lost(err error) int16 {
	if errors.Is(err, plog.ErrClosed) {
		return kerr.RequestTimedOut.Code
	}
	return byID(codeOf(err), q.ids)
}
