package broker

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"sekali/internal/check"
	"sekali/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// heartbeat is a small answer that tells which request it belongs to.
func heartbeat(n int32) kmsg.Response {
	return &kmsg.HeartbeatResponse{Version: 1, ThrottleMillis: n}
}

// I13: whatever the order in which requests are completed, and by whomever, answers leave in the order of the
// requests, each once, none is left behind, and acks=0 leaves a gap of nothing.
func TestI13AnswersInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ring := rapid.IntRange(1, 16).Draw(t, "ring")
		total := rapid.IntRange(1, 300).Draw(t, "requests")
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		silent := rapid.IntRange(2, 9).Draw(t, "silent every")
		var sent []int
		var sending atomic.Int32
		r := newSlots(ring, func(fs []*wire.Frame) error {
			if sending.Add(1) != 1 {
				t.Error("two write turns at once")
			}
			for _, f := range fs {
				sent = append(sent, f.Size())
			}
			runtime.Gosched()
			sending.Add(-1)
			return nil
		}, func(err error) { t.Error(err) })
		work := make(chan *slot, total)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				var held []*slot
				done := func() {
					i := rand.IntN(len(held))
					held[i].ready()
					held = append(held[:i], held[i+1:]...)
					r.flush()
				}
				for s := range work {
					if held = append(held, s); len(held) > 2 {
						done()
					}
				}
				for len(held) > 0 {
					done()
				}
			})
		}
		want := []int{}
		for i := range total {
			var s *slot
			for s = r.reserve(wire.Header{Key: 12, Version: 1, Corr: int32(i)}, 0); s == nil; {
				// The workers may hold what stands in the way until there is more: give them none, and look again.
				close(work)
				wg.Wait()
				r.flush()
				work = make(chan *slot, total)
				wg.Go(func() {
					for s := range work {
						s.ready()
						r.flush()
					}
				})
				s = r.reserve(wire.Header{Key: 12, Version: 1, Corr: int32(i)}, 0)
			}
			if i%silent != 0 {
				f := wire.Encode(wire.Header{Key: 10, Version: 0}, &kmsg.FindCoordinatorResponse{Host: string(make([]byte, i))})
				s.frame = f
				want = append(want, f.Size())
			}
			work <- s
		}
		close(work)
		wg.Wait() // everyone flushed after completing: nobody has to look again
		if !r.idle() || len(sent) != len(want) {
			t.Fatalf("%d answers of %d left, idle %v", len(sent), len(want), r.idle())
		}
		for i := range want {
			if sent[i] != want[i] {
				t.Fatalf("answer %d of %d bytes, want %d: out of order", i, sent[i], want[i])
			}
		}
	})
}

// TestI13NoneLeftBehind: an answer completed while another goroutine gives the write turn back is sent by one of the
// two.
func TestI13NoneLeftBehind(t *testing.T) {
	tries := 400_000 // the moment is short
	if check.Costly {
		tries /= 10
	}
	for range tries {
		sent := 0
		r := newSlots(2, func(fs []*wire.Frame) error { sent += len(fs); return nil }, func(error) {})
		a, b := r.reserve(wire.Header{Key: 12}, 0), r.reserve(wire.Header{Key: 12}, 0)
		a.msg, b.msg = heartbeat(1), heartbeat(2)
		var wg sync.WaitGroup
		for _, s := range []*slot{a, b} {
			wg.Go(func() {
				s.ready()
				r.flush()
			})
		}
		wg.Wait()
		if sent != 2 || !r.idle() {
			t.Fatalf("%d answers sent of 2", sent)
		}
	}
}

// TestSlotsFull: no more is reserved than the ring holds, and the head that leaves makes room and says so.
func TestSlotsFull(t *testing.T) {
	sent := 0
	r := newSlots(4, func(fs []*wire.Frame) error { sent += len(fs); return nil }, func(error) {})
	var ss []*slot
	for range 4 {
		ss = append(ss, r.reserve(wire.Header{Key: 12}, 0))
	}
	if r.reserve(wire.Header{}, 0) != nil || !r.full() {
		t.Fatal("a fifth slot of four")
	}
	for _, i := range []int{3, 1} {
		ss[i].msg = heartbeat(int32(i))
		ss[i].ready()
		r.flush()
	}
	if sent != 0 {
		t.Fatal("an answer passed the one before it")
	}
	ss[0].msg = heartbeat(0)
	ss[0].ready()
	r.flush()
	if sent != 2 || r.full() {
		t.Fatalf("%d answers sent, want 2", sent)
	}
	select {
	case <-r.room:
	default:
		t.Fatal("nobody was told of the room")
	}
}

// TestSlotsBroken: after a failed send, or behind a hangup, nothing more is written, and frames are still released.
func TestSlotsBroken(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		what   string
		err    error
		hangup int
		sends  int
		want   error
	}{{"failed send", boom, -1, 1, boom}, {"hangup", nil, 1, 1, errHangup}} {
		var failed []error
		sends, released := 0, 0
		r := newSlots(4, func(fs []*wire.Frame) error { sends++; return c.err }, func(e error) { failed = append(failed, e) })
		for i := range 3 {
			s := r.reserve(wire.Header{Key: wire.KeyFetch, Version: 4}, 0)
			s.frame = wire.EncodeFetch(s.hdr, &wire.FetchAnswer{}, func() { released++ })
			s.hangup = i == c.hangup
			s.ready()
		}
		r.flush()
		if sends != c.sends || released != 3 || len(failed) != 1 || !errors.Is(failed[0], c.want) {
			t.Errorf("%s: %d sends, %d released, %v", c.what, sends, released, failed)
		}
	}
}
