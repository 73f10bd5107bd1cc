package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"sekali/coord"
	"sekali/engine"
	"sekali/internal/vfs"
)

func dumped(fs vfs.FS, name string, asJSON bool) (string, error) {
	var out bytes.Buffer
	d := dumper{fs: fs, name: name, out: &out, records: true, json: asJSON}
	err := d.dump()
	return out.String(), err
}

// TestDump: every file of a directory is shown, as text and as JSON, with all that is in it.
func TestDump(t *testing.T) {
	home := furnished(t)
	m := laidOut(t, home)
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(home)) {
		text, err := dumped(m, name, false)
		if err != nil {
			t.Errorf("%v", err)
		}
		seen[kindOf(name)] += text
		lines, err := dumped(m, name, true)
		if err != nil {
			t.Errorf("%v", err)
		}
		for line := range strings.Lines(lines) {
			if !json.Valid([]byte(line)) {
				t.Fatalf("%s: %s", name, line)
			}
		}
		if strings.Count(lines, "\n") != strings.Count(text, "\n") {
			t.Errorf("%s: %d lines of JSON, %d of text", name, strings.Count(lines, "\n"), strings.Count(text, "\n"))
		}
	}
	for kind, want := range map[string][]string{
		".log": {"codec=zstd", "codec=snappy", "value=", "key=k0", "marker=abort", "marker=commit",
			"valid=true"},
		".index":                           {"offset=", "position="},
		".timeindex":                       {"timestamp=", "offset="},
		".txnindex":                        {"producer_id=102", "last_stable_offset="},
		".snapshot":                        {"trailer=true", "span=", "batches=["},
		epochName:                          {"leader_epoch=1 start_offset=0\n"},
		"sekali.meta":                      {"key=topic/orders", "key=epoch value=2", "base_revision=0"},
		"sekali.format":                    {"format=1\n"},
		"partition.metadata":               {"topic_id="},
		"meta.properties":                  {"node.id=1"},
		"recovery-point-offset-checkpoint": {"topic=trim partition=0 offset=700\n"},
	} {
		for _, w := range want {
			if !strings.Contains(seen[kind], w) {
				t.Errorf("%s does not show %s", kind, w)
			}
		}
	}
	if _, err := dumped(m, homeDir, false); err == nil {
		t.Error("a directory is shown")
	}
}

// TestDumpInternalTopics: records of coordinators and groups are shown by what they mean, in logs and in snapshots; one
// that means nothing is shown as it is, and told.
func TestDumpInternalTopics(t *testing.T) {
	home := filled(t)
	m := laidOut(t, home)
	all := func(sub string) (text string) {
		for _, name := range slices.Sorted(maps.Keys(home)) {
			if !strings.Contains(name, sub) || !strings.HasSuffix(name, ".log") && path.Dir(name) != homeDir {
				continue
			}
			lines, err := dumped(m, name, true)
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(lines) {
				if !json.Valid([]byte(line)) {
					t.Fatalf("%s: %s", name, line)
				}
			}
			plain, err := dumped(m, name, false)
			if err != nil {
				t.Error(err)
			}
			text += plain
		}
		return text
	}
	for sub, want := range map[string][]string{
		"__transaction_state-0": {"transactional_id=new", "state=PrepareAbort", "partitions=[__consumer_offsets-0 a-0 a-1]"},
		"__consumer_offsets-0": {"record=offset group=g topic=a partition=0 committed_offset=103", "marker=abort",
			"producer_epoch=1 marker=commit"},
		"sekali.coord-0": {"as_of=", "transactional_id=new state=Complete"},
		"sekali.group-0": {"as_of=", "record=offset group=g topic=a partition=0 committed_offset=105"},
	} {
		text := all(sub)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not show %s:\n%s", sub, w, text)
			}
		}
	}
	h := mustOpenHome(t, m)
	h.records(engine.OffsetsTopic, -1, coord.Record{Key: []byte{0, 1, 9}, Value: []byte("v")},
		coord.Record{Key: []byte{0, 99, 1}, Value: []byte("foreign")})
	h.mustClose(t)
	out, err := dumped(m, homeDir+"/__consumer_offsets-0/00000000000000000000.log", false)
	var damage *dumpDamage
	if !asDamage(err, &damage) || damage.pos <= 0 || !strings.Contains(damage.what, "offset 32") ||
		!strings.Contains(out, "value=v\n") || !strings.Contains(out, "record=type-99") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDumpDamage: damaged files are told with a position, and never more than that.
func TestDumpDamage(t *testing.T) {
	home := furnished(t)
	maps.Copy(home, filled(t))
	m := laidOut(t, home)
	r := rand.New(rand.NewPCG(1, 2))
	told := 0
	for _, name := range slices.Sorted(maps.Keys(home)) {
		for _, w := range wounds {
			b := home[name]
			if len(b) == 0 {
				continue
			}
			if b = w.do(r, slices.Clone(b)); b == nil {
				continue
			}
			if err := vfs.WriteFileAtomic(m, path.Dir(name), path.Base(name), b); err != nil {
				t.Fatal(err)
			}
			_, err := dumped(m, name, false)
			var damage *dumpDamage
			if err != nil && !asDamage(err, &damage) {
				t.Errorf("%s: %v", name, err)
			}
			if damage != nil {
				told++
				if damage.pos < 0 || damage.pos > int64(len(home[name])) {
					t.Errorf("%v", damage)
				}
			}
		}
	}
	if told < 100 {
		t.Errorf("only %d damaged files were told", told)
	}
}

// FuzzDump: no bytes under any name make a panic or an endless dump.
func FuzzDump(f *testing.F) {
	names := []string{
		"00000000000000000100.log", "00000000000000000100.index", "00000000000000000100.timeindex",
		"00000000000000000100.txnindex", "00000000000000000100.snapshot", "00000000000000000100.cut", epochName,
		"recovery-point-offset-checkpoint", "partition.metadata", "meta.properties", "sekali.meta",
		"sekali.meta.snapshot", "sekali.format", "sekali.high", ".kafka_cleanshutdown",
		"__transaction_state-0/00000000000000000000.log", "__consumer_offsets-0/00000000000000000000.log",
		"sekali.coord-0", "sekali.group-0",
	}
	home := furnished(f)
	maps.Copy(home, filled(f))
	for name, b := range home {
		for i, n := range names {
			if kindOf(name) == kindOf(n) && len(b) < 4096 {
				f.Add(uint8(i), b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		name := names[int(kind)%len(names)]
		m := vfs.NewMem()
		if err := m.MkdirAll(path.Dir("/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(m, path.Dir("/"+name), path.Base(name), b); err != nil {
			t.Fatal(err)
		}
		for _, asJSON := range []bool{false, true} {
			out, err := dumped(m, "/"+name, asJSON)
			var damage *dumpDamage
			if err != nil && !asDamage(err, &damage) {
				t.Fatalf("%s: %v", name, err)
			}
			if asJSON && out != "" && !json.Valid([]byte(out[:strings.IndexByte(out, '\n')])) {
				t.Fatal(out)
			}
		}
	})
}
