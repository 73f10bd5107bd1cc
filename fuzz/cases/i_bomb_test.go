package cases

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"sekali/batch"

	"github.com/klauspost/compress/gzip"
	"github.com/pierrec/lz4/v4"
)

// Bounds of one attempt with a bomb.
const (
	bombBytesMax  = 1 << 20
	bombMemoryMax = 64 << 20
	bombCPUMax    = time.Second
)

// I4. Decompression bombs cost neither memory nor time.
func TestI4DecompressionBombs(t *testing.T) {
	n := launch(t, options{realTime: true})
	p := n.topic("i4", 1)
	who := n.init()
	n.want("before", n.P(p, who, 0, 1), codeNone, 0)
	for _, x := range bombs(t) {
		b := wrap(x.codec, x.count, x.payload)
		if _, err := b.Validate(batch.Limits{}); err != nil || len(b) > bombBytesMax {
			t.Fatalf("%s: %d bytes, %v", x.name, len(b), err)
		}
		var a answer
		before, spent := n.read(p), n.cpu()
		begin := time.Now()
		rise := n.peak(func() { a = n.produce(p, b) })
		took := time.Since(begin)
		spent = n.cpu() - spent
		t.Logf("%-34s %7d bytes: code %2d, memory +%4d KiB, processor %v, %v", x.name, len(b), a.code, rise>>10, spent, took)
		if x.honest {
			n.want(x.name, a, codeNone, before.high)
		} else {
			n.refused(x.name, a, codeCorrupt, codeTooLarge, codeRecord)
			n.same(p, before)
		}
		if rise >= bombMemoryMax {
			t.Errorf("%s: memory rose by %d KiB", x.name, rise>>10)
		}
		if limit := bombCPUMax * slower; spent >= limit {
			t.Errorf("%s: %v of processor time, at most %v", x.name, spent, limit)
		}
	}
	high := n.high(p)
	n.want("afterwards", n.P(p, who, 1, 1), codeNone, high)
}

// bomb is a batch whose records are not what they seem.
type bomb struct {
	name    string
	codec   batch.Attrs
	count   int32 // records, as the header says
	payload []byte
	honest  bool // a batch as any other
}

func bombs(t *testing.T) (all []bomb) {
	const gzipped, snappy, lz4ed, zstded = batch.Attrs(batch.Gzip), batch.Attrs(batch.Snappy), batch.Attrs(batch.LZ4),
		batch.Attrs(batch.Zstd)
	add := func(name string, codec batch.Attrs, count int32, payload []byte) {
		all = append(all, bomb{name: name, codec: codec, count: count, payload: payload})
	}
	head := hugeRecord(math.MaxInt32 - 100)
	most := bombBytesMax - 1000

	// One record of two gigabytes, all of it there or as much as the codec can say in a mebibyte.
	add("gzip, one huge record", gzipped, 1, gzipBomb(t, head, most))
	add("snappy, one huge record", snappy, 1, snappyBomb(head, most, 0))
	add("lz4, one huge record", lz4ed, 1, lz4Bomb(t, head, 250<<20))
	add("zstd, one huge record", zstded, 1, zstdBomb(head, 10<<30, false))

	// Zeros only: no record at all.
	add("gzip, zeros", gzipped, 1, gzipBomb(t, nil, most))
	add("snappy, zeros", snappy, 1, snappyBomb(nil, most, 0))
	add("lz4, zeros", lz4ed, 1, lz4Bomb(t, nil, 250<<20))
	add("zstd, zeros", zstded, 1, zstdBomb(nil, 10<<30, false))

	// Sizes that are declared and not there.
	add("zstd, content size 2^62", zstded, 1, zstdBomb(head, 1<<20, true))
	add("lz4, content size 2^62", lz4ed, 1, lz4Bomb(t, head, 1<<20, lz4.SizeOption(1<<62)))
	add("snappy, 4 GiB declared", snappy, 1, snappyBomb(head, 1000, math.MaxUint32))
	add("xerial, chunks of 4 GiB declared", snappy, 1, xerialBomb(math.MaxUint32))
	add("a count of 2^31-1 records", zstded, math.MaxInt32, zstdBomb(nil, 10<<30, false))

	// Frames in frames, and frames behind frames.
	for _, codec := range []batch.Attrs{gzipped, snappy, lz4ed, zstded} {
		inner := batch.Compress(nil, uint8(codec), make([]byte, size(8<<20, 64<<20)))
		for range 3 {
			inner = batch.Compress(nil, uint8(codec), inner)
		}
		add("nested frames, codec "+string('0'+rune(codec)), codec, 1, inner)
	}
	add("many zstd frames", zstded, 1, append(zstdBomb(head, 1<<20, false),
		bytes.Repeat(zstdBomb(nil, 128<<10, false), 50_000)...))
	add("many gzip members", gzipped, 1, append(batch.Compress(nil, batch.Gzip, head),
		bytes.Repeat(batch.Compress(nil, batch.Gzip, make([]byte, 1<<20)), 900)...))

	// And one that looks like a bomb and is none.
	var plain bytes.Buffer
	w := lz4.NewWriter(&plain)
	err := w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.SizeOption(0), lz4.ConcurrencyOption(1))
	if err == nil {
		_, err = w.Write(append(hugeRecord(10<<20), 0))
	}
	if err = errorsOf(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return append(all, bomb{"lz4, blocks of 4 MiB, no content size", lz4ed, 1, plain.Bytes(), true})
}

func errorsOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// hugeRecord begins a record whose value is of size bytes, all zeros; up to 16 MiB they are there, and one byte for no
// headers lacks.
func hugeRecord(size int) []byte {
	body := []byte{0, 0, 0, 1} // attributes, time delta, offset delta, null key
	body = binary.AppendVarint(body, int64(size))
	rec := append(binary.AppendVarint(nil, int64(len(body)+size+1)), body...)
	if size <= 16<<20 {
		rec = append(rec, make([]byte, size)...)
	}
	return rec
}

// wrap puts compressed records behind a header with the right length and checksum.
func wrap(codec batch.Attrs, count int32, payload []byte) batch.View {
	var b batch.Builder
	b.BaseTime = 1_700_000_000_000
	b.Add(batch.Record{})
	v := slices.Concat([]byte(b.Done(0, -1, -1, -1))[:batch.HeaderLen], payload)
	binary.BigEndian.PutUint32(v[8:], uint32(len(v)-12))
	binary.BigEndian.PutUint16(v[batchAttrsAt:], uint16(codec))
	binary.BigEndian.PutUint32(v[batchAttrsAt+2:], uint32(count-1))
	binary.BigEndian.PutUint32(v[batch.HeaderLen-4:], uint32(count))
	binary.BigEndian.PutUint32(v[batchCRCAt:], crc32.Checksum(v[batchAttrsAt:], crc32.MakeTable(crc32.Castagnoli)))
	return v
}

// gzipBomb is one member of zeros behind head: the same deflated block again and again.
func gzipBomb(t *testing.T, head []byte, size int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(head)
	}
	zeros := make([]byte, 1<<20)
	mark := 0
	for range 2 { // the second one refers to zeros alone
		mark = b.Len()
		if err == nil {
			_, err = w.Write(zeros)
		}
		if err = errorsOf(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	block := bytes.Clone(b.Bytes()[mark:])
	return append(b.Bytes(), bytes.Repeat(block, (size-b.Len())/len(block))...)
}

// snappyBomb copies one zero over and over; declared replaces the length it begins with.
func snappyBomb(head []byte, size int, declared uint64) []byte {
	head = append(bytes.Clone(head), 0)
	copies := (size - len(head) - 10) / 3
	if declared == 0 {
		declared = uint64(len(head) + 64*copies)
	}
	b := binary.AppendUvarint(nil, declared)
	b = append(b, byte(len(head)-1)<<2) // a literal
	b = append(b, head...)
	return append(b, bytes.Repeat([]byte{63<<2 | 2, 1, 0}, copies)...) // 64 bytes from one byte back
}

// xerialBomb is the framing of snappy-java around a chunk that declares too much.
func xerialBomb(declared uint32) []byte {
	b := append([]byte{0x82}, "SNAPPY\x00"...)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 1)
	for range 100 {
		chunk := snappyBomb(nil, 9000, uint64(declared))
		b = binary.BigEndian.AppendUint32(b, uint32(len(chunk)))
		b = append(b, chunk...)
	}
	return b
}

// lz4Bomb is a frame of independent blocks of 4 MiB: head and zeros, then the same block of zeros again and again.
func lz4Bomb(t *testing.T, head []byte, size int, o ...lz4.Option) []byte {
	t.Helper()
	const block = 4 << 20
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	err := w.Apply(append([]lz4.Option{lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false),
		lz4.ConcurrencyOption(1)}, o...)...)
	mark := 0
	for _, content := range [][]byte{append(bytes.Clone(head), make([]byte, block-len(head))...), make([]byte, block)} {
		mark = b.Len()
		if err == nil {
			_, err = w.Write(content)
		}
		if err = errorsOf(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	zeros := bytes.Clone(b.Bytes()[mark:])
	all := append(b.Bytes(), bytes.Repeat(zeros, max(size/block-2, 0))...)
	return append(all, 0, 0, 0, 0) // the end mark; Close would see through a content size that lies
}

// zstdBomb is one frame: head, then blocks that each repeat a zero 128 Ki times; with lie it claims to hold 2^62 bytes.
func zstdBomb(head []byte, size int64, lie bool) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd}
	const window = 7 << 3 // 128 KiB
	if lie {
		b = binary.LittleEndian.AppendUint64(append(b, 0xc0, window), 1<<62)
	} else {
		b = append(b, 0, window)
	}
	block := func(last, kind, size int, data ...byte) {
		h := last | kind<<1 | size<<3
		b = append(b, byte(h), byte(h>>8), byte(h>>16))
		b = append(b, data...)
	}
	if len(head) > 0 {
		block(0, 0, len(head), head...)
	}
	for ; size > 128<<10; size -= 128 << 10 {
		block(0, 1, 128<<10, 0)
	}
	block(1, 1, int(size), 0)
	return b
}
