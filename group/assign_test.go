package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func topicOf(n byte, partitions int32) assignTopic {
	return assignTopic{name: fmt.Sprintf("t%d", n), id: [16]byte{n}, partitions: partitions}
}

func setOf(topic byte, partitions ...int32) partitionSet {
	s := partitionSet{}
	for _, p := range partitions {
		s[partitionKey{[16]byte{topic}, p}] = struct{}{}
	}
	return s
}

func union(sets ...partitionSet) partitionSet {
	all := partitionSet{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

// TestRange: runs of a topic's partitions, the first ones longer; static members before the others, by instance id.
func TestRange(t *testing.T) {
	topics := []assignTopic{topicOf(1, 5), topicOf(2, 5), topicOf(3, 1)}
	got := assignRange(topics, []assignMember{
		{id: "z", instance: "i1", topics: []int{0, 1}},
		{id: "a", instance: "i2", topics: []int{0, 1}},
		{id: "b", topics: []int{0, 1, 2}},
	})
	want := map[string]partitionSet{
		"z": union(setOf(1, 0, 1), setOf(2, 0, 1)),
		"a": union(setOf(1, 2, 3), setOf(2, 2, 3)),
		"b": union(setOf(1, 4), setOf(2, 4), setOf(3, 0)),
	}
	for id, set := range want {
		if !maps.Equal(got[id], set) {
			t.Errorf("%s: %v, want %v", id, got[id].sorted(), set.sorted())
		}
	}
}

// TestUniformChain: no single move makes 3, 2, 1 even, but two of them do.
func TestUniformChain(t *testing.T) {
	topics := []assignTopic{topicOf(1, 3), topicOf(2, 3)}
	got := assignUniform(topics, []assignMember{
		{id: "a", topics: []int{0}, current: setOf(1, 0, 1, 2)},
		{id: "b", topics: []int{0, 1}, current: setOf(2, 0, 1)},
		{id: "c", topics: []int{1}, current: setOf(2, 2)},
	})
	if len(got["a"]) != 2 || len(got["b"]) != 2 || len(got["c"]) != 2 {
		t.Fatalf("%d, %d and %d partitions, want 2 each", len(got["a"]), len(got["b"]), len(got["c"]))
	}
	if n := moved(got, map[string]partitionSet{"a": setOf(1, 0, 1, 2), "b": setOf(2, 0, 1), "c": setOf(2, 2)}); n != 2 {
		t.Fatalf("%d partitions moved, want 2", n)
	}
}

// moved counts the partitions that somebody held and does not hold any more.
func moved(now, before map[string]partitionSet) int {
	n := 0
	for id, set := range before {
		for p := range set {
			if _, kept := now[id][p]; !kept {
				n++
			}
		}
	}
	return n
}

// drawGroup draws topics and members whose present parts do not overlap but may hold partitions that are gone, of
// topics that are gone, and of topics their members do not want any more.
func drawGroup(t *rapid.T, even bool) ([]assignTopic, []assignMember) {
	var topics []assignTopic
	for i := range rapid.IntRange(1, 5).Draw(t, "topics") {
		topics = append(topics, topicOf(byte(i+1), rapid.Int32Range(1, 12).Draw(t, "partitions")))
	}
	members := make([]assignMember, rapid.IntRange(1, 8).Draw(t, "members"))
	for i := range members {
		m := &members[i]
		m.id, m.current = fmt.Sprintf("m%d", i), partitionSet{}
		if rapid.Bool().Draw(t, "static") {
			m.instance = fmt.Sprintf("i%d", 9-i)
		}
		for j := range topics {
			if even || rapid.Bool().Draw(t, "wants") {
				m.topics = append(m.topics, j)
			}
		}
	}
	for topic := byte(1); topic <= 6; topic++ {
		for p := range int32(14) {
			if owner := rapid.IntRange(-3, len(members)-1).Draw(t, "owner"); owner >= 0 {
				members[owner].current[partitionKey{[16]byte{topic}, p}] = struct{}{}
			}
		}
	}
	return topics, members
}

// checkWhole: every partition of a topic with a subscriber lies with exactly one of them, and nothing else does.
func checkWhole(t *rapid.T, topics []assignTopic, members []assignMember, got map[string]partitionSet) {
	owners := map[partitionKey]string{}
	for _, m := range members {
		set, is := got[m.id]
		if !is {
			t.Fatalf("no entry for %s", m.id)
		}
		for p := range set {
			if other, twice := owners[p]; twice {
				t.Fatalf("%v lies with %s and %s", p, other, m.id)
			}
			owners[p] = m.id
			topic := int(p.id[0]) - 1
			if topic >= len(topics) || !slices.Contains(m.topics, topic) || p.partition >= topics[topic].partitions {
				t.Fatalf("%s got %v, which it does not want or which does not exist", m.id, p)
			}
		}
	}
	want := 0
	for i, topic := range topics {
		if slices.ContainsFunc(members, func(m assignMember) bool { return slices.Contains(m.topics, i) }) {
			want += int(topic.partitions)
		}
	}
	if len(owners) != want || len(got) != len(members) {
		t.Fatalf("%d partitions with %d members, want %d with %d", len(owners), len(got), want, len(members))
	}
}

func checkOrderless(t *rapid.T, a assignor, topics []assignTopic, members []assignMember, got map[string]partitionSet) {
	shuffled := rapid.Permutation(members).Draw(t, "order")
	for id, set := range a(topics, shuffled) {
		if !maps.Equal(set, got[id]) {
			t.Fatalf("%s: the order of the members matters", id)
		}
	}
}

func TestRangeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics, members := drawGroup(t, false)
		got := assignRange(topics, members)
		checkWhole(t, topics, members, got)
		checkOrderless(t, assignRange, topics, members, got)
		for i, topic := range topics {
			least, most := int(topic.partitions), 0
			for _, m := range members {
				if !slices.Contains(m.topics, i) {
					continue
				}
				var mine []int32
				for _, p := range got[m.id].sorted() {
					if p.id == topic.id {
						mine = append(mine, p.partition)
					}
				}
				least, most = min(least, len(mine)), max(most, len(mine))
				if len(mine) > 0 && int(mine[len(mine)-1]-mine[0]) != len(mine)-1 {
					t.Fatalf("%s: not one run: %v", m.id, mine)
				}
			}
			if most-least > 1 {
				t.Fatalf("%s: between %d and %d", topic.name, least, most)
			}
		}
	})
}

