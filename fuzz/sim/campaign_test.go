package sim

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// forever is waited for by the bubble of a run that panicked and may hold locks.
var forever = make(chan struct{})

// stuckAfter is far more real time than a run takes on a busy machine.
const stuckAfter = time.Minute

// inBubble runs one seed in a bubble of its own. It returns also when the run panicked, and its bubble cannot end.
func inBubble(t *testing.T, seed uint64, run func() *Violation) {
	done := make(chan struct{})
	go func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("seed", strconv.FormatUint(seed, 10))))
		synctest.Test(t, func(*testing.T) {
			if v := run(); v != nil && v.Panic {
				close(done)
				<-forever
			}
		})
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stuckAfter):
		panic(fmt.Sprintf("seed %d does not come to an end: a deadlock that the bubble cannot see", seed))
	}
}

// campaign plays count seeds from -first on, on all processors, until one finds something wrong. play gives what it
// found, and what counts the run and what reports it. Counting is one run at a time. Reported is the lowest seed that
// found something, whichever ended first: seeds begin in order, and those below it are played to their end.
func campaign(t *testing.T, count int,
	play func(t *testing.T, seed uint64) (v *Violation, count func(), report func(*testing.T)),
) (seconds float64, failed bool) {
	began := time.Now()
	var mu sync.Mutex
	var reportLowest func(*testing.T)
	var next, end atomic.Int64
	next.Store(*firstFlag - 1)
	end.Store(*firstFlag + int64(count))
	t.Run("seeds", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1); seed < end.Load(); seed = next.Add(1) {
					v, count, report := play(t, uint64(seed))
					mu.Lock()
					count()
					if v != nil && seed < end.Load() {
						end.Store(seed)
						reportLowest = report
					}
					mu.Unlock()
				}
			})
		}
	})
	if reportLowest != nil {
		reportLowest(t)
	}
	return time.Since(began).Seconds(), reportLowest != nil
}

// kept is the part of a script that -keep names, the whole without; with -show the run is traced.
func kept[O numbered](ops []O) []O {
	if *showFlag {
		Trace, *quickFlag = os.Stdout, true
	}
	if *keepFlag == "" {
		return ops
	}
	keep := strings.Split(*keepFlag, ",")
	return slices.DeleteFunc(ops, func(o O) bool { return !slices.Contains(keep, strconv.Itoa(o.number())) })
}

// reportOf prints a violation with the shortest script found that shows one too.
func reportOf[O numbered](t *testing.T, test string, seed uint64, setup fmt.Stringer, ops []O, v *Violation,
	play func([]O) *Violation) {
	t.Errorf("seed %d: %v\nsetup: %v\nreplay: go test ./fuzz/sim -run '^%s$' -args -seed=%d", seed, v, setup, test, seed)
	if *quickFlag {
		return
	}
	short, sv := shrink(play, ops, v, 20*time.Second)
	if sv == nil {
		t.Errorf("the same script again finds nothing wrong")
		return
	}
	var text, keep []string
	for _, o := range short {
		text, keep = append(text, o.String()), append(keep, strconv.Itoa(o.number()))
	}
	t.Errorf("%d of %d operations are enough for: %v\n%s\nreplay: go test ./fuzz/sim -run '^%s$' -args -seed=%d -keep=%s",
		len(short), len(ops), sv, strings.Join(text, "\n"), test, seed, strings.Join(keep, ","))
}
