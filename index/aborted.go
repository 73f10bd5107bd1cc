package index

import (
	"sync/atomic"

	"sekali/internal/check"
)

// AbortedTxn is one aborted transaction: its producer, its first offset in the partition, the offset of its abort
// marker, and the last stable offset when the marker was written (Kafka's AbortedTxn). A value.
type AbortedTxn struct{ PID, First, Last, Stable int64 }

// Aborted lists the transactions whose abort marker lies in one segment, in the order of their markers. Its owner, the
// holder of Log.mu, calls Add and Truncate; the rest may be called by anyone at any time without a lock. Aborts are
// rare: each publishes a new slice header.
type Aborted struct{ p atomic.Pointer[[]AbortedTxn] }

// Add appends t. Owner only. Marker offsets ascend.
func (a *Aborted) Add(t AbortedTxn) {
	list := a.All()
	check.That(len(list) == 0 || list[len(list)-1].Last < t.Last, "index: abort markers ascend")
	list = append(list, t)
	a.p.Store(&list)
}

// Truncate drops the entries whose marker lies at or above offset. Owner only, while nobody reads.
func (a *Aborted) Truncate(offset int64) {
	list := a.All()
	n := len(list)
	for n > 0 && list[n-1].Last >= offset {
		n--
	}
	if n < len(list) {
		// A fresh array: the next Add must not write into one that an old header still covers.
		kept := append([]AbortedTxn(nil), list[:n]...)
		a.p.Store(&kept)
	}
}

// All returns the published entries. They must not be changed.
func (a *Aborted) All() []AbortedTxn {
	if p := a.p.Load(); p != nil {
		return *p
	}
	return nil
}

// Overlap appends to dst the transactions that touch [from, to): marker at or above from, first offset below to. done
// reports that segments further on hold no transaction that touches it: an entry here has Stable >= to.
func (a *Aborted) Overlap(dst []AbortedTxn, from, to int64) (out []AbortedTxn, done bool) {
	for _, t := range a.All() {
		if t.Last >= from && t.First < to {
			dst = append(dst, t)
		}
		if t.Stable >= to {
			return dst, true
		}
	}
	return dst, false
}
