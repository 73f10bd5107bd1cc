package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// actor is one transactional id in one row of a table: it keeps what the coordinator told it last. Every request it
// makes is a step with the row's name and a number.
type actor struct {
	s     *side
	row   string
	n     int
	id    string // transactional.id
	topic string // of its own, with two partitions
	pid   int64
	epoch int16
	two   bool // requests are of the second generation of the protocol

	probed bool  // the topic is known to the coordinator of groups
	base   int32 // the first epoch of the group, from which epochs are told
}

// longest keeps old batches and the markers of today in one segment.
const longest = "9223372036854775807"

// tableRow is a line of a decision table.
type tableRow struct {
	name string
	run  func(a *actor)
}

// table makes a script of rows. With both, each row runs once in each generation of the protocol.
func table(name string, both bool, rows []tableRow) script {
	return script{name, func(s *side) {
		s.coordinated()
		for i, r := range rows {
			for _, two := range []bool{false, true} {
				a := &actor{s: s, row: r.name, id: fmt.Sprintf("%s-%d", name, i), two: two, pid: -1, epoch: -1}
				if both {
					a.row, a.id = fmt.Sprintf("%s, TV%d", r.name, a.generation()), fmt.Sprintf("%s-%d", a.id, a.generation())
				} else if two {
					continue
				}
				a.topic = a.id
				s.topic(a.topic, 2, "segment.ms", longest)
				r.run(a)
			}
		}
	}}
}

func (a *actor) generation() int {
	if a.two {
		return 2
	}
	return 1
}

// see records a step.
func (a *actor) see(what, format string, args ...any) {
	a.n++
	a.s.see(fmt.Sprintf("%s: %d. %s", a.row, a.n, what), format, args...)
}

// coordinated waits until the coordinators have been found and have loaded what they have.
func (s *side) coordinated() {
	s.until(func() bool {
		for _, kind := range []int8{0, 1} {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.Version, r.CoordinatorType, r.CoordinatorKeys = 4, kind, []string{"a"}
			resp, ok := ask[*kmsg.FindCoordinatorResponse](s, r)
			if !ok || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != 0 {
				return false
			}
		}
		init := kmsg.NewPtrInitProducerIDRequest()
		init.Version, init.TransactionTimeoutMillis, init.TransactionalID = 4, 60_000, kmsg.StringPtr("coordinated")
		i, _ := ask[*kmsg.InitProducerIDResponse](s, init)
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Version, fetch.Group = 5, "coordinated"
		f, _ := ask[*kmsg.OffsetFetchResponse](s, fetch)
		return i.ErrorCode == 0 && f.ErrorCode == 0
	})
}

// pidText names producer ids in the order in which they were met.
func (s *side) pidText(pid int64) string {
	if pid < 0 {
		return fmt.Sprint(pid)
	}
	if s.pids == nil {
		s.pids = map[int64]string{}
	}
	if s.pids[pid] == "" {
		s.pids[pid] = fmt.Sprintf("P%d", len(s.pids)+1)
	}
	return s.pids[pid]
}

// initAs sends InitProducerId with the pair that the producer is to have, and keeps the answer.
func (a *actor) initAs(version int16, pid int64, epoch int16, ms int32) int16 {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionTimeoutMillis, r.TransactionalID = version, ms, &a.id
	r.ProducerID, r.ProducerEpoch = pid, epoch
	resp, ok := ask[*kmsg.InitProducerIDResponse](a.s, r)
	what := fmt.Sprintf("init v%d", version)
	if pid != -1 || epoch != -1 {
		what += fmt.Sprintf(" as %s/%d", a.s.pidText(pid), epoch)
	}
	if !ok {
		a.see(what, "%s", a.s.failure)
		return -1
	}
	a.see(what, "code %d, %s/%d", resp.ErrorCode, a.s.pidText(resp.ProducerID), resp.ProducerEpoch)
	if resp.ErrorCode == 0 {
		a.pid, a.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return resp.ErrorCode
}

// init sends InitProducerId until nothing is in the way any more. How often depends on the broker.
func (a *actor) init() *actor {
	a.s.until(func() bool {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.Version, r.TransactionTimeoutMillis, r.TransactionalID = 4, 60_000, &a.id
		resp, _ := ask[*kmsg.InitProducerIDResponse](a.s, r)
		if resp.ErrorCode == 51 {
			return false
		}
		a.see("init", "code %d, %s/%d", resp.ErrorCode, a.s.pidText(resp.ProducerID), resp.ProducerEpoch)
		a.pid, a.epoch = resp.ProducerID, resp.ProducerEpoch
		return true
	})
	return a
}

// addAs sends AddPartitionsToTxn for partitions of the topic.
func (a *actor) addAs(version int16, pid int64, epoch int16, topic string, partitions ...int32) {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = version, a.id, pid, epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	what := fmt.Sprintf("add v%d %s%s", version, fmt.Sprint(partitions), a.as(pid, epoch))
	resp, ok := ask[*kmsg.AddPartitionsToTxnResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	var all []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all = append(all, fmt.Sprintf("%d code %d", p.Partition, p.ErrorCode))
		}
	}
	slices.Sort(all)
	a.see(what, "%s", strings.Join(all, ", "))
}

