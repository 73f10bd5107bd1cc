package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"testing/iotest"

	"sekali/internal/buf"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestReadFrames(t *testing.T) {
	head := func(size int32, key int16, rest int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(size))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		return append(b, make([]byte, rest)...)
	}
	l := Limits{Produce: 3 << 20, Other: 2 << 20, BeforeLogin: 1000}
	for _, c := range []struct {
		what   string
		in     []byte
		login  bool
		err    error
		length int
	}{
		{"whole", head(10, 3, 8), true, nil, 10},
		{"smallest", head(8, 3, 6), true, nil, 8},
		{"too small for a header", head(7, 3, 5), true, ErrFrameSize, 0},
		{"zero", head(0, 3, 9), true, ErrFrameSize, 0},
		{"zero and nothing behind it", head(0, 3, 0)[:4], true, ErrFrameSize, 0},
		{"negative", head(-1, 3, 9), true, ErrFrameSize, 0},
		{"2^31-1", head(1<<31-1, 0, 9), true, ErrTooLarge, 0},
		{"Produce at its limit", head(3<<20, 0, 3<<20-2), true, nil, 3 << 20},
		{"Produce above it", head(3<<20+1, 0, 9), true, ErrTooLarge, 0},
		{"Fetch at the limit of others", head(2<<20, 1, 2<<20-2), true, nil, 2 << 20},
		{"Fetch above", head(2<<20+1, 1, 9), true, ErrTooLarge, 0},
		{"FindCoordinator lists nothing", head(1<<20+1, 10, 9), true, ErrTooLarge, 0},
		{"unknown key", head(1<<20+1, 999, 9), true, ErrTooLarge, 0},
		{"before login", head(1001, 0, 9), false, ErrTooLarge, 0},
		{"end between frames", nil, true, io.EOF, 0},
		{"end in the length", head(10, 3, 8)[:3], true, io.ErrUnexpectedEOF, 0},
		{"end in the body", head(10, 3, 7), true, io.ErrUnexpectedEOF, 0},
		{"end behind the length", head(10, 3, 0)[:4], true, io.ErrUnexpectedEOF, 0},
	} {
		for _, slow := range []bool{false, true} {
			var in io.Reader = bytes.NewReader(c.in)
			if slow && len(c.in) < 1000 {
				in = iotest.OneByteReader(in)
			}
			r := bufio.NewReaderSize(in, 64)
			pool := buf.New(1 << 30)
			h, err := ReadHead(r, l, c.login)
			var frame []byte
			if err == nil {
				frame, err = ReadBody(r, h, h.First(0), pool, free)
			}
			if !errors.Is(err, c.err) || len(frame) != c.length {
				t.Errorf("%s: error %v, %d bytes", c.what, err, len(frame))
			}
			if err == nil && !bytes.Equal(frame, c.in[4:]) {
				t.Errorf("%s: other bytes than were sent", c.what)
			}
		}
	}
}

func free(int) error { return nil }

// TestBodyAsksForMore: what is taken beyond the first piece is asked for before, as much as the frame needs and no
// more, and a refusal ends the reading.
func TestBodyAsksForMore(t *testing.T) {
	pool := buf.New(1 << 30)
	for _, size := range []int{8, firstPiece, firstPiece + 1, 2 * firstPiece, 5*firstPiece + 3, 20 << 20} {
		h, asked := Head{Size: size}, 0
		in := bytes.Repeat([]byte{1}, size)
		b, err := ReadBody(bytes.NewReader(in), h, h.First(0), pool, func(n int) error { asked += n; return nil })
		if err != nil || !bytes.Equal(b, in) || h.First(0)+asked != size {
			t.Errorf("%d bytes: asked for %d beyond %d, %v", size, asked, h.First(0), err)
		}
		no := errors.New("no")
		_, err = ReadBody(bytes.NewReader(in), h, h.First(0), pool, func(int) error { return no })
		if (size > firstPiece) != (err == no) {
			t.Errorf("%d bytes, refused: %v", size, err)
		}
	}
}

