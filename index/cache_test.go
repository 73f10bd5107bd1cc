package index

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCache(t *testing.T, bytes int64) *Cache {
	t.Helper()
	c, err := NewCache(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func sealedOf(t *testing.T, n int) *Sealed {
	t.Helper()
	x := NewActive(0, n+1)
	for i := range n {
		x.Add(Entry{Rel: uint32(i + 1), Pos: uint32(i + 1), MaxTime: NoTime})
	}
	s, err := DecodeSealed(AppendOffsetIndex(nil, x, 0, n), nil, nil, 0, int64(n+2))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCacheKeepsAndForgets(t *testing.T) {
	c := newCache(t, 1<<20)
	want := sealedOf(t, 10)
	loads := 0
	load := func() (*Sealed, error) { loads++; return want, nil }
	key := c.NextKey()
	for range 100 {
		got, err := c.Get(key, load)
		if err != nil || got != want {
			t.Fatal(got, err)
		}
		c.r.Wait()
	}
	if loads != 1 {
		t.Fatalf("%d loads, want 1", loads)
	}
	c.Drop(key)
	c.r.Wait()
	if _, err := c.Get(key, load); err != nil || loads != 2 {
		t.Fatalf("after Drop: %d loads, %v", loads, err)
	}
	if c.NextKey() == key {
		t.Fatal("a key was given twice")
	}
}

func TestCacheStaysWithinItsBytes(t *testing.T) {
	const bytes = 64 << 10
	c := newCache(t, bytes)
	for range 200 {
		s := sealedOf(t, 500)
		if _, err := c.Get(c.NextKey(), func() (*Sealed, error) { return s, nil }); err != nil {
			t.Fatal(err)
		}
	}
	c.r.Wait()
	held := int64(0)
	c.r.IterValues(func(s *Sealed) bool { held += s.Cost(); return false })
	if held > bytes || held == 0 {
		t.Fatalf("%d bytes held, want 1..%d", held, bytes)
	}
}

func TestCacheSharesOneLoadAndItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, 1<<20)
		boom := errors.New("boom")
		gate := make(chan struct{})
		loads, failed := atomic.Int32{}, atomic.Int32{}
		key := c.NextKey()
		for range 5 {
			go func() {
				_, err := c.Get(key, func() (*Sealed, error) { loads.Add(1); <-gate; return nil, boom })
				if errors.Is(err, boom) {
					failed.Add(1)
				}
			}()
		}
		synctest.Wait() // one loads, four wait for it
		close(gate)
		synctest.Wait()
		if loads.Load() != 1 || failed.Load() != 5 {
			t.Fatalf("%d loads, %d callers got the error, want 1 and 5", loads.Load(), failed.Load())
		}
		s, err := c.Get(key, func() (*Sealed, error) { return sealedOf(t, 1), nil })
		if err != nil || s.Len() != 1 {
			t.Fatalf("a failed load was remembered: %v", err)
		}
	})
}

func TestClosedCacheLoads(t *testing.T) {
	c, err := NewCache(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	s := sealedOf(t, 3)
	if got, err := c.Get(1, func() (*Sealed, error) { return s, nil }); err != nil || got != s {
		t.Fatal(got, err)
	}
	c.Drop(1)
}
