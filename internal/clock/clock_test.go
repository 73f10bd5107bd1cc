package clock

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Real()
		if c.Mono() != 0 {
			t.Fatalf("Mono %v at start, want 0", c.Mono())
		}
		wall := c.Wall()
		var fired atomic.Int32
		tm := c.AfterFunc(10*time.Millisecond, func() { fired.Add(1) })
		Sleep(c, 9*time.Millisecond)
		synctest.Wait()
		if fired.Load() != 0 {
			t.Fatal("fired early")
		}
		Sleep(c, time.Millisecond)
		synctest.Wait()
		if fired.Load() != 1 || tm.Stop() {
			t.Fatalf("fired %d times, want 1, and Stop false afterwards", fired.Load())
		}
		tm.Reset(5 * time.Millisecond)
		if !tm.Stop() {
			t.Fatal("Stop of an armed timer must be true")
		}
		Sleep(c, 20*time.Millisecond)
		if fired.Load() != 1 || c.Mono() != 30*time.Millisecond || c.Wall() != wall+30 {
			t.Fatalf("fired %d, mono %v, wall +%d", fired.Load(), c.Mono(), c.Wall()-wall)
		}
	})
}

func TestSimOrderAndTime(t *testing.T) {
	s := NewSim(1000)
	var got []string
	at := func(name string, d time.Duration) Timer {
		return s.AfterFunc(d, func() { got = append(got, name+"@"+s.Mono().String()) })
	}
	at("c", 30*time.Millisecond)
	at("a", 10*time.Millisecond)
	at("b", 10*time.Millisecond)
	stopped := at("x", 20*time.Millisecond)
	s.AfterFunc(15*time.Millisecond, func() { at("nested", 5*time.Millisecond) })
	at("late", 31*time.Millisecond)
	if !stopped.Stop() || stopped.Stop() {
		t.Fatal("Stop: true once, then false")
	}
	if next, ok := s.Next(); !ok || next != 10*time.Millisecond {
		t.Fatalf("Next %v %v", next, ok)
	}
	s.Advance(30 * time.Millisecond)
	want := []string{"a@10ms", "b@10ms", "nested@20ms", "c@30ms"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if s.Mono() != 30*time.Millisecond || s.Wall() != 1030 || s.Pending() != 1 {
		t.Fatalf("mono %v wall %d pending %d", s.Mono(), s.Wall(), s.Pending())
	}
}

func TestSimDueAtOnceWaitsForAdvance(t *testing.T) {
	s := NewSim(0)
	n := 0
	s.AfterFunc(-time.Second, func() { n++ })
	if n != 0 {
		t.Fatal("ran inside AfterFunc")
	}
	s.Advance(0)
	if n != 1 || s.Mono() != 0 {
		t.Fatalf("ran %d times at %v", n, s.Mono())
	}
}

func TestSimResetFromItsOwnFunction(t *testing.T) {
	s := NewSim(0)
	n := 0
	var tm Timer
	tm = s.AfterFunc(time.Second, func() {
		n++
		tm.Reset(time.Second)
	})
	s.Advance(10 * time.Second)
	if n != 10 || s.Pending() != 1 {
		t.Fatalf("ticked %d times, want 10; pending %d, want 1", n, s.Pending())
	}
}

func TestSimWallJump(t *testing.T) {
	s := NewSim(5000)
	n := 0
	s.AfterFunc(time.Second, func() { n++ })
	s.Advance(500 * time.Millisecond)
	s.SetWall(100)
	if s.Wall() != 100 || s.Mono() != 500*time.Millisecond {
		t.Fatalf("wall %d mono %v", s.Wall(), s.Mono())
	}
	s.Advance(499 * time.Millisecond)
	if n != 0 {
		t.Fatal("a jump of the wall clock moved a timer")
	}
	s.Advance(time.Millisecond)
	if n != 1 || s.Wall() != 600 {
		t.Fatalf("fired %d, wall %d", n, s.Wall())
	}
}

func TestSimulated(t *testing.T) {
	if Simulated(Real()) || !Simulated(NewSim(0)) {
		t.Fatal("Simulated tells them apart wrongly")
	}
}

func TestSimConcurrentUse(t *testing.T) {
	s := NewSim(0)
	var wg sync.WaitGroup
	var mu sync.Mutex
	fired := 0
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				s.AfterFunc(time.Duration(i%5), func() { mu.Lock(); fired++; mu.Unlock() })
				s.Advance(1)
				s.Wall()
			}
		})
	}
	wg.Wait()
	s.Advance(5)
	if fired != 1600 || s.Pending() != 0 {
		t.Fatalf("fired %d of 1600, pending %d", fired, s.Pending())
	}
}

// Any splitting of a span into advances fires the same timers in the same order.
func TestSimSplitsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := rapid.SliceOf(rapid.IntRange(0, 50)).Draw(t, "timers")
		steps := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "steps")
		run := func(steps []int) (order []int) {
			s := NewSim(0)
			for i, d := range ds {
				s.AfterFunc(time.Duration(d), func() {
					order = append(order, i)
					if i%3 == 0 {
						s.AfterFunc(time.Duration(d), func() { order = append(order, 1000+i) })
					}
				})
			}
			for _, d := range steps {
				s.Advance(time.Duration(d))
			}
			return order
		}
		sum := 0
		for _, d := range steps {
			sum += d
		}
		if one, many := run([]int{sum}), run(append(steps, 0)); !slices.Equal(one, many) {
			t.Fatalf("one advance: %v, many: %v", one, many)
		}
	})
}
