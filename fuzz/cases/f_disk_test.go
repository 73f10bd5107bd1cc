package cases

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

// Sizes of the logs that roll often.
const (
	smallSegment = 64 << 10
	smallBatch   = 8 << 10
)

// rolling makes a topic whose segments hold a few batches.
func (n *node) rolling(name string, partitions int32) tp {
	n.t.Helper()
	return n.topic(name, partitions, "internal.segment.bytes", fmt.Sprint(smallSegment), "index.interval.bytes", "4096",
		"retention.ms", "-1")
}

// F4. The disk fills up, also in the middle of a roll, of a snapshot and of the growth of an index. (EndTxn comes with
// transactions.)
func TestF4DiskFull(t *testing.T) {
	const page = 4096
	disk := size[int64](16<<20, 64<<20)
	n := launch(t, options{disk: disk})
	first := n.rolling("f4", 2)
	var writers []*writer
	var ledgers []*ledger
	for i := range int32(2) {
		l := newLedger(tp{first.topic, i})
		ledgers = append(ledgers, l)
		writers = append(writers, n.writer(l), n.writer(l))
	}
	settled := func(what string) {
		t.Helper()
		n.must(n.alive())
		for _, l := range ledgers {
			n.settled(what, l)
		}
	}
	// fill writes until every writer was refused; the codes of refusals are 56, and 45 behind one.
	fill := func(what string, most int) {
		t.Helper()
		for _, w := range writers {
			refused := false
			for range most {
				_, codes, err := w.burst(3, 4, smallBatch)
				n.must(err)
				if len(codes) == 0 {
					continue
				}
				for i, c := range codes {
					if c != codeStorage && (i == 0 || c != codeOutOfOrder) {
						t.Fatalf("%s: codes %v on a full disk", what, codes)
					}
				}
				refused = true
				break
			}
			if !refused {
				t.Fatalf("%s: %d bursts and the disk is not full", what, most)
			}
		}
	}
	// resume writes on where the refusals were, without a restart.
	resume := func(what string) {
		t.Helper()
		n.must(n.leave(-1))
		for _, w := range writers {
			if acked, codes, err := w.burst(3, 4, smallBatch); acked != 3 || err != nil {
				t.Fatalf("%s, with space again: %d acknowledged, codes %v, %v", what, acked, codes, err)
			}
		}
		settled(what + ", with space again")
	}

	n.must(n.leave(disk / 4))
	fill("at first", int(disk/smallBatch))
	n.logged("no space left on device")
	settled("full")
	n.pass(3 * time.Second)
	fill("still full", int(disk/smallBatch)) // sealing gives back what was reserved
	settled("still full")
	if _, code := initOn(n, n.conn()); code != codeNone && code != codeLoading {
		t.Errorf("InitProducerId on a full disk: code %d", code)
	}
	resume("at first")

	for pages := range size[int64](12, 40) {
		what := fmt.Sprintf("%d pages left", pages)
		n.must(n.leave(pages * page))
		fill(what, 100)
		settled(what)
		// Housekeeping meets the full disk too, and one that has room for the first of its files only.
		n.must(n.leave(pages % 4 * page))
		n.pass(1100 * time.Millisecond)
		settled(what + " after housekeeping")
		resume(what)
	}
	// Bytes are left, but no new file can be made: that is a roll that fails.
	n.must(n.freeze(true))
	fill("no new file", 1000)
	n.logged("op=roll", "no space left on device")
	settled("no new file")
	n.pass(1100 * time.Millisecond)
	settled("no new file, after housekeeping")
	n.must(n.freeze(false))
	resume("no new file")

	// The growth of an index has the blocks of sekali.reserve, and does not fail here.
	for _, words := range [][]string{{"op=append"}, {`op="producer snapshot"`}} {
		n.logged(append(words, "no space left on device")...)
	}
	for _, w := range writers {
		w.hangUp()
	}
	for _, how := range []string{"KILL", "STOP"} {
		n.restart(how)
		settled("after " + how)
	}
	resume("at the end")
}

// F6. Offsets never move, whatever is removed in front of them.
func TestF6OffsetsStay(t *testing.T) {
	n := launch(t, options{})
	l := newLedger(n.rolling("f6", 1))
	w := n.writer(l)
	write := func(bursts int) {
		t.Helper()
		for range bursts {
			if acked, codes, err := w.burst(5, 3, 5*smallBatch); acked != 5 || err != nil {
				t.Fatalf("%d acknowledged, codes %v, %v", acked, codes, err)
			}
		}
	}
	// removed holds what is there against what was acknowledged, then again after STOP and KILL, and writes on.
	removed := func(what string, start int64) {
		t.Helper()
		n.settled(what, l)
		if l.start < start {
			t.Errorf("%s: log start %d, want %d at least", what, l.start, start)
		}
		for _, how := range []string{"STOP", "KILL"} {
			w.hangUp()
			n.restart(how)
			n.settled(what+", "+how, l)
		}
		write(1)
		n.settled(what+", written on", l)
	}
	rise := func(what string, to int64) {
		t.Helper()
		n.until(what, func() bool { return n.logStart(l.p) >= to })
	}
	write(size(8, 40))
	n.settled("written", l)

	at := l.high/3 + 1 // inside a batch
	if code, low := n.deleteRecords(l.p, at); code != 0 || low != at {
		t.Fatalf("DeleteRecords: code %d, low watermark %d, want %d", code, low, at)
	}
	removed("DeleteRecords", at)

	n.alter("f6", "retention.bytes", fmt.Sprint(5*smallSegment))
	rise("removal by size", l.start+1)
	n.pass(3 * time.Second)
	removed("retention by size", at+1)

	n.alter("f6", "retention.bytes", "-1")
	high := l.high
	n.pass(3 * time.Second)
	n.alter("f6", "retention.ms", "2000")
	rise("removal by time", high)
	n.alter("f6", "retention.ms", "-1")
	removed("retention by time", high)
	if code, low := n.deleteRecords(l.p, -1); code != 0 || low != l.high {
		t.Fatalf("DeleteRecords up to the high watermark: code %d, low watermark %d, want %d", code, low, l.high)
	}
	removed("all of it", l.high)
}

