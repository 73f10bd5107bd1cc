package pidmap

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sample is a file Kafka wrote: pid 1001, epoch 0, last sequence 0, last offset 102, delta 2, transaction from 100; and
// pid 2005, epoch 3, of which only a marker of coordinator epoch 7 was seen.
const sample = "000155deb81000000002" +
	"00000000000003e90000000000000000000000000066000000020000018bcfe56805ffffffff0000000000000064" +
	"00000000000007d50003ffffffffffffffffffffffff000000000000018bcfe5680a00000007ffffffffffffffff"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sampleMap is the state of the sample.
func sampleMap(t testing.TB) *Map {
	m := newMap(Options{}, 1<<31)
	const last = 1<<31 - 2
	b := &Batch{PID: 1001, FirstSeq: last, LastSeq: 0, CRC: 0x35af73fa, Txn: true, Touch: 2000}
	b.Guard = m.Check(b).Guard
	if m.Check(b).Verdict != Accept {
		t.Fatal("not accepted")
	}
	m.Commit(b, At{Base: 100, Last: 102, Time: 0x18bcfe56805, Pos: 77})
	m.CommitMarker(&Marker{PID: 2005, Epoch: 3, CoordEpoch: 7, Time: 0x18bcfe5680a}, At{Base: 103, Last: 103})
	return m
}

// TestSnapshotSample: our bytes are Kafka's up to its last entry, but for the CRC, which covers the trailer.
func TestSnapshotSample(t *testing.T) {
	m := sampleMap(t)
	if !m.Begin(104, 5000) {
		t.Fatal("no snapshot begun")
	}
	got, want := drain(m), unhex(t, sample)
	if !bytes.Equal(got[:2], want[:2]) || !bytes.Equal(got[6:len(want)], want[6:]) {
		t.Fatalf("entries\n%x\nwant\n%x", got[:len(want)], want)
	}
	trailer := "534b4c5053580001" + "00000002" +
		"0000000000000bb8" + "00000003" + "35af73fa" + "0000018bcfe56805" + "00" +
		"0000000000000bb8" + "00000000" + "00000000" + "ffffffffffffffff" + "00"
	if !bytes.Equal(got[len(want):], unhex(t, trailer)) {
		t.Fatalf("trailer\n%x\nwant\n%s", got[len(want):], trailer)
	}
	crc := crc32.Checksum(got[6:], crc32.MakeTable(crc32.Castagnoli))
	if stored := binary.BigEndian.Uint32(got[2:]); stored != crc {
		t.Fatalf("crc %08x, want %08x", stored, crc)
	}
	if binary.BigEndian.Uint32(want[2:]) != 0x55deb810 || crc32.Checksum(want[6:], castagnoli) != 0x55deb810 {
		t.Fatal("the sample's own checksum")
	}
}

// TestLoadKafka reads the file without a trailer: the newest slot, the span of that slot, no idle time.
func TestLoadKafka(t *testing.T) {
	m := newMap(Options{ExpireAfter: time.Hour}, 1<<31)
	if err := m.Load(unhex(t, sample), 90_000); err != nil {
		t.Fatal(err)
	}
	want := map[int64]Producer{
		1001: {PID: 1001, TxnFirst: 100, LastTime: 0x18bcfe56805, Touch: 90_000, CoordEpoch: -1, Span: 3, N: 1,
			Stamps: [Window]Stamp{{LastSeq: 0, Delta: 2, Last: 102, Time: 0x18bcfe56805}}},
		2005: {PID: 2005, TxnFirst: -1, LastTime: 0x18bcfe5680a, Touch: 90_000, Epoch: 3, CoordEpoch: 7},
	}
	if got := stateOf(m); !maps.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
	if o, pos, ok := m.Unstable(0); !ok || o != 100 || pos != -1 {
		t.Fatalf("unstable from %d at %d (%v)", o, pos, ok)
	}
	m.Locate(99, 5)
	m.Locate(100, 6)
	if _, pos, _ := m.Unstable(0); pos != 6 {
		t.Fatalf("position %d", pos)
	}
	trailer, err := Decode(unhex(t, sample), func(*Producer) error { return nil })
	if err != nil || trailer {
		t.Fatalf("trailer %v, %v", trailer, err)
	}
	// Group offsets are batches without a number; Kafka keeps their offset.
	plain := edited(t, func(b []byte) { copy(b[10+46+14:], []byte{0, 0, 0, 0, 0, 0, 0, 9}) })
	if err := m.Load(plain, 0); err != nil || stateOf(m)[2005].N != 0 {
		t.Fatalf("%v %+v", err, stateOf(m)[2005])
	}
}

