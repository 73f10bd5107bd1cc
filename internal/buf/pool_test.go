package buf

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sekali/internal/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClasses(t *testing.T) {
	if classSize(0) != classMin || classSize(classes-1) != classMax {
		t.Fatalf("classes span %d..%d, want %d..%d", classSize(0), classSize(classes-1), classMin, classMax)
	}
	for c := range classes {
		size := classSize(c)
		if classOf(size) != c {
			t.Fatalf("classOf(%d) = %d, want %d", size, classOf(size), c)
		}
		if c+1 < classes && classOf(size+1) != c+1 {
			t.Fatalf("classOf(%d) = %d, want %d", size+1, classOf(size+1), c+1)
		}
	}
	for n, want := range map[int]int{0: 0, 1: 0, 512: 0, 513: 1, 640: 1, 1024: 4, 16 << 10: 20, classMax + 1: -1} {
		if got := classOf(n); got != want {
			t.Fatalf("classOf(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestGetFitsAndWastesLittle(t *testing.T) {
	p := New(1 << 30)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 2*classMax).Draw(t, "n")
		b := p.Get(n)
		if len(b) != n || cap(b) < n {
			t.Fatalf("Get(%d): len %d cap %d", n, len(b), cap(b))
		}
		if n > classMin && n <= classMax && cap(b) > n+n/4+1 {
			t.Fatalf("Get(%d) wastes %d bytes", n, cap(b)-n)
		}
		p.Put(b)
	})
}

func TestReuseGrowTrim(t *testing.T) {
	p := New(1 << 20)
	b := p.Get(1000)
	b[0] = 7
	first := &b[0]
	p.Put(b)
	if got := p.Usage().Idle; got != 1024 {
		t.Fatalf("idle %d, want 1024", got)
	}
	b = p.Get(1024)
	if &b[0] != first {
		t.Fatal("an idle buffer of the class was not reused")
	}
	if check.Costly && b[0] != poison {
		t.Fatalf("byte %#x after Put, want the poison", b[0])
	}
	for i := range b {
		b[i] = byte(i)
	}
	g := p.Grow(b[:600], 1024)
	if &g[0] != &b[0] || len(g) != 600 {
		t.Fatal("Grow within the capacity must keep the buffer")
	}
	g = p.Grow(g, 5000)
	if len(g) != 600 || cap(g) < 5000 {
		t.Fatalf("grown to len %d cap %d", len(g), cap(g))
	}
	for i := range g {
		if g[i] != byte(i) {
			t.Fatalf("byte %d is %#x after Grow", i, g[i])
		}
	}
	p.Put(g)
	p.Put(make([]byte, 1000))       // no class has this capacity
	p.Put(make([]byte, classMax+1)) // too large to keep
	if got := p.Usage().Idle; got != 1024+5120 {
		t.Fatalf("idle %d, want %d", got, 1024+5120)
	}
	p.Trim()
	if got := p.Usage().Idle; got != 0 {
		t.Fatalf("idle %d after Trim", got)
	}
}

func TestIdleIsBounded(t *testing.T) {
	p := New(1 << 20) // keeps 256 KiB
	var bs [][]byte
	for range 100 {
		bs = append(bs, p.Get(64<<10))
	}
	for _, b := range bs {
		p.Put(b)
	}
	if got := p.Usage().Idle; got != 256<<10 {
		t.Fatalf("idle %d, want %d", got, 256<<10)
	}
	small := New(1 << 30)
	bs = bs[:0]
	for range idlePerList + 10 {
		bs = append(bs, small.Get(512))
	}
	for _, b := range bs {
		small.Put(b)
	}
	if got := small.Usage().Idle; got != idlePerList*512 {
		t.Fatalf("idle %d, want %d", got, idlePerList*512)
	}
}

func TestBudgetIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100)
		ctx := t.Context()
		if n, err := p.Acquire(ctx, 70); n != 70 || err != nil {
			t.Fatal(n, err)
		}
		var mu sync.Mutex
		var order []int64
		ask := func(n int64) {
			go func() {
				if c, err := p.Acquire(ctx, n); c != n || err != nil {
					t.Errorf("Acquire(%d): %d, %v", n, c, err)
				}
				mu.Lock()
				order = append(order, n)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		ask(60)
		ask(10) // would fit, but must not overtake
		if u := p.Usage(); u.Waiting != 2 || u.InFlight != 70 {
			t.Fatalf("%+v", u)
		}
		if _, ok := p.TryAcquire(1); ok {
			t.Fatal("TryAcquire overtook those who wait")
		}
		p.Release(70)
		synctest.Wait()
		if u := p.Usage(); len(order) != 2 || u.InFlight != 70 || u.Waiting != 0 {
			t.Fatalf("%v %+v", order, u)
		}
		if n, ok := p.TryAcquire(30); !ok || n != 30 {
			t.Fatal("30 bytes are free")
		}
		if _, ok := p.TryAcquire(1); ok {
			t.Fatal("nothing is free")
		}
	})
}

func TestMoreThanTheBudgetRunsAlone(t *testing.T) {
	p := New(100)
	n, err := p.Acquire(t.Context(), 1<<40)
	if n != 100 || err != nil {
		t.Fatal(n, err)
	}
	if _, ok := p.TryAcquire(1); ok {
		t.Fatal("the whole budget is taken")
	}
	p.Release(n)
	if u := p.Usage(); u.InFlight != 0 {
		t.Fatalf("%+v", u)
	}
	if n, err := p.Acquire(t.Context(), 0); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

func TestGivingUpLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(100)
		if _, ok := p.TryAcquire(50); !ok {
			t.Fatal("must fit")
		}
		why := errors.New("connection closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		go func() { _, err := p.Acquire(ctx, 80); done <- err }()
		synctest.Wait()
		go func() { _, err := p.Acquire(t.Context(), 40); done <- err }()
		synctest.Wait()
		cancel(why)
		a, b := <-done, <-done
		if (a != nil) == (b != nil) || !errors.Is(errors.Join(a, b), why) {
			t.Fatalf("errors %v, %v; want one of them the cause", a, b)
		}
		if u := p.Usage(); u.InFlight != 90 || u.Waiting != 0 {
			t.Fatalf("%+v", u)
		}
		if _, err := p.Acquire(ctx, 20); !errors.Is(err, why) {
			t.Fatalf("Acquire with a dead context on a full budget: %v", err)
		}
	})
}

func TestReleaseTooMuchIsAViolation(t *testing.T) {
	p := New(100)
	defer func() {
		if _, ok := recover().(*check.Violation); !ok {
			t.Fatal("no violation")
		}
	}()
	p.Release(1)
}

func TestBudgetUnderLoad(t *testing.T) {
	p := New(1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	held, most := int64(0), int64(0)
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				n, err := p.Acquire(t.Context(), int64((g*131+i*17)%900+1))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				held += n
				most = max(most, held)
				mu.Unlock()
				b := p.Get(int(n))
				b[0] = byte(g)
				if b[0] != byte(g) {
					t.Error("buffer shared by two")
				}
				p.Put(b)
				mu.Lock()
				held -= n
				mu.Unlock()
				p.Release(n)
			}
		})
	}
	wg.Wait()
	if u := p.Usage(); most > 1000 || u.InFlight != 0 || u.Waiting != 0 {
		t.Fatalf("most %d of 1000, %+v", most, u)
	}
}

func TestNoAllocations(t *testing.T) {
	p := New(1 << 20)
	p.Put(p.Get(16 << 10))
	ctx := t.Context()
	n := testing.AllocsPerRun(200, func() {
		c, err := p.Acquire(ctx, 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		p.Put(p.Get(16 << 10))
		p.Release(c)
	})
	if n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}
