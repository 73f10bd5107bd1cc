package cases

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/rawclient"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// G1. ApiVersions of a version from the future is answered so that every client understands it.
func TestG1ApiVersions(t *testing.T) {
	n := launch(t, options{})
	c := n.dial()
	versions := func(version int16) *kmsg.ApiVersionsResponse {
		t.Helper()
		r := kmsg.NewPtrApiVersionsRequest()
		r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = version, strings.Repeat("n", 200), "1.0"
		return askOn[*kmsg.ApiVersionsResponse](n, c, r) // Receive takes header version 0 for key 18 alone
	}
	v3 := versions(3)
	if v3.ErrorCode != 0 || len(v3.ApiKeys) == 0 {
		t.Errorf("version 3: code %d, %d keys", v3.ErrorCode, len(v3.ApiKeys))
	}
	var own kmsg.ApiVersionsResponseApiKey
	for _, k := range v3.ApiKeys {
		if k.ApiKey == 18 {
			own = k
		}
	}

	future := rawclient.Frame(99, "future", &kmsg.ApiVersionsRequest{Version: 3})
	binary.BigEndian.PutUint16(future[6:], 99)
	n.must(c.SendRaw(future))
	corr, body, err := c.ReceiveFrame(rawclient.Wait)
	n.must(err)
	want := []byte{0, codeVersion, 0, 0, 0, 1, 0, 18, byte(own.MinVersion >> 8), byte(own.MinVersion),
		byte(own.MaxVersion >> 8), byte(own.MaxVersion)}
	if corr != 99 || !bytes.Equal(body, want) {
		t.Errorf("version 99: correlation id %d, body % x; want 99 and % x", corr, body, want)
	}

	if v0 := versions(0); v0.ErrorCode != 0 || len(v0.ApiKeys) != len(v3.ApiKeys) {
		t.Errorf("version 0: code %d, %d keys, version 3 told %d", v0.ErrorCode, len(v0.ApiKeys), len(v3.ApiKeys))
	}
	m := kmsg.NewPtrMetadataRequest()
	m.Version = 9
	if got := askOn[*kmsg.MetadataResponse](n, c, m); len(got.Brokers) != 1 {
		t.Errorf("Metadata on the same connection: %d brokers", len(got.Brokers))
	}
}

// ranges are the versions the broker advertises.
func (n *node) ranges() []kmsg.ApiVersionsResponseApiKey {
	n.t.Helper()
	return ask[*kmsg.ApiVersionsResponse](n, &kmsg.ApiVersionsRequest{}).ApiKeys
}

// G2. Advertised ranges are true, and what is not advertised is never answered in another layout.
func TestG2RangesAreTrue(t *testing.T) {
	n := launch(t, options{realTime: true})
	n.topic("g2", 1)
	answered, refused := 0, 0
	offered := map[int16]bool{}
	for _, k := range n.ranges() {
		offered[k.ApiKey] = true
		for v := max(k.MinVersion-1, 0); v <= k.MaxVersion+1; v++ {
			in := v >= k.MinVersion && v <= k.MaxVersion && !(k.ApiKey == 0 && v < 3)
			r := kmsg.RequestForKey(k.ApiKey)
			r.SetVersion(v)
			if p, ok := r.(*kmsg.ProduceRequest); ok {
				p.Acks = -1
			}
			c := n.dial()
			if in {
				// Receive demands the header of this version, and that the body is all of it.
				if _, err := c.Call(r); err != nil {
					t.Errorf("key %d version %d: %v", k.ApiKey, v, err)
				}
				answered++
			} else if n.must(c.Send(r)); !n.turnedAway(c, k.ApiKey) {
				t.Errorf("key %d version %d is not advertised", k.ApiKey, v)
			} else {
				refused++
			}
			c.Close()
		}
	}
	for _, key := range []int16{7, 32767, -1} {
		c := n.dial()
		f := rawclient.Frame(1, "raw", &kmsg.ApiVersionsRequest{})
		binary.BigEndian.PutUint16(f[4:], uint16(key))
		if n.must(c.SendRaw(f)); offered[key] || !n.turnedAway(c, key) {
			t.Errorf("unknown key %d", key)
		}
	}
	t.Logf("%d pairs answered, %d turned away", answered, refused)
}

// turnedAway reports whether the broker closed the connection, or said 35 in the layout of ApiVersions version 0.
func (n *node) turnedAway(c *rawclient.Client, key int16) bool {
	_, body, err := c.ReceiveFrame(10 * time.Second)
	if err != nil {
		return closed(err)
	}
	return key == 18 && len(body) == 12 && body[1] == codeVersion
}

