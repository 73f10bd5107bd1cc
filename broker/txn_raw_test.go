package broker

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"sekali/batch"
	"sekali/coord"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawProducer is a producer of one transactional id that decides everything itself.
type rawProducer struct {
	t     *testing.T
	c     *rawclient.Client
	id    string
	pid   int64
	epoch int16
}

// transact begins a transactional id with InitProducerId of the given version.
func (n *node) transact(id string) *rawProducer {
	n.t.Helper()
	x := &rawProducer{t: n.t, c: n.dial(), id: id}
	resp := x.init(4, -1, -1)
	if resp.ErrorCode != 0 {
		n.t.Fatalf("init %q: code %d", id, resp.ErrorCode)
	}
	x.pid, x.epoch = resp.ProducerID, resp.ProducerEpoch
	return x
}

func (x *rawProducer) init(version int16, pid int64, epoch int16) *kmsg.InitProducerIDResponse {
	x.t.Helper()
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis = version, &x.id, 60_000
	r.ProducerID, r.ProducerEpoch = pid, epoch
	for { // the end of the last transaction
		resp := call[*kmsg.InitProducerIDResponse](x.t, x.c, r)
		if resp.ErrorCode != kerr.ConcurrentTransactions.Code {
			return resp
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// add registers partition 0 of topics and returns the codes.
func (x *rawProducer) add(version int16, topics ...string) (codes []int16) {
	x.t.Helper()
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch = version, x.id, x.pid, x.epoch
	for _, t := range topics {
		r.Topics = append(r.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: t, Partitions: []int32{0}})
	}
	for _, t := range call[*kmsg.AddPartitionsToTxnResponse](x.t, x.c, r).Topics {
		codes = append(codes, t.Partitions[0].ErrorCode)
	}
	return codes
}

// produce writes one record of the transaction to partition 0.
func (x *rawProducer) produce(version int16, topic string, seq int32) kmsg.ProduceResponseTopicPartition {
	x.t.Helper()
	r := rawclient.Produce(version, topic, 0, rawclient.Batch(batch.AttrTransactional, x.pid, x.epoch, seq, 1, 9))
	r.TransactionID = &x.id
	return produced(x.t, x.c, r)
}

// end ends the transaction; from version 5 on a success moves the client on to the next epoch.
func (x *rawProducer) end(version int16, commit bool) *kmsg.EndTxnResponse {
	x.t.Helper()
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = version, x.id, x.pid, x.epoch, commit
	resp := call[*kmsg.EndTxnResponse](x.t, x.c, r)
	if version >= 5 && resp.ErrorCode == 0 {
		x.pid, x.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return resp
}

// lastStable is the last stable offset of partition 0.
func lastStable(t *testing.T, c *rawclient.Client, topic string) int64 {
	t.Helper()
	return fetched(t, c, rawclient.Fetch(12, topic, 0, 0)).LastStableOffset
}

// TestTransactionV1: the explicit protocol of older clients, committed and aborted, what each step refuses, and a retry
// of a stored batch after its commit.
func TestTransactionV1(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	n.topic("t", 1, nil)
	x := n.transact("x")
	for version, want := range map[int16]int16{7: 48, 10: 48, 11: 120} {
		if p := x.produce(version, "t", 0); p.ErrorCode != want {
			t.Errorf("Produce %d before AddPartitionsToTxn: code %d, want %d", version, p.ErrorCode, want)
		}
	}
	if resp := x.end(3, true); resp.ErrorCode != kerr.InvalidTxnState.Code {
		t.Errorf("commit of nothing: code %d", resp.ErrorCode)
	}
	for i, commit := range []bool{true, false, true} {
		seq, first := int32(2*i), int64(3*i)
		if codes := x.add(3, "t"); codes[0] != 0 {
			t.Fatalf("add: %v", codes)
		}
		for k := range int64(2) {
			if p := x.produce(10, "t", seq+int32(k)); p.ErrorCode != 0 || p.BaseOffset != first+k {
				t.Fatalf("transaction %d: code %d at %d", i, p.ErrorCode, p.BaseOffset)
			}
		}
		if got := lastStable(t, x.c, "t"); got != first {
			t.Errorf("open: stable %d, want %d", got, first)
		}
		if resp := x.end(4, commit); resp.ErrorCode != 0 || resp.ProducerID != -1 {
			t.Errorf("end: %+v", resp)
		}
		if got := lastStable(t, x.c, "t"); got != first+3 {
			t.Errorf("ended: stable %d, want %d", got, first+3)
		}
		for _, again := range []bool{commit, !commit} {
			want := int16(0)
			if again != commit {
				want = kerr.InvalidTxnState.Code
			}
			if resp := x.end(4, again); resp.ErrorCode != want {
				t.Errorf("end repeated, commit=%v: code %d, want %d", again, resp.ErrorCode, want)
			}
		}
		if p := x.produce(10, "t", seq+1); p.ErrorCode != 0 || p.BaseOffset != first+1 {
			t.Errorf("a retry behind its end: code %d at %d, want 0 at %d", p.ErrorCode, p.BaseOffset, first+1)
		}
	}
	if got := high(t, x.c, "t"); got != 9 {
		t.Errorf("high watermark %d, want 9", got)
	}
}

// TestTransactionV2: partitions are added by Produce 12, every end raises the epoch, an old epoch gets 47, and a
// repeated end the same answer.
func TestTransactionV2(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	n.topic("t", 1, nil)
	x := n.transact("x")
	for i, commit := range []bool{true, false, true} {
		first := int64(2 * i)
		if p := x.produce(12, "t", 0); p.ErrorCode != 0 || p.BaseOffset != first {
			t.Fatalf("transaction %d: code %d at %d", i, p.ErrorCode, p.BaseOffset)
		}
		before := *x
		resp := x.end(5, commit)
		if resp.ErrorCode != 0 || x.pid != before.pid || x.epoch != before.epoch+1 {
			t.Fatalf("end: %+v", resp)
		}
		if again := before.end(5, commit); again.ErrorCode != 0 || before.epoch != x.epoch {
			t.Errorf("end repeated: %+v, want epoch %d", again, x.epoch)
		}
		before.epoch--
		for version := range int16(3) {
			if p := before.produce(10+version, "t", 1); p.ErrorCode != kerr.InvalidProducerEpoch.Code {
				t.Errorf("Produce %d of an ended epoch: code %d, want 47", 10+version, p.ErrorCode)
			}
		}
		if got := lastStable(t, x.c, "t"); got != first+2 {
			t.Errorf("stable %d, want %d", got, first+2)
		}
	}
	if resp := x.end(5, true); resp.ErrorCode != kerr.InvalidTxnState.Code || resp.ProducerID != -1 {
		t.Errorf("commit of nothing: %+v", resp)
	}
	epoch := x.epoch
	if resp := x.end(5, false); resp.ErrorCode != 0 || x.epoch != epoch+1 {
		t.Errorf("abort of nothing: %+v", resp)
	}
}

// TestFencedCodesByVersion: who has been fenced is told by a code its version knows.
func TestFencedCodesByVersion(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	n.topic("t", 1, nil)
	old := n.transact("x")
	n.transact("x")
	for version := int16(0); version <= 3; version++ {
		want := kerr.ProducerFenced.Code
		if version < 2 {
			want = kerr.InvalidProducerEpoch.Code
		}
		if codes := old.add(version, "t"); codes[0] != want {
			t.Errorf("AddPartitionsToTxn %d: %v, want %d", version, codes, want)
		}
		if resp := old.end(version, true); resp.ErrorCode != want {
			t.Errorf("EndTxn %d: %d, want %d", version, resp.ErrorCode, want)
		}
		r := kmsg.NewPtrAddOffsetsToTxnRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = version, "x", old.pid, old.epoch, "g"
		if resp := call[*kmsg.AddOffsetsToTxnResponse](t, old.c, r); resp.ErrorCode != want {
			t.Errorf("AddOffsetsToTxn %d: %d, want %d", version, resp.ErrorCode, want)
		}
	}
	for version, want := range map[int16]int16{3: 47, 4: 90, 5: 90} {
		if resp := old.init(version, old.pid, old.epoch+7); resp.ErrorCode != want || resp.ProducerID != -1 {
			t.Errorf("InitProducerId %d: %+v, want %d", version, resp, want)
		}
	}
	for version := int16(3); version <= 12; version++ {
		if p := old.produce(version, "t", 0); p.ErrorCode != kerr.InvalidProducerEpoch.Code {
			t.Errorf("Produce %d: %d, want 47", version, p.ErrorCode)
		}
	}
}

// TestTxnCodeTable is section 5.0 of the specification: the codes that old versions do not know.
func TestTxnCodeTable(t *testing.T) {
	for _, w := range []struct {
		key, version int16
		code         *kerr.Error
		want         int16
	}{
		{wire.KeyInitProducerID, 3, kerr.ProducerFenced, 47}, {wire.KeyInitProducerID, 4, kerr.ProducerFenced, 90},
		{wire.KeyAddPartitionsToTxn, 1, kerr.ProducerFenced, 47}, {wire.KeyAddPartitionsToTxn, 2, kerr.ProducerFenced, 90},
		{wire.KeyAddPartitionsToTxn, 4, kerr.TransactionAbortable, 120},
		{wire.KeyAddPartitionsToTxn, 5, kerr.TransactionAbortable, 120},
		{wire.KeyAddOffsetsToTxn, 3, kerr.TransactionAbortable, 48},
		{wire.KeyAddOffsetsToTxn, 4, kerr.TransactionAbortable, 120},
		{wire.KeyEndTxn, 3, kerr.TransactionAbortable, 48}, {wire.KeyEndTxn, 4, kerr.TransactionAbortable, 120},
		{wire.KeyEndTxn, 5, kerr.ConcurrentTransactions, 51},
		{wire.KeyTxnOffsetCommit, 6, kerr.ProducerFenced, 47},
		{wire.KeyTxnOffsetCommit, 3, kerr.TransactionAbortable, 48},
		{wire.KeyTxnOffsetCommit, 4, kerr.TransactionAbortable, 120},
		{wire.KeyTxnOffsetCommit, 1, kerr.CoordinatorLoadInProgress, 15},
		{wire.KeyTxnOffsetCommit, 2, kerr.CoordinatorLoadInProgress, 14},
		{wire.KeyEndTxn, 0, kerr.CoordinatorLoadInProgress, 14},
		{wire.KeyEndTxn, 0, nil, 0},
	} {
		if got := txnCode(w.key, w.version, w.code); got != w.want {
			t.Errorf("key %d version %d, %v: %d, want %d", w.key, w.version, w.code, got, w.want)
		}
	}
	for _, w := range []struct {
		code            *kerr.Error
		v10, v11, later int16
	}{
		{kerr.TransactionAbortable, 48, 120, 120}, {kerr.ConcurrentTransactions, 19, 19, 51},
		{kerr.CoordinatorLoadInProgress, 19, 19, 19}, {kerr.CoordinatorNotAvailable, 19, 19, 19},
		{kerr.NotCoordinator, 19, 19, 19}, {kerr.ProducerFenced, 47, 47, 47},
		{kerr.InvalidProducerIDMapping, 49, 49, 49}, {kerr.MessageTooLarge, 48, 120, 120},
	} {
		for version, want := range map[int16]int16{3: w.v10, 10: w.v10, 11: w.v11, 12: w.later, 13: w.later} {
			if got := produceTxnCode(version, w.code); got != want {
				t.Errorf("Produce %d, %v: %d, want %d", version, w.code, got, want)
			}
		}
	}
}

// TestAddPartitions: nothing is registered if one partition cannot be, clients may not name internal topics, and from
// version 4 on many transactions are verified or added in one request.
func TestAddPartitions(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	n.topic("a", 1, nil)
	n.topic("b", 1, nil)
	x := n.transact("x")
	if got := x.add(3, "a", "nowhere", "__consumer_offsets"); !slices.Equal(got, []int16{55, 3, 29}) {
		t.Errorf("codes %v, want 55, 3 and 29", got)
	}
	if p := x.produce(11, "a", 0); p.ErrorCode != kerr.TransactionAbortable.Code {
		t.Errorf("registered beside a refusal: %d", p.ErrorCode)
	}
	if got := x.add(0, "a"); got[0] != 0 {
		t.Errorf("codes %v", got)
	}
	y := n.transact("y")
	many := func(version int16, verify bool, of ...*rawProducer) (got [][]int16) {
		r := kmsg.NewPtrAddPartitionsToTxnRequest()
		r.Version = version
		for _, z := range of {
			tx := kmsg.AddPartitionsToTxnRequestTransaction{
				TransactionalID: z.id, ProducerID: z.pid, ProducerEpoch: z.epoch, VerifyOnly: verify}
			for _, topic := range []string{"a", "b"} {
				tx.Topics = append(tx.Topics,
					kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: topic, Partitions: []int32{0}})
			}
			r.Transactions = append(r.Transactions, tx)
		}
		resp := call[*kmsg.AddPartitionsToTxnResponse](t, x.c, r)
		if resp.ErrorCode != 0 || len(resp.Topics) != 0 || len(resp.Transactions) != len(of) {
			t.Fatalf("%+v", resp)
		}
		for i, tx := range resp.Transactions {
			if tx.TransactionalID != of[i].id {
				t.Errorf("answer %d is of %q", i, tx.TransactionalID)
			}
			got = append(got, []int16{tx.Topics[0].Partitions[0].ErrorCode, tx.Topics[1].Partitions[0].ErrorCode})
		}
		return got
	}
	for _, w := range []struct {
		version int16
		verify  bool
		want    string
	}{
		{4, true, "[[0 120] [120 120]]"}, {5, true, "[[0 120] [120 120]]"}, {5, false, "[[0 0] [0 0]]"},
		{5, true, "[[0 0] [0 0]]"},
	} {
		if got := fmt.Sprint(many(w.version, w.verify, x, y)); got != w.want {
			t.Errorf("version %d, verify %v: %s, want %s", w.version, w.verify, got, w.want)
		}
	}
	stranger := &rawProducer{id: "z", pid: 7}
	if got := fmt.Sprint(many(5, true, stranger), many(5, false, stranger)); got != "[[49 49]] [[49 49]]" {
		t.Errorf("of nobody: %s", got)
	}
}

// TestReadCommitted is section 9: what each isolation level may read, the list of aborted transactions, the wake of a
// waiting fetch by a marker, and offsets by time.
func TestReadCommitted(t *testing.T) {
	n := start(t, nil)
	n.coordinate()
	n.topic("t", 1, nil)
	x, y := n.transact("x"), n.transact("y")
	for _, step := range []struct {
		who    *rawProducer
		commit bool
	}{{x, false}, {x, true}} {
		step.who.produce(12, "t", 0)
		step.who.end(5, step.commit)
	}
	y.produce(12, "t", 0) // offset 4, open
	put(t, x.c, "t", 1, 9)
	at := func(level int8, version int16, offset int64) kmsg.FetchResponseTopicPartition {
		r := rawclient.Fetch(version, "t", 0, offset)
		r.IsolationLevel = level
		return fetched(t, x.c, r)
	}
	for _, w := range []struct {
		level   int8
		offset  int64
		batches int
		aborted []int64
	}{
		{0, 0, 6, nil}, {1, 0, 4, []int64{0}}, {7, 0, 4, []int64{0}}, {1, 2, 2, []int64{}}, {1, 4, 0, []int64{}},
		{1, 6, 0, []int64{}}, {0, 5, 1, nil},
	} {
		p := at(w.level, 12, w.offset)
		if p.ErrorCode != 0 || p.LastStableOffset != 4 || p.HighWatermark != 6 ||
			len(batches(t, p.RecordBatches)) != w.batches {
			t.Errorf("isolation %d from %d: code %d, stable %d, high %d, %d batches, want %d", w.level, w.offset, p.ErrorCode,
				p.LastStableOffset, p.HighWatermark, len(batches(t, p.RecordBatches)), w.batches)
		}
		if (p.AbortedTransactions == nil) != (w.aborted == nil) || len(p.AbortedTransactions) != len(w.aborted) {
			t.Errorf("isolation %d from %d: aborted %+v, want %v", w.level, w.offset, p.AbortedTransactions, w.aborted)
		}
		for i, a := range p.AbortedTransactions {
			if a.FirstOffset != w.aborted[i] || a.ProducerID != x.pid {
				t.Errorf("aborted %+v, want %v", a, w.aborted)
			}
		}
	}
	if p := at(1, 12, 7); p.ErrorCode != kerr.OffsetOutOfRange.Code || p.AbortedTransactions != nil {
		t.Errorf("behind the end: %+v", p)
	}
	latest := func(level int8, ms int64) int64 {
		r := kmsg.NewPtrListOffsetsRequest()
		r.Version, r.ReplicaID, r.IsolationLevel = 7, -1, level
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t",
			Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: ms}}}}
		return call[*kmsg.ListOffsetsResponse](t, x.c, r).Topics[0].Partitions[0].Offset
	}
	if a, b, c := latest(0, -1), latest(1, -1), latest(7, -1); a != 6 || b != 4 || c != 4 {
		t.Errorf("latest %d, %d and %d, want 6, 4 and 4", a, b, c)
	}
	wait := rawclient.Fetch(12, "t", 0, 4)
	wait.IsolationLevel, wait.MaxWaitMillis = 1, 20_000
	reader := n.dial()
	if err := reader.Send(wait); err != nil {
		t.Fatal(err)
	}
	if !silent(reader, 50*time.Millisecond) {
		t.Fatal("a fetch of what is not decided was answered")
	}
	y.end(5, true)
	p := receive[*kmsg.FetchResponse](t, reader, wait).Topics[0].Partitions[0]
	if len(batches(t, p.RecordBatches)) != 3 || p.LastStableOffset != 7 {
		t.Errorf("woken with %d batches, stable %d, want 3 and 7", len(batches(t, p.RecordBatches)), p.LastStableOffset)
	}
}