// TestFirst: a frame begins with twice what has arrived of it, within its own size and not below one piece.
func TestFirst(t *testing.T) {
	for _, c := range []struct{ size, arrived, first int }{
		{100, 100, 100}, {5000, FirstBytes, 5000}, {1 << 20, FirstBytes, firstPiece}, {1 << 20, 0, firstPiece},
		{1 << 20, 16_000, 32_000}, {17_000, 16_000, 17_000}, {100 << 20, 1, firstPiece},
	} {
		if got := (Head{Size: c.size}).First(c.arrived); got != c.first {
			t.Errorf("%d of %d bytes arrived: begins with %d, want %d", c.arrived, c.size, got, c.first)
		}
	}
}

// TestImpossibleSizeNeedsNoMore: a length that cannot be is refused before another byte arrives.
func TestImpossibleSizeNeedsNoMore(t *testing.T) {
	in, out := net.Pipe()
	defer in.Close()
	defer out.Close()
	go func() { _, _ = out.Write([]byte{0, 0, 0, 0}) }()
	if _, err := ReadHead(bufio.NewReader(in), Limits{}.Defaults(), true); !errors.Is(err, ErrFrameSize) {
		t.Fatal(err)
	}
}

// TestBodyGrows: a claim of 100 MiB with nothing behind it costs one piece.
func TestBodyGrows(t *testing.T) {
	pool := buf.New(1 << 30)
	n := allocated(func() {
		r := bytes.NewReader(make([]byte, 1000))
		if _, err := ReadBody(r, Head{Size: 100 << 20}, firstPiece, pool, free); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("error %v", err)
		}
	})
	if n > 4*firstPiece {
		t.Fatalf("%d bytes for a frame of which 1,000 arrived", n)
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		head         int // bytes before the body
	}{{3, 1, 8}, {3, 9, 9}, {18, 0, 8}, {18, 3, 8}, {18, 5, 8}, {22, 5, 9}} {
		r := kmsg.ResponseForKey(c.key)
		r.SetVersion(c.version)
		f := Encode(Header{Key: c.key, Version: c.version, Corr: 0x01020304}, r)
		var got []byte
		for _, b := range f.bufs {
			got = append(got, b...)
		}
		body := r.AppendTo(nil)
		if len(got) != c.head+len(body) || len(got) != f.Size() || !bytes.HasSuffix(got, body) ||
			int(binary.BigEndian.Uint32(got)) != len(got)-4 || binary.BigEndian.Uint32(got[4:]) != 0x01020304 ||
			c.head == 9 && got[8] != 0 {
			t.Errorf("key %d version %d: % x", c.key, c.version, got)
		}
		f.Release()
	}
}

// drawFetch draws an answer and the same answer as kmsg has it.
func drawFetch(t *rapid.T, version int16) (*FetchAnswer, *kmsg.FetchResponse) {
	a := &FetchAnswer{Code: int16(rapid.IntRange(0, 110).Draw(t, "code")), Session: rapid.Int32().Draw(t, "session")}
	k := kmsg.NewPtrFetchResponse()
	k.Version, k.ErrorCode, k.SessionID = version, a.Code, a.Session
	if version < 7 {
		k.ErrorCode, k.SessionID = 0, 0
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = rapid.StringMatching("[a-z]{1,9}").Draw(t, "topic")
		topic.TopicID[0] = rapid.Byte().Draw(t, "id")
		if n := len(a.Parts); n > 0 && (version >= 13 && a.Parts[n-1].TopicID == topic.TopicID ||
			version < 13 && a.Parts[n-1].Topic == topic.Topic) {
			continue
		}
		for range rapid.IntRange(1, 3).Draw(t, "partitions") {
			p := FetchPart{Topic: topic.Topic, TopicID: topic.TopicID, Partition: rapid.Int32().Draw(t, "p"),
				Code: int16(rapid.IntRange(-1, 110).Draw(t, "code")), High: rapid.Int64().Draw(t, "high"),
				Stable: rapid.Int64().Draw(t, "stable"), Start: rapid.Int64().Draw(t, "start")}
			q := kmsg.NewFetchResponseTopicPartition()
			q.Partition, q.ErrorCode, q.HighWatermark = p.Partition, p.Code, p.High
			q.LastStableOffset, q.LogStartOffset, q.RecordBatches = p.Stable, p.Start, []byte{}
			if rapid.Bool().Draw(t, "committed") {
				p.Aborted = []Aborted{}
				q.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for i := range rapid.IntRange(0, 200).Draw(t, "aborted") {
					p.Aborted = append(p.Aborted, Aborted{PID: int64(i), First: int64(2 * i)})
					q.AbortedTransactions = append(q.AbortedTransactions,
						kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: int64(i), FirstOffset: int64(2 * i)})
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "pieces") {
				b := bytes.Repeat([]byte{rapid.Byte().Draw(t, "b")}, rapid.IntRange(1, 300).Draw(t, "n"))
				p.Records = append(p.Records, b)
				q.RecordBatches = append(q.RecordBatches, b...)
			}
			a.Parts = append(a.Parts, p)
			topic.Partitions = append(topic.Partitions, q)
		}
		k.Topics = append(k.Topics, topic)
	}
	return a, k
}

