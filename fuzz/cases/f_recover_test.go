package cases

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"sekali/batch"
)

// filled is a topic with acknowledged single-record batches of one producer, and another topic beside it.
type filled struct {
	p, other tp
	who      producer
	count    int32
	last     batch.View // the last batch as it was sent
	held     contents
}

func (n *node) fill(name string, count int32) filled {
	n.t.Helper()
	f := filled{p: n.topic(name, 1), other: n.topic(name+"-other", 1), who: n.init(), count: count}
	n.want("other", n.P(f.other, f.who, 0, 1), codeNone, 0)
	for s := range count {
		f.last = n.records(f.who, s, 1)
		n.want(fmt.Sprint("s=", s), n.produce(f.p, f.last), codeNone, int64(s))
	}
	f.held = n.read(f.p)
	return f
}

// unflushed is a batch as the broker would have written it next, but nobody was told.
func (n *node) unflushed(f filled, i int32) (sent, written batch.View) {
	sent = n.records(f.who, f.count+i, 1)
	written = slices.Clone(sent)
	all := f.held.batches()
	written.Stamp(int64(f.count+i), all[len(all)-1].LeaderEpoch())
	return sent, written
}

// F1. A torn tail that was never acknowledged is cut, wherever it was torn.
func TestF1TornTail(t *testing.T) {
	n := launch(t, options{})
	f := n.fill("f1", size[int32](100, 1000))
	n.kill()
	dead := n.save()
	logs := n.segments(f.p)
	newest := logs[len(logs)-1]
	sent, written := n.unflushed(f, 0)
	begin := func(behind []byte) {
		t.Helper()
		n.restore(dead)
		n.writeFile(newest, append(slices.Clone(dead[newest]), behind...))
		n.start()
		n.wantHigh(f.other, 1)
	}
	step := size(4, 1)
	for cut := 1; cut < len(written); cut++ {
		border := cut == 1 || cut == 60 || cut == 61 || cut == len(written)-1
		if cut%step != 0 && !border {
			continue
		}
		begin(written[:cut])
		n.same(f.p, f.held)
		if cut >= 8 { // before that the torn batch is nothing but the zeros its offset begins with
			n.logged("cut the unacknowledged end", fmt.Sprint("bytes=", cut), "topic=f1 ")
		}
		n.want(fmt.Sprintf("retry of the batch cut at %d", cut), n.produce(f.p, sent), codeNone, int64(f.count))
		n.want("next", n.P(f.p, f.who, f.count+1, 1), codeNone, int64(f.count+1))
		n.want("other", n.P(f.other, f.who, 1, 1), codeNone, 1)
		n.kill()
	}

	// A batch that is whole is kept, and its retry is a duplicate.
	begin(written)
	n.wantHigh(f.p, int64(f.count)+1)
	n.unchanged(f.p, func() { n.want("retry of a whole batch", n.produce(f.p, sent), codeNone, int64(f.count)) })
	n.kill()

	// Behind a garbled batch whole ones were never acknowledged either.
	for _, at := range []int{20, 43, len(written) - 1} {
		var sents []batch.View
		var behind []byte
		for i := range int32(3) {
			s, w := n.unflushed(f, i)
			if i == 0 {
				w[at] ^= 0x10
			}
			sents, behind = append(sents, s), append(behind, w...)
		}
		begin(behind)
		n.same(f.p, f.held)
		n.logged("cut the unacknowledged end", "batches=2", fmt.Sprint("bytes=", len(behind)))
		if cut := n.list(f.p.part(), ".cut"); len(cut) != 1 || !bytes.Equal(n.readFile(cut[0]), behind) {
			t.Errorf("garbled at %d: copies of what was cut: %v", at, cut)
		}
		for i, s := range sents {
			n.want(fmt.Sprintf("garbled at %d: retry %d", at, i), n.produce(f.p, s), codeNone, int64(f.count)+int64(i))
		}
		n.kill()
	}
	n.start()
}

