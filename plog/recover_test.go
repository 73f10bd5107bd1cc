package plog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/pidmap"
	"sekali/segment"
)

func (r *rig) file(name string) []byte {
	r.t.Helper()
	b, err := vfs.ReadFile(r.fs, path.Join(testDir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// write replaces a file, durably.
func (r *rig) write(name string, b []byte) {
	r.t.Helper()
	if err := vfs.WriteFileAtomic(r.fs, testDir, name, b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) names(suffix string) (out []string) {
	r.t.Helper()
	names, err := r.fs.ReadDir(testDir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, suffix) {
			out = append(out, n)
		}
	}
	return out
}

func logName(base int64) string { return segment.Name(base, segment.LogSuffix) }

// TestTornTail is F1: bytes that were written and never flushed, cut at every position of the last batch, also behind
// whole ones of which the first is garbled. Nothing acknowledged is lost, nothing goes offline, the retry is stored.
func TestTornTail(t *testing.T) {
	tail := 0
	for cut := 1; tail == 0 || cut < tail; cut++ {
		r := newRig(t)
		for i := range int32(20) {
			r.p(1, 0, i*2, 2)
		}
		want := r.stored()
		r.marks.persist(MarkDurable, 40)
		size := r.log.Size()
		if _, err := r.log.Append(in(numbered(1, 0, 40, 2))); err != nil {
			t.Fatal(err)
		}
		tail = int(r.log.Size() - size)
		r.kill()
		r.write(logName(0), r.file(logName(0))[:int(size)+tail-cut])
		r.open(false)
		if got := r.stored(); !slices.Equal(got, want) || r.log.Offsets().High != 40 {
			t.Fatalf("cut %d: %v", cut, got)
		}
		// What is left of the first seven bytes is zeros, which cannot be told from a length ahead of its bytes.
		if c := r.rep.Cut; tail-cut > 7 && (c.Bytes != int64(tail-cut) || c.Batches != 0 || len(r.ev.cuts) != 1) {
			t.Fatalf("cut %d: told %+v", cut, c)
		}
		r.run(1, []step{{"retry is new", 0, 40, 2, 40, false, ok}, {"one before", 0, 38, 2, 38, true, ok}})
	}
	if tail < 80 {
		t.Fatalf("a batch of %d bytes", tail)
	}
}

func TestGarbledFirstOfThreeUnflushed(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 2)
	size := r.log.Size()
	for i := range int32(3) {
		r.log.Append(in(numbered(1, 0, 2+2*i, 2)))
	}
	r.kill()
	b := r.file(logName(0))
	b[size+70] ^= 1
	r.write(logName(0), b)
	r.open(false)
	if got := r.stored(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	if c := r.rep.Cut; c.Batches != 2 || c.Copy == "" || c.Bytes != int64(len(b))-size {
		t.Fatalf("told %+v", c)
	}
	if got := r.file(segment.Name(0, segment.CutSuffix)); len(got) == 0 {
		t.Fatal("whole batches were cut without a copy")
	}
	r.run(1, []step{{"retry is new", 0, 2, 2, 2, false, ok}, {"next", 0, 4, 2, 4, false, ok}})
}

// TestAcknowledgedDataCutAway is F1b: below the durable mark a cut or a flipped bit is corruption. The log does not
// open, says where and what helps, and nothing is changed.
func TestAcknowledgedDataCutAway(t *testing.T) {
	for name, x := range map[string]struct {
		end    int64
		damage func(b []byte) []byte
	}{
		"inside the last batch": {38, func(b []byte) []byte { return b[:len(b)-5] }},
		"on a batch border":     {38, func(b []byte) []byte { return b[:len(b)*19/20] }},
		"whole file":            {0, func([]byte) []byte { return nil }},
		"one bit":               {20, func(b []byte) []byte { b[len(b)/2+40] ^= 4; return b }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for i := range int32(20) {
				r.p(1, 0, i*2, 2)
			}
			r.marks.persist(MarkDurable, 40)
			r.kill()
			b := x.damage(r.file(logName(0)))
			r.write(logName(0), b)
			err := r.tryOpen(false)
			var c *CorruptError
			if !errors.As(err, &c) || c.Mark != 40 || c.End != x.end || c.Path != path.Join(testDir, logName(0)) {
				t.Fatalf("%v (%+v)", err, c)
			}
			for _, part := range []string{c.Path, "sekali check --repair /data", "40"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
			if !slices.Equal(r.file(logName(0)), b) {
				t.Error("the file was changed")
			}
		})
	}
}

// fill makes a log of several segments with producers, timestamps and aborted transactions, and stops it.
func (r *rig) fill() []string {
	r.t.Helper()
	for i := range int32(30) {
		r.p(int64(i%3), 0, i/3*2, 2)
		if i%5 == 4 {
			r.transaction(50, i%2 == 0, "t")
		}
		if i%11 == 10 {
			r.log.Tick(r.clk.Wall())
			r.clk.Advance(70 * time.Second)
		}
	}
	r.openTransaction(60, "open")
	r.sync()
	return r.stored()
}

// openTransaction stores one transactional batch of a producer that has none open.
func (r *rig) openTransaction(pid int64, val string) {
	r.t.Helper()
	seq := int32(0)
	r.log.Producers(func(p pidmap.Producer) bool {
		if p.PID == pid && p.N > 0 {
			seq = batch.SeqAdd(p.Stamps[p.N-1].LastSeq, 1)
		}
		return true
	})
	ask := in(values(pid, 0, seq, batch.AttrTransactional, val))
	_, err := r.log.Append(ask)
	var rej *RejectError
	if errors.As(err, &rej) {
		ask.Guard = rej.Decision.Guard
		_, err = r.log.Append(ask)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) transaction(pid int64, commit bool, val string) {
	r.t.Helper()
	r.openTransaction(pid, val)
	mk := batch.Marker{PID: pid, CoordEpoch: 1, Commit: commit, Time: r.clk.Wall()}
	if _, err := r.log.AppendMarker(mk, false); err != nil {
		r.t.Fatal(err)
	}
	r.sync()
}

// TestAdoptedTransactionIndexes: Kafka makes a transaction index only where there is something in it. Opened after it,
// a log needs no scan and has all of them.
func TestAdoptedTransactionIndexes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 1500; o.Config.IndexInterval = 200 })
	r.fill()
	for i := range 40 {
		if _, err := r.p(100, 0, int32(i*4), 4); err != nil {
			t.Fatal(err)
		}
	}
	r.sync()
	want := r.stored()
	committed, err := consume(r.log)
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	removed := 0
	for _, n := range r.names(segment.TxnSuffix) {
		if len(r.file(n)) == 0 {
			r.fs.Remove(path.Join(testDir, n))
			removed++
		}
	}
	if removed == 0 {
		t.Fatal("every segment has aborted transactions")
	}
	r.o.Adopt = true
	r.open(true)
	if f := r.ev.faulted(); len(f) != 0 || r.rep.Scanned != 0 {
		t.Errorf("%d bytes scanned, faults %v", r.rep.Scanned, f)
	}
	r.close()
	r.o.Adopt = false
	r.open(true)
	if f := r.ev.faulted(); len(f) != 0 {
		t.Errorf("the start after it: faults %v", f)
	}
	if got := r.stored(); !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if got, err := consume(r.log); err != nil || !slices.Equal(got, committed) {
		t.Errorf("read_committed %v, %v, want %v", got, err, committed)
	}
}

// TestIndexDamage is F2: whatever happens to the index files, the log opens, and every read is as before, the aborted
// transactions included.
func TestIndexDamage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	damages := map[string]func(r *rig, names []string){
		"removed": func(r *rig, names []string) {
			for _, n := range names {
				r.fs.Remove(path.Join(testDir, n))
			}
		},
		"zeros": func(r *rig, names []string) {
			for _, n := range names {
				r.write(n, make([]byte, len(r.file(n))))
			}
		},
		"random": func(r *rig, names []string) {
			for _, n := range names {
				b := r.file(n)
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				r.write(n, b)
			}
		},
		"cut": func(r *rig, names []string) {
			for _, n := range names {
				if b := r.file(n); len(b) > 0 {
					r.write(n, b[:len(b)-1])
				}
			}
		},
		"empty": func(r *rig, names []string) {
			for _, n := range names {
				r.write(n, nil)
			}
		},
		"swapped": func(r *rig, names []string) {
			names = slices.DeleteFunc(names, func(n string) bool { return len(r.file(n)) == 0 })
			a, b := r.file(names[0]), r.file(names[len(names)-1])
			r.write(names[0], b)
			r.write(names[len(names)-1], a)
		},
	}
	for name, damage := range damages {
		for _, suffix := range []string{segment.IndexSuffix, segment.TimeSuffix, segment.TxnSuffix, "index"} {
			if suffix == segment.TxnSuffix && name == "empty" {
				continue // alone it looks like that of a segment without aborted transactions
			}
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/clean=%v", name, suffix, clean), func(t *testing.T) {
					r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 1500; o.Config.IndexInterval = 200 })
					want := r.fill()
					committed, err := consume(r.log)
					if err != nil {
						t.Fatal(err)
					}
					before := listProducers(r.log.Producers)
					if clean {
						r.close()
					} else {
						r.kill()
					}
					damage(r, r.names(suffix))
					r.open(clean)
					if got := r.stored(); !slices.Equal(got, want) {
						t.Fatalf("read %v, want %v", got, want)
					}
					if got, err := consume(r.log); err != nil || !slices.Equal(got, committed) {
						t.Fatalf("read_committed %v, %v, want %v", got, err, committed)
					}
					if got := listProducers(r.log.Producers); !slices.Equal(got, before) {
						t.Fatalf("I14: producers\n%v\nbefore\n%v", got, before)
					}
					r.restart()
					if got, err := consume(r.log); err != nil || !slices.Equal(got, committed) {
						t.Fatalf("after one more stop: %v, %v", got, err)
					}
				})
			}
		}
	}
}

