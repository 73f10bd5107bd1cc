package batch

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func controlDraft(key, value []byte) draft {
	r := Record{Key: key, Value: value}
	return draft{
		baseTime: testTime, maxTime: testTime, pid: 1001, attrs: AttrControl | AttrTransactional, seq: -1, count: 1,
		records: r.append(nil),
	}
}

func TestParseMarker(t *testing.T) {
	key := []byte{0, 0, 0, 1}
	value := []byte{0, 0, 0, 0, 0, 7}
	ok := Marker{PID: 1001, CoordEpoch: 7, Commit: true, Time: testTime}
	good := func(change func(*draft)) View { return controlDraft(key, value).with(change).view() }
	for name, x := range map[string]struct {
		v   View
		err error
	}{
		"good":                {good(func(*draft) {}), nil},
		"value longer":        {controlDraft(key, append(value[:6:6], 1, 2, 3)).view(), nil},
		"value version 1":     {controlDraft(key, []byte{0, 1, 0, 0, 0, 7}).view(), nil},
		"key longer":          {controlDraft(append(key[:4:4], 9), value).view(), nil},
		"key version 1":       {controlDraft([]byte{0, 1, 0, 1}, value).view(), nil},
		"leader change":       {controlDraft([]byte{0, 0, 0, 2}, value).view(), ErrNoMarker},
		"voters":              {controlDraft([]byte{0, 0, 0, 6}, nil).view(), ErrNoMarker},
		"negative type":       {controlDraft([]byte{0, 0, 0xff, 0xff}, nil).view(), ErrNoMarker},
		"empty":               {good(func(d *draft) { d.count, d.records = 0, nil }), ErrNoMarker},
		"data":                {good(func(d *draft) { d.attrs = AttrTransactional }), ErrCorrupt},
		"compressed":          {good(func(d *draft) { d.attrs |= Attrs(Zstd) }), ErrCorrupt},
		"no record":           {good(func(d *draft) { d.records = nil }), ErrCorrupt},
		"record cut":          {good(func(d *draft) { d.records = d.records[:10] }), ErrCorrupt},
		"negative length":     {good(func(d *draft) { d.records[0] = 1 }), ErrCorrupt},
		"key null":            {controlDraft(nil, value).view(), ErrCorrupt},
		"key short":           {controlDraft(key[:3], value).view(), ErrCorrupt},
		"key version -1":      {controlDraft([]byte{0xff, 0xff, 0, 1}, value).view(), ErrCorrupt},
		"value null":          {controlDraft(key, nil).view(), ErrCorrupt},
		"value short":         {controlDraft(key, value[:5]).view(), ErrCorrupt},
		"value version -1":    {controlDraft(key, []byte{0xff, 0xff, 0, 0, 0, 7}).view(), ErrCorrupt},
		"malformed, no panic": {good(func(d *draft) { d.records = []byte{12, 0, 0, 0, 8, 0, 0} }), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseMarker(x.v)
			if err != x.err || err == nil && m != ok {
				t.Fatal(m, err)
			}
		})
	}
}

func TestMarkerRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Marker{
			PID: rapid.Int64Range(0, math.MaxInt64).Draw(t, "pid"), Epoch: rapid.Int16Range(0, 32767).Draw(t, "epoch"),
			CoordEpoch: rapid.Int32().Draw(t, "coordinator epoch"), Commit: rapid.Bool().Draw(t, "commit"),
			Time: rapid.Int64().Draw(t, "time"),
		}
		base, leader := rapid.Int64().Draw(t, "base"), rapid.Int32().Draw(t, "leader epoch")
		b := AppendMarker(nil, base, leader, m)
		v, rest, err := Next(b)
		if err != nil || len(rest) != 0 || len(v) != MarkerLen {
			t.Fatal(len(v), len(rest), err)
		}
		if _, err := v.Validate(Limits{Deep: true, Stored: true}); err != nil {
			t.Fatal(err)
		}
		if got, err := ParseMarker(v); err != nil || got != m {
			t.Fatal(got, err)
		}
		if f, l := v.Sequence(); v.BaseOffset() != base || v.LeaderEpoch() != leader || f != -1 || l != -1 {
			t.Fatal(v.BaseOffset(), v.LeaderEpoch(), f, l)
		}
		v.Stamp(0, -1)
		_, err = v.Validate(client) // no client may write one
		if err != ErrControl {
			t.Fatal(err)
		}
	})
}
