package segment

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sekali/internal/check"
	"sekali/internal/vfs"
)

// TestPinsKeepBytesInPlace: a retired segment stays readable for those who hold it, and is gone with the last of them.
func TestPinsKeepBytesInPlace(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		fs := newMem(t)
		o := options(fs)
		o.Handles = NewHandles(10)
		o.Cache = newCache(t)
		s := created(t, testDir, 0, o)
		g := newMaker(1, 0)
		g.fill(t, s, 50)
		if sealed {
			ok(t, s.Sync())
			ok(t, s.Seal())
		}
		if !s.TryPin() || !s.TryPin() {
			t.Fatal("no pin on a fresh segment")
		}
		b, err := s.Bytes(0, s.Size())
		ok(t, err)
		s.Retire(true)
		names, err := fs.ReadDir(testDir)
		ok(t, err)
		for _, n := range names {
			if !strings.HasSuffix(n, DeletedSuffix) {
				t.Fatalf("%s keeps its name after Retire", n)
			}
		}
		// A segment of the same base takes the name, is retired in its turn, and both are read.
		again := created(t, testDir, 0, o)
		g2 := newMaker(2, 0)
		g2.fill(t, again, 5)
		again.TryPin()
		again.Retire(true)
		s.Unpin()
		if !bytes.Equal(b, g.bytes()) {
			t.Fatal("bytes changed under a pin")
		}
		if pos, err := s.Find(g.next - 1); err != nil || pos != g.list[49].pos {
			t.Fatalf("Find in a retired segment: %d %v", pos, err)
		}
		if !s.TryPin() {
			t.Fatal("a segment somebody holds refuses a pin")
		}
		s.Unpin()
		s.Unpin()
		if s.TryPin() {
			t.Fatal("a drained segment gave a pin")
		}
		if bytes.Equal(b, g.bytes()) {
			t.Fatal("the mapping is still there")
		}
		if n := o.Handles.Len(); n != 0 {
			t.Fatalf("%d handles kept", n)
		}
		if got := content(t, again); !bytes.Equal(got, g2.bytes()) {
			t.Fatal("the second segment of the base lost its bytes")
		}
		again.Unpin()
		if names, _ := fs.ReadDir(testDir); len(names) != 0 {
			t.Fatalf("left: %v", names)
		}
	}
}

func TestUnpinOnceTooOften(t *testing.T) {
	s := created(t, testDir, 0, options(newMem(t)))
	s.Retire(false)
	defer func() {
		if _, is := recover().(*check.Violation); !is {
			t.Fatal("a pin was given back twice")
		}
	}()
	s.Unpin()
}

// TestRetiredBeforeItWasOpened: a reader that pinned a sealed segment in an old view opens it after it was retired.
func TestRetiredBeforeItWasOpened(t *testing.T) {
	fs := newMem(t)
	g, aborted := sealedLog(t, fs, 0, 100)
	s, err := OpenSealed(testDir, ID{0}, options(fs))
	ok(t, err)
	s.TryPin()
	s.Retire(true)
	if !bytes.Equal(content(t, s), g.bytes()) {
		t.Fatal("other bytes")
	}
	if pos, err := s.Find(g.next - 1); err != nil || pos != g.list[len(g.list)-1].pos {
		t.Fatalf("Find: %d %v", pos, err)
	}
	if list, _, err := s.Aborted(nil, 0, g.next); err != nil || !slices.Equal(list, aborted) {
		t.Fatalf("Aborted: %v %v", list, err)
	}
	s.Unpin()
	if names, _ := fs.ReadDir(testDir); len(names) != 0 {
		t.Fatalf("left: %v", names)
	}
}

// openCount counts the descriptors a file system has given out.
func openCount(in *vfs.Injector) (opened, closed *vfs.Active) {
	return in.Add(vfs.Rule{Op: "openfile", Match: "*.log", Do: func() {}}),
		in.Add(vfs.Rule{Op: "close", Match: "*.log", Do: func() {}})
}

