package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// Rows of spec/batch.md 7 that a batch alone decides, in their order.
func TestClientHeader(t *testing.T) {
	set := func(change func(*draft)) View { return plainDraft(3).with(change).view() }
	patched := func(at int, b ...byte) View {
		v := plainDraft(3).view()
		copy(v[at:], b)
		return v
	}
	for name, x := range map[string]struct {
		v    View
		err  error
		code int16
	}{
		"good":              {plainDraft(3).view(), nil, 0},
		"idempotent":        {set(func(d *draft) { d.pid, d.epoch, d.seq = 1001, 0, 0 }), nil, 0},
		"transactional":     {set(func(d *draft) { d.pid, d.epoch, d.seq, d.attrs = 0, 3, 7, AttrTransactional }), nil, 0},
		"unused bits":       {set(func(d *draft) { d.attrs = 0xff80 }), nil, 0},
		"leader epoch":      {set(func(d *draft) { d.leader = 17 }), nil, 0},
		"5 magic 0":         {patched(posMagic, 0), ErrOldMagic, 87},
		"5 magic 1":         {patched(posMagic, 1), ErrOldMagic, 87},
		"12 magic 3":        {patched(posMagic, 3), ErrMagic, 2},
		"12 magic -1":       {patched(posMagic, 0xff), ErrMagic, 2},
		"13 base offset":    {set(func(d *draft) { d.base = 1 }), ErrBaseOffset, 87},
		"13 negative base":  {set(func(d *draft) { d.base = -1 }), ErrBaseOffset, 87},
		"14 size":           {set(func(d *draft) { d.records = make([]byte, 1048588) }), ErrTooLarge, 10},
		"15 length":         {plainDraft(3).view()[:100], ErrCorrupt, 2},
		"15 no header":      {plainDraft(3).view()[:60], ErrCorrupt, 2},
		"15 no magic":       {plainDraft(3).view()[:16], ErrCorrupt, 2},
		"15 empty":          {View{}, ErrCorrupt, 2},
		"15 crc":            {patched(posCRC, 1, 2, 3, 4), ErrCRC, 2},
		"15 body":           {patched(HeaderLen+5, 0xee), ErrCRC, 2},
		"16 codec 5":        {set(func(d *draft) { d.attrs = 5 }), ErrCodec, 87},
		"16 codec 6":        {set(func(d *draft) { d.attrs = 6 }), ErrCodec, 87},
		"16 codec 7":        {set(func(d *draft) { d.attrs = 7 }), ErrCodec, 87},
		"17 delta -1":       {set(func(d *draft) { d.delta = -1 }), ErrDelta, 87},
		"17 delta min":      {set(func(d *draft) { d.delta = math.MinInt32 }), ErrDelta, 87},
		"18 count 0":        {set(func(d *draft) { d.count = 0 }), ErrCount, 87},
		"18 count -1":       {set(func(d *draft) { d.count = -1 }), ErrCount, 87},
		"19 count too high": {set(func(d *draft) { d.count = 4 }), ErrCount, 87},
		"19 count too low":  {set(func(d *draft) { d.count = 2 }), ErrCount, 87},
		"19 overflow":       {set(func(d *draft) { d.delta, d.count = math.MaxInt32, math.MinInt32 }), ErrCount, 87},
		"20 control": {set(func(d *draft) {
			d.attrs, d.pid, d.epoch, d.seq = AttrControl|AttrTransactional, 1, 0, -1
		}), ErrControl, 87},
		"20 control alone":   {set(func(d *draft) { d.attrs = AttrControl }), ErrControl, 87},
		"21 no sequence":     {set(func(d *draft) { d.pid, d.epoch = 1001, 0 }), ErrSequence, 87},
		"21 min sequence":    {set(func(d *draft) { d.pid, d.epoch, d.seq = 1001, 0, math.MinInt32 }), ErrSequence, 87},
		"22 pid -2":          {set(func(d *draft) { d.pid = -2 }), ErrProducer, 87},
		"22 epoch -1":        {set(func(d *draft) { d.pid, d.seq = 1001, 0 }), ErrProducer, 87},
		"22 epoch no pid":    {set(func(d *draft) { d.epoch = 0 }), nil, 0},
		"22 sequence no pid": {set(func(d *draft) { d.seq = 0 }), nil, 0},
		"22 txn no pid":      {set(func(d *draft) { d.attrs = AttrTransactional }), ErrProducer, 87},
		"22 horizon":         {set(func(d *draft) { d.attrs = AttrHorizon }), ErrHorizon, 87},
		"append time":        {set(func(d *draft) { d.attrs = AttrAppendTime }), ErrAppendTime, 32},
	} {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(x.v)
			_, err := x.v.Validate(client)
			if x.err == nil && err != nil {
				t.Fatal(err)
			}
			if x.err != nil {
				want(t, err, x.err, x.code)
			}
			if !bytes.Equal(before, x.v) {
				t.Fatal("Validate changed the batch")
			}
		})
	}
}

