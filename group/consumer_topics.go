package group

import (
	"encoding/binary"
	"slices"

	"sekali/internal/match"

	"github.com/cespare/xxhash/v2"
)

// topics are the topics any member wants, as far as they exist, by name.
func (d *draft) topics() []assignTopic {
	var all []assignTopic
	for _, name := range d.state.subscribed() {
		if id, partitions, ok := d.c.g.s.m.topics.Lookup(name); ok {
			all = append(all, assignTopic{name, id, partitions})
		}
	}
	return all
}

// topicsHash tells one set of topics from another; 0 is the empty set. Kafka computes it otherwise: a group that moves
// between the two raises its epoch once.
func topicsHash(topics []assignTopic) int64 {
	if len(topics) == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	var b []byte
	for _, t := range topics {
		b = append(b[:0], t.id[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(t.partitions))
		b = append(b, t.name...)
		b = append(b, 0)
		h.Write(b)
	}
	return int64(h.Sum64())
}

// regexInUse are the regular expressions members subscribe with.
func (st *consumerState) regexInUse() map[string]bool {
	used := map[string]bool{}
	for _, m := range st.members {
		if m.regex != "" {
			used[m.regex] = true
		}
	}
	return used
}

// dropRegexes forgets what nobody subscribes with any more.
func (d *draft) dropRegexes() {
	if len(d.state.regexes) == 0 {
		return
	}
	used := d.state.regexInUse()
	var unused []string
	for regex := range d.state.regexes {
		if !used[regex] {
			unused = append(unused, regex)
		}
	}
	slices.Sort(unused)
	for _, regex := range unused {
		d.do(regexChange{regex: regex})
		delete(d.c.compiled, regex)
	}
}

// resolveAll matches every regular expression in use with the topics there are. It reports whether any changed.
func (d *draft) resolveAll() (changed bool) {
	used := d.state.regexInUse()
	all := make([]string, 0, len(used))
	for regex := range used {
		all = append(all, regex)
	}
	slices.Sort(all)
	for _, regex := range all {
		changed = d.resolve(regex) || changed
	}
	return changed
}

// resolve matches one regular expression with the topics there are and keeps the result, also one without a match. It
// reports whether the result is another one than before.
func (d *draft) resolve(regex string) (changed bool) {
	re := d.c.compiled[regex]
	if re == nil {
		var err error
		if re, err = match.Whole(regex); err != nil {
			return false // only a log written by somebody else can hold it
		}
		d.c.compiled[regex] = re
	}
	var topics []string
	for _, name := range d.c.g.s.m.topics.Names() {
		if re.MatchString(name) {
			topics = append(topics, name)
		}
	}
	slices.Sort(topics)
	old := d.state.regexes[regex]
	if old != nil && slices.Equal(old.topics, topics) {
		return false
	}
	d.do(regexChange{regex, &resolvedRegex{topics: topics, at: d.c.g.s.wall()}})
	return true
}

// consumerTopicsChanged tells the consumer groups of the shard that topics were made, deleted or grown: their next
// heartbeat looks whether that concerns them.
func (s *shard) consumerTopicsChanged(changed []string) {
	for _, g := range s.groups {
		if g.consumer == nil || g.consumer.stale {
			continue
		}
		c := g.consumer
		c.stale = c.busy() || len(c.state.regexes) > 0 || slices.ContainsFunc(changed, c.subscribed)
	}
}
