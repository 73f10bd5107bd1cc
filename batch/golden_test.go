package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// The test vectors of the format description; Apache Kafka's reader accepts every one of them.
const (
	vectorA = "00000000000000000000003affffffff02bbcc41150000000000000000018bcfe568000000018bcfe56800" +
		"ffffffffffffffffffffffffffff00000001100000000104686900"
	vectorB = "000000000000000000000053ffffffff0235af73fa" + vectorBRest
	// from byte 21 on
	vectorBRest = "0000000000020000018bcfe568000000018bcfe5680500000000000003e900007ffffffe00000003" +
		vectorBRecords
	vectorBRecords = "22000000046b300476300402680231026e0110000a02046b3101000c000604000000"
	vectorB2       = "000000000000006400000053000000050235af73fa" + vectorBRest
	vectorB3       = "0000000000000064000000530000000502826670d50008000000020000018bcfe568000000018bcfe56be8" +
		"00000000000003e900007ffffffe00000003" + vectorBRecords
	vectorC = "000000000000006700000042000000050249db25120030000000000000018bcfe5680a0000018bcfe5680a" +
		"00000000000003e90000ffffffff000000012000000008000000010c00000000000700"
	vectorD = "0000000000000067000000420000000502bde5f35a0030000000000000018bcfe5680a0000018bcfe5680a" +
		"00000000000003e90000ffffffff000000012000000008000000000c00000000000700"
	vectorE = "0000000000000064000000310000000502c6a4a61c001000000002ffffffffffffffff0000018bcfe56805" +
		"00000000000003e900000000000000000000"
	vectorF = "82534e4150505900000000010000000100000028db013c8e010000000180016162636465666768" +
		"de0800000001490002fe490011490004fe49000149"
	vectorG = "04224d1860408233000000ff018e010000000180016162636465666768080025100049001f024900351f0449" +
		"002100ba00c066676861626364656667680000000000"
)

func TestCRCSelfTest(t *testing.T) {
	if got := crc32.Checksum([]byte("123456789"), castagnoli); got != 0xe3069283 {
		t.Fatalf("CRC-32C of 123456789 is %08x", got)
	}
}

func TestVectorA(t *testing.T) {
	v := View(unhex(t, vectorA))
	if len(v) != 70 || v.CRC() != 0xbbcc4115 {
		t.Fatalf("%d bytes, crc %08x", len(v), v.CRC())
	}
	c, err := v.Validate(client)
	if err != nil || c != (Checked{testTime, 0}) {
		t.Fatal(c, err)
	}
	rs := records(t, v)
	if len(rs) != 1 || rs[0].Key != nil || string(rs[0].Value) != "hi" || rs[0].Headers != nil {
		t.Fatalf("%+v", rs)
	}
	b := Builder{BaseTime: testTime}
	b.Add(Record{Value: []byte("hi")})
	if got := b.Done(0, -1, -1, -1); !bytes.Equal(got, v) {
		t.Fatalf("built %x", got)
	}
}

func TestVectorB(t *testing.T) {
	v := View(unhex(t, vectorB))
	if len(v) != 95 || v.CRC() != 0x35af73fa {
		t.Fatalf("%d bytes, crc %08x", len(v), v.CRC())
	}
	c, err := v.Validate(client)
	if err != nil || c != (Checked{testTime + 5, 1}) {
		t.Fatal(c, err)
	}
	pid, epoch := v.Producer()
	first, last := v.Sequence()
	if pid != 1001 || epoch != 0 || first != 2147483646 || last != 0 {
		t.Fatal(pid, epoch, first, last)
	}
	in := []Record{
		{Key: []byte("k0"), Value: []byte("v0"), Headers: []Header{{"h", []byte("1")}, {"n", nil}}},
		{OffsetDelta: 1, TimeDelta: 5, Key: []byte("k1")},
		{OffsetDelta: 2, TimeDelta: 3, Key: []byte{}, Value: []byte{}},
	}
	b := Builder{BaseTime: testTime}
	for _, r := range in {
		b.Add(r)
	}
	if got := b.Done(0, 1001, 0, 2147483646); !bytes.Equal(got, v) {
		t.Fatalf("built %x", got)
	}
	rs := records(t, v)
	if len(rs) != 3 || rs[0].Headers[1].Value != nil || string(rs[0].Headers[0].Value) != "1" {
		t.Fatalf("%+v", rs)
	}
	if rs[1].Value != nil || rs[2].Key == nil || rs[2].Value == nil || len(rs[2].Key)+len(rs[2].Value) != 0 {
		t.Fatalf("null and empty are mixed up: %+v", rs)
	}
	if got := v.Time(rs[1]); got != testTime+5 {
		t.Fatal(got)
	}
}

