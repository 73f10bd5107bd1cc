package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"sekali/broker"
	"sekali/internal/vfs"
	"sekali/meta"
	"sekali/segment"
	"sekali/store"
)

// furnished is a directory that was filled and closed in order, as files.
func furnished(t testing.TB) map[string][]byte {
	t.Helper()
	m := vfs.NewMem()
	h := mustOpenHome(t, m)
	if err := h.furnish(); err != nil {
		t.Fatal(err)
	}
	h.mustClose(t)
	// Epochs of two starts, and a second snapshot in each log.
	h = mustOpenHome(t, m)
	h.wall += 1_000_000
	for i := range 20 {
		for _, topic := range []string{topicOrders, topicStamp, topicTrim} {
			if _, err := h.put(topic, 0, int64(300+i%2), 0, 0, values(fmt.Sprint("n", i), 3)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.mustClose(t)
	all := files(t, m, homeDir)
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return strings.Contains(name, "-delete/") })
	return all
}

// wound is one way to damage a file.
type wound struct {
	name string
	do   func(r *rand.Rand, b []byte) []byte // nil: cannot be done to this file
}

func region(r *rand.Rand, n int) (from, to int) {
	from = r.IntN(n)
	return from, min(n, from+1+r.IntN(64))
}

var wounds = []wound{
	{"flip", func(r *rand.Rand, b []byte) []byte {
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	}},
	{"zero", func(r *rand.Rand, b []byte) []byte {
		from, to := region(r, len(b))
		clear(b[from:to])
		return b
	}},
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
	{"swap", func(r *rand.Rand, b []byte) []byte {
		n := len(b) / 2
		if n == 0 {
			return nil
		}
		n = 1 + r.IntN(min(n, 100))
		i := r.IntN(len(b) - 2*n + 1)
		k := i + n + r.IntN(len(b)-i-2*n+1)
		x := slices.Clone(b[i : i+n])
		copy(b[i:], b[k:k+n])
		copy(b[k:], x)
		return b
	}},
}

// silent tells of a change that leaves a file that may well have been written so: a text of digits has no checksum.
func silent(name string, was, is []byte) bool {
	if bytes.Equal(was, is) {
		return true
	}
	switch base := path.Base(name); base {
	case store.LockFile:
		return true // says nothing
	case store.StartFile, store.CleanerFile, store.RecoveryFile, store.MarkFile:
		a, fault := decodeOffsetLines(is)
		b, _ := decodeOffsetLines(was)
		x, _ := store.DecodeOffsets(is)
		y, _ := store.DecodeOffsets(was)
		vouched := base == store.RecoveryFile || base == store.MarkFile // other files say the same
		return fault == nil && len(is) > 0 && len(a) == len(b) && (!vouched || maps.Equal(x, y))
	case epochName:
		a, fault := decodeEpochLines(is)
		b, _ := decodeEpochLines(was)
		if fault == nil && len(a) == len(b) && a[0].epoch == b[0].epoch && a[0].start <= b[0].start {
			a[0] = b[0] // the first entry may lie anywhere below the log start
		}
		return fault == nil && slices.Equal(a, b)
	case meta.LogName: // nothing else knows how many revisions there were
		log, err := meta.DecodeLog(name, is)
		return err == nil && log.Torn == nil && bytes.HasPrefix(was, is)
	case store.PropertiesFile:
		a, err := store.DecodeIdentity(is)
		b, _ := store.DecodeIdentity(was)
		return err == nil && isID(a.DirectoryID) && a.ClusterID == b.ClusterID && a.NodeID >= 0
	case store.TopicIDFile:
		a, err := store.DecodePartitionID(is)
		b, _ := store.DecodePartitionID(was)
		return err == nil && a == b
	}
	return strings.TrimSpace(string(was)) == strings.TrimSpace(string(is)) && path.Base(name) == store.CleanFile
}

// blames tells whether a finding points to the damaged file.
func blames(f finding, name string) bool {
	if f.Path == name {
		// One entry less at the end of an index may also mean that the interval was larger when it was made.
		fewer := f.Level == levelNote && strings.HasSuffix(name, ".index")
		return (f.Level == levelDamage || fewer) && (f.Position >= 0 || path.Base(name) == meta.LogName)
	}
	// A leader epoch lies outside the checksum of its batch; which of the two files is wrong cannot always be told.
	dir := path.Dir(name)
	return strings.HasSuffix(name, ".log") && f.Path == path.Join(dir, epochName) && f.Offset >= 0
}

// tries is how often each file is damaged in each way.
const tries = 2

// TestCheckFindsDamage damages a region of every file of a directory in every way: the check finds it, and names the
// file and the place.
func TestCheckFindsDamage(t *testing.T) {
	home := furnished(t)
	names := slices.Sorted(maps.Keys(home))
	kinds := map[string]int{}
	r := rand.New(rand.NewPCG(7, 7))
	m := laidOut(t, home)
	if rep := checkHome(t, m); rep.Damage > 0 {
		t.Fatal(said(rep))
	}
	for _, name := range names {
		was := home[name]
		if len(was) == 0 {
			continue
		}
		for _, w := range wounds {
			for range tries {
				is := w.do(r, slices.Clone(was))
				if is == nil || silent(name, was, is) {
					continue
				}
				kinds[kindOf(name)]++
				if err := vfs.WriteFileAtomic(m, path.Dir(name), path.Base(name), is); err != nil {
					t.Fatal(err)
				}
				k := checker{fs: m, dir: homeDir, conf: broker.Defaults(), only: partOf(name)}
				rep, err := k.check()
				if err != nil {
					if path.Base(name) == store.FormatFile && strings.Contains(err.Error(), "newer") {
						continue
					}
					t.Fatalf("%s of %s: %v", w.name, name, err)
				}
				if !slices.ContainsFunc(all(rep), func(f finding) bool { return blames(f, name) }) {
					t.Errorf("%s of %s at %d: not found\n%s", w.name, name, firstDiff(was, is), said(rep))
				}
			}
		}
		if err := vfs.WriteFileAtomic(m, path.Dir(name), path.Base(name), was); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("damaged: %v", kinds)
	for _, kind := range []string{
		".log", ".index", ".timeindex", ".txnindex", ".snapshot", epochName, store.TopicIDFile, store.FormatFile,
		store.PropertiesFile, store.CleanFile, store.RecoveryFile, store.StartFile, store.MarkFile, "sekali.meta",
	} {
		if kinds[kind] < 2 {
			t.Errorf("%s was damaged %d times only", kind, kinds[kind])
		}
	}
}

// partOf names the partition a file is of, so that the others need not be read.
func partOf(name string) []string {
	if dir := path.Dir(name); dir != homeDir {
		return []string{path.Base(dir)}
	}
	return nil
}

func kindOf(name string) string {
	base := path.Base(name)
	if _, kind, _, ok := segmentName(base); ok {
		return kind
	}
	return base
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestCheckFindsSwappedFiles: whole files that are sound by themselves, in the place of another, or missing.
func TestCheckFindsSwappedFiles(t *testing.T) {
	all := furnished(t)
	dir := homeDir + "/" + topicOrders + "-0/"
	var bases []int64
	var snaps []string
	for name := range all {
		if base, kind, _, ok := segmentName(path.Base(name)); ok && strings.HasPrefix(name, dir) {
			if kind == ".log" {
				bases = append(bases, base)
			} else if kind == snapshotSuffix {
				snaps = append(snaps, name)
			}
		}
	}
	slices.Sort(bases)
	slices.Sort(snaps)
	if len(bases) < 3 || len(snaps) < 3 {
		t.Fatalf("segments %v, snapshots %v", bases, snaps)
	}
	at := func(i int, kind string) string { return dir + segment.Name(bases[i], kind) }
	exchange := func(a, b string) func(map[string][]byte) {
		return func(f map[string][]byte) { f[a], f[b] = f[b], f[a] }
	}
	remove := func(names ...string) func(map[string][]byte) {
		return func(f map[string][]byte) {
			for _, n := range names {
				delete(f, n)
			}
		}
	}
	bank := homeDir + "/" + topicTxn + "-0/"
	for _, c := range []struct {
		name   string
		change func(map[string][]byte)
		want   string // path of a finding
	}{
		{"logs", exchange(at(0, ".log"), at(1, ".log")), at(0, ".log")},
		{"indexes", exchange(at(0, ".index"), at(1, ".index")), at(0, ".index")},
		{"time indexes", exchange(at(0, ".timeindex"), at(1, ".timeindex")), at(0, ".timeindex")},
		{"snapshots", exchange(snaps[1], snaps[2]), snaps[1]},
		{"newest snapshot by an older one", func(f map[string][]byte) { f[snaps[len(snaps)-1]] = f[snaps[0]] },
			snaps[len(snaps)-1]},
		{"newest snapshot removed", remove(snaps[len(snaps)-1]), snaps[len(snaps)-1]},
		{"index removed", remove(at(1, ".index")), at(1, ".index")},
		{"time index removed", remove(at(1, ".timeindex")), at(1, ".timeindex")},
		{"middle segment removed", remove(at(1, ".log")), at(0, ".log")},
		{"first segment removed", remove(at(0, ".log"), at(0, ".index"), at(0, ".timeindex")), at(1, ".log")},
		{"last segment removed", remove(at(len(bases)-1, ".log")), at(len(bases)-2, ".log")},
		{"aborted transactions removed", removeKind(bank, ".txnindex"), bank + segment.Name(0, ".txnindex")},
		{"epochs removed", remove(dir + epochName), dir + epochName},
		{"partition removed", func(f map[string][]byte) {
			maps.DeleteFunc(f, func(n string, _ []byte) bool { return strings.HasPrefix(n, bank) })
		}, strings.TrimSuffix(bank, "/")},
		{"ids", exchange(dir+store.TopicIDFile, bank+store.TopicIDFile), dir + store.TopicIDFile},
		{"metadata removed", remove(homeDir + "/sekali.meta"), homeDir + "/sekali.meta"},
		{"a partition of no topic", func(f map[string][]byte) {
			for n, b := range f {
				if rest, ok := strings.CutPrefix(n, bank); ok {
					f[homeDir+"/nobody-7/"+rest] = b
				}
			}
		}, homeDir + "/nobody-7"},
		{"recovery points removed", remove(homeDir + "/" + store.RecoveryFile), homeDir + "/" + store.RecoveryFile},
	} {
		changed := maps.Clone(all)
		c.change(changed)
		rep := checkHome(t, laidOut(t, changed))
		if !slices.ContainsFunc(damages(rep), func(f finding) bool { return f.Path == c.want }) {
			t.Errorf("%s: no finding at %s\n%s", c.name, c.want, said(rep))
		}
	}
}

func removeKind(dir, kind string) func(map[string][]byte) {
	return func(f map[string][]byte) {
		maps.DeleteFunc(f, func(n string, _ []byte) bool {
			return strings.HasPrefix(n, dir) && strings.HasSuffix(n, kind)
		})
	}
}
