package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// groupResetCmd sets committed offsets.
type groupResetCmd struct {
	clientFlags
	Group      string        `arg:"" name:"group"`
	Topics     []string      `name:"topic" sep:"none" placeholder:"TOPIC[:0,1,...]" help:"${reset_topic}"`
	AllTopics  bool          `name:"all-topics" help:"All partitions for which the group has committed."`
	ToEarliest bool          `name:"to-earliest" xor:"to" required:"" help:"To the first record kept."`
	ToLatest   bool          `name:"to-latest" xor:"to" required:"" help:"To the end."`
	ToOffset   *int64        `name:"to-offset" xor:"to" required:"" help:"To this offset."`
	ShiftBy    *int64        `name:"shift-by" xor:"to" required:"" help:"By so many; back: --shift-by=-N."`
	ToDatetime string        `name:"to-datetime" xor:"to" required:"" placeholder:"TIME" help:"${reset_time}"`
	ByDuration time.Duration `name:"by-duration" xor:"to" required:"" help:"${reset_duration}"`
	Execute    bool          `name:"execute" xor:"do" help:"Do it."`
	DryRun     bool          `name:"dry-run" xor:"do" help:"Only show what --execute would do; the default."`
	JSON       bool          `name:"json" help:"JSON instead of a table."`
}

// resetOffset is a line of group reset-offsets. Committed is -1 where nothing was.
type resetOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed_offset"`
	New       int64  `json:"new_offset"`
	Note      string `json:"note,omitempty"`
}

// Run shows the new offsets, and with --execute commits them.
func (c *groupResetCmd) Run(io streams) error {
	if c.AllTopics == (len(c.Topics) > 0) {
		return errors.New("name the partitions by --topic, or all that the group has committed by --all-topics")
	}
	if c.ByDuration < 0 {
		return errors.New("--by-duration is negative: it is how long ago")
	}
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		if err := c.idle(ctx, adm); err != nil {
			return err
		}
		plan, err := c.plan(ctx, adm)
		if err != nil {
			return err
		}
		if c.Execute {
			offsets := kadm.Offsets{}
			for _, r := range plan {
				offsets.AddOffset(r.Topic, r.Partition, r.New, -1)
			}
			if err := adm.CommitAllOffsets(ctx, c.Group, offsets); err != nil {
				return fmt.Errorf("reset %s: %w", c.Group, err)
			}
		}
		if err := c.print(io, plan); err != nil {
			return err
		}
		if !c.Execute {
			fmt.Fprintln(io.err, "Nothing was changed; to do it, add --execute.")
		}
		return nil
	})
}

func (c *groupResetCmd) print(io streams, plan []resetOffset) error {
	if c.JSON {
		return printJSON(io.out, plan)
	}
	var rows [][]string
	for _, r := range plan {
		rows = append(rows, []string{c.Group, r.Topic, strconv.Itoa(int(r.Partition)), known(r.Committed),
			strconv.FormatInt(r.New, 10), r.Note})
	}
	return printTable(io.out, []string{"GROUP", "TOPIC", "PARTITION", "COMMITTED", "NEW-OFFSET", "NOTE"}, rows)
}

// idle refuses a group with members: their next commits would overwrite what is set here.
func (c *groupResetCmd) idle(ctx context.Context, adm *kadm.Client) error {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return err
	}
	if g, exists := listed[c.Group]; exists && g.State != "Empty" {
		return fmt.Errorf("%s is %s: offsets can be set only while it has no members; stop them first; "+
			"see: sekali group describe %s", c.Group, g.State, c.Group)
	}
	return nil
}

// plan computes the new offset of each partition.
func (c *groupResetCmd) plan(ctx context.Context, adm *kadm.Client) ([]resetOffset, error) {
	committed, err := adm.FetchOffsets(ctx, c.Group)
	if err != nil {
		return nil, err
	}
	set, err := c.partitions(ctx, adm, committed)
	if err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%s has committed nothing; name partitions by --topic", c.Group)
	}
	wanted, err := c.wanted(ctx, adm, set, committed)
	if err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, set.Topics()...)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, set.Topics()...)
	if err != nil {
		return nil, err
	}
	var plan []resetOffset
	for _, t := range set.Sorted() {
		for _, p := range t.Partitions {
			r := resetOffset{Topic: t.Topic, Partition: p, Committed: -1}
			if o, ok := committed.Lookup(t.Topic, p); ok {
				r.Committed = o.At
			}
			start, end, err := rangeOf(starts, ends, t.Topic, p)
			if err != nil {
				return nil, err
			}
			if r.New, err = wanted(t.Topic, p, start, end); err != nil {
				return nil, err
			}
			switch {
			case r.New < start:
				r.New, r.Note = start, "raised to the first record kept"
			case r.New > end:
				r.New, r.Note = end, "lowered to the end"
			}
			plan = append(plan, r)
		}
	}
	return plan, nil
}