// edited is the sample with some bytes changed and its checksum right again.
func edited(t testing.TB, edit func(b []byte)) []byte {
	b := unhex(t, sample)
	edit(b)
	seal(b)
	return b
}

func seal(b []byte) { binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli)) }

// TestRestart retries five batches after a restart, with the trailer and with Kafka's file.
func TestRestart(t *testing.T) {
	p := newPartition(1 << 31)
	for i := range int32(8) {
		p.want(t, p.batch(7, 3, 10*i, 10), Accept)
	}
	before := p.state()
	file := p.snapshot(t)
	again := newPartition(1 << 31)
	if err := again.Load(file, p.touch); err != nil || !maps.Equal(again.state(), before) {
		t.Fatalf("%v\n%+v\nwant\n%+v", err, again.state(), before)
	}
	for i := range int32(8) {
		want := DuplicateOld
		if i >= 3 {
			want = Duplicate
		}
		if d := again.want(t, p.batch(7, 3, 10*i, 10), want); want == Duplicate && d.Stamp.Base() != 100+10*int64(i) {
			t.Fatalf("batch %d: %+v", i, d)
		}
	}
	again.want(t, p.batch(7, 3, 80, 1), Accept)

	kafka := file[:headLen+entryLen]
	seal(kafka)
	if err := again.Load(kafka, p.touch); err != nil {
		t.Fatal(err)
	}
	again.want(t, p.batch(7, 3, 70, 10), Duplicate)
	again.want(t, p.batch(7, 3, 75, 5), DuplicateOld)
	again.want(t, p.batch(7, 3, 60, 10), OutOfOrder) // may never have arrived, for all this file tells
	again.want(t, p.batch(7, 3, 80, 1), Accept)
}