// TestTxnOffsetsPartition: AddOffsetsToTxn registers the partition that keeps the group's offsets.
func TestTxnOffsetsPartition(t *testing.T) {
	n := start(t, nil)
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.Version, r.TransactionalID, r.Group = 3, "x", "g"
	c := n.dial()
	if resp := call[*kmsg.AddOffsetsToTxnResponse](t, c, r); resp.ErrorCode != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("without coordinators: %d", resp.ErrorCode)
	}
	n.coordinate()
	x := n.transact("x")
	r.ProducerID, r.ProducerEpoch = x.pid, x.epoch
	if resp := call[*kmsg.AddOffsetsToTxnResponse](t, c, r); resp.ErrorCode != 0 {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	d := describeTxn(t, c, "x")
	want := n.offsetsTP("g")
	if len(d.Topics) != 1 || d.Topics[0].Topic != want.Topic ||
		!slices.Equal(d.Topics[0].Partitions, []int32{want.Partition}) {
		t.Errorf("registered %+v, want %+v", d.Topics, want)
	}
	if d.State != coord.Ongoing.String() || d.TimeoutMillis != 60_000 || d.ProducerID != x.pid || d.StartTimestamp <= 0 {
		t.Errorf("%+v", d)
	}
}

func describeTxn(t *testing.T, c *rawclient.Client, id string) kmsg.DescribeTransactionsResponseTransactionState {
	t.Helper()
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = []string{id}
	return call[*kmsg.DescribeTransactionsResponse](t, c, r).TransactionStates[0]
}

