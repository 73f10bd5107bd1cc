package broker

import (
	"fmt"
	"syscall"
	"testing"

	"sekali/coord"
	"sekali/internal/rawclient"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnClient is a transactional producer over a raw connection.
type txnClient struct {
	t     *testing.T
	c     *rawclient.Client
	id    string
	pid   int64
	epoch int16
}

func newTxnClient(t *testing.T, c *rawclient.Client, id string) *txnClient {
	t.Helper()
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis = 4, &id, 60000
	r.ProducerID, r.ProducerEpoch = -1, -1
	resp := call[*kmsg.InitProducerIDResponse](t, c, r)
	if resp.ErrorCode != 0 {
		t.Fatalf("init: code %d", resp.ErrorCode)
	}
	return &txnClient{t: t, c: c, id: id, pid: resp.ProducerID, epoch: resp.ProducerEpoch}
}

// register adds the group's partition to the transaction.
func (p *txnClient) register(group string) {
	p.t.Helper()
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = 3, p.id, p.pid, p.epoch, group
	if resp := call[*kmsg.AddOffsetsToTxnResponse](p.t, p.c, r); resp.ErrorCode != 0 {
		p.t.Fatalf("add offsets: code %d", resp.ErrorCode)
	}
}

func (p *txnClient) end(version int16, commit bool) {
	p.t.Helper()
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = version, p.id, p.pid, p.epoch, commit
	resp := call[*kmsg.EndTxnResponse](p.t, p.c, r)
	if resp.ErrorCode != 0 {
		p.t.Fatalf("end: code %d", resp.ErrorCode)
	}
	if version >= 5 {
		p.pid, p.epoch = resp.ProducerID, resp.ProducerEpoch
	}
}

func (p *txnClient) stage(version int16, group string, topic [16]byte, offset int64) *kmsg.TxnOffsetCommitRequest {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = version, p.id, p.pid, p.epoch, group
	r.Generation = -1
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset, part.LeaderEpoch, part.Metadata = offset, 2, text("m")
	r.Topics = []kmsg.TxnOffsetCommitRequestTopic{
		{Topic: "t1", TopicID: topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}}}
	return r
}

func (p *txnClient) code(r *kmsg.TxnOffsetCommitRequest) int16 {
	p.t.Helper()
	return call[*kmsg.TxnOffsetCommitResponse](p.t, p.c, r).Topics[0].Partitions[0].ErrorCode
}

// TestStagedOffsets: they show with the commit marker and never otherwise (I12), in every version; a fetch that wants
// stable ones is told to wait.
func TestStagedOffsets(t *testing.T) {
	n, c := grouped(t, nil)
	topic := n.topic("t1", 1, nil)
	p := newTxnClient(t, c, "tx")
	want := int64(-1)
	for v := range int16(7) {
		for _, commit := range []bool{false, true} {
			offset := 10*int64(v) + 5
			if v < 5 {
				p.register("g")
			}
			if code := p.code(p.stage(v, "g", topic, offset)); code != 0 {
				t.Fatalf("version %d: code %d", v, code)
			}
			if at := position(t, c, "g", "t1", 0, false); at.Offset != want || at.ErrorCode != 0 {
				t.Fatalf("version %d: before the end %+v, want %d", v, at, want)
			}
			if at := position(t, c, "g", "t1", 0, true); at.Offset != -1 || at.ErrorCode != kerr.UnstableOffsetCommit.Code {
				t.Fatalf("version %d: stable %+v", v, at)
			}
			end := int16(3)
			if v >= 5 {
				end = 5
			}
			p.end(end, commit)
			if commit {
				want = offset
			}
			at := position(t, c, "g", "t1", 0, true)
			if at.Offset != want || at.ErrorCode != 0 || v >= 2 && commit && (at.LeaderEpoch != 2 || *at.Metadata != "m") {
				t.Fatalf("version %d, commit %v: %+v, want %d", v, commit, at, want)
			}
		}
	}
}

// TestStagedOffsetsSurviveRestart as staged ones.
func TestStagedOffsetsSurviveRestart(t *testing.T) {
	n, c := grouped(t, nil)
	topic := n.topic("t1", 1, nil)
	p := newTxnClient(t, c, "tx")
	if code := p.code(p.stage(5, "g", topic, 42)); code != 0 {
		t.Fatalf("code %d", code)
	}
	n.stop()
	fs := n.cfg.Store.FS
	n = start(t, func(c *Config) { c.Store.FS = fs })
	c = n.dial()
	if at := position(t, c, "g", "t1", 0, true); at.ErrorCode != kerr.UnstableOffsetCommit.Code {
		t.Fatalf("%+v", at)
	}
	p.c = c
	p.end(5, true)
	if at := position(t, c, "g", "t1", 0, true); at.Offset != 42 {
		t.Fatalf("%+v", at)
	}
}

