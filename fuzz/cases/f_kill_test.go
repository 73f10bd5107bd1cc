package cases

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	killPartitions = 4
	killTopic      = "f5"
	inFlight       = 5 // of a raw producer; franz-go has one until the first answer, then the same five
)

// stream is what one producer writes to one partition: records numbered from 0, each of which is sent again until it is
// acknowledged.
type stream struct {
	id        int
	partition int32
	mu        sync.Mutex
	acked     []int64 // offset by number; noOffset: acknowledged without one, noAck: not yet
	count     atomic.Int64
}

const (
	noAck    = -1
	noOffset = -2
)

// ack notes that record n is stored at an offset.
func (s *stream) ack(n int, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.acked) <= n {
		s.acked = append(s.acked, noAck)
	}
	s.acked[n] = offset
	s.count.Add(1)
}

func (s *stream) value(n int) []byte { return fmt.Appendf(nil, "%d:%d", s.id, n) }

// F5. SIGKILL under load: what was acknowledged is there once, at its offset, in order, without a gap.
func TestF5KillUnderLoad(t *testing.T) {
	var answered atomic.Int64
	p := newProxy(t, func(frame []byte) bool {
		// A Produce or an InitProducerId whose answer is lost.
		key := binary.BigEndian.Uint16(frame)
		raw := bytes.HasPrefix(frame[10:], []byte("raw")) // franz-go gives up when its first request is hung up on
		lost := key == 0 && rand.IntN(50) == 0 || key == 22 && raw && rand.IntN(4) == 0
		if lost {
			answered.Add(1)
		}
		return lost
	})
	n := launch(t, options{realTime: true, advertise: p.address()})
	p.follow(n.address())
	n.topic(killTopic, killPartitions, "segment.bytes", "1048576")

	l := &load{n: n, p: p, stop: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	defer l.cancel()
	for i := range 8 {
		if a, b := l.stream(i), l.stream(i+1); i%2 == 0 {
			l.work.Go(func() { l.raw(a, b) })
		} else {
			l.work.Go(func() { l.franz(a, b) })
		}
	}
	reader := &follower{addr: func() string { return *p.target.Load() }, stop: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(reader.run)

	low, high := size(200, 1500), size(500, 3500) // milliseconds between kills
	for round := range size(5, 50) {
		l.progress(fmt.Sprint("round ", round))
		time.Sleep(time.Duration(low+rand.IntN(high-low)) * time.Millisecond)
		n.kill()
		n.start()
		p.follow(n.address())
	}
	l.progress("the end")
	close(l.stop)
	l.finish()
	close(reader.stop)
	reading.Wait()
	l.verify("after the last KILL", reader)
	n.stop()
	if full {
		if out, err := exec.Command(program, "check", n.dir()).CombinedOutput(); err != nil {
			t.Errorf("sekali check: %v\n%s", err, tail(string(out), 20))
		}
	}
	n.start()
	l.verify("after STOP", reader)
	total := int64(0)
	for _, s := range l.streams {
		total += s.count.Load()
	}
	t.Logf("%d records acknowledged, %d answers lost on purpose, %d records seen by the reader",
		total, answered.Load(), reader.count())
}

// load is the producers of F5.
type load struct {
	n       *node
	p       *proxy
	streams []*stream
	work    sync.WaitGroup
	stop    chan struct{} // nothing new is written from then on
	ctx     context.Context
	cancel  context.CancelFunc
	failed  atomic.Pointer[error]
}

func (l *load) stream(i int) *stream {
	s := &stream{id: len(l.streams), partition: int32(i % killPartitions)}
	l.streams = append(l.streams, s)
	return s
}

func (l *load) fail(err error) {
	l.failed.CompareAndSwap(nil, &err)
	l.cancel()
}

// broken fails the test if a producer has failed.
func (l *load) broken() {
	l.n.t.Helper()
	if err := l.failed.Load(); err != nil {
		l.n.t.Fatal(*err)
	}
}

// progress waits until every stream has been acknowledged more than before.
func (l *load) progress(what string) {
	l.n.t.Helper()
	var before []int64
	for _, s := range l.streams {
		before = append(before, s.count.Load())
	}
	for i, s := range l.streams {
		l.n.until(fmt.Sprintf("%s: stream %d goes on", what, i), func() bool {
			l.broken()
			return s.count.Load() > before[i]
		})
	}
}

// finish waits until all that was sent is acknowledged.
func (l *load) finish() {
	l.n.t.Helper()
	done := make(chan struct{})
	go func() {
		l.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		l.cancel()
		l.n.t.Error("not everything was acknowledged within two minutes")
		<-done
	}
	l.broken()
}

// raw is an idempotent producer that sends five batches ahead and, when anything fails, sends all of them again.
func (l *load) raw(streams ...*stream) {
	who, err := l.identify()
	if err != nil {
		l.fail(err)
		return
	}
	var both sync.WaitGroup
	for _, s := range streams {
		both.Go(func() {
			r := &rawStream{l: l, s: s, who: who}
			if err := r.run(); err != nil && l.ctx.Err() == nil {
				l.fail(fmt.Errorf("raw producer, stream %d: %w", s.id, err))
			}
		})
	}
	both.Wait()
}

// identify asks for a producer id until it gets one; ids whose answers were lost are lost too.
func (l *load) identify() (producer, error) {
	for l.ctx.Err() == nil {
		c, err := rawclient.Dial(l.p.address())
		if err != nil {
			return producer{}, err
		}
		resp, err := c.Call(initRequest())
		c.Close()
		if err == nil {
			if a := resp.(*kmsg.InitProducerIDResponse); a.ErrorCode == 0 {
				return producer{a.ProducerID, a.ProducerEpoch}, nil
			}
		}
	}
	return producer{}, l.ctx.Err()
}

// rawStream is one stream of a raw producer; of one goroutine.
type rawStream struct {
	l    *load
	s    *stream
	who  producer
	next int        // record number, which is the sequence too
	sent []rawBatch // not acknowledged, oldest first
	c    *rawclient.Client
}

type rawBatch struct {
	first, count int
	req          *kmsg.ProduceRequest
}

// errAgain: the connection is of no use any more, everything unacknowledged must be sent again.
var errAgain = errors.New("send again")

func (r *rawStream) run() error {
	defer r.hangUp()
	for stopping := false; !stopping || len(r.sent) > 0; {
		if r.l.ctx.Err() != nil {
			return r.l.ctx.Err()
		}
		select {
		case <-r.l.stop:
			stopping = true
		default:
		}
		err := r.step(stopping)
		if errors.Is(err, errAgain) {
			r.hangUp()
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rawStream) hangUp() {
	if r.c != nil {
		r.c.Close()
		r.c = nil
	}
}

// step fills the pipeline and takes one answer.
func (r *rawStream) step(stopping bool) error {
	if r.c == nil {
		c, err := rawclient.Dial(r.l.p.address())
		if err != nil {
			return errAgain
		}
		r.c = c
		for _, b := range r.sent {
			if c.Send(b.req) != nil {
				return errAgain
			}
		}
	}
	for len(r.sent) < inFlight && !stopping {
		b := r.batch()
		r.sent = append(r.sent, b)
		if r.c.Send(b.req) != nil {
			return errAgain
		}
	}
	if len(r.sent) == 0 {
		return nil
	}
	return r.take()
}

func (r *rawStream) batch() rawBatch {
	b := rawBatch{first: r.next, count: 1 + rand.IntN(4)}
	records := batch.Builder{BaseTime: r.l.n.now()}
	for i := range b.count {
		records.Add(batch.Record{Value: r.s.value(b.first + i)})
	}
	v := records.Done(0, r.who.id, r.who.epoch, int32(b.first))
	b.req = request(tp{killTopic, r.s.partition}, v)
	r.next += b.count
	return b
}

// take reads the answer to the oldest batch in flight.
func (r *rawStream) take() error {
	b := r.sent[0]
	resp, err := r.c.Receive(b.req)
	if err != nil {
		if errors.Is(err, rawclient.ErrOrder) {
			return err
		}
		return errAgain
	}
	switch a := answerOf(resp.(*kmsg.ProduceResponse)); a.code {
	case codeNone, codeDuplicate:
		for i := range b.count {
			at := a.base + int64(i)
			if a.code == codeDuplicate {
				at = noOffset
			}
			r.s.ack(b.first+i, at)
		}
		r.sent = r.sent[1:]
		return nil
	case codeStorage, codeTimedOut, codeNotLeader:
		return errAgain // its disk is gone, it stops
	default:
		return fmt.Errorf("batch of record %d: %v", b.first, a)
	}
}

// franz is a producer of franz-go over two streams.
func (l *load) franz(streams ...*stream) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(l.p.address()), kgo.DefaultProduceTopic(killTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.StopProducerOnDataLossDetected(),
		kgo.ProducerLinger(0), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(time.Minute),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			return d.DialContext(ctx, network, addr)
		}))
	if err != nil {
		l.fail(err)
		return
	}
	defer client.Close()
	room := make(chan struct{}, 40) // records not acknowledged yet
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			if err := client.Flush(l.ctx); err != nil && l.ctx.Err() == nil {
				l.fail(fmt.Errorf("franz-go: flush: %w", err))
			}
			return
		case <-l.ctx.Done():
			return
		case room <- struct{}{}:
		}
		s := streams[n%len(streams)]
		number := n / len(streams)
		r := &kgo.Record{Partition: s.partition, Value: s.value(number)}
		client.Produce(l.ctx, r, func(r *kgo.Record, err error) {
			<-room
			switch {
			case err == nil && r.Offset >= 0:
				s.ack(number, r.Offset)
			case err == nil:
				s.ack(number, noOffset)
			case l.ctx.Err() == nil:
				l.fail(fmt.Errorf("franz-go, stream %d, record %d: %w", s.id, number, err))
			}
		})
	}
}

