package segment

import (
	"container/list"
	"sync"
)

// Handles bounds the descriptors and mappings of sealed segments: one list over all logs of a process, in the order of
// opening. What was used since it came to the front goes to the back again, what is pinned stays; so the bound may be
// exceeded by what is in use. All methods may be called from any goroutine; a nil *Handles keeps everything open.
type Handles struct {
	max int

	mu   sync.Mutex
	list list.List // of *Segment
	at   map[*Segment]*list.Element
}

// NewHandles returns a list for max open sealed segments. Each takes one descriptor and one mapping: max stays well
// below the limit of open files and the kernel's map count (vm.max_map_count).
func NewHandles(max int) *Handles { return &Handles{max: max, at: map[*Segment]*list.Element{}} }

// Len returns how many sealed segments are open.
func (h *Handles) Len() int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list.Len()
}

// Sweep closes every sealed segment that was not used since the last Sweep and is not pinned, and returns how many.
func (h *Handles) Sweep() (closed int) {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	var out []victim
	for e := h.list.Front(); e != nil; {
		next := e.Next()
		if s := e.Value.(*Segment); !s.used.Swap(false) {
			out = h.take(out, e, s)
		}
		e = next
	}
	h.mu.Unlock()
	finish(out)
	return len(out)
}

// victim is what was taken out under the lock and is closed after it.
type victim struct {
	s *Segment
	h *handle
}

// take detaches s, if it is not pinned, and drops its element.
func (h *Handles) take(out []victim, e *list.Element, s *Segment) []victim {
	old, ok := s.detach()
	if !ok {
		return out
	}
	h.list.Remove(e)
	delete(h.at, s)
	return append(out, victim{s, old})
}

func finish(out []victim) {
	for _, v := range out {
		v.s.fault("close", v.h.close())
	}
}

// keep takes in a sealed segment that was opened, and closes others above the bound. The caller holds a pin on s, and
// no lock.
func (h *Handles) keep(s *Segment) {
	if h == nil {
		return
	}
	h.mu.Lock()
	if h.at[s] == nil && !s.retired {
		h.at[s] = h.list.PushBack(s)
	}
	var out []victim
	for tries := 2 * h.list.Len(); tries > 0 && h.list.Len() > h.max; tries-- {
		e := h.list.Front()
		v := e.Value.(*Segment)
		if v.used.Swap(false) {
			h.list.MoveToBack(e)
			continue
		}
		n := len(out)
		if out = h.take(out, e, v); len(out) == n {
			h.list.MoveToBack(e)
		}
	}
	h.mu.Unlock()
	finish(out)
}

// retire drops s for good: its owner gives up its pin, the last reader closes the handle.
func (h *Handles) retire(s *Segment) { h.drop(s, true) }

// forget drops s: it is active again. Its handle stays with the caller.
func (h *Handles) forget(s *Segment) { h.drop(s, false) }

func (h *Handles) drop(s *Segment, retired bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.retired = retired
	if e := h.at[s]; e != nil {
		h.list.Remove(e)
		delete(h.at, s)
	}
}
