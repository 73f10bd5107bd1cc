package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sekali/internal/check"
)

func TestMemFullDisk(t *testing.T) {
	m := NewMem()
	m.SetCapacity(64 << 10)
	f := create(t, m, "f")
	n, err := f.WriteAt(pattern(100_000, 1), 0)
	if n != 64<<10 || !errors.Is(err, syscall.ENOSPC) || !IsNoSpace(err) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if size, err := f.Size(); size != 64<<10 || err != nil {
		t.Fatalf("size %d, %v", size, err)
	}
	if got := get(t, m, "f"); !bytes.Equal(got, pattern(100_000, 1)[:64<<10]) {
		t.Fatal("the part that found room differs")
	}
	put(t, f, pattern(64<<10, 2), 0) // writing again takes no room
	if total, usable, err := m.Free("/"); total != 64<<10 || usable != 0 || err != nil {
		t.Fatalf("%d of %d, %v", usable, total, err)
	}
	g := create(t, m, "g")
	n, err = g.WritevAt([][]byte{{1}, {2}}, 0)
	if n != 0 || !IsNoSpace(err) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	must(t, f.Truncate(5000)) // keeps two blocks
	if m.Used() != 8192 {
		t.Fatalf("used %d", m.Used())
	}
	wantErr(t, g.Allocate(60<<10), syscall.ENOSPC)
	must(t, g.Allocate(20_000))
	if m.Used() != 8192+20480 {
		t.Fatalf("used %d", m.Used())
	}
	put(t, f, pattern(36864-8192+100, 1), 8192-100)
	if m.Used() != 36864+20480 {
		t.Fatalf("used %d", m.Used())
	}
	m.SetCapacity(m.Used())
	put(t, g, pattern(20_480, 1), 0) // what was reserved can be written on a full disk
	n, err = g.WriteAt(pattern(1000, 1), 20_480-400)
	if n != 400 || !IsNoSpace(err) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	must(t, g.Allocate(0))
	must(t, g.Truncate(0)) // gives the reservation back
	if m.Used() != 36864 {
		t.Fatalf("used %d", m.Used())
	}
	m.SetCapacity(0)
	put(t, g, pattern(1000, 1), 1<<20)
	if _, usable, _ := m.Free("/"); usable < 1<<40 {
		t.Fatalf("usable %d without a bound", usable)
	}
}

func TestMemSpaceOfRemovedFiles(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	put(t, f, pattern(10_000, 1), 0)
	mapped, err := f.Map(10_000)
	must(t, err)
	must(t, m.Remove("f"))
	for step, fn := range []func() error{f.Close, mapped.Unmap} {
		if m.Used() != 12288 {
			t.Fatalf("used %d while in use, step %d", m.Used(), step)
		}
		must(t, fn())
	}
	if m.Used() != 0 {
		t.Fatalf("used %d after the last use", m.Used())
	}
	h := create(t, m, "h")
	put(t, h, pattern(5000, 1), 0)
	must(t, m.Remove("h"))
	must(t, h.Close())
	must(t, WriteFileAtomic(m, "/", "g", pattern(5000, 1)))
	must(t, m.Remove("g"))
	if m.Used() != 0 {
		t.Fatalf("used %d by a removed file that is not open", m.Used())
	}
	put(t, create(t, m, "a"), pattern(10_000, 1), 0)
	put(t, create(t, m, "b"), pattern(5_000, 1), 0)
	must(t, m.Rename("a", "b")) // b's old file is open, its blocks go with the process
	m = m.Kill()
	if m.Used() != 12288 {
		t.Fatalf("used %d after the death of the process", m.Used())
	}
}

// used counts blocks the slow way.
func used(m *Mem) (blocks int64) {
	for _, n := range m.d.nodes() {
		seen := map[int64]bool{}
		for at := int64(0); at < n.data.reserve; at += blockSize {
			seen[at] = true
		}
		for k, p := range n.data.pieces {
			for b := range pieceSize / blockSize {
				if p.blocks>>b&1 != 0 {
					seen[k*pieceSize+int64(b)*blockSize] = true
				}
			}
		}
		blocks += int64(len(seen))
	}
	return blocks * blockSize
}

func TestMemSpaceAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem()
		limit := int64(rapid.IntRange(0, 30).Draw(t, "blocks")) * blockSize
		m.SetCapacity(limit)
		var files []File
		for _, name := range []string{"a", "b"} {
			f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			must(t, err)
			files = append(files, f)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			f := rapid.SampledFrom(files).Draw(t, "file")
			at := rapid.IntRange(0, 100_000).Draw(t, "at")
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				_, err = f.WriteAt(make([]byte, rapid.IntRange(0, 50_000).Draw(t, "n")), int64(at))
			case 1:
				err = f.Allocate(int64(at))
			case 2:
				err = f.Truncate(int64(at))
			case 3:
				err = f.Datasync()
			}
			if err != nil && !IsNoSpace(err) {
				t.Fatal(err)
			}
			if want := used(m); m.Used() != want || limit > 0 && m.Used() > limit {
				t.Fatalf("used %d, counted %d, limit %d", m.Used(), want, limit)
			}
		}
		if m = m.Crash(drawPlan(t)); m.Used() != used(m) {
			t.Fatalf("after a crash: used %d, counted %d", m.Used(), used(m))
		}
	})
}

func TestMemMapping(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	want := pattern(50_000, 1)
	put(t, f, want, 0)
	a, err := f.Map(100_000)
	must(t, err)
	b, err := f.Map(20_000)
	must(t, err)
	put(t, f, want[:30_000], 40_000)
	copy(want[40_000:], want[:10_000])
	if !bytes.Equal(a.Bytes()[:50_000], want) || !bytes.Equal(a.Bytes()[40_000:70_000], pattern(50_000, 1)[:30_000]) {
		t.Fatal("the larger mapping differs from the file")
	}
	if !bytes.Equal(b.Bytes(), want[:20_000]) || len(a.Bytes()) != 100_000 {
		t.Fatal("the smaller mapping differs from the file")
	}
	must(t, f.Truncate(10))
	if a.Bytes()[9] != want[9] || a.Bytes()[10] != 0 || a.Bytes()[69_999] != 0 {
		t.Fatal("cut bytes must read as zero")
	}
	a.WillNeed(0, 10)
	if !a.Resident(0, 10) {
		t.Fatal("memory is resident")
	}
	late := a.Bytes()
	must(t, a.Unmap())
	wantErr(t, a.Unmap(), os.ErrClosed)
	if late[0] != poison || late[9] != poison {
		t.Fatal("a slice kept over Unmap must show it")
	}
	if !bytes.Equal(b.Bytes()[:10], want[:10]) || !bytes.Equal(get(t, m, "f"), want[:10]) {
		t.Fatal("Unmap of one mapping changed the file or another")
	}
	must(t, b.Unmap())
	if _, err := f.Map(0); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("mapping of nothing: %v", err)
	}
}

// A mapping of a whole segment costs what is touched.
func TestMemLargeMapping(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var maps []*Mapping
	for range 32 {
		mapped, err := f.Map(1 << 30)
		must(t, err)
		maps = append(maps, mapped)
	}
	put(t, f, []byte("here"), 1<<29)
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 16<<20 {
		t.Fatalf("%d bytes for mappings of which nothing is touched", grown)
	}
	for _, mapped := range maps {
		if string(mapped.Bytes()[1<<29:1<<29+4]) != "here" {
			t.Fatal("a mapping does not show the write")
		}
		must(t, mapped.Unmap())
	}
}

// Readers follow a published end without a lock: under -race this is the publication rule of segment (I2).
func TestMemPublication(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	mapped, err := f.Map(1 << 20)
	must(t, err)
	var end atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for seen := int64(0); seen < 1<<20; {
				to := end.Load()
				for i, b := range mapped.Bytes()[seen:to] {
					if b != byte((seen+int64(i))/4096)+1 {
						t.Errorf("byte %d is %d", seen+int64(i), b)
						return
					}
				}
				seen = to
				runtime.Gosched()
			}
		})
	}
	for off := int64(0); off < 1<<20; off += 4096 {
		put(t, f, bytes.Repeat([]byte{byte(off/4096) + 1}, 4096), off)
		end.Store(off + 4096)
		if off%65536 == 0 {
			must(t, f.Datasync())
		}
	}
	wg.Wait()
	must(t, mapped.Unmap())
}