func rangeOf(starts, ends kadm.ListedOffsets, name string, partition int32) (start, end int64, err error) {
	s, ok := starts.Lookup(name, partition)
	e, also := ends.Lookup(name, partition)
	if !ok || !also {
		return 0, 0, fmt.Errorf("%s-%d: no such partition; see: sekali topic list", name, partition)
	}
	if err := errors.Join(s.Err, e.Err); err != nil {
		return 0, 0, fmt.Errorf("%s-%d: %w", name, partition, err)
	}
	return s.Offset, e.Offset, nil
}

// partitions are those that are named, or that the group has committed.
func (c *groupResetCmd) partitions(ctx context.Context, adm *kadm.Client,
	committed kadm.OffsetResponses) (kadm.TopicsSet, error) {
	set := kadm.TopicsSet{}
	committed.Each(func(o kadm.OffsetResponse) {
		if c.AllTopics {
			set.Add(o.Topic, o.Partition)
		}
	})
	for _, word := range c.Topics {
		name, list, some := strings.Cut(word, ":")
		if !some {
			details, err := adm.ListTopics(ctx, name)
			if err != nil {
				return nil, err
			}
			if t := details[name]; t.Err != nil {
				return nil, fmt.Errorf("%s: %w; see: sekali topic list", name, t.Err)
			}
			set.Add(name, details[name].Partitions.Numbers()...)
			continue
		}
		for n := range strings.SplitSeq(list, ",") {
			p, err := strconv.ParseInt(n, 10, 32)
			if err != nil || p < 0 {
				return nil, fmt.Errorf("--topic %s: %q is not the number of a partition", word, n)
			}
			set.Add(name, int32(p))
		}
	}
	return set, nil
}

// wanted is how the flags turn a partition with records from start to end (exclusive) into an offset, before it is held
// against what there is.
func (c *groupResetCmd) wanted(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet,
	committed kadm.OffsetResponses) (func(name string, partition int32, start, end int64) (int64, error), error) {
	at := func(fn func(start, end int64) int64) func(string, int32, int64, int64) (int64, error) {
		return func(_ string, _ int32, start, end int64) (int64, error) { return fn(start, end), nil }
	}
	switch {
	case c.ToEarliest:
		return at(func(start, _ int64) int64 { return start }), nil
	case c.ToLatest:
		return at(func(_, end int64) int64 { return end }), nil
	case c.ToOffset != nil:
		return at(func(_, _ int64) int64 { return *c.ToOffset }), nil
	case c.ShiftBy != nil:
		return func(name string, partition int32, _, _ int64) (int64, error) {
			o, ok := committed.Lookup(name, partition)
			if !ok || o.At < 0 {
				return 0, fmt.Errorf("%s-%d: nothing is committed that could be shifted; use another --to-...", name, partition)
			}
			if by := *c.ShiftBy; by <= math.MaxInt64-o.At { // o.At is not negative: back, it cannot fall too far
				return o.At + by, nil
			}
			return math.MaxInt64, nil
		}, nil
	}
	when := time.Now().Add(-c.ByDuration)
	if c.ToDatetime != "" {
		var err error
		if when, err = parseTime(c.ToDatetime); err != nil {
			return nil, err
		}
	}
	found, err := adm.ListOffsetsAfterMilli(ctx, when.UnixMilli(), set.Topics()...)
	if err != nil {
		return nil, err
	}
	return func(name string, partition int32, _, end int64) (int64, error) {
		if o, ok := found.Lookup(name, partition); ok && o.Err == nil && o.Offset >= 0 {
			return o.Offset, nil
		}
		return end, nil
	}, nil
}

// parseTime reads a time as RFC 3339 has it, or without the zone, which is then UTC, as Kafka's tools take it.
func parseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--to-datetime %s is not a time such as 2026-01-31T12:00:00Z", s)
}