// F1b. Acknowledged data that is gone or damaged is never cut by itself: the partition is offline and says what helps.
func TestF1bAcknowledgedDataCut(t *testing.T) {
	n := launch(t, options{})
	f := n.fill("f1b", size[int32](100, 1000))
	n.pass(3 * time.Second)
	n.marked(f.p, int64(f.count))
	n.kill()
	dead := n.save()
	newest := n.segments(f.p)[0]
	whole := dead[newest]
	for _, x := range []struct {
		name string
		size int
		left int32 // batches
	}{
		{"inside the last batch", len(whole) - 20, f.count - 1},
		{"inside the header of the last batch", len(whole) - len(f.last) + 30, f.count - 1},
		{"the whole file", 0, 0},
	} {
		n.restore(dead)
		n.writeFile(newest, whole[:x.size])
		n.start()
		n.refused(x.name+": produce", n.P(f.p, f.who, f.count, 1), codeStorage)
		if got := n.F(f.p, 0, uncommitted); got.ErrorCode != codeStorage {
			t.Errorf("%s: fetch: code %d, want 56", x.name, got.ErrorCode)
		}
		pos := len(whole) - len(f.last)
		if x.left == 0 {
			pos = 0
		}
		n.logged("f1b", path.Join(n.dir(), newest), fmt.Sprintf("position %d", pos), "sekali check --repair")
		n.want(x.name+": other partition", n.P(f.other, f.who, 1, 1), codeNone, 1)
		if !bytes.Equal(n.readFile(newest), whole[:x.size]) {
			t.Errorf("%s: the damaged file was changed", x.name)
		}
		n.kill()
		if full { // sekali check is the command's alone
			n.repair()
			n.start()
			n.wantHigh(f.p, int64(x.left))
			n.wantHigh(f.other, 2)
			got := n.read(f.p)
			if !bytes.Equal(got.raw, f.held.raw[:len(got.raw)]) {
				t.Errorf("%s: what was left has changed", x.name)
			}
			if x.left > 0 {
				n.want(x.name+": the cut batch again", n.produce(f.p, f.last), codeNone, int64(x.left))
			} else {
				n.want(x.name+": a new beginning", n.P(f.p, n.init(), 0, 1), codeNone, 0)
			}
			n.kill()
		}
	}
	n.restore(dead)
	n.start()
	n.same(f.p, f.held)
}

// repair runs sekali check --repair over the data directory, as the log says, and then without --repair, which must
// find nothing any more.
func (n *node) repair() {
	n.t.Helper()
	cmd := exec.Command(program, "check", "--repair", n.dir())
	cmd.Stdin = strings.NewReader("yes\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Errorf("sekali check --repair: %v\n%s", err, out)
	}
	if out, err := exec.Command(program, "check", n.dir()).CombinedOutput(); err != nil {
		n.t.Errorf("sekali check after the repair: %v\n%s", err, out)
	}
}

