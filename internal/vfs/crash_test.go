package vfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t tb, f File, data []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAt(data, off); n != len(data) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(data), err)
	}
}

func get(t tb, fsys FS, name string) []byte {
	t.Helper()
	b, err := ReadFile(fsys, name)
	must(t, err)
	return b
}

func listing(t tb, fsys FS, dir string) []string {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	must(t, err)
	return names
}

// crashModel is the model of one file, byte by byte.
type crashModel struct {
	now, synced []byte
	dirty       map[int64]bool // units of 512
	sizes       []int          // since the last sync, the synced one first
}

func newCrashModel() *crashModel { return &crashModel{dirty: map[int64]bool{}, sizes: []int{0}} }

func (c *crashModel) mark(lo, hi int) {
	for u := lo / 512; u*512 < hi; u++ {
		c.dirty[int64(u)] = true
	}
}

func (c *crashModel) write(data []byte, off int) {
	if grow := off + len(data) - len(c.now); grow > 0 {
		c.now = append(c.now, make([]byte, grow)...)
	}
	copy(c.now[off:], data)
	c.mark(off, off+len(data))
	c.sizes = append(c.sizes, len(c.now))
}

func (c *crashModel) truncate(size int) {
	if size < len(c.now) {
		c.mark(size, len(c.now))
		c.now = c.now[:size:size]
	} else {
		c.now = append(c.now, make([]byte, size-len(c.now))...)
	}
	c.sizes = append(c.sizes, len(c.now))
}

func (c *crashModel) sync() {
	c.synced = slices.Clone(c.now)
	clear(c.dirty)
	c.sizes = []int{len(c.now)}
}

func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

// verify checks a file found after a crash.
func (c *crashModel) verify(got []byte, p CrashPlan) error {
	if n := len(got); n < slices.Min(c.sizes) || n > slices.Max(c.sizes) {
		return fmt.Errorf("length %d, possible were %v", n, c.sizes)
	}
	if p.KeepUnsynced == 0 && len(got) != len(c.synced) || p.KeepUnsynced == 100 && len(got) != len(c.now) {
		return fmt.Errorf("length %d, synced %d, newest %d, keep %d", len(got), len(c.synced), len(c.now), p.KeepUnsynced)
	}
	unit := max(p.SectorSize, 512)
	for lo := 0; lo < len(got); lo += unit {
		hi := min(lo+unit, len(got))
		dirty, isNew, isOld := false, true, true
		for u := lo / 512; u < (lo+unit)/512; u++ {
			dirty = dirty || c.dirty[int64(u)]
		}
		for i := lo; i < hi; i++ {
			isNew = isNew && got[i] == at(c.now, i)
			isOld = isOld && got[i] == at(c.synced, i)
			if got[i] != at(c.synced, i) && i < len(c.synced) && at(c.now, i) == at(c.synced, i) {
				return fmt.Errorf("byte %d was synced and not changed since, and is lost", i)
			}
		}
		switch {
		case !dirty && !isOld:
			return fmt.Errorf("sector at %d was never written since the sync, and changed", lo)
		case !isOld && p.KeepUnsynced == 0 && !p.Garble:
			return fmt.Errorf("sector at %d survived, none was to", lo)
		case !isNew && p.KeepUnsynced == 100:
			return fmt.Errorf("sector at %d was lost, none was to", lo)
		case !isOld && !isNew && !p.Garble:
			return fmt.Errorf("sector at %d is neither old nor new", lo)
		}
	}
	return nil
}

func drawPlan(t *rapid.T) CrashPlan {
	return CrashPlan{
		Seed:         rapid.Uint64().Draw(t, "seed"),
		KeepUnsynced: rapid.SampledFrom([]int{0, 10, 50, 90, 100}).Draw(t, "keep"),
		Garble:       rapid.Bool().Draw(t, "garble"),
		SectorSize:   rapid.SampledFrom([]int{0, 512, 4096}).Draw(t, "sector"),
	}
}