// TestSnapshotDamage is F3: an unusable snapshot is never "no producers".
func TestSnapshotDamage(t *testing.T) {
	for name, damage := range map[string]func(r *rig, names []string){
		"empty": func(r *rig, names []string) { r.write(names[len(names)-1], nil) },
		"one byte": func(r *rig, names []string) {
			b := r.file(names[len(names)-1])
			b[len(b)/2] ^= 0x10
			r.write(names[len(names)-1], b)
		},
		"half": func(r *rig, names []string) {
			b := r.file(names[len(names)-1])
			r.write(names[len(names)-1], b[:len(b)/2])
		},
		"removed": func(r *rig, names []string) { r.fs.Remove(path.Join(testDir, names[len(names)-1])) },
		"all removed": func(r *rig, names []string) {
			for _, n := range names {
				r.fs.Remove(path.Join(testDir, n))
			}
		},
		"an older one in its place": func(r *rig, names []string) {
			r.write(names[len(names)-1], r.file(names[0]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 1500 })
			r.fill()
			before := listProducers(r.log.Producers)
			stable := r.log.Offsets().Stable
			r.close()
			names := r.names(snapshotSuffix)
			if len(names) < 3 {
				t.Fatalf("snapshots %v", names)
			}
			damage(r, names)
			r.open(true)
			if got := listProducers(r.log.Producers); !slices.Equal(got, before) {
				t.Fatalf("I14: producers\n%v\nbefore\n%v", got, before)
			}
			if got := r.log.Offsets().Stable; got != stable {
				t.Fatalf("stable %d, before %d", got, stable)
			}
			for pid := range int64(3) {
				next := r.log.Offsets().End
				for i := range int32(5) {
					out, err := r.p(pid, 0, 10+2*i, 2)
					if err != nil || !out.Duplicate {
						t.Fatalf("producer %d, batch %d: %+v, %v", pid, i, out, err)
					}
				}
				if out, err := r.p(pid, 0, 20, 1); err != nil || out.Base != next {
					t.Fatalf("producer %d, next: %+v, %v", pid, out, err)
				}
			}
		})
	}
}

