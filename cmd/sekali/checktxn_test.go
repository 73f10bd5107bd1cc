package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/batch"
	"sekali/coord"
	"sekali/engine"
	"sekali/group"
	"sekali/internal/vfs"
	"sekali/plog"
)

// teller is a home with an engine: transactions and groups as a daemon has them. The topic "a" has two partitions, each
// internal topic one.
type teller struct {
	*home
	t testing.TB
	e *engine.Engine
	a [2]coord.TP
}

func openTeller(t testing.TB, fs vfs.FS) *teller {
	t.Helper()
	w := &teller{home: mustOpenHome(t, fs), t: t}
	gc := group.Defaults()
	gc.SnapshotEvery, gc.RewriteEvery = 1, 1<<40
	w.e = engine.New(engine.Config{Store: w.s, Meta: w.kv, FS: fs, Clock: w.clk, TxnPartitions: 1, OffsetsPartitions: 1,
		Txns:   coord.Config{TimeoutMaxMs: 900_000, IDExpireMs: 1 << 40, TV: 2, SnapshotEvery: 1, RewriteEvery: 1 << 40},
		Groups: gc})
	if err := w.e.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.s.Catalog().ByName["a"] == nil {
		if err := w.create("a", 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	topic := w.s.Catalog().ByName["a"]
	for i := range w.a {
		w.a[i] = coord.TP{Topic: "a", ID: topic.ID, Partition: int32(i)}
	}
	return w
}

func (w *teller) mustClose() {
	w.t.Helper()
	w.e.Close()
	w.home.mustClose(w.t)
}

// ask waits for an answer of the coordinator.
func ask[T any](t testing.TB, fn func(done func(T, *kerr.Error))) T {
	t.Helper()
	type answer struct {
		out  T
		code *kerr.Error
	}
	ch := make(chan answer, 1)
	fn(func(out T, code *kerr.Error) { ch <- answer{out, code} })
	a := <-ch
	if a.code != nil {
		t.Fatal(a.code)
	}
	return a.out
}

func (w *teller) init(id string) coord.InitOut {
	w.t.Helper()
	return ask(w.t, func(done func(coord.InitOut, *kerr.Error)) {
		w.e.Txns().Init(coord.InitIn{TxnID: id, TimeoutMs: 60_000, PID: -1, Epoch: -1}, done)
	})
}

// transact writes a record to both partitions of "a" and an offset of group g, and ends the transaction.
func (w *teller) transact(id string, p coord.InitOut, tv int8, seq int32, end func(commit bool) bool) coord.InitOut {
	w.t.Helper()
	owner, _ := w.e.OffsetsTP("g")
	part := coord.Part{TxnID: id, PID: p.PID, Epoch: p.Epoch, TV: tv, TPs: append(w.a[:2:2], owner)}
	if code := w.e.Add(part); code != nil {
		w.t.Fatal(code)
	}
	for _, tp := range w.a {
		l, err := w.log(tp.Topic, tp.Partition)
		if err != nil {
			w.t.Fatal(err)
		}
		v := crafted(p.PID, p.Epoch, seq, 1, batch.AttrTransactional)
		b := &engine.Batch{Log: l, TP: tp, In: plog.AppendIn{Batch: v, Checked: batch.Checked{MaxTime: v.MaxTime()},
			Version: 11}}
		w.e.AppendTxn(coord.Part{TxnID: id, PID: p.PID, Epoch: p.Epoch}, false, []*engine.Batch{b}, nil)
		if b.Err != nil || b.Code != nil {
			w.t.Fatal(b.Err, b.Code)
		}
	}
	in := w.offset(p.PID, p.Epoch, int64(seq))
	if in.Guard = w.commit(in); in.Guard != 0 {
		w.commit(in)
	}
	if end == nil {
		return p
	}
	return ask(w.t, func(done func(coord.InitOut, *kerr.Error)) {
		w.e.Txns().End(coord.EndIn{TxnID: id, PID: p.PID, Epoch: p.Epoch, TV: tv, Commit: end(true)}, done)
	})
}

func (w *teller) offset(pid int64, epoch int16, at int64) group.CommitIn {
	return group.CommitIn{Member: group.Member{Group: "g", Generation: -1}, Version: 4, PID: pid, Epoch: epoch,
		RetainMs: -1, TPs: []group.TP{group.TP(w.a[0])}, Offsets: []group.Offset{{Offset: at, LeaderEpoch: -1}}}
}

func (w *teller) commit(in group.CommitIn) (guard uint64) {
	w.t.Helper()
	ch := make(chan uint64, 1)
	w.e.Groups().Commit(in, func(codes []*kerr.Error, guard uint64) {
		if guard == 0 && codes[0] != nil {
			w.t.Error(codes[0])
		}
		ch <- guard
	})
	return <-ch
}

// fill runs transactions of both versions, plain commits, and leaves one transaction open; then it waits for snapshots.
func (w *teller) fill() {
	w.t.Helper()
	p, old := w.init("new"), w.init("old")
	for i := range int32(6) {
		outcome := func(bool) bool { return i%3 != 1 }
		seq := int32(0)
		p = w.transact("new", p, 2, seq, outcome)
		w.transact("old", old, 0, i, outcome)
		w.commit(w.offset(-1, -1, int64(100+i)))
	}
	for range 2 {
		w.snapshots()
	}
	w.transact("open", w.init("open"), 2, 0, nil)
	w.commit(w.offset(-1, -1, 200))
}

// snapshots ticks until both files are there, on the machine's clock: they are written aside.
func (w *teller) snapshots() {
	w.t.Helper()
	for range 5000 {
		w.clk.Advance(100 * time.Millisecond)
		w.s.Tick() // flushes what nobody waits for, as a Complete record
		w.e.Tick()
		a, err1 := vfs.Exists(w.fs, homeDir+"/"+engine.TxnSnapshotPrefix+"0")
		b, err2 := vfs.Exists(w.fs, homeDir+"/"+engine.GroupSnapshotPrefix+"0")
		if a && b && err1 == nil && err2 == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	names, _ := w.fs.ReadDir(homeDir)
	w.t.Fatalf("no snapshots: %v", names)
}

// filled is a directory that a teller filled, as files.
func filled(t testing.TB) map[string][]byte {
	t.Helper()
	m := vfs.NewMem()
	w := openTeller(t, m)
	w.fill()
	w.mustClose()
	return files(t, m, homeDir)
}

// TestCheckTransactionsClean: what coordinators and groups leave is right, after an orderly stop, a kill and a power
// cut, and what a kill leaves half done is a note.
func TestCheckTransactionsClean(t *testing.T) {
	if rep := checkHome(t, laidOut(t, filled(t))); rep.Damage > 0 || rep.Notes > 0 {
		t.Fatal(said(rep))
	}
	for _, kill := range []bool{true, false} {
		m := vfs.NewMem()
		w := openTeller(t, m)
		w.fill()
		w.follow("a", 1, crafted(8_000, 0, 0, 1, batch.AttrTransactional)) // its registration is lost
		l, err := w.log("a", 1)
		if err == nil {
			err = l.Flush(l.Offsets().End)
		}
		if err != nil {
			t.Fatal(err)
		}
		after := m
		if kill {
			after = m.Kill()
		} else {
			after = m.Crash(vfs.CrashPlan{})
		}
		w.e.Close()
		w.abandon()
		rep := checkHome(t, after)
		if rep.Damage > 0 || !strings.Contains(said(rep), "no transactional id") {
			t.Error(said(rep))
		}
		openTeller(t, after).mustClose()
		if rep := checkHome(t, after); rep.Damage > 0 || rep.Notes > 0 {
			t.Error(said(rep))
		}
	}
}

// follow appends a batch as a replica does, which trusts its leader.
func (h *home) follow(topic string, n int32, v batch.View) {
	l, err := h.log(topic, n)
	if err == nil {
		v.Stamp(l.Offsets().End, l.Epoch())
		err = l.AppendAsFollower(v)
	}
	if err != nil {
		panic(err)
	}
}

func (h *home) mark(topic string, n int32, pid int64, epoch int16, commit bool) {
	h.follow(topic, n, batch.View(batch.AppendMarker(nil, 0, 0, batch.Marker{PID: pid, Epoch: epoch, CoordEpoch: 9,
		Commit: commit, Time: homeWall})))
}

// records appends records as one batch.
func (h *home) records(topic string, pid int64, recs ...coord.Record) {
	b := batch.Builder{BaseTime: homeWall}
	for _, r := range recs {
		b.Add(batch.Record{Key: r.Key, Value: r.Value})
	}
	attrs, epoch := batch.Attrs(0), int16(-1)
	if pid >= 0 {
		attrs, epoch = batch.AttrTransactional, 0
	}
	h.follow(topic, 0, b.Done(attrs, pid, epoch, -1))
}

// state is a record of the id "bad", whose producer is 9000.
func (w *teller) state(s coord.State, epoch, tv int16, tps ...coord.TP) coord.Record {
	l := coord.Logged{PrevPID: -1, NextPID: -1, LastEpoch: -1, NextEpoch: -1, ClientTV: tv, RemainingMs: -1}
	l.TxnID, l.State, l.PID, l.Epoch, l.TPs, l.StartedMs = "bad", s, 9000, epoch, tps, homeWall
	return l.Record()
}

func (w *teller) data(n int32) { w.follow("a", n, crafted(9000, 0, 0, 1, batch.AttrTransactional)) }

func offsetRecord(name string) coord.Record {
	v := kmsg.OffsetCommitValue{Version: 3, Offset: 5, LeaderEpoch: -1}
	l := group.Logged{Type: 1, Group: name, Topic: "a", Value: &v}
	r, _ := l.Record()
	return coord.Record(r)
}

// TestCheckTransactionRules breaks each rule about transactions in a directory that is right otherwise.
func TestCheckTransactionRules(t *testing.T) {
	all := filled(t)
	const txns, offsets = engine.TxnTopic, engine.OffsetsTopic
	for _, c := range []struct {
		name, rule, says string
		do               func(w *teller)
	}{
		{"two outcomes", "I10", "says commit", func(w *teller) {
			for n := range int32(2) {
				w.data(n)
				w.mark("a", n, 9000, 1, n == 0)
			}
		}},
		{"offsets went another way", "I10", "says abort", func(w *teller) {
			w.data(0)
			w.mark("a", 0, 9000, 1, true)
			w.records(offsets, 9000, offsetRecord("g"))
			w.mark(offsets, 0, 9000, 1, false)
		}},
		{"not what was decided", "I10", "\"bad\" decided to abort", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.PrepareAbort, 1, 2, w.a[0]),
				w.state(coord.CompleteAbort, 1, 2))
			w.data(0)
			w.mark("a", 0, 9000, 1, true)
		}},
		{"not what was decided, version 1", "I10", "\"bad\" decided to commit", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 0, w.a[0]), w.state(coord.PrepareCommit, 0, 0, w.a[0]),
				w.state(coord.CompleteCommit, 0, 0))
			w.data(0)
			w.mark("a", 0, 9000, 0, false)
		}},
		{"complete, and open", "I10", "is open: transactional id \"bad\" is CompleteCommit", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.PrepareCommit, 1, 2, w.a[0]),
				w.state(coord.CompleteCommit, 1, 2))
			w.data(0)
		}},
		{"open, and nobody's", "I8", "no transactional id", func(w *teller) { w.data(1) }},
		{"open offsets, and nobody's", "I8", "no transactional id", func(w *teller) {
			w.records(offsets, 9000, offsetRecord("g"))
		}},
		{"not registered", "I8", "does not know this partition", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]))
			w.data(1)
		}},
		{"decided without it", "I8", "does not know this partition", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.PrepareCommit, 1, 2, w.a[0]))
			w.data(1)
		}},
		{"its id went on", "I8", "is Ongoing, producer 9000 epoch 5", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 5, 2, w.a[0]))
			w.data(0)
		}},
		{"two outcomes in the journal", "I10", "after PrepareCommit", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.PrepareCommit, 1, 2, w.a[0]),
				w.state(coord.CompleteAbort, 1, 2))
		}},
		{"no decision", "I10", "after Ongoing", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.CompleteCommit, 1, 2))
		}},
		{"a value of tomorrow", ruleFormat, "version 7", func(w *teller) {
			r := w.state(coord.Empty, 0, 0)
			r.Value[1] = 7
			w.records(txns, -1, r)
		}},
		{"an offset that is none", ruleFormat, "unreadable", func(w *teller) {
			r := offsetRecord("g")
			r.Value = r.Value[:7]
			w.records(offsets, -1, r)
		}},
		{"nothing wrong", "", "", func(w *teller) {
			w.records(txns, -1, w.state(coord.Ongoing, 0, 2, w.a[0]), w.state(coord.PrepareCommit, 1, 2, w.a[0]))
			w.data(0)
			w.records(offsets, -1, offsetRecord("g"))
		}},
	} {
		m := laidOut(t, all)
		w := &teller{home: mustOpenHome(t, m), t: t}
		topic := w.s.Catalog().ByName["a"]
		for i := range w.a {
			w.a[i] = coord.TP{Topic: "a", ID: topic.ID, Partition: int32(i)}
		}
		c.do(w)
		w.home.mustClose(t)
		rep := checkHome(t, m)
		found := damages(rep)
		if c.rule == "" {
			if len(found) > 0 {
				t.Errorf("%s: %s", c.name, said(rep))
			}
			continue
		}
		if !slices.ContainsFunc(found, func(f finding) bool {
			return f.Rule == c.rule && strings.Contains(f.What, c.says) && strings.HasSuffix(f.Path, ".log") && f.Offset >= 0
		}) || len(found) > 1 {
			t.Errorf("%s: %s", c.name, said(rep))
		}
	}
}

