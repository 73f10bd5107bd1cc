package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func consumerJoin(group, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.RebalanceTimeoutMillis = 1, group, member, 60000
	r.SubscribedTopicNames, r.Topics = topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return r
}

// TestConsumerHeartbeatAnswers: an empty assignment is not null, an unchanged one is; errors say why; DescribeGroups
// and ConsumerGroupDescribe know only groups of their own protocol.
func TestConsumerHeartbeatAnswers(t *testing.T) {
	n, c := grouped(t, nil)
	id := n.topic("t1", 2, nil)
	a := call[*kmsg.ConsumerGroupHeartbeatResponse](t, c, consumerJoin("g", "a", "t1"))
	if a.ErrorCode != 0 || a.MemberEpoch != 1 || a.HeartbeatIntervalMillis != 5000 || *a.MemberID != "a" ||
		len(a.Assignment.Topics) != 1 || a.Assignment.Topics[0].TopicID != id || len(a.Assignment.Topics[0].Partitions) != 2 {
		t.Fatalf("a: %+v", a)
	}
	b := call[*kmsg.ConsumerGroupHeartbeatResponse](t, c, consumerJoin("g", "b", "t1"))
	if b.ErrorCode != 0 || b.MemberEpoch != 2 || b.Assignment == nil || len(b.Assignment.Topics) != 0 {
		t.Fatalf("b: %+v", b)
	}
	steady := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	steady.Version, steady.Group, steady.MemberID, steady.MemberEpoch = 1, "g", "b", 2
	if b = call[*kmsg.ConsumerGroupHeartbeatResponse](t, c, steady); b.ErrorCode != 0 || b.Assignment != nil {
		t.Fatalf("b, nothing changed: %+v", b)
	}
	steady.MemberEpoch = 7
	b = call[*kmsg.ConsumerGroupHeartbeatResponse](t, c, steady)
	if b.ErrorCode != kerr.FencedMemberEpoch.Code || b.ErrorMessage == nil || *b.ErrorMessage == "" || b.MemberID != nil {
		t.Fatalf("b with a wrong epoch: %+v", b)
	}
	described := kmsg.NewPtrConsumerGroupDescribeRequest()
	described.Version, described.Groups, described.IncludeAuthorizedOperations = 1, []string{"g", "none", ""}, true
	d := call[*kmsg.ConsumerGroupDescribeResponse](t, c, described).Groups
	if g := d[0]; g.ErrorCode != 0 || g.State != "Reconciling" || g.Epoch != 2 || g.AssignmentEpoch != 2 ||
		g.AssignorName != "uniform" || len(g.Members) != 2 || g.AuthorizedOperations != groupOperations {
		t.Fatalf("described: %+v", g)
	}
	if m := d[0].Members[0]; m.MemberID != "a" || m.MemberType != 1 || m.MemberEpoch != 1 ||
		m.ClientHost != "/127.0.0.1" ||
		m.SubscribedTopics[0] != "t1" || len(m.Assignment.TopicPartitions[0].Partitions) != 2 ||
		m.Assignment.TopicPartitions[0].Topic != "t1" || len(m.TargetAssignment.TopicPartitions[0].Partitions) != 1 {
		t.Fatalf("member: %+v", m)
	}
	if d[1].ErrorCode != kerr.GroupIDNotFound.Code || d[2].ErrorCode != kerr.InvalidGroupID.Code {
		t.Errorf("codes %d and %d", d[1].ErrorCode, d[2].ErrorCode)
	}
	j := call[*kmsg.JoinGroupResponse](t, c, joinRequest(9, "g", ""))
	if j.ErrorCode != kerr.InconsistentGroupProtocol.Code {
		t.Errorf("a classic member joins: code %d", j.ErrorCode)
	}
	stable(t, c, "classic")
	described.Groups = []string{"classic"}
	d = call[*kmsg.ConsumerGroupDescribeResponse](t, c, described).Groups
	if d[0].ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("a classic group: code %d", d[0].ErrorCode)
	}
	x := call[*kmsg.ConsumerGroupHeartbeatResponse](t, c, consumerJoin("classic", "x", "t1"))
	if x.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("joining a classic group with a member: code %d", x.ErrorCode)
	}
}

// TestFranzConsumerProtocol: stock clients of the consumer protocol share a topic, hand partitions over when one
// leaves, and go on from their committed offsets when all have left; every record arrives once.
func TestFranzConsumerProtocol(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n, _ := grouped(t, func(c *Config) { c.Groups.ConsumerHeartbeatMs = 100 })
	n.topic("events", 6, nil)
	w := franz(t, n, kgo.DefaultProduceTopic("events"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	r := &readers{t: t, seen: map[string]int{}}
	stopA, stopB := r.add(ctx, n), r.add(ctx, n)
	writeEvents(ctx, t, w, 0, 300)
	r.wait(ctx, 300)
	adm := kadm.NewClient(w)
	for {
		d, err := adm.DescribeConsumerGroups(ctx, "readers")
		if err != nil {
			t.Fatal(err)
		}
		if g := d["readers"]; g.State == "Stable" && len(g.Members) == 2 &&
			len(g.Members[0].Assignment["events"]) == 3 && len(g.Members[1].Assignment["events"]) == 3 {
			break
		}
	}
	stopA()
	writeEvents(ctx, t, w, 300, 600)
	r.wait(ctx, 600)
	stopB()
	committed, err := adm.FetchOffsets(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	committed.Each(func(o kadm.OffsetResponse) { total += o.At })
	if d, err := adm.DescribeConsumerGroups(ctx, "readers"); err != nil || d["readers"].State != "Empty" || total != 600 {
		t.Fatalf("after all have left: %d committed, %+v, %v", total, d, err)
	}
	defer r.add(ctx, n)()
	writeEvents(ctx, t, w, 600, 700)
	r.wait(ctx, 700)
}

func franz(t *testing.T, n *node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func writeEvents(ctx context.Context, t *testing.T, w *kgo.Client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		w.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i)}, nil)
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// readers are consumers of one group and what they have read.
type readers struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[string]int
}

// add starts a consumer; the function it returns stops it once it has committed what it read.
func (r *readers) add(ctx context.Context, n *node) (stop func()) {
	cl := franz(r.t, n, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("events"), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			fs.EachRecord(func(rec *kgo.Record) {
				r.mu.Lock()
				r.seen[string(rec.Value)]++
				r.mu.Unlock()
			})
			if err := cl.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
				r.t.Errorf("commit: %v", err)
			}
			cl.AllowRebalance()
		}
	}()
	return func() { cancel(); <-ended; cl.Close() }
}

// wait returns when want records were read, each once.
func (r *readers) wait(ctx context.Context, want int) {
	r.t.Helper()
	for {
		r.mu.Lock()
		n := len(r.seen)
		for value, times := range r.seen {
			if times != 1 {
				r.t.Fatalf("record %s was read %d times", value, times)
			}
		}
		r.mu.Unlock()
		if n >= want {
			return
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("%d of %d records were read", n, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
