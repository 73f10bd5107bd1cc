// Package clean decides what compaction leaves of a log (spec/on-disk.md 9, spec/producer-state.md 8): Keys learns
// which record of each key is the newest; Filter takes batch after batch and gives back what stays of each. It knows no
// file and no lock; plog reads the batches, writes what stays and puts it into place.
//
// The rules are those of Apache Kafka's Cleaner and CleanedTransactionMetadata. What is kept too long is correct, what
// goes too early is lost, so every doubt keeps: more headers of live producers than Kafka keeps, and every batch from
// the end of the looked-at part on.
package clean

import (
	"crypto/sha256"

	"sekali/batch"
	"sekali/index"
)

// Keys is the newest offset of every key in the part of a log that was not cleaned before. Keys are told apart by 128
// bits of SHA-256: whoever writes records cannot make two keys pass for one. One goroutine uses it.
type Keys struct {
	newest map[[16]byte]int64
	most   int
	gone   aborts
}

// KeyBytes is what one key costs in memory, about.
const KeyBytes = 48

// NewKeys makes an empty one that is full with most keys. aborted lists the aborted transactions that touch what Look
// will be shown, sorted by First: their records count for nothing.
func NewKeys(most int, aborted []index.AbortedTxn) *Keys {
	return &Keys{newest: map[[16]byte]int64{}, most: max(most, 1), gone: newAborts(aborted)}
}

// Full tells that no further batch should be looked at.
func (k *Keys) Full() bool { return len(k.newest) >= k.most }

// Look takes the keys of a batch in. Batches come in the order of the log. Errors are those of batch.View.Records.
func (k *Keys) Look(v batch.View) error {
	if k.gone.holds(v) || v.Attrs().Control() {
		return nil
	}
	base := v.BaseOffset()
	return v.Records(func(r batch.Record) error {
		if r.Key != nil {
			k.newest[sum(r.Key)] = base + int64(r.OffsetDelta)
		}
		return nil
	})
}

// superseded tells that a newer record of the key is known.
func (k *Keys) superseded(key []byte, offset int64) bool {
	newest, ok := k.newest[sum(key)]
	return ok && newest > offset
}

func sum(key []byte) [16]byte {
	h := sha256.Sum256(key)
	return [16]byte(h[:])
}

// aborts tells which batches belong to aborted transactions, as batch after batch is shown in the order of the log.
type aborts struct {
	list []index.AbortedTxn         // not reached yet, by First
	last map[int64]int64            // producer -> offset of the abort marker of the transaction reached last
	ends map[int64]index.AbortedTxn // by the offset of the marker
}

func newAborts(list []index.AbortedTxn) aborts {
	a := aborts{list: list, last: map[int64]int64{}, ends: make(map[int64]index.AbortedTxn, len(list))}
	for _, t := range list {
		a.ends[t.Last] = t
	}
	return a
}

// holds reports whether v is data of an aborted transaction.
func (a *aborts) holds(v batch.View) bool {
	for len(a.list) > 0 && a.list[0].First <= v.LastOffset() {
		t := a.list[0]
		a.last[t.PID], a.list = t.Last, a.list[1:]
	}
	if !v.Attrs().Transactional() || v.Attrs().Control() {
		return false
	}
	pid, _ := v.Producer()
	last, ok := a.last[pid]
	return ok && v.BaseOffset() < last
}