// TestCheckPlacement: a record that lies in another partition than its id belongs to is of use to nobody.
func TestCheckPlacement(t *testing.T) {
	for topic, id := range map[string]func(string) (int32, coord.Record){
		engine.TxnTopic: func(id string) (int32, coord.Record) {
			l := coord.Logged{PrevPID: -1, NextPID: -1, LastEpoch: -1, NextEpoch: -1, RemainingMs: -1}
			l.TxnID, l.StartedMs = id, -1
			return coord.Partition(id, 3), l.Record()
		},
		engine.OffsetsTopic: func(id string) (int32, coord.Record) { return group.Partition(id, 3), offsetRecord(id) },
	} {
		for i := range 6 {
			m := vfs.NewMem()
			h := mustOpenHome(t, m)
			if err := h.create(topic, 3, map[string]string{"cleanup.policy": "compact"}); err != nil {
				t.Fatal(err)
			}
			want, r := id(fmt.Sprint("id", i))
			h.records(topic, -1, r) // to partition 0
			h.mustClose(t)
			found := damages(checkHome(t, m))
			if want == 0 && len(found) > 0 || want > 0 && (len(found) != 1 ||
				!strings.Contains(found[0].What, fmt.Sprint("belongs to partition ", want))) {
				t.Errorf("%s: %v", topic, found)
			}
		}
	}
}

