package batch

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// packing is one way to write the records of a codec.
type packing struct {
	name  string
	codec uint8
	pack  func(t testing.TB, p []byte) []byte
}

func gzipped(t testing.TB, p []byte, change func(*gzip.Writer)) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if change != nil {
		change(w)
	}
	return closed(t, &b, w, p)
}

func closed(t testing.TB, b *bytes.Buffer, w io.WriteCloser, p []byte) []byte {
	t.Helper()
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func framed(o ...lz4.Option) func(testing.TB, []byte) []byte {
	return func(t testing.TB, p []byte) []byte {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		if err := w.Apply(append(o, lz4.ConcurrencyOption(1))...); err != nil {
			t.Fatal(err)
		}
		return closed(t, &b, w, p)
	}
}

func zstded(o ...zstd.EOption) func(testing.TB, []byte) []byte {
	return func(t testing.TB, p []byte) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, append(o, zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			t.Fatal(err)
		}
		return closed(t, &b, w, p)
	}
}

// halves applies f to both halves of p: concatenated members, streams and frames.
func halves(f func(testing.TB, []byte) []byte) func(testing.TB, []byte) []byte {
	return func(t testing.TB, p []byte) []byte {
		return append(bytes.Clone(f(t, p[:len(p)/2])), f(t, p[len(p)/2:])...)
	}
}

func plainOf(codec uint8) func(testing.TB, []byte) []byte {
	return func(_ testing.TB, p []byte) []byte { return Compress(nil, codec, p) }
}

// accepted are the forms the format's table of codecs names, and those the clients write.
func accepted() []packing {
	gz := func(t testing.TB, p []byte) []byte { return gzipped(t, p, nil) }
	xerial := func(_ testing.TB, p []byte) []byte { return CompressXerial(nil, p) }
	sz := func(t testing.TB, p []byte) []byte { return framed(lz4.SizeOption(uint64(len(p))))(t, p) }
	return []packing{
		{"member", Gzip, plainOf(Gzip)},
		{"members", Gzip, halves(gz)},
		{"junk", Gzip, func(t testing.TB, p []byte) []byte { return append(gz(t, p), "no gzip member at all"...) }},
		{"short junk", Gzip, func(t testing.TB, p []byte) []byte { return append(gz(t, p), 0x1f, 0x8b, 8, 0) }},
		{"header as junk", Gzip, func(t testing.TB, p []byte) []byte { return append(gz(t, p), gz(t, p)[:18]...) }},
		{"name", Gzip, func(t testing.TB, p []byte) []byte {
			return gzipped(t, p, func(w *gzip.Writer) { w.Name, w.Comment, w.Extra = "n\u00fc", "c", []byte("extra") })
		}},
		{"empty member", Gzip, func(t testing.TB, p []byte) []byte { return append(gz(t, nil), gz(t, p)...) }},
		{"raw", Snappy, plainOf(Snappy)},
		{"xerial", Snappy, xerial},
		{"two xerial", Snappy, halves(xerial)},
		{"xerial empty", Snappy, func(t testing.TB, p []byte) []byte {
			return append(xerial(t, p), CompressXerial(nil, nil)...)
		}},
		{"java", LZ4, plainOf(LZ4)},
		{"default", LZ4, framed()},
		{"64K", LZ4, framed(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))},
		{"256K block sum", LZ4, framed(lz4.BlockSizeOption(lz4.Block256Kb), lz4.BlockChecksumOption(true))},
		{"1M size", LZ4, sz},
		{"no end", Zstd, plainOf(Zstd)},
		{"stream", Zstd, zstded()},
		{"frames", Zstd, halves(zstded(zstd.WithEncoderCRC(false)))},
		{"best", Zstd, zstded(zstd.WithEncoderLevel(zstd.SpeedBestCompression))},
		{"128M window", Zstd, func(t testing.TB, p []byte) []byte { return bigWindow(zstded()(t, p), 27) }},
		{"skippable", Zstd, func(t testing.TB, p []byte) []byte {
			return append([]byte("\x53\x2a\x4d\x18\x04\x00\x00\x00skip"), zstded()(t, p)...)
		}},
	}
}

