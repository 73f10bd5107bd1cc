package coord

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a PIDs over a number in memory; delay is slept (virtual time) before it answers.
type counter struct {
	mu    sync.Mutex
	next  int64
	calls int
	delay time.Duration
	fail  []error // taken by the calls in order; nil: no failure
}

func (c *counter) Reserve(n int64) (int64, error) {
	if c.delay > 0 {
		time.Sleep(c.delay)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if len(c.fail) > 0 {
		err := c.fail[0]
		c.fail = c.fail[1:]
		if err != nil {
			c.next += n // the worst kind: it failed and may have happened
			return 0, err
		}
	}
	first := c.next
	c.next += n
	return first, nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func mustNext(t *testing.T, p *ProducerIDs, want int64) {
	t.Helper()
	got, err := p.Next()
	if err != nil || got != want {
		t.Fatalf("Next() = %d, %v; want %d", got, err, want)
	}
}

func TestNextIsDenseWithinAndAcrossBlocks(t *testing.T) {
	for _, block := range []int64{1, 2, 9, 10, 11, 1000} {
		c := &counter{next: 5000}
		p := NewProducerIDs(c, block)
		if n := c.count(); n != 0 {
			t.Fatalf("block %d: %d reservations before the first Next", block, n)
		}
		for i := range 3*block + 2 {
			mustNext(t, p, 5000+i)
		}
		p.Close()
	}
}

func TestBlockIsAskedForAtNineTenths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		p := NewProducerIDs(c, 100)
		for i := range int64(90) {
			mustNext(t, p, i)
		}
		synctest.Wait()
		if n := c.count(); n != 1 {
			t.Fatalf("%d reservations after 90 ids of 100, want 1", n)
		}
		mustNext(t, p, 90)
		synctest.Wait()
		if n := c.count(); n != 2 {
			t.Fatalf("%d reservations after 91 ids of 100, want 2", n)
		}
		p.Close()
	})
}

func TestNextDoesNotWaitWhileIDsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{delay: time.Second}
		p := NewProducerIDs(c, 100)
		mustNext(t, p, 0)
		began := time.Now()
		for i := int64(1); i < 100; i++ {
			mustNext(t, p, i)
		}
		if d := time.Since(began); d != 0 {
			t.Fatalf("99 ids of a durable block took %v", d)
		}
		mustNext(t, p, 100)
		if d := time.Since(began); d != time.Second {
			t.Fatalf("the first id of the next block came after %v, want after its reservation of 1s", d)
		}
		p.Close()
	})
}

func TestFailedReservationIsToldAndTriedAgain(t *testing.T) {
	disk := errors.New("disk")
	c := &counter{fail: []error{disk, nil}}
	p := NewProducerIDs(c, 10)
	if _, err := p.Next(); !errors.Is(err, disk) {
		t.Fatalf("Next() error %v, want %v", err, disk)
	}
	mustNext(t, p, 10) // 0..9 may have been reserved and stay unused
	p.Close()
	if _, err := p.Next(); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Close: %v, want ErrClosed", err)
	}
}

func TestFailureAheadDoesNotSpoilTheCurrentBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := errors.New("disk")
		c := &counter{fail: []error{nil, disk, nil}}
		p := NewProducerIDs(c, 10)
		for i := range int64(10) {
			mustNext(t, p, i)
			synctest.Wait()
		}
		mustNext(t, p, 20) // the block ahead failed with one id left; 10..19 may have been reserved
		if n := c.count(); n != 3 {
			t.Fatalf("%d reservations, want 3", n)
		}
		p.Close()
	})
}

func TestExhausted(t *testing.T) {
	for _, first := range []int64{-1, math.MaxInt64 - 9} {
		p := NewProducerIDs(&counter{next: first}, 10)
		if _, err := p.Next(); !errors.Is(err, ErrExhausted) {
			t.Errorf("first %d: error %v, want ErrExhausted", first, err)
		}
		p.Close()
	}
	p := NewProducerIDs(&counter{next: math.MaxInt64 - 10}, 10)
	for i := range int64(10) {
		mustNext(t, p, math.MaxInt64-10+i)
	}
	if _, err := p.Next(); !errors.Is(err, ErrExhausted) {
		t.Errorf("after the last id: error %v, want ErrExhausted", err)
	}
	p.Close()
}

func TestNextFromManyGoroutinesNeverRepeats(t *testing.T) {
	const workers, each = 8, 5000
	c := &counter{}
	p := NewProducerIDs(c, 100)
	ids := make([][]int64, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				id, err := p.Next()
				if err != nil {
					t.Error(err)
					return
				}
				ids[w] = append(ids[w], id)
			}
		})
	}
	wg.Wait()
	p.Close()
	seen := make(map[int64]bool)
	for w := range ids {
		last := int64(-1)
		for _, id := range ids[w] {
			if seen[id] {
				t.Fatalf("id %d given twice", id)
			}
			if id <= last {
				t.Fatalf("one caller saw %d after %d", id, last)
			}
			seen[id], last = true, id
		}
	}
	if len(seen) != workers*each {
		t.Fatalf("%d ids, want %d", len(seen), workers*each)
	}
	if want := int64(len(seen)); c.next < want || c.next > want+200 {
		t.Fatalf("reserved up to %d for %d ids: blocks were wasted", c.next, want)
	}
}

// Ids found in use are skipped, in one step however many they are, and no start wastes ids that need not be skipped.
func TestAboveIDsInUse(t *testing.T) {
	src := &counter{}
	p := NewProducerIDs(src, 10)
	defer p.Close()
	next := func(want int64) {
		t.Helper()
		if id, err := p.Next(); err != nil || id != want {
			t.Fatalf("id %d, %v; want %d", id, err, want)
		}
	}
	p.Above(-1)
	next(0)
	p.Above(3)
	next(4)
	p.Above(2) // nothing new
	next(5)
	p.Above(1_000_000)
	next(1_000_001)
	next(1_000_002)
	if src.calls > 4 {
		t.Fatalf("%d reservations", src.calls)
	}

	again := &counter{next: src.next}
	q := NewProducerIDs(again, 10)
	defer q.Close()
	q.Above(1_000_002)
	if id, err := q.Next(); err != nil || id != src.next || again.next != src.next+10 {
		t.Fatalf("id %d, %v, counter %d", id, err, again.next)
	}

	// A made-up id uses nothing up, and hides none of those that count.
	for _, madeUp := range []int64{FoundPIDsBelow, math.MaxInt64 - 1, math.MaxInt64} {
		plain := &counter{}
		full := NewProducerIDs(plain, 10)
		full.Above(7)
		full.Above(madeUp)
		if id, err := full.Next(); err != nil || id != 8 || plain.next != 10 {
			t.Fatalf("after %d: id %d, %v, counter %d", madeUp, id, err, plain.next)
		}
		full.Close()
	}
	highest := &counter{}
	half := NewProducerIDs(highest, 10)
	defer half.Close()
	half.Above(FoundPIDsBelow - 1)
	for i := range int64(100) {
		if id, err := half.Next(); err != nil || id != FoundPIDsBelow+i {
			t.Fatalf("id %d, %v; half of all ids are left", id, err)
		}
	}
}
