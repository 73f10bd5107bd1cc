package cases

import (
	"slices"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of answers about transactions and groups that the cases name.
const (
	codeNotCoordinator  = 16
	codeGeneration      = 22
	codeUnknownMember   = 25
	codeTxnState        = 48
	codeMapping         = 49
	codeTxnTimeout      = 50
	codeConcurrent      = 51
	codeMemberID        = 79
	codeFencedInstance  = 82
	codeUnstable        = 88
	codeProducerFenced  = 90
	codeTxnNotFound     = 105
	codeTxnAbortable    = 120
	txnDefaultTimeoutMs = 60_000
)

// generation is one of the two transaction protocols: transactions v1, where the client adds partitions itself, and v2,
// where a write adds them and every end raises the epoch.
type generation struct {
	name                             string
	v2                               bool
	produce, end, add, offsets, init int16 // request versions
}

var (
	txnV1 = generation{"TV1", false, 10, 4, 3, 3, 4}
	txnV2 = generation{"TV2", true, 12, 5, 3, 5, 5}
)

// generations runs a case for both protocols, each on a broker of its own.
func generations(t *testing.T, o options, fn func(t *testing.T, n *node, g generation)) {
	for _, g := range []generation{txnV1, txnV2} {
		t.Run(g.name, func(t *testing.T) { fn(t, launch(t, o), g) })
	}
}

// txn is a client of one transactional id. It calls over a connection of its own.
type txn struct {
	n   *node
	g   generation
	c   *rawclient.Client
	id  string
	who producer
	seq map[tp]int32 // next sequence of each partition
}

// INIT of the cases with a transactional id. It waits while an earlier transaction of the id is being ended, 20 s at
// the most.
func (n *node) INIT(g generation, id string) *txn {
	n.t.Helper()
	return n.INITFor(g, id, txnDefaultTimeoutMs)
}

// INITFor is INIT with a transaction timeout.
func (n *node) INITFor(g generation, id string, timeoutMs int32) *txn {
	n.t.Helper()
	n.coordinator(1, id)
	x := &txn{n: n, g: g, c: n.dial(), id: id}
	x.init(timeoutMs)
	return x
}

// again is the same client over a new connection: the broker was restarted.
func (x *txn) again() { x.n.t.Helper(); x.c = x.n.dial() }

// init calls InitProducerId until it is answered without a retriable code.
func (x *txn) init(timeoutMs int32) {
	x.n.t.Helper()
	var code int16
	x.retry(func() int16 {
		x.who, code = x.tryInit(timeoutMs, producer{-1, -1})
		return code
	})
	if code != 0 {
		x.n.t.Fatalf("InitProducerId %q: code %d", x.id, code)
	}
	x.seq = map[tp]int32{}
}

// tryInit is one InitProducerId, as the producer named (-1, -1: any).
func (x *txn) tryInit(timeoutMs int32, as producer) (producer, int16) {
	x.n.t.Helper()
	r := initRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis = x.g.init, &x.id, timeoutMs
	r.ProducerID, r.ProducerEpoch = as.id, as.epoch
	a := askOn[*kmsg.InitProducerIDResponse](x.n, x.c, r)
	return producer{a.ProducerID, a.ProducerEpoch}, a.ErrorCode
}

// retriable: the same request may pass later.
func retriable(code int16) bool {
	return code == codeConcurrent || code == codeLoading || code == 15 || code == codeNotCoordinator || code == 19
}

// retry calls until the answer is not retriable, for 20 s of the broker's time at the most.
func (x *txn) retry(call func() int16) int16 {
	x.n.t.Helper()
	var code int16
	for range 1000 {
		if code = call(); !retriable(code) {
			return code
		}
		x.n.pass(20 * time.Millisecond)
	}
	return code
}

// ADD of the cases: AddPartitionsToTxn, repeated while it answers 51. Under v2 a write adds, so it does nothing and
// returns 0.
func (x *txn) ADD(ps ...tp) int16 {
	x.n.t.Helper()
	if x.g.v2 {
		return 0
	}
	return x.retry(func() int16 { return x.addOnce(ps...) })
}

// addOnce is one AddPartitionsToTxn; the answer is the first code of any partition that is not 0.
func (x *txn) addOnce(ps ...tp) int16 {
	x.n.t.Helper()
	a := askOn[*kmsg.AddPartitionsToTxnResponse](x.n, x.c, x.addRequest(ps...))
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return 0
}

func (x *txn) addRequest(ps ...tp) *kmsg.AddPartitionsToTxnRequest {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = x.g.add, x.id, x.who.id, x.who.epoch
	for _, p := range ps {
		i := slices.IndexFunc(r.Topics, func(t kmsg.AddPartitionsToTxnRequestTopic) bool { return t.Topic == p.topic })
		if i < 0 {
			i = len(r.Topics)
			r.Topics = append(r.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: p.topic})
		}
		r.Topics[i].Partitions = append(r.Topics[i].Partitions, p.partition)
	}
	return r
}

