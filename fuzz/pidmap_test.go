package fuzz

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"maps"
	"math"
	"testing"
	"time"

	"sekali/pidmap"
)

// seqMod is the modulus of sequence numbers this build uses: 2^31, or 64 under the tag sekali_smallseq.
var seqMod = func() int64 {
	if top := (pidmap.Stamp{Delta: 1}).FirstSeq(); top > 0 {
		return int64(top) + 1
	}
	return 0
}()

// producerLog is a partition written by hostile clients, with all it ever accepted.
type producerLog struct {
	t          *testing.T
	m          *pidmap.Map
	in         []byte
	end, touch int64
	durable    int64
	epochs     map[int64]*epochLog
	running    map[int64]pidmap.Producer // the state a running snapshot must give
	copied     pidmap.Copy
	entries    []byte
	trailer    []byte
	begunTouch int64
}

// epochLog is what one producer wrote in its present epoch since it was last forgotten. Its batches are contiguous.
type epochLog struct {
	epoch   int16
	coord   int32
	batches []stored
	txn     int64
}

type stored struct {
	first, last int32
	base, n     int64
}

func (p *producerLog) byte() byte {
	if len(p.in) == 0 {
		return 0
	}
	b := p.in[0]
	p.in = p.in[1:]
	return b
}

// number is a sequence number a client may claim: near 0, near the wrap, near what the producer wrote, or anything.
func (p *producerLog) number(e *epochLog) int32 {
	kind := p.byte()
	near := int64(int8(p.byte()))
	switch kind % 5 {
	case 0:
		near = max(near, 0)
	case 1:
		near += seqMod
	case 2, 3:
		if e != nil && len(e.batches) > 0 {
			near += int64(e.batches[len(e.batches)-1].last) + 1
			if kind%5 == 2 {
				near = int64(e.batches[len(e.batches)-1].last) + 1
			}
		}
	case 4:
		near = int64(binary.LittleEndian.Uint32([]byte{p.byte(), p.byte(), p.byte(), p.byte()}))
		if kind >= 250 {
			return int32(uint32(near)) // negative ones too
		}
	}
	return int32(((near % seqMod) + seqMod) % seqMod)
}

func ahead(from, to int32) int64 { return ((int64(to)-int64(from))%seqMod + seqMod) % seqMod }

// write offers one batch and holds every answer against what was written.
func (p *producerLog) write() {
	pid := int64(p.byte() % 4)
	e := p.epochs[pid]
	flags := p.byte()
	b := pidmap.Batch{PID: pid, Txn: flags&1 != 0, FromZero: flags&2 != 0, CRC: uint32(flags), Touch: p.touch}
	if e != nil {
		b.Epoch = e.epoch
	}
	b.Epoch = max(0, b.Epoch+int16(flags>>2&3)/3-int16(flags>>4&3)/3)
	b.FirstSeq = p.number(e)
	n := int64(p.byte()%6) + 1
	b.LastSeq = int32((int64(b.FirstSeq) + n - 1) % seqMod)
	d := p.m.Check(&b)
	if d.Verdict == pidmap.TxnUnverified {
		if e != nil && e.txn >= 0 && e.epoch == b.Epoch {
			p.t.Fatal("a batch of an open transaction must not be verified again")
		}
		b.Guard = d.Guard
		if d = p.m.Check(&b); d.Verdict == pidmap.TxnUnverified {
			p.t.Fatal("the guard just given is void")
		}
	}
	p.judge(&b, &d, e, n)
	switch d.Verdict {
	case pidmap.Accept:
		at := pidmap.At{Base: p.end, Last: p.end + n - 1, Time: p.end}
		p.m.Commit(&b, at)
		if e == nil {
			e = &epochLog{epoch: -1, coord: -1, txn: -1}
			p.epochs[pid] = e
		}
		if e.epoch != b.Epoch {
			e.epoch, e.batches = b.Epoch, nil
		}
		e.batches = append(e.batches, stored{b.FirstSeq, b.LastSeq, p.end, n})
		if b.Txn && e.txn < 0 {
			e.txn = p.end
		}
		p.end += n
	case pidmap.OutOfOrder, pidmap.Fenced, pidmap.TxnOpen:
		if flags&0xc0 == 0xc0 {
			p.m.Refuse(&b)
		}
	}
}

