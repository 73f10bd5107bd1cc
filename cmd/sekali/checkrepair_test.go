package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"sekali/batch"
	"sekali/internal/vfs"
	"sekali/plog"
	"sekali/segment"
	"sekali/store"
)

// killed is a directory whose process died a few seconds after its last write: everything lies below the durable marks.
func killed(t testing.TB) map[string][]byte {
	t.Helper()
	m := vfs.NewMem()
	h := mustOpenHome(t, m)
	if err := h.furnish(); err != nil {
		t.Fatal(err)
	}
	h.tick(3)
	after := m.Kill()
	h.abandon()
	all := files(t, after, homeDir)
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return strings.Contains(name, "-delete/") })
	return all
}

// contents is what readers find in each partition that is open: "offset=value".
func contents(t testing.TB, h *home) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, topic := range h.s.Catalog().ByName {
		for n := range topic.Partitions {
			l, err := topic.Partition(int32(n))
			if err != nil {
				continue
			}
			out[fmt.Sprint(name, "-", n)] = readAll(t, l)
		}
	}
	return out
}

func readAll(t testing.TB, l *plog.Log) (out []string) {
	t.Helper()
	at := l.Offsets()
	for from := at.Start; from < at.High; {
		var f plog.Fetch
		if err := l.Read(plog.ReadIn{From: from, BytesMax: 1 << 20, AtLeast1: true}, &f); err != nil {
			t.Fatal(err)
		}
		for _, part := range f.Parts {
			for len(part) > 0 {
				v, rest, err := batch.Next(part)
				if err == nil {
					_, err = v.Validate(batch.Limits{})
				}
				if err != nil {
					t.Fatal(err)
				}
				err = v.Records(func(r batch.Record) error {
					if o := v.BaseOffset() + int64(r.OffsetDelta); o >= at.Start && !v.Attrs().Control() {
						out = append(out, fmt.Sprintf("%d=%s", o, r.Value))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				from, part = v.LastOffset()+1, rest
			}
		}
		f.Release()
	}
	return out
}

// repaired applies every plan of a report and checks again.
func repaired(t testing.TB, m *vfs.Mem, rep *checkReport) *checkReport {
	t.Helper()
	for _, p := range rep.Partitions {
		if p.fix == nil {
			continue
		}
		var plan strings.Builder
		p.fix.describe(&plan)
		if err := p.fix.apply(m, homeDir); err != nil {
			t.Fatalf("%v\n%s", err, plan.String())
		}
	}
	return checkHome(t, m)
}

// trial damages a directory, looks at what a start makes of it, repairs it, and starts it.
func trial(t *testing.T, name string, was map[string][]byte, want map[string][]string, damage func(map[string][]byte)) {
	t.Helper()
	changed := maps.Clone(was)
	damage(changed)
	dirs := []string{homeDir}
	for f := range was {
		dirs = append(dirs, path.Dir(f))
	}
	before := agree(t, name, laidOut(t, changed, dirs...))
	m := laidOut(t, changed, dirs...)
	after := repaired(t, m, before)
	for _, f := range damages(after) {
		if f.Rule != ruleEpoch {
			t.Fatalf("%s: damage after the repair\n%s\nbefore it\n%s", name, said(after), said(before))
		}
	}
	h := mustOpenHome(t, m)
	defer h.mustClose(t)
	if off := h.s.Recovery().Offline; off > 0 {
		t.Fatalf("%s: %d partitions are offline after the repair\n%s", name, off, said(before))
	}
	got := contents(t, h)
	for _, p := range before.Partitions {
		log, err := h.log(p.Topic, p.Partition)
		if err != nil {
			t.Fatal(err)
		}
		at := log.Offsets()
		kept := slices.DeleteFunc(slices.Clone(want[p.name()]), func(s string) bool {
			o := offsetOf(s)
			return o < at.Start || o >= at.End
		})
		if !slices.Equal(got[p.name()], kept) {
			t.Fatalf("%s: %s holds %d records, %d were there in %+v\n%s", name, p.name(), len(got[p.name()]), len(kept), at,
				said(before))
		}
		if p.Damage == 0 && len(kept) != len(want[p.name()]) {
			t.Fatalf("%s: %s was not damaged and has lost records\n%s", name, p.name(), said(before))
		}
		if _, err := h.put(p.Topic, p.Partition, 9000, 0, 0, "more"); err != nil {
			t.Fatalf("%s: %s takes no record: %v", name, p.name(), err)
		}
	}
}

func offsetOf(s string) (o int64) {
	_, _ = fmt.Sscanf(s, "%d=", &o)
	return o
}

// agree starts a damaged directory and holds what the check says of it against what the start does.
func agree(t *testing.T, name string, m *vfs.Mem) *checkReport {
	t.Helper()
	rep := checkHome(t, m)
	h, err := openHome(m)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer h.abandon()
	for _, p := range rep.Partitions {
		l, err := h.log(p.Topic, p.Partition)
		switch {
		case err != nil && (p.fix == nil || !p.fix.cuts() && p.fix.newStart < 0):
			t.Fatalf("%s: %s does not open, and the check would not repair it: %v\n%s", name, p.name(), err, said(rep))
		case err == nil && p.Damage == 0 && l.Offsets().End != p.End:
			t.Fatalf("%s: %s ends at %d, the check said %d\n%s", name, p.name(), l.Offsets().End, p.End, said(rep))
		}
	}
	return rep
}

// TestRepair: whatever happens to a log, the repair leaves a directory that opens, with every record below the cut as
// it was, and nothing of other partitions touched. What keeps a partition offline is always repaired.
func TestRepair(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(testing.TB) map[string][]byte
	}{{"stopped", furnished}, {"killed", killed}} {
		was := c.make(t)
		h := mustOpenHome(t, laidOut(t, was))
		want := contents(t, h)
		h.mustClose(t)
		r := rand.New(rand.NewPCG(3, 5))
		logs := slices.DeleteFunc(slices.Sorted(maps.Keys(was)), func(n string) bool {
			return !strings.HasSuffix(n, ".log") || len(was[n]) == 0
		})
		for i, file := range logs {
			if c.name == "killed" && i%2 == 0 {
				continue
			}
			for _, w := range []wound{
				wounds[i%len(wounds)], wounds[(i+1)%len(wounds)],
				{"emptied", func(*rand.Rand, []byte) []byte { return []byte{} }},
			}[:2+i%2] {
				trial(t, fmt.Sprint(c.name, ": ", w.name, " of ", file), was, want, func(f map[string][]byte) {
					if b := w.do(r, slices.Clone(f[file])); b != nil {
						f[file] = b
					}
				})
			}
			if i%3 == 0 {
				trial(t, c.name+": removed "+file, was, want, func(f map[string][]byte) { delete(f, file) })
			}
		}
		for _, kind := range []string{".log", ".index", ".snapshot", epochName} {
			trial(t, c.name+": all "+kind+" removed", was, want, func(f map[string][]byte) {
				maps.DeleteFunc(f, func(n string, _ []byte) bool { return strings.HasSuffix(n, kind) })
			})
		}
	}
}

// TestRepairKeepsAside: what is cut is kept byte for byte beside the log, and no copy is written over an earlier one.
func TestRepairKeepsAside(t *testing.T) {
	was := furnished(t)
	dir := homeDir + "/" + topicOrders + "-0"
	var logs []string
	for name := range was {
		if path.Dir(name) == dir && strings.HasSuffix(name, ".log") {
			logs = append(logs, name)
		}
	}
	slices.Sort(logs)
	bad := slices.Clone(was[logs[1]])
	const pos = 100 // inside the first batches
	bad[pos] ^= 1
	changed := maps.Clone(was)
	changed[logs[1]] = bad
	m := laidOut(t, changed)
	base, _, _ := segment.ParseName(path.Base(logs[1]))
	earlier := path.Join(dir, segment.Name(base, segment.CutSuffix))
	if err := vfs.WriteFileAtomic(m, dir, path.Base(earlier), []byte("earlier")); err != nil {
		t.Fatal(err)
	}
	rep := checkHome(t, m)
	var fix *repair
	for _, p := range rep.Partitions {
		if p.fix != nil {
			fix = p.fix
		}
	}
	if fix == nil || !fix.cuts() {
		t.Fatalf("no repair\n%s", said(rep))
	}
	cut := fix.pos
	if after := repaired(t, m, rep); after.Damage > 0 {
		t.Fatal(said(after))
	}
	all := files(t, m, dir)
	if string(all[earlier]) != "earlier" {
		t.Error("an earlier copy was written over")
	}
	if got := all[earlier+".1"]; string(got) != string(bad[cut:]) || string(all[logs[1]]) != string(bad[:cut]) {
		t.Errorf("%d bytes kept aside and %d left of %d, cut at %d", len(got), len(all[logs[1]]), len(bad), cut)
	}
	for _, later := range logs[2:] {
		aside := strings.TrimSuffix(later, ".log") + ".cut"
		if string(all[aside]) != string(was[later]) {
			t.Errorf("%s is not kept as %s", later, aside)
		}
		if _, there := all[later]; there {
			t.Errorf("%s is still there", later)
		}
	}
	marks, err := store.ReadOffsets(m, homeDir, store.MarkFile)
	if err != nil || marks[store.Place{Topic: topicOrders}] != fix.to {
		t.Errorf("durable mark %d, want %d: %v", marks[store.Place{Topic: topicOrders}], fix.to, err)
	}
}