// TestIdleTimeGoesOn: what a producer had been idle for counts after the restart, the time in between does not.
func TestIdleTimeGoesOn(t *testing.T) {
	p := newPartition(1 << 31)
	p.touch = 0
	p.want(t, p.batch(1, 0, 0, 1), Accept)
	p.touch = 40_000
	p.want(t, p.batch(2, 0, 0, 1), Accept)
	p.want(t, p.txn(3, 0, 0, 1), Accept)
	p.touch = 50_000
	file := p.snapshot(t)
	load := func(expire time.Duration, touch int64) *Map {
		m := New(Options{ExpireAfter: expire})
		if err := m.Load(file, touch); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := load(time.Minute, 300)
	if got := stateOf(m); got[1].Touch != 300-50_000 || got[2].Touch != 300-10_000 {
		t.Fatalf("touched at %d and %d", got[1].Touch, got[2].Touch)
	}
	if m.Expire(10_200, 100) != 0 || m.Expire(10_300, 100) != 1 || m.Len() != 2 {
		t.Fatal("producer 1 expires 10 s after the start")
	}
	if m = load(50*time.Second, 0); fmt.Sprint(keys(stateOf(m))) != "[2 3]" {
		t.Fatalf("loaded %v: producer 1 had expired", keys(stateOf(m)))
	}
	if m = load(5*time.Second, 0); fmt.Sprint(keys(stateOf(m))) != "[3]" {
		t.Fatalf("loaded %v: an open transaction does not expire", keys(stateOf(m)))
	}
}

// TestNewestTimeBehindMarker: the entry's timestamp is the marker's, the slot keeps its own, also after a restart.
func TestNewestTimeBehindMarker(t *testing.T) {
	p := newPartition(1 << 31)
	p.want(t, p.txn(7, 0, 0, 3), Accept)
	p.mark(7, 0, 1, 1)
	before := p.state()
	m := newMap(Options{}, 1<<31)
	if err := m.Load(p.snapshot(t), p.touch); err != nil || !maps.Equal(stateOf(m), before) {
		t.Fatalf("%v %+v", err, stateOf(m))
	}
	if d := m.Check(p.txn(7, 0, 0, 3)); d.Verdict != Duplicate || d.Stamp.Time != 5100 || before[7].LastTime != 7103 {
		t.Fatalf("%+v", d)
	}
}

// TestLoadRefuses damaged and hostile files, whole: the map is empty afterwards and stays usable.
func TestLoadRefuses(t *testing.T) {
	m := sampleMap(t)
	m.Begin(104, 5000)
	ours := drain(m)
	change := func(at int, b ...byte) []byte {
		f := bytes.Clone(ours)
		copy(f[at:], b)
		seal(f)
		return f
	}
	cut := func(n int) []byte {
		f := bytes.Clone(ours[:len(ours)-n])
		seal(f)
		return f
	}
	const trailerAt = headLen + 2*entryLen + trailerHeadLen
	for name, file := range map[string][]byte{
		"empty":              nil,
		"nine bytes":         ours[:9],
		"version 0":          change(0, 0, 0),
		"version 2":          change(0, 0, 2),
		"checksum":           append(bytes.Clone(ours[:len(ours)-1]), ours[len(ours)-1]^1),
		"negative count":     change(6, 0xff, 0xff, 0xff, 0xff),
		"huge count":         change(6, 0x7f, 0xff, 0xff, 0xff),
		"one entry too many": change(6, 0, 0, 0, 4),
		"negative pid":       change(10, 0xff),
		"negative epoch":     change(18, 0xff, 0xff),
		"sequence -2":        change(20, 0xff, 0xff, 0xff, 0xfe),
		"negative delta":     change(32, 0xff, 0xff, 0xff, 0xff),
		"delta below 0":      change(32, 0, 0, 0, 200),
		"coordinator -2":     change(44, 0xff, 0xff, 0xff, 0xfe),
		"transaction -2":     change(48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe),
		"same pid twice":     change(56, ours[10:18]...),
		"trailer count":      change(trailerAt-4, 0, 0, 0, 1),
		"negative idle":      change(trailerAt, 0x80),
		"span below slot":    change(trailerAt+8, 0, 0, 0, 2),
		"span above half":    change(trailerAt+8, 0x40, 0, 0, 0),
		"five older slots":   change(trailerAt+24, 5),
		"missing older slot": change(trailerAt+24, 4),
		"span without slot":  change(trailerAt+25+8, 0, 0, 0, 1),
		"older of no slot":   change(trailerAt+25+24, 1),
		"trailer cut":        cut(1),
		"trailer entry cut":  cut(trailerFixed),
		"bytes behind":       func() []byte { f := append(bytes.Clone(ours), 0); seal(f); return f }(),
	} {
		m := newMap(Options{}, 1<<31)
		m.Load(ours, 0)
		if err := m.Load(file, 0); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: error %v", name, err)
		}
		if _, _, ok := m.Unstable(0); ok || m.Len() != 0 || len(stateOf(m)) != 0 {
			t.Errorf("%s: %d producers left", name, m.Len())
		}
		if err := m.Load(ours, 0); err != nil || m.Len() != 2 {
			t.Errorf("%s: the map is not usable afterwards: %v", name, err)
		}
	}
	// A trailer of another version or maker is no error: Kafka's part counts.
	for name, file := range map[string][]byte{"version": change(trailerAt-5, 9), "magic": change(trailerAt-12, 'X')} {
		m := newMap(Options{}, 1<<31)
		if err := m.Load(file, 0); err != nil || m.Len() != 2 {
			t.Errorf("unknown trailer %s: %v", name, err)
		}
	}
	two := change(56+38, 0, 0, 0, 0, 0, 0, 0, 100)
	if err := m.Load(two, 0); !errors.Is(err, ErrSnapshot) {
		t.Errorf("two transactions from one offset: %v", err)
	}
	stop := errors.New("stop")
	if _, err := Decode(ours, func(*Producer) error { return stop }); err != stop {
		t.Errorf("error of the caller came back as %v", err)
	}
	far := change(trailerAt, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	if err := m.Load(far, 1000); err != nil || stateOf(m)[1001].Touch != math.MinInt32*100 {
		t.Errorf("the longest idle time: %v, touched at %d", err, stateOf(m)[1001].Touch)
	}
}

// TestSnapshotRules: one at a time, Copy without Begin gives nothing, Finish before the end leaves no trace.
func TestSnapshotRules(t *testing.T) {
	p := newPartition(1 << 31)
	var c Copy
	if p.Copy(&c) {
		t.Fatal("copied without Begin")
	}
	for pid := range int64(3 * chunkEntries) {
		p.want(t, p.batch(pid, 0, 0, 1), Accept)
	}
	if _, ok := p.Running(); ok || !p.Begin(p.end, p.touch) || p.Begin(p.end, p.touch) {
		t.Fatal("one snapshot at a time")
	}
	if at, ok := p.Running(); !ok || at != p.end {
		t.Fatalf("running at %d (%v)", at, ok)
	}
	if !p.Copy(&c) {
		t.Fatal("nothing to copy")
	}
	p.want(t, p.batch(1, 0, 1, 1), Accept)
	p.want(t, p.batch(chunkEntries, 0, 1, 1), Accept)
	p.Finish()
	if _, ok := p.Running(); ok || p.Copy(&c) || len(p.snap.pending) != 0 {
		t.Fatal("the snapshot goes on after Finish")
	}
	before := p.state()
	m := newMap(Options{}, 1<<31)
	if err := m.Load(p.snapshot(t), p.touch); err != nil || !maps.Equal(stateOf(m), before) {
		t.Fatalf("the snapshot after one that was given up is not exact: %v", err)
	}
}

// TestExpiredToNothing: the map becomes empty while a snapshot runs; the file is the state before.
func TestExpiredToNothing(t *testing.T) {
	p := &partition{Map: New(Options{ExpireAfter: time.Second})}
	for pid := range int64(3 * chunkEntries) {
		p.want(t, p.batch(pid, 0, 0, 1), Accept)
	}
	before := p.state()
	p.Begin(p.end, 500)
	if p.Expire(1000, 1<<20); p.Len() != 0 {
		t.Fatalf("%d left", p.Len())
	}
	m := New(Options{})
	if err := m.Load(drain(p.Map), 500); err != nil || !maps.Equal(stateOf(m), before) {
		t.Fatalf("%v: %s", err, difference(stateOf(m), before))
	}
	p.want(t, p.batch(1, 0, 0, 1), Accept)
	if p.Expire(5000, 1<<20); p.chunks != nil {
		t.Fatal("the memory of an empty map is kept")
	}
}

// TestCopyOnWrite: whatever is appended, marked, refused, expired, evicted and begun between Begin and the last Copy,
// the file is the state at Begin.
func TestCopyOnWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPartition(1 << 31)
		p.Map = New(Options{
			ExpireAfter: time.Second, ProducersMax: rapid.SampledFrom([]int{0, 3000, 1200}).Draw(t, "max"),
		})
		rnd := rapid.Uint64().Draw(t, "seed")
		pids := rapid.SampledFrom([]int{1, 3, 40, 600, 2500}).Draw(t, "pids")
		fill := rapid.IntRange(0, 3*pids).Draw(t, "fill")
		for range fill {
			disturb(t, p, &rnd, pids)
		}
		for range rapid.IntRange(1, 3).Draw(t, "snapshots") {
			before := p.state()
			if !p.Begin(p.end, p.touch) {
				t.Fatal("no snapshot begun")
			}
			touch := p.now
			every := rapid.IntRange(1, 400).Draw(t, "pace")
			var c Copy
			var entries, trailer []byte
			for more := true; more; {
				for range every {
					disturb(t, p, &rnd, pids)
				}
				if more = p.Copy(&c); more {
					entries, trailer = c.Append(entries, trailer)
				}
			}
			p.Finish()
			m := New(Options{})
			if err := m.Load(SnapshotFile(entries, trailer), int64(touch)*100); err != nil {
				t.Fatal(err)
			}
			if got := stateOf(m); !maps.Equal(got, before) {
				t.Fatalf("%d producers, %d at Begin\n%s", len(got), len(before), difference(got, before))
			}
		}
	})
}