// TestLeftovers is F7: what interrupted housekeeping leaves does not stop a start and touches no data.
func TestLeftovers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
	for i := range int32(20) {
		r.p(1, 0, i*2, 2)
	}
	want := r.stored()
	r.close()
	r.write(segment.Name(4711, segment.LogSuffix), nil)
	r.write(segment.Name(5, segment.LogSuffix), nil)
	r.write(segment.Name(4711, segment.IndexSuffix), make([]byte, 8))
	r.write(segment.Name(40, snapshotSuffix)+".tmp", []byte("half"))
	r.write(segment.Name(0, ".log.deleted"), []byte("old"))
	r.write(segment.Name(0, ".snapshot.deleted"), []byte("old"))
	r.write(segment.Name(0, ".log.cleaned"), []byte("half"))
	r.write(segment.Name(9000, snapshotSuffix), []byte("of nothing"))
	r.write("leader-epoch-checkpoint.tmp", []byte("half"))
	r.write("notes.txt", []byte("an operator's"))
	r.open(true)
	if got := r.stored(); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	told := slices.Sorted(slices.Values(r.rep.Removed))
	if gone := []string{
		segment.Name(0, ".log.cleaned"), segment.Name(0, ".log.deleted"), segment.Name(0, ".snapshot.deleted"),
		segment.Name(5, segment.LogSuffix), segment.Name(40, snapshotSuffix) + ".tmp",
		segment.Name(4711, segment.IndexSuffix), segment.Name(4711, segment.LogSuffix),
		segment.Name(9000, snapshotSuffix), "leader-epoch-checkpoint.tmp",
	}; !slices.Equal(told, gone) {
		t.Errorf("told to be removed: %q, want %q", told, gone)
	}
	for _, n := range []string{".tmp", ".deleted", ".cleaned"} {
		if left := r.names(n); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if left := r.names("notes.txt"); len(left) != 1 {
		t.Error("a file nobody here knows is gone")
	}
	r.run(1, []step{{"next", 0, 40, 2, 40, false, ok}})
	r.restart()
	if n := len(r.log.view.Load().segs); r.log.view.Load().segs[n-1].ID().Base > 42 {
		t.Fatal("an empty segment became the active one")
	}
}

