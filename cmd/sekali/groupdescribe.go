package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupDescribeCmd shows groups whole.
type groupDescribeCmd struct {
	clientFlags
	Groups []string `arg:"" optional:"" name:"group" help:"All groups, if none is named."`
	JSON   bool     `name:"json" help:"JSON instead of tables."`
}

// describedGroup is a group as group describe shows it. Epoch is -1 for groups of the classic protocol.
type describedGroup struct {
	Group       string            `json:"group"`
	Type        string            `json:"type"`
	State       string            `json:"state"`
	Assignor    string            `json:"assignor"`
	Epoch       int32             `json:"epoch"`
	Coordinator int32             `json:"coordinator"`
	Members     []describedMember `json:"members"`
	Offsets     []describedOffset `json:"offsets"`
	Lag         int64             `json:"lag"` // of all partitions whose lag is known
}

// describedMember is a member as group describe shows it. Epoch is -1 in groups of the classic protocol.
type describedMember struct {
	ID         string            `json:"member"`
	Instance   string            `json:"instance,omitempty"`
	Client     string            `json:"client"`
	Host       string            `json:"host"`
	Epoch      int32             `json:"epoch"`
	Partitions []topicPartitions `json:"partitions"`
}

// describedOffset is a partition that the group has committed or is reading; what is not known is -1.
type describedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed_offset"`
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"member,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Run prints the groups; one that is missing is told in the error beside the others.
func (c *groupDescribeCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		all, err := describeGroups(ctx, adm, c.Groups)
		return printDescribed(io, c.JSON, all, err, func(io streams, g *describedGroup) error { return g.print(io) })
	})
}

// describeGroups gathers what is known of groups.
func describeGroups(ctx context.Context, adm *kadm.Client, names []string) ([]*describedGroup, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = listed.Groups()
	}
	all, errs := []*describedGroup{}, []error(nil)
	for _, name := range names {
		l, known := listed[name]
		if !known {
			errs = append(errs, fmt.Errorf("%s: no such group; see: sekali group list", name))
			continue
		}
		g, err := describeGroup(ctx, adm, l)
		if err != nil {
			errs = append(errs, fmt.Errorf("describe %s: %w", name, err))
			continue
		}
		all = append(all, g)
	}
	return all, errors.Join(errs...)
}

func describeGroup(ctx context.Context, adm *kadm.Client, l kadm.ListedGroup) (*describedGroup, error) {
	g := &describedGroup{Group: l.Group, Type: l.GroupType, State: l.State, Epoch: -1, Coordinator: l.Coordinator,
		Members: []describedMember{}, Offsets: []describedOffset{}}
	owner := map[string]map[int32]string{}
	var err error
	if l.GroupType == "consumer" {
		err = g.consumer(ctx, adm, owner)
	} else {
		err = g.classic(ctx, adm, owner)
	}
	if err != nil {
		return nil, err
	}
	return g, g.addOffsets(ctx, adm, owner)
}

// classic adds the members of a group of the classic protocol.
func (g *describedGroup) classic(ctx context.Context, adm *kadm.Client, owner map[string]map[int32]string) error {
	described, err := adm.DescribeGroups(ctx, g.Group)
	if err != nil {
		return err
	}
	d := described[g.Group]
	if d.Err != nil {
		return explain(d.Err, d.ErrMessage)
	}
	g.State, g.Assignor = d.State, d.Protocol
	for _, m := range d.Members {
		set := kadm.TopicsSet{}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				set.Add(t.Topic, t.Partitions...)
			}
		}
		g.addMember(describedMember{ID: m.MemberID, Instance: orNothing(m.InstanceID), Client: m.ClientID, Host: m.ClientHost,
			Epoch: -1, Partitions: topicsOf(set)}, owner)
	}
	return nil
}

// consumer adds the members of a group of the consumer protocol.
func (g *describedGroup) consumer(ctx context.Context, adm *kadm.Client, owner map[string]map[int32]string) error {
	described, err := adm.DescribeConsumerGroups(ctx, g.Group)
	if err != nil {
		return err
	}
	d := described[g.Group]
	if d.Err != nil {
		return d.Err
	}
	g.State, g.Assignor, g.Epoch = d.State, d.AssignorName, d.Epoch
	for _, m := range d.Members {
		g.addMember(describedMember{ID: m.MemberID, Instance: orNothing(m.InstanceID), Client: m.ClientID, Host: m.ClientHost,
			Epoch: m.MemberEpoch, Partitions: topicsOf(m.Assignment)}, owner)
	}
	return nil
}

func (g *describedGroup) addMember(m describedMember, owner map[string]map[int32]string) {
	g.Members = append(g.Members, m)
	for _, t := range m.Partitions {
		if owner[t.Name] == nil {
			owner[t.Name] = map[int32]string{}
		}
		for _, p := range t.Partitions {
			owner[t.Name][p] = m.ID
		}
	}
}

func orNothing(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// addOffsets adds what is committed and what is assigned, with the ends of the partitions.
func (g *describedGroup) addOffsets(ctx context.Context, adm *kadm.Client, owner map[string]map[int32]string) error {
	committed, err := adm.FetchOffsets(ctx, g.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	set := kadm.TopicsSet{}
	committed.Each(func(o kadm.OffsetResponse) { set.Add(o.Topic, o.Partition) })
	for name, partitions := range owner {
		for p := range partitions {
			set.Add(name, p)
		}
	}
	if len(set) == 0 {
		return nil
	}
	ends, err := adm.ListEndOffsets(ctx, set.Topics()...)
	if err != nil {
		return err
	}
	for _, t := range set.Sorted() {
		for _, p := range t.Partitions {
			o := describedOffset{Topic: t.Topic, Partition: p, Committed: -1, End: -1, Lag: -1, Member: owner[t.Topic][p]}
			if r, ok := committed.Lookup(t.Topic, p); ok {
				o.Committed, o.Metadata = r.At, r.Metadata
			}
			switch end, ok := ends.Lookup(t.Topic, p); {
			case !ok:
				o.Error = kerr.UnknownTopicOrPartition.Message
			case end.Err != nil:
				o.Error = end.Err.Error()
			default:
				o.End = end.Offset
			}
			if o.Committed >= 0 && o.End >= 0 {
				o.Lag = max(o.End-o.Committed, 0)
				g.Lag += o.Lag
			}
			g.Offsets = append(g.Offsets, o)
		}
	}
	return nil
}

func (g *describedGroup) print(io streams) error {
	fmt.Fprintf(io.out, "%s  %s, %s, %d members, lag %d\n", g.Group, g.Type, g.State, len(g.Members), g.Lag)
	if g.Assignor != "" {
		fmt.Fprintf(io.out, "assignor: %s\n", g.Assignor)
	}
	var members, offsets [][]string
	for _, m := range g.Members {
		n := 0
		for _, t := range m.Partitions {
			n += len(t.Partitions)
		}
		members = append(members, []string{m.ID, orDash(m.Instance), m.Client, m.Host, strconv.Itoa(n)})
	}
	for _, o := range g.Offsets {
		offsets = append(offsets, []string{o.Topic, strconv.Itoa(int(o.Partition)), known(o.Committed), known(o.End),
			known(o.Lag), orDash(o.Member), o.Error})
	}
	if len(members) > 0 {
		if err := printTable(io.out, []string{"MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"}, members); err != nil {
			return err
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	return printTable(io.out, []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "ERROR"}, offsets)
}

// known is a number, or a dash for -1.
func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