// judge fails on an answer that the written history does not bear out.
func (p *producerLog) judge(b *pidmap.Batch, d *pidmap.Decision, e *epochLog, n int64) {
	t := p.t
	if e != nil && (b.Epoch < e.epoch) != (d.Verdict == pidmap.Fenced) {
		t.Fatalf("epoch %d after %d: verdict %d", b.Epoch, e.epoch, d.Verdict)
	}
	var same []stored
	if e != nil && e.epoch == b.Epoch {
		same = e.batches
	}
	switch d.Verdict {
	case pidmap.Accept:
		if e != nil && e.txn >= 0 && !b.Txn {
			t.Fatal("a plain batch was taken inside a transaction")
		}
		next := int32(0)
		if len(same) > 0 {
			next = int32((int64(same[len(same)-1].last) + 1) % seqMod)
		}
		if (e != nil || b.FromZero) && b.FirstSeq != next {
			t.Fatalf("accepted %d, the next number is %d (I6)", b.FirstSeq, next)
		}
	case pidmap.Duplicate:
		for _, s := range same {
			if s.first == b.FirstSeq && s.last == b.LastSeq && s.base == d.Stamp.Base() && s.base+s.n-1 == d.Stamp.Last {
				return
			}
		}
		t.Fatalf("%d..%d called a duplicate of %+v, which was never written", b.FirstSeq, b.LastSeq, d.Stamp)
	case pidmap.DuplicateOld:
		if len(same) == 0 {
			t.Fatalf("%d..%d called an old duplicate of nothing", b.FirstSeq, b.LastSeq)
		}
		written := int64(0)
		for _, s := range same {
			written += s.n
		}
		last := same[len(same)-1]
		if back := ahead(b.FirstSeq, last.last); back >= written || back < n-1 || d.Seek.Until != last.base+last.n-1 {
			t.Fatalf("%d..%d called proven, %d numbers up to %d are", b.FirstSeq, b.LastSeq, written, last.last)
		}
	case pidmap.OutOfOrder:
		for _, s := range same[max(0, len(same)-1):] {
			if ahead(s.last, b.FirstSeq) == 1 || s.first == b.FirstSeq && s.last == b.LastSeq {
				t.Fatalf("%d..%d refused after %d..%d", b.FirstSeq, b.LastSeq, s.first, s.last)
			}
		}
	}
}

func (p *producerLog) mark() {
	pid := int64(p.byte() % 4)
	flags := p.byte()
	k := pidmap.Marker{PID: pid, CoordEpoch: int32(flags >> 4 & 3), Version: int8(flags>>6&1) + 1, Time: p.end}
	e := p.epochs[pid]
	if e != nil {
		k.Epoch = e.epoch
	}
	k.Epoch = max(0, k.Epoch+int16(flags&3)-1)
	ended, err := p.m.CheckMarker(&k)
	if err != nil {
		if !errors.Is(err, pidmap.ErrFenced) && !errors.Is(err, pidmap.ErrCoordFenced) || e == nil {
			p.t.Fatalf("marker of epoch %d refused: %v", k.Epoch, err)
		}
		return
	}
	if had := e != nil && e.txn >= 0; ended.Had != had || had && ended.First != e.txn {
		p.t.Fatalf("%+v ends nothing or another transaction", ended)
	}
	p.m.CommitMarker(&k, pidmap.At{Base: p.end, Last: p.end, Time: k.Time})
	if e == nil {
		e = &epochLog{txn: -1}
		p.epochs[pid] = e
	}
	if e.epoch != k.Epoch {
		e.epoch, e.batches = k.Epoch, nil
	}
	e.coord, e.txn = k.CoordEpoch, -1
	p.end++
}

func producers(m *pidmap.Map) map[int64]pidmap.Producer {
	all := map[int64]pidmap.Producer{}
	for next := 0; next >= 0; {
		next = m.Each(next, func(p pidmap.Producer) { all[p.PID] = p })
	}
	return all
}