// TestUniformEven: where all want the same, numbers differ by one at most and the fewest possible partitions move.
func TestUniformEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics, members := drawGroup(t, true)
		got := assignUniform(topics, members)
		checkWhole(t, topics, members, got)
		checkOrderless(t, assignUniform, topics, members, got)
		total := 0
		for _, topic := range topics {
			total += int(topic.partitions)
		}
		// Of what members hold and may keep, each keeps at most its share; the largest holders have the larger shares.
		var valid []int
		kept := 0
		for _, m := range members {
			n := 0
			for p := range m.current {
				if topic := int(p.id[0]) - 1; topic < len(topics) && p.partition < topics[topic].partitions {
					n++
					if _, keeps := got[m.id][p]; keeps {
						kept++
					}
				}
			}
			valid = append(valid, n)
			if load := len(got[m.id]); load != total/len(members) && load != (total+len(members)-1)/len(members) {
				t.Fatalf("%s has %d of %d partitions, %d members", m.id, load, total, len(members))
			}
		}
		slices.SortFunc(valid, func(a, b int) int { return b - a })
		most := 0
		for i, n := range valid {
			share := total / len(members)
			if i < total%len(members) {
				share++
			}
			most += min(n, share)
		}
		if kept != most {
			t.Fatalf("%d partitions stayed, %d could have", kept, most)
		}
	})
}

// TestUniformUneven: no chain of moves from one member to another would make two numbers that differ by two or more
// more even, and an assignment that is balanced already does not change.
func TestUniformUneven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics, members := drawGroup(t, false)
		got := assignUniform(topics, members)
		checkWhole(t, topics, members, got)
		checkOrderless(t, assignUniform, topics, members, got)
		for _, m := range members {
			reached := []string{m.id}
			for i := 0; i < len(reached); i++ {
				for p := range got[reached[i]] {
					for _, to := range members {
						if slices.Contains(to.topics, int(p.id[0])-1) && !slices.Contains(reached, to.id) {
							reached = append(reached, to.id)
						}
					}
				}
			}
			for _, to := range reached {
				if len(got[to])+2 <= len(got[m.id]) {
					t.Fatalf("%s has %d, %s has %d and could be given some", m.id, len(got[m.id]), to, len(got[to]))
				}
			}
		}
		for i := range members {
			members[i].current = got[members[i].id]
		}
		if n := moved(assignUniform(topics, members), got); n != 0 {
			t.Fatalf("%d partitions of a balanced assignment moved", n)
		}
	})
}

// TestUniformJoinLeave: a member that joins takes only what it gets, one that leaves disturbs nobody else.
func TestUniformJoinLeave(t *testing.T) {
	topics := []assignTopic{topicOf(1, 7), topicOf(2, 5)}
	member := func(id string, current partitionSet) assignMember {
		return assignMember{id: id, topics: []int{0, 1}, current: current}
	}
	two := assignUniform(topics, []assignMember{member("a", nil), member("b", nil)})
	three := assignUniform(topics, []assignMember{member("a", two["a"]), member("b", two["b"]), member("c", nil)})
	if len(three["c"]) != 4 || moved(three, two) != 4 {
		t.Fatalf("joining: %d for the new one, %d moved, want 4 and 4", len(three["c"]), moved(three, two))
	}
	after := assignUniform(topics, []assignMember{member("b", three["b"]), member("c", three["c"])})
	delete(three, "a")
	if moved(after, three) != 0 || len(after["b"]) != 6 || len(after["c"]) != 6 {
		t.Fatalf("leaving: %d moved, %d and %d, want none and 6 each", moved(after, three), len(after["b"]), len(after["c"]))
	}
}
