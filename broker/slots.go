package broker

import (
	"errors"
	"sync/atomic"
	"time"

	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errHangup ends a connection after the answers before it: a Produce without acknowledgement failed, or a handler has
// no answer.
var errHangup = errors.New("broker: connection closed on purpose")

// The states of a slot. It becomes ready once, by whoever completes its request, and free when its answer has left.
const (
	slotFree uint32 = iota
	slotPending
	slotReady
)

// slot is the place of one answer in the order of its connection (I13). The reader reserves it, whoever completes the
// request fills it and then stores ready, the holder of the write turn reads it after having seen ready.
type slot struct {
	state atomic.Uint32
	hdr   wire.Header
	read  time.Duration // when the request had been read, for latencies

	msg    kmsg.Response // encoded by the holder of the write turn
	frame  *wire.Frame   // or encoded already; neither: a request without an answer (acks=0)
	hangup bool          // the connection closes once everything up to here has left
}

// slots is the ring of answers of one connection. Responses leave in the order in which their slots were reserved,
// whatever the order in which they are completed (I13).
//
// One goroutine reserves. Any completes. Whoever takes the write turn sends what is ready from the head on, and looks
// again after giving it back, so that an answer completed meanwhile is not left behind.
type slots struct {
	ring []slot // a power of two
	tail atomic.Uint64
	head atomic.Uint64
	turn atomic.Bool

	// broken: nothing can be sent any more, frames are only released.
	broken atomic.Bool
	room   chan struct{} // signalled when the head moved

	send func([]*wire.Frame) error // under the write turn
	fail func(error)               // after a failed send or a hangup, under the write turn
	out  []*wire.Frame             // of the holder of the write turn
}

func newSlots(n int, send func([]*wire.Frame) error, fail func(error)) *slots {
	size := 1
	for size < n {
		size *= 2
	}
	return &slots{ring: make([]slot, size), room: make(chan struct{}, 1), send: send, fail: fail}
}

// reserve takes the next place, nil if all are taken. Reader only.
func (r *slots) reserve(h wire.Header, read time.Duration) *slot {
	t := r.tail.Load()
	if t-r.head.Load() == uint64(len(r.ring)) {
		return nil
	}
	s := &r.ring[t&uint64(len(r.ring)-1)]
	s.hdr, s.read = h, read
	s.state.Store(slotPending)
	r.tail.Store(t + 1)
	return s
}

// idle reports that every answer has left.
func (r *slots) idle() bool { return r.head.Load() == r.tail.Load() }

// full reports that reserve would fail.
func (r *slots) full() bool { return r.tail.Load()-r.head.Load() == uint64(len(r.ring)) }

func (s *slot) ready() { s.state.Store(slotReady) }

// flush sends what is ready, unless somebody else is at it, who then sends this too.
func (r *slots) flush() {
	for r.turn.CompareAndSwap(false, true) {
		for r.sendReady() {
		}
		r.turn.Store(false)
		if !r.headReady() {
			return
		}
	}
}

func (r *slots) headReady() bool {
	h := r.head.Load()
	return h < r.tail.Load() && r.ring[h&uint64(len(r.ring)-1)].state.Load() == slotReady
}

// sendReady sends one gathering of ready answers from the head on; false: there was none.
func (r *slots) sendReady() bool {
	h, t := r.head.Load(), r.tail.Load()
	n, size, hangup := uint64(0), 0, false
	r.out = r.out[:0]
	for h+n < t && n < sendFramesMax && size < sendBytesMax && !hangup {
		s := &r.ring[(h+n)&uint64(len(r.ring)-1)]
		if s.state.Load() != slotReady {
			break
		}
		if f := s.take(); f != nil {
			r.out = append(r.out, f)
			size += f.Size()
		}
		hangup = s.hangup
		n++
	}
	if n == 0 {
		return false
	}
	if len(r.out) > 0 && !r.broken.Load() {
		if err := r.send(r.out); err != nil {
			r.broken.Store(true)
			r.fail(err)
		}
	}
	for i, f := range r.out {
		f.Release()
		r.out[i] = nil
	}
	if hangup && !r.broken.Swap(true) {
		r.fail(errHangup)
	}
	r.free(h, n)
	return true
}

func (r *slots) free(h, n uint64) {
	for i := range n {
		s := &r.ring[(h+i)&uint64(len(r.ring)-1)]
		s.msg, s.frame, s.hangup = nil, nil, false
		s.state.Store(slotFree)
	}
	r.head.Store(h + n)
	select {
	case r.room <- struct{}{}:
	default:
	}
}

// take returns the frame of a ready slot, nil if it has no answer.
func (s *slot) take() *wire.Frame {
	if s.frame == nil && s.msg != nil {
		s.frame = wire.Encode(s.hdr, s.msg)
	}
	return s.frame
}
