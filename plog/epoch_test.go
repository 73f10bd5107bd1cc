package plog

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"sekali/internal/vfs"
)

// TestEpochEndTable: the rules of OffsetForLeaderEpoch (spec on-disk 7) row by row.
func TestEpochEndTable(t *testing.T) {
	list := []epochStart{{2, 0}, {4, 10}, {7, 25}}
	for _, c := range []struct {
		what   string
		list   []epochStart
		latest int32
		ask    int32
		epoch  int32
		end    int64
	}{
		{"latest with an entry", list, 7, 7, 7, 40},
		{"latest without an entry yet", list, 9, 9, 9, 40},
		{"last entry under a newer latest", list, 9, 7, 7, 40},
		{"between the last entry and latest", list, 9, 8, 7, 40},
		{"above latest", list, 9, 10, -1, -1},
		{"none", list, 9, -1, -1, -1},
		{"below all", list, 9, 1, 1, 0},
		{"an entry", list, 9, 2, 2, 10},
		{"between entries", list, 9, 3, 2, 10},
		{"between later entries", list, 9, 6, 4, 25},
		{"no entries", nil, 3, 2, 2, 40},
		{"no entries, latest", nil, 3, 3, 3, 40},
	} {
		if epoch, end := epochEnd(c.list, c.latest, 40, c.ask); epoch != c.epoch || end != c.end {
			t.Errorf("%s: %d, %d; want %d, %d", c.what, epoch, end, c.epoch, c.end)
		}
	}
}

func TestEpochListRules(t *testing.T) {
	list := []epochStart{{2, 0}, {4, 10}, {7, 25}}
	for _, c := range []struct {
		what string
		got  []epochStart
		want string
	}{
		{"append", addEpoch(list, 9, 40), "[{2 0} {4 10} {7 25} {9 40}]"},
		{"an epoch that wrote nothing goes", addEpoch(list, 9, 25), "[{2 0} {4 10} {9 25}]"},
		{"lower epoch", addEpoch(list, 4, 40), "[{2 0} {4 40}]"},
		{"cut the head inside an epoch", cutEpochs(list, 12, 100), "[{4 12} {7 25}]"},
		{"cut the head on a border", cutEpochs(list, 10, 100), "[{4 10} {7 25}]"},
		{"cut the head above all", cutEpochs(list, 99, 100), "[{7 99}]"},
		{"cut the tail", cutEpochs(list, 0, 25), "[{2 0} {4 10}]"},
		{"cut all", cutEpochs(list, 0, 0), "[]"},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if fmt.Sprint(list) != "[{2 0} {4 10} {7 25}]" {
		t.Error("a published list was changed")
	}
}

// TestEpochIsOnDiskBeforeTheFirstAppend: cache file renamed and directory synced, then the first byte of the batch.
func TestEpochIsOnDiskBeforeTheFirstAppend(t *testing.T) {
	r := newRig(t)
	r.p(1, 0, 0, 1)
	inj := r.inject()
	r.o.Epoch++
	r.restart()
	var order []string
	note := func(op, match, what string) {
		inj.Add(vfs.Rule{Op: op, Match: match, Do: func() { order = append(order, what) }})
	}
	note("datasync", epochFile+".tmp", "sync")
	note("rename", epochFile, "rename")
	note("syncdir", "", "syncdir")
	note("writeat", "*.log", "write")
	r.log.Append(in(numbered(1, 0, 1, 1)))
	r.log.Append(in(numbered(1, 0, 2, 1)))
	if !slices.Equal(order, []string{"sync", "rename", "syncdir", "write", "write"}) {
		t.Fatalf("%v", order)
	}
	if got := string(r.file(epochFile)); got != fmt.Sprintf("0\n2\n1 0\n%d 1\n", r.log.Epoch()) {
		t.Fatalf("file %q", got)
	}
	if r.log.EpochAt(0) != 1 || r.log.EpochAt(2) != r.log.Epoch() {
		t.Fatalf("epochs at 0 and 2: %d, %d", r.log.EpochAt(0), r.log.EpochAt(2))
	}
}

// TestEpochCannotBeStored: a full disk refuses the first append with a retriable error, and producers wait in order.
func TestEpochCannotBeStored(t *testing.T) {
	r := newRig(t)
	r.p(7, 0, 0, 1)
	inj := r.inject()
	r.o.Epoch++
	r.restart()
	inj.Add(vfs.Rule{Op: "writeat", Match: epochFile + ".tmp", Nth: 1, Err: errNoSpace})
	if _, err := r.p(1, 0, 0, 1); !errors.Is(err, ErrFull) || r.log.Err() != nil {
		t.Fatalf("%v, log %v", err, r.log.Err())
	}
	if _, err := r.p(1, 0, 1, 1); err == nil {
		t.Fatal("1 overtook 0")
	}
	r.run(1, []step{{"0", 0, 0, 1, 1, false, ok}, {"1", 0, 1, 1, 2, false, ok}})
	if e, end := r.log.EpochEnd(1); e != 1 || end != 1 {
		t.Fatalf("epoch 1 ends at %d, %d", e, end)
	}
}

// TestEpochFileDamage: a checkpoint that is missing or damaged is made anew from the batches.
func TestEpochFileDamage(t *testing.T) {
	for name, damage := range map[string]func(r *rig){
		"removed":   func(r *rig) { r.fs.Remove(path.Join(testDir, epochFile)) },
		"garbage":   func(r *rig) { r.write(epochFile, []byte("0\n2\nx y\n")) },
		"half":      func(r *rig) { b := r.file(epochFile); r.write(epochFile, b[:len(b)-4]) },
		"too high":  func(r *rig) { r.write(epochFile, []byte("0\n3\n1 0\n2 3\n8 6\n")) },
		"too low":   func(r *rig) { r.write(epochFile, []byte("0\n2\n1 0\n2 3\n")) },
		"unordered": func(r *rig) { r.write(epochFile, []byte("0\n2\n3 4\n2 9\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Config.SegmentBytes = 300 })
			for i := range int32(9) {
				r.p(1, 0, i, 1)
				if i%3 == 2 {
					r.restart()
				}
			}
			r.close()
			want := fmt.Sprint(*r.log.epochs.Load())
			if strings.Count(want, "{") != 3 {
				t.Fatalf("epochs %s", want)
			}
			damage(r)
			r.open(true)
			if got := fmt.Sprint(*r.log.epochs.Load()); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		})
	}
}

// TestACopiedLogKeepsItsHigherEpoch: batches never fall below the epoch of those before.
func TestACopiedLogKeepsItsHigherEpoch(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Epoch = 37 })
	r.p(1, 0, 0, 1)
	r.o.Epoch = 1
	r.restart()
	if r.log.Epoch() != 37 {
		t.Fatalf("epoch %d", r.log.Epoch())
	}
	r.run(1, []step{{"next", 0, 1, 1, 1, false, ok}})
	r.kill()
	r.open(false)
	if got := r.stored(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
}
