package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// topicCmd groups what is done to topics.
type topicCmd struct {
	List     topicListCmd     `cmd:"" help:"List topics."`
	Create   topicCreateCmd   `cmd:"" help:"Create topics."`
	Describe topicDescribeCmd `cmd:"" help:"Show partitions, offsets and settings of topics."`
	Alter    topicAlterCmd    `cmd:"" help:"Change settings or add partitions."`
	Delete   topicDeleteCmd   `cmd:"" help:"Delete topics with all their records."`
}

// topicListCmd lists topics.
type topicListCmd struct {
	clientFlags
	Internal bool `name:"internal" help:"Internal topics too."`
	JSON     bool `name:"json" help:"JSON instead of a table."`
}

// listedTopic is a line of topic list.
type listedTopic struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Internal   bool   `json:"internal"`
}

// Run prints name, number of partitions and id of every topic.
func (c *topicListCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		details, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		all, rows := []listedTopic{}, [][]string{}
		for _, t := range details.Sorted() {
			if t.IsInternal && !c.Internal {
				continue
			}
			all = append(all, listedTopic{t.Topic, topicID(t.ID), len(t.Partitions), t.IsInternal})
			rows = append(rows, []string{t.Topic, strconv.Itoa(len(t.Partitions)), topicID(t.ID)})
		}
		if c.JSON {
			return printJSON(io.out, all)
		}
		return printTable(io.out, []string{"TOPIC", "PARTITIONS", "ID"}, rows)
	})
}

// topicCreateCmd creates topics.
type topicCreateCmd struct {
	clientFlags
	Names      []string `arg:"" name:"topic"`
	Partitions int32    `name:"partitions" short:"p" default:"-1" help:"${topic_partitions}"`
	Set        []string `name:"set" sep:"none" placeholder:"NAME=VALUE" help:"A topic setting; may be repeated."`
	IfMissing  bool     `name:"if-not-exists" help:"A topic that exists already is no error."`
}

// Run creates each topic and says so.
func (c *topicCreateCmd) Run(io streams) error {
	settings, err := pairs(c.Set)
	if err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	configs := map[string]*string{}
	for name, value := range settings {
		configs[name] = kadm.StringPtr(value)
	}
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		answers, err := adm.CreateTopics(ctx, c.Partitions, -1, configs, c.Names...)
		if err != nil {
			return err
		}
		var errs []error
		for _, a := range answers.Sorted() {
			switch {
			case c.IfMissing && isExists(a.Err):
				fmt.Fprintf(io.out, "%s exists\n", a.Topic)
			case a.Err != nil:
				errs = append(errs, fmt.Errorf("create %s: %w", a.Topic, explain(a.Err, a.ErrMessage)))
			default:
				fmt.Fprintf(io.out, "created %s with %d partitions\n", a.Topic, a.NumPartitions)
			}
		}
		return errors.Join(errs...)
	})
}

// topicAlterCmd changes settings or adds partitions.
type topicAlterCmd struct {
	clientFlags
	Name       string   `arg:"" name:"topic"`
	Set        []string `name:"set" sep:"none" placeholder:"NAME=VALUE" help:"Set a topic setting; may be repeated."`
	Unset      []string `name:"unset" placeholder:"NAME" help:"${topic_unset}"`
	Partitions int      `name:"partitions" short:"p" help:"Total number of partitions, larger than now."`
}

// Run makes the changes and says what was done.
func (c *topicAlterCmd) Run(io streams) error {
	settings, err := pairs(c.Set)
	if err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	var changes []kadm.AlterConfig
	for name, value := range settings {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
	}
	for _, name := range c.Unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 && c.Partitions == 0 {
		return errors.New("nothing to change: give --set, --unset or --partitions")
	}
	slices.SortFunc(changes, func(a, b kadm.AlterConfig) int { return strings.Compare(a.Name, b.Name) })
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		if len(changes) > 0 {
			if err := alterTopic(ctx, adm, c.Name, changes); err != nil {
				return err
			}
			fmt.Fprintf(io.out, "changed %d settings of %s\n", len(changes), c.Name)
		}
		if c.Partitions == 0 {
			return nil
		}
		answers, err := adm.UpdatePartitions(ctx, c.Partitions, c.Name)
		if err != nil {
			return err
		}
		for _, a := range answers.Sorted() {
			if a.Err != nil {
				return fmt.Errorf("alter %s: %w", a.Topic, explain(a.Err, a.ErrMessage))
			}
		}
		fmt.Fprintf(io.out, "%s has %d partitions\n", c.Name, c.Partitions)
		return nil
	})
}

func alterTopic(ctx context.Context, adm *kadm.Client, topic string, changes []kadm.AlterConfig) error {
	answers, err := adm.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return fmt.Errorf("alter %s: %w", a.Name, explain(a.Err, a.ErrMessage))
		}
	}
	return nil
}

// topicDeleteCmd deletes topics.
type topicDeleteCmd struct {
	clientFlags
	Names     []string `arg:"" name:"topic"`
	IfPresent bool     `name:"if-exists" help:"A topic that does not exist is no error."`
}

// Run deletes each topic and says so.
func (c *topicDeleteCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		answers, err := adm.DeleteTopics(ctx, c.Names...)
		if err != nil {
			return err
		}
		var errs []error
		for _, a := range answers.Sorted() {
			switch {
			case c.IfPresent && isUnknown(a.Err):
				fmt.Fprintf(io.out, "%s does not exist\n", a.Topic)
			case a.Err != nil:
				errs = append(errs, fmt.Errorf("delete %s: %w", a.Topic, explain(a.Err, a.ErrMessage)))
			default:
				fmt.Fprintf(io.out, "deleted %s\n", a.Topic)
			}
		}
		return errors.Join(errs...)
	})
}