// finish completes a running snapshot and compares it with the state at its beginning.
func (p *producerLog) finish() {
	for p.m.Copy(&p.copied) {
		p.entries, p.trailer = p.copied.Append(p.entries, p.trailer)
	}
	p.m.Finish()
	again := pidmap.New(pidmap.Options{})
	if err := again.Load(pidmap.SnapshotFile(p.entries, p.trailer), p.begunTouch); err != nil {
		p.t.Fatal(err)
	}
	if got := producers(again); !maps.Equal(got, p.running) {
		p.t.Fatalf("the snapshot holds\n%+v\nat its beginning there was\n%+v", got, p.running)
	}
	p.running, p.entries, p.trailer = nil, nil, nil
}

func (p *producerLog) step() {
	switch op := p.byte(); {
	case op < 180:
		p.write()
	case op < 215:
		p.mark()
	case op < 225: // begin a snapshot, or give one piece of it
		if p.running == nil {
			p.m.Begin(p.end, p.touch)
			p.running, p.begunTouch = producers(p.m), p.touch
		} else if p.m.Copy(&p.copied) {
			p.entries, p.trailer = p.copied.Append(p.entries, p.trailer)
		}
	case op < 235: // restart
		if p.running == nil {
			p.m.Begin(p.end, p.touch)
			p.running, p.begunTouch = producers(p.m), p.touch
			for p.m.Copy(&p.copied) {
				p.entries, p.trailer = p.copied.Append(p.entries, p.trailer)
			}
			file := pidmap.SnapshotFile(p.entries, p.trailer)
			p.finish()
			if err := p.m.Load(file, p.touch); err != nil {
				p.t.Fatal(err)
			}
		}
	case op < 245:
		p.touch += int64(op-234) * 10_000
		p.m.Expire(p.touch, 1000)
		held := producers(p.m)
		for pid, e := range p.epochs {
			if _, ok := held[pid]; !ok {
				if e.txn >= 0 {
					p.t.Fatalf("producer %d expired with an open transaction", pid)
				}
				delete(p.epochs, pid)
			}
		}
	default:
		p.durable = min(p.end, p.durable+int64(op-240))
	}
	low := int64(math.MaxInt64)
	for _, e := range p.epochs {
		if e.txn >= 0 {
			low = min(low, e.txn)
		}
	}
	offset, _, ok := p.m.Unstable(p.durable)
	if low < math.MaxInt64 && (!ok || offset > low) {
		p.t.Fatalf("open from %d, unstable from %d (I11)", low, offset)
	}
}

// FuzzPidmap lets the input act as clients, coordinator and clock. An accepted batch continues its producer's numbers
// (so none is stored twice, I6), a duplicate is one in the history, nothing of an older epoch passes, an open
// transaction holds the last stable offset, and a snapshot is the state at its beginning whatever happens meanwhile.
func FuzzPidmap(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 2, 0, 1, 0, 2, 0, 2, 0, 1, 0, 2, 0, 2, 200, 1, 1, 220, 0, 1, 1, 2, 0, 3, 220, 230})
	f.Add([]byte{0, 2, 0, 1, 250, 3, 0, 2, 0, 2, 0, 3, 0, 2, 0, 2, 0, 5, 0, 2, 0, 3, 250, 1, 236, 244, 0, 2, 0, 4, 9, 9})
	long := make([]byte, 0, 900)
	for i := range byte(100) {
		long = append(long, i*37, i%4, i*11, 2, i, i%6, 200+i%50, i%3, i*5)
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<14 {
			return
		}
		p := &producerLog{
			t: t, in: in, end: 1, touch: 1000, epochs: map[int64]*epochLog{},
			m: pidmap.New(pidmap.Options{ExpireAfter: time.Minute}),
		}
		for len(p.in) > 0 {
			p.step()
		}
		if p.running != nil {
			p.finish()
		}
	})
}

// kafkaSnapshot is a file Apache Kafka wrote.
const kafkaSnapshot = "000155deb810000000020000" +
	"0000000003e90000000000000000000000000066000000020000018bcfe56805ffffffff0000000000000064" +
	"00000000000007d50003ffffffffffffffffffffffff000000000000018bcfe5680a00000007ffffffffffffffff"

