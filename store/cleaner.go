package store

import (
	"time"

	"sekali/clean"
	"sekali/internal/clock"
	"sekali/plog"
)

// The usual bounds of compaction, as Kafka has them but for the rate, which Kafka does not bound.
const (
	cleanEveryUsual = 15 * time.Second
	cleanBytesUsual = 128 << 20
	cleanRateUsual  = 64 << 20
)

// cleanAgain is how long a log is left alone after its compaction failed.
const cleanAgain = 10 * time.Minute

// CleanConfig bounds compaction (log.cleaner.*).
type CleanConfig struct {
	Off   bool
	Every time.Duration // between two looks where nothing was dirty enough; 0: 15 s
	Bytes int64         // of memory for keys; 0: 128 MiB. What does not fit is left to the next turn
	Rate  int64         // bytes a second read and written; 0: 64 MiB
}

// WithDefaults returns c with the usual values where nothing is said.
func (c CleanConfig) WithDefaults() CleanConfig {
	if c.Every <= 0 {
		c.Every = cleanEveryUsual
	}
	if c.Bytes <= 0 {
		c.Bytes = cleanBytesUsual
	}
	if c.Rate <= 0 {
		c.Rate = cleanRateUsual
	}
	return c
}

// cleanLoop compacts one log after the other until the store closes.
func (s *Store) cleanLoop() {
	for busy := false; busy || s.idle(s.c.Clean.Every); {
		busy = s.CleanDirtiest()
	}
}

// idle waits; false: the store closes.
func (s *Store) idle(d time.Duration) bool {
	over := make(chan struct{})
	t := s.c.Clock.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-over:
		return true
	}
}

// CleanDirtiest compacts the log that has the largest share of bytes never looked at, if one has a larger share than
// its topic allows (min.cleanable.dirty.ratio) or is late (max.compaction.lag.ms). It returns whether it got on. One
// call at a time; where the clock is not simulated the store makes them.
func (s *Store) CleanDirtiest() bool {
	p, l := s.dirtiest()
	if l == nil {
		return false
	}
	pace := pacer{s: s, began: s.c.Clock.Mono()}
	before := l.Dirt(s.c.Clock.Wall())
	out, err := l.Clean(plog.CleanIn{
		Now: s.c.Clock.Wall(), Keys: int(s.c.Clean.Bytes / clean.KeyBytes), Pace: pace.wait,
	})
	if err != nil { // told by the log
		p.cleanAfter = s.c.Clock.Mono() + cleanAgain
		return false
	}
	return out.FirstDirty > 0 && l.Dirt(s.c.Clock.Wall()).Dirty < before.Dirty
}

// dirtiest is the log that deserves compaction most, nil: none does.
func (s *Store) dirtiest() (p *part, l *plog.Log) {
	most, wall, mono := -1.0, s.c.Clock.Wall(), s.c.Clock.Mono()
	for _, t := range s.cat.Load().ByID {
		if t.Internal || !t.Config.Compact {
			continue // the coordinators keep theirs short themselves
		}
		for _, q := range t.parts {
			log := q.log.Load()
			if log == nil || mono < q.cleanAfter {
				continue
			}
			d := log.Dirt(wall)
			share := float64(d.Dirty) / float64(max(d.Clean+d.Dirty, 1))
			if d.Dirty > 0 && (share > t.Config.CleanRatio || d.Late) && share > most {
				p, l, most = q, log, share
			}
		}
	}
	return p, l
}

// pacer keeps one call of Clean below the rate.
type pacer struct {
	s     *Store
	began time.Duration
	bytes int64
}

// wait returns when the bytes so far may have passed; false: the store closes.
func (p *pacer) wait(n int64) bool {
	p.bytes += n
	due := p.began + time.Duration(float64(p.bytes)/float64(p.s.c.Clean.Rate)*float64(time.Second))
	if ahead := due - p.s.c.Clock.Mono(); ahead > 0 && !clock.Simulated(p.s.c.Clock) {
		return p.s.idle(ahead)
	}
	return !p.s.closing.Load()
}