// reframed is a snapshot file whose body was changed, all checksums made anew.
func reframed(t *testing.T, prefix string, file []byte, change func(asOf int64, body []byte) (int64, []byte)) []byte {
	t.Helper()
	asOf, body, err := engine.DecodeSnapshot(prefix, 0, file)
	if err != nil {
		t.Fatal(err)
	}
	asOf, body = change(asOf, slices.Clone(body[:len(body)-8]))
	binary.BigEndian.PutUint64(body[10:], uint64(asOf))
	body = binary.BigEndian.AppendUint64(body, xxhash.Sum64(body))
	return engine.EncodeSnapshot(prefix, 0, asOf, body)
}

// TestCheckCoordinatorSnapshots: a snapshot is what the journal below its offset makes; every other one is found.
func TestCheckCoordinatorSnapshots(t *testing.T) {
	all := filled(t)
	ends := map[string]int64{}
	for _, p := range checkHome(t, laidOut(t, all)).Partitions {
		ends[p.Topic] = p.End
	}
	for _, prefix := range []string{engine.TxnSnapshotPrefix, engine.GroupSnapshotPrefix} {
		name, topic, head := homeDir+"/"+prefix+"0", engine.TxnTopic, 38
		if prefix == engine.GroupSnapshotPrefix {
			topic, head = engine.OffsetsTopic, 26
		}
		same := func(asOf int64, b []byte) (int64, []byte) { return asOf, b }
		for _, c := range []struct {
			name, says string
			change     func(file []byte) []byte
		}{
			{"as it was", "", func(f []byte) []byte { return reframed(t, prefix, f, same) }},
			{"empty", "no header", func([]byte) []byte { return nil }},
			{"a byte", "checksum", func(f []byte) []byte { f[len(f)-20] ^= 1; return f }},
			{"of another partition", "of partition 3", func(f []byte) []byte {
				asOf, b, _ := engine.DecodeSnapshot(prefix, 0, f)
				return engine.EncodeSnapshot(prefix, 3, asOf, b)
			}},
			{"of another kind", "", func(f []byte) []byte { return nil }},
			{"a body that is none", "unusable|damaged", func(f []byte) []byte {
				return engine.EncodeSnapshot(prefix, 0, 3, []byte("x"))
			}},
			{"above the end", "above the end", func(f []byte) []byte {
				return reframed(t, prefix, f, func(_ int64, b []byte) (int64, []byte) { return ends[topic] + 1, b })
			}},
			{"too old for its offset", "as of offset", func(f []byte) []byte {
				return reframed(t, prefix, f, func(_ int64, b []byte) (int64, []byte) { return ends[topic], b })
			}},
			{"another offset", "that is not in|does not have|another record|of the same key", func(f []byte) []byte {
				return reframed(t, prefix, f, func(asOf int64, b []byte) (int64, []byte) {
					binary.BigEndian.PutUint64(b[head:], 0)
					return asOf, b
				})
			}},
			{"another value", "another record", func(f []byte) []byte {
				return reframed(t, prefix, f, func(asOf int64, b []byte) (int64, []byte) {
					if prefix == engine.TxnSnapshotPrefix {
						key := int(binary.BigEndian.Uint32(b[head+16:]))
						b[head+16+4+key+4+9] ^= 1 // the producer id of the first
					} else {
						key := int(b[head+8])
						b[head+8+1+key+1+9] ^= 1 // the offset of the first
					}
					return asOf, b
				})
			}},
		} {
			changed := maps.Clone(all)
			if changed[name] = c.change(slices.Clone(all[name])); c.name == "of another kind" {
				other := engine.TxnSnapshotPrefix
				if prefix == other {
					other = engine.GroupSnapshotPrefix
				}
				changed[name], c.says = all[homeDir+"/"+other+"0"], "no header"
			}
			rep := checkHome(t, laidOut(t, changed))
			found := damages(rep)
			if c.says == "" {
				if len(found) > 0 {
					t.Errorf("%s, %s: %s", prefix, c.name, said(rep))
				}
				continue
			}
			if !slices.ContainsFunc(found, func(f finding) bool {
				return f.Path == name && f.Rule == "I14" && slices.ContainsFunc(strings.Split(c.says, "|"), func(s string) bool {
					return strings.Contains(f.What, s)
				})
			}) || slices.ContainsFunc(found, func(f finding) bool { return f.Path != name }) {
				t.Errorf("%s, %s: %s", prefix, c.name, said(rep))
			}
		}
		extra := maps.Clone(all)
		extra[homeDir+"/"+prefix+"17"] = []byte("x")
		if rep := checkHome(t, laidOut(t, extra)); rep.Damage > 0 || rep.Notes != 1 {
			t.Errorf("of no partition: %s", said(rep))
		}
	}
}

