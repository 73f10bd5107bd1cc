package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func drawBytes(t *rapid.T, most int, label string) []byte {
	if rapid.IntRange(0, 4).Draw(t, label+" null") == 0 {
		return nil
	}
	n := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, most)).Draw(t, label+" length")
	b := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, label), n+1)
	return b[:n]
}

func drawRecord(t *rapid.T) Record {
	r := Record{
		Attrs:     int8(rapid.Int8().Draw(t, "attributes")),
		TimeDelta: rapid.OneOf(rapid.Int64Range(-1000, 1000), rapid.Int64()).Draw(t, "time delta"),
		Key:       drawBytes(t, 200, "key"), Value: drawBytes(t, 20000, "value"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{rapid.StringN(0, 10, 40).Draw(t, "name"), drawBytes(t, 100, "header")})
	}
	return r
}

// What a builder makes is accepted, gives its records back, says the truth about the largest time, and survives the
// stamps. A flipped bit from the checksum on is noticed.
func TestBuildValidateRead(t *testing.T) {
	for codec := range Zstd + 1 {
		t.Run(codecNames[codec], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkBuilt(t, codec) })
		})
	}
}

func checkBuilt(t *rapid.T, codec uint8) {
	in := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 12).Draw(t, "records")
	b := Builder{BaseTime: rapid.Int64Range(-10, 1<<50).Draw(t, "base time")}
	seq := rapid.Int32Range(0, math.MaxInt32).Draw(t, "sequence")
	exp := Checked{-1, 0}
	size := HeaderLen
	for i, r := range in {
		in[i].OffsetDelta = int32(i)
		b.Add(r)
		size += len(in[i].append(nil))
		if at := b.BaseTime + r.TimeDelta; at > exp.MaxTime {
			exp = Checked{at, int32(i)}
		}
	}
	if b.Len() != size {
		t.Fatalf("length %d, want %d", b.Len(), size)
	}
	v := b.Done(Attrs(codec)|AttrTransactional, 7, 1, seq)
	c, err := v.Validate(client)
	if err != nil || c != exp || v.MaxTime() != exp.MaxTime {
		t.Fatal(c, exp, err)
	}
	at := 0
	if err := v.Records(func(r Record) error {
		if !sameRecord(r, in[at]) {
			t.Fatalf("%+v, want %+v", r, in[at])
		}
		at++
		return nil
	}); err != nil || at != len(in) {
		t.Fatal(at, err)
	}
	bit := rapid.IntRange(posMagic*8, len(v)*8-1).Draw(t, "bit")
	v[bit/8] ^= 1 << (bit % 8)
	if _, err := v.Validate(client); !errors.Is(err, ErrCRC) && !(bit/8 == posMagic && errors.Is(err, ErrMagic)) &&
		!(bit/8 == posAttrs+1 && err == ErrZstdVersion) {
		t.Fatalf("bit %d: %v", bit, err)
	}
	v[bit/8] ^= 1 << (bit % 8)
	base, leader := rapid.Int64Range(0, 1<<60).Draw(t, "base"), rapid.Int32Range(0, 1<<30).Draw(t, "leader epoch")
	v.Stamp(base, leader)
	v.StampAppendTime(testTime)
	stored := Limits{Deep: true, Stored: true}
	if c, err := v.Validate(stored); err != nil || c.MaxTime != testTime {
		t.Fatal(c, err)
	}
	first, last := v.Sequence()
	if v.LastOffset()-v.BaseOffset() != int64(len(in)-1) || first != seq || last != SeqAdd(seq, int32(len(in)-1)) {
		t.Fatal(v.BaseOffset(), v.LastOffset(), first, last)
	}
}