func TestVectorB2Stamp(t *testing.T) {
	v := View(unhex(t, vectorB))
	v.Stamp(100, 5)
	if !bytes.Equal(v, unhex(t, vectorB2)) {
		t.Fatalf("stamped %x", v)
	}
	if _, err := v.Validate(Limits{}); err != nil {
		t.Fatal(err)
	}
	if v.BaseOffset() != 100 || v.LastOffset() != 102 || v.LeaderEpoch() != 5 {
		t.Fatal(v.BaseOffset(), v.LastOffset(), v.LeaderEpoch())
	}
}

func TestVectorB3AppendTime(t *testing.T) {
	v := View(unhex(t, vectorB2))
	v.StampAppendTime(testTime + 1000)
	if !bytes.Equal(v, unhex(t, vectorB3)) || v.CRC() != 0x826670d5 {
		t.Fatalf("stamped %x", v)
	}
	c, err := v.Validate(Limits{Deep: true, Stored: true})
	if err != nil || c != (Checked{testTime + 1000, 2}) {
		t.Fatal(c, err)
	}
	for _, r := range records(t, v) {
		if v.Time(r) != testTime+1000 {
			t.Fatal(v.Time(r))
		}
	}
}

func TestVectorsCAndDMarkers(t *testing.T) {
	m := Marker{PID: 1001, CoordEpoch: 7, Commit: true, Time: testTime + 10}
	for _, x := range []struct {
		hex    string
		commit bool
	}{{vectorC, true}, {vectorD, false}} {
		m.Commit = x.commit
		got := AppendMarker([]byte("before"), 103, 5, m)
		if string(got[:6]) != "before" || !bytes.Equal(got[6:], unhex(t, x.hex)) {
			t.Fatalf("appended %x", got)
		}
		v := View(got[6:])
		if len(v) != MarkerLen {
			t.Fatal(len(v))
		}
		if _, err := v.Validate(Limits{Deep: true, Stored: true}); err != nil {
			t.Fatal(err)
		}
		back, err := ParseMarker(v)
		if err != nil || back != m {
			t.Fatal(back, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = ParseMarker(v) }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
	}
}

func TestVectorERewriteToNothing(t *testing.T) {
	v := View(unhex(t, vectorB2))
	binary.BigEndian.PutUint32(v[posSequence:], 0)
	binary.BigEndian.PutUint16(v[posAttrs:], uint16(AttrTransactional))
	v.seal()
	got, err := v.Rewrite(nil, func(Record) bool { return false }, -1)
	if err != nil || !bytes.Equal(got, unhex(t, vectorE)) {
		t.Fatalf("%v, rewritten to %x", err, got)
	}
	e := View(got)
	if _, err := e.Validate(Limits{Deep: true, Stored: true}); err != nil {
		t.Fatal(err)
	}
	if e.Count() != 0 || e.LastOffset() != 102 || len(records(t, e)) != 0 {
		t.Fatal(e.Count(), e.LastOffset())
	}
	_, err = e.Validate(client.with(func(l *Limits) { l.Stored = false }))
	want(t, err, ErrBaseOffset, 87)
	e.Stamp(0, -1)
	_, err = e.Validate(client)
	want(t, err, ErrCount, 87)
}

func (l Limits) with(change func(*Limits)) Limits {
	change(&l)
	return l
}

func TestVectorsFAndGCompressed(t *testing.T) {
	value := bytes.Repeat([]byte("abcdefgh"), 8)
	var plain []byte
	for i := range 3 {
		r := Record{OffsetDelta: int32(i), Value: value}
		plain = r.append(plain)
	}
	if len(plain) != 219 {
		t.Fatal(len(plain))
	}
	for _, x := range []struct {
		hex   string
		codec uint8
	}{{vectorF, Snappy}, {vectorG, LZ4}} {
		d := plainDraft(3)
		d.attrs, d.records = Attrs(x.codec), unhex(t, x.hex)
		v := d.view()
		if c, err := v.Validate(client); err != nil || c != (Checked{testTime, 0}) {
			t.Fatal(x.codec, c, err)
		}
		if got := unpacked(t, v); !bytes.Equal(got, plain) {
			t.Fatalf("%x", got)
		}
		for i, r := range records(t, v) {
			if r.OffsetDelta != int32(i) || !bytes.Equal(r.Value, value) {
				t.Fatalf("%+v", r)
			}
		}
	}
}
