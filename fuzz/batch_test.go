package fuzz

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"sekali/batch"
)

// Offsets in the header of a batch, written down a second time on purpose.
const (
	atLength = 8
	atMagic  = 16
	atCRC    = 17
	atAttrs  = 21
	atDelta  = 23
	atTime   = 27
	atMax    = 35
	atPID    = 43
	atPEpoch = 51
	atSeq    = 53
	atCount  = 57
)

// batchSeeds are test vectors of the format: a plain batch, one with a producer and headers, a marker, an empty one.
var batchSeeds = []string{
	"00000000000000000000003affffffff02bbcc41150000000000000000018bcfe568000000018bcfe56800" +
		"ffffffffffffffffffffffffffff00000001100000000104686900",
	"000000000000000000000053ffffffff0235af73fa0000000000020000018bcfe568000000018bcfe56805" +
		"00000000000003e900007ffffffe0000000322000000046b300476300402680231026e0110000a02046b3101000c000604000000",
	"000000000000006700000042000000050249db25120030000000000000018bcfe5680a0000018bcfe5680a" +
		"00000000000003e90000ffffffff000000012000000008000000010c00000000000700",
	"0000000000000064000000310000000502c6a4a61c001000000002ffffffffffffffff0000018bcfe56805" +
		"00000000000003e900000000000000000000",
}

func batchSeed(tb testing.TB, i int) []byte {
	b, err := hex.DecodeString(batchSeeds[i])
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// FuzzBatchNext takes arbitrary bytes for a log. Properties: Next ends, cuts exactly by the length field and loses no
// byte; nothing that reads or rewrites what it returns panics, and reading changes no byte; a refusal has code 2 or 87;
// what Validate finds intact has the checksum a bit-by-bit CRC-32C gives, stays intact under every stamp, and its last
// offset and sequence follow from the delta.
func FuzzBatchNext(f *testing.F) {
	var all []byte
	for i := range batchSeeds {
		b := batchSeed(f, i)
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Add(all[:200])
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0e\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, log []byte) {
		before := bytes.Clone(log)
		rest := log
		for {
			v, next, err := batch.Next(rest)
			if err != nil {
				if c := batch.Code(err); c != 2 && c != 87 || len(next) != len(rest) || v != nil {
					t.Fatalf("%v, code %d, rest of %d", err, c, len(next))
				}
				break
			}
			length := int(int32(binary.BigEndian.Uint32(rest[atLength:])))
			if len(v) != 12+length || len(v) < batch.HeaderLen || cap(v) != len(v) || len(v)+len(next) != len(rest) {
				t.Fatalf("cut %d of %d, length field %d", len(v), len(rest), length)
			}
			batchOne(t, v)
			rest = next
		}
		if !bytes.Equal(before, log) {
			t.Fatal("reading changed the log")
		}
	})
}

func batchOne(t *testing.T, v batch.View) {
	delta := v.LastOffsetDelta()
	if v.LastOffset() != v.BaseOffset()+int64(delta) {
		t.Fatalf("last offset %d, base %d, delta %d", v.LastOffset(), v.BaseOffset(), delta)
	}
	stored := int32(binary.BigEndian.Uint32(v[atSeq:]))
	first, last := v.Sequence()
	if stored < 0 && (first != -1 || last != -1) ||
		stored >= 0 && (first != stored || int64(last) != (int64(first)+int64(delta)+1<<31)%(1<<31)) {
		t.Fatalf("sequence %d: %d to %d, delta %d", stored, first, last, delta)
	}
	_, shallow := v.Validate(batch.Limits{})
	_, deep := v.Validate(batch.Limits{Deep: true, AllowZstd: true})
	_, walked := v.Validate(batch.Limits{Deep: true, Stored: true, DecodedMax: 1 << 20})
	if shallow != nil {
		if c := batch.Code(shallow); c != 2 && c != 87 || deep == nil || walked == nil {
			t.Fatalf("%v; deep %v, stored %v", shallow, deep, walked)
		}
		_, _ = batch.ParseMarker(v)
		return
	}
	if deep == nil && walked != nil {
		t.Fatalf("accepted from a client, refused from a log: %v", walked)
	}
	if got := batchCRC(v[atAttrs:]); got != v.CRC() || v[atMagic] != 2 {
		t.Fatalf("accepted with checksum %08x, should be %08x", v.CRC(), got)
	}
	if n := v.Count(); n < 0 || int64(n) > int64(delta)+1 {
		t.Fatalf("accepted with %d records, delta %d", n, delta)
	}
	if m, err := batch.ParseMarker(v); err == nil && (!v.Attrs().Control() || v.Count() == 0 || m.Version != 0) {
		t.Fatalf("a marker out of %x", []byte(v))
	}
	w := batch.View(bytes.Clone(v))
	w.Stamp(12345, 7)
	w.StampMaxTime(99)
	w.StampAppendTime(100)
	if _, err := w.Validate(batch.Limits{}); err != nil {
		t.Fatalf("damaged by a stamp: %v", err)
	}
	if w.BaseOffset() != 12345 || w.LeaderEpoch() != 7 || w.MaxTime() != 100 || !w.Attrs().AppendTime() {
		t.Fatalf("stamped %x", []byte(w))
	}
	out, err := v.Rewrite(nil, func(r batch.Record) bool { return r.OffsetDelta&1 == 0 }, -1)
	if err == nil {
		if _, err := batch.View(out).Validate(batch.Limits{}); err != nil {
			t.Fatalf("rewritten to %x: %v", out, err)
		}
	}
}

