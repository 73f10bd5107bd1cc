package cases

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of answers that the cases name.
const (
	codeNone            = 0
	codeCorrupt         = 2
	codeUnknown         = 3
	codeNotLeader       = 6
	codeTimedOut        = 7
	codeTooLarge        = 10
	codeLoading         = 14
	codeName            = 17
	codeVersion         = 35
	codeRequest         = 42
	codeOutOfOrder      = 45
	codeDuplicate       = 46
	codeEpoch           = 47
	codeStorage         = 56
	codeUnknownProducer = 59
	codeCodec           = 76
	codeRecord          = 87
)

// Versions of the requests the cases send: the newest that name topics by name.
const (
	produceVersion = 12
	fetchVersion   = 12
)

// tp names a partition.
type tp struct {
	topic     string
	partition int32
}

func (p tp) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

// part is the folder of a partition below the data directory.
func (p tp) part() string { return p.String() }

// segments are the log files of a partition, oldest first.
func (n *node) segments(p tp) []string { return n.list(p.part(), ".log") }

// producer is the identity of an idempotent producer.
type producer struct {
	id    int64
	epoch int16
}

// ask sends a request over the connection nobody owns and returns its answer.
func ask[R kmsg.Response](n *node, r kmsg.Request) R {
	n.t.Helper()
	return askOn[R](n, n.conn(), r)
}

func askOn[R kmsg.Response](n *node, c *rawclient.Client, r kmsg.Request) R {
	n.t.Helper()
	resp, err := c.Call(r)
	if err != nil {
		n.t.Fatalf("key %d version %d: %v", r.Key(), r.GetVersion(), err)
	}
	return resp.(R)
}

// topic makes a topic of n partitions; set is name, value, name, value, ...
func (n *node) topic(name string, partitions int32, set ...string) tp {
	n.t.Helper()
	m := map[string]string{}
	for i := 0; i+1 < len(set); i += 2 {
		m[set[i]] = set[i+1]
	}
	_, err := n.conn().CreateTopic(name, partitions, m)
	n.must(err)
	return tp{name, 0}
}

// deleteTopic sends the request and returns the code.
func (n *node) deleteTopic(name string) int16 {
	n.t.Helper()
	return ask[*kmsg.DeleteTopicsResponse](n, deleteRequest(name)).Topics[0].ErrorCode
}

func deleteRequest(name string) *kmsg.DeleteTopicsRequest {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version, r.TimeoutMillis = 5, 10_000
	r.TopicNames = []string{name}
	return r
}

// INIT of the cases, without a transactional id.
func (n *node) init() producer {
	n.t.Helper()
	p, code := initOn(n, n.conn())
	if code != 0 {
		n.t.Fatalf("InitProducerId: code %d", code)
	}
	return p
}

func initRequest() *kmsg.InitProducerIDRequest {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.ProducerID, r.ProducerEpoch = 4, -1, -1
	return r
}