// verify holds every partition against what was acknowledged and against what the reader saw.
func (l *load) verify(what string, reader *follower) {
	l.n.t.Helper()
	next := make([]int, len(l.streams))
	for q := range int32(killPartitions) {
		c := l.n.read(tp{killTopic, q})
		if c.start != 0 {
			l.n.t.Fatalf("%s: partition %d begins at %d", what, q, c.start)
		}
		for _, r := range c.records() {
			id, n, err := parseValue(r.value)
			if err != nil || id >= len(l.streams) || l.streams[id].partition != q {
				l.n.t.Fatalf("%s: partition %d, offset %d: %q", what, q, r.offset, r.value)
			}
			s := l.streams[id]
			if n != next[id] {
				l.n.t.Fatalf("%s: partition %d, offset %d: record %d of stream %d, expected %d", what, q, r.offset, n, id, next[id])
			}
			next[id]++
			if n >= len(s.acked) || s.acked[n] != r.offset && s.acked[n] != noOffset {
				l.n.t.Fatalf("%s: record %d of stream %d is at offset %d, acknowledged at %v", what, n, id, r.offset, s.acked[n:])
			}
			if sum, ok := reader.sum(q, r.offset); ok && sum != crc32.ChecksumIEEE([]byte(r.value)) {
				l.n.t.Fatalf("%s: partition %d, offset %d holds %q, a reader saw something else there", what, q, r.offset, r.value)
			}
		}
		if seen := reader.next(q); seen > c.high {
			l.n.t.Fatalf("%s: partition %d ends at %d, a reader had come to %d", what, q, c.high, seen)
		}
	}
	for id, s := range l.streams {
		if next[id] != len(s.acked) || next[id] == 0 {
			l.n.t.Errorf("%s: %d records of stream %d are stored, %d acknowledged", what, next[id], id, len(s.acked))
		}
	}
}