// TestEndBelowLogStart: a log that ends below its start, and vouches for nothing above, starts empty there.
func TestEndBelowLogStart(t *testing.T) {
	r := newRig(t)
	for i := range int32(10) {
		r.p(1, 0, i*2, 2)
	}
	if err := r.log.DeleteBefore(20); err != nil {
		t.Fatal(err)
	}
	r.kill()
	b := r.file(logName(0))
	r.write(logName(0), b[:len(b)/2])
	r.open(false)
	if o := r.log.Offsets(); o != (Offsets{20, 20, 20, 20}) {
		t.Fatalf("%+v", o)
	}
	if out, err := r.p(2, 0, 0, 1); err != nil || out.Base != 20 {
		t.Fatalf("%+v, %v", out, err)
	}
	r.restart()
	if got := r.stored(); len(got) != 1 {
		t.Fatalf("%v", got)
	}
}

// TestTailWithoutItsFirstSegment: a power cut may take the name of the segment at the log start and leave those of
// segments rolled after it. The log then ended at its start, and its producers are those of the snapshot there.
func TestTailWithoutItsFirstSegment(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
	for i := range int32(10) {
		r.p(1, 0, i*2, 2)
	}
	if err := r.log.DeleteBefore(20); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.log.Tick(r.clk.Wall())
		r.sync()
	}
	r.restart()
	for i := range int32(20) {
		r.log.Append(in(numbered(1, 0, 20+2*i, 2)))
	}
	r.kill()
	logs := r.names(segment.LogSuffix)
	if len(logs) < 3 || logs[0] != logName(20) || r.marks.get(MarkDurable) != 20 || r.marks.get(MarkStart) != 20 {
		t.Fatalf("not the case: %v, marks %v", logs, r.marks.at)
	}
	if err := r.fs.Remove(path.Join(testDir, logs[0])); err != nil {
		t.Fatal(err)
	}
	r.open(false)
	if o := r.log.Offsets(); o != (Offsets{20, 20, 20, 20}) {
		t.Fatalf("%+v", o)
	}
	if c := r.rep.Cut; c.Batches == 0 || len(r.names(segment.CutSuffix)) != len(logs)-1 {
		t.Fatalf("told %+v, copies %v of %v", c, r.names(segment.CutSuffix), logs)
	}
	r.run(1, []step{
		{"retry of one below the log start", 0, 18, 2, 18, true, ok},
		{"retry of one that was lost is new", 0, 20, 2, 20, false, ok},
	})
}

