package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lineMax bounds one line of standard input, in bytes.
const lineMax = 100 << 20

// produceCmd writes standard input to a topic.
type produceCmd struct {
	clientFlags
	Topic       string   `arg:"" name:"topic"`
	Key         string   `name:"key" help:"Key of every record."`
	KeySep      string   `name:"key-separator" short:"K" help:"What lies before this in a line is the record's key."`
	Header      []string `name:"header" short:"H" sep:"none" placeholder:"NAME=VALUE" help:"${produce_header}"`
	Partition   int32    `name:"partition" short:"p" default:"-1" help:"Partition to write to; -1: by key, else spread."`
	Acks        string   `name:"acks" enum:"all,1,0" default:"all" help:"${produce_acks}"`
	Compression string   `name:"compression" short:"z" enum:"${codecs}" default:"none" help:"${produce_compression}"`
	JSON        bool     `name:"json" help:"Each line is a JSON object as consume --json writes it."`
	Quiet       bool     `name:"quiet" short:"q" help:"No closing line on standard error."`
}

// Run writes every line and waits for all acknowledgements; the first refusal ends it.
func (c *produceCmd) Run(io streams) error {
	headers, err := pairs(c.Header)
	if err != nil {
		return fmt.Errorf("--header: %w", err)
	}
	ctx, stop := interruptible()
	defer stop()
	cl, err := c.client(c.options()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := c.ping(ctx, cl); err != nil {
		return err
	}
	t := &tally{begin: time.Now(), ends: map[int32]int64{}, sent: c.Acks == "0"}
	readErr := c.lines(ctx, io.in, func(r *kgo.Record) bool {
		for name, value := range headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		cl.Produce(ctx, r, t.done)
		return !t.failed()
	})
	flushErr := cl.Flush(ctx)
	if !c.Quiet {
		fmt.Fprintln(io.err, t)
	}
	if err := t.err(); err != nil {
		return fmt.Errorf("produce to %s: %w", c.Topic, err)
	}
	return errors.Join(readErr, flushErr)
}

func (c *produceCmd) options() []kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(c.Topic), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codecs[c.Compression]),
		kgo.RecordDeliveryTimeout(c.Timeout), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RecordPartitioner(whereSaid{kgo.StickyKeyPartitioner(nil)}),
	}
	switch c.Acks {
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	}
	return opts
}

// lines makes a record of every line until fn says stop.
func (c *produceCmd) lines(ctx context.Context, in io.Reader, fn func(*kgo.Record) bool) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 64<<10), lineMax)
	for n := 1; ctx.Err() == nil && sc.Scan(); n++ {
		r, err := c.record(bytes.Clone(sc.Bytes()))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !fn(r) {
			return nil
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return ctx.Err()
}

func (c *produceCmd) record(line []byte) (*kgo.Record, error) {
	r := &kgo.Record{Partition: -1, Value: line}
	if c.JSON {
		var err error
		if r, err = recordFromJSON(line); err != nil {
			return nil, err
		}
	} else if c.KeySep != "" {
		key, value, ok := bytes.Cut(line, []byte(c.KeySep))
		if !ok {
			return nil, fmt.Errorf("no key separator %q", c.KeySep)
		}
		r.Key, r.Value = key, value
	}
	if c.Key != "" {
		r.Key = []byte(c.Key)
	}
	if c.Partition >= 0 {
		r.Partition = c.Partition
	}
	return r, nil
}

// whereSaid sends a record to the partition it names, and lets another partitioner place those that name none.
type whereSaid struct{ other kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (w whereSaid) ForTopic(topic string) kgo.TopicPartitioner {
	return &whereSaidTopic{w.other.ForTopic(topic)}
}

type whereSaidTopic struct{ kgo.TopicPartitioner }

// RequiresConsistency implements kgo.TopicPartitioner.
func (w *whereSaidTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || w.TopicPartitioner.RequiresConsistency(r)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch, by which a sticky partitioner moves on.
func (w *whereSaidTopic) OnNewBatch() {
	if n, ok := w.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		n.OnNewBatch()
	}
}

// Partition implements kgo.TopicPartitioner; a number that is too large fails the record.
func (w *whereSaidTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return w.TopicPartitioner.Partition(r, n)
}

// tally counts acknowledgements. Owner: one produce run; any goroutine may call it.
type tally struct {
	begin time.Time
	sent  bool // without acknowledgements: what left the client counts

	mu             sync.Mutex
	records, bytes int64
	ends           map[int32]int64
	first          error
}

func (t *tally) done(r *kgo.Record, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if t.first == nil {
			t.first = err
		}
		return
	}
	t.records++
	t.bytes += int64(len(r.Key) + len(r.Value))
	t.ends[r.Partition] = max(t.ends[r.Partition], r.Offset+1)
}

func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

func (t *tally) failed() bool { return t.err() != nil }

// String is the closing line.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sent {
		return fmt.Sprintf("%d records, %d bytes sent in %v, nobody answers with --acks 0", t.records, t.bytes,
			time.Since(t.begin).Round(time.Millisecond))
	}
	return fmt.Sprintf("%d records, %d bytes acknowledged in %v over %d partitions",
		t.records, t.bytes, time.Since(t.begin).Round(time.Millisecond), len(t.ends))
}