// An earlier row hides a later one.
func TestOrderOfChecks(t *testing.T) {
	d := plainDraft(1).with(func(d *draft) { d.attrs, d.base, d.delta = Attrs(Zstd)|AttrControl, 5, -1 })
	v := d.view()
	v[posCRC] ^= 1
	v = v[:len(v)-1]
	noZstd := client.with(func(l *Limits) { l.AllowZstd, l.BytesMax = false, 10 })
	v[posMagic] = 3
	_, err := v.Validate(noZstd)
	want(t, err, ErrMagic, 2)
	v[posMagic] = 2
	_, err = v.Validate(noZstd)
	want(t, err, ErrZstdVersion, 76)
	l := noZstd.with(func(l *Limits) { l.AllowZstd = true })
	_, err = v.Validate(l)
	want(t, err, ErrBaseOffset, 87)
	v.Stamp(0, -1)
	_, err = v.Validate(l)
	want(t, err, ErrTooLarge, 10)
	l.BytesMax = 0
	_, err = v.Validate(l)
	want(t, err, ErrCorrupt, 2)
	binary.BigEndian.PutUint32(v[posLength:], uint32(len(v)-lengthEnd))
	_, err = v.Validate(l)
	want(t, err, ErrCRC, 2)
	v.seal()
	_, err = v.Validate(l)
	want(t, err, ErrDelta, 87)
}

func TestBytesMaxIsInclusive(t *testing.T) {
	v := plainDraft(3).view()
	l := client.with(func(l *Limits) { l.BytesMax = len(v) })
	if _, err := v.Validate(l); err != nil {
		t.Fatal(err)
	}
	l.BytesMax--
	_, err := v.Validate(l)
	want(t, err, ErrTooLarge, 10)
}

// Without Deep only the frame counts: what only a log may hold passes, and the header is repeated.
func TestShallow(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*draft)
		err    error
	}{
		"base offset":   {func(d *draft) { d.base = 1 << 40 }, nil},
		"control":       {func(d *draft) { d.attrs = AttrControl | AttrTransactional }, nil},
		"append time":   {func(d *draft) { d.attrs = AttrAppendTime | AttrHorizon }, nil},
		"holes":         {func(d *draft) { d.delta = 1000 }, nil},
		"empty":         {func(d *draft) { d.count, d.records = 0, nil }, nil},
		"unknown codec": {func(d *draft) { d.attrs = 6 }, nil},
		"bad records":   {func(d *draft) { d.records = []byte{1, 2, 3} }, nil},
		"zstd":          {func(d *draft) { d.attrs = Attrs(Zstd) }, nil},
		"delta":         {func(d *draft) { d.delta = -1 }, ErrDelta},
		"count":         {func(d *draft) { d.count = -1 }, ErrCount},
		"count > delta": {func(d *draft) { d.count = 4 }, ErrCount},
		"count at most": {func(d *draft) { d.delta, d.count = math.MaxInt32, math.MaxInt32 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := plainDraft(3).with(x.change).view()
			c, err := v.Validate(Limits{})
			if x.err != nil {
				want(t, err, x.err, 87)
			} else if err != nil || c != (Checked{v.MaxTime(), v.LastOffsetDelta()}) {
				t.Fatal(c, err)
			}
		})
	}
	_, err := plainDraft(3).view().Validate(Limits{BytesMax: 70})
	want(t, err, ErrTooLarge, 10)
}

