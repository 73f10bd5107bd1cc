package cases

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

// twin is the client as it is now, over a new connection: what becomes of it leaves x as it was.
func (x *txn) twin() *txn {
	x.n.t.Helper()
	t := *x
	t.seq = maps.Clone(x.seq)
	t.again()
	return &t
}

// values are the values of records, in their order.
func values(all []stored) (out []string) {
	for _, s := range all {
		out = append(out, s.value)
	}
	return out
}

// F3, with transactions: those that were open are open and block the LSO, those that were decided stay decided.
func TestF3OpenTransactions(t *testing.T) {
	generations(t, options{settings: fewJournals()}, func(t *testing.T, n *node, g generation) {
		p := n.topic("f3", 1)
		const longest = 900_000
		early, late, gone := n.INITFor(g, "f3-early", longest), n.INITFor(g, "f3-late", longest), n.INIT(g, "f3-gone")
		plain := n.init()
		n.want("plain", n.P(p, plain, 0, 1), codeNone, 0)
		n.oneOf("ADD", gone.ADD(p), 0)
		gone.must(p, 2)
		gone.ended(false)
		n.decided(p)
		n.oneOf("ADD", early.ADD(p), 0)
		first := early.must(p, 2)
		n.stop()
		older := n.snapshot(p)
		olderBytes := n.readFile(older)
		n.start()
		for _, x := range []*txn{early, late, gone} {
			x.again()
		}
		n.oneOf("ADD", gone.ADD(p), 0)
		gone.must(p, 1)
		n.oneOf("ADD", late.ADD(p), 0)
		second := late.must(p, 1)
		early.must(p, 1)
		gone.ended(true)
		last := early.batch(early.seq[p], 1)
		lastAt := early.send(p, last).base
		early.seq[p]++
		if a := n.P(p, plain, 1, 1); a.code != 0 {
			t.Errorf("plain behind: %v", a)
		}
		n.stop()
		sound, newest := n.save(), n.snapshot(p)
		if newest == older {
			t.Fatalf("no new snapshot beside %s", older)
		}
		for name, damage := range n.snapshotDamages(p, sound, older, newest, olderBytes) {
			n.restore(sound)
			damage()
			n.start()
			a, b := early.twin(), late.twin()
			blocked := func(what string, at int64, records int) {
				t.Helper()
				if s, got := n.stable(p), n.committed(p, 0, 1<<20); s != at || len(got) != records {
					t.Errorf("%s, %s: LSO %d and %v; want LSO %d and %d records", name, what, s, got, at, records)
				}
			}
			blocked("both open", first, 1)
			n.unchanged(p, func() { n.want(name+": retry", a.send(p, last), codeNone, lastAt) })
			b.ended(true)
			blocked("one open", first, 1)
			a.must(p, 1)
			a.ended(true)
			n.decided(p)
			if got := n.committed(p, 0, 1<<20); len(got) != 9 || got[4].offset < second {
				t.Errorf("%s: decided: %v", name, got)
			}
			n.oneOf("ADD", a.ADD(p), 0)
			a.must(p, 1)
			a.ended(false)
			n.decided(p)
			if got := n.committed(p, 0, 1<<20); len(got) != 9 {
				t.Errorf("%s: after another abort: %v", name, got)
			}
			n.stop()
		}
		n.start()
	})
}

// F2, the index of aborted transactions: damaged, it is made anew, and no aborted record gets through. (One that was
// cut between two entries looks like one that never had more.)
func TestF2AbortedIndexDamaged(t *testing.T) {
	generations(t, options{settings: fewJournals()}, func(t *testing.T, n *node, g generation) {
		p := n.topic("f2", 1, "internal.segment.bytes", "16384", "retention.ms", "-1")
		x, plain := n.INIT(g, "f2"), n.init()
		for i := range int32(40) {
			n.oneOf("ADD", x.ADD(p), 0)
			x.must(p, 3)
			if a := n.P(p, plain, i, 1, shape{size: 1500}); a.code != 0 {
				t.Fatalf("fill: %v", a)
			}
			x.ended(i%4 == 0)
		}
		n.decided(p)
		look := func() (out []string) {
			for at := int64(0); at < n.high(p); at += 7 {
				out = append(out, fmt.Sprint(n.committed(p, at, 3000)))
			}
			return append(out, values(n.committed(p, 0, 1<<20))...)
		}
		before := look()
		if got := len(n.committed(p, 0, 1<<20)); got != 70 {
			t.Fatalf("%d records are committed, want 70", got)
		}
		n.stop()
		sound, logs := n.save(), n.segments(p)
		if len(logs) < 4 {
			t.Fatalf("only %d segments", len(logs))
		}
		index := func(i int) string { return strings.TrimSuffix(logs[i], ".log") + ".txnindex" }
		newest := len(logs) - 1
		for newest > 0 && len(sound[index(newest)]) == 0 {
			newest--
		}
		noise := make([]byte, len(sound[index(1)]))
		_, _ = rand.NewChaCha8([32]byte{2}).Read(noise) // never fails
		for name, damage := range map[string]func(){
			"all deleted": func() {
				for i := range logs {
					if n.exists(index(i)) {
						n.remove(index(i))
					}
				}
			},
			"one deleted":         func() { n.remove(index(1)) },
			"zeros":               func() { n.writeFile(index(1), make([]byte, len(noise))) },
			"zeros in the newest": func() { n.writeFile(index(newest), make([]byte, len(sound[index(newest)]))) },
			"random bytes":        func() { n.writeFile(index(1), noise) },
			"torn entry":          func() { n.writeFile(index(1), sound[index(1)][:len(noise)-3]) },
			"swapped": func() {
				n.writeFile(index(0), sound[index(1)])
				n.writeFile(index(1), sound[index(0)])
			},
		} {
			n.restore(sound)
			damage()
			n.start()
			for i, now := range look() {
				if now != before[i] {
					t.Fatalf("%s: read %d differs: %s, was %s", name, i, now, before[i])
				}
			}
			n.stop()
			for i := range logs {
				if want, ok := sound[index(i)]; ok && !bytes.Equal(n.readFile(index(i)), want) {
					t.Errorf("%s: %s is not what it was", name, path.Base(index(i)))
				}
			}
		}
		n.start()
	})
}
