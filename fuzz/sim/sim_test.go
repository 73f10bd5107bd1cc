package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	seedsFlag = flag.Int("seeds", 100, "how many seeds TestSimulation plays")
	seedFlag  = flag.Int64("seed", -1, "the one seed to play")
	firstFlag = flag.Int64("first", 1, "the first of the seeds")
	quickFlag = flag.Bool("quick", false, "do not look for a shorter script")
	showFlag  = flag.Bool("show", false, "with -seed: print every operation and the state before it")
	keepFlag  = flag.String("keep", "", "with -seed: numbers of the operations to keep, as a report prints them")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Setenv("GODEBUG", "tracebacklabels=1") // a panic in a goroutine of the store ends the process: show its seed
	os.Exit(m.Run())
}

// play runs operations in a bubble of its own.
func play(t *testing.T, seed uint64, s Setup, ops []Op) (stats Stats, trace uint64, v *Violation) {
	inBubble(t, seed, func() *Violation {
		stats, trace, v = Run(seed, s, ops)
		return v
	})
	return stats, trace, v
}

// TestSimulation plays seeds, -seeds of them or the one of -seed, on all processors, and stops at the first that finds
// something wrong.
func TestSimulation(t *testing.T) {
	if *seedFlag >= 0 {
		one(t, uint64(*seedFlag))
		return
	}
	var total Stats
	took, failed := campaign(t, *seedsFlag, func(t *testing.T, seed uint64) (*Violation, func(), func(*testing.T)) {
		s, ops := Script(seed)
		stats, _, v := play(t, seed, s, ops)
		return v, func() { total.add(&stats) }, func(t *testing.T) { report(t, seed, s, ops, v) }
	})
	t.Logf("%d seeds in %.1f s: %+v", *seedsFlag, took, total)
	fmt.Printf("sim: %d seeds in %.1f s: %s\n", *seedsFlag, took, total.String())
	if !failed {
		for _, name := range total.missing(*seedsFlag) {
			t.Errorf("%d seeds, and none met: %s", *seedsFlag, name)
		}
	}
}

// one plays one seed, or the part of it that -keep names.
func one(t *testing.T, seed uint64) {
	s, ops := Script(seed)
	ops = kept(ops)
	stats, trace, v := play(t, seed, s, ops)
	if v != nil {
		report(t, seed, s, ops, v)
	}
	t.Logf("seed %d: %s; trace %016x", seed, stats.String(), trace)
}

// report prints a violation of TestSimulation.
func report(t *testing.T, seed uint64, s Setup, ops []Op, v *Violation) {
	reportOf(t, "TestSimulation", seed, s, ops, v, func(ops []Op) *Violation {
		_, _, v := play(t, seed, s, ops)
		return v
	})
}

// TestReplay plays seeds twice: a report is worth something only if the same number gives the same run. Few do not: a
// roll in the middle of a Tick wakes the flusher while the Tick goes on to the next partition.
func TestReplay(t *testing.T) {
	differ := 0
	for seed := uint64(1000); seed < 1030; seed++ {
		s, ops := Script(seed)
		_, a, v := play(t, seed, s, ops)
		_, b, w := play(t, seed, s, ops)
		if v != nil || w != nil {
			t.Fatalf("seed %d: %v, %v", seed, v, w)
		}
		if a != b {
			t.Logf("seed %d: two runs differ: %016x, %016x; setup: %v", seed, a, b, s)
			differ++
		}
	}
	if differ > 3 {
		t.Errorf("%d of 30 seeds gave another run the second time", differ)
	}
}