// ourSnapshot is a file with a trailer: one producer with a full window, one with an open transaction.
func ourSnapshot() []byte {
	m := pidmap.New(pidmap.Options{})
	offset := int64(0)
	for i := range int32(7) {
		b := pidmap.Batch{PID: 9, Epoch: 1, FirstSeq: 3 * i, LastSeq: 3*i + 2, CRC: uint32(i), Touch: int64(i) * 1000}
		m.Commit(&b, pidmap.At{Base: offset, Last: offset + 2, Time: 1000 + offset})
		offset += 3
	}
	b := pidmap.Batch{PID: 12, Txn: true}
	b.Guard = m.Check(&b).Guard
	m.Commit(&b, pidmap.At{Base: offset, Last: offset, Time: 2})
	return snapshotOf(m, 10_000)
}

func snapshotOf(m *pidmap.Map, touch int64) []byte {
	var c pidmap.Copy
	var entries, trailer []byte
	m.Begin(math.MaxInt64, touch)
	for m.Copy(&c) {
		entries, trailer = c.Append(entries, trailer)
	}
	m.Finish()
	return pidmap.SnapshotFile(entries, trailer)
}

// FuzzSnapshot reads any bytes as a snapshot file, with their checksum made right where asked. A refused file leaves an
// empty map. One that is taken gives a state that decides sanely and that a second generation of the file keeps.
func FuzzSnapshot(f *testing.F) {
	kafka, err := hex.DecodeString(kafkaSnapshot)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kafka, false)
	f.Add(kafka, true)
	f.Add(ourSnapshot(), true)
	f.Add(pidmap.SnapshotFile(nil, nil), false)
	f.Fuzz(func(t *testing.T, file []byte, seal bool) {
		if seal && len(file) >= 6 {
			file = append([]byte(nil), file...)
			binary.BigEndian.PutUint16(file, 1)
			binary.BigEndian.PutUint32(file[2:], crc32.Checksum(file[6:], crc32.MakeTable(crc32.Castagnoli)))
		}
		const touch = 50_000
		m := pidmap.New(pidmap.Options{})
		if err := m.Load(file, touch); err != nil {
			if _, _, ok := m.Unstable(0); !errors.Is(err, pidmap.ErrSnapshot) || m.Len() != 0 || ok {
				t.Fatalf("%v, %d producers left", err, m.Len())
			}
			return
		}
		if n := (len(file) - 10) / 46; m.Len() > n {
			t.Fatalf("%d producers from %d bytes", m.Len(), len(file))
		}
		state := producers(m)
		for pid, p := range state {
			sane(t, m, pid, p)
		}
		second := snapshotOf(m, touch)
		again := pidmap.New(pidmap.Options{})
		if err := again.Load(second, touch); err != nil || !maps.Equal(producers(again), state) {
			t.Fatalf("the second generation differs: %v", err)
		}
		if third := snapshotOf(again, touch); string(third) != string(second) {
			t.Fatal("the third generation is not the second")
		}
	})
}

// sane asks what a loaded producer must answer.
func sane(t *testing.T, m *pidmap.Map, pid int64, p pidmap.Producer) {
	if p.N == 0 {
		if p.Span != 0 {
			t.Fatalf("%+v: a span without a batch", p)
		}
		return
	}
	for _, s := range p.Stamps[:p.N] {
		if s.Base() < 0 || s.Last < s.Base() || s.LastSeq < 0 || int64(s.LastSeq) >= seqMod {
			t.Fatalf("%+v: slot %+v", p, s)
		}
	}
	s := p.Stamps[p.N-1]
	b := pidmap.Batch{PID: pid, Epoch: p.Epoch, FirstSeq: s.FirstSeq(), LastSeq: s.LastSeq, Txn: p.TxnFirst >= 0}
	if d := m.Check(&b); d.Verdict != pidmap.Duplicate && int64(s.Delta) < seqMod-1 {
		t.Fatalf("%+v: its newest batch again: verdict %d", p, d.Verdict)
	}
	next := int32((int64(s.LastSeq) + 1) % seqMod)
	b.FirstSeq, b.LastSeq = next, next
	if d := m.Check(&b); d.Verdict != pidmap.Accept {
		t.Fatalf("%+v: the next batch: verdict %d", p, d.Verdict)
	}
}
