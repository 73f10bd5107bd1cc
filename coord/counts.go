package coord

import "sync"

// Counts is the number of transactional ids in each state.
type Counts [PrepareEpochFence + 1]int

// Count tells how many transactional ids there are in each state, over the shards that serve; nothing is copied, so it
// may be asked for often. done runs once, on any goroutine, also before Count returns. Any goroutine may call it.
func (c *Coordinator) Count(done func(Counts)) {
	shards := c.all()
	var mu sync.Mutex
	var sum Counts
	left := len(shards) + 1
	add := func(n Counts) {
		mu.Lock()
		for i := range sum {
			sum[i] += n[i]
		}
		left--
		last, all := left == 0, sum
		mu.Unlock()
		if last {
			done(all)
		}
	}
	for _, s := range shards {
		if !s.post(func() { add(s.count()) }) {
			add(Counts{})
		}
	}
	add(Counts{})
}

func (s *shard) count() (n Counts) {
	if s.refusal() != nil {
		return n
	}
	for _, e := range s.entries {
		if e.visible() {
			n[e.t.state]++
		}
	}
	return n
}