func parseValue(v string) (id, n int, err error) {
	a, b, ok := strings.Cut(v, ":")
	if !ok {
		return 0, 0, errors.New("no colon")
	}
	if id, err = strconv.Atoi(a); err != nil {
		return 0, 0, err
	}
	n, err = strconv.Atoi(b)
	return id, n, err
}

// follower reads every partition as it grows, over all deaths of the broker, and remembers what it saw.
type follower struct {
	addr func() string
	stop chan struct{}

	mu   sync.Mutex
	seen [killPartitions][]uint32 // checksum of the value by offset
}

func (f *follower) sum(q int32, offset int64) (uint32, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset >= int64(len(f.seen[q])) {
		return 0, false
	}
	return f.seen[q][offset], true
}

func (f *follower) next(q int32) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.seen[q]))
}

func (f *follower) count() (n int64) {
	for q := range int32(killPartitions) {
		n += f.next(q)
	}
	return n
}

func (f *follower) run() {
	for {
		if c, err := rawclient.Dial(f.addr()); err == nil {
			f.follow(c)
			c.Close()
		}
		select {
		case <-f.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// follow reads until the connection ends.
func (f *follower) follow(c *rawclient.Client) {
	for {
		for q := range int32(killPartitions) {
			select {
			case <-f.stop:
				return
			default:
			}
			r := rawclient.Fetch(fetchVersion, killTopic, q, f.next(q))
			r.MaxWaitMillis = 5
			resp, err := c.Call(r)
			if err != nil {
				return
			}
			got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 {
				return
			}
			f.take(q, bytes.Clone(got.RecordBatches))
		}
	}
}

func (f *follower) take(q int32, raw []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rest := raw; len(rest) > 0; {
		v, r, err := batch.Next(rest)
		if err != nil {
			return
		}
		rest = r
		_ = v.Records(func(r batch.Record) error { // damage shows in verify
			if v.BaseOffset()+int64(r.OffsetDelta) == int64(len(f.seen[q])) {
				f.seen[q] = append(f.seen[q], crc32.ChecksumIEEE(r.Value))
			}
			return nil
		})
	}
}