// F2. Damaged indexes: the broker starts without help, reads are as before, the indexes are made anew.
func TestF2IndexesDamaged(t *testing.T) {
	n := launch(t, options{})
	segment := fmt.Sprint(size(256<<10, 1<<20))
	p, who := n.topic("f2", 1, "internal.segment.bytes", segment, "retention.ms", "-1"), n.init()
	const perBatch = 10
	batches := size(100, 1000)
	begin := n.now()
	for i := range batches {
		s := shape{size: 1000, time: begin + int64(i)*10}
		n.want("fill", n.P(p, who, int32(i*perBatch), perBatch, s), codeNone, int64(i*perBatch))
	}
	type look struct {
		bytes  []byte
		offset int64 // of the first record at the time of this batch
	}
	looks := func() (out []look) {
		for at := int64(0); at < int64(batches*perBatch); at += 100 {
			f := n.F(p, at, uncommitted)
			if f.ErrorCode != 0 {
				t.Errorf("fetch at %d: code %d", at, f.ErrorCode)
			}
			out = append(out, look{f.RecordBatches[:min(len(f.RecordBatches), 64<<10)],
				n.offset(p, begin+at/perBatch*10, uncommitted)})
		}
		return out
	}
	before := looks()
	n.stop()
	sound := n.save()
	logs := n.segments(p)
	if len(logs) < 3 {
		t.Fatalf("only %d segments", len(logs))
	}
	index := func(i int, suffix string) string { return strings.TrimSuffix(logs[i], ".log") + suffix }
	random := func(size int) []byte {
		b := make([]byte, size)
		rnd := rand.NewChaCha8([32]byte{1})
		_, _ = rnd.Read(b) // never fails
		return b
	}
	damages := map[string]func(suffix string){
		"all deleted": func(string) {
			for i := range logs {
				n.remove(index(i, ".index"))
				n.remove(index(i, ".timeindex"))
			}
		},
		"one deleted": func(s string) { n.remove(index(1, s)) },
		"zeros":       func(s string) { n.writeFile(index(1, s), make([]byte, len(sound[index(1, s)]))) },
		"zeros in the newest": func(s string) {
			last := index(len(logs)-1, s)
			n.writeFile(last, make([]byte, len(sound[last])))
		},
		"random bytes": func(s string) { n.writeFile(index(1, s), random(len(sound[index(1, s)]))) },
		"torn entry":   func(s string) { n.writeFile(index(1, s), sound[index(1, s)][:len(sound[index(1, s)])-3]) },
		"empty":        func(s string) { n.writeFile(index(0, s), nil) },
		"swapped": func(s string) {
			n.writeFile(index(0, s), sound[index(1, s)])
			n.writeFile(index(1, s), sound[index(0, s)])
		},
	}
	for name, damage := range damages {
		for _, suffix := range []string{".index", ".timeindex"} {
			n.restore(sound)
			damage(suffix)
			n.start()
			after := looks()
			for i := range before {
				if !bytes.Equal(after[i].bytes, before[i].bytes) || after[i].offset != before[i].offset {
					t.Fatalf("%s, %s: a read at offset %d differs; by time %d, was %d",
						name, suffix, i*100, after[i].offset, before[i].offset)
				}
			}
			n.stop()
			for i := range logs {
				n.indexTrue(fmt.Sprintf("%s, %s", name, suffix), logs[i], index(i, ".index"), index(i, ".timeindex"))
			}
		}
	}
	n.start()
}

// indexTrue holds the index files of a segment against its batches: every offset entry is the last offset of the batch
// at its position, every time entry the largest time so far, and there is one for every few kilobytes.
func (n *node) indexTrue(what, log, index, times string) {
	n.t.Helper()
	raw := n.readFile(log)
	var base int64
	_, err := fmt.Sscanf(path.Base(log), "%d.log", &base)
	n.must(err)
	last := map[int64]int64{} // last offset of the batch at a position
	held := map[int64]int64{} // time of the batch with this last offset
	pos := int64(0)
	for rest := raw; len(rest) > 0; {
		v, r, err := batch.Next(rest)
		n.must(err)
		last[pos], held[v.LastOffset()] = v.LastOffset(), v.MaxTime()
		pos, rest = pos+int64(len(v)), r
	}
	b := n.readFile(index)
	if len(b)%8 != 0 || len(b)/8 < len(raw)/(2*(4096+12_000)) {
		n.t.Errorf("%s: %s has %d bytes for a log of %d", what, index, len(b), len(raw))
	}
	for at, before := 0, int64(-1); at+8 <= len(b); at += 8 {
		offset := base + int64(binary.BigEndian.Uint32(b[at:]))
		p := int64(binary.BigEndian.Uint32(b[at+4:]))
		if got, ok := last[p]; !ok || got != offset || offset <= before {
			n.t.Fatalf("%s: %s at %d: offset %d at position %d, the batch there ends at %d", what, index, at, offset, p, got)
		}
		before = offset
	}
	b = n.readFile(times)
	if len(b)%12 != 0 || len(b) == 0 {
		n.t.Errorf("%s: %s has %d bytes", what, times, len(b))
	}
	for at, before := 0, int64(-1); at+12 <= len(b); at += 12 {
		time := int64(binary.BigEndian.Uint64(b[at:]))
		offset := base + int64(binary.BigEndian.Uint32(b[at+8:]))
		if got, ok := held[offset]; !ok || got != time || time <= before {
			n.t.Fatalf("%s: %s at %d: time %d at offset %d, the batch ending there has %d", what, times, at, time, offset, got)
		}
		before = time
	}
}

