package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"sekali/internal/clock"
)

// TestBudgetNeverLocks: requests that hold a part and wait for more do not wait for one another, however little there
// is, and in the end nothing is charged.
func TestBudgetNeverLocks(t *testing.T) {
	b := newBudget(1000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				c, err := b.begin(t.Context(), 100)
				if err != nil {
					t.Error(err)
					return
				}
				for range 4 {
					if err := b.grow(t.Context(), &c, 300); err != nil {
						t.Error(err)
						return
					}
					if u := b.all.Usage(); u.InFlight > 1000 {
						t.Errorf("%d bytes charged of 1000", u.InFlight)
					}
				}
				b.release(&c)
			}
		})
	}
	wg.Wait()
	if u := b.all.Usage(); u.InFlight != 0 || len(b.over) != 0 {
		t.Fatalf("%d bytes charged, %d beyond", u.InFlight, len(b.over))
	}
}

// TestBudgetOneBeyond: one request at a time goes beyond the budget; the others wait for it, or for room, or for the
// end of their context.
func TestBudgetOneBeyond(t *testing.T) {
	b := newBudget(100)
	ctx, cancel := context.WithCancelCause(t.Context())
	one, _ := b.begin(ctx, 40)
	two, _ := b.begin(ctx, 40)
	if err := b.grow(ctx, &one, 40); err != nil || !one.over {
		t.Fatalf("the first: beyond %v, %v", one.over, err)
	}
	got := make(chan error, 1)
	go func() { got <- b.grow(ctx, &two, 40) }()
	select {
	case err := <-got:
		t.Fatalf("a second one beyond the budget: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	b.release(&one)
	if err := <-got; err != nil || two.n+int64(len(b.over))*100 < 80 {
		t.Fatalf("room, but %d charged: %v", two.n, err)
	}
	three, _ := b.begin(ctx, 10)
	for !three.over && len(b.over) == 0 {
		if err := b.grow(ctx, &three, 10); err != nil {
			t.Fatal(err)
		}
	}
	four := charge{}
	go func() { got <- b.grow(ctx, &four, 90) }()
	stop := errors.New("stop")
	cancel(stop)
	if err := <-got; !errors.Is(err, stop) {
		t.Fatalf("%v, want the cause of the context", err)
	}
}

// TestClaimsKeepNobodyOut: connections that claim the largest frames and send little of them take no more of the budget
// than about twice what they sent, whatever their number, and nothing for a head alone.
func TestClaimsKeepNobodyOut(t *testing.T) {
	n := start(t, func(c *Config) { c.InFlightBytesMax = 4 << 20 })
	n.topic("t", 1, nil)
	claim := append(binary.BigEndian.AppendUint32(nil, 100<<20), 0, 0, 0, 9)
	for i := range 200 {
		c := n.dial()
		if err := c.SendRaw(claim); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if err := c.SendRaw(make([]byte, 8<<10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	reading := func() (k int) {
		for _, c := range n.open() {
			k += int(b2i(c.frameEnds.Load() != 0))
		}
		return k
	}
	eventually(t, "all claimed, ten charged", func() bool {
		return reading() == 200 && n.pool.Usage().InFlight >= 10*(8<<10)
	})
	if held := n.pool.Usage().InFlight; held > 10*(32<<10) {
		t.Fatalf("%d bytes are charged for 80 KiB that arrived", held)
	}
	c := n.dial()
	for range 3 {
		put(t, c, "t", 1, 900_000)
	}
}

// pieceEnds is the latest moment at which some connection has to have sent a piece of a frame.
func (n *node) pieceEnds() (at int64) {
	for _, c := range n.open() {
		at = max(at, c.frameEnds.Load())
	}
	return at
}

// TestBeyondBudgetIsBrief: the frame that is beyond the budget has to arrive quickly, as others wait for it.
func TestBeyondBudgetIsBrief(t *testing.T) {
	sim := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Clock, c.InFlightBytesMax = sim, 256<<10 })
	n.topic("t", 1, nil)
	c := n.dial()
	part := append(binary.BigEndian.AppendUint32(nil, 50<<20), 0, 0, 0, 9)
	if err := c.SendRaw(append(part, make([]byte, 300<<10)...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "beyond", func() bool { return len(n.budget.over) == 1 })
	other := n.dial()
	if err := other.SendRaw(append(part, make([]byte, 300<<10)...)); err != nil {
		t.Fatal(err)
	}
	sim.Advance(30 * time.Second)
	before := n.pieceEnds()
	if err := c.SendRaw(make([]byte, 300<<10)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next piece", func() bool { return n.pieceEnds() > before })
	sim.Advance(29 * time.Second)
	if !silent(c, 20*time.Millisecond) {
		t.Fatal("closed before its time")
	}
	sim.Advance(3 * time.Second)
	if !c.Closed(5 * time.Second) {
		t.Fatal("a stalled frame beyond the budget keeps the others waiting")
	}
}