// as names a pair where it is not that of the actor.
func (a *actor) as(pid int64, epoch int16) string {
	if pid == a.pid && epoch == a.epoch {
		return ""
	}
	if pid == a.pid {
		return fmt.Sprintf(" as epoch %+d", epoch-a.epoch)
	}
	return " as another"
}

func (a *actor) add(partitions ...int32) *actor {
	a.addAs(3, a.pid, a.epoch, a.topic, partitions...)
	return a
}

// verify sends AddPartitionsToTxn as a broker does.
func (a *actor) verify(version int16, only bool, pid int64, epoch int16, partitions ...int32) {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version = version
	x := kmsg.NewAddPartitionsToTxnRequestTransaction()
	x.TransactionalID, x.ProducerID, x.ProducerEpoch, x.VerifyOnly = a.id, pid, epoch, only
	t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	t.Topic, t.Partitions = a.topic, partitions
	x.Topics = append(x.Topics, t)
	r.Transactions = append(r.Transactions, x)
	resp, ok := ask[*kmsg.AddPartitionsToTxnResponse](a.s, r)
	what := fmt.Sprintf("add v%d, verify only %v, %v%s", version, only, partitions, a.as(pid, epoch))
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	all := []string{fmt.Sprintf("code %d", resp.ErrorCode)}
	for _, x := range resp.Transactions {
		for _, t := range x.Topics {
			for _, p := range t.Partitions {
				all = append(all, fmt.Sprintf("%d code %d", p.Partition, p.ErrorCode))
			}
		}
	}
	slices.Sort(all[1:])
	a.see(what, "%s", strings.Join(all, ", "))
}

// addOffsets sends AddOffsetsToTxn.
func (a *actor) addOffsets(version int16, group string, pid int64, epoch int16) {
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = version, a.id, pid, epoch, group
	resp, ok := ask[*kmsg.AddOffsetsToTxnResponse](a.s, r)
	what := fmt.Sprintf("add offsets v%d of %q%s", version, group, a.as(pid, epoch))
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	a.see(what, "code %d", resp.ErrorCode)
}

// writeAs sends a batch of n records to partition p, transactional unless plain.
func (a *actor) writeAs(version int16, id *string, plain bool, p int32, pid int64, epoch int16, seq int32, n int) {
	m := by(pid, epoch, seq, n)
	if !plain {
		m.attrs |= attrTransactional
	}
	r := rawclient.Produce(version, a.topic, p, m.bytes())
	r.TransactionID = id
	what := fmt.Sprintf("write v%d to %d, %d from %d%s", version, p, n, seq, a.as(pid, epoch))
	switch {
	case plain:
		what += ", plain"
	case id == nil:
		what += ", no id"
	}
	resp, ok := ask[*kmsg.ProduceResponse](a.s, r)
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	a.see(what, "%s", produceText(resp))
}

// write sends a batch of the transaction, in the generation of the actor.
func (a *actor) write(p int32, seq int32, n int) *actor {
	version := int16(11)
	if a.two {
		version = 12
	}
	a.writeAs(version, &a.id, false, p, a.pid, a.epoch, seq, n)
	return a
}

// begin opens a transaction with one record in partition p.
func (a *actor) begin(p int32, seq int32) *actor {
	if !a.two {
		a.add(p)
	}
	return a.write(p, seq, 1)
}

