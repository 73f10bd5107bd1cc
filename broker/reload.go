package broker

import (
	"sync"
	"time"

	"sekali/store"
)

// reopened are partitions that serve again, for the engine to hear of. Any goroutine puts, Server.reload takes.
type reopened struct {
	mu  sync.Mutex
	tps []store.TP
}

func (r *reopened) put(tp store.TP) {
	r.mu.Lock()
	r.tps = append(r.tps, tp)
	r.mu.Unlock()
}

func (r *reopened) take() []store.TP {
	r.mu.Lock()
	defer r.mu.Unlock()
	tps := r.tps
	r.tps = nil
	return tps
}

// reload tells the engine of partitions that serve again, and gives those whose journal could not be read another try,
// after reloadFirst and then twice as long each time up to reloadMax. A goroutine of its own does it, since reading a
// journal takes its time and the timers of the engine must not wait for that. Owner of the pause: this goroutine.
func (s *Server) reload() {
	pause, next := reloadFirst, time.Duration(0)
	for s.sleepUnless(engineTickEvery, s.quiet) {
		for _, tp := range s.reopened.take() {
			s.reloadOne(tp)
		}
		left := s.engine.Unloaded()
		switch now := s.clk.Mono(); {
		case len(left) == 0:
			pause, next = reloadFirst, 0
		case next == 0:
			next = now + pause
		case now >= next:
			for _, tp := range left {
				s.reloadOne(tp)
			}
			pause = min(2*pause, reloadMax)
			next = now + pause
		}
	}
}

func (s *Server) reloadOne(tp store.TP) {
	if err := s.engine.Reopened(tp); err != nil {
		s.log.Error("coordinator was not loaded again and will be tried again",
			"topic", tp.Topic, "partition", tp.Partition, "err", err)
	}
}
