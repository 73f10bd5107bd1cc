// Package coord is the transaction coordinator: it hands out producer ids, 64-bit numbers, each given to one producer
// session and never again, and turns what a producer wrote under a transactional id into one outcome that survives any
// crash (KIP-98, KIP-360, KIP-890).
//
// Transactional ids are divided over shards, one for each partition of the transaction log; a shard owns its ids and
// runs one thing after another. All decisions are in the pure function next.
//
// It knows neither files nor sockets: what it needs from below are the small interfaces declared here, which the broker
// supplies.
package coord

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// PIDs reserves blocks of producer ids. Reserve returns the first of n consecutive ids (n > 0) that no earlier call,
// also of an earlier process, was given; it returns only when that fact is durable. An error means that nothing may be
// handed out; ids that were reserved all the same stay unused. Calls do not overlap.
type PIDs interface {
	Reserve(n int64) (first int64, err error)
}

// ErrClosed is returned by Next once Close was called.
var ErrClosed = errors.New("coord: producer ids closed")

// ErrExhausted is returned by Next when no int64 is left to give; the ids do not wrap.
var ErrExhausted = errors.New("coord: producer ids exhausted")

// ProducerIDs gives out producer ids one by one from blocks that were reserved durably beforehand (KIP-98; in Kafka
// ProducerIdManager). The next block is asked for when nine tenths of the current one are used, so that a caller waits
// for the disk only when the ids run out faster than blocks come. Any number of goroutines may call Next.
// It owns one goroutine at most, while a block is being reserved.
type ProducerIDs struct {
	src   PIDs
	block int64
	wg    sync.WaitGroup

	mu      sync.Mutex
	cur     span // ids are given from here
	ahead   span // the block after it, empty until it is durable
	pending *reservation
	floor   int64 // no id below is given
	end     int64 // of the blocks reserved so far, 0: none was
	closed  bool
}

// span is the half-open range [next, end) of ids not yet given out.
type span struct{ next, end int64 }

func (s span) left() int64 { return s.end - s.next }

// reservation is one call of Reserve on its way; done is closed after err was set.
type reservation struct {
	done chan struct{}
	err  error
}

// NewProducerIDs returns a source of ids that reserves block ids (at least 1) at a time from src. Nothing is reserved
// before the first Next.
func NewProducerIDs(src PIDs, block int64) *ProducerIDs {
	return &ProducerIDs{src: src, block: max(block, 1)}
}

// Next returns an id that was never returned before and whose block is durable. It blocks while the only ids left are
// in a block that is still being reserved. When that reservation fails, every Next that waited for it returns its error
// and the next call tries again.
func (p *ProducerIDs) Next() (int64, error) {
	for {
		id, wait, err := p.take()
		if wait == nil {
			return id, err
		}
		<-wait.done
		if wait.err != nil {
			return 0, fmt.Errorf("coord: reserve producer ids: %w", wait.err)
		}
	}
}

// Above keeps every id that is given from now on above pid, which was found in use: a data directory may come from
// elsewhere, or with a counter older than its records. A pid from FoundPIDsBelow on changes nothing: a plain producer
// may name any number, and none must use the ids up. Any goroutine may call it.
func (p *ProducerIDs) Above(pid int64) {
	if pid >= FoundPIDsBelow {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floor = max(p.floor, pid+1)
}

// clip takes the ids below floor out of s.
func (s *span) clip(floor int64) {
	if s.next < floor {
		s.next = min(floor, s.end)
	}
}

// take gives an id, or the reservation to wait for.
func (p *ProducerIDs) take() (int64, *reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, nil, ErrClosed
	}
	p.cur.clip(p.floor)
	p.ahead.clip(p.floor)
	if p.cur.left() == 0 {
		p.cur, p.ahead = p.ahead, span{}
	}
	if p.ahead.left() == 0 && p.pending == nil && p.cur.left() <= p.block/10 {
		if !p.reserve() && p.cur.left() == 0 {
			return 0, nil, ErrExhausted
		}
	}
	if p.cur.left() == 0 {
		return 0, p.pending, nil
	}
	id := p.cur.next
	p.cur.next++
	return id, nil, nil
}

// reserve starts the reservation of the next block; the caller holds mu and no other one is under way. Where the
// counter stands only a reservation tells: the first one is a plain block, the next one reaches over the floor if need
// be. False: there is no such block.
func (p *ProducerIDs) reserve() bool {
	n := p.block
	if p.end > 0 && p.end < p.floor {
		n = min(p.floor-p.end, math.MaxInt64-n) + n
	}
	if p.end > math.MaxInt64-n {
		return false
	}
	r := &reservation{done: make(chan struct{})}
	p.pending = r
	p.wg.Go(func() {
		first, err := p.src.Reserve(n)
		if err == nil && (first < 0 || first > math.MaxInt64-n) {
			err = ErrExhausted
		}
		p.mu.Lock()
		r.err = err
		if err == nil {
			p.ahead = span{first, first + n}
			p.end = first + n
		}
		p.pending = nil
		p.mu.Unlock()
		close(r.done)
	})
	return true
}

// Close refuses further calls of Next and waits for a reservation under way. What is left of the blocks stays unused.
// Close may be called more than once.
func (p *ProducerIDs) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
}
