package segment

import (
	"errors"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"sekali/internal/vfs"
)

// List puts the segment files of a log's directory in order before anything is opened (spec/on-disk.md 7 steps 1 and
// 2) and returns the base offsets of its segments, ascending: it removes .deleted and .cleaned files and left-over
// temporary ones, ends or undoes a swap that a crash interrupted, and removes index files without a .log. Files it
// does not know stay. What it changed is durable when it returns.
func List(dir string, fs vfs.FS) (bases []int64, err error) {
	l := lister{dir: dir, fs: fs}
	for _, step := range []func(names []string) error{l.leftovers, l.swaps, l.orphans} {
		names, err := fs.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		if err := step(names); err != nil {
			return nil, err
		}
	}
	if err := l.sync(); err != nil {
		return nil, err
	}
	slices.Sort(l.bases)
	return l.bases, nil
}

type lister struct {
	dir     string
	fs      vfs.FS
	changed bool
	bases   []int64
}

func (l *lister) remove(name string) error {
	l.changed = true
	return missingIsFine(l.fs.Remove(path.Join(l.dir, name)))
}

// sync makes what was changed so far durable.
func (l *lister) sync() error {
	if !l.changed {
		return nil
	}
	l.changed = false
	return l.fs.SyncDir(l.dir)
}

// segmentFile splits the name of one of a segment's files into base, kind and the rest.
func segmentFile(name string) (base int64, kind, rest string, ok bool) {
	base, suffix, ok := ParseName(name)
	if !ok {
		return 0, "", "", false
	}
	for _, kind := range kinds {
		if rest, ok := strings.CutPrefix(suffix, kind); ok && (rest == "" || rest[0] == '.') {
			return base, kind, rest, true
		}
	}
	return 0, "", "", false
}

// leftovers removes what was on its way out, or not yet in: .deleted, .cleaned, .tmp, and the .swap files that a
// .cleaned at or below them makes void. These go first: without the .cleaned they would count.
func (l *lister) leftovers(names []string) error {
	void := int64(math.MaxInt64)
	for _, name := range names {
		if base, _, rest, ok := segmentFile(name); ok && rest == CleanedSuffix {
			void = min(void, base)
		}
	}
	for _, name := range names {
		if base, _, rest, ok := segmentFile(name); ok && rest == SwapSuffix && base >= void {
			if err := l.remove(name); err != nil {
				return err
			}
		}
	}
	if err := l.sync(); err != nil {
		return err
	}
	for _, name := range names {
		_, _, rest, ok := segmentFile(name)
		gone := ok && (rest == CleanedSuffix || strings.HasSuffix(rest, tmpSuffix))
		if _, suffix, ok := ParseName(name); ok && strings.HasSuffix(suffix, DeletedSuffix) {
			gone = true // snapshots too
		}
		if gone {
			if err := l.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// swaps ends a swap: the remaining .swap sets are complete. The segments they cover go, then they get their names.
func (l *lister) swaps(names []string) error {
	low, high := int64(math.MaxInt64), int64(-1)
	for _, name := range names {
		base, kind, rest, ok := segmentFile(name)
		if !ok || kind != LogSuffix || rest != SwapSuffix {
			continue
		}
		next, err := l.nextOffset(base)
		if err != nil {
			return err
		}
		low, high = min(low, base), max(high, next)
	}
	for _, name := range names {
		if base, _, rest, ok := segmentFile(name); ok && rest == "" && base >= low && base < high {
			if err := l.remove(name); err != nil {
				return err
			}
		}
	}
	// The order of Promote: the old names are gone for good before the new ones appear, the logs before their indexes.
	for _, logs := range []bool{true, false} {
		if err := l.sync(); err != nil {
			return err
		}
		for _, name := range names {
			base, kind, rest, ok := segmentFile(name)
			if !ok || rest != SwapSuffix || (kind == LogSuffix) != logs {
				continue
			}
			l.changed = true
			if err := l.fs.Rename(path.Join(l.dir, name), path.Join(l.dir, Name(base, kind))); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextOffset is the offset behind the last batch of a .log.swap.
func (l *lister) nextOffset(base int64) (next int64, err error) {
	f, err := l.fs.OpenFile(path.Join(l.dir, Name(base, LogSuffix+SwapSuffix)), os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err == nil {
		s := newSegment(l.dir, ID{base}, Options{Size: SizeMax})
		s.suffix = SwapSuffix
		w := s.walkFile(f, size)
		_, _, err = s.advance(&w, anchor{}, math.MaxInt64, rules{holes: math.MaxInt64, build: true})
		w.done()
		next = s.NextOffset()
	}
	return next, errors.Join(err, f.Close())
}

// orphans removes index files without a .log and gathers the bases.
func (l *lister) orphans(names []string) error {
	have := map[int64]bool{}
	for _, name := range names {
		if base, kind, rest, ok := segmentFile(name); ok && kind == LogSuffix && rest == "" {
			have[base] = true
			l.bases = append(l.bases, base)
		}
	}
	for _, name := range names {
		base, _, rest, ok := segmentFile(name)
		if ok && rest == "" && !have[base] {
			if err := l.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
