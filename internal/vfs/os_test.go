package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sekali/internal/check"
)

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func create(t tb, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t tb, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestOSWritevAt(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	for _, pieces := range []int{0, 1, 2, iovMax - 1, iovMax, iovMax + 1, 3*iovMax + 7} {
		var bufs [][]byte
		var want []byte
		for i := range pieces {
			b := pattern(i%97, byte(i)) // empty ones among them
			bufs, want = append(bufs, b), append(want, b...)
		}
		n, err := f.WritevAt(bufs, 5000)
		if n != len(want) || err != nil {
			t.Fatalf("%d pieces: wrote %d of %d, %v", pieces, n, len(want), err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 5000); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d pieces: content differs (%v)", pieces, err)
		}
	}
}

// A file size limit makes the kernel write short first and fail then, as a full disk does.
func TestOSShortWriteIsContinued(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	pipe := &osFile{fd: int(w.Fd()), name: "pipe"}
	_, err = pipe.WritevAt([][]byte{{1}}, 0)
	wantErr(t, err, unix.ESPIPE)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 10000, Max: old.Max}))
	n, errv := f.WritevAt([][]byte{pattern(3000, 1), pattern(4000, 2), pattern(5000, 3)}, 0)
	m, errw := f.WriteAt(pattern(5000, 3), 7000)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
	if n != 10000 || m != 3000 {
		t.Fatalf("wrote %d and %d, want 10000 and 3000", n, m)
	}
	wantErr(t, errv, syscall.EFBIG)
	wantErr(t, errw, syscall.EFBIG)
	want := append(append(pattern(3000, 1), pattern(4000, 2)...), pattern(5000, 3)[:3000]...)
	got := make([]byte, 10000)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("content differs after short writes (%v)", err)
	}
}

func TestOSMappingShowsWrites(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	m, err := f.Map(1 << 30)
	must(t, err)
	if len(m.Bytes()) != 1<<30 {
		t.Fatalf("mapping of %d bytes", len(m.Bytes()))
	}
	want := pattern(100_000, 9)
	_, err = f.WriteAt(want, 0)
	must(t, err)
	if !bytes.Equal(m.Bytes()[:len(want)], want) {
		t.Fatal("the mapping does not show what was written")
	}
	m.WillNeed(10, 50_000)
	if !m.Resident(10, 50_000) || !m.Resident(5, 0) {
		t.Fatal("pages just written must be resident")
	}
	if m.Resident(1<<29, pageSize) {
		t.Fatal("pages behind the end cannot be resident")
	}
	must(t, f.Close())
	if !bytes.Equal(m.Bytes()[:len(want)], want) {
		t.Fatal("the mapping must outlive the descriptor")
	}
	must(t, m.Unmap())
	wantErr(t, m.Unmap(), fs.ErrClosed)
}