// TestSegmentsBehindACut: the log ends at the first torn batch; whole segments behind it go, and are kept aside.
func TestSegmentsBehindACut(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
	r.p(1, 0, 0, 2)
	for i := range int32(20) {
		r.log.Append(in(numbered(1, 0, 2+2*i, 2)))
	}
	r.kill()
	logs := r.names(segment.LogSuffix)
	b := r.file(logs[1])
	b[80] ^= 1
	r.write(logs[1], b)
	r.open(false)
	var second int64
	fmt.Sscanf(logs[1], "%d.log", &second)
	if o := r.log.Offsets(); o.End != second {
		t.Fatalf("%+v, the second segment begins at %d", o, second)
	}
	if got := r.names(segment.LogSuffix); len(got) != 2 {
		t.Fatalf("left: %v", got)
	}
	if c := r.rep.Cut; c.Batches < 10 || c.Bytes < 1000 || len(r.names(segment.CutSuffix)) != len(logs)-1 {
		t.Fatalf("told %+v, copies %v of %v", c, r.names(segment.CutSuffix), logs)
	}
	r.run(1, []step{{"retry is new", 0, int32(second), 2, second, false, ok}})
}

// TestGapBelowTheMark: a missing segment below the mark is corruption, above it the end of the log.
func TestGapBelowTheMark(t *testing.T) {
	for _, mark := range []int64{0, 40} {
		r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 600 })
		for i := range int32(20) {
			r.p(1, 0, i*2, 2)
		}
		r.marks.at = map[MarkKind]int64{MarkDurable: mark}
		r.kill()
		logs := r.names(segment.LogSuffix)
		r.fs.Remove(path.Join(testDir, logs[1]))
		err := r.tryOpen(false)
		var c *CorruptError
		if mark > 0 && !errors.As(err, &c) || mark == 0 && err != nil {
			t.Fatalf("mark %d: %v", mark, err)
		}
		if mark > 0 && len(r.names(segment.LogSuffix)) != len(logs)-1 {
			t.Fatal("files were removed")
		}
	}
}

// TestOpenReadsOnlyTheTail: after a kill the scan begins at the recovery point, not at the log start.
func TestOpenReadsOnlyTheTail(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 8 << 10 })
	for i := range int32(200) {
		r.p(1, 0, i*2, 2)
		if i%20 == 0 {
			r.clk.Advance(checkpointAge)
			r.log.Tick(r.clk.Wall())
		}
	}
	r.kill()
	r.open(false)
	if r.rep.Batches > 30 || r.rep.Batches == 0 || r.rep.Scanned > 5<<10 {
		t.Fatalf("scanned %+v", r.rep)
	}
	r.kill()
	r.open(false)
	r.log.Tick(r.clk.Wall())
	r.kill()
	r.open(false)
	if r.rep.Batches != 0 {
		t.Fatalf("scanned %+v after a checkpoint at the end", r.rep)
	}
}

var _ = os.O_RDWR
