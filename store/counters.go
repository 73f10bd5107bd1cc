package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sekali/internal/vfs"
	"sekali/meta"
)

// pidGap lies between the largest producer id found in an adopted directory and the first one given out: ids that the
// old cluster had handed to clients that wrote nothing yet.
const pidGap = 1_000_000

// pidsFoundBelow bounds the ids that count as found: larger ones were made up by a client, which may name any, and must
// not use up those there are.
const pidsFoundBelow = 1 << 62

// RaiseEpoch makes the start epoch one larger, durably, and returns it; the first is 1. It is called once per start,
// after Lock and before Open. In a directory that Apache Kafka wrote the epoch lies above those its partitions know.
func RaiseEpoch(ctx context.Context, c Config, m meta.MetadataStore) (int32, error) {
	floor := int64(0)
	version, err := readFormat(c.FS, c.Dir)
	if err != nil {
		return 0, err
	}
	if version == 0 {
		if floor, err = largestEpoch(c); err != nil {
			return 0, err
		}
	}
	now, err := bump(ctx, m, epochKey, func(old int64) (int64, error) {
		next := max(old, floor) + 1
		if next > 1<<31-1 {
			return 0, errors.New("store: the start epochs are used up")
		}
		return next, nil
	})
	return int32(now), err
}

// largestEpoch looks through the leader-epoch-checkpoint files; one that cannot be read counts nothing, since the log
// itself is asked again when it is opened.
func largestEpoch(c Config) (largest int64, err error) {
	names, err := c.FS.ReadDir(c.Dir)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	for _, name := range names {
		if _, _, kind := parseDir(name); kind != dirLive {
			continue
		}
		b, err := vfs.ReadFile(c.FS, path.Join(c.Dir, name, "leader-epoch-checkpoint"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) != 2 {
				continue
			}
			if e, err := strconv.ParseInt(f[0], 10, 32); err == nil {
				largest = max(largest, e)
			}
		}
	}
	return largest, nil
}

// ReservePIDs takes n producer ids, durably, and returns the first.
func ReservePIDs(ctx context.Context, m meta.MetadataStore, n int64) (first int64, err error) {
	if n <= 0 {
		return 0, fmt.Errorf("store: a block of %d producer ids", n)
	}
	next, err := bump(ctx, m, pidKey, func(old int64) (int64, error) {
		if old > 1<<63-1-n {
			return 0, errors.New("store: the producer ids are used up")
		}
		return old + n, nil
	})
	return next - n, err
}

// raisePIDs keeps ids up to last from being given out.
func raisePIDs(ctx context.Context, m meta.MetadataStore, last int64) error {
	_, err := bump(ctx, m, pidKey, func(old int64) (int64, error) { return max(old, last+1), nil })
	return err
}

// bump changes a counter and returns what it is then. A counter that does not exist is 0.
func bump(ctx context.Context, m meta.MetadataStore, key string, next func(int64) (int64, error)) (int64, error) {
	for {
		state, _, err := m.Snapshot(ctx)
		if err != nil {
			return 0, fmt.Errorf("store: metadata: %w", err)
		}
		it, ok := state.Get(key)
		old := int64(0)
		if ok {
			if old, err = strconv.ParseInt(string(it.Value), 10, 64); err != nil {
				return 0, fmt.Errorf("store: metadata key %q: %w", key, err)
			}
		}
		now, err := next(old)
		if err != nil {
			return 0, err
		}
		out, err := m.Txn(ctx, []meta.Cond{{Key: key, Rev: it.Rev}},
			[]meta.Op{{Key: key, Value: strconv.AppendInt(nil, now, 10)}})
		if err != nil {
			return 0, fmt.Errorf("store: metadata: %w", err)
		}
		if out.Applied {
			return now, nil
		}
	}
}
