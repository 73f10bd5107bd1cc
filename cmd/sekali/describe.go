package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func isExists(err error) bool  { return errors.Is(err, kerr.TopicAlreadyExists) }
func isUnknown(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }

// topicID is an id as Kafka's tools print it.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// topicDescribeCmd shows topics whole.
type topicDescribeCmd struct {
	clientFlags
	Names []string `arg:"" optional:"" name:"topic" help:"All topics, if none is named."`
	JSON  bool     `name:"json" help:"JSON instead of tables."`
}

// describedTopic is a topic as topic describe shows it.
type describedTopic struct {
	Name       string               `json:"name"`
	ID         string               `json:"id"`
	Internal   bool                 `json:"internal"`
	Settings   map[string]string    `json:"settings"` // those that are not defaults
	Partitions []describedPartition `json:"partitions"`
}

// describedPartition is a partition as topic describe shows it; offsets are -1 where they could not be told.
type describedPartition struct {
	Partition     int32  `json:"partition"`
	Leader        int32  `json:"leader"`
	LeaderEpoch   int32  `json:"leader_epoch"`
	LogStart      int64  `json:"log_start_offset"`
	HighWatermark int64  `json:"high_watermark"`
	Bytes         int64  `json:"bytes"`
	Error         string `json:"error,omitempty"`
}

// Run prints settings, offsets and sizes.
func (c *topicDescribeCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		all, err := describeTopics(ctx, adm, c.Names)
		return printDescribed(io, c.JSON, all, err, printTopic)
	})
}

// describeTopics gathers what is known of topics; a topic that is missing is told in the error beside the others.
func describeTopics(ctx context.Context, adm *kadm.Client, names []string) ([]describedTopic, error) {
	list := adm.ListTopicsWithInternal
	if len(names) > 0 {
		list = adm.ListTopics
	}
	details, err := list(ctx, names...)
	if err != nil {
		return nil, err
	}
	var errs []error
	var known []string
	for _, t := range details.Sorted() {
		if t.Err != nil {
			errs = append(errs, fmt.Errorf("describe %s: %w", t.Topic, t.Err))
			continue
		}
		known = append(known, t.Topic)
	}
	all := []describedTopic{}
	if len(known) == 0 {
		return all, errors.Join(errs...)
	}
	starts, err := adm.ListStartOffsets(ctx, known...)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, known...)
	if err != nil {
		return nil, err
	}
	configs, err := adm.DescribeTopicConfigs(ctx, known...)
	if err != nil {
		return nil, err
	}
	sizes, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range known {
		t := details[name]
		d := describedTopic{Name: name, ID: topicID(t.ID), Internal: t.IsInternal, Settings: settingsOf(configs, name)}
		for _, p := range t.Partitions.Sorted() {
			d.Partitions = append(d.Partitions, describePartition(p, starts, ends, sizes))
		}
		all = append(all, d)
	}
	return all, errors.Join(errs...)
}

func settingsOf(configs kadm.ResourceConfigs, topic string) map[string]string {
	set := map[string]string{}
	for _, r := range configs {
		if r.Name != topic {
			continue
		}
		for _, s := range r.Configs {
			if s.Source == kmsg.ConfigSourceDynamicTopicConfig {
				set[s.Key] = s.MaybeValue()
			}
		}
	}
	return set
}

func describePartition(p kadm.PartitionDetail, starts, ends kadm.ListedOffsets,
	sizes kadm.DescribedAllLogDirs) describedPartition {
	d := describedPartition{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
		LogStart: -1, HighWatermark: -1, Bytes: -1}
	if p.Err != nil {
		d.Error = p.Err.Error()
	}
	if o, ok := starts.Lookup(p.Topic, p.Partition); ok && o.Err == nil {
		d.LogStart = o.Offset
	}
	if o, ok := ends.Lookup(p.Topic, p.Partition); ok {
		d.HighWatermark = o.Offset
		if o.Err != nil {
			d.HighWatermark, d.Error = -1, o.Err.Error()
		}
	}
	for _, dirs := range sizes {
		if r, ok := dirs.LookupPartition(p.Topic, p.Partition); ok {
			d.Bytes = r.Size
		}
	}
	return d
}

func printTopic(io streams, t describedTopic) error {
	fmt.Fprintf(io.out, "%s  id %s\n", t.Name, t.ID)
	if len(t.Settings) > 0 {
		var set []string
		for name, value := range t.Settings {
			set = append(set, name+"="+value)
		}
		slices.Sort(set)
		fmt.Fprintf(io.out, "settings: %s\n", strings.Join(set, " "))
	}
	var rows [][]string
	for _, p := range t.Partitions {
		rows = append(rows, []string{
			strconv.Itoa(int(p.Partition)), strconv.Itoa(int(p.LeaderEpoch)), strconv.FormatInt(p.LogStart, 10),
			strconv.FormatInt(p.HighWatermark, 10), strconv.FormatInt(p.Bytes, 10), p.Error,
		})
	}
	return printTable(io.out, []string{"PARTITION", "LEADER-EPOCH", "LOG-START", "HIGH-WATERMARK", "BYTES", "ERROR"}, rows)
}