func fileStep(t *rapid.T, m *Mem, f File, c *crashModel) {
	off := rapid.IntRange(0, 3*pieceSize).Draw(t, "off")
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1, 2, 3, 4:
		data := pattern(rapid.IntRange(1, 6000).Draw(t, "n"), rapid.Byte().Draw(t, "data"))
		if rapid.Bool().Draw(t, "append") {
			off = len(c.now)
		}
		put(t, f, data, int64(off))
		c.write(data, off)
	case 5:
		must(t, f.Truncate(int64(off)))
		c.truncate(off)
	case 6:
		must(t, f.StartWriteback(0, int64(off)))
		must(t, f.Allocate(int64(off)))
	case 7, 8:
		must(t, f.Datasync())
		c.sync()
	case 9:
		must(t, m.SyncAll("/"))
		c.sync()
	}
}

// What was synced survives every crash, nothing appears where nothing was written, and several deaths in a row change
// nothing about that.
func TestCrashOfContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, c := NewMem(), newCrashModel()
		f, err := m.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		must(t, m.SyncDir("/"))
		for range rapid.IntRange(1, 4).Draw(t, "lives") {
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				fileStep(t, m, f, c)
			}
			if got := get(t, m, "f"); !bytes.Equal(got, c.now) {
				t.Fatal("content seen differs from what was written")
			}
			if rapid.Bool().Draw(t, "kill") {
				m = m.Kill()
				if got := get(t, m, "f"); !bytes.Equal(got, c.now) {
					t.Fatal("a process death changed what is seen")
				}
			} else {
				p := drawPlan(t)
				m = m.Crash(p)
				got := get(t, m, "f")
				if err := c.verify(got, p); err != nil {
					t.Fatalf("%+v: %v", p, err)
				}
				c.now = got
				c.sync() // what a crash leaves is on the disk
			}
			f, err = m.OpenFile("f", os.O_RDWR, 0)
			must(t, err)
		}
		m = m.Crash(CrashPlan{})
		if got := get(t, m, "f"); !bytes.Equal(got, c.synced) {
			t.Fatal("a crash that keeps nothing differs from what was synced")
		}
	})
}

// nameModel knows where every file may be after a crash.
type nameModel struct {
	where    map[uint64]string   // now; "" removed
	possible map[uint64][]change // since the last sync that settled it; the settled place first
}

// change is a place a file got ("" none), and the directories whose sync makes it durable.
type change struct {
	place string
	dirs  [2]string
}

func (n *nameModel) set(id uint64, place string, dirs [2]string) {
	n.where[id] = place
	n.possible[id] = append(n.possible[id], change{place, dirs})
}

// move notes a creation (from ""), a removal (to "") or a rename.
func (n *nameModel) move(id uint64, from, to string) {
	if from == to {
		return
	}
	dirs := [2]string{path.Dir(from), path.Dir(to)}
	for other, p := range n.where {
		if p == to && to != "" {
			n.set(other, "", dirs)
		}
	}
	n.set(id, to, dirs)
}

// synced settles every file up to its last change that concerned dir ("": all).
func (n *nameModel) synced(dir string) {
	for id, cs := range n.possible {
		for i := len(cs) - 1; i > 0; i-- {
			if dir == "" || cs[i].dirs[0] == dir || cs[i].dirs[1] == dir {
				n.possible[id] = cs[i:]
				break
			}
		}
	}
}

func (n *nameModel) may(id uint64, place string) bool {
	return slices.ContainsFunc(n.possible[id], func(c change) bool { return c.place == place })
}