// TestStagingTable: what is refused, and by whom first.
func TestStagingTable(t *testing.T) {
	n, c := grouped(t, nil)
	topic := n.topic("t1", 1, nil)
	j := stable(t, c, "g")
	for _, k := range []struct {
		name       string
		version    int16
		registered bool
		edit       func(r *kmsg.TxnOffsetCommitRequest)
		code       int16
	}{
		{"not registered", 3, false, nil, kerr.InvalidTxnState.Code},
		{"not registered, a client that aborts", 4, false, nil, kerr.TransactionAbortable.Code},
		{"registered by the request", 5, false, nil, 0},
		{"no member named", 3, true, nil, 0},
		{"a member", 3, true, func(r *kmsg.TxnOffsetCommitRequest) { r.MemberID, r.Generation = j.MemberID, 1 }, 0},
		{"a zombie of the group", 3, true, func(r *kmsg.TxnOffsetCommitRequest) { r.MemberID, r.Generation = j.MemberID, 0 },
			kerr.IllegalGeneration.Code},
		{"unknown member", 3, true, func(r *kmsg.TxnOffsetCommitRequest) { r.MemberID, r.Generation = "x", 1 },
			kerr.UnknownMemberID.Code},
		{"a zombie of group and transaction: the transaction counts", 4, false,
			func(r *kmsg.TxnOffsetCommitRequest) { r.MemberID, r.Generation = "x", 1 }, kerr.TransactionAbortable.Code},
		{"missing group, generation given", 5, false,
			func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.Generation = "no", 1 }, kerr.IllegalGeneration.Code},
		{"missing group, generation given, 6", 6, false,
			func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.Generation = "no", 1 }, kerr.GroupIDNotFound.Code},
		{"old epoch", 3, true, func(r *kmsg.TxnOffsetCommitRequest) { r.ProducerEpoch-- }, kerr.InvalidProducerEpoch.Code},
		{"old epoch, adding", 5, false, func(r *kmsg.TxnOffsetCommitRequest) { r.ProducerEpoch-- },
			kerr.InvalidProducerEpoch.Code},
		{"empty group id", 5, false, func(r *kmsg.TxnOffsetCommitRequest) { r.Group = "" }, kerr.InvalidGroupID.Code},
		{"unknown topic", 5, false, func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Topic = "no" },
			kerr.UnknownTopicOrPartition.Code},
		{"unknown topic id", 6, false, func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].TopicID[1]++ },
			kerr.UnknownTopicID.Code},
		{"another producer", 5, false, func(r *kmsg.TxnOffsetCommitRequest) { r.ProducerID += 1000 },
			kerr.InvalidProducerIDMapping.Code},
	} {
		id := "tx-" + k.name
		p := newTxnClient(t, c, id)
		p = newTxnClient(t, c, id) // so that there is an older epoch
		if k.registered {
			p.register("g")
		}
		r := p.stage(k.version, "g", topic, 1)
		if k.edit != nil {
			k.edit(r)
		}
		if code := p.code(r); code != k.code {
			t.Errorf("%s: code %d, want %d", k.name, code, k.code)
		}
	}
}

// TestOffsetsOfALostRegistration: the flush that took the registration of the group's partition has failed. The offsets
// are staged, but nothing of the transaction is answered, the retry neither, until the coordinator knows it.
func TestOffsetsOfALostRegistration(t *testing.T) {
	fs := vfs.NewMem()
	n := startNodeOn(t, fs)
	defer n.abandon() // the log of a shard is offline
	n.coordinate()
	id := n.topic("t1", 1, nil)
	p := newTxnClient(t, n.node.dial(), "x")
	remove := fs.FailSync(fmt.Sprintf("/data/__transaction_state-%d/*.log", coord.Partition("x", 50)), 0, syscall.EIO)
	for range 3 {
		if code := p.code(p.stage(5, "g", id, 7)); code == 0 {
			t.Fatal("answered, and the coordinator does not know")
		}
	}
	remove()
}
