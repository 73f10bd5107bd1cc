package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// bombHead begins a record of 2 GiB less a little, so that the walk follows a bomb as far as it may.
func bombHead() []byte {
	head := appendVarint(nil, math.MaxInt32)
	head = append(head, 0, 0, 0, 1)
	return appendVarint(head, math.MaxInt32-20)
}

// zstdBomb is one frame of repeated bytes, 128 KiB for every four; about size bytes.
func zstdBomb(size int) []byte {
	head := bombHead()
	p := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3} // 1 MiB window, size not told
	p = append(p, byte(len(head)<<3), 0, 0)         // plain block
	p = append(p, head...)
	for len(p) < size {
		p = append(p, 0x02, 0x00, 0x10, 0)
	}
	return append(p, 1, 0, 0)
}

// gzipBomb is many members of zeros, each about a thousandth of its content.
func gzipBomb(t testing.TB, size int) []byte {
	p := gzipped(t, bombHead(), nil)
	zeros := gzipped(t, make([]byte, 8<<20), nil)
	for len(p) < size {
		p = append(p, zeros...)
	}
	return p
}

func lz4Bomb(t testing.TB, size int) []byte {
	p := framed()(t, bombHead())
	p = p[:len(p)-8] // before the end mark and the checksum of the content
	p[4] &^= lz4ContentSum
	p[6] = byte(xxh32Of(p[4:6]) >> 8)
	block := make([]byte, lz4.CompressBlockBound(4<<20))
	n, _ := lz4.CompressBlock(make([]byte, 4<<20), block, nil)
	for len(p) < size {
		p = binary.LittleEndian.AppendUint32(p, uint32(n))
		p = append(p, block[:n]...)
	}
	return append(p, 0, 0, 0, 0)
}

// snappyBomb is one block, or chunks, of copies as long as the format allows.
func snappyBomb(size, chunk int) []byte {
	body := append([]byte{byte(len(bombHead())-1) << 2}, bombHead()...)
	n := len(bombHead())
	for len(body) < min(size, chunk) {
		body = append(body, 63<<2|2, 1, 0)
		n += 64
	}
	block := append(binary.AppendUvarint(nil, uint64(n)), body...)
	if chunk >= size {
		return block
	}
	p := CompressXerial(nil, nil)
	for len(p) < size {
		p = binary.BigEndian.AppendUint32(p, uint32(len(block)))
		p = append(p, block...)
	}
	return p
}

type bomb struct {
	name  string
	codec uint8
	p     []byte
	err   error
	limit int
}

func bombs(t testing.TB) []bomb {
	const mib = 1 << 20
	return []bomb{
		{"gzip", Gzip, gzipBomb(t, mib), ErrDecodedSize, 0},
		{"zstd", Zstd, zstdBomb(mib), ErrDecodedSize, 0},
		{"lz4", LZ4, lz4Bomb(t, mib), ErrDecodedSize, 0},
		{"snappy", Snappy, snappyBomb(mib, mib), ErrDecodedSize, 8 * mib},
		{"snappy 4 MiB", Snappy, snappyBomb(4*mib, 4*mib), ErrDecodedSize, 0},
		{"snappy claims 4 GiB", Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'a'}, ErrDecode, 0},
		{"xerial", Snappy, snappyBomb(mib, 60000), ErrDecodedSize, 8 * mib},
		{"xerial 4 MiB", Snappy, snappyBomb(4*mib, 60000), ErrDecodedSize, 16 * mib},
		{"zstd big window", Zstd, bigWindow(zstdBomb(mib), 27), ErrDecodedSize, 0},
		{"zstd 32 MiB window", Zstd, bigWindow(zstdBomb(mib), 25), ErrDecodedSize, 0},
		{"zstd window only", Zstd, bigWindow(zstdBomb(20), 41), ErrDecode, 0},
		{"zstd 2^62", Zstd, append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40}, zstdBomb(99)[6:]...),
			ErrDecodedSize, 0},
		{"zstd 2^62 with window", Zstd,
			append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 80, 0, 0, 0, 0, 0, 0, 0, 0x40}, zstdBomb(99)[6:]...), nil, 0},
		{"zstd frames", Zstd, bytes.Repeat(zstdBomb(5000), 200), ErrDecodedSize, 8 * mib},
		{"zstd empty frames", Zstd, bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x58, 1, 0, 0}, mib/9), nil, 0},
		{"gzip empty members", Gzip, bytes.Repeat(gzipped(t, nil, nil), mib/23), nil, 0},
		{"gzip header", Gzip, append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{1}, mib)...),
			ErrDecode, 0},
		{"lz4 small blocks", LZ4, manyBlocks(mib), nil, 0},
		{"lz4 size 2^62", LZ4, hugeLZ4Size(t), ErrDecode, 0},
	}
}