func initOn(n *node, c *rawclient.Client) (producer, int16) {
	n.t.Helper()
	resp := askOn[*kmsg.InitProducerIDResponse](n, c, initRequest())
	return producer{resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
}

// shape is what a batch is made of beside producer and sequence.
type shape struct {
	attrs batch.Attrs
	size  int   // bytes of each value, at least
	time  int64 // of the records; 0: now
}

// records makes a batch of count records. Record i has the value "<producer id>/<epoch>/<sequence + i>", padded with
// dots, and now as its time.
func (n *node) records(p producer, seq int32, count int, shapes ...shape) batch.View {
	var s shape
	if len(shapes) > 0 {
		s = shapes[0]
	}
	if s.time == 0 {
		s.time = n.now()
	}
	b := batch.Builder{BaseTime: s.time}
	for i := range count {
		v := fmt.Appendf(nil, "%d/%d/%d", p.id, p.epoch, int64(seq)+int64(i))
		if len(v) < s.size {
			v = append(v, bytes.Repeat([]byte{'.'}, s.size-len(v))...)
		}
		b.Add(batch.Record{Value: v})
	}
	return b.Done(s.attrs, p.id, p.epoch, seq)
}

// answer is what a Produce says of one partition.
type answer struct {
	code  int16
	base  int64
	time  int64
	start int64
}

func (a answer) String() string {
	return fmt.Sprintf("code %d, base offset %d, append time %d, log start %d", a.code, a.base, a.time, a.start)
}

// P of the cases: one batch of n records, its answer.
func (n *node) P(p tp, who producer, seq int32, count int, s ...shape) answer {
	n.t.Helper()
	return n.produce(p, n.records(who, seq, count, s...))
}

// produce sends one batch for one partition, acks=-1.
func (n *node) produce(p tp, b batch.View) answer {
	n.t.Helper()
	return n.produceOn(n.conn(), p, b)
}

func (n *node) produceOn(c *rawclient.Client, p tp, b batch.View) answer {
	n.t.Helper()
	return answerOf(askOn[*kmsg.ProduceResponse](n, c, request(p, b)))
}

func request(p tp, b batch.View) *kmsg.ProduceRequest {
	return rawclient.Produce(produceVersion, p.topic, p.partition, b)
}

func answerOf(r *kmsg.ProduceResponse) answer {
	a := r.Topics[0].Partitions[0]
	return answer{a.ErrorCode, a.BaseOffset, a.LogAppendTime, a.LogStartOffset}
}

// want demands code and base offset of an answer.
func (n *node) want(what string, a answer, code int16, base int64) {
	n.t.Helper()
	if a.code != code || a.base != base {
		n.t.Errorf("%s: %v; want code %d, base offset %d", what, a, code, base)
	}
}

// refused demands one of several codes and no offset.
func (n *node) refused(what string, a answer, codes ...int16) {
	n.t.Helper()
	for _, c := range codes {
		if a.code == c && a.base == -1 {
			return
		}
	}
	n.t.Errorf("%s: %v; want one of the codes %v and base offset -1", what, a, codes)
}

// contents is what a full read of a partition gives.
type contents struct {
	start, stable, high int64
	raw                 []byte // batches from start on, one behind the other
}

// isolation levels of a Fetch.
const (
	uncommitted int8 = 0
	committed   int8 = 1
)

// fetched is what a Fetch says of one partition.
type fetched = kmsg.FetchResponseTopicPartition

// F of the cases. It does not wait for data.
func (n *node) F(p tp, offset int64, level int8) fetched {
	n.t.Helper()
	r := rawclient.Fetch(fetchVersion, p.topic, p.partition, offset)
	r.IsolationLevel = level
	resp := ask[*kmsg.FetchResponse](n, r)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		n.t.Fatalf("fetch %v at %d: %+v", p, offset, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// offset is what ListOffsets says for a timestamp constant: -1 the end, -2 the start.
func (n *node) offset(p tp, timestamp int64, level int8) int64 {
	n.t.Helper()
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID, r.IsolationLevel = 6, -1, level
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = p.topic
	q := kmsg.NewListOffsetsRequestTopicPartition()
	q.Partition, q.Timestamp, q.CurrentLeaderEpoch = p.partition, timestamp, -1
	t.Partitions = append(t.Partitions, q)
	r.Topics = append(r.Topics, t)
	a := ask[*kmsg.ListOffsetsResponse](n, r).Topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		n.t.Fatalf("ListOffsets %v for %d: code %d", p, timestamp, a.ErrorCode)
	}
	return a.Offset
}

func (n *node) high(p tp) int64     { n.t.Helper(); return n.offset(p, -1, uncommitted) }
func (n *node) logStart(p tp) int64 { n.t.Helper(); return n.offset(p, -2, uncommitted) }

// read reads a partition from its log start to its high watermark and holds every batch against its checksum, and
// the offsets of the batches against one another: they follow without a hole.
func (n *node) read(p tp) contents {
	n.t.Helper()
	at := n.logStart(p)
	c := contents{start: at}
	for {
		f := n.F(p, at, uncommitted)
		if f.ErrorCode != 0 {
			n.t.Fatalf("read %v at %d: code %d", p, at, f.ErrorCode)
		}
		c.high, c.stable = f.HighWatermark, f.LastStableOffset
		if f.LogStartOffset != c.start {
			n.t.Fatalf("read %v: log start %d, then %d", p, c.start, f.LogStartOffset)
		}
		if len(f.RecordBatches) == 0 {
			if at != c.high {
				n.t.Fatalf("read %v: nothing at %d below the high watermark %d", p, at, c.high)
			}
			return c
		}
		for rest := f.RecordBatches; len(rest) > 0; {
			v, r, err := batch.Next(rest)
			n.must(err)
			if _, err := v.Validate(batch.Limits{}); err != nil {
				n.t.Fatalf("read %v at %d: %v", p, at, err)
			}
			if v.BaseOffset() != at && (at != c.start || v.BaseOffset() > at) {
				n.t.Fatalf("read %v: batch at offset %d, expected %d", p, v.BaseOffset(), at)
			}
			at, rest = v.LastOffset()+1, r
		}
		c.raw = append(c.raw, f.RecordBatches...)
	}
}

// batches are the batches of a read.
func (c contents) batches() (out []batch.View) {
	for rest := c.raw; len(rest) > 0; {
		v, r, err := batch.Next(rest)
		if err != nil {
			return out
		}
		out, rest = append(out, v), r
	}
	return out
}

// stored is one record of a log.
type stored struct {
	offset int64
	key    string
	value  string
}

// records are the records of a read at or above its start, values without their padding.
func (c contents) records() (out []stored) {
	for _, v := range c.batches() {
		err := v.Records(func(r batch.Record) error {
			at := v.BaseOffset() + int64(r.OffsetDelta)
			if at >= c.start {
				out = append(out, stored{at, string(r.Key), strings.TrimRight(string(r.Value), ".")})
			}
			return nil
		})
		if err != nil {
			out = append(out, stored{value: err.Error()})
		}
	}
	return out
}

// unchanged demands that fn leaves a log as it was: the high watermark is the same and a full read gives the same
// bytes.
func (n *node) unchanged(p tp, fn func()) {
	n.t.Helper()
	before := n.read(p)
	fn()
	n.same(p, before)
}

func (n *node) same(p tp, before contents) {
	n.t.Helper()
	after := n.read(p)
	if after.high != before.high || !bytes.Equal(after.raw, before.raw) {
		n.t.Errorf("%v has changed: high watermark %d, was %d; %d bytes, were %d (equal: %v)", p,
			after.high, before.high, len(after.raw), len(before.raw), bytes.Equal(after.raw, before.raw))
	}
}

// wantHigh demands a high watermark.
func (n *node) wantHigh(p tp, high int64) {
	n.t.Helper()
	if got := n.high(p); got != high {
		n.t.Errorf("%v: high watermark %d, want %d", p, got, high)
	}
}

// deleteRecords raises the log start; it returns the code and the low watermark.
func (n *node) deleteRecords(p tp, offset int64) (int16, int64) {
	n.t.Helper()
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.Version, r.TimeoutMillis = 2, 10_000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = p.topic
	q := kmsg.NewDeleteRecordsRequestTopicPartition()
	q.Partition, q.Offset = p.partition, offset
	t.Partitions = append(t.Partitions, q)
	r.Topics = append(r.Topics, t)
	a := ask[*kmsg.DeleteRecordsResponse](n, r).Topics[0].Partitions[0]
	return a.ErrorCode, a.LowWatermark
}

// knows reports whether the broker remembers a producer of a partition.
func (n *node) knows(p tp, who producer) bool {
	n.t.Helper()
	r := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = p.topic, []int32{p.partition}
	r.Topics = append(r.Topics, t)
	a := ask[*kmsg.DescribeProducersResponse](n, r).Topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		n.t.Fatalf("DescribeProducers: code %d", a.ErrorCode)
	}
	for _, x := range a.ActiveProducers {
		if x.ProducerID == who.id {
			return true
		}
	}
	return false
}

// alter sets one setting of a topic at run time.
func (n *node) alter(topic, name, value string) {
	n.t.Helper()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version = 1
	t := kmsg.NewIncrementalAlterConfigsRequestResource()
	t.ResourceType, t.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	t.Configs = append(t.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{
		Name: name, Op: kmsg.IncrementalAlterConfigOpSet, Value: &value})
	r.Resources = append(r.Resources, t)
	if a := ask[*kmsg.IncrementalAlterConfigsResponse](n, r).Resources[0]; a.ErrorCode != 0 {
		n.t.Fatalf("set %s of %s to %s: code %d", name, topic, value, a.ErrorCode)
	}
}

// marked waits until the durable mark on disk covers a log up to an offset.
func (n *node) marked(p tp, offset int64) {
	n.t.Helper()
	line := fmt.Sprintf("%s %d %d\n", p.topic, p.partition, offset)
	n.until("the durable mark "+strings.TrimSpace(line), func() bool {
		return n.exists(markFile) && strings.Contains(string(n.readFile(markFile)), line)
	})
}

// markFile holds the durable marks, below the data directory.
const markFile = "replication-offset-checkpoint"

// closed tells a connection that was closed from an answer that did not come in time.
func closed(err error) bool {
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// tree lists every name below a folder, with slashes behind folders.
func (n *node) tree(top string) (out []string) {
	n.t.Helper()
	names, err := n.files().ReadDir(top)
	n.must(err)
	for _, name := range names {
		p := path.Join(top, name)
		info, err := n.files().Stat(p)
		n.must(err)
		if !info.IsDir {
			out = append(out, p)
			continue
		}
		out = append(append(out, p+"/"), n.tree(p)...)
	}
	return out
}