// step makes a random change of directories; each file says by its content, which is synced, which one it is.
func (n *nameModel) step(t *rapid.T, m *Mem) {
	dirs := []string{"/a", "/b"}
	var ids []uint64
	for id, p := range n.where {
		if p != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	name := path.Join(rapid.SampledFrom(dirs).Draw(t, "dir"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"))
	switch k := rapid.IntRange(0, 9).Draw(t, "step"); {
	case k <= 3 || len(ids) == 0:
		id := uint64(len(n.where) + 1)
		tmp := "/a/tmp" + fmt.Sprint(id)
		f, err := m.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		must(t, err)
		put(t, f, binary.BigEndian.AppendUint64(nil, id), 0)
		must(t, f.Datasync())
		must(t, f.Close())
		n.possible[id] = []change{{}}
		n.move(id, "", tmp)
	case k <= 6:
		id := rapid.SampledFrom(ids).Draw(t, "file")
		must(t, m.Rename(n.where[id], name))
		n.move(id, n.where[id], name)
	case k == 7:
		id := rapid.SampledFrom(ids).Draw(t, "file")
		must(t, m.Remove(n.where[id]))
		n.move(id, n.where[id], "")
	case k == 8:
		dir := rapid.SampledFrom(dirs).Draw(t, "sync")
		must(t, m.SyncDir(dir))
		n.synced(dir)
	default:
		must(t, m.SyncAll("/"))
		n.synced("")
	}
}

func TestCrashOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem()
		n := &nameModel{map[uint64]string{}, map[uint64][]change{}}
		must(t, MkdirAllSync(m, "/a", 0o755))
		must(t, MkdirAllSync(m, "/b", 0o755))
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			n.step(t, m)
		}
		before := m
		p := drawPlan(t)
		m = m.Crash(p)
		found := map[uint64]string{}
		for _, dir := range []string{"/a", "/b"} {
			for _, e := range listing(t, m, dir) {
				b := get(t, m, path.Join(dir, e))
				if len(b) != 8 {
					t.Fatalf("%s/%s has %d bytes", dir, e, len(b))
				}
				id := binary.BigEndian.Uint64(b)
				if found[id] != "" {
					t.Fatalf("file %d is at %s and %s/%s", id, found[id], dir, e)
				}
				found[id] = path.Join(dir, e)
			}
		}
		for id, cs := range n.possible {
			if !n.may(id, found[id]) {
				t.Fatalf("file %d is at %q, possible were %q (%+v)", id, found[id], cs, p)
			}
			if p.KeepUnsynced == 100 && found[id] != n.where[id] {
				t.Fatalf("file %d is at %q, was at %q", id, found[id], n.where[id])
			}
		}
		_, err := before.ReadDir("/a")
		wantErr(t, err, ErrDead)
	})
}

// Directories move too: whatever subset of the changes survives, the disk is a tree, nothing is at two places, and a
// file nobody removed or replaced is there if it was durable.
func TestCrashOfTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem()
		durable := map[uint64]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := func(what string) string {
				return "/" + path.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 4).Draw(t, what)...)
			}
			switch n := name("name"); rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				_ = m.MkdirAll(n, 0o755)
			case 2, 3, 4:
				to := name("to")
				if _, err := m.Stat(to); err != nil { // moves, replaces nothing
					_ = m.Rename(n, to)
				}
			case 5:
				_ = m.SyncDir(n) // asserts that the entries are durable
			case 6:
				id := uint64(len(durable) + 1)
				if f, err := m.OpenFile(n, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
					put(t, f, binary.BigEndian.AppendUint64(nil, id), 0)
					must(t, f.Datasync())
					durable[id] = false
				}
			case 7:
				must(t, m.SyncAll("/"))
				for id := range durable {
					durable[id] = true
				}
			}
		}
		var before, after bytes.Buffer
		must(t, dump(&before, m, "/", ""))
		p := drawPlan(t)
		m = m.Crash(p)
		must(t, dump(&after, m, "/", ""))
		if p.KeepUnsynced == 100 && before.String() != after.String() {
			t.Fatalf("before:\n%s\nafter:\n%s", &before, &after)
		}
		for id, must := range durable {
			n := strings.Count(after.String(), fmt.Sprintf("\n%016x\n", id))
			if n > 1 || must && n != 1 {
				t.Fatalf("file %d is there %d times (%+v)\nbefore:\n%s\nafter:\n%s", id, n, p, &before, &after)
			}
		}
	})
}

// Without a flush of the directory either of old and new file is at the name, never nothing, and both happen.
func TestCrashRenameIsAtomic(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(200) {
		m := NewMem()
		must(t, WriteFileAtomic(m, "/", "f", []byte("old")))
		f := create(t, m, "f.tmp")
		put(t, f, []byte("new"), 0)
		must(t, f.Datasync())
		must(t, m.Rename("f.tmp", "f"))
		m = m.Crash(CrashPlan{Seed: seed, KeepUnsynced: 50})
		seen[string(get(t, m, "f"))]++
	}
	if seen["old"] < 50 || seen["new"] < 50 || seen["old"]+seen["new"] != 200 {
		t.Fatalf("outcomes %v", seen)
	}
}