// TestCheckWithoutMetadata: with sekali.meta lost, emptied or flipped the daemon does not start, and check says why.
// How many partitions a topic has is not known then, and every log is checked all the same.
func TestCheckWithoutMetadata(t *testing.T) {
	for name, harm := range map[string]func(b []byte) []byte{
		"emptied": func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		m := vfs.NewMem()
		w := openTeller(t, m)
		w.fill()
		w.mustClose()
		b, err := vfs.ReadFile(m, homeDir+"/sekali.meta")
		if err == nil {
			err = vfs.WriteFileAtomic(m, homeDir, "sekali.meta", harm(b))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := checkHome(t, m)
		if d := damages(r); len(d) == 0 || !strings.Contains(d[0].Path, "sekali.meta") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestCheckMarkerOfWhatIsGone: retention may take all data of an aborted transaction and leave its marker with the
// entry of the transaction index, which does no harm.
func TestCheckMarkerOfWhatIsGone(t *testing.T) {
	m := vfs.NewMem()
	h := mustOpenHome(t, m)
	if err := h.create("t", 1, map[string]string{"internal.segment.bytes": "1000"}); err != nil {
		t.Fatal(err)
	}
	put := func(pid int64, attrs batch.Attrs, size int) {
		if _, err := h.put("t", 0, pid, 0, attrs, strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
	}
	put(-1, 0, 700)
	for pid := int64(100); pid < 103; pid++ {
		put(pid, batch.AttrTransactional, 5)
	}
	put(-1, 0, 700) // a new segment, to which the markers come
	put(104, batch.AttrTransactional, 5)
	for pid := int64(100); pid < 105; pid++ {
		if err := h.end("t", 0, pid, 0, pid == 101); err != nil {
			t.Fatal(err)
		}
	}
	l, err := h.log("t", 0)
	if err == nil {
		err = l.DeleteBefore(4)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.tick(130) // the first segment goes
	h.mustClose(t)
	names, err := m.ReadDir(homeDir + "/t-0")
	if err != nil || slices.Contains(names, "00000000000000000000.log") {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names { // as it is after fast rolls: no snapshot at the border
		if strings.HasSuffix(name, snapshotSuffix) && name != "00000000000000000011.snapshot" {
			if err := m.Remove(homeDir + "/t-0/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := damages(checkHome(t, m)); len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

// TestSnapshotOlderThanItsRecord: a snapshot may have been written after the record it has for an id, not before it.
func TestSnapshotOlderThanItsRecord(t *testing.T) {
	for written, damage := range map[int64]bool{99: true, 100: false, 101: false} {
		p := &partCheck{out: &checkedPartition{}}
		j := &journalCheck{p: p, file: "x", asOf: 10, met: map[string]bool{}}
		j.compare("k", fact{5, 1, written}, fact{5, 1, 100}, -1, false)
		if j.stale != damage {
			t.Errorf("written at %d, the record at 100: damage %v, want %v", written, j.stale, damage)
		}
	}
}
