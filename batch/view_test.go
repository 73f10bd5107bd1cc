package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func TestNextTruncated(t *testing.T) {
	a := unhex(t, vectorA)
	for n := range a {
		_, rest, err := Next(a[:n])
		want(t, err, ErrShort, 87)
		if len(rest) != n {
			t.Fatalf("%d bytes: rest of %d", n, len(rest))
		}
	}
	v, rest, err := Next(a)
	if err != nil || !bytes.Equal(v, a) || len(rest) != 0 {
		t.Fatal(v, rest, err)
	}
}

func TestNextSplits(t *testing.T) {
	a, b := unhex(t, vectorA), unhex(t, vectorB)
	in := append(bytes.Clone(a), b...)
	v, rest, err := Next(in)
	if err != nil || !bytes.Equal(v, a) || !bytes.Equal(rest, b) || cap(v) != len(a) {
		t.Fatal(v, rest, err)
	}
	v, rest, err = Next(rest)
	if err != nil || !bytes.Equal(v, b) || len(rest) != 0 {
		t.Fatal(v, rest, err)
	}
	_, _, err = Next(rest)
	want(t, err, ErrShort, 87)
}

func TestNextLengths(t *testing.T) {
	for _, x := range []struct {
		length int32
		magic  byte
		err    error
		code   int16
	}{
		{49, 2, nil, 0},
		{48, 2, ErrCorrupt, 2},
		{31, 2, ErrCorrupt, 2},
		{14, 2, ErrCorrupt, 2},
		{13, 2, ErrCorrupt, 2},
		{0, 2, ErrCorrupt, 2},
		{-1, 2, ErrCorrupt, 2},
		{-1 << 31, 2, ErrCorrupt, 2},
		{1<<31 - 1, 2, ErrShort, 87},
		{200, 2, ErrShort, 87},
		{14, 0, ErrOldMagic, 87},
		{48, 1, ErrOldMagic, 87},
		{48, 3, ErrMagic, 2},
		{48, 0xff, ErrMagic, 2},
		{13, 1, ErrCorrupt, 2},
		{49, 1, nil, 0}, // left to Validate
	} {
		b := bytes.Clone(unhex(t, vectorA))
		binary.BigEndian.PutUint32(b[posLength:], uint32(x.length))
		b[posMagic] = x.magic
		v, _, err := Next(b)
		if x.err != nil {
			want(t, err, x.err, x.code)
			continue
		}
		if err != nil || len(v) != int(x.length)+lengthEnd {
			t.Fatal(x, len(v), err)
		}
	}
}

// Only the fields in front of the checksum may change unnoticed, and of those the length and the magic are noticed too.
func TestEveryBitFlip(t *testing.T) {
	for _, hex := range []string{vectorA, vectorB} {
		good := View(unhex(t, hex))
		for bit := range len(good) * 8 {
			v := View(bytes.Clone(good))
			v[bit/8] ^= 0x80 >> (bit % 8)
			_, err := v.Validate(Limits{})
			switch at := bit / 8; {
			case at < posLength, at >= posEpoch && at < posMagic:
				if err != nil {
					t.Fatalf("bit %d is outside the checksum: %v", bit, err)
				}
			case at < posEpoch:
				want(t, err, ErrCorrupt, 2)
			case at == posMagic:
				if !errors.Is(err, ErrMagic) {
					t.Fatalf("bit %d: %v", bit, err)
				}
			default:
				want(t, err, ErrCRC, 2)
				want(t, err, ErrCorrupt, 2)
			}
		}
	}
}

func TestAttrs(t *testing.T) {
	for bit := range 16 {
		a := Attrs(1 << bit)
		got := [5]bool{a.Codec() != 0, a.AppendTime(), a.Transactional(), a.Control(), a.Horizon()}
		if exp := [5]bool{bit < 3, bit == 3, bit == 4, bit == 5, bit == 6}; got != exp {
			t.Fatalf("bit %d: %v", bit, got)
		}
	}
	if c := Attrs(0xfffc).Codec(); c != Zstd {
		t.Fatal(c)
	}
}

func TestStampMaxTime(t *testing.T) {
	v := View(unhex(t, vectorB))
	crc := v.CRC()
	v.StampMaxTime(testTime + 5)
	if v.CRC() != crc {
		t.Fatal("the checksum was redone where nothing changed")
	}
	for _, ms := range []int64{testTime - 1, testTime + 100, -1, 0} {
		v.StampMaxTime(ms)
		if v.MaxTime() != ms || v.CRC() == crc {
			t.Fatal(v.MaxTime(), v.CRC())
		}
		if c, err := v.Validate(client); err != nil || c.MaxTime != testTime+5 {
			t.Fatal(c, err)
		}
	}
	v.StampMaxTime(testTime + 5)
	if v.CRC() != crc {
		t.Fatal("the way back does not lead to the same bytes")
	}
}

// A stamp that redoes the checksum clears the attribute bits nobody uses; without one they stay as sent.
func TestStampUnusedBits(t *testing.T) {
	d := plainDraft(1)
	d.attrs = 0xff80
	v := d.view()
	if _, err := v.Validate(client); err != nil {
		t.Fatal(err)
	}
	v.StampMaxTime(testTime)
	if v.Attrs() != 0xff80 {
		t.Fatalf("%04x", v.Attrs())
	}
	v.StampMaxTime(testTime + 1)
	if v.Attrs() != 0 {
		t.Fatalf("%04x", v.Attrs())
	}
	v = d.view()
	v.StampAppendTime(testTime)
	if v.Attrs() != AttrAppendTime {
		t.Fatalf("%04x", v.Attrs())
	}
	if _, err := v.Validate(Limits{Deep: true, Stored: true}); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsAreDistinct(t *testing.T) {
	all := map[error]int16{
		ErrShort: 87, ErrCorrupt: 2, ErrCRC: 2, ErrMagic: 2, ErrOldMagic: 87, ErrTooLarge: 10, ErrZstdVersion: 76,
		ErrBaseOffset: 87, ErrCodec: 87, ErrDelta: 87, ErrCount: 87, ErrControl: 87, ErrAppendTime: 32, ErrHorizon: 87,
		ErrSequence: 87, ErrProducer: 87, ErrDecode: 87, ErrDecoderPanic: 87, ErrDecodedSize: 10, ErrTrailing: 87,
		ErrNoMarker: 87,
	}
	texts := map[string]bool{}
	for err, code := range all {
		if Code(err) != code || texts[err.Error()] {
			t.Fatalf("%v: code %d, want %d", err, Code(err), code)
		}
		texts[err.Error()] = true
		for other := range all {
			kind := errors.Unwrap(err)
			if is := errors.Is(err, other); is != (err == other || kind == other) {
				t.Fatalf("%v is %v: %v", err, other, is)
			}
		}
	}
	if Code(nil) != 0 || Code(bytes.ErrTooLarge) != -1 {
		t.Fatal(Code(nil), Code(bytes.ErrTooLarge))
	}
}
