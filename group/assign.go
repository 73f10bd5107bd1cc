package group

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Names of the server-side assignors (KIP-848). AssignorUniform is what a group uses unless most of its members ask for
// another one.
const (
	AssignorUniform = "uniform"
	AssignorRange   = "range"
)

// partitionKey names a partition by the id of its topic.
type partitionKey struct {
	id        [16]byte
	partition int32
}

func comparePartitions(a, b partitionKey) int {
	return cmp.Or(slices.Compare(a.id[:], b.id[:]), cmp.Compare(a.partition, b.partition))
}

// partitionSet is a set of partitions. Once it is part of a consumerState it never changes.
type partitionSet map[partitionKey]struct{}

// sorted is the set in order of topic id and number.
func (p partitionSet) sorted() []partitionKey {
	all := make([]partitionKey, 0, len(p))
	for k := range p {
		all = append(all, k)
	}
	slices.SortFunc(all, comparePartitions)
	return all
}

// assignTopic is a topic as assignors see it.
type assignTopic struct {
	name       string
	id         [16]byte
	partitions int32
}

// assignMember is a member as assignors see it. topics are indexes into the topics of the call, ascending, each once.
// current is its part of the assignment that is replaced.
type assignMember struct {
	id, instance string
	topics       []int
	current      partitionSet
}

// assignor spreads the partitions of topics over members: each partition of a topic with a subscriber goes to exactly
// one of them. The result has one entry per member. It depends on nothing but its arguments, and not on their order.
type assignor func(topics []assignTopic, members []assignMember) map[string]partitionSet

// assignors are all there are; a request for another one is answered with UNSUPPORTED_ASSIGNOR.
var assignors = map[string]assignor{AssignorUniform: assignUniform, AssignorRange: assignRange}

// checkAssignor refuses the name of an assignor that does not exist; nil and empty mean no wish.
func checkAssignor(name *string) *kerr.Error {
	if name == nil || *name == "" || assignors[*name] != nil {
		return nil
	}
	return kerr.UnsupportedAssignor
}

// sortMembers orders members the way assignors deal partitions out: static members by instance id, so that a member
// that comes back under a new id gets the same, then the others by id.
func sortMembers(members []assignMember) []assignMember {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b assignMember) int {
		switch {
		case a.instance != "" && b.instance != "":
			return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.id, b.id))
		case a.instance != "":
			return -1
		case b.instance != "":
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	return sorted
}

// assignRange gives each subscriber of a topic one run of its partitions, of equal length but for the first few, which
// get one more. Topics with the same number of partitions and the same subscribers are dealt out alike, so that
// partition n of each goes to one member.
func assignRange(topics []assignTopic, members []assignMember) map[string]partitionSet {
	out := make(map[string]partitionSet, len(members))
	subscribers := make([][]partitionSet, len(topics))
	for _, m := range sortMembers(members) {
		set := partitionSet{}
		out[m.id] = set
		for _, t := range m.topics {
			subscribers[t] = append(subscribers[t], set)
		}
	}
	for i, t := range topics {
		n := int32(len(subscribers[i]))
		if n == 0 {
			continue
		}
		each, more, next := t.partitions/n, t.partitions%n, int32(0)
		for j, set := range subscribers[i] {
			end := next + each
			if int32(j) < more {
				end++
			}
			for ; next < end; next++ {
				set[partitionKey{t.id, next}] = struct{}{}
			}
		}
	}
	return out
}