// TestFetchAgreesWithKmsg: the borrowing encoder writes, in every version, the bytes that kmsg writes; kmsg reads
// them.
func TestFetchAgreesWithKmsg(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		rapid.Check(t, func(t *rapid.T) {
			a, k := drawFetch(t, version)
			h := Header{Key: KeyFetch, Version: version, Corr: 9}
			released := 0
			f := EncodeFetch(h, a, func() { released++ })
			var got []byte
			for _, b := range f.bufs {
				got = append(got, b...)
			}
			want := k.AppendTo(appendHeader(nil, h))
			binary.BigEndian.PutUint32(want, uint32(len(want)-4))
			if !bytes.Equal(got, want) || f.Size() != len(want) {
				t.Fatalf("version %d:\n got % x\nwant % x", version, got, want)
			}
			for _, p := range a.Parts {
				for _, r := range p.Records {
					if !borrowed(f, r) {
						t.Fatal("records were copied")
					}
				}
			}
			back := kmsg.NewPtrFetchResponse()
			back.Version = version
			if err := back.ReadFrom(k.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			f.Release()
			if released != 1 {
				t.Fatalf("released %d times", released)
			}
		})
	}
}

func borrowed(f *Frame, r []byte) bool {
	for _, b := range f.bufs {
		if len(b) == len(r) && reflect.ValueOf(b).Pointer() == reflect.ValueOf(r).Pointer() {
			return true
		}
	}
	return false
}

// TestSendIsOneWrite: all frames that are ready leave in one writev. A socket that keeps message borders shows it: one
// message is one system call.
func TestSendIsOneWrite(t *testing.T) {
	addr := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(t.TempDir(), "s")}
	ln, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var got []int
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		b := make([]byte, 1<<20)
		for {
			n, err := c.Read(b)
			if n == 0 || err != nil {
				return
			}
			got = append(got, n)
		}
	})
	c, err := net.DialUnix("unixpacket", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	var fs []*Frame
	size := 0
	for range 5 {
		a := &FetchAnswer{}
		for p := range 20 {
			a.Parts = append(a.Parts, FetchPart{
				Topic: "t", Partition: int32(p), Records: [][]byte{make([]byte, 100), make([]byte, 50)}})
		}
		fs = append(fs, EncodeFetch(Header{Key: KeyFetch, Version: 12}, a, nil))
		size += fs[len(fs)-1].Size()
	}
	for range 2 {
		if n, err := Send(c, fs); err != nil || n != int64(size) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	c.Close()
	wg.Wait()
	if len(got) != 2 || got[0] != size || got[1] != size {
		t.Fatalf("messages of %v bytes, want two of %d: a frame left in several writes", got, size)
	}
	for _, f := range fs {
		f.Release()
	}
}

// TestFetchAllocations: a Fetch answer costs nothing but what the pool has lost, whatever it carries.
func TestFetchAllocations(t *testing.T) {
	a := &FetchAnswer{Parts: []FetchPart{{Topic: "t", Records: [][]byte{make([]byte, 1<<20)}}}}
	h := Header{Key: KeyFetch, Version: 12}
	n := testing.AllocsPerRun(100, func() { EncodeFetch(h, a, nil).Release() })
	if n > 1 {
		t.Fatalf("%v allocations", n)
	}
}
