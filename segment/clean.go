package segment

import "sekali/internal/check"

// Stage is how far the files of a cleaned segment have come.
type Stage uint8

// Stages of the swap protocol (spec/on-disk.md 7 step 1): being written; complete, about to replace; in place.
const (
	Cleaned Stage = iota
	Swap
	Final
)

// Promote renames the files of a cleaned segment to the names of the next stage, durably. The owner of the cleaner's
// output calls it, sealed and synced; it may overlap readers. A set of segments goes to Swap from the highest base to
// the lowest, so that a crash on the way leaves a .cleaned file at or below every .swap that must not count; then the
// segments replaced retire with their files; then the set goes to Final. After an error the names are of both stages:
// the log is opened again.
//
// Renames become durable in any order (docs/CRASH.md), so Final syncs the directory before the first one, after that
// of the .log, and at the end: while a .log.swap is there, every file with a final name in its range is an old one.
func (s *Segment) Promote(to Stage) error {
	check.That(s.sealed.Load() && s.synced.Load() == s.size.Load(), "segment: promoted before sealed and synced")
	check.That(to == Swap || to == Final, "segment: promoted to no later stage")
	suffix := SwapSuffix
	if to == Final {
		suffix = ""
		if err := s.o.FS.SyncDir(s.dir); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.suffix
	for _, kind := range kinds {
		s.suffix = old
		from := s.path(kind)
		s.suffix = suffix
		if err := missingIsFine(s.o.FS.Rename(from, s.path(kind))); err != nil {
			return err
		}
		if kind == LogSuffix && to == Final {
			if err := s.o.FS.SyncDir(s.dir); err != nil {
				return err
			}
		}
	}
	return s.o.FS.SyncDir(s.dir)
}