// disturb changes the map somehow.
func disturb(t *rapid.T, p *partition, rnd *uint64, pids int) {
	*rnd = *rnd*6364136223846793005 + 1442695040888963407
	r := *rnd >> 20
	pid := int64(r % uint64(pids))
	r >>= 16
	s := p.current(pid)
	switch r % 100 {
	case 0:
		p.touch += 300
		p.Expire(p.touch, 1000)
	case 1:
		if b := p.batch(pid, 0, 0, 1); s.N == 0 {
			p.Refuse(b)
		}
	case 2, 3, 4, 5, 6, 7, 8, 9:
		if _, err := p.mark(pid, s.Epoch+int16(r>>8%2), 1, 1); err != nil {
			t.Fatal(err)
		}
	default:
		f := p.seq.next(noSequence)
		epoch := s.Epoch
		if r>>8%10 == 0 {
			epoch++
		} else if s.N > 0 {
			f = p.seq.next(s.Stamps[s.N-1].LastSeq)
		}
		b := p.batch(pid, epoch, f, 1+int(r>>9%3))
		b.Txn = s.TxnFirst >= 0 || r>>12%4 == 0
		if d := p.send(b); d.Verdict != Accept {
			t.Fatalf("verdict %d on %+v with %+v", d.Verdict, b, s)
		}
	}
}

// current is the state of one producer; epoch 0 and no transaction if there is none.
func (p *partition) current(pid int64) Producer {
	if _, e := p.lookup(pid, hash(pid)); e != nil && e.stored() {
		return e.producer(p.txns.firstOf(e.txn))
	}
	return Producer{TxnFirst: -1}
}

// difference names the first producer in which two states differ.
func difference(got, want map[int64]Producer) string {
	for _, pid := range keys(want) {
		if got[pid] != want[pid] {
			return fmt.Sprintf("got  %+v\nwant %+v", got[pid], want[pid])
		}
	}
	for _, pid := range keys(got) {
		if _, ok := want[pid]; !ok {
			return fmt.Sprintf("got %+v, want none", got[pid])
		}
	}
	return "equal"
}
