package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

const testTime = 1700000000000

// draft is a batch spelled out field by field; view seals it with a true length and checksum.
type draft struct {
	base, baseTime, maxTime, pid int64
	leader                       int32
	attrs                        Attrs
	delta, seq, count            int32
	epoch                        int16
	records                      []byte
}

// plainDraft is a client's batch of n records without a producer.
func plainDraft(n int) draft {
	d := draft{
		baseTime: testTime, maxTime: testTime, pid: -1, leader: -1, delta: int32(n - 1), seq: -1, count: int32(n), epoch: -1,
	}
	for i := range n {
		r := Record{OffsetDelta: int32(i), Key: []byte("k"), Value: []byte("value of a record")}
		d.records = r.append(d.records)
	}
	return d
}

func (d draft) with(change func(*draft)) draft {
	change(&d)
	return d
}

// packed compresses the records with the codec.
func (d draft) packed(codec uint8) draft {
	d.attrs = d.attrs&^AttrCodec | Attrs(codec)
	d.records = Compress(nil, codec, d.records)
	return d
}

func (d draft) view() View {
	v := make(View, HeaderLen, HeaderLen+len(d.records))
	v = append(v, d.records...)
	binary.BigEndian.PutUint64(v[posBase:], uint64(d.base))
	binary.BigEndian.PutUint32(v[posEpoch:], uint32(d.leader))
	v[posMagic] = magic
	binary.BigEndian.PutUint16(v[posAttrs:], uint16(d.attrs))
	binary.BigEndian.PutUint32(v[posLastDelta:], uint32(d.delta))
	binary.BigEndian.PutUint64(v[posBaseTime:], uint64(d.baseTime))
	binary.BigEndian.PutUint64(v[posMaxTime:], uint64(d.maxTime))
	binary.BigEndian.PutUint64(v[posPID:], uint64(d.pid))
	binary.BigEndian.PutUint16(v[posPEpoch:], uint16(d.epoch))
	binary.BigEndian.PutUint32(v[posSequence:], uint32(d.seq))
	binary.BigEndian.PutUint32(v[posCount:], uint32(d.count))
	v.seal()
	return v
}

// client is what the broker asks of a batch by default.
var client = Limits{BytesMax: 1048588, AllowZstd: true, Deep: true}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// want fails unless err is the fault expected, with its code.
func want(t *testing.T, err, fault error, code int16) {
	t.Helper()
	if !errors.Is(err, fault) || err == nil {
		t.Fatalf("got %v, want %v", err, fault)
	}
	if got := Code(err); got != code {
		t.Fatalf("%v has code %d, want %d", err, got, code)
	}
}

// wantRecord fails unless err is a RecordError of that record, code and text.
func wantRecord(t *testing.T, err error, index int32, code int16, text string) {
	t.Helper()
	r, ok := errors.AsType[*RecordError](err)
	if !ok || *r != (RecordError{index, code, text}) {
		t.Fatalf("got %v, want record %d, code %d, %q", err, index, code, text)
	}
	if Code(err) != code {
		t.Fatalf("code %d, want %d", Code(err), code)
	}
}

// keepRecord copies what Records gave out.
func keepRecord(r Record) Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	var hs []Header
	for _, h := range r.Headers {
		hs = append(hs, Header{h.Key, bytes.Clone(h.Value)})
	}
	r.Headers = hs
	return r
}

func records(t testing.TB, v View) []Record {
	t.Helper()
	var out []Record
	if err := v.Records(func(r Record) error {
		out = append(out, keepRecord(r))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// unpacked is the records section decompressed.
func unpacked(t testing.TB, v View) []byte {
	t.Helper()
	p, s, err := v.plain()
	if err != nil {
		t.Fatal(err)
	}
	if s != nil {
		defer s.close()
	}
	return bytes.Clone(p)
}

// text is n bytes that compress like words, not to be changed.
func text(n int) []byte { return corpus()[:n:n] }

var corpus = sync.OnceValue(func() []byte {
	const n = 4 << 20
	words := []string{"offset ", "leader ", "epoch ", "marker ", "batch ", "record ", "producer ", "0123 "}
	r := rand.New(rand.NewPCG(7, 7))
	var b []byte
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
	}
	return b
})

// noise is n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// sized builds a batch of n records with values cut from body.
func sized(codec uint8, n int, body []byte) View {
	b := Builder{BaseTime: testTime}
	size := len(body) / n
	for i := range n {
		b.Add(Record{TimeDelta: int64(i % 50), Value: body[i*size : (i+1)*size]})
	}
	return b.Done(Attrs(codec), 1001, 0, 0)
}

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}