// A process that dies, or a power loss, at any call inside WriteFileAtomic leaves the old content or the new one, and
// the new one for sure once it has returned.
func TestWriteFileAtomicAtEveryCall(t *testing.T) {
	for seed := range uint64(20) {
		for call := 1; ; call++ {
			m := NewMem()
			must(t, WriteFileAtomic(m, "/", "f", []byte("old content")))
			next := m
			in := Inject(m, Rule{Nth: call, Do: func() {
				if seed%2 == 1 {
					m = m.Kill()
				}
				next = m.Crash(CrashPlan{Seed: seed, KeepUnsynced: 50, Garble: true})
			}})
			err := WriteFileAtomic(in, "/", "f", []byte("new"))
			if next == m {
				must(t, err)
				if call < 6 {
					t.Fatalf("only %d calls", call)
				}
				if got := get(t, m.Crash(CrashPlan{}), "f"); string(got) != "new" {
					t.Fatalf("%q after WriteFileAtomic had returned", got)
				}
				break
			}
			wantErr(t, err, ErrDead)
			if got := get(t, next, "f"); string(got) != "old content" && string(got) != "new" {
				t.Fatalf("seed %d, call %d: %q", seed, call, got)
			}
		}
	}
}

func TestCrashIsDeterministic(t *testing.T) {
	build := func(p CrashPlan) string {
		m := NewMem()
		must(t, m.MkdirAll("d", 0o755))
		for i := range 10 {
			f := create(t, m, fmt.Sprintf("d/%d", i))
			put(t, f, pattern(20_000, byte(i)), 0)
			if i == 5 {
				must(t, m.SyncAll("/"))
			}
			put(t, f, pattern(20_000, byte(i+1)), 3000)
		}
		var b bytes.Buffer
		must(t, dump(&b, m.Crash(p), "/", ""))
		return b.String()
	}
	p := CrashPlan{Seed: 1, KeepUnsynced: 50, Garble: true}
	first := build(p)
	if first != build(p) {
		t.Fatal("equal seeds, other outcome")
	}
	p.Seed = 2
	if first == build(p) {
		t.Fatal("another seed, same outcome")
	}
}

func TestDeadProcess(t *testing.T) {
	for what, end := range map[string]func(*Mem) *Mem{
		"kill":  func(m *Mem) *Mem { return m.Kill() },
		"crash": func(m *Mem) *Mem { return m.Crash(CrashPlan{KeepUnsynced: 100}) },
	} {
		m := NewMem()
		f := create(t, m, "f")
		put(t, f, []byte("before"), 0)
		lock, err := m.LockFile("lock")
		must(t, err)
		mapped, err := f.Map(6)
		must(t, err)
		next := end(m)
		_, errOpen := m.OpenFile("f", os.O_RDWR, 0)
		_, errWrite := f.WriteAt([]byte("zombie"), 0)
		_, errWritev := f.WritevAt([][]byte{[]byte("zombie")}, 0)
		_, errRead := f.ReadAt(make([]byte, 1), 0)
		_, errSize := f.Size()
		_, errMap := f.Map(6)
		_, errDir := m.ReadDir("/")
		_, errStat := m.Stat("f")
		_, errLock := m.LockFile("lock")
		for i, err := range []error{errOpen, errWrite, errWritev, errRead, errSize, errMap, errDir, errStat, errLock,
			f.Truncate(0), f.Allocate(9), f.StartWriteback(0, 1), f.Datasync(), f.Uncache(0, 0), f.Close(), lock.Close(),
			m.Rename("f", "g"), m.Remove("f"), m.MkdirAll("d", 0), m.SyncDir("/"), m.SyncAll("/")} {
			if !errors.Is(err, ErrDead) {
				t.Fatalf("%s: call %d of the dead process: %v", what, i, err)
			}
		}
		g, err := next.OpenFile("f", os.O_RDWR, 0)
		must(t, err)
		put(t, g, []byte("after!"), 0)
		if string(mapped.Bytes()) != "before" {
			t.Fatalf("%s: the dead process sees %q", what, mapped.Bytes())
		}
		must(t, mapped.Unmap())
		if got := get(t, next, "f"); string(got) != "after!" {
			t.Fatalf("%s: %q", what, got)
		}
		lock, err = next.LockFile("lock")
		must(t, err)
		_, err = next.LockFile("lock")
		wantErr(t, err, ErrLocked)
		must(t, lock.Close())
		lock, err = next.LockFile("lock")
		must(t, err)
		must(t, lock.Close())
	}
}

