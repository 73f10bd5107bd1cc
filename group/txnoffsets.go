package group

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"sekali/batch"
	"sekali/internal/check"
)

// decided is a marker that was applied while a batch of a transaction was on its way: of the two, the one told first
// need not be the one written first.
type decided struct {
	pid, offset int64
	commit      bool
}

// stage appends the offsets of a transaction. They are held apart until the marker of their producer id (I12). answer
// has a guard if nothing was written because the coordinator must be asked first.
func (s *shard) stage(in *CommitIn, recs []Record, answer func(code *kerr.Error, guard uint64)) {
	s.appending(recs)
	s.staging++
	pid := in.PID
	s.appendTxn(recs, pid, in.Epoch, in.Guard, func(base int64, code *kerr.Error, guard uint64) {
		s.staging--
		if code == nil && guard == 0 {
			for i := range recs {
				check.NoError(s.apply(base+int64(i), pid, &recs[i]), "a record of our own is read")
			}
			s.advance(base + int64(len(recs)))
			s.overtaken(pid)
		}
		if s.staging == 0 {
			s.markers = nil
		}
		s.landed(recs)
		answer(code, guard)
	})
}

// overtaken decides what was just staged if the marker that closed its transaction has come before.
func (s *shard) overtaken(pid int64) {
	for _, d := range s.markers {
		if d.pid == pid {
			s.decide(d)
		}
	}
}

// marker applies a durable marker: on commit the staged offsets of its producer id become the group's unless a later
// record holds, on abort they are dropped. A marker told twice finds nothing.
func (s *shard) marker(offset int64, mk batch.Marker) {
	d := decided{pid: mk.PID, offset: offset, commit: mk.Commit}
	if s.staging > 0 {
		s.forgetMarkers()
		// The first one behind a batch decides it, so they are kept in the order of the journal.
		at, _ := slices.BinarySearchFunc(s.markers, offset, func(m decided, o int64) int { return cmp.Compare(m.offset, o) })
		s.markers = slices.Insert(s.markers, at, d)
	}
	s.decide(d)
	if len(s.flights) == 0 {
		s.advance(offset + 1)
	}
}

// forgetMarkers drops the markers before the first batch on its way: they decide none of those to come.
func (s *shard) forgetMarkers() {
	n := 0
	for n < len(s.markers) && len(s.flights) > 0 && s.markers[n].offset < s.flights[0].from {
		n++
	}
	s.markers = slices.Delete(s.markers, 0, n)
}

func (s *shard) decide(d decided) {
	n := 0
	for id := range s.open[d.pid] {
		g := s.groups[id]
		keys, below := g.offsets.staged[d.pid], false
		for k, c := range keys {
			if c.at > d.offset {
				continue
			}
			delete(keys, k)
			n++
			if d.commit {
				s.set(g, k, c)
				below = below || c.at < s.rewrite.upTo
			}
		}
		if below && s.rewrite.active {
			s.rewrite.groups = append(s.rewrite.groups, id) // what was staged is live now and must be appended again
		}
		if len(keys) == 0 {
			delete(g.offsets.staged, d.pid)
			s.closeStaged(d.pid, id)
		}
	}
	if told := s.m.cfg.Events.Settled; told != nil && n > 0 && !s.loading {
		told(n, d.commit)
	}
}

// addStaged holds an offset of a transaction until its marker.
func (s *shard) addStaged(g *group, pid int64, k tpKey, c committed) {
	keys := g.offsets.staged[pid]
	if keys == nil {
		keys = map[tpKey]committed{}
		if g.offsets.staged == nil {
			g.offsets.staged = map[int64]map[tpKey]committed{}
		}
		g.offsets.staged[pid] = keys
		if s.open[pid] == nil {
			s.open[pid] = map[string]bool{}
		}
		s.open[pid][g.id] = true
	}
	keys[k] = c // batches come in the order of their offsets: the later record of a producer id holds
}

// dropStaged removes what open transactions have staged for k up to offset at (a tombstone's).
func (s *shard) dropStaged(g *group, k tpKey, at int64) {
	for pid, keys := range g.offsets.staged {
		if c, ok := keys[k]; !ok || c.at > at {
			continue
		}
		delete(keys, k)
		if len(keys) == 0 {
			delete(g.offsets.staged, pid)
			s.closeStaged(pid, g.id)
		}
	}
}

// closeStaged forgets that a producer id has staged offsets for a group.
func (s *shard) closeStaged(pid int64, id string) {
	delete(s.open[pid], id)
	if len(s.open[pid]) == 0 {
		delete(s.open, pid)
	}
}

// firstStaged is the lowest journal offset of a staged record, or limit if there is none below it.
func (s *shard) firstStaged(limit int64) int64 {
	for pid, groups := range s.open {
		for id := range groups {
			for _, c := range s.groups[id].offsets.staged[pid] {
				limit = min(limit, c.at)
			}
		}
	}
	return limit
}
