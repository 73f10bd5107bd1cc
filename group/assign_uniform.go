package group

import (
	"cmp"
	"container/heap"
	"slices"
)

// assignUniform keeps what members hold as far as balance allows. Where all subscribe to the same topics, the numbers
// of partitions differ by one at most and no more partitions move than that takes. Else each partition lies with one of
// its topic's subscribers, and no chain of moves would bring two members whose numbers differ by two or more closer.
func assignUniform(topics []assignTopic, members []assignMember) map[string]partitionSet {
	sorted := sortMembers(members)
	for _, m := range sorted {
		if !slices.Equal(m.topics, sorted[0].topics) {
			u := newUneven(topics, sorted)
			u.fill()
			u.balance()
			return u.result()
		}
	}
	return assignEven(topics, sorted)
}

// assignEven is assignUniform for members that all subscribe to the same topics. Those that hold most get the larger
// shares, each keeps up to its share, and the rest is dealt out in turn, so that a topic's partitions spread.
func assignEven(topics []assignTopic, members []assignMember) map[string]partitionSet {
	out := make(map[string]partitionSet, len(members))
	if len(members) == 0 {
		return out
	}
	var all []partitionKey
	for _, t := range members[0].topics {
		for p := range topics[t].partitions {
			all = append(all, partitionKey{topics[t].id, p})
		}
	}
	owner := currentOwners(all, members)
	held := make([][]partitionKey, len(members))
	for _, p := range all {
		if m, ok := owner[p]; ok {
			held[m] = append(held[m], p)
		}
	}
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(held[b]), len(held[a])) })
	share := make([]int, len(members))
	for place, m := range order {
		share[m] = len(all) / len(members)
		if place < len(all)%len(members) {
			share[m]++
		}
	}
	for i, m := range members {
		set := make(partitionSet, share[i])
		out[m.id] = set
		for n, p := range held[i] {
			if n == share[i] {
				break
			}
			set[p] = struct{}{}
		}
	}
	dealOut(all, members, owner, share, out)
	return out
}

// dealOut gives the partitions that nobody keeps to the members below their share, one after the other.
func dealOut(all []partitionKey, members []assignMember, owner map[partitionKey]int, share []int,
	out map[string]partitionSet) {
	turn := 0
	for _, p := range all {
		if m, ok := owner[p]; ok {
			if _, kept := out[members[m].id][p]; kept {
				continue
			}
		}
		for len(out[members[turn].id]) >= share[turn] {
			turn = (turn + 1) % len(members)
		}
		out[members[turn].id][p] = struct{}{}
		turn = (turn + 1) % len(members)
	}
}

// currentOwners tells which member (by index) holds each of the partitions; of two that claim one the first does.
func currentOwners(all []partitionKey, members []assignMember) map[partitionKey]int {
	owner := make(map[partitionKey]int, len(all))
	for i, m := range members {
		for p := range m.current {
			if _, taken := owner[p]; !taken {
				owner[p] = i
			}
		}
	}
	return owner
}

// uneven is one run of assignUniform over members with different subscriptions. Members and topics are indexes.
type uneven struct {
	topics  []assignTopic
	members []assignMember
	subs    [][]int          // members that subscribe to a topic
	owner   [][]int          // of each partition of a topic; -1: nobody
	load    []int            // partitions of each member
	holds   []map[int]int    // of each member: topic -> number of its partitions
	byID    map[[16]byte]int // topic of an id
}

func newUneven(topics []assignTopic, members []assignMember) *uneven {
	u := &uneven{topics: topics, members: members, subs: make([][]int, len(topics)), owner: make([][]int, len(topics)),
		load: make([]int, len(members)), holds: make([]map[int]int, len(members)), byID: map[[16]byte]int{}}
	for t, topic := range topics {
		u.byID[topic.id] = t
		u.owner[t] = slices.Repeat([]int{-1}, int(topic.partitions))
	}
	for m, member := range members {
		u.holds[m] = map[int]int{}
		for _, t := range member.topics {
			u.subs[t] = append(u.subs[t], m)
		}
		for p := range member.current {
			t, known := u.byID[p.id]
			if _, subscribed := slices.BinarySearch(member.topics, t); !known || !subscribed ||
				p.partition >= topics[t].partitions || u.owner[t][p.partition] >= 0 {
				continue
			}
			u.give(t, int(p.partition), m)
		}
	}
	return u
}