// Kill leaves written bytes readable and still at the mercy of a later power loss.
func TestKillThenCrash(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	put(t, f, []byte("synced"), 0)
	must(t, f.Datasync())
	must(t, m.SyncDir("/"))
	put(t, f, []byte(" and not"), 6)
	must(t, m.Rename("f", "g"))
	m = m.Kill()
	if got := get(t, m, "g"); string(got) != "synced and not" {
		t.Fatalf("%q after the death of the process", got)
	}
	m = m.Crash(CrashPlan{})
	if got := get(t, m, "f"); string(got) != "synced" {
		t.Fatalf("%q after the power loss", got)
	}
	if names := listing(t, m, "/"); !slices.Equal(names, []string{"f"}) {
		t.Fatalf("names %q", names)
	}
}

// The next process can make durable what the one before had written.
func TestKillThenSync(t *testing.T) {
	m := NewMem()
	put(t, create(t, m, "f"), []byte("written"), 0)
	m = m.Kill()
	f, err := m.OpenFile("f", os.O_RDWR, 0)
	must(t, err)
	must(t, f.Datasync())
	must(t, m.SyncDir("/"))
	m = m.Crash(CrashPlan{Garble: true})
	if got := get(t, m, "f"); string(got) != "written" {
		t.Fatalf("%q", got)
	}
}

func TestSyncedFileWithoutItsEntryIsLost(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d", 0o755))
	f := create(t, m, "d/f")
	put(t, f, []byte("x"), 0)
	must(t, f.Datasync())
	must(t, m.SyncDir("d")) // but not the root, which holds d
	if names := listing(t, m.Crash(CrashPlan{}), "/"); len(names) != 0 {
		t.Fatalf("names %q", names)
	}
}

// A failed flush: readable until Uncache, not durable, told once to each File, and silent afterwards.
func TestFailedSync(t *testing.T) {
	m := NewMem()
	f, other := create(t, m, "f"), create(t, m, "other")
	put(t, f, bytes.Repeat([]byte("a"), 8192), 0)
	must(t, m.SyncAll("/"))
	second, err := m.OpenFile("f", os.O_RDWR, 0)
	must(t, err)
	put(t, f, bytes.Repeat([]byte("b"), 8192), 4096)
	put(t, other, []byte("fine"), 0)
	m.FailSync("f", 1, syscall.EIO)
	wantErr(t, f.Datasync(), syscall.EIO)
	must(t, other.Datasync())
	must(t, f.Datasync())                       // the trap: it says all is well
	wantErr(t, second.Datasync(), syscall.EIO)  // once per descriptor
	must(t, second.Datasync())                  //
	third, err := m.OpenFile("f", os.O_RDWR, 0) // opened after everybody knew
	must(t, err)
	must(t, third.Datasync())
	if got := get(t, m, "f"); string(got[4096:]) != string(bytes.Repeat([]byte("b"), 8192)) {
		t.Fatal("the lost bytes must stay readable")
	}
	put(t, f, []byte("c"), 4096+512) // writes that sector, and what was lost in it, again
	wantErr(t, f.Uncache(0, 0), ErrCached)
	must(t, f.Datasync())
	mapped, err := f.Map(100)
	must(t, err)
	wantErr(t, f.Uncache(0, 0), ErrCached)
	must(t, mapped.Unmap())
	must(t, f.Uncache(0, 0))
	got := get(t, m, "f")
	want := bytes.Repeat([]byte("a"), 8192)
	want = append(want, make([]byte, 4096)...) // the length was stored with the next flush, the bytes were not
	copy(want[4096+512:], bytes.Repeat([]byte("b"), 512))
	want[4096+512] = 'c'
	if !bytes.Equal(got, want) {
		t.Fatal("after Uncache the durable bytes must show")
	}
	if got := get(t, m.Crash(CrashPlan{}), "f"); !bytes.Equal(got, want) {
		t.Fatal("after the power loss the durable bytes must be there")
	}
}

// Lost sectors may have reached the disk all the same: the outcome of a failed flush is unknown.
func TestFailedSyncMayHaveWritten(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(100) {
		m := NewMem()
		f := create(t, m, "f")
		put(t, f, []byte("old"), 0)
		must(t, m.SyncAll("/"))
		put(t, f, []byte("new"), 0)
		m.FailSync("", 1, syscall.EIO)
		wantErr(t, f.Datasync(), syscall.EIO)
		seen[string(get(t, m.Crash(CrashPlan{Seed: seed, KeepUnsynced: 50}), "f"))]++
	}
	if seen["old"] < 20 || seen["new"] < 20 || seen["old"]+seen["new"] != 100 {
		t.Fatalf("outcomes %v", seen)
	}
}

