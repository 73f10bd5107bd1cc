package plog

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sekali/batch"
)

// TestDuplicateWaitsForItsOriginal is D3 and I7: a retry that arrives before the original is durable is answered when
// the original is, and not before.
func TestDuplicateWaitsForItsOriginal(t *testing.T) {
	r := newRig(t)
	first, err := r.log.Append(in(numbered(1, 0, 0, 3)))
	if err != nil {
		t.Fatal(err)
	}
	var round Round
	r.log.BeginSync(&round) // covers the original, not what comes now
	r.log.Append(in(numbered(2, 0, 0, 1)))
	again, err := r.log.Append(in(numbered(1, 0, 0, 3)))
	if err != nil || !again.Duplicate || again.Until != first.Until {
		t.Fatalf("%+v, %v", again, err)
	}
	var order []string
	r.log.AfterDurable(4, &Waiter{Fn: func(error) { order = append(order, "other") }})
	r.log.AfterDurable(again.Until, &Waiter{Fn: func(error) { order = append(order, "duplicate") }})
	r.log.AfterDurable(first.Until, &Waiter{Fn: func(error) { order = append(order, "original") }})
	if len(order) > 0 || r.log.o.Load.Waiting.Load() != 3 {
		t.Fatalf("answered before the flush: %v", order)
	}
	if n := r.log.EndSync(&round, round.Datasync()); n != 2 {
		t.Fatalf("fired %d", n)
	}
	if !slices.Equal(order, []string{"duplicate", "original"}) {
		t.Fatalf("after the first round: %v", order)
	}
	r.sync()
	if len(order) != 3 || r.log.o.Load.Waiting.Load() != 0 {
		t.Fatalf("after the second round: %v", order)
	}
	r.log.AfterDurable(4, &Waiter{Fn: func(err error) { order = append(order, "at once") }})
	if len(order) != 4 {
		t.Fatal("what is durable already was not answered at once")
	}
}

// TestWaitersFireInOrder: whatever the order of arrival, waiters fire by offset, each once, up to the watermark.
func TestWaitersFireInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		for i := range int32(20) {
			r.log.Append(in(numbered(1, 0, i, 1)))
		}
		var got []int64
		want := rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 30).Draw(rt, "ends")
		for _, end := range want {
			r.log.AfterDurable(end, &Waiter{Fn: func(error) { got = append(got, end) }})
		}
		r.sync()
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("fired %v, want %v", got, want)
		}
	})
}

// TestReadableFollowsItsIsolationLevel: read_uncommitted waiters wake with the high watermark, read_committed ones with
// the stable offset.
func TestReadableFollowsItsIsolationLevel(t *testing.T) {
	r := newRig(t)
	var plain, committed int
	wait := func(above int64) {
		r.log.AfterReadable(above, false, &Waiter{Fn: func(error) { plain++ }})
		r.log.AfterReadable(above, true, &Waiter{Fn: func(error) { committed++ }})
	}
	wait(0)
	r.openTransaction(5, "a")
	if plain+committed != 0 {
		t.Fatal("woken by undurable data")
	}
	r.sync()
	if plain != 1 || committed != 0 {
		t.Fatalf("open transaction: %d, %d", plain, committed)
	}
	r.log.AppendMarker(batch.Marker{PID: 5, CoordEpoch: 1, Commit: true}, false)
	if committed != 0 {
		t.Fatal("I11: woken by an undurable marker")
	}
	r.sync()
	if committed != 1 {
		t.Fatal("not woken by the marker")
	}
	wait(1)
	if plain != 2 || committed != 2 {
		t.Fatalf("readable already: %d, %d", plain, committed)
	}
	cancel := r.log.AfterReadable(2, false, &Waiter{Fn: func(error) { t.Error("fired after its cancel") }})
	cancel()
	cancel()
	r.p(1, 0, 0, 1)
	if r.log.highWait.n != 0 || r.log.highWait.first != nil {
		t.Fatalf("a cancelled waiter stays on the list: %+v", r.log.highWait)
	}
}

// TestEndOfServiceFiresAll: Close flushes first and answers with success, Delete and a fault answer with their error.
func TestEndOfServiceFiresAll(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(r *rig)
		durable error
		read    error
	}{
		"close":   {func(r *rig) { r.close() }, nil, ErrClosed},
		"delete":  {func(r *rig) { r.log.Delete(t.Context()) }, ErrDeleted, ErrDeleted},
		"offline": {func(r *rig) { r.mem.FailSync("*.log", 1, errIO); r.sync() }, ErrOffline, ErrOffline},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			out, _ := r.log.Append(in(numbered(1, 0, 0, 2)))
			fired := map[string]error{}
			r.log.AfterDurable(out.Until, &Waiter{Fn: func(err error) { fired["durable"] = err }})
			r.log.AfterReadable(10, false, &Waiter{Fn: func(err error) { fired["high"] = err }})
			r.log.AfterReadable(10, true, &Waiter{Fn: func(err error) { fired["stable"] = err }})
			c.end(r)
			if len(fired) != 3 || !errors.Is(fired["durable"], c.durable) || !errors.Is(fired["high"], c.read) ||
				!errors.Is(fired["stable"], c.read) {
				t.Fatalf("fired %v", fired)
			}
			late := errors.New("none")
			r.log.AfterDurable(out.Until+5, &Waiter{Fn: func(err error) { late = err }})
			if !errors.Is(late, c.read) {
				t.Fatalf("a late waiter got %v", late)
			}
			if _, err := r.log.Append(in(numbered(1, 0, 2, 1))); !errors.Is(err, c.read) {
				t.Fatalf("append: %v", err)
			}
			if err := r.log.Read(ReadIn{BytesMax: 100}, new(Fetch)); !errors.Is(err, c.read) {
				t.Fatalf("read: %v", err)
			}
		})
	}
}

// TestFireAndCancelMeet: of a fire and a cancel at the same time exactly one wins. A waiter whose cancel has won is
// armed again at once; one whose cancel has lost, after its Fn.
func TestFireAndCancelMeet(t *testing.T) {
	r := newRig(t)
	var armed, fired, cancelled atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		wg.Go(func() {
			w := &Waiter{}
			for n := int64(0); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				done := make(chan struct{})
				w.Fn = func(error) { fired.Add(1); close(done) }
				armed.Add(1)
				r.log.AfterReadable(r.log.Offsets().End-n%2, i%2 == 0, w)
				if n%8 < 4 {
					runtime.Gosched()
				}
				if r.log.cancel(w) {
					cancelled.Add(1)
				} else {
					<-done
				}
			}
		})
	}
	for i := int32(0); i < 100_000 && (fired.Load() < 200 || cancelled.Load() < 200); i++ {
		r.log.Append(in(numbered(1, 0, i, 1)))
		r.sync()
		runtime.Gosched()
	}
	close(stop)
	wg.Wait()
	if armed.Load() != fired.Load()+cancelled.Load() || cancelled.Load() == 0 || fired.Load() == 0 {
		t.Fatalf("armed %d, fired %d, cancelled %d", armed.Load(), fired.Load(), cancelled.Load())
	}
	if n := r.log.highWait.n + r.log.stableWait.n; n != 0 {
		t.Fatalf("%d waiters left", n)
	}
}