// give moves a partition to member m.
func (u *uneven) give(t, partition, m int) {
	if from := u.owner[t][partition]; from >= 0 {
		u.load[from]--
		if u.holds[from][t]--; u.holds[from][t] == 0 {
			delete(u.holds[from], t)
		}
	}
	u.owner[t][partition] = m
	u.load[m]++
	u.holds[m][t]++
}

// fill gives each partition without an owner to the subscriber with the fewest; topics with the fewest subscribers
// first, because the others can still even things out.
func (u *uneven) fill() {
	order := make([]int, len(u.topics))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(u.subs[a]), len(u.subs[b])) })
	for _, t := range order {
		if len(u.subs[t]) == 0 || !slices.Contains(u.owner[t], -1) {
			continue
		}
		h := &loadHeap{load: u.load, members: slices.Clone(u.subs[t])}
		heap.Init(h)
		for p, m := range u.owner[t] {
			if m < 0 {
				u.give(t, p, h.members[0])
				heap.Fix(h, 0)
			}
		}
	}
}

// balance moves partitions from members with many to members with few, along chains where no single move helps, until
// no chain is left: then the numbers are as even as the subscriptions allow. A member from which the search failed
// reaches nobody worth a move, nor does anybody it reached.
func (u *uneven) balance() {
	order := make([]int, len(u.members))
	for i := range order {
		order[i] = i
	}
	settled := make([]bool, len(u.members))
	for {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(u.load[b], u.load[a]) })
		moved := false
		for _, m := range order {
			if settled[m] {
				continue
			}
			if moved = u.relieve(m, settled); moved {
				break
			}
		}
		if !moved {
			return
		}
	}
}

// step is how the search came to a member: a partition of topic goes from member from to it.
type step struct{ from, topic int }

// relieve looks for a member with at least two partitions fewer than m, reached by handing a partition to a subscriber,
// who hands on one of its own, and so on; the shortest such chain is carried out. False: there is none, and all that
// were reached are marked settled.
func (u *uneven) relieve(m int, settled []bool) bool {
	came := map[int]step{m: {from: -1}}
	seen := map[int]bool{}
	queue := []int{m}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		held := make([]int, 0, len(u.holds[at]))
		for t := range u.holds[at] {
			held = append(held, t)
		}
		slices.Sort(held)
		for _, t := range held {
			if seen[t] {
				continue
			}
			seen[t] = true
			for _, to := range u.subs[t] {
				if _, twice := came[to]; twice || settled[to] {
					continue
				}
				came[to] = step{at, t}
				if u.load[to] <= u.load[m]-2 {
					u.carryOut(came, to)
					return true
				}
				queue = append(queue, to)
			}
		}
	}
	for reached := range came {
		settled[reached] = true
	}
	return false
}

// carryOut moves one partition along each step of the chain that ends at member to.
func (u *uneven) carryOut(came map[int]step, to int) {
	for s := came[to]; s.from >= 0; s = came[to] {
		// The last one: partitions dealt out in this run come after those kept.
		for p := len(u.owner[s.topic]) - 1; p >= 0; p-- {
			if u.owner[s.topic][p] == s.from {
				u.give(s.topic, p, to)
				break
			}
		}
		to = s.from
	}
}

func (u *uneven) result() map[string]partitionSet {
	out := make(map[string]partitionSet, len(u.members))
	for m, member := range u.members {
		out[member.id] = make(partitionSet, u.load[m])
	}
	for t, owners := range u.owner {
		for p, m := range owners {
			if m >= 0 {
				out[u.members[m].id][partitionKey{u.topics[t].id, int32(p)}] = struct{}{}
			}
		}
	}
	return out
}

// loadHeap has the member with the fewest partitions on top, of equals the first.
type loadHeap struct {
	load    []int
	members []int
}

func (h *loadHeap) Len() int { return len(h.members) }

func (h *loadHeap) Less(i, j int) bool {
	a, b := h.members[i], h.members[j]
	return h.load[a] < h.load[b] || h.load[a] == h.load[b] && a < b
}

func (h *loadHeap) Swap(i, j int) { h.members[i], h.members[j] = h.members[j], h.members[i] }

// Push and Pop belong to heap.Interface; the heap only ever gives way at its top.
func (h *loadHeap) Push(x any) { h.members = append(h.members, x.(int)) }

// Pop takes the last member off.
func (h *loadHeap) Pop() any {
	last := h.members[len(h.members)-1]
	h.members = h.members[:len(h.members)-1]
	return last
}