// PT of the cases: one transactional batch of count records with the next sequence, repeated while it answers 51 or 19.
// The sequence moves on when it is stored.
func (x *txn) PT(p tp, count int) answer {
	x.n.t.Helper()
	var a answer
	x.retry(func() int16 { a = x.at(p, x.seq[p], count); return a.code })
	if a.code == 0 {
		x.seq[p] += int32(count)
	}
	return a
}

// at is one Produce of a transactional batch with a sequence of the caller's.
func (x *txn) at(p tp, seq int32, count int) answer {
	x.n.t.Helper()
	return x.send(p, x.batch(seq, count))
}

// batch makes a transactional batch of the present producer.
func (x *txn) batch(seq int32, count int) batch.View {
	return x.n.records(x.who, seq, count, shape{attrs: batch.AttrTransactional})
}

// send is one Produce of a batch under the transactional id.
func (x *txn) send(p tp, b batch.View) answer {
	x.n.t.Helper()
	r := rawclient.Produce(x.g.produce, p.topic, p.partition, b)
	r.TransactionID = &x.id
	return answerOf(askOn[*kmsg.ProduceResponse](x.n, x.c, r))
}

// must demands that a batch of count records is stored and returns its offset.
func (x *txn) must(p tp, count int) int64 {
	x.n.t.Helper()
	a := x.PT(p, count)
	if a.code != 0 {
		x.n.t.Fatalf("transactional write of %q to %v: %v", x.id, p, a)
	}
	return a.base
}

// END of the cases: EndTxn, repeated while it answers 51. Under v2 the client goes on as the producer of the answer.
func (x *txn) END(commit bool) int16 {
	x.n.t.Helper()
	return x.retry(func() int16 { return x.endOnce(commit) })
}

// endOnce is one EndTxn.
func (x *txn) endOnce(commit bool) int16 {
	x.n.t.Helper()
	next, code := x.endAs(x.who, commit)
	x.goOn(next, code)
	return code
}

// goOn takes the producer of an EndTxn's answer.
func (x *txn) goOn(next producer, code int16) {
	if x.g.v2 && code == 0 {
		x.who, x.seq = next, map[tp]int32{}
	}
}

// endAs is one EndTxn of a producer of the caller's.
func (x *txn) endAs(who producer, commit bool) (producer, int16) {
	x.n.t.Helper()
	a := askOn[*kmsg.EndTxnResponse](x.n, x.c, x.endRequest(who, commit))
	return producer{a.ProducerID, a.ProducerEpoch}, a.ErrorCode
}

func (x *txn) endRequest(who producer, commit bool) *kmsg.EndTxnRequest {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = x.g.end, x.id, who.id, who.epoch, commit
	return r
}

// ended demands that the transaction is ended.
func (x *txn) ended(commit bool) {
	x.n.t.Helper()
	if code := x.END(commit); code != 0 {
		x.n.t.Fatalf("EndTxn %q commit %v: code %d", x.id, commit, code)
	}
}

// commits is a whole transaction of count records in one partition, and the wait for its decision to show.
func (x *txn) commits(p tp, count int) {
	x.n.t.Helper()
	x.n.oneOf("ADD", x.ADD(p), 0)
	x.must(p, count)
	x.ended(true)
	x.n.decided(p)
}

// holds demands that read_committed shows so many records of a partition.
func (n *node) holds(p tp, want int) {
	n.t.Helper()
	if got := n.committed(p, 0, 1<<20); len(got) != want {
		n.t.Errorf("committed in %v: %v, want %d", p, got, want)
	}
}

// addOffsets is AddOffsetsToTxn, repeated while it answers 51. Under v2 it does nothing and returns 0.
func (x *txn) addOffsets(group string) int16 {
	x.n.t.Helper()
	if x.g.v2 {
		return 0
	}
	return x.retry(func() int16 { return x.addOffsetsOnce(group) })
}

// addOffsetsOnce is one AddOffsetsToTxn.
func (x *txn) addOffsetsOnce(group string) int16 {
	x.n.t.Helper()
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = 3, x.id, x.who.id, x.who.epoch
	r.Group = group
	return askOn[*kmsg.AddOffsetsToTxnResponse](x.n, x.c, r).ErrorCode
}

// member is what a TxnOffsetCommit says of the consumer.
type member struct {
	id         string
	instance   *string
	generation int32
}

var nobody = member{generation: -1}

// TOC of the cases: TxnOffsetCommit of one offset, repeated while it answers 51. The client has called addOffsets.
func (x *txn) TOC(group string, p tp, offset int64) int16 {
	x.n.t.Helper()
	return x.retry(func() int16 { return x.tocAs(group, nobody, p, offset) })
}

// tocAs is one TxnOffsetCommit of a member.
func (x *txn) tocAs(group string, m member, p tp, offset int64) int16 {
	x.n.t.Helper()
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.TransactionalID, r.Group = x.g.offsets, x.id, group
	r.ProducerID, r.ProducerEpoch = x.who.id, x.who.epoch
	r.MemberID, r.InstanceID, r.Generation = m.id, m.instance, m.generation
	r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: p.topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{
		{Partition: p.partition, Offset: offset, LeaderEpoch: -1},
	}}}
	return askOn[*kmsg.TxnOffsetCommitResponse](x.n, x.c, r).Topics[0].Partitions[0].ErrorCode
}