// batchCRC is CRC-32C bit by bit.
func batchCRC(p []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range p {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

// FuzzValidate takes arbitrary records, compressed by us or not at all, under an honest frame. Properties: the walk
// agrees with a slow reader made of the standard library's parts; what it accepts, the decompressors of other clients
// read to the same bytes (behind the last member gzip may hold anything); accepted records come out of Records as the
// slow reader has them; the limit of the output is exact; rewriting everything changes nothing.
func FuzzValidate(f *testing.F) {
	for i := range 2 {
		b := batch.View(batchSeed(f, i))
		for codec := batch.None; codec <= batch.Zstd; codec++ {
			plain := []byte(b[batch.HeaderLen:])
			f.Add(plain, codec, true, b.Count(), b.LastOffsetDelta(), b.BaseTime())
			f.Add(batch.Compress(nil, codec, plain), codec, false, b.Count(), b.LastOffsetDelta(), b.BaseTime())
		}
		f.Add(batch.CompressXerial(nil, b[batch.HeaderLen:]), batch.Snappy, false, b.Count(), b.LastOffsetDelta(), int64(0))
	}
	var big bytes.Buffer
	w := lz4.NewWriter(&big)
	must(f, w.Apply(lz4.BlockChecksumOption(true), lz4.SizeOption(34), lz4.ConcurrencyOption(1)))
	_, err := w.Write(batchSeed(f, 1)[batch.HeaderLen:])
	must(f, errors.Join(err, w.Close()))
	f.Add(big.Bytes(), batch.LZ4, false, int32(3), int32(2), int64(5))
	f.Fuzz(func(t *testing.T, records []byte, codec uint8, pack bool, count, delta int32, base int64) {
		if codec > batch.Zstd || len(records) > 1<<20 {
			return
		}
		packed := records
		if pack {
			packed = batch.Compress(nil, codec, records)
		}
		v := batchFrame(packed, codec, count, delta, base)
		checkRecords(t, v, records, codec, pack)
	})
}

// batchFrame is a client's header with a true checksum before the records given.
func batchFrame(records []byte, codec uint8, count, delta int32, base int64) batch.View {
	v := make([]byte, batch.HeaderLen, batch.HeaderLen+len(records))
	v = append(v, records...)
	binary.BigEndian.PutUint32(v[atLength:], uint32(len(v)-12))
	v[atMagic] = 2
	v[atAttrs+1] = codec
	binary.BigEndian.PutUint32(v[atDelta:], uint32(delta))
	binary.BigEndian.PutUint64(v[atTime:], uint64(base))
	binary.BigEndian.PutUint64(v[atMax:], uint64(base))
	binary.BigEndian.PutUint64(v[atPID:], 77)
	binary.BigEndian.PutUint16(v[atPEpoch:], 1)
	binary.BigEndian.PutUint32(v[atSeq:], math.MaxInt32)
	binary.BigEndian.PutUint32(v[atCount:], uint32(count))
	binary.BigEndian.PutUint32(v[atCRC:], batchCRC(v[atAttrs:]))
	return v
}

const batchDecodedMax = 8 << 20

func checkRecords(t *testing.T, v batch.View, records []byte, codec uint8, pack bool) {
	count, delta := v.Count(), v.LastOffsetDelta()
	l := batch.Limits{Deep: true, AllowZstd: true, DecodedMax: batchDecodedMax}
	got, err := v.Validate(l)
	headerOK := delta >= 0 && count > 0 && int64(delta)+1 == int64(count)
	if !headerOK {
		if !errors.Is(err, batch.ErrCount) && !errors.Is(err, batch.ErrDelta) {
			t.Fatalf("%d records, delta %d: %v", count, delta, err)
		}
		return
	}
	if pack || codec == batch.None {
		exp, parsed := batchParse(records, count, v.BaseTime())
		if (err == nil) != parsed {
			t.Fatalf("got %v; the slow reader accepts: %v", err, parsed)
		}
		if err == nil && got != exp {
			t.Fatalf("found %v, the slow reader %v", got, exp)
		}
	}
	if err != nil {
		if c := batch.Code(err); c != 87 && c != 10 {
			t.Fatalf("%v has code %d", err, c)
		}
		return
	}
	plain, ok := batchUnpack(v[batch.HeaderLen:], codec)
	if !ok {
		t.Fatalf("accepted, but no other decompressor reads %x", []byte(v[batch.HeaderLen:]))
	}
	exp, parsed := batchParse(plain, count, v.BaseTime())
	if !parsed || exp != got {
		t.Fatalf("found %v, read by another decompressor %v, %v", got, exp, parsed)
	}
	acceptedRecords(t, v, plain)
	if codec == batch.None || len(plain) == 0 {
		return
	}
	l.DecodedMax = len(plain)
	if _, err := v.Validate(l); err != nil {
		t.Fatalf("limit of exactly %d: %v", len(plain), err)
	}
	if l.DecodedMax--; l.DecodedMax > 0 {
		if _, err := v.Validate(l); !errors.Is(err, batch.ErrDecodedSize) {
			t.Fatalf("limit one below %d: %v", len(plain), err)
		}
	}
}

// acceptedRecords encodes again what Records gives and compares with the plain records, field by field.
func acceptedRecords(t *testing.T, v batch.View, plain []byte) {
	i := int32(0)
	rest := plain
	if err := v.Records(func(r batch.Record) error {
		n, k := binary.Varint(rest)
		body := rest[k : k+int(n)]
		rest = rest[k+int(n):]
		if e := batchRecord(body); r.OffsetDelta != i || !sameFields(e, r) {
			t.Fatalf("record %d: %+v, want %+v", i, r, e)
		}
		i++
		return nil
	}); err != nil || len(rest) != 0 || i != v.Count() {
		t.Fatalf("%d of %d records, %d bytes left: %v", i, v.Count(), len(rest), err)
	}
	out, err := v.Rewrite(nil, func(batch.Record) bool { return true }, -1)
	if err != nil || !bytes.Equal(out, v) {
		t.Fatalf("rewriting everything: %v", err)
	}
	none, err := v.Rewrite(nil, func(batch.Record) bool { return false }, -1)
	if err != nil || len(none) != batch.HeaderLen || batch.View(none).LastOffset() != v.LastOffset() {
		t.Fatalf("rewriting nothing: %v, %x", err, none)
	}
}

func sameFields(a, b batch.Record) bool {
	same := func(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }
	if a.Attrs != b.Attrs || a.OffsetDelta != b.OffsetDelta || a.TimeDelta != b.TimeDelta || !same(a.Key, b.Key) ||
		!same(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

// slow reads the fields of a record with the standard library; after a failure it reads nothing.
type slow struct {
	p   []byte
	bad bool
}

func (s *slow) number(bytesMax int, low, high int64) int64 {
	x, n := binary.Varint(s.p)
	if s.bad || n <= 0 || n > bytesMax || x < low || x > high {
		s.bad = true
		return 0
	}
	s.p = s.p[n:]
	return x
}

func (s *slow) vint() int64 { return s.number(5, math.MinInt32, math.MaxInt32) }

func (s *slow) part() []byte {
	n := s.vint()
	if n < 0 || s.bad {
		return nil
	}
	if n > int64(len(s.p)) {
		s.bad = true
		return nil
	}
	out := s.p[:n:n]
	s.p = s.p[n:]
	return out
}

func (s *slow) record() (r batch.Record) {
	if len(s.p) == 0 {
		s.bad = true
		return r
	}
	r.Attrs = int8(s.p[0])
	s.p = s.p[1:]
	r.TimeDelta = s.number(10, math.MinInt64, math.MaxInt64)
	r.OffsetDelta = int32(s.vint())
	r.Key, r.Value = s.part(), s.part()
	n := s.vint()
	if n < 0 || n > int64(len(s.p)) {
		s.bad = true
	}
	for ; n > 0 && !s.bad; n-- {
		key := s.part()
		if key == nil {
			s.bad = true
		}
		r.Headers = append(r.Headers, batch.Header{Key: string(key), Value: s.part()})
	}
	return r
}

func batchRecord(body []byte) batch.Record {
	s := slow{p: body}
	return s.record()
}

// batchParse reads count records; false unless they are well-formed, in order, and all there is.
func batchParse(p []byte, count int32, base int64) (c batch.Checked, ok bool) {
	c.MaxTime = -1
	all := slow{p: p}
	for i := range count {
		n := all.vint()
		if all.bad || n < 0 || n > int64(len(all.p)) {
			return batch.Checked{}, false
		}
		one := slow{p: all.p[:n]}
		all.p = all.p[n:]
		r := one.record()
		if one.bad || len(one.p) != 0 || r.OffsetDelta != i {
			return batch.Checked{}, false
		}
		if at := base + r.TimeDelta; at > c.MaxTime {
			c = batch.Checked{MaxTime: at, MaxTimeDelta: i}
		}
	}
	return c, len(all.p) == 0
}

// batchUnpack decompresses with other means than package batch: the standard library for gzip, the whole lz4 library
// with all its checks, a snappy reader written from the format's description, zstd in one call.
func batchUnpack(p []byte, codec uint8) ([]byte, bool) {
	switch codec {
	case batch.Gzip:
		z, err := stdgzip.NewReader(bytes.NewReader(p))
		if err != nil {
			return nil, false
		}
		out, err := io.ReadAll(io.LimitReader(z, batchDecodedMax+1))
		junk := err != nil && !errors.Is(err, stdgzip.ErrChecksum)
		return out, err == nil || junk
	case batch.Snappy:
		return slowXerial(p)
	case batch.LZ4:
		out, err := io.ReadAll(io.LimitReader(lz4.NewReader(bytes.NewReader(p)), batchDecodedMax+1))
		return out, err == nil
	case batch.Zstd:
		z, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, false
		}
		defer z.Close()
		out, err := z.DecodeAll(p, nil)
		return out, err == nil
	}
	return p, true
}

func slowXerial(p []byte) (out []byte, ok bool) {
	const header = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
	if !bytes.HasPrefix(p, []byte(header[:8])) || len(p) < len(header) {
		return slowSnappy(p)
	}
	for len(p) > 0 {
		if bytes.HasPrefix(p, []byte(header[:8])) && len(p) >= len(header) {
			p = p[len(header):]
			continue
		}
		if len(p) < 4 || int64(binary.BigEndian.Uint32(p)) > int64(len(p)-4) {
			return nil, false
		}
		n := 4 + int(binary.BigEndian.Uint32(p))
		chunk, ok := slowSnappy(p[4:n])
		if !ok {
			return nil, false
		}
		out, p = append(out, chunk...), p[n:]
	}
	return out, true
}

// slowSnappy reads one block byte by byte.
func slowSnappy(p []byte) (out []byte, ok bool) {
	want, k := binary.Uvarint(p)
	if k <= 0 || want > batchDecodedMax {
		return nil, false
	}
	p = p[k:]
	little := func(n int) (x int) {
		for i := range n {
			x |= int(p[i]) << (8 * i)
		}
		p = p[n:]
		return x
	}
	for len(p) > 0 {
		tag := int(p[0])
		p = p[1:]
		kind, n := tag&3, tag>>2+1
		extra := []int{max(n-60, 0), 1, 2, 4}[kind]
		if len(p) < extra {
			return nil, false
		}
		x := little(extra)
		if kind == 0 {
			if extra > 0 {
				n = x + 1
			}
			if n > len(p) {
				return nil, false
			}
			out, p = append(out, p[:n]...), p[n:]
			continue
		}
		if kind == 1 {
			n, x = tag>>2&7+4, x|tag>>5<<8
		}
		if x == 0 || x > len(out) {
			return nil, false
		}
		for range n {
			out = append(out, out[len(out)-x])
		}
	}
	return out, uint64(len(out)) == want
}