func TestStored(t *testing.T) {
	stored := Limits{Deep: true, Stored: true}
	rec := func(offsets ...int32) (p []byte) {
		for _, o := range offsets {
			r := Record{OffsetDelta: o, Value: []byte("v")}
			p = r.append(p)
		}
		return p
	}
	for name, x := range map[string]struct {
		change func(*draft)
		index  int32 // of the record refused, -1: none
	}{
		"holes":       {func(d *draft) { d.delta, d.count, d.records = 9, 3, rec(0, 4, 9) }, -1},
		"first gone":  {func(d *draft) { d.delta, d.count, d.records = 9, 1, rec(9) }, -1},
		"twice":       {func(d *draft) { d.delta, d.count, d.records = 9, 3, rec(0, 4, 4) }, 2},
		"twice late":  {func(d *draft) { d.delta, d.count, d.records = 9, 3, rec(0, 1, 1) }, 2},
		"backwards":   {func(d *draft) { d.delta, d.count, d.records = 9, 3, rec(0, 4, 3) }, 2},
		"past end":    {func(d *draft) { d.delta, d.count, d.records = 9, 3, rec(0, 4, 10) }, 2},
		"negative":    {func(d *draft) { d.delta, d.count, d.records = 9, 2, rec(-1, 4) }, 0},
		"largest":     {func(d *draft) { d.delta, d.count, d.records = math.MaxInt32, 2, rec(0, math.MaxInt32) }, -1},
		"past it":     {func(d *draft) { d.delta, d.count, d.records = math.MaxInt32, 2, rec(math.MaxInt32, 0) }, 1},
		"anything on": {func(d *draft) { d.attrs, d.base, d.leader = AttrAppendTime|AttrHorizon|AttrControl, 7, 9 }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plainDraft(3).with(x.change).view().Validate(stored)
			if x.index < 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantRecord(t, err, x.index, 87, textHole)
		})
	}
	_, err := plainDraft(3).with(func(d *draft) { d.attrs = 6 }).view().Validate(stored)
	want(t, err, ErrCodec, 87)
	v := plainDraft(3).packed(Zstd).view()
	if _, err := v.Validate(stored); err != nil {
		t.Fatal(err)
	}
}

