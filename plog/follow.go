package plog

import (
	"errors"
	"fmt"

	"sekali/batch"
)

// AppendAsFollower stores whole batches as their leader stored them: nothing is stamped, the producer state takes them
// as recovery does, and so do epochs and the index of aborted transactions. raw holds one or more batches. What is in
// front of a faulty batch is stored. Errors: ErrFollow (wrapping what is wrong), else those of Append.
func (l *Log) AppendAsFollower(raw []byte) error {
	wrote := false
	defer func() {
		if wrote {
			l.o.Dirty()
		}
	}()
	for len(raw) > 0 {
		v, rest, err := batch.Next(raw)
		if err == nil {
			_, err = v.Validate(batch.Limits{})
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFollow, err)
		}
		if err := l.followOne(v); err != nil {
			return err
		}
		wrote = true
		raw = rest
	}
	return nil
}

var (
	errFollowBase  = errors.New("base offset")
	errFollowEpoch = errors.New("leader epoch falls")
)

func (l *Log) followOne(v batch.View) error {
	if err := l.follows(v); err != nil {
		return err
	}
	if err := l.follow(v.LeaderEpoch(), v.BaseOffset()); err != nil {
		return err
	}
	if err := l.lockForWrite(); err != nil {
		return err
	}
	defer l.unlock()
	if !l.active.Fits(v) {
		if err := l.roll(); err != nil {
			return err
		}
	}
	pos, err := l.active.Append(v)
	if err != nil {
		return l.writeFailed("append", err)
	}
	stale, err := takeIn(l.pids, l.active, pos, v, l.touch())
	if err == nil && stale {
		err = errStale
	}
	if err != nil {
		l.todo.any, l.todo.fault, l.todo.err = true, "replicate", err
	}
	l.wrote(int64(len(v)), v.LastOffset(), v.MaxTime())
	l.publish()
	return nil
}

// follows tests that a batch continues the log: the next offset (above it, where compaction leaves holes), an epoch
// that does not fall. One fetcher at a time appends, so the answer holds until it writes.
func (l *Log) follows(v batch.View) error {
	end := l.end.Load()
	base := v.BaseOffset()
	if base < end || base > end && !l.config().Compact {
		return fmt.Errorf("%w: %w %d, expected %d", ErrFollow, errFollowBase, base, end)
	}
	if v.LeaderEpoch() < 0 {
		return fmt.Errorf("%w: %w: %d", ErrFollow, errFollowEpoch, v.LeaderEpoch())
	}
	list := *l.epochs.Load()
	if n := len(list); n > 0 && v.LeaderEpoch() < list[n-1].epoch {
		return fmt.Errorf("%w: %w: %d after %d", ErrFollow, errFollowEpoch, v.LeaderEpoch(), list[n-1].epoch)
	}
	return nil
}