// TestHandlesBound: sealed segments are opened on demand; above the bound those not used lately and not pinned close,
// and Sweep closes what idles.
func TestHandlesBound(t *testing.T) {
	fs := vfs.Inject(newMem(t))
	o := options(fs)
	o.Handles = NewHandles(3)
	o.Cache = newCache(t)
	var segs []*Segment
	for i := range int64(8) {
		sealedLog(t, fs, 1000*i, 20)
		s, err := OpenSealed(testDir, ID{1000 * i}, o)
		ok(t, err)
		segs = append(segs, s)
	}
	opened, closed := openCount(fs)
	open := func() int { return opened.Hits() - closed.Hits() }
	if o.Handles.Len() != 0 {
		t.Fatal("OpenSealed left files open")
	}
	read := func(i int) {
		segs[i].TryPin()
		_, err := segs[i].Bytes(0, segs[i].Size())
		ok(t, err)
		segs[i].Unpin()
	}
	for i := range segs {
		read(i)
	}
	if o.Handles.Len() != 3 || open() != 3 {
		t.Fatalf("%d handles, %d files open", o.Handles.Len(), open())
	}
	// What was used since it came to the front gets another turn.
	for _, i := range []int{0, 1, 2} {
		read(i)
	}
	for i := range segs {
		segs[i].used.Store(i == 1)
	}
	read(3)
	read(4)
	for i, s := range segs {
		if is := s.handle.Load() != nil; is != (i == 1 || i == 3 || i == 4) {
			t.Fatalf("segment %d open: %v", i, is)
		}
	}
	// What is pinned stays, also above the bound.
	for _, s := range segs {
		s.TryPin()
		_, err := s.Bytes(0, 10)
		ok(t, err)
	}
	if o.Handles.Len() != 8 || open() != 8 {
		t.Fatalf("%d handles, %d files open while pinned", o.Handles.Len(), open())
	}
	for _, s := range segs {
		s.Unpin()
	}
	for i := range segs {
		read(i) // used, but above the bound nothing is opened, so nothing is closed
	}
	if n := o.Handles.Sweep(); n != 0 {
		t.Fatalf("Sweep closed %d that were used", n)
	}
	read(6)
	if n := o.Handles.Sweep(); n != 7 || open() != 1 {
		t.Fatalf("the second Sweep closed %d, %d open", n, open())
	}
	full := fs.Add(vfs.Rule{Op: "map", Err: syscall.ENOMEM})
	segs[2].TryPin()
	if _, err := segs[2].Bytes(0, 10); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("Bytes without room for a mapping: %v", err)
	}
	full.Remove()
	segs[2].Unpin()
	for _, s := range segs {
		s.Retire(false)
	}
	if o.Handles.Len() != 0 || open() != 0 {
		t.Fatalf("%d handles, %d files open at the end", o.Handles.Len(), open())
	}
}

// TestUnflushedSegmentStaysOpen: an error of write-back is told to open descriptors, so a sealed segment keeps its own
// until it was flushed.
func TestUnflushedSegmentStaysOpen(t *testing.T) {
	fs := vfs.Inject(newMem(t))
	o := options(fs)
	o.Handles = NewHandles(1)
	s := created(t, testDir, 0, o)
	g := newMaker(1, 0)
	g.fill(t, s, 20)
	ok(t, s.Seal())
	o.Handles.Sweep()
	if o.Handles.Sweep() != 0 || s.handle.Load() == nil || o.Handles.Len() != 0 {
		t.Fatal("a segment with unflushed bytes was closed")
	}
	ok(t, s.Sync())
	if o.Handles.Len() != 1 {
		t.Fatal("a flushed sealed segment is not in the list")
	}
	o.Handles.Sweep()
	if o.Handles.Sweep() != 1 || s.handle.Load() != nil {
		t.Fatal("an idle segment stays open")
	}
	flushes := fs.Add(vfs.Rule{Op: "datasync", Do: func() {}})
	ok(t, s.Sync())
	if flushes.Hits() != 0 {
		t.Fatal("what is durable was flushed again")
	}
	if !bytes.Equal(content(t, s), g.bytes()) {
		t.Fatal("other bytes after it was opened again")
	}
	s.Retire(false)
}

