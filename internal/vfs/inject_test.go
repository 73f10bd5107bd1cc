package vfs

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestInjectCounts(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		fail []int // calls of 1..6 that fail
	}{
		{"every", Rule{}, []int{1, 2, 3, 4, 5, 6}},
		{"first", Rule{Nth: 1}, []int{1}},
		{"third", Rule{Nth: 3}, []int{3}},
		{"two from the third on", Rule{Nth: 3, Times: 2}, []int{3, 4}},
		{"all from the third on", Rule{Nth: 3, Times: -1}, []int{3, 4, 5, 6}},
		{"another file", Rule{Match: "g"}, nil},
		{"by pattern of the base", Rule{Match: "*.log", Nth: 2}, []int{2}},
		{"by pattern of the path", Rule{Match: "/d/*", Nth: 2}, []int{2}},
		{"another operation", Rule{Op: "writevat"}, nil},
	} {
		m := NewMem()
		must(t, m.MkdirAll("/d", 0o755))
		in := Inject(m)
		f := create(t, in, "/d/x.log")
		c.rule.Err = syscall.EIO
		if c.rule.Op == "" {
			c.rule.Op = "writeat"
		}
		a := in.Add(c.rule)
		var failed []int
		for call := 1; call <= 6; call++ {
			n, err := f.WriteAt([]byte("x"), 0)
			if err != nil {
				wantErr(t, err, syscall.EIO)
				failed = append(failed, call)
			}
			if n != map[bool]int{true: 1}[err == nil] {
				t.Fatalf("%s: wrote %d, %v", c.name, n, err)
			}
		}
		if !slices.Equal(failed, c.fail) || a.Hits() != len(c.fail) {
			t.Errorf("%s: calls %v failed, want %v; hits %d", c.name, failed, c.fail, a.Hits())
		}
	}
}

