package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// rewritten runs Rewrite and checks what holds for every result.
func rewritten(t *testing.T, v View, keep func(Record) bool, horizon int64) View {
	t.Helper()
	before := bytes.Clone(v)
	out, err := v.Rewrite([]byte("dst"), keep, horizon)
	if err != nil || string(out[:3]) != "dst" || !bytes.Equal(v, before) {
		t.Fatal(err)
	}
	w, rest, err := Next(out[3:])
	if err != nil || len(rest) != 0 {
		t.Fatal(err)
	}
	if _, err := w.Validate(Limits{Deep: true, Stored: true}); err != nil {
		t.Fatal(err)
	}
	// base offset, leader epoch, last offset delta, producer id, epoch and sequence
	same := [][2]int{{posBase, posLength}, {posEpoch, posMagic}, {posLastDelta, posBaseTime}, {posPID, posCount}}
	for _, at := range same {
		if !bytes.Equal(w[at[0]:at[1]], v[at[0]:at[1]]) {
			t.Fatalf("bytes %d to %d: %x, want %x", at[0], at[1], w[at[0]:at[1]], v[at[0]:at[1]])
		}
	}
	return w
}

func rewriteInput(codec uint8) View {
	b := Builder{BaseTime: testTime}
	for i := range 10 {
		b.Add(Record{
			TimeDelta: int64(i * 100), Key: []byte{byte('a' + i)}, Value: text(50), Headers: []Header{{"h", []byte("x")}},
		})
	}
	v := b.Done(Attrs(codec)|AttrTransactional, 1001, 3, 2147483644)
	v.Stamp(5000, 8)
	return v
}

func TestRewrite(t *testing.T) {
	even := func(r Record) bool { return r.OffsetDelta%2 == 0 }
	for codec := range Zstd + 1 {
		v := rewriteInput(codec)
		all := records(t, v)
		w := rewritten(t, v, even, -1)
		got := records(t, w)
		if len(got) != 5 || w.Count() != 5 || w.Attrs() != v.Attrs() || w.LastOffset() != 5009 {
			t.Fatal(len(got), w.Count(), w.Attrs(), w.LastOffset())
		}
		if w.BaseTime() != testTime || w.MaxTime() != testTime+800 {
			t.Fatal(w.BaseTime(), w.MaxTime())
		}
		for i, r := range got {
			if !sameRecord(r, all[2*i]) {
				t.Fatalf("%+v, want %+v", r, all[2*i])
			}
		}
		if first, last := w.Sequence(); first != 2147483644 || last != 5 {
			t.Fatal(first, last)
		}
	}
}