// TestRegistrationIsWaitedFor: a batch that registered its partition is acknowledged only when the registration is
// durable, too (I8). If that fails, the answer is an error clients retry, whatever acks they asked for.
func TestRegistrationIsWaitedFor(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	defer n.abandon() // the logs of two shards are offline
	n.coordinate()
	for _, acks := range []int16{-1, 1} {
		topic, id := fmt.Sprintf("t%d", acks), fmt.Sprintf("x%d", acks)
		n.topic(topic, 1, nil)
		x := n.node.transact(id)
		r := rawclient.Produce(12, topic, 0, rawclient.Batch(batch.AttrTransactional, x.pid, x.epoch, 0, 1, 9))
		r.TransactionID, r.Acks = &x.id, acks
		shard := coord.Partition(id, 50)
		remove := fs.FailSync(fmt.Sprintf("/data/__transaction_state-%d/*.log", shard), 0, syscall.EIO)
		if p := produced(t, x.c, r); p.ErrorCode != kerr.NotEnoughReplicas.Code || p.BaseOffset != -1 {
			t.Errorf("acks %d: code %d at %d, want 19", acks, p.ErrorCode, p.BaseOffset)
		}
		remove()
		if end := n.store.Catalog().ByName[topic].Partitions[0].Offsets().End; end != 1 {
			t.Errorf("acks %d: %d records in the log, want the one that was not acknowledged", acks, end)
		}
		// The log knows the transaction, but not whether the coordinator does: nothing of it is answered for meanwhile.
		for _, seq := range []int32{0, 1} {
			if p := x.produce(12, topic, seq); p.ErrorCode != kerr.NotEnoughReplicas.Code {
				t.Errorf("acks %d: batch %d before the coordinator knows: code %d, want 19", acks, seq, p.ErrorCode)
			}
		}
	}
}