// TestReadersRetireAndEvict runs readers against an owner that rolls and retires and a list that closes: under the
// race detector, with memory made useless at unmap, no reader sees a byte that is not its segment's (I2).
func TestReadersRetireAndEvict(t *testing.T) {
	const rounds = 60
	var told faults
	o := options(newMem(t))
	o.Size = 64 << 10
	o.Handles = NewHandles(2)
	o.Cache = newCache(t)
	o.Fault = told.fault
	type view struct {
		segs []*Segment
		want [][]byte
	}
	var current atomic.Pointer[view]
	current.Store(&view{})
	var stop atomic.Bool
	var readers sync.WaitGroup
	for reader := range 3 {
		readers.Go(func() {
			for i := reader; !stop.Load(); i++ {
				v := current.Load()
				if len(v.segs) == 0 {
					continue
				}
				s, want := v.segs[i%len(v.segs)], v.want[i%len(v.segs)]
				if !s.TryPin() {
					continue // retired: the next view does not have it
				}
				b, err := s.Bytes(0, int64(len(want)))
				if err != nil || !bytes.Equal(b, want) {
					t.Errorf("reader %d: other bytes in segment %d, %v", reader, s.ID().Base, err)
				}
				if _, err := s.Find(s.NextOffset() - 1); err != nil {
					t.Error(err)
				}
				s.Unpin()
			}
		})
	}
	readers.Go(func() {
		for !stop.Load() {
			o.Handles.Sweep()
		}
	})
	g := newMaker(1, 0)
	for round := range rounds {
		s := created(t, testDir, g.next, o)
		first := len(g.list)
		g.fill(t, s, 8)
		var want []byte
		for _, m := range g.list[first:] {
			want = append(want, m.v...)
		}
		old := current.Load()
		next := &view{append(slices.Clone(old.segs), s), append(slices.Clone(old.want), want)}
		var gone *Segment
		if len(next.segs) > 4 {
			gone = next.segs[0]
			next.segs, next.want = next.segs[1:], next.want[1:]
		}
		current.Store(next)
		if len(next.segs) > 1 {
			before := next.segs[len(next.segs)-2]
			ok(t, before.Seal())
			ok(t, before.Sync())
		}
		if gone != nil {
			gone.Retire(round%2 == 0)
		}
	}
	stop.Store(true)
	readers.Wait()
	for _, s := range current.Load().segs {
		s.Retire(true)
	}
	if len(told.list) != 0 {
		t.Fatalf("faults: %v", told.list)
	}
	if o.Handles.Len() != 0 {
		t.Fatalf("%d handles left", o.Handles.Len())
	}
}

// TestEvictionNeverMeetsAPin closes one segment again and again between the reads of others.
func TestEvictionNeverMeetsAPin(t *testing.T) {
	o := options(newMem(t))
	o.Size = 4 << 10
	o.Handles = NewHandles(1)
	s := created(t, testDir, 0, o)
	v := newMaker(1, 0).batch(1, 200)
	_, err := s.Append(v)
	ok(t, err)
	ok(t, s.Sync())
	ok(t, s.Seal())
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				runtime.Gosched()
				s.TryPin()
				b, err := s.Bytes(0, int64(len(v)))
				if err != nil || !bytes.Equal(b, v) {
					t.Errorf("other bytes under a pin: %v", err)
					stop.Store(true)
				}
				s.Unpin()
			}
		})
	}
	closed := 0
	for i := 0; i < 500_000 && closed < 200; i++ {
		closed += o.Handles.Sweep()
		runtime.Gosched()
	}
	stop.Store(true)
	readers.Wait()
	s.Retire(false)
	if closed < 10 {
		t.Fatalf("closed %d times", closed)
	}
}

// TestFaultsOfRemovalAreTold: nobody waits for a removal, so its errors go to Options.Fault.
func TestFaultsOfRemovalAreTold(t *testing.T) {
	fs := vfs.Inject(newMem(t))
	var told faults
	o := options(fs)
	o.Fault = told.fault
	s := created(t, testDir, 0, o)
	fs.Add(vfs.Rule{Op: "remove", Err: os.ErrPermission})
	s.Retire(true)
	if told.count("remove") != 4 {
		t.Fatalf("told %v", told.list)
	}
}