// endAs sends EndTxn and, with version 5, keeps the pair of the next transaction.
func (a *actor) endAs(version int16, pid int64, epoch int16, commit bool) {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = version, a.id, pid, epoch, commit
	resp, ok := ask[*kmsg.EndTxnResponse](a.s, r)
	what := fmt.Sprintf("%s v%d%s", map[bool]string{true: "commit", false: "abort"}[commit], version, a.as(pid, epoch))
	if !ok {
		a.see(what, "%s", a.s.failure)
		return
	}
	text := fmt.Sprintf("code %d", resp.ErrorCode)
	if version >= 5 {
		text += fmt.Sprintf(", %s/%d", a.s.pidText(resp.ProducerID), resp.ProducerEpoch)
		if resp.ErrorCode == 0 {
			a.pid, a.epoch = resp.ProducerID, resp.ProducerEpoch
		}
	}
	a.see(what, "%s", text)
}

// end ends the transaction and waits until nothing of it is under way.
func (a *actor) end(commit bool) *actor {
	version := int16(4)
	if a.two {
		version = 5
	}
	a.endAs(version, a.pid, a.epoch, commit)
	return a.decided()
}

// describe asks for the state of the transactional id.
func (a *actor) describe(id string) *kmsg.DescribeTransactionsResponseTransactionState {
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = []string{id}
	resp, _ := ask[*kmsg.DescribeTransactionsResponse](a.s, r)
	return &resp.TransactionStates[0]
}

// decided waits until the transactional id is in none of the states between two others.
func (a *actor) decided() *actor {
	a.s.until(func() bool { return !strings.HasPrefix(a.describe(a.id).State, "Prepare") })
	return a
}

// state records what DescribeTransactions tells.
func (a *actor) state() *actor {
	d := a.decided().describe(a.id)
	var parts []string
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			part := fmt.Sprintf("%s-%d", t.Topic, p)
			if t.Topic == "__consumer_offsets" { // how many partitions it has is a setting
				part = t.Topic
			}
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	a.see("state", "code %d, %s, %s/%d, timeout %d, start %s, partitions %v", d.ErrorCode, d.State,
		a.s.pidText(d.ProducerID), d.ProducerEpoch, d.TimeoutMillis, when(d.StartTimestamp), parts)
	return a
}

// log records every batch of a partition with its producer, and what a read_committed fetch from its start tells.
func (a *actor) log(p int32) *actor {
	r := rawclient.Fetch(12, a.topic, p, 0)
	r.IsolationLevel = 1
	open, ok := ask[*kmsg.FetchResponse](a.s, r)
	r.IsolationLevel = 0
	all, ok2 := ask[*kmsg.FetchResponse](a.s, r)
	if !ok || !ok2 {
		a.see("log", "%s", a.s.failure)
		return a
	}
	got := open.Topics[0].Partitions[0]
	text := fmt.Sprintf("code %d, stable %d of %d", got.ErrorCode, got.LastStableOffset, got.HighWatermark)
	for _, t := range got.AbortedTransactions {
		text += fmt.Sprintf(", %s aborted from %d", a.s.pidText(t.ProducerID), t.FirstOffset)
	}
	for b := all.Topics[0].Partitions[0].RecordBatches; len(b) > 0; {
		var one string
		one, b = a.s.batchText(b)
		text += "; " + one
	}
	a.see("log", "%s", text)
	return a
}

// batchText describes the first batch of b by its offsets, its producer and, of a marker, by its kind.
func (s *side) batchText(b []byte) (text string, rest []byte) {
	be := binary.BigEndian
	if len(b) < headerSize || len(b) < 12+int(be.Uint32(b[8:])) {
		return "torn", nil
	}
	n := 12 + int(be.Uint32(b[8:]))
	base, attrs := int64(be.Uint64(b)), be.Uint16(b[21:])
	text = fmt.Sprintf("%d..%d %s/%d from %d", base, base+int64(be.Uint32(b[23:])), s.pidText(int64(be.Uint64(b[43:]))),
		int16(be.Uint16(b[51:])), int32(be.Uint32(b[53:])))
	switch {
	case attrs&attrControl != 0 && n == headerSize+17:
		kind := map[uint16]string{0: "abort", 1: "commit"}[be.Uint16(b[headerSize+7:])]
		text += fmt.Sprintf(" marker %s, attributes %#x", kind, attrs)
	case attrs&attrControl != 0:
		text += fmt.Sprintf(" control batch of %d bytes", n)
	case attrs&attrTransactional == 0:
		text += " plain"
	}
	return text, b[n:]
}
