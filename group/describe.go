package group

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Describe tells what a group is; GROUP_ID_NOT_FOUND if there is none.
func (m *Manager) Describe(id string, done func(Info, *kerr.Error)) {
	refuse := func(code *kerr.Error) { done(Info{Group: id, State: stateDead.String()}, code) }
	m.on(id, refuse, func(s *shard) {
		g := s.groups[id]
		if g == nil {
			refuse(kerr.GroupIDNotFound)
			return
		}
		done(g.info(true), nil)
	})
}

// List tells of all groups, without their members, whose state and type are among those given; an empty list takes all.
// Case does not count. A partition whose journal could not be read is as one of another node: its groups are left out.
func (m *Manager) List(states, types []string, done func([]Info, *kerr.Error)) {
	shards := m.all()
	switch {
	case m.closed.Load():
		done(nil, kerr.CoordinatorNotAvailable)
		return
	case slices.ContainsFunc(shards, func(s *shard) bool { return !s.ready.Load() && !s.broken.Load() }):
		done(nil, kerr.CoordinatorLoadInProgress)
		return
	}
	found := make([][]Info, len(shards))
	g := newGather(len(shards), func(err error) {
		if err != nil {
			done(nil, kerr.CoordinatorNotAvailable)
			return
		}
		all := slices.Concat(found...)
		slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a.Group, b.Group) })
		done(all, nil)
	})
	for i, s := range shards {
		posted := s.post(func() {
			switch {
			case s.closing:
				g.one(ErrClosed)
				return
			case s.broken.Load():
				g.one(nil)
				return
			}
			found[i] = s.list(states, types)
			g.one(nil)
		})
		if !posted {
			g.one(ErrClosed)
		}
	}
	g.one(nil)
}

func (s *shard) list(states, types []string) []Info {
	var out []Info
	for _, g := range s.groups {
		in := g.info(false)
		if wanted(states, in.State) && wanted(types, in.Type) {
			out = append(out, in)
		}
	}
	return out
}

func wanted(list []string, what string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, what) })
}

// info is the group for Describe and, without members, for List.
func (g *group) info(members bool) Info {
	if g.consumer != nil {
		in := g.consumer.info()
		in.Size = len(in.Members)
		if !members {
			in.Members = nil
		}
		return in
	}
	c := g.classic
	in := Info{
		Group: g.id, Type: TypeClassic, State: c.state.String(), ProtocolType: c.protocolType, Generation: c.generation,
		AssignmentEpoch: -1, Size: len(c.members),
	}
	stable := c.state == stateStable
	if stable {
		in.Protocol = c.protocol
	}
	if !members {
		return in
	}
	for _, m := range c.members {
		mi := MemberInfo{Member: m.id, Instance: m.instance, ClientID: m.clientID, Host: m.host}
		if stable {
			mi.Metadata, mi.Assignment = m.metadata(c.protocol), m.assignment
		}
		in.Members = append(in.Members, mi)
	}
	return in
}

// subscription reads the topics out of the metadata a member of protocol type "consumer" joins with: int16 version,
// []string topics, then what newer versions added, which is not needed here.
func subscription(b []byte) (topics []string, ok bool) {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(b[2:])))
	b = b[6:]
	for range n {
		if len(b) < 2 {
			return nil, false
		}
		size := int(binary.BigEndian.Uint16(b))
		b = b[2:]
		if size > len(b) {
			return nil, false
		}
		topics = append(topics, string(b[:size]))
		b = b[size:]
	}
	return topics, true
}