// Every operation can be made to fail, under its name, and is not carried out then.
func TestInjectEveryOperation(t *testing.T) {
	const createFlags = os.O_RDWR | os.O_CREATE
	calls := map[string]func(in *Injector, f File) error{
		"openfile":       func(in *Injector, f File) error { _, err := in.OpenFile("n", createFlags, 0); return err },
		"rename":         func(in *Injector, f File) error { return in.Rename("f", "g") },
		"remove":         func(in *Injector, f File) error { return in.Remove("f") },
		"mkdirall":       func(in *Injector, f File) error { return in.MkdirAll("d", 0) },
		"readdir":        func(in *Injector, f File) error { _, err := in.ReadDir("/"); return err },
		"stat":           func(in *Injector, f File) error { _, err := in.Stat("f"); return err },
		"syncdir":        func(in *Injector, f File) error { return in.SyncDir("/") },
		"syncall":        func(in *Injector, f File) error { return in.SyncAll("/") },
		"kind":           func(in *Injector, f File) error { _, err := in.Kind("/"); return err },
		"free":           func(in *Injector, f File) error { _, _, err := in.Free("/"); return err },
		"lockfile":       func(in *Injector, f File) error { _, err := in.LockFile("lock"); return err },
		"readat":         func(in *Injector, f File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		"writeat":        func(in *Injector, f File) error { _, err := f.WriteAt([]byte("z"), 0); return err },
		"writevat":       func(in *Injector, f File) error { _, err := f.WritevAt([][]byte{{'z'}}, 0); return err },
		"size":           func(in *Injector, f File) error { _, err := f.Size(); return err },
		"truncate":       func(in *Injector, f File) error { return f.Truncate(0) },
		"allocate":       func(in *Injector, f File) error { return f.Allocate(1) },
		"startwriteback": func(in *Injector, f File) error { return f.StartWriteback(0, 1) },
		"datasync":       func(in *Injector, f File) error { return f.Datasync() },
		"uncache":        func(in *Injector, f File) error { return f.Uncache(0, 0) },
		"map":            func(in *Injector, f File) error { _, err := f.Map(1); return err },
		"close":          func(in *Injector, f File) error { return f.Close() },
	}
	for op, call := range calls {
		m := NewMem()
		must(t, WriteFileAtomic(m, "/", "f", []byte("x")))
		in := Inject(m)
		f, err := in.OpenFile("f", os.O_RDWR, 0)
		must(t, err)
		must(t, in.MkdirAll("/", 0))
		a := in.Add(Rule{Op: op, Err: syscall.EDQUOT})
		wantErr(t, call(in, f), syscall.EDQUOT)
		if a.Hits() != 1 {
			t.Errorf("%s: %d hits", op, a.Hits())
		}
		a.Remove()
		if got := get(t, in, "f"); string(got) != "x" || len(listing(t, in, "/")) != 1 || m.Used() != blockSize {
			t.Errorf("%s was carried out: %q, %q", op, got, listing(t, in, "/"))
		}
		if err := call(in, f); err != nil && op != "close" {
			t.Errorf("%s without the rule: %v", op, err)
		}
	}
}

func TestInjectShortWrites(t *testing.T) {
	m := NewMem()
	in := Inject(m, Rule{Op: "writevat", Nth: 1, Short: 5, Err: syscall.ENOSPC}, Rule{Op: "writeat", Nth: 1, Short: 2},
		Rule{Op: "readat", Match: "f", Nth: 1, Short: 3})
	f := create(t, in, "f")
	n, err := f.WritevAt([][]byte{[]byte("abc"), nil, []byte("defg"), []byte("hi")}, 1)
	if n != 5 || !IsNoSpace(err) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	n, err = f.WriteAt([]byte("xyz"), 6)
	if n != 2 || !IsNoSpace(err) || !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("%d, %v", n, err)
	}
	b := make([]byte, 8)
	n, err = f.ReadAt(b, 0)
	if n != 3 || !errors.Is(err, io.ErrUnexpectedEOF) || string(b[:3]) != "\x00ab" {
		t.Fatalf("%d, %v, %q", n, err, b)
	}
	if got := get(t, in, "f"); string(got) != "\x00abcdexy" {
		t.Fatalf("%q", got)
	}
	n, err = f.WritevAt([][]byte{[]byte("abc"), []byte("def")}, 0)
	if n != 6 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestInjectDelayAndHook(t *testing.T) {
	m := NewMem()
	var log []string
	in := Inject(m, Rule{Op: "datasync", Delay: 7 * time.Second, Do: func() { log = append(log, "do") }},
		Rule{Op: "datasync", Delay: time.Second})
	in.SetSleep(func(d time.Duration) { log = append(log, d.String()) })
	f := create(t, in, "f")
	must(t, f.Datasync())
	if !slices.Equal(log, []string{"7s", "do", "1s"}) {
		t.Fatalf("%q", log)
	}
	in.Clear()
	must(t, f.Datasync())
	if len(log) != 3 {
		t.Fatalf("%q after Clear", log)
	}
	real := Inject(m, Rule{Op: "stat", Delay: time.Millisecond})
	_, err := real.Stat("f") // waits in the kernel
	must(t, err)
}

func TestInjectRenameMatchesBothNames(t *testing.T) {
	m := NewMem()
	in := Inject(m, Rule{Op: "rename", Match: "*.snapshot", Err: syscall.EIO})
	create(t, in, "a")
	create(t, in, "b.snapshot")
	wantErr(t, in.Rename("a", "c.snapshot"), syscall.EIO)
	wantErr(t, in.Rename("b.snapshot", "c"), syscall.EIO)
	must(t, in.Rename("a", "c"))
}

// A flush made to fail above Mem loses there what it was to make durable, through two wrappers too.
func TestInjectFailedSyncReachesMem(t *testing.T) {
	m := NewMem()
	in := Inject(Inject(m), Rule{Op: "datasync", Match: "f", Nth: 1, Err: syscall.EIO})
	f := create(t, in, "f")
	must(t, in.SyncDir("/"))
	put(t, f, []byte("lost"), 0)
	wantErr(t, f.Datasync(), syscall.EIO)
	must(t, f.Datasync())
	if got := get(t, m, "f"); string(got) != "lost" {
		t.Fatalf("%q must stay readable", got)
	}
	must(t, f.Uncache(0, 0))
	if got := get(t, m, "f"); string(got) != "\x00\x00\x00\x00" {
		t.Fatalf("%q after Uncache", got)
	}
	if got := get(t, m.Crash(CrashPlan{}), "f"); string(got) != "\x00\x00\x00\x00" {
		t.Fatalf("%q after the power loss", got)
	}
}

// A rule may end the process in the middle of its call.
func TestInjectKill(t *testing.T) {
	m := NewMem()
	var next *Mem
	in := Inject(m, Rule{Op: "writeat", Nth: 2, Do: func() { next = m.Kill() }})
	f := create(t, in, "f")
	put(t, f, []byte("one"), 0)
	_, err := f.WriteAt([]byte("two"), 0)
	wantErr(t, err, ErrDead)
	if got := get(t, next, "f"); string(got) != "one" {
		t.Fatalf("%q", got)
	}
}

func TestInjectOverTheMachine(t *testing.T) {
	dir := t.TempDir()
	in := Inject(OS(), Rule{Op: "datasync", Nth: 1, Err: syscall.EIO})
	f := create(t, in, path.Join(dir, "f"))
	put(t, f, []byte("x"), 0)
	wantErr(t, f.Datasync(), syscall.EIO)
	must(t, f.Datasync())
	must(t, in.SyncDir(dir))
	wantErr(t, in.SyncDir(path.Join(dir, "f")), syscall.ENOTDIR)
}

func TestInjectQuietCostsNoAllocation(t *testing.T) {
	in := Inject(OS())
	f := create(t, in, path.Join(t.TempDir(), "f"))
	b := make([]byte, 512)
	if n := testing.AllocsPerRun(20, func() { put(t, f, b, 0) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