// commitOffset is a plain OffsetCommit by nobody in particular.
func (n *node) commitOffset(group string, p tp, offset int64) int16 {
	n.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 8, group, -1
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: p.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{
		{Partition: p.partition, Offset: offset, LeaderEpoch: -1},
	}}}
	return ask[*kmsg.OffsetCommitResponse](n, r).Topics[0].Partitions[0].ErrorCode
}

// OF of the cases: the committed offset of a group (-1: none) and the code.
func (n *node) OF(group string, p tp, stable bool) (int64, int16) {
	n.t.Helper()
	return n.fetchOffset(n.conn(), group, p, stable)
}

func (n *node) fetchOffset(c *rawclient.Client, group string, p tp, stable bool) (int64, int16) {
	n.t.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.Group, r.RequireStable = 7, group, stable
	r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: p.topic, Partitions: []int32{p.partition}}}
	a := askOn[*kmsg.OffsetFetchResponse](n, c, r)
	if a.ErrorCode != 0 {
		return -1, a.ErrorCode
	}
	return a.Topics[0].Partitions[0].Offset, a.Topics[0].Partitions[0].ErrorCode
}

// coordinator asks for the coordinator of a key until it is there: the internal topics are made by the first question.
func (n *node) coordinator(kind int8, key string) {
	n.t.Helper()
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.Version, r.CoordinatorType, r.CoordinatorKey = 3, kind, key
	n.until("a coordinator", func() bool { return ask[*kmsg.FindCoordinatorResponse](n, r).ErrorCode == 0 })
}

// stable is the last stable offset of a partition.
func (n *node) stable(p tp) int64 { n.t.Helper(); return n.offset(p, -1, committed) }

// decided waits until no transaction is open in a partition.
func (n *node) decided(ps ...tp) {
	n.t.Helper()
	for _, p := range ps {
		n.until("LSO = HW of "+p.String(), func() bool { return n.stable(p) == n.high(p) })
	}
}

// committed reads a partition from an offset on as a read_committed client does: batches of a listed producer are
// dropped from the first offset listed until its abort marker, markers always. maxBytes bounds each fetch.
func (n *node) committed(p tp, from int64, maxBytes int32) []stored {
	n.t.Helper()
	var out []stored
	for at := max(from, n.logStart(p)); ; {
		r := rawclient.Fetch(fetchVersion, p.topic, p.partition, at)
		r.IsolationLevel, r.Topics[0].Partitions[0].PartitionMaxBytes = committed, maxBytes
		f := ask[*kmsg.FetchResponse](n, r).Topics[0].Partitions[0]
		if f.ErrorCode != 0 || f.HighWatermark < 0 || f.LastStableOffset < 0 {
			n.t.Fatalf("read_committed %v at %d: code %d, HW %d, LSO %d", p, at, f.ErrorCode, f.HighWatermark,
				f.LastStableOffset)
		}
		got, next := n.filter(p, at, f)
		out = append(out, got...)
		if next < at {
			n.t.Fatalf("read_committed %v: at %d, the answer ends at %d", p, at, next)
		}
		if next == at {
			if at < f.LastStableOffset {
				n.t.Fatalf("read_committed %v: nothing at %d below the LSO %d", p, at, f.LastStableOffset)
			}
			return out
		}
		at = next
	}
}

// filter is what a client does with one answer: the records for the application and the next position.
func (n *node) filter(p tp, at int64, f fetched) (out []stored, next int64) {
	n.t.Helper()
	aborted := map[int64]bool{}
	list := f.AbortedTransactions
	if !slices.IsSortedFunc(list, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(a.FirstOffset - b.FirstOffset)
	}) {
		n.t.Errorf("%v at %d: aborted transactions %+v do not ascend", p, at, list)
	}
	next = at
	for rest := f.RecordBatches; len(rest) > 0; {
		v, r, err := batch.Next(rest)
		if err != nil {
			break // cut off by the size
		}
		for len(list) > 0 && list[0].FirstOffset <= v.LastOffset() {
			aborted[list[0].ProducerID], list = true, list[1:]
		}
		rest, next = r, v.LastOffset()+1
		pid, _ := v.Producer()
		if v.LastOffset() >= f.LastStableOffset {
			n.t.Fatalf("%v at %d: batch %d..%d at or above the LSO %d", p, at, v.BaseOffset(), v.LastOffset(),
				f.LastStableOffset)
		}
		if v.Attrs()&batch.AttrControl != 0 {
			if mk, err := batch.ParseMarker(v); err == nil && !mk.Commit {
				delete(aborted, pid)
			}
			continue
		}
		if v.Attrs()&batch.AttrTransactional != 0 && aborted[pid] {
			continue
		}
		for _, s := range (contents{start: at, raw: v}).records() {
			out = append(out, s)
		}
	}
	return out, next
}
