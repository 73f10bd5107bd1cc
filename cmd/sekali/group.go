package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupCmd groups what is asked of consumer groups and done to them.
type groupCmd struct {
	List         groupListCmd     `cmd:"" help:"List consumer groups."`
	Describe     groupDescribeCmd `cmd:"" help:"Show members, committed offsets and lag of groups."`
	Delete       groupDeleteCmd   `cmd:"" help:"Delete groups without members, with their offsets."`
	ResetOffsets groupResetCmd    `cmd:"" help:"Set committed offsets; only shows them without --execute."`
}

// groupListCmd lists groups.
type groupListCmd struct {
	clientFlags
	States []string `name:"state" help:"${group_state}"`
	Types  []string `name:"type" help:"Only this type (classic or consumer); may be repeated."`
	JSON   bool     `name:"json" help:"JSON instead of a table."`
}

// listedGroup is a line of group list.
type listedGroup struct {
	Group        string `json:"group"`
	Type         string `json:"type"`
	State        string `json:"state"`
	ProtocolType string `json:"protocol_type"`
}

// Run prints name, type and state of every group.
func (c *groupListCmd) Run(io streams) error {
	if err := errors.Join(oneOf("--type", c.Types, "classic", "consumer"), oneOf("--state", c.States, "Empty", "Stable",
		"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")); err != nil {
		return err
	}
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		listed, err := adm.ListGroupsByType(ctx, c.Types, c.States...)
		if err != nil {
			return err
		}
		all, rows := []listedGroup{}, [][]string{}
		for _, g := range listed.Sorted() {
			all = append(all, listedGroup{g.Group, g.GroupType, g.State, g.ProtocolType})
			rows = append(rows, []string{g.Group, g.GroupType, g.State, orDash(g.ProtocolType)})
		}
		if c.JSON {
			return printJSON(io.out, all)
		}
		return printTable(io.out, []string{"GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"}, rows)
	})
}

// orDash stands in for what is not there, so that a table keeps its columns.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// groupDeleteCmd deletes groups.
type groupDeleteCmd struct {
	clientFlags
	Groups    []string `arg:"" name:"group"`
	IfPresent bool     `name:"if-exists" help:"A group that does not exist is no error."`
}

// Run deletes each group and says so.
func (c *groupDeleteCmd) Run(io streams) error {
	return c.admin(func(ctx context.Context, adm *kadm.Client) error {
		answers, err := adm.DeleteGroups(ctx, c.Groups...)
		if err != nil {
			return err
		}
		var errs []error
		for _, a := range answers.Sorted() {
			switch {
			case a.Err == nil:
				fmt.Fprintf(io.out, "deleted %s\n", a.Group)
			case errors.Is(a.Err, kerr.GroupIDNotFound) && c.IfPresent:
				fmt.Fprintf(io.out, "%s does not exist\n", a.Group)
			case errors.Is(a.Err, kerr.GroupIDNotFound):
				errs = append(errs, fmt.Errorf("delete %s: no such group; see: sekali group list", a.Group))
			case errors.Is(a.Err, kerr.NonEmptyGroup):
				errs = append(errs, fmt.Errorf("delete %s: it has members; stop them first; see: sekali group describe %s",
					a.Group, a.Group))
			default:
				errs = append(errs, fmt.Errorf("delete %s: %w", a.Group, explain(a.Err, a.ErrMessage)))
			}
		}
		return errors.Join(errs...)
	})
}