func sameRecord(a, b Record) bool {
	null := func(p []byte) bool { return p == nil }
	if a.Attrs != b.Attrs || a.OffsetDelta != b.OffsetDelta || a.TimeDelta != b.TimeDelta ||
		!bytes.Equal(a.Key, b.Key) || !bytes.Equal(a.Value, b.Value) || null(a.Key) != null(b.Key) ||
		null(a.Value) != null(b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i, h := range a.Headers {
		o := b.Headers[i]
		if h.Key != o.Key || !bytes.Equal(h.Value, o.Value) || null(h.Value) != null(o.Value) {
			return false
		}
	}
	return true
}

func TestRewriteKeepsAll(t *testing.T) {
	for codec := range Zstd + 1 {
		v := rewriteInput(codec)
		if w := rewritten(t, v, func(Record) bool { return true }, -1); !bytes.Equal(w, v) {
			t.Fatalf("codec %d: the bytes changed", codec)
		}
	}
}

func TestRewriteHorizon(t *testing.T) {
	const horizon = testTime + 86400000
	for codec := range Zstd + 1 {
		v := rewriteInput(codec)
		all := records(t, v)
		w := rewritten(t, v, func(Record) bool { return true }, horizon)
		if !w.Attrs().Horizon() || w.BaseTime() != horizon || w.MaxTime() != v.MaxTime() {
			t.Fatal(w.Attrs(), w.BaseTime(), w.MaxTime())
		}
		for i, r := range records(t, w) {
			if w.Time(r) != v.Time(all[i]) || r.TimeDelta == all[i].TimeDelta {
				t.Fatal(w.Time(r), v.Time(all[i]))
			}
			r.TimeDelta = all[i].TimeDelta
			if !sameRecord(r, all[i]) {
				t.Fatalf("%+v, want %+v", r, all[i])
			}
		}
		// The horizon stays when the batch is cleaned again, and goes with the last record.
		again := rewritten(t, w, func(r Record) bool { return r.OffsetDelta > 7 }, -1)
		if !again.Attrs().Horizon() || again.BaseTime() != horizon || again.Count() != 2 {
			t.Fatal(again.Attrs(), again.BaseTime())
		}
		none := rewritten(t, again, func(Record) bool { return false }, horizon)
		if none.Attrs() != AttrTransactional || none.BaseTime() != -1 || len(none) != HeaderLen {
			t.Fatal(none.Attrs(), none.BaseTime())
		}
		if none.MaxTime() != again.MaxTime() {
			t.Fatal(none.MaxTime())
		}
		if twice := rewritten(t, none, func(Record) bool { return true }, -1); !bytes.Equal(twice, none) {
			t.Fatal("an empty batch changed")
		}
	}
}

func TestRewriteAppendTime(t *testing.T) {
	v := rewriteInput(Zstd)
	v.StampAppendTime(testTime + 5000)
	w := rewritten(t, v, func(r Record) bool { return r.OffsetDelta == 1 }, -1)
	if w.MaxTime() != testTime+5000 || !w.Attrs().AppendTime() {
		t.Fatal(w.MaxTime(), w.Attrs())
	}
}

func TestRewriteMarker(t *testing.T) {
	m := Marker{PID: 1, Epoch: 2, CoordEpoch: 3, Commit: true, Time: testTime}
	v := View(AppendMarker(nil, 77, 8, m))
	w := rewritten(t, v, func(r Record) bool { return true }, testTime+10)
	if got, err := ParseMarker(w); err != nil || got != m {
		t.Fatal(got, err)
	}
	w = rewritten(t, v, func(r Record) bool { return false }, -1)
	if _, err := ParseMarker(w); err != ErrNoMarker {
		t.Fatal(err)
	}
}

func TestRewriteErrors(t *testing.T) {
	keep := func(Record) bool { return true }
	bad := plainDraft(3).with(func(d *draft) { d.records[0]++ }).view()
	out, err := bad.Rewrite([]byte("dst"), keep, -1)
	if string(out) != "dst" {
		t.Fatal(out)
	}
	wantRecord(t, err, 0, 87, textStructure)
	bad = plainDraft(3).with(func(d *draft) { d.attrs = 7 }).view()
	_, err = bad.Rewrite(nil, keep, -1)
	want(t, err, ErrCodec, 87)
	bad = plainDraft(3).with(func(d *draft) { d.attrs = Attrs(Gzip) }).view()
	_, err = bad.Rewrite(nil, keep, -1)
	want(t, err, ErrDecode, 87)
	bad = plainDraft(3).view()
	binary.BigEndian.PutUint32(bad[posCount:], 1<<32-1) // negative: nothing is read, everything is left over
	_, err = bad.Rewrite(nil, keep, -1)
	want(t, err, ErrTrailing, 87)
}

func TestRecordsStops(t *testing.T) {
	stop := errors.New("stop")
	for codec := range Zstd + 1 {
		v := rewriteInput(codec)
		n := 0
		err := v.Records(func(r Record) error {
			if n++; n == 4 {
				return stop
			}
			// A callback may read the same batch.
			return v.Records(func(Record) error { return nil })
		})
		if err != stop || n != 4 {
			t.Fatal(n, err)
		}
	}
}