// Every form, with records that fit a window, many that do not, one alone that does not, and bytes that do not shrink.
func TestAcceptedForms(t *testing.T) {
	bodies := map[string][]Record{}
	for i := range 40 {
		bodies["small"] = append(bodies["small"], Record{Value: text(100 + i)})
	}
	for range 1000 {
		bodies["many"] = append(bodies["many"], Record{Key: []byte("key"), Value: text(400)})
	}
	bodies["large"] = []Record{
		{Value: text(100)},
		{Key: text(100 << 10), Value: text(300 << 10), Headers: []Header{{"h", text(60 << 10)}, {"n", nil}}},
		{Value: text(50)},
	}
	bodies["noise"] = []Record{{Value: noise(300 << 10)}, {Value: noise(70 << 10)}, {Value: noise(10)}}
	for size, rs := range bodies {
		b := Builder{BaseTime: testTime}
		for _, r := range rs {
			b.Add(r)
		}
		plain := b.Done(0, 1001, 3, 7)
		for _, x := range accepted() {
			t.Run(codecNames[x.codec]+"/"+x.name+"/"+size, func(t *testing.T) {
				v := repack(plain, x.codec, x.pack(t, plain[HeaderLen:]))
				c, err := v.Validate(client.with(func(l *Limits) { l.BytesMax = 0 }))
				if err != nil || c != (Checked{testTime, 0}) {
					t.Fatal(c, err)
				}
				if p := unpacked(t, v); !bytes.Equal(p, plain[HeaderLen:]) {
					t.Fatal(len(p))
				}
				if got := records(t, v); len(got) != len(rs) || !bytes.Equal(got[1].Value, rs[1].Value) {
					t.Fatal(len(got))
				}
			})
		}
	}
	if n := len(largeSlots); n != 0 {
		t.Fatalf("%d shares of memory were not given back", n)
	}
}

// repack gives the batch v other bytes for its records.
func repack(v View, codec uint8, p []byte) View {
	out := append(bytes.Clone(v[:HeaderLen]), p...)
	binary.BigEndian.PutUint16(out[posAttrs:], uint16(codec))
	View(out).seal()
	return out
}