// syncfs does not say whose file failed; each file's own flush does.
func TestFailedSyncAll(t *testing.T) {
	m := NewMem()
	good, bad := create(t, m, "good"), create(t, m, "bad")
	put(t, good, []byte("g"), 0)
	put(t, bad, []byte("b"), 0)
	remove := m.FailSync("bad", 0, syscall.EIO)
	wantErr(t, m.SyncAll("/"), syscall.EIO)
	remove()
	must(t, m.SyncAll("/"))
	must(t, good.Datasync())
	late, err := m.OpenFile("bad", os.O_RDWR, 0) // nobody has been told yet: the error waits for whoever asks
	must(t, err)
	wantErr(t, bad.Datasync(), syscall.EIO)
	wantErr(t, late.Datasync(), syscall.EIO)
	must(t, bad.Datasync())
	m = m.Crash(CrashPlan{})
	if got := get(t, m, "good"); string(got) != "g" {
		t.Fatalf("good %q", got)
	}
	if got := get(t, m, "bad"); string(got) != "\x00" {
		t.Fatalf("bad %q, want its length without its bytes", got)
	}
}

func TestFailedSyncOfADirectory(t *testing.T) {
	for _, sync := range []func(m *Mem) error{
		func(m *Mem) error { return m.SyncDir("/") },
		func(m *Mem) error { return m.SyncAll("/") },
	} {
		m := NewMem()
		create(t, m, "f")
		m.FailSync("/", 1, syscall.EIO)
		wantErr(t, sync(m), syscall.EIO)
		if names := listing(t, m.Crash(CrashPlan{}), "/"); len(names) != 0 {
			t.Fatalf("names %q", names)
		}
	}
}

// A part of a new file is lost, another part written again: the disk has the latter alone.
func TestFailedSyncOfANewFile(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	put(t, f, bytes.Repeat([]byte("a"), 1024), 0)
	m.FailSync("f", 1, syscall.EIO)
	wantErr(t, f.Datasync(), syscall.EIO)
	put(t, f, bytes.Repeat([]byte("b"), 512), 0)
	must(t, m.SyncAll("/"))
	put(t, create(t, m, "g"), []byte("never synced"), 0)
	must(t, m.SyncDir("/"))
	m = m.Crash(CrashPlan{})
	if got, want := get(t, m, "f"), append(bytes.Repeat([]byte("b"), 512), make([]byte, 512)...); !bytes.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	if got := get(t, m, "g"); len(got) != 0 {
		t.Fatalf("%q", got)
	}
}

// An unsynced length comes back as any that was possible.
func TestCrashOfLength(t *testing.T) {
	seen := map[int]int{}
	for seed := range uint64(2000) {
		m := NewMem()
		f := create(t, m, "f")
		put(t, f, make([]byte, 60), 0)
		must(t, m.SyncAll("/"))
		must(t, f.Truncate(20))
		put(t, f, make([]byte, 20), 20)
		seen[len(get(t, m.Crash(CrashPlan{Seed: seed, KeepUnsynced: 30}), "f"))]++
	}
	for n := 20; n <= 60; n++ {
		if seen[n] == 0 || n%20 == 0 && seen[n] < 200 {
			t.Errorf("length %d came %d times of 2000", n, seen[n])
		}
		delete(seen, n)
	}
	if len(seen) > 0 {
		t.Errorf("impossible lengths %v", seen)
	}
}

// script runs commands on a fresh disk; "file /a x" makes a file with the synced content x.
func script(t *testing.T, commands string) *Mem {
	t.Helper()
	m := NewMem()
	for c := range strings.SplitSeq(commands, "; ") {
		a := strings.Fields(c)
		switch a[0] {
		case "mkdir":
			must(t, m.MkdirAll(a[1], 0o755))
		case "file":
			f := create(t, m, a[1])
			put(t, f, []byte(a[2]), 0)
			must(t, f.Datasync())
		case "mv":
			must(t, m.Rename(a[1], a[2]))
		case "rm":
			must(t, m.Remove(a[1]))
		case "sync":
			must(t, m.SyncDir(a[1]))
		case "all":
			must(t, m.SyncAll("/"))
		default:
			t.Fatalf("command %q", c)
		}
	}
	return m
}