// bigWindow gives a frame a window of 2^log bytes; it no longer tells its size.
func bigWindow(p []byte, log int) []byte {
	single := p[4]&0x20 != 0
	size := []int{0, 2, 4, 8}[p[4]>>6] // bytes of the field
	if single {
		size = max(size, 1) - 1 // one less to skip: there is no byte for the window
	}
	out := append(bytes.Clone(p[:4]), p[4]&^0xe0, byte(log-10)<<3)
	return append(out, p[6+size:]...)
}

func manyBlocks(size int) []byte {
	p := Compress(nil, LZ4, nil)
	p = p[:len(p)-4]
	for len(p) < size {
		p = append(p, 2, 0, 0, 0, 0x10, 'a') // one literal
	}
	return append(p, 0, 0, 0, 0)
}

func hugeLZ4Size(t testing.TB) []byte {
	p := framed(lz4.SizeOption(4))(t, []byte("four"))
	p[13] = 0x40
	p[14] = byte(xxh32Of(p[4:14]) >> 8)
	return p
}

// bombView is a batch with the bomb as its records and more of them claimed than can be.
func bombView(x bomb) View {
	d := plainDraft(1)
	d.count, d.delta = math.MaxInt32, math.MaxInt32-1
	d.attrs, d.records = Attrs(x.codec), x.p
	return d.view()
}

// No batch makes the decoder take 64 MiB or go on behind the limit.
func TestBombs(t *testing.T) {
	for _, x := range bombs(t) {
		t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
			v := bombView(x)
			l := client.with(func(l *Limits) { l.BytesMax, l.DecodedMax = 0, x.limit })
			runtime.GC()
			runtime.GC() // so that the pools are empty
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := v.Validate(l)
			runtime.ReadMemStats(&after)
			if x.err != nil && err != x.err || Code(err) != 10 && Code(err) != 87 {
				t.Fatalf("got %v, want %v", err, x.err)
			}
			if d := after.TotalAlloc - before.TotalAlloc; d >= 64<<20 {
				t.Fatalf("%d bytes allocated for a batch of %d", d, len(v))
			}
		})
	}
	if n := len(largeSlots); n != 0 {
		t.Fatalf("%d shares of memory were not given back", n)
	}
}

// The limit itself is allowed, one byte more is not, for each codec and on both sides of a window.
func TestDecodedMaxIsInclusive(t *testing.T) {
	for _, size := range []int{5000, windowLen - 1, windowLen, windowLen + 1, 3 * windowLen} {
		d := plainDraft(1)
		d.records = nil
		for i := 0; len(d.records) < size; i++ {
			r := Record{OffsetDelta: int32(i), Value: text(min(1000, size-len(d.records)))}
			for left := size - len(d.records); ; r.Value = r.Value[1:] {
				if n := len(r.append(nil)); n == left || n <= left-20 {
					break
				}
			}
			d.records = r.append(d.records)
			d.count, d.delta = int32(i+1), int32(i)
		}
		if len(d.records) != size {
			t.Fatal(len(d.records), size)
		}
		for codec := Gzip; codec <= Zstd; codec++ {
			v := d.packed(codec).view()
			l := client.with(func(l *Limits) { l.DecodedMax = size })
			if _, err := v.Validate(l); err != nil {
				t.Fatal(codecNames[codec], size, err)
			}
			l.DecodedMax--
			_, err := v.Validate(l)
			want(t, err, ErrDecodedSize, 10)
		}
	}
}

// A window above what is decoded as a stream is no reason to refuse: what zstd's strongest levels write is decoded as a
// whole, also where a frame with a small window came first and was given out already.
func TestZstdBigWindows(t *testing.T) {
	plain := sized(None, 20, text(3<<18))
	small := zstded(zstd.WithWindowSize(1 << 20))
	big := func(t testing.TB, p []byte) []byte { return bigWindow(small(t, p), 27) }
	p := plain[HeaderLen:]
	for _, cut := range []int{0, 100, windowLen, 5 << 17, len(p)} {
		packed := small(t, p[:cut])
		packed = append(packed, big(t, p[cut:])...)
		v := repack(plain, Zstd, packed)
		if _, err := v.Validate(client.with(func(l *Limits) { l.BytesMax = 0 })); err != nil {
			t.Fatal(cut, err)
		}
		if got := unpacked(t, v); !bytes.Equal(got, p) {
			t.Fatal(cut, len(got))
		}
	}
	v := repack(plain, Zstd, bigWindow(zstdBomb(1000), 27)) // 31 MiB
	_, err := v.Validate(client)
	want(t, err, ErrDecodedSize, 10)
}
