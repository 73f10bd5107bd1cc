package group

// group is one consumer group. Exactly one of classic and consumer is set; which one may change while the group has no
// members. It belongs to its shard.
type group struct {
	id       string
	s        *shard
	classic  *classic
	consumer *consumerGroup
	offsets  offsetTable // committed offsets and those staged by transactions
	dead     bool        // its tombstones are on their way: requests are answered COORDINATOR_NOT_AVAILABLE
	making   int         // records that create it and are on their way
}

// empty reports whether the group has no members, joined or about to.
func (g *group) empty() bool {
	if g.consumer != nil {
		return g.consumer.empty()
	}
	return g.classic.empty()
}