func TestMemConcurrentUse(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d", 0o755))
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("d/%d-%d", g, i%5)
				f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
				if err != nil {
					t.Error(err)
					return
				}
				_, errWrite := f.WriteAt(pattern(3000, byte(i)), int64(i*100))
				errs := []error{errWrite, f.Datasync(), m.SyncDir("d"), f.Close()}
				if i%7 == 0 {
					errs = append(errs, m.SyncAll("/"))
				}
				if i%5 == 4 {
					errs = append(errs, m.Rename(name, name+"x"), m.Remove(name+"x"), m.SyncDir("d"),
						WriteFileAtomic(m, "d", fmt.Sprintf("%d-0", g), nil)) // replaces a file
				}
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for g := range 6 {
		for i := range 4 {
			want = append(want, fmt.Sprintf("%d-%d", g, i))
		}
	}
	if names := listing(t, m, "d"); !slices.Equal(names, want) {
		t.Fatalf("names %q", names)
	}
	if len(m.d.pending) > 0 && m.SyncAll("/") != nil || len(m.d.orphans) > 0 {
		t.Fatalf("%d removed files are kept for ever", len(m.d.orphans))
	}
}

// A process that is killed in the middle of its work changes nothing afterwards.
func TestMemKillUnderLoad(t *testing.T) {
	for range 20 {
		m := NewMem()
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		for g := range 4 {
			f := create(t, m, fmt.Sprint(g))
			wg.Go(func() {
				for i := 0; ; i++ {
					_, err := f.WriteAt([]byte{byte(i)}, int64(i))
					err = errors.Join(err, m.MkdirAll(fmt.Sprintf("d%d/%d", g, i), 0o755))
					if i == 10 {
						begun <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, ErrDead) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		<-begun
		next := m.Kill()
		var before, after bytes.Buffer
		must(t, dump(&before, next, "/", ""))
		wg.Wait()
		must(t, dump(&after, next, "/", ""))
		if before.String() != after.String() {
			t.Fatal("a dead process changed the disk")
		}
	}
}

func TestMemMisuseIsAViolation(t *testing.T) {
	m := NewMem()
	m.Kill()
	for what, fn := range map[string]func(){
		"killed twice":  func() { m.Kill() },
		"crashed after": func() { m.Crash(CrashPlan{}) },
		"sector size":   func() { NewMem().Crash(CrashPlan{SectorSize: 1000}) },
		"bad pattern":   func() { create(t, Inject(NewMem(), Rule{Match: "["}), "f") },
	} {
		func() {
			defer func() {
				if _, ok := recover().(*check.Violation); !ok {
					t.Errorf("%s: no violation", what)
				}
			}()
			fn()
		}()
	}
}

func TestMemKindAndHelpers(t *testing.T) {
	m := NewMem()
	if k, err := m.Kind("/"); k != "mem" || err != nil {
		t.Fatalf("%q, %v", k, err)
	}
	m.SetKind("nfs")
	if k, err := m.Kill().Kind("/"); k != "nfs" || err != nil {
		t.Fatalf("%q, %v", k, err)
	}
	m = NewMem()
	_, err := m.Kind("none")
	wantErr(t, err, os.ErrNotExist)
	must(t, MkdirAllSync(m, "a/b/c", 0o755))
	must(t, WriteFileAtomic(m, "a/b", "f", []byte("x")))
	m = m.Crash(CrashPlan{})
	if got := get(t, m, "a/b/f"); string(got) != "x" {
		t.Fatalf("%q", got)
	}
	if names := listing(t, m, "a/b"); !slices.Equal(names, []string{"c", "f"}) {
		t.Fatalf("names %q", names)
	}
	must(t, RemoveAll(m, "a"))
	must(t, RemoveAll(m, "a"))
	if names := listing(t, m, "/"); len(names) != 0 {
		t.Fatalf("names %q", names)
	}
	big := create(t, m, "big")
	must(t, big.Truncate(readFileMax+1))
	if _, err := ReadFile(m, "big"); err == nil {
		t.Fatal("a file above the limit was read")
	}
}