// G5. Batches come back byte for byte.
func TestG5ByteForByte(t *testing.T) {
	n := launch(t, options{realTime: true})
	files, err := filepath.Glob("testdata/batches/*.bin")
	n.must(err)
	if len(files) != 15 {
		t.Fatalf("%d batches of other clients, want 15", len(files))
	}
	sent := captureFranz(t, n)
	for _, f := range files {
		b, err := os.ReadFile(f)
		n.must(err)
		sent[strings.TrimSuffix(filepath.Base(f), ".bin")] = b
	}
	codecs := map[uint8]int{}
	for name, b := range sent {
		v, rest, err := batch.Next(b)
		if err != nil || len(rest) != 0 {
			t.Fatalf("%s: %v, %d bytes behind the batch", name, err, len(rest))
		}
		codecs[v.Attrs().Codec()]++
		p := n.topic("g5-"+name, 1, "retention.ms", "-1")
		// Behind records of nobody the base offset is not the sender's.
		n.want(name, n.P(p, producer{-1, -1}, -1, 3), codeNone, 0)
		n.want(name, n.produce(p, v), codeNone, 3)
		n.sameBatch(name, v, n.read(p).batches()[1], 3, false)

		p = n.topic("g5-time-"+name, 1, "message.timestamp.type", "LogAppendTime", "retention.ms", "-1")
		n.want(name, n.produce(p, v), codeNone, 0)
		n.sameBatch(name+" with LogAppendTime", v, n.read(p).batches()[0], 0, true)

		wrong := batch.View(bytes.Clone(v))
		wrong.StampMaxTime(v.MaxTime() + 1000)
		p = n.topic("g5-max-"+name, 1, "retention.ms", "-1")
		n.want(name, n.produce(p, wrong), codeNone, 0)
		n.sameBatch(name+" with a wrong maxTimestamp", v, n.read(p).batches()[0], 0, false)
	}
	if len(codecs) != 5 {
		t.Errorf("batches by codec: %v, want all five", codecs)
	}
	p := n.topic("g5-unknown", 1)
	for codec := batch.Attrs(5); codec <= 7; codec++ {
		n.unchanged(p, func() {
			a := n.P(p, n.init(), 0, 1, shape{attrs: codec})
			n.refused(fmt.Sprint("codec ", codec), a, codeCodec, codeRecord, codeCorrupt)
		})
	}
}

// Positions in a batch that the broker may change.
const (
	batchEpochAt = 12
	batchCRCAt   = 17
	batchAttrsAt = 21
	batchTimeAt  = 27
	batchPIDAt   = 43
)

// sameBatch demands that a stored batch is the one sent, apart from base offset and leader epoch, and with times from
// timestamps and checksum.
func (n *node) sameBatch(what string, sent, stored batch.View, base int64, times bool) {
	n.t.Helper()
	if stored.BaseOffset() != base {
		n.t.Errorf("%s: stored at %d, acknowledged at %d", what, stored.BaseOffset(), base)
	}
	if _, err := stored.Validate(batch.Limits{}); err != nil {
		n.t.Errorf("%s: %v", what, err)
	}
	a, b := bytes.Clone(sent), bytes.Clone(stored)
	for _, x := range [][]byte{a, b} {
		clear(x[:8])
		clear(x[batchEpochAt : batchEpochAt+4])
		if times {
			clear(x[batchCRCAt:batchAttrsAt])
			x[batchAttrsAt+1] &^= byte(batch.AttrAppendTime)
			clear(x[batchTimeAt:batchPIDAt])
		}
	}
	if !bytes.Equal(a, b) {
		n.t.Errorf("%s: stored otherwise\nsent   % x\nstored % x", what, a, b)
	}
}

// captureFranz lets franz-go write records with every codec and returns the batches as it sent them, by name.
func captureFranz(t *testing.T, n *node) map[string][]byte {
	t.Helper()
	var mu sync.Mutex
	got := map[string][]byte{}
	p := newProxy(t, func(frame []byte) bool {
		r := decodeProduce(frame)
		if r == nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		for _, x := range r.Topics {
			for _, y := range x.Partitions {
				got["franz-"+fmt.Sprint(len(got))] = bytes.Clone(y.Records)
			}
		}
		return false
	})
	p.follow(n.address())
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
		kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprint("g5-franz-source-", i)
		n.topic(topic, 1)
		// Straight to the proxy, whatever the broker advertises.
		client, err := kgo.NewClient(kgo.SeedBrokers(p.address()), kgo.ProducerBatchCompression(codec),
			kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(50*time.Millisecond), kgo.Dialer(p.dialer()))
		n.must(err)
		err = client.ProduceSync(context.Background(), oddRecords(n.now())...).FirstErr()
		client.Close()
		n.must(err)
	}
	if mu.Lock(); len(got) != 5 {
		t.Errorf("%d batches of franz-go, want 5", len(got))
	}
	mu.Unlock()
	return got
}

// oddRecords have headers, null keys, empty keys and values, a tombstone.
func oddRecords(now int64) []*kgo.Record {
	at := time.UnixMilli(now)
	return []*kgo.Record{
		{Key: []byte("k1"), Value: bytes.Repeat([]byte("value one "), 20), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "h1", Value: []byte("x")}, {Key: "h2", Value: []byte{}}}},
		{Value: []byte("no key"), Timestamp: at.Add(time.Millisecond)},
		{Key: []byte("empty"), Value: []byte{}, Timestamp: at.Add(2 * time.Millisecond)},
		{Key: []byte("tombstone"), Timestamp: at.Add(3 * time.Millisecond)},
		{Key: []byte{}, Value: []byte("empty key"), Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "same", Value: []byte("1")}, {Key: "same"}}},
	}
}

// decodeProduce decodes a frame if it is a Produce request, else nil.
func decodeProduce(frame []byte) *kmsg.ProduceRequest {
	if len(frame) < 10 || binary.BigEndian.Uint16(frame) != 0 {
		return nil
	}
	r := kmsg.NewPtrProduceRequest()
	r.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	body := frame[10+int(binary.BigEndian.Uint16(frame[8:])):]
	if r.IsFlexible() {
		body = body[1:]
	}
	if err := r.ReadFrom(body); err != nil {
		return nil
	}
	return r
}