// Structure of single records. Lengths are zig-zag: 2 is 1, 1 is -1.
func TestRecordStructure(t *testing.T) {
	one := func(body ...byte) []byte { return append(appendVarint(nil, int64(len(body))), body...) }
	ones := func(n int) []byte { return append([]byte{0}, bytes.Repeat([]byte{0xff}, n)...) } // behind the attributes
	huge := appendVarint(nil, math.MaxInt32)
	cat := func(a []byte, b ...byte) []byte { return append(bytes.Clone(a), b...) }
	for name, x := range map[string]struct {
		records []byte
		err     any // nil, a text of a RecordError, or a fault
	}{
		"smallest":             {one(0, 0, 0, 1, 1, 0), nil},
		"attributes ignored":   {one(0xff, 0, 0, 1, 1, 0), nil},
		"key length -2":        {one(0, 0, 0, 3, 1, 0), nil},
		"value length -2":      {one(0, 0, 0, 1, 3, 0), nil},
		"key length min":       {one(append([]byte{0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, 1, 0)...), nil},
		"long zero":            {one(0, 0x80, 0x80, 0, 0x80, 0, 1, 1, 0), nil},
		"time of 10 bytes":     {one(append(ones(9), 1, 0, 1, 1, 0)...), nil},
		"header":               {one(0, 0, 0, 1, 1, 2, 2, 'h', 1), nil},
		"empty header key":     {one(0, 0, 0, 1, 1, 2, 0, 0), nil},
		"null header value":    {one(0, 0, 0, 1, 1, 2, 0, 9), nil},
		"length zero":          {[]byte{0}, textStructure},
		"length negative":      {[]byte{1, 0, 0, 0, 1, 1, 0}, textStructure},
		"length of 6 bytes":    {cat([]byte{0x8c, 0x80, 0x80, 0x80, 0x80, 0}, 0, 0, 0, 1, 1, 0), textStructure},
		"length of 11 bytes":   {append(bytes.Repeat([]byte{0x80}, 10), 0, 0, 0, 0, 1, 1, 0), textStructure},
		"length above int32":   {cat([]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, 0, 0, 0, 1, 1, 0), textStructure},
		"length past the end":  {[]byte{14, 0, 0, 0, 1, 1, 0}, textStructure},
		"length huge":          {cat(huge, 0, 0, 0, 1, 1, 0), textStructure},
		"length too long":      {one(0, 0, 0, 1, 1, 0, 0), textStructure},
		"length too short":     {append([]byte{10}, 0, 0, 0, 1, 1, 0), textStructure},
		"no fields":            {one(0, 0, 0, 0, 0), textStructure},
		"time of 11 bytes":     {one(append(ones(10), 1, 0, 1, 1, 0)...), textStructure},
		"time above int64":     {one(append(ones(9), 3, 0, 1, 1, 0)...), textStructure},
		"offset of 6 bytes":    {one(0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0), textStructure},
		"offset above int32":   {one(0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0), textStructure},
		"key past the end":     {one(0, 0, 0, 8, 1, 0), textStructure},
		"key huge":             {one(cat([]byte{0, 0, 0}, cat(huge, 1, 0)...)...), textStructure},
		"value past the end":   {one(0, 0, 0, 1, 4, 0), textStructure},
		"value huge":           {one(cat([]byte{0, 0, 0, 1}, cat(huge, 0)...)...), textStructure},
		"value takes count":    {one(0, 0, 0, 1, 2, 0), textStructure},
		"header count -1":      {one(0, 0, 0, 1, 1, 1), textStructure},
		"header count huge":    {one(cat([]byte{0, 0, 0, 1, 1}, huge...)...), textStructure},
		"header count one off": {one(0, 0, 0, 1, 1, 4, 0, 1), textStructure},
		"header count low":     {one(0, 0, 0, 1, 1, 0, 0, 1), textStructure},
		"header key -1":        {one(0, 0, 0, 1, 1, 2, 1, 1), textStructure},
		"header key past end":  {one(0, 0, 0, 1, 1, 2, 6, 1), textStructure},
		"header value past":    {one(0, 0, 0, 1, 1, 2, 0, 2), textStructure},
		"header value missing": {one(0, 0, 0, 1, 1, 2, 0), textStructure},
		"none":                 {nil, textMissing},
		"cut":                  {[]byte{12, 0, 0, 0, 1, 1}, textStructure},
		"offset delta 1":       {one(0, 0, 2, 1, 1, 0), textOffset},
		"offset delta -1":      {one(0, 0, 1, 1, 1, 0), textOffset},
		"byte behind":          {append(one(0, 0, 0, 1, 1, 0), 0), ErrTrailing},
		"record behind":        {append(one(0, 0, 0, 1, 1, 0), one(0, 0, 2, 1, 1, 0)...), ErrTrailing},
	} {
		t.Run(name, func(t *testing.T) {
			d := plainDraft(1)
			d.records = x.records
			for codec := range Zstd + 1 {
				if len(x.records) == 0 && codec != None {
					continue
				}
				v := d.view()
				if codec != None {
					v = d.packed(codec).view()
				}
				_, err := v.Validate(client)
				walked := v.Records(func(r Record) error { return nil })
				switch e := x.err.(type) {
				case nil:
					if err != nil || walked != nil {
						t.Fatal(codec, err, walked)
					}
				case string:
					wantRecord(t, err, 0, 87, e)
					if e != textOffset { // Records leaves the offsets alone
						wantRecord(t, walked, 0, 87, e)
					}
				case error:
					want(t, err, e, 87)
					want(t, walked, e, 87)
				}
			}
		})
	}
}

// Counts one too many and one too few, for every codec.
func TestRecordCount(t *testing.T) {
	for codec := range Zstd + 1 {
		for _, extra := range []int32{-1, 1} {
			d := plainDraft(10)
			d.count += extra
			d.delta += extra
			_, err := d.packed(codec).view().Validate(client)
			if extra < 0 {
				want(t, err, ErrTrailing, 87)
			} else {
				wantRecord(t, err, 10, 87, textMissing)
			}
		}
	}
}

func TestMaxTime(t *testing.T) {
	for name, x := range map[string]struct {
		base   int64
		deltas []int64
		max    int64
		at     int32
	}{
		"one":             {testTime, []int64{0}, testTime, 0},
		"none":            {-1, []int64{0, 0}, -1, 0},
		"zero":            {0, []int64{0}, 0, 0},
		"negative base":   {-1000, []int64{0, 1500, 20}, 500, 1},
		"all negative":    {-1000, []int64{0, 5, 20}, -1, 0},
		"falling":         {testTime, []int64{0, -5, -9}, testTime, 0},
		"first of equals": {testTime, []int64{1, 7, 7, 3}, testTime + 7, 1},
		"last":            {testTime, []int64{1, 7, 70000}, testTime + 70000, 2},
		"wrap":            {math.MaxInt64, []int64{0, 1}, math.MaxInt64, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := Builder{BaseTime: x.base}
			for _, d := range x.deltas {
				b.Add(Record{TimeDelta: d})
			}
			v := b.Done(0, -1, -1, -1)
			c, err := v.Validate(client)
			if err != nil || c != (Checked{x.max, x.at}) {
				t.Fatal(c, err)
			}
			if v.MaxTime() != x.max {
				t.Fatalf("the builder wrote %d", v.MaxTime())
			}
		})
	}
}