// entries lists all files with their contents.
func entries(t *testing.T, m *Mem, dir string) (all []string) {
	t.Helper()
	for _, n := range listing(t, m, dir) {
		full := path.Join(dir, n)
		if st, err := m.Stat(full); err == nil && st.IsDir {
			all = append(append(all, full+"/"), entries(t, m, full)...)
		} else {
			all = append(all, full+"="+string(get(t, m, full)))
		}
	}
	return all
}

// The table says which outcomes a power loss has: exactly these, each of them sometimes.
func TestCrashOutcomes(t *testing.T) {
	for commands, want := range map[string][]string{
		"file /a 1":                                          {"", "/a=1"},
		"file /a 1; sync /":                                  {"/a=1"},
		"file /a 1; sync /; rm /a":                           {"", "/a=1"},
		"file /a 1; sync /; rm /a; file /a 2":                {"", "/a=1", "/a=2"},
		"file /a 1; sync /; mv /a /b":                        {"/a=1", "/b=1"},
		"file /a 1; mv /a /b":                                {"", "/a=1", "/b=1"},
		"file /a 1; file /b 2; sync /; mv /b /a":             {"/a=1 /b=2", "/a=2"},
		"file /a 1; sync /; mv /a /b; file /a 2":             {"/a=1", "/b=1", "/a=2 /b=1"},
		"file /a 1; sync /; mv /a /b; file /t 2; mv /t /a":   {"/a=1", "/a=1 /t=2", "/b=1", "/b=1 /t=2", "/a=2 /b=1"},
		"mkdir /d; file /d/f 1; sync /d":                     {"", "/d/ /d/f=1"},
		"mkdir /d; sync /; file /d/f 1":                      {"/d/", "/d/ /d/f=1"},
		"mkdir /d; file /f 1; all; mv /f /d/f":               {"/d/ /f=1", "/d/ /d/f=1"},
		"file /f 1; all; mkdir /d; mv /f /d/f":               {"/f=1", "/d/ /f=1", "/d/ /d/f=1"},
		"file /f 1; all; mkdir /d; mv /f /d/f; sync /d":      {"/d/ /d/f=1"},
		"mkdir /d; file /f 1; all; mv /f /d/f; sync /":       {"/d/ /d/f=1"},
		"file /a 1; all; rm /a; file /a 2; sync /; mv /a /b": {"/a=2", "/b=2"},
		"mkdir /d; file /d/f 1; all; mv /d /e; file /e/g 2": {"/d/ /d/f=1", "/e/ /e/f=1",
			"/d/ /d/f=1 /d/g=2", "/e/ /e/f=1 /e/g=2"},
		"mkdir /a/b; all; mv /a/b /b; mv /a /b/a; file /f 1": {"/a/ /a/b/", "/a/ /b/", "/b/ /b/a/",
			"/a/ /a/b/ /f=1", "/a/ /b/ /f=1", "/b/ /b/a/ /f=1"},
		"mkdir /a/b; all; mv /a/b /b; mv /a /b/a; sync /b":   {"/b/ /b/a/"},
		"mkdir /a/b; all; mv /a/b /b; mv /a /b/a; sync /b/a": {"/a/ /b/", "/b/ /b/a/"},
	} {
		seen := map[string]int{}
		for seed := range uint64(300) {
			m := script(t, commands).Crash(CrashPlan{Seed: seed, KeepUnsynced: 50})
			seen[strings.Join(entries(t, m, "/"), " ")]++
		}
		for _, w := range want {
			if seen[w] < 10 {
				t.Errorf("%s: outcome %q came %d times of 300", commands, w, seen[w])
			}
			delete(seen, w)
		}
		if len(seen) > 0 {
			t.Errorf("%s: impossible outcomes %v", commands, seen)
		}
	}
}

func TestReadAtEndOfFile(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	put(t, f, []byte("abc"), pieceSize-1)
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, pieceSize-1); n != 3 || err != io.EOF || string(b[:3]) != "abc" {
		t.Fatalf("%d, %v, %q", n, err, b)
	}
	if n, err := f.ReadAt(b[:3], pieceSize-1); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if n, err := f.ReadAt(b, pieceSize+2); n != 0 || err != io.EOF {
		t.Fatalf("%d, %v", n, err)
	}
}