func TestRefusedForms(t *testing.T) {
	d := plainDraft(20)
	gz := gzipped(t, d.records, nil)
	fr := framed()(t, d.records)
	sized := framed(lz4.SizeOption(uint64(len(d.records))))(t, d.records)
	block := framed(lz4.BlockChecksumOption(true))(t, d.records)
	java := Compress(nil, LZ4, d.records)
	xe := CompressXerial(nil, d.records)
	zs := zstded()(t, d.records)
	change := func(p []byte, at int, x byte) []byte {
		p = bytes.Clone(p)
		if at < 0 {
			at += len(p)
		}
		p[at] ^= x
		return p
	}
	// header changes a byte of an lz4 descriptor and makes its checksum right again.
	header := func(p []byte, at int, x byte) []byte {
		p = change(p, at, x)
		p[6] = byte(xxh32Of(p[4:6]) >> 8)
		return p
	}
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	var framing2 bytes.Buffer
	closed(t, &framing2, snappy.NewBufferedWriter(&framing2), d.records)
	for name, x := range map[string]struct {
		codec uint8
		p     []byte
	}{
		"gzip/empty":               {Gzip, nil},
		"gzip/magic":               {Gzip, change(gz, 0, 1)},
		"gzip/reserved flag":       {Gzip, change(gz, 3, 0x80)},
		"gzip/deflate":             {Gzip, change(gz, 12, 0xff)},
		"gzip/crc":                 {Gzip, change(gz, -8, 1)},
		"gzip/size":                {Gzip, change(gz, -4, 1)},
		"gzip/cut":                 {Gzip, gz[:len(gz)-1]},
		"gzip/cut early":           {Gzip, gz[:20]},
		"gzip/second member bad":   {Gzip, cat(gz, change(gz, -8, 1))},
		"snappy/empty":             {Snappy, nil},
		"snappy/framing2":          {Snappy, framing2.Bytes()},
		"snappy/s2":                {Snappy, s2.EncodeBetter(nil, bytes.Repeat([]byte("repeat"), 100))},
		"snappy/s2 repeat":         {Snappy, []byte{12, 3 << 2, 'a', 'b', 'c', 'd', 1, 4, 1, 0}},
		"snappy/4 GiB":             {Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}},
		"snappy/above 4 GiB":       {Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x1f, 0, 0}},
		"snappy/cut":               {Snappy, Compress(nil, Snappy, d.records)[:30]},
		"snappy/length":            {Snappy, change(Compress(nil, Snappy, d.records), 0, 1)},
		"snappy/offset":            {Snappy, []byte{8, 0, 'a', 13, 5}},
		"snappy/literal 4 GiB":     {Snappy, []byte{8, 63 << 2, 0xff, 0xff, 0xff, 0xff, 1}},
		"snappy/literal cut":       {Snappy, []byte{8, 62 << 2, 1}},
		"xerial/version 0":         {Snappy, change(xe, 11, 1)},
		"xerial/chunk cut":         {Snappy, xe[:len(xe)-1]},
		"xerial/length cut":        {Snappy, cat(xe, []byte{0, 0, 0})},
		"xerial/length huge":       {Snappy, cat(xe[:16], []byte{0xff, 0xff, 0xff, 0xff, 0})},
		"xerial/empty chunk":       {Snappy, cat(xe, []byte{0, 0, 0, 0})},
		"lz4/empty":                {LZ4, nil},
		"lz4/magic":                {LZ4, change(fr, 0, 1)},
		"lz4/legacy":               {LZ4, cat([]byte{2, 0x21, 0x4c, 0x18}, fr[4:])},
		"lz4/skippable":            {LZ4, cat([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, fr)},
		"lz4/version":              {LZ4, header(fr, 4, 0x80)},
		"lz4/linked blocks":        {LZ4, header(fr, 4, lz4Independent)},
		"lz4/dictionary":           {LZ4, header(fr, 4, 1)},
		"lz4/reserved flag":        {LZ4, header(fr, 4, 2)},
		"lz4/reserved low":         {LZ4, header(fr, 5, 1)},
		"lz4/reserved high":        {LZ4, header(fr, 5, 0x80)},
		"lz4/block size 3":         {LZ4, header(fr, 5, 0x40)},
		"lz4/header sum":           {LZ4, change(fr, 6, 1)},
		"lz4/header cut":           {LZ4, fr[:6]},
		"lz4/size cut":             {LZ4, sized[:10]},
		"lz4/content size":         {LZ4, badSize(sized)},
		"lz4/content sum":          {LZ4, change(fr, -1, 1)},
		"lz4/content sum cut":      {LZ4, fr[:len(fr)-1]},
		"lz4/block sum":            {LZ4, change(block, -9, 1)},
		"lz4/no end mark":          {LZ4, java[:len(java)-4]},
		"lz4/end mark cut":         {LZ4, java[:len(java)-1]},
		"lz4/second frame":         {LZ4, cat(java, Compress(nil, LZ4, []byte("more")))},
		"lz4/second empty frame":   {LZ4, cat(java, Compress(nil, LZ4, nil))},
		"lz4/bytes behind":         {LZ4, cat(java, []byte{0})},
		"lz4/block too long":       {LZ4, cat(java[:7], []byte{1, 0, 1, 0})},
		"lz4/plain block too long": {LZ4, cat(java[:7], []byte{1, 0, 1, 0x80}, make([]byte, 1<<16+1), java[len(java)-4:])},
		"lz4/plain block of none":  {LZ4, cat(java[:7], []byte{0, 0, 0, 0x80}, java[7:])},
		"lz4/block damaged":        {LZ4, change(java, 12, 0xff)},
		"lz4/block cut":            {LZ4, java[:20]},
		"zstd/empty":               {Zstd, nil},
		"zstd/magic":               {Zstd, change(zs, 0, 1)},
		"zstd/crc":                 {Zstd, change(zs, -1, 1)},
		"zstd/cut":                 {Zstd, zs[:len(zs)-1]},
		"zstd/bytes behind":        {Zstd, cat(zs, []byte("junk behind it"))},
		"zstd/three behind":        {Zstd, cat(zs, zs[:3])},
		"zstd/second cut":          {Zstd, cat(zs, zs[:len(zs)-6])},
		"zstd/dictionary":          {Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 1, 1, 0xff}},
		"zstd/reserved block":      {Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x07, 0, 0}},
		"zstd/window 256 MiB":      {Zstd, cat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3}, zs[6:])},
	} {
		t.Run(name, func(t *testing.T) {
			d := d
			d.attrs, d.records = Attrs(x.codec), x.p
			v := d.view()
			_, err := v.Validate(client)
			want(t, err, ErrDecode, 87)
			want(t, v.Records(func(Record) error { return nil }), ErrDecode, 87)
			if _, err := v.Validate(Limits{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n := len(largeSlots); n != 0 {
		t.Fatalf("%d shares of memory were not given back", n)
	}
}

// badSize changes the content size of an lz4 frame under a right header checksum.
func badSize(p []byte) []byte {
	p = bytes.Clone(p)
	p[6] ^= 1
	p[14] = byte(xxh32Of(p[4:14]) >> 8)
	return p
}

// The verdict must not depend on where windows end. A window of a few bytes makes every field straddle one.
func TestWindowsDoNotMatter(t *testing.T) {
	b := Builder{BaseTime: testTime}
	for i := range 40 {
		b.Add(Record{
			TimeDelta: int64(i) << i, Key: text(i), Value: text(3 * i % 50),
			Headers: []Header{{strings.Repeat("h", i%20), text(i % 7)}, {"", nil}}[:i%3],
		})
	}
	good := b.Done(0, 1001, 3, 7)
	sizes := []int{16, 17, 19, 29, 64, 1000}
	for codec := Gzip; codec <= Zstd; codec++ {
		var small []*stream
		for _, size := range sizes {
			s := newStream(codec)
			s.win = make([]byte, size)
			small = append(small, s)
		}
		for at := HeaderLen - 1; at < len(good); at += 5 {
			v := bytes.Clone(good)
			if at >= HeaderLen { // one byte of the records wrong, or none
				v[at] ^= 0x81
			}
			exp, err := View(v).walk(&client)
			p := repack(v, codec, Compress(nil, codec, v[HeaderLen:]))
			for _, s := range small {
				s.raw, s.left = p[HeaderLen:], DecodedMax
				got, gotErr := p.walkFrom(s, &client)
				s.src.release()
				if got != exp || !sameError(err, gotErr) {
					t.Fatalf("%s, window %d, byte %d: %v %v, want %v %v",
						codecNames[codec], len(s.win), at, got, gotErr, exp, err)
				}
				if s.over != nil { // its share, for the next one
					s.over = nil
					<-largeSlots
				}
			}
		}
	}
}

// A record larger than the window is read by other code than one that fits: every byte of one, damaged in many ways.
func TestRecordLargerThanWindow(t *testing.T) {
	b := Builder{BaseTime: testTime}
	b.Add(Record{
		TimeDelta: -70, Key: text(20), Value: text(25), Headers: []Header{{"name", text(9)}, {"null", nil}, {"", []byte{}}},
	})
	good := b.Done(0, 1001, 3, 7)
	s := newStream(Gzip)
	s.win = make([]byte, 16)
	for at := HeaderLen; at < len(good); at++ {
		for _, x := range []byte{0, 1, 2, 3, 4, 5, 8, 12, 0x7f, 0x80, 0xfe, 0xff} {
			v := bytes.Clone(good)
			v[at] ^= x
			exp, err := View(v).walk(&client)
			p := repack(v, Gzip, Compress(nil, Gzip, v[HeaderLen:]))
			s.raw, s.left = p[HeaderLen:], DecodedMax
			got, gotErr := p.walkFrom(s, &client)
			if got != exp || !sameError(err, gotErr) {
				t.Fatalf("byte %d ^ %x: %v %v, want %v %v", at, x, got, gotErr, exp, err)
			}
		}
	}
}

// Records that end where a window ends say nothing about what the stream still holds.
func TestEndAtWindow(t *testing.T) {
	d := plainDraft(10)
	size := len(d.records)
	for codec := Gzip; codec <= Zstd; codec++ {
		for extra, exp := range []error{nil, ErrTrailing} {
			d := d
			d.records = append(bytes.Clone(d.records), make([]byte, extra)...)
			v := d.packed(codec).view()
			s := newStream(codec)
			s.win = make([]byte, size)
			s.raw, s.left = v[HeaderLen:], DecodedMax
			if _, err := v.walkFrom(s, &client); err != exp {
				t.Fatalf("%s: %v, want %v", codecNames[codec], err, exp)
			}
			s.bad = true // away with the small window
			s.close()
		}
	}
	v := d.packed(LZ4).view()
	s := newStream(LZ4)
	s.win = make([]byte, size)
	s.raw, s.left = v[HeaderLen:len(v)-4], DecodedMax // no end mark
	_, err := v.walkFrom(s, &client)
	want(t, err, ErrDecode, 87)
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error() && Code(a) == Code(b)
}

// panics is a decompressor that gives up.
type panics struct{ in string }

func (p panics) reset([]byte) error {
	if p.in == "reset" {
		panic("reset")
	}
	return nil
}

func (p panics) read([]byte) (int, error) { panic("read") }
func (p panics) release()                 { panic("release") }

func TestDecoderPanic(t *testing.T) {
	for _, in := range []string{"reset", "read"} {
		streams[Gzip] = sync.Pool{}
		s := newStream(Gzip)
		s.src = panics{in}
		s.large()
		s.raw, s.left = []byte("x"), 100
		_, err := plainDraft(1).packed(Gzip).view().walkFrom(s, &client)
		want(t, err, ErrDecoderPanic, 87)
		want(t, err, ErrDecode, 87)
		s.close()
		if got := streams[Gzip].Get(); got != nil {
			t.Fatal("a broken decompressor went back into the pool")
		}
		if len(largeSlots) != 0 {
			t.Fatal("its memory was not given back")
		}
	}
}

// stalls is a decompressor that never gets on.
type stalls struct{ panics }

func (stalls) read([]byte) (int, error) { return 0, nil }
func (stalls) release()                 {}

func TestDecoderStall(t *testing.T) {
	s := newStream(Gzip)
	s.src = stalls{}
	s.raw, s.left = []byte("x"), 100
	_, err := plainDraft(1).packed(Gzip).view().walkFrom(s, &client)
	want(t, err, ErrDecode, 87)
}

// All shares of the memory for large batches are wanted at once, by more than there are.
func TestLargeShares(t *testing.T) {
	var g sync.WaitGroup
	for i := range 3 * largeMax {
		codec := []uint8{Zstd, Snappy, LZ4}[i%3]
		g.Go(func() {
			v := sized(codec, 3, text(3<<19))
			if codec == LZ4 {
				plain := sized(None, 3, text(3<<19))
				v = repack(plain, LZ4, framed()(t, plain[HeaderLen:]))
			}
			if _, err := v.Validate(client.with(func(l *Limits) { l.BytesMax = 0 })); err != nil {
				t.Error(codecNames[codec], err)
			}
		})
	}
	g.Wait()
	if n := len(largeSlots); n != 0 {
		t.Fatalf("%d shares of memory were not given back", n)
	}
}

// Callbacks may read other large batches, to any depth: no share is held while they run.
func TestLargeNested(t *testing.T) {
	v := sized(Zstd, 2, text(600<<10))
	var descend func(depth int) error
	descend = func(depth int) error {
		if depth == 0 {
			_, err := v.Validate(client)
			return err
		}
		return v.Records(func(r Record) error {
			if n := len(largeSlots); n != 0 {
				t.Fatalf("%d shares held", n)
			}
			if r.OffsetDelta > 0 {
				return nil
			}
			return descend(depth - 1)
		})
	}
	if err := descend(largeMax + 1); err != nil {
		t.Fatal(err)
	}
}

func TestXXH32(t *testing.T) {
	for _, x := range []struct {
		in  string
		sum uint32
	}{
		{"", 0x02cc5d05}, {"a", 0x550d7456}, {"abc", 0x32d153ff},
		{"Nobody inspects the spammish repetition", 0xe2293b2f},
	} {
		if got := xxh32Of([]byte(x.in)); got != x.sum {
			t.Fatalf("%q: %08x, want %08x", x.in, got, x.sum)
		}
	}
	// In pieces as at once.
	p := noise(300)
	for cut := range p {
		var x xxh32
		x.reset()
		x.write(p[:cut])
		x.write(p[cut:])
		if x.get() != xxh32Of(p) {
			t.Fatalf("cut at %d", cut)
		}
	}
}