// A rewrite holds exactly the records kept, at their old offsets and times.
func TestRewriteProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 8).Draw(t, "records")
		mask := rapid.Uint8().Draw(t, "kept")
		horizon := rapid.SampledFrom([]int64{-1, 0, testTime, math.MaxInt64}).Draw(t, "horizon")
		b := Builder{BaseTime: testTime}
		for _, r := range in {
			b.Add(r)
		}
		v := b.Done(Attrs(rapid.Uint8Range(None, Zstd).Draw(t, "codec")), 7, 1, 5)
		v.Stamp(1000, 3)
		keep := func(r Record) bool { return mask>>r.OffsetDelta&1 == 1 }
		out, err := v.Rewrite(nil, keep, horizon)
		if err != nil {
			t.Fatal(err)
		}
		w := View(out)
		if _, err := w.Validate(Limits{Deep: true, Stored: true}); err != nil {
			t.Fatal(err)
		}
		var exp []Record
		for i, r := range in {
			if r.OffsetDelta = int32(i); keep(r) {
				exp = append(exp, r)
			}
		}
		if int(w.Count()) != len(exp) || w.LastOffset() != v.LastOffset() || w.BaseOffset() != 1000 {
			t.Fatal(w.Count(), len(exp))
		}
		if err := w.Records(func(r Record) error {
			e := exp[0]
			exp = exp[1:]
			if w.Time(r) != v.Time(e) {
				t.Fatal(w.Time(r), v.Time(e))
			}
			if r.TimeDelta = e.TimeDelta; !sameRecord(r, e) {
				t.Fatalf("%+v, want %+v", r, e)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// The number readers agree with the standard library's on every prefix, but for the range of 32 bits.
func TestVarints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0x80, 0xff, 0, 1, 0x0f, 0x10}))
		p := rapid.SliceOfN(some, 0, 12).Draw(t, "b")
		exp, n := binary.Varint(p)
		got, at := vlong(p, 0)
		if n <= 0 && at != -1 || n > 0 && (at != n || got != exp) {
			t.Fatalf("%x: %d %d, want %d %d", p, got, at, exp, n)
		}
		short, at := vint(p, 0)
		fits := n > 0 && n <= 5 && exp >= math.MinInt32 && exp <= math.MaxInt32
		if !fits && at != -1 || fits && (at != n || int64(short) != exp) {
			t.Fatalf("%x: %d %d, want %d %d", p, short, at, exp, n)
		}
		x := rapid.Int64().Draw(t, "x")
		enc := appendVarint(nil, x)
		if !bytes.Equal(enc, binary.AppendVarint(nil, x)) || varintLen(x) != len(enc) {
			t.Fatalf("%d: %x", x, enc)
		}
		if _, at := vint(p, -1); at != -1 {
			t.Fatal(at)
		}
		if _, at := vlong(p, -1); at != -1 {
			t.Fatal(at)
		}
	})
}

func TestBuilder(t *testing.T) {
	var b Builder
	if b.Len() != HeaderLen {
		t.Fatal(b.Len())
	}
	empty := b.Done(Attrs(Zstd), -1, -1, -1)
	if len(empty) != HeaderLen || empty.Count() != 0 || empty.LastOffsetDelta() != 0 || empty.MaxTime() != -1 {
		t.Fatal(empty)
	}
	if _, err := empty.Validate(Limits{Deep: true, Stored: true}); err != nil {
		t.Fatal(err)
	}
	// Deltas rise by one unless told to rise by more, and the next batch starts over.
	for _, d := range []int32{0, 0, 5, 5, 3, 20} {
		b.Add(Record{OffsetDelta: d})
	}
	v := b.Done(0, -1, -1, -1)
	var got []int32
	for _, r := range records(t, v) {
		got = append(got, r.OffsetDelta)
	}
	if exp := []int32{0, 1, 5, 6, 7, 20}; len(got) != 6 || [6]int32(got) != [6]int32(exp) || v.LastOffsetDelta() != 20 {
		t.Fatal(got, v.LastOffsetDelta())
	}
	b.Add(Record{})
	if next := b.Done(0, -1, -1, -1); next.LastOffsetDelta() != 0 || next.Count() != 1 || next.Magic() != 2 {
		t.Fatal(next.LastOffsetDelta(), next.Count())
	}
	if v.Count() != 6 {
		t.Fatal("the first batch changed with the second")
	}
	// An undefined codec is kept as it is, for tests of those who must refuse it.
	b.Add(Record{})
	_, err := b.Done(6, -1, -1, -1).Validate(client)
	want(t, err, ErrCodec, 87)
}