// F3. A damaged producer snapshot: retries are still recognised.
func TestF3SnapshotDamaged(t *testing.T) {
	n := launch(t, options{})
	p := n.topic("f3", 1)
	type write struct {
		b    batch.View
		base int64
	}
	var who []producer
	sent := map[producer][]write{}
	for range 3 {
		who = append(who, n.init())
	}
	end := int64(0)
	grow := func(rounds int) {
		t.Helper()
		for range rounds {
			for i, w := range who {
				seq := int32(len(sent[w]) * (i + 1))
				b := n.records(w, seq, i+1)
				n.want("fill", n.produce(p, b), codeNone, end)
				sent[w] = append(sent[w], write{b, end})
				end += int64(i + 1)
			}
		}
	}
	grow(8)
	n.stop()
	older := n.snapshot(p)
	olderBytes := n.readFile(older)
	n.start()
	grow(6)
	n.stop()
	sound, newest := n.save(), n.snapshot(p)
	if newest == older {
		t.Fatalf("no new snapshot beside %s", older)
	}
	for name, damage := range n.snapshotDamages(p, sound, older, newest, olderBytes) {
		n.restore(sound)
		damage()
		n.start()
		n.unchanged(p, func() {
			for _, w := range who {
				for _, x := range sent[w][len(sent[w])-5:] {
					n.want(name+": retry", n.produce(p, x.b), codeNone, x.base)
				}
			}
		})
		at := end
		for i, w := range who {
			n.want(name+": next", n.P(p, w, int32(len(sent[w])*(i+1)), 1), codeNone, at)
			at++
		}
		n.stop()
	}
	n.start()
}

// snapshotDamages are the ways in which the newest producer snapshot of a partition is damaged: sound is the data
// directory with it, older the name of the one before it.
func (n *node) snapshotDamages(p tp, sound image, older, newest string, olderBytes []byte) map[string]func() {
	content := sound[newest]
	damages := map[string]func(){
		"none":                     func() {},
		"empty":                    func() { n.writeFile(newest, nil) },
		"cut in half":              func() { n.writeFile(newest, content[:len(content)/2]) },
		"deleted":                  func() { n.remove(newest) },
		"replaced by an older one": func() { n.writeFile(newest, olderBytes) },
		"an older one in its place": func() {
			n.remove(newest)
			n.writeFile(older, olderBytes)
		},
		"none left": func() {
			for _, s := range n.list(p.part(), ".snapshot") {
				n.remove(s)
			}
		},
	}
	for _, at := range []int{0, 3, 9, 12, 40, len(content) - 1} {
		damages[fmt.Sprint("byte ", at)] = func() {
			b := slices.Clone(content)
			b[at] ^= 0x40
			n.writeFile(newest, b)
		}
	}
	return damages
}

// snapshot is the newest producer snapshot of a partition.
func (n *node) snapshot(p tp) string {
	n.t.Helper()
	all := n.list(p.part(), ".snapshot")
	if len(all) == 0 {
		n.t.Fatalf("%v has no producer snapshot", p)
	}
	return all[len(all)-1]
}
