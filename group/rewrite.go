package group

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The steps of a rewrite: so many records and bytes per batch, and how long it rests when it was refused or when what
// is left waits for open transactions.
const (
	rewriteRecords = 500
	rewriteBytes   = 256 << 10
	rewriteRest    = time.Second
	dropRest       = 10 * time.Second
)

// rewrite keeps the journal short: the last record of every key below upTo is appended again, step by step, then the
// log start is raised to upTo. A key with a staged offset, or with a record on its way, waits: appended again now, its
// old value would lie behind the new one. Owner: the shard.
type rewrite struct {
	active bool
	floor  int64 // below it lies nothing that another rewrite would save
	upTo   int64
	groups []string // with offsets to look at
	keys   []string // other records to look at
	most   int      // bytes of the next batch, 0: rewriteBytes
}

// maintain begins a rewrite or a snapshot when enough records have come.
func (s *shard) maintain() {
	if s.loading {
		return
	}
	cfg := &s.m.cfg
	live := int64(s.count + len(s.others))
	if cfg.RewriteEvery > 0 && !s.rewrite.active && s.applied-s.rewrite.floor-live > cfg.RewriteEvery {
		s.rewrite.active = true
		s.after(0, s.beginRewrite)
	}
	if cfg.SnapshotEvery > 0 && !s.snapshot.active && s.applied-s.snapshot.asOf >= cfg.SnapshotEvery {
		s.snapshot.active = true
		s.after(0, s.takeSnapshot)
	}
}

// beginMaintenance starts expiry, and rewrite and snapshot where they are due. stale: there was a snapshot that did not
// fit; it is replaced at once, since it might seem to fit later.
func (s *shard) beginMaintenance(stale bool) error {
	s.rewrite.floor = s.journal.Start()
	if stale {
		asOf := s.firstStaged(s.applied)
		if err := s.m.snaps.Save(int(s.id), asOf, s.encodeSnapshot(asOf)); err != nil {
			return fmt.Errorf("group: partition %d, replacing a snapshot that does not fit: %w", s.id, err)
		}
		s.snapshot.asOf = s.applied
	}
	if s.m.cfg.RetainCheckMs > 0 {
		s.after(time.Duration(s.m.cfg.RetainCheckMs)*time.Millisecond, s.beginExpiry)
	}
	s.maintain()
	return nil
}

func (s *shard) beginRewrite() {
	s.rewrite.upTo = s.applied
	s.rewrite.groups = sortedStrings(s.groups)
	s.rewrite.keys = sortedStrings(s.others)
	s.rewriteStep()
}

// rewriteStep appends one batch, or ends the rewrite when nothing is left.
func (s *shard) rewriteStep() {
	recs := s.rewriteBatch()
	switch {
	case len(recs) > 0:
		s.append(recs, func(_ int64, code *kerr.Error) {
			rest := time.Duration(0)
			if s.rewrite.most = 0; code != nil {
				rest = rewriteRest
				s.rewrite.most = max(sizeOf(recs)/2, 1) // the log may take less than it did
			}
			s.after(rest, s.rewriteStep)
		})
	case len(s.rewrite.groups)+len(s.rewrite.keys) > 0:
		s.after(rewriteRest, s.rewriteStep)
	default:
		s.rewriteDrop()
	}
}

// batchLimit gathers records up to the limits of a step.
type batchLimit struct {
	recs        []Record
	bytes, most int
	full        bool
}

// add takes r unless the batch would pass its limits with it; then it is full. The first record always fits: it was
// written alone or among others before, and a journal that has no room for it beside others may have it alone.
func (b *batchLimit) add(r Record) bool {
	n := sizeOf([]Record{r})
	if b.full = b.full || len(b.recs) == rewriteRecords || len(b.recs) > 0 && b.bytes+n > b.most; b.full {
		return false
	}
	b.recs = append(b.recs, r)
	b.bytes += n
	return true
}

// sizeOf is what records take in a batch, about.
func sizeOf(recs []Record) (n int) {
	const overhead = 16
	for _, r := range recs {
		n += len(r.Key) + len(r.Value) + overhead
	}
	return n
}

// rewriteBatch takes the next records to append again. What it could not finish stays on the lists.
func (s *shard) rewriteBatch() []Record {
	b := batchLimit{most: rewriteBytes}
	if s.rewrite.most > 0 {
		b.most = min(b.most, s.rewrite.most)
	}
	flying := s.flyingKeys()
	var left []string
	for i, key := range s.rewrite.keys {
		if b.full {
			left = append(left, s.rewrite.keys[i:]...)
			break
		}
		o, ok := s.others[key]
		switch {
		case !ok || o.at >= s.rewrite.upTo:
		case flying[key]:
			left = append(left, key)
		default:
			b.add(Record{Key: []byte(key), Value: o.value})
			left = append(left, key) // until the record is applied, or if it did not fit
		}
	}
	s.rewrite.keys, left = left, nil
	for i, id := range s.rewrite.groups {
		if b.full {
			left = append(left, s.rewrite.groups[i:]...)
			break
		}
		if g := s.groups[id]; g != nil && !s.rewriteGroup(g, &b, flying) {
			left = append(left, id)
		}
	}
	s.rewrite.groups = left
	return b.recs
}

// rewriteGroup takes offsets of a group; true: none of them lies below upTo any more.
func (s *shard) rewriteGroup(g *group, b *batchLimit, flying map[string]bool) bool {
	finished := true
	for k, c := range g.offsets.live {
		if c.at >= s.rewrite.upTo {
			continue
		}
		finished = false
		if b.full {
			return false
		}
		if g.offsets.isStaged(k) {
			continue
		}
		if r := encodeOffset(g.id, k, &c); !flying[string(r.Key)] {
			b.add(r)
		}
	}
	return finished
}

// rewriteDrop raises the log start, as far as open transactions let it, until it has reached upTo.
func (s *shard) rewriteDrop() {
	if len(s.rewrite.groups) > 0 {
		s.rewriteStep()
		return
	}
	bound := min(s.firstStaged(s.rewrite.upTo), s.journal.Stable())
	if bound <= s.journal.Start() {
		s.rewriteDropped(bound, nil)
		return
	}
	j := s.journal
	s.aside(func() func() {
		err := j.DropBefore(bound)
		return func() { s.rewriteDropped(bound, err) }
	})
}

func (s *shard) rewriteDropped(bound int64, err error) {
	if len(s.rewrite.groups) > 0 { // a marker has made staged offsets live
		s.after(0, s.rewriteStep)
		return
	}
	if err != nil || bound < s.rewrite.upTo {
		s.after(dropRest, s.rewriteDrop)
		return
	}
	s.rewrite = rewrite{floor: s.rewrite.upTo}
	if s.m.cfg.SnapshotEvery > 0 && !s.snapshot.active {
		// The one before lies below the log start now.
		s.snapshot.active = true
		s.takeSnapshot()
	}
	s.maintain()
}

// aside runs slow beside the shard (with Config.Inline on it), then what it gives on the shard.
func (s *shard) aside(slow func() func()) {
	if s.m.cfg.Inline {
		slow()()
		return
	}
	s.m.wg.Go(func() { s.post(slow()) })
}
