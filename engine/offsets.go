package engine

import (
	"bytes"
	"errors"
	"fmt"

	"sekali/batch"
	"sekali/group"
	"sekali/plog"
)

// offsetsJournal is one partition of __consumer_offsets as the journal of a shard of groups.
type offsetsJournal struct{ *partition }

var _ group.Journal = offsetsJournal{}

// Append implements group.Journal.
func (j offsetsJournal) Append(recs []group.Record, pid int64, epoch int16, guard uint64,
	done func(base int64, err error)) {
	v := j.encode(len(recs), func(i int) ([]byte, []byte) { return recs[i].Key, recs[i].Value }, pid, epoch)
	at := int64(-1)
	written := func(base int64, err error) {
		if at = base; err != nil {
			done(-1, groupError(err, guard))
		}
	}
	j.append(v, guard, false, written, func(err error) { done(at, groupError(err, guard)) })
}

// groupError turns an error of the log into the journal's.
func groupError(err error, guard uint64) error {
	if err == nil {
		return nil
	}
	kind := error(nil)
	switch troubleOf(err) {
	case tooLarge:
		kind = group.ErrTooLarge
	case closed:
		kind = group.ErrClosed
	case storage:
		kind = group.ErrStorage
	case fenced:
		kind = group.ErrFenced
	case unproven:
		if r, ok := errors.AsType[*plog.RejectError](err); ok && guard == 0 && r.Decision.Guard != 0 {
			return &group.Unverified{Guard: r.Decision.Guard}
		}
		kind = group.ErrTxnState
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// Replay implements group.Journal.
func (j offsetsJournal) Replay(from int64, fn func(group.Replayed) error) error {
	return j.replay(from, func(v batch.View) error {
		pid, epoch := v.Producer()
		if v.Attrs().Control() {
			m, err := batch.ParseMarker(v)
			if errors.Is(err, batch.ErrNoMarker) || err == nil && v.BaseOffset() < from {
				return nil
			}
			if err != nil {
				return err
			}
			return fn(group.Replayed{Offset: v.BaseOffset(), PID: pid, Epoch: epoch, Marker: &m})
		}
		if !v.Attrs().Transactional() {
			pid, epoch = -1, -1
		}
		return v.Records(func(r batch.Record) error {
			offset := v.BaseOffset() + int64(r.OffsetDelta)
			if offset < from {
				return nil
			}
			return fn(group.Replayed{Offset: offset, PID: pid, Epoch: epoch,
				Record: group.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}})
		})
	})
}

// Start implements group.Journal.
func (j offsetsJournal) Start() int64 { return j.start() }

// End implements group.Journal.
func (j offsetsJournal) End() int64 { return j.end() }

// Stable implements group.Journal.
func (j offsetsJournal) Stable() int64 { return j.offsets().Stable }

// DropBefore implements group.Journal.
func (j offsetsJournal) DropBefore(offset int64) error { return j.drop(offset) }
