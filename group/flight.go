package group

import (
	"encoding/binary"

	"sekali/internal/check"
)

// flight is one batch that was appended and whose done has not run.
type flight struct {
	recs    []Record
	waiting []func() // run once this batch and those before it are applied or refused
	from    int64    // it lies at this offset of the journal or behind it
}

// offsetsShard is what a shard knows of offsets and of the records in its journal. Owner: the shard.
type offsetsShard struct {
	open     map[int64]map[string]bool // producer id -> groups for which it has staged offsets
	flights  []*flight                 // in the order of their appends
	flyingBy map[string]int            // group -> offset commits and their tombstones in flights
	staging  int                       // flights of transactions
	markers  []decided                 // applied while a flight of a transaction was on its way
	loading  bool                      // groups are bare: they hold offsets, no membership

	others  map[string]other // last record of every key but offset commits, by its bytes
	count   int              // live offsets of all groups
	applied int64            // every record below is applied

	rewrite  rewrite
	snapshot snapshot
	expiry   expiry
}

// other is the last record of a key that is not an offset commit.
type other struct {
	at    int64
	value []byte
}

// appending notes a batch that is handed to the journal.
func (s *shard) appending(recs []Record) {
	check.That(len(recs) > 0, "a batch of a group has records")
	s.flights = append(s.flights, &flight{recs: recs, from: s.applied})
	s.countFlying(recs, 1)
}

// appended applies a batch that is durable, or forgets one that was refused (err). It runs before the batch's done.
func (s *shard) appended(base int64, recs []Record, err error) {
	if err == nil {
		for i := range recs {
			check.NoError(s.apply(base+int64(i), -1, &recs[i]), "a record of our own is read")
		}
		s.advance(base + int64(len(recs)))
	}
	s.landed(recs)
}

// landed takes a batch off the flights. A refused one may come before earlier ones: what waits for it waits for them.
func (s *shard) landed(recs []Record) {
	for i, f := range s.flights {
		if len(f.recs) != len(recs) || &f.recs[0] != &recs[0] {
			continue
		}
		s.countFlying(recs, -1)
		copy(s.flights[i:], s.flights[i+1:])
		s.flights[len(s.flights)-1] = nil
		s.flights = s.flights[:len(s.flights)-1]
		if i > 0 {
			before := s.flights[i-1]
			before.waiting = append(before.waiting, f.waiting...)
			return
		}
		for _, fn := range f.waiting {
			fn()
		}
		return
	}
}

// settled runs fn once every batch appended so far is applied or refused.
func (s *shard) settled(fn func()) {
	if len(s.flights) == 0 {
		fn()
		return
	}
	last := s.flights[len(s.flights)-1]
	last.waiting = append(last.waiting, fn)
}

// flyingOffsets calls fn for every offset commit, or its tombstone, that is on its way.
func (s *shard) flyingOffsets(fn func(*recordKey)) {
	for _, f := range s.flights {
		for i := range f.recs {
			if k, err := parseKey(f.recs[i].Key); err == nil && (k.version == keyOffset || k.version == keyOffset0) {
				fn(&k)
			}
		}
	}
}

// flyingOf reports whether an offset commit of the group, or a tombstone of one, is on its way.
func (s *shard) flyingOf(id string) bool { return s.flyingBy[id] > 0 }

// countFlying adds n to the groups whose offsets are in recs, once for each.
func (s *shard) countFlying(recs []Record, n int) {
	for i := range recs {
		k := recs[i].Key
		if v := int16(binary.BigEndian.Uint16(k)); v != keyOffset && v != keyOffset0 {
			continue
		}
		id := k[4 : 4+binary.BigEndian.Uint16(k[2:])]
		if left := s.flyingBy[string(id)] + n; left == 0 {
			delete(s.flyingBy, string(id))
		} else {
			s.flyingBy[string(id)] = left
		}
	}
}

// flyingKeys are the keys of all records on their way, by their bytes.
func (s *shard) flyingKeys() map[string]bool {
	keys := map[string]bool{}
	for _, f := range s.flights {
		for i := range f.recs {
			keys[string(f.recs[i].Key)] = true
		}
	}
	return keys
}

// advance notes that every record below next is applied. Batches are applied in the order of their offsets.
func (s *shard) advance(next int64) {
	s.applied = max(s.applied, next)
	s.maintain()
}
