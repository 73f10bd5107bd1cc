package meta

import (
	"context"
	"sync"
)

// history keeps the latest changes for watchers. The goroutine of the store appends, watchers read under mu.
type history struct {
	mu      sync.Mutex
	after   Rev // the changes kept are after+1, after+2, ...
	changes []Change
	bytes   int
	grown   chan struct{} // closed and replaced by every append
}

func newHistory(after Rev, changes []Change) *history {
	h := &history{after: after, grown: make(chan struct{})}
	for _, c := range changes {
		h.append(c)
	}
	return h
}

func sizeOf(c Change) int {
	n := 0
	for _, op := range c.Ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

// append adds the next revision and forgets what lies beyond the limits, always keeping the newest change.
func (h *history) append(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, c)
	h.bytes += sizeOf(c)
	for len(h.changes) > 1 && (len(h.changes) > historyMax || h.bytes > historyBytesMax) {
		h.bytes -= sizeOf(h.changes[0])
		h.changes[0] = Change{}
		h.changes = h.changes[1:]
		h.after++
	}
	close(h.grown)
	h.grown = make(chan struct{})
}

// since returns the changes above after, and a channel that is closed when there are more. ok is false if changes
// above after were forgotten.
func (h *history) since(after Rev) (changes []Change, grown <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < h.after {
		return nil, nil, false
	}
	skip := min(int64(after-h.after), int64(len(h.changes)))
	return h.changes[skip:len(h.changes):len(h.changes)], h.grown, true
}

// watch sends changes above after until ctx or stop ends it or it falls behind, then closes out.
func (h *history) watch(ctx context.Context, stop <-chan struct{}, after Rev, out chan<- Change) {
	defer close(out)
	for {
		changes, grown, ok := h.since(after)
		if !ok {
			return
		}
		for _, c := range changes {
			if c.Rev <= after {
				continue
			}
			select {
			case out <- c:
				after = c.Rev
			case <-ctx.Done():
				return
			case <-stop:
				return
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		case <-stop:
			return
		}
	}
}