// Under check.Costly a slice kept over Unmap faults, whatever has been mapped since.
func TestOSUseAfterUnmap(t *testing.T) {
	if !check.Costly {
		t.Log("addresses are given back at once in this build")
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	put(t, f, pattern(8192, 1), 0)
	var late [][]byte
	for range 2 * poisonedMaps {
		m, err := f.Map(8192)
		must(t, err)
		late = append(late, m.Bytes())
		must(t, m.Unmap())
	}
	for _, b := range late[poisonedMaps:] {
		func() {
			defer func() {
				if _, ok := recover().(runtime.Error); !ok {
					t.Fatal("no fault")
				}
			}()
			t.Errorf("read %#x", b[5000])
		}()
	}
}

func TestOSUncache(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	want := pattern(100_000, 3)
	_, err := f.WriteAt(want, 0)
	must(t, err)
	must(t, f.Datasync())
	m, err := f.Map(100_000)
	must(t, err)
	if m.Bytes()[50_000] != want[50_000] {
		t.Fatal("mapping differs")
	}
	wantErr(t, f.Uncache(0, 0), ErrCached) // mapped and touched pages stay
	must(t, m.Unmap())
	must(t, f.Uncache(0, 0))
	if cached, err := anyCached(f.(*osFile).fd, 0, 100_000); cached || err != nil {
		t.Fatalf("cached %v, %v", cached, err)
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("content differs after Uncache (%v)", err)
	}
	must(t, f.Uncache(200_000, 0))
	must(t, f.Uncache(4097, 1))
	wantErr(t, f.Uncache(-1, 1), syscall.EINVAL)
}

func TestOSAllocateKeepsTheLength(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	blocks := func() int64 {
		var st unix.Stat_t
		must(t, unix.Fstat(f.(*osFile).fd, &st))
		return st.Blocks * 512
	}
	must(t, f.Allocate(1<<20))
	if n, err := f.Size(); n != 0 || err != nil || blocks() < 1<<20 {
		t.Fatalf("size %d, %v, %d bytes reserved", n, err, blocks())
	}
	_, err := f.WriteAt([]byte("x"), 9)
	must(t, err)
	must(t, f.Truncate(10))
	if n, _ := f.Size(); n != 10 || blocks() >= 1<<20 {
		t.Fatalf("size %d, %d bytes still reserved", n, blocks())
	}
	must(t, f.Allocate(0))
	must(t, f.StartWriteback(0, 10))
	must(t, f.StartWriteback(0, 0))
	wantErr(t, f.Truncate(-1), syscall.EINVAL)
	wantErr(t, f.Allocate(-1), syscall.EINVAL)
}

func TestOSLockFile(t *testing.T) {
	o, name := OS(), path.Join(t.TempDir(), ".lock")
	l, err := o.LockFile(name)
	must(t, err)
	_, err = o.LockFile(name)
	wantErr(t, err, ErrLocked)
	var le *LockedError
	if !errors.As(err, &le) || le.PID != os.Getpid() || !strings.Contains(err.Error(), name) {
		t.Fatalf("error %v does not name file and holder", err)
	}
	must(t, l.Close())
	l, err = o.LockFile(name)
	must(t, err)
	must(t, l.Close())
}

func TestOSDirectories(t *testing.T) {
	o, dir := OS(), t.TempDir()
	must(t, MkdirAllSync(o, path.Join(dir, "a/b/c"), 0o755))
	d, err := o.OpenFile(path.Join(dir, "a"), os.O_RDONLY, 0)
	must(t, err)
	must(t, d.Datasync())
	_, err = d.ReadAt(make([]byte, 1), 0)
	wantErr(t, err, syscall.EISDIR)
	_, err = d.WriteAt(make([]byte, 1), 0)
	wantErr(t, err, syscall.EBADF)
	must(t, d.Close())
	wantErr(t, d.Datasync(), fs.ErrClosed)
	must(t, o.SyncDir(dir))
	must(t, o.SyncAll(dir))
	for range 2 { // another directory of the same name is another file system, perhaps
		must(t, o.SyncAll(path.Join(dir, "a/b/c")))
		must(t, o.SyncAll(path.Join(dir, "a/b/c")))
		if !sameFile(o.(*osFS).all.fd, path.Join(dir, "a/b/c")) {
			t.Fatal("SyncAll asked a directory that is gone")
		}
		must(t, o.Rename(path.Join(dir, "a/b/c"), path.Join(dir, "a/b/d")))
		must(t, o.MkdirAll(path.Join(dir, "a/b/c"), 0o755))
		must(t, o.Remove(path.Join(dir, "a/b/d")))
	}
	create(t, o, path.Join(dir, "a/b/f"))
	wantErr(t, o.SyncDir(path.Join(dir, "a/b/f")), syscall.ENOTDIR)
	wantErr(t, o.SyncDir(path.Join(dir, "none")), fs.ErrNotExist)
	if k, err := o.Kind(dir); k == "" || strings.HasPrefix(k, "0x") || err != nil {
		t.Fatalf("kind %q, %v", k, err)
	}
	total, usable, err := o.Free(dir)
	if err != nil || total <= 0 || usable <= 0 || usable > total {
		t.Fatalf("free: %d of %d, %v", usable, total, err)
	}
	must(t, RemoveAll(o, path.Join(dir, "a")))
	if ok, err := Exists(o, path.Join(dir, "a")); ok || err != nil {
		t.Fatalf("a is still there (%v)", err)
	}
}

func TestKindNames(t *testing.T) {
	for magic, want := range map[int64]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlay", 0x01021994: "tmpfs",
		0x6969: "nfs", 0x65735546: "fuse", 0x2fc12fc1: "zfs", 0xff534d42: "smb", 0x1234: "0x1234",
		int64(int32(-0x6edc97c2)): "btrfs", // statfs gives the word signed on some machines
	} {
		if got := kindName(magic); got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
}

// A Close beside running calls never lets one of them use a number that was given to another file.
func TestOSCloseBesideCalls(t *testing.T) {
	dir := t.TempDir()
	for range 50 {
		f := create(t, OS(), path.Join(dir, "f"))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if _, err := f.WriteAt([]byte("mine"), 0); err != nil {
						if !errors.Is(err, fs.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		must(t, f.Close())
		other := create(t, OS(), path.Join(dir, "other"))
		wg.Wait()
		if n, err := other.Size(); n != 0 || err != nil {
			t.Fatalf("%d bytes in the other file, %v", n, err)
		}
		must(t, other.Close())
		wantErr(t, f.Close(), fs.ErrClosed)
	}
}

func TestOSNoAllocations(t *testing.T) {
	f := create(t, OS(), path.Join(t.TempDir(), "f"))
	b := pattern(8192, 1)
	bufs := make([][]byte, 64)
	for i := range bufs {
		bufs[i] = b[i*128 : i*128+128]
	}
	got := make([]byte, 4096)
	put(t, f, b, 0)
	m, err := f.Map(1 << 20)
	must(t, err)
	defer func() { must(t, m.Unmap()) }()
	for name, fn := range map[string]func() error{
		"WriteAt":  func() error { _, err := f.WriteAt(b, 0); return err },
		"WritevAt": func() error { _, err := f.WritevAt(bufs, 0); return err },
		"ReadAt":   func() error { _, err := f.ReadAt(got, 100); return err },
		"end of file": func() error {
			if n, err := f.ReadAt(got, 8000); n != 192 || err != io.EOF {
				return fmt.Errorf("%d bytes, %w", n, err)
			}
			return nil
		},
		"Size":           func() error { _, err := f.Size(); return err },
		"StartWriteback": func() error { return f.StartWriteback(0, 8192) },
		"Datasync":       func() error { return f.Datasync() },
		"Resident":       func() error { m.Resident(0, 1<<20); return nil },
	} {
		if n := testing.AllocsPerRun(20, func() { must(t, fn()) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}
