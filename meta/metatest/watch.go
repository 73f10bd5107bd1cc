package metatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sekali/meta"
)

// follow reads n changes and fails on a gap.
func follow(t *testing.T, ch <-chan meta.Change, after meta.Rev, n int) []meta.Change {
	t.Helper()
	var got []meta.Change
	for range n {
		c, ok := <-ch
		if !ok {
			t.Errorf("watch ended after %d of %d changes", len(got), n)
			return got
		}
		if c.Rev != after+1 {
			t.Errorf("revision %d follows %d", c.Rev, after)
		}
		after = c.Rev
		got = append(got, c)
	}
	return got
}

// testWatchOrder has several watchers follow several writers: each sees every revision, whole and in order.
func testWatchOrder(t *testing.T, h Harness) {
	s := open(t, h)
	const writers, each, watchers = 4, 50, 3
	var wg sync.WaitGroup
	for range watchers {
		ch, err := s.Watch(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			seen := map[string]int{}
			for _, c := range follow(t, ch, 0, writers*each) {
				if len(c.Ops) != 2 || c.Ops[0].Key+"'" != c.Ops[1].Key {
					t.Errorf("revision %d came in parts: %v", c.Rev, c.Ops)
				}
				seen[c.Ops[0].Key]++
				if want := fmt.Sprint(seen[c.Ops[0].Key]); string(c.Ops[0].Value) != want {
					t.Errorf("%s is %s, want %s", c.Ops[0].Key, c.Ops[0].Value, want)
				}
			}
		})
	}
	for w := range writers {
		wg.Go(func() {
			for i := 1; i <= each; i++ {
				v := []byte(fmt.Sprint(i))
				k := fmt.Sprintf("w%d", w)
				if _, err := s.Txn(t.Context(), nil, []meta.Op{{Key: k, Value: v}, {Key: k + "'", Value: v}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func testWatchFrom(t *testing.T, h Harness) {
	s := open(t, h)
	for i := range 5 {
		put(t, s, "k", fmt.Sprint(i))
	}
	for after := meta.Rev(0); after <= 5; after++ {
		ctx, cancel := context.WithCancel(t.Context())
		ch, err := s.Watch(ctx, after)
		if err != nil {
			t.Fatal(err)
		}
		got := follow(t, ch, after, int(5-after))
		for i, c := range got {
			if want := fmt.Sprint(int(after) + i); string(c.Ops[0].Value) != want {
				t.Errorf("after %d: change %d holds %s, want %s", after, i, c.Ops[0].Value, want)
			}
		}
		cancel()
		for range ch {
			t.Error("a change after the last one")
		}
	}
}

func testWatchCompacted(t *testing.T, h Harness) {
	s := open(t, h)
	put(t, s, "k", "1")
	slow, err := s.Watch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	h.Forget(t, s)
	if _, err := s.Watch(t.Context(), 0); !errors.Is(err, meta.ErrCompacted) {
		t.Fatalf("watching forgotten changes: %v", err)
	}
	last := meta.Rev(0)
	for c := range slow {
		if c.Rev != last+1 {
			t.Fatalf("a slow watcher saw %d after %d", c.Rev, last)
		}
		last = c.Rev
		if _, rev := snapshot(t, s); last == rev {
			t.Fatal("a watcher that never read lost nothing: nothing was forgotten")
		}
	}
	_, rev := snapshot(t, s)
	ch, err := s.Watch(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	next := put(t, s, "k", "after")
	if c := <-ch; c.Rev != next {
		t.Fatalf("revision %d, want %d", c.Rev, next)
	}
}

func testWatchEnds(t *testing.T, h Harness) {
	s := h.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	a, err := s.Watch(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, ok := <-a; ok {
		t.Fatal("a change from nothing")
	}
	b, err := s.Watch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	h.Close(t, s)
	if _, ok := <-b; ok {
		t.Fatal("a change after the end")
	}
}

func testSession(t *testing.T, h Harness) {
	s := h.Open(t)
	a, err := s.OpenSession(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.OpenSession(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenSession(t.Context(), 0); !errors.Is(err, meta.ErrInvalid) {
		t.Fatalf("a session without a time to live: %v", err)
	}
	lost := func(x meta.Session) bool {
		select {
		case <-x.Lost():
			return true
		default:
			return false
		}
	}
	if lost(a) || lost(b) {
		t.Fatal("a session is lost from the beginning")
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !lost(a) || lost(b) {
		t.Fatal("closing a session ends that one alone")
	}
	h.Close(t, s)
	<-b.Lost()
}

func testBarrier(t *testing.T, h Harness) {
	s := open(t, h)
	for i := range 10 {
		want := put(t, s, "k", fmt.Sprint(i))
		if rev, err := s.Barrier(t.Context()); err != nil || rev < want {
			t.Fatalf("barrier %d, %v; want at least %d", rev, err, want)
		}
		if _, rev := snapshot(t, s); rev < want {
			t.Fatalf("snapshot at %d, want at least %d", rev, want)
		}
	}
}

func testContext(t *testing.T, h Harness) {
	s := open(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Txn(ctx, nil, []meta.Op{{Key: "k", Value: []byte{}}}); !errors.Is(err, context.Canceled) ||
		errors.Is(err, meta.ErrUnknown) {
		t.Errorf("txn: %v", err)
	}
	if _, _, err := s.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := s.Watch(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
	if _, err := s.OpenSession(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("session: %v", err)
	}
	if _, err := s.Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("barrier: %v", err)
	}
	if _, rev := snapshot(t, s); rev != 0 {
		t.Errorf("a cancelled transaction happened: revision %d", rev)
	}
}

func testClosed(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "k", "v")
	h.Close(t, s)
	if _, err := s.Txn(t.Context(), nil, []meta.Op{{Key: "k", Value: []byte{}}}); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("txn: %v", err)
	}
	if _, _, err := s.Snapshot(t.Context()); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := s.Watch(t.Context(), 0); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("watch: %v", err)
	}
	if _, err := s.OpenSession(t.Context(), time.Minute); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("session: %v", err)
	}
	if _, err := s.Barrier(t.Context()); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("barrier: %v", err)
	}
}
