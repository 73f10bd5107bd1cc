package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeCmd writes the records of a topic to standard output.
type consumeCmd struct {
	clientFlags
	Topic     string  `arg:"" name:"topic"`
	Partition []int32 `name:"partition" short:"p" help:"Partition to read; may be repeated. All, if none is named."`
	From      string  `name:"from" default:"start" placeholder:"start|end|OFFSET|@MS" help:"${consume_from}"`
	Count     int64   `name:"count" short:"n" help:"Stop after so many records."`
	AtEnd     bool    `name:"exit-at-end" short:"e" help:"Stop at what was the end when the command began."`
	Isolation string  `name:"isolation" enum:"${levels}" default:"read_committed" help:"${consume_isolation}"`
	JSON      bool    `name:"json" help:"One JSON object a line."`
	Keys      bool    `name:"keys" help:"Key and a tab before each value."`
	Headers   bool    `name:"headers" help:"Headers and a tab before each value, as NAME=VALUE,…"`
}

// Run reads until the end asked for, or until it is interrupted.
func (c *consumeCmd) Run(io streams) error {
	ctx, stop := interruptible()
	defer stop()
	cl, err := c.client(kgo.FetchIsolationLevel(c.level()),
		kgo.KeepRetryableFetchErrors(), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := c.ping(ctx, cl); err != nil {
		return err
	}
	from, ends, err := c.bounds(ctx, cl)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(io.out, 64<<10)
	err = c.read(ctx, cl, from, ends, out)
	return errors.Join(err, out.Flush())
}

func (c *consumeCmd) level() kgo.IsolationLevel {
	if c.Isolation == "read_uncommitted" {
		return kgo.ReadUncommitted()
	}
	return kgo.ReadCommitted()
}

// bounds finds the offsets to begin at and those to stop at, which are exclusive.
func (c *consumeCmd) bounds(ctx context.Context, cl *kgo.Client) (from, ends map[int32]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	starts, err := c.offsets(ctx, adm.ListStartOffsets)
	if err != nil {
		return nil, nil, err
	}
	list := adm.ListEndOffsets
	if c.Isolation == "read_committed" {
		list = adm.ListCommittedOffsets
	}
	if ends, err = c.offsets(ctx, list); err != nil {
		return nil, nil, err
	}
	switch {
	case c.From == "start":
		return starts, ends, nil
	case c.From == "end":
		return ends, ends, nil
	case strings.HasPrefix(c.From, "@"):
		ms, err := strconv.ParseInt(c.From[1:], 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("--from %s: not a time in milliseconds", c.From)
		}
		from, err = c.offsets(ctx, func(ctx context.Context, t ...string) (kadm.ListedOffsets, error) {
			return adm.ListOffsetsAfterMilli(ctx, ms, t...)
		})
		return from, ends, err
	}
	at, err := strconv.ParseInt(c.From, 10, 64)
	if err != nil || at < 0 {
		return nil, nil, fmt.Errorf("--from %s: not start, end, an offset or @MS", c.From)
	}
	for p := range starts {
		starts[p] = max(at, starts[p])
	}
	return starts, ends, nil
}

type lister func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

// offsets asks for one kind of offset of the chosen partitions.
func (c *consumeCmd) offsets(ctx context.Context, list lister) (map[int32]int64, error) {
	listed, err := list(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	all := map[int32]int64{}
	for p, o := range listed[c.Topic] {
		if p < 0 { // the topic itself
			return nil, fmt.Errorf("topic %s: %w", c.Topic, o.Err)
		}
		if len(c.Partition) > 0 && !slices.Contains(c.Partition, p) {
			continue
		}
		if o.Err != nil {
			return nil, fmt.Errorf("%s-%d: %w", c.Topic, p, o.Err)
		}
		all[p] = o.Offset
	}
	for _, p := range c.Partition {
		if _, ok := all[p]; !ok {
			return nil, fmt.Errorf("%s has no partition %d", c.Topic, p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no topic %s", c.Topic)
	}
	return all, nil
}

// read prints records until count or ends say stop.
func (c *consumeCmd) read(ctx context.Context, cl *kgo.Client, from, ends map[int32]int64, out *bufio.Writer) error {
	todo := map[int32]kgo.Offset{}
	for p, at := range from {
		if !c.AtEnd || at < ends[p] {
			todo[p] = kgo.NewOffset().At(at)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: todo})
	left := len(todo)
	var n int64
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // interrupted: what was read has been printed
		}
		var failed error
		fetches.EachError(func(t string, p int32, err error) { failed = fmt.Errorf("%s-%d: %w", t, p, err) })
		if failed != nil {
			return failed
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Attrs.IsControl() || c.AtEnd && r.Offset >= ends[r.Partition] {
				continue
			}
			if err := c.print(out, r); err != nil {
				return err
			}
			if n++; n == c.Count {
				return nil
			}
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if c.AtEnd && past(p, ends[p.Partition], todo) {
				delete(todo, p.Partition)
				left--
			}
		})
		if err := out.Flush(); err != nil || left == 0 {
			return err
		}
	}
}

// past reports whether a partition has just been read up to end. Markers count: below the last stable offset every
// transaction ends with one, so the last offset before end is always seen.
func past(p kgo.FetchTopicPartition, end int64, todo map[int32]kgo.Offset) bool {
	if _, open := todo[p.Partition]; !open {
		return false
	}
	n := len(p.Records)
	return n > 0 && p.Records[n-1].Offset >= end-1
}

func (c *consumeCmd) print(out *bufio.Writer, r *kgo.Record) error {
	if c.JSON {
		b, err := json.Marshal(recordToJSON(r))
		if err != nil {
			return err
		}
		out.Write(b)
		return out.WriteByte('\n')
	}
	if c.Keys {
		out.Write(r.Key)
		out.WriteByte('\t')
	}
	if c.Headers {
		for i, h := range r.Headers {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString(h.Key + "=")
			out.Write(h.Value)
		}
		out.WriteByte('\t')
	}
	out.Write(r.Value)
	return out.WriteByte('\n')
}
