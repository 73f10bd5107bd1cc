package engine

import (
	"bytes"
	"fmt"

	"sekali/batch"
	"sekali/coord"
)

// txnJournal is one partition of __transaction_state as the journal of a shard of the coordinator.
type txnJournal struct{ *partition }

var _ coord.Journal = txnJournal{}

// Append implements coord.Journal.
func (j txnJournal) Append(recs []coord.Record, lazy bool, written func(base int64, err error), done func(error)) {
	v := j.encode(len(recs), func(i int) ([]byte, []byte) { return recs[i].Key, recs[i].Value }, -1, -1)
	j.append(v, 0, lazy, func(base int64, err error) { written(base, coordError(err)) },
		func(err error) { done(coordError(err)) })
}

// coordError turns an error of the log into the journal's.
func coordError(err error) error {
	if err == nil {
		return nil
	}
	kind := error(nil)
	switch troubleOf(err) {
	case tooLarge:
		kind = coord.ErrTooLarge
	case closed:
		kind = coord.ErrClosed
	case storage:
		kind = coord.ErrStorage
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// Replay implements coord.Journal. Control batches are not the coordinator's and are passed over.
func (j txnJournal) Replay(from int64, fn func(offset int64, r coord.Record) error) error {
	return j.replay(from, func(v batch.View) error {
		if v.Attrs().Control() {
			return nil
		}
		return v.Records(func(r batch.Record) error {
			offset := v.BaseOffset() + int64(r.OffsetDelta)
			if offset < from {
				return nil
			}
			return fn(offset, coord.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)})
		})
	})
}

// Flush implements coord.Journal.
func (j txnJournal) Flush() {
	if l, err := j.log(); err == nil {
		l.Hasten()
	}
}

// Start implements coord.Journal.
func (j txnJournal) Start() int64 { return j.start() }

// End implements coord.Journal.
func (j txnJournal) End() int64 { return j.end() }

// DropBefore implements coord.Journal.
func (j txnJournal) DropBefore(offset int64) error { return j.drop(offset) }