// F7. What interrupted housekeeping leaves behind does not stop a start and touches no live data.
func TestF7Leftovers(t *testing.T) {
	n := launch(t, options{})
	l := newLedger(n.rolling("keep", 1))
	w := n.writer(l)
	if acked, codes, err := w.burst(30, 2, smallBatch); acked != 30 || err != nil {
		t.Fatalf("%d acknowledged, codes %v, %v", acked, codes, err)
	}
	w.hangUp()
	n.stop()
	segment := func(base int64, suffix string) string {
		return path.Join(l.p.part(), fmt.Sprintf("%020d%s", base, suffix))
	}
	half := "half.deleted-topic-0.0123456789abcdef0123456789abcdef-delete"
	cleaned := map[string][]byte{ // path: content; all of it may go
		segment(l.high, ".snapshot.tmp"):              []byte("half a snapshot"),
		segment(0, ".log.deleted"):                    []byte("a segment on its way out"),
		"replication-offset-checkpoint.tmp":           []byte("0\n"),
		path.Join(half, "00000000000000000000.log"):   []byte("records of a deleted topic"),
		path.Join(half, "partition.metadata"):         []byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
		path.Join(half, "00000000000000000000.index"): {},
		path.Join(half, "leader-epoch-checkpoint"):    []byte("0\n0\n"),
	}
	foreign := map[string][]byte{ // stays
		"notes.txt":                    []byte("of an operator"),
		"lost+found/a-file":            []byte("of a file system"),
		path.Join(l.p.part(), "notes"): []byte("of an operator"),
	}
	for _, m := range []map[string][]byte{cleaned, foreign} {
		for p, b := range m {
			n.writeFile(p, b)
		}
	}
	n.writeFile(segment(l.high, ".log"), nil) // an empty newest segment
	n.start()
	n.settled("with leftovers", l)
	for _, name := range []string{path.Base(segment(l.high, ".snapshot.tmp")), half, "notes.txt", "lost+found",
		"replication-offset-checkpoint.tmp", path.Base(segment(0, ".log.deleted"))} {
		n.logged(path.Join(n.dir()), name)
	}
	for p, b := range foreign {
		if !slices.Equal(n.readFile(p), b) {
			t.Errorf("%s has changed", p)
		}
	}
	n.until("the leftovers are gone", func() bool {
		for p := range cleaned {
			if n.exists(p) {
				return false
			}
		}
		return true
	})
	if acked, codes, err := w.burst(30, 2, smallBatch); acked != 30 || err != nil {
		t.Fatalf("%d acknowledged, codes %v, %v", acked, codes, err)
	}
	w.hangUp()
	n.settled("written on", l)
	n.deletedDuringKill(l)
}

// deletedDuringKill deletes topics with dots and dashes in their names while the broker dies.
func (n *node) deletedDuringKill(l *ledger) {
	for i := range size(6, 20) {
		name := fmt.Sprintf("going.away-%d.for-good", i)
		n.topic(name, 3)
		for q := range int32(3) {
			n.want("fill", n.P(tp{name, q}, n.init(), 0, 5), codeNone, 0)
		}
		n.must(n.dial().Send(deleteRequest(name)))
		time.Sleep(time.Duration(i*i) * 100 * time.Microsecond)
		n.restart("KILL")
		n.settled("deleted during KILL", l)
		// The topic is there, whole, or it goes; then its name is free and nothing of it comes back.
		there := 0
		for q := range int32(3) {
			switch f := n.F(tp{name, q}, 0, uncommitted); {
			case f.ErrorCode == codeNone && f.HighWatermark == 5:
				there++
			case f.ErrorCode != codeUnknown:
				n.t.Fatalf("%s-%d after KILL: code %d, high watermark %d", name, q, f.ErrorCode, f.HighWatermark)
			}
		}
		switch there {
		case 3:
			if code := n.deleteTopic(name); code != 0 {
				n.t.Fatalf("DeleteTopics %s again: code %d", name, code)
			}
		case 0:
		default:
			n.t.Fatalf("%s: %d of 3 partitions are there", name, there)
		}
		n.until("the directories of "+name+" are gone", func() bool {
			return !slices.ContainsFunc(n.list("", ""), func(p string) bool { return strings.HasPrefix(p, name) })
		})
		n.topic(name, 3)
		n.wantHigh(tp{name, 0}, 0)
	}
}