func TestTimeBounds(t *testing.T) {
	const now, before, after = testTime, 1000, 500
	build := func(deltas ...int64) View {
		b := Builder{BaseTime: now}
		for _, d := range deltas {
			b.Add(Record{TimeDelta: d})
		}
		return b.Done(0, -1, -1, -1)
	}
	l := client.Times(now, before, after)
	for _, x := range []struct {
		v     View
		index int32
	}{
		{build(0, -before, after, -1-now), -1}, // the last has no time
		{build(0, -before-1), 1},
		{build(0, 5, after+1), 2},
		{build(-now), 0},
		{build(-2 - now), 0},
	} {
		_, err := x.v.Validate(l)
		if x.index >= 0 {
			wantRecord(t, err, x.index, 32, textTime)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// No bound, one bound, none at all.
	free := client.Times(now, math.MaxInt64, math.MaxInt64)
	if _, err := build(-now, -now-5, math.MaxInt64-now).Validate(free); err != nil {
		t.Fatal(err)
	}
	_, err := build(0, 1).Validate(client.Times(now, math.MaxInt64, 0))
	wantRecord(t, err, 1, 32, textTime)
	_, err = build(0, -1).Validate(client.Times(now, 0, math.MaxInt64-1))
	wantRecord(t, err, 1, 32, textTime)
	if _, err := build(1 << 61).Validate(client.Times(0, 0, math.MaxInt64-1)); err != nil {
		t.Fatal(err)
	}
}

func TestRequireKey(t *testing.T) {
	l := client.with(func(l *Limits) { l.RequireKey = true })
	b := Builder{BaseTime: testTime}
	add := func(keys ...[]byte) View {
		for i, k := range keys {
			b.Add(Record{Key: k, TimeDelta: int64(i)})
		}
		return b.Done(0, -1, -1, -1)
	}
	if _, err := add([]byte("a"), []byte{}).Validate(l); err != nil {
		t.Fatal(err)
	}
	d := plainDraft(2) // both at the same time
	d.records = append(unhex(t, "0e00000002610100"), unhex(t, "0c000002010100")...)
	_, err := d.view().Validate(l)
	wantRecord(t, err, 1, 87, textKey)
	v := add([]byte("a"), nil, nil)
	if _, err := v.Validate(client); err != nil {
		t.Fatal(err)
	}
	_, err = v.Validate(l)
	wantRecord(t, err, 1, 87, textKey)
	// A refused time decides the code, wherever it stands; what cannot be read stops the walk.
	_, err = v.Validate(l.Times(testTime, 0, 1))
	wantRecord(t, err, 2, 32, textTime)
	d.records = append(unhex(t, "0c000000010100"), 0)
	_, err = d.view().Validate(l)
	wantRecord(t, err, 1, 87, textStructure)
}
