package fuzz

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"sekali/internal/buf"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wireBytesMax is what one body may cost beside its own size: the bound that wire promises, and what the pool adds.
const wireBytesMax = 9 << 20

// FuzzWireDecode feeds arbitrary bytes as a stream of frames. Properties: the errors are those of the contract; a
// body that is accepted is accepted by kmsg too, and encoding it gives bytes that decode to the same request; the
// records of a Produce lie within the frame; no frame allocates more than 9 MiB beside its own size.
func FuzzWireDecode(f *testing.F) {
	for _, r := range wire.Versions() {
		for _, v := range []int16{r.Min, r.Max} {
			q := kmsg.RequestForKey(r.Key)
			q.SetVersion(v)
			f.Add(wireFrame(r.Key, v, q.AppendTo(nil)))
		}
	}
	p := kmsg.NewPtrProduceRequest()
	p.Version = 9
	p.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{
		{Records: []byte("records")}, {Partition: 1}}}}
	f.Add(wireFrame(0, 9, p.AppendTo(nil)))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0})
	f.Add([]byte{0, 0, 0, 0})
	pool := buf.New(1 << 30)
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(stream), 64)
		for {
			h, err := wire.ReadHead(r, wire.Limits{}.Defaults(), true)
			if err != nil {
				wireError(t, err, io.EOF, io.ErrUnexpectedEOF, wire.ErrFrameSize, wire.ErrTooLarge)
				return
			}
			b, err := wire.ReadBody(r, h, h.First(0), pool, func(int) error { return nil })
			if err != nil {
				wireError(t, err, io.ErrUnexpectedEOF)
				return
			}
			wireOne(t, b)
			pool.Put(b)
		}
	})
}

// wireFrame makes a request frame with client id "c".
func wireFrame(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 7, 0, 1, 'c')
	if wire.Flexible(key, version) {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func wireOne(t *testing.T, b []byte) {
	h, body, err := wire.ParseHeader(b, "c")
	if err != nil {
		wireError(t, err, wire.ErrHeader, wire.ErrVersion)
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req, err := wire.Decode(h, body)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(b))+wireBytesMax {
		t.Fatalf("%d bytes allocated for a frame of %d", n, len(b))
	}
	if err != nil {
		wireError(t, err, wire.ErrBody)
		return
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		wireWithin(t, p, body)
	}
	theirs := kmsg.RequestForKey(h.Key)
	theirs.SetVersion(h.Version)
	if err := theirs.ReadFrom(bytes.Clone(body)); err != nil {
		t.Fatalf("key %d version %d: accepted, but not by kmsg: %v", h.Key, h.Version, err)
	}
	enc := req.AppendTo(nil)
	again, err := wire.Decode(h, enc)
	if err != nil {
		t.Fatalf("key %d version %d: does not decode again: %v", h.Key, h.Version, err)
	}
	if !bytes.Equal(again.AppendTo(nil), enc) {
		t.Fatalf("key %d version %d: decodes to another request", h.Key, h.Version)
	}
}

// wireWithin: records alias the body they came in.
func wireWithin(t *testing.T, p *kmsg.ProduceRequest, body []byte) {
	for _, topic := range p.Topics {
		for _, part := range topic.Partitions {
			if n := len(part.Records); n > 0 && !bytes.Contains(body, part.Records) {
				t.Fatalf("%d bytes of records that are not in the body", n)
			}
		}
	}
}

func wireError(t *testing.T, err error, allowed ...error) {
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	t.Fatalf("error outside the contract: %v", err)
}
