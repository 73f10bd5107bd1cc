package group

import "github.com/twmb/franz-go/pkg/kerr"

// leave is a LeaveGroup on the shard of its group (spec 1.3). The rebalance begins once, after all have left.
func (s *shard) leave(id string, members []Member) []*kerr.Error {
	g := s.groups[id]
	if g == nil || g.classic == nil {
		return repeat(kerr.UnknownMemberID, len(members))
	}
	c := g.classic
	codes := make([]*kerr.Error, len(members))
	before := len(c.members)
	for i := range members {
		codes[i] = c.leaveOne(&members[i])
	}
	if len(c.members) < before {
		c.rebalanceOrComplete()
	} else {
		c.complete()
	}
	return codes
}

// leaveOne drops one member: named by its id, by its instance alone (an administrator removes it), or as a member id
// that was issued and never used.
func (c *classic) leaveOne(in *Member) *kerr.Error {
	if in.Member == "" {
		m := c.statics[in.Instance]
		if in.Instance == "" || m == nil {
			return kerr.UnknownMemberID
		}
		c.drop(m)
		return nil
	}
	if t := c.pending[in.Member]; t != nil {
		c.g.s.stop(t)
		delete(c.pending, in.Member)
		return nil
	}
	m, code := c.known(in)
	if code != nil {
		return code
	}
	c.drop(m)
	return nil
}
