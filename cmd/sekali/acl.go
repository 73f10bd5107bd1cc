package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sekali/auth"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// aclCmd groups what is done with the rules of who may do what.
type aclCmd struct {
	List   aclListCmd   `cmd:"" help:"List rules."`
	Add    aclAddCmd    `cmd:"" help:"Add rules."`
	Delete aclDeleteCmd `cmd:"" help:"Delete rules; only shows them without --execute."`
}

// aclResources say what rules are about.
type aclResources struct {
	Topics   []string `name:"topic" help:"Topics; * for all; may be repeated."`
	Groups   []string `name:"group" help:"Consumer groups; * for all; may be repeated."`
	Txns     []string `name:"transactional-id" help:"Transactional ids; * for all; may be repeated."`
	Cluster  bool     `name:"cluster" help:"The cluster."`
	Prefixed bool     `name:"prefixed" help:"The names are beginnings of names."`
}

type namedResource struct {
	kind auth.ResourceType
	name string
}

func (r *aclResources) list() (all []namedResource) {
	for _, part := range []struct {
		kind  auth.ResourceType
		names []string
	}{{auth.Topic, r.Topics}, {auth.Group, r.Groups}, {auth.TransactionalID, r.Txns}} {
		for _, n := range part.names {
			all = append(all, namedResource{part.kind, n})
		}
	}
	if r.Cluster {
		all = append(all, namedResource{auth.Cluster, auth.ClusterName})
	}
	return all
}

func (r *aclResources) pattern() auth.PatternType {
	if r.Prefixed {
		return auth.Prefixed
	}
	return auth.Literal
}

// printedRule is a line of acl list.
type printedRule struct {
	Principal  string `json:"principal"`
	Permission string `json:"permission"`
	Operation  string `json:"operation"`
	Resource   string `json:"resource_type"`
	Name       string `json:"resource_name"`
	Pattern    string `json:"pattern_type"`
	Host       string `json:"host"`
}

func printRules(io streams, asJSON bool, bs []auth.Binding) error {
	all, rows := []printedRule{}, [][]string{}
	for _, b := range bs {
		p := printedRule{b.Principal, b.Permission.String(), b.Operation.String(), b.Type.String(), b.Name,
			b.Pattern.String(), b.Host}
		all = append(all, p)
		rows = append(rows, []string{p.Principal, p.Permission, p.Operation, p.Resource, p.Name, p.Pattern, p.Host})
	}
	if asJSON {
		return printJSON(io.out, all)
	}
	return printTable(io.out, []string{"PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"},
		rows)
}

var errNoRules = errors.New("the daemon has no access control; start it with: --set authorizer.class.name=acl")

// aclFilter finds rules.
type aclFilter struct {
	aclResources
	Principal string `name:"principal" help:"Only rules about this principal, such as User:alice."`
}

// filters are one for each resource, or one for all.
func (f *aclFilter) filters() (all []auth.Filter) {
	base := auth.Filter{Type: auth.AnyResource, Pattern: auth.AnyPattern, Operation: auth.AnyOperation,
		Permission: auth.AnyPermission}
	if f.Principal != "" {
		base.Principal = &f.Principal
	}
	for _, r := range f.list() {
		one := base
		one.Type, one.Name = r.kind, &r.name
		if f.Prefixed {
			one.Pattern = auth.Prefixed
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		all = []auth.Filter{base}
	}
	return all
}

func (f *aclFilter) find(ctx context.Context, cl *kgo.Client) (found []auth.Binding, err error) {
	for _, one := range f.filters() {
		r := kmsg.NewPtrDescribeACLsRequest()
		r.ResourceType, r.ResourceName = kmsg.ACLResourceType(one.Type), one.Name
		r.ResourcePatternType, r.Principal = kmsg.ACLResourcePatternType(one.Pattern), one.Principal
		r.Operation, r.PermissionType = kmsg.ACLOperation(one.Operation), kmsg.ACLPermissionType(one.Permission)
		resp, err := r.RequestWith(ctx, cl)
		if err == nil {
			err = explain(kerr.ErrorForCode(resp.ErrorCode), "")
		}
		if errors.Is(err, kerr.SecurityDisabled) {
			return nil, errNoRules
		}
		if err != nil {
			return nil, err
		}
		for _, res := range resp.Resources {
			for _, a := range res.ACLs {
				b := auth.Binding{Type: auth.ResourceType(res.ResourceType), Name: res.ResourceName,
					Pattern: auth.PatternType(res.ResourcePatternType), Principal: a.Principal, Host: a.Host,
					Operation: auth.Operation(a.Operation), Permission: auth.Permission(a.PermissionType)}
				if !slices.Contains(found, b) {
					found = append(found, b)
				}
			}
		}
	}
	return found, nil
}

// aclListCmd lists rules.
type aclListCmd struct {
	clientFlags
	aclFilter
	JSON bool `name:"json" help:"JSON instead of a table."`
}

// Run prints the rules that are found.
func (c *aclListCmd) Run(io streams) error {
	return c.withClient(func(ctx context.Context, cl *kgo.Client) error {
		found, err := c.find(ctx, cl)
		if err != nil {
			return err
		}
		return printRules(io, c.JSON, found)
	})
}

// aclAddCmd adds rules.
type aclAddCmd struct {
	clientFlags
	aclResources
	Principals []string `name:"principal" required:"" help:"Who, such as User:alice; may be repeated."`
	Operations []string `name:"operation" help:"${acl_operation}"`
	Producer   bool     `name:"producer" help:"What a producer needs of the topics and transactional ids."`
	Consumer   bool     `name:"consumer" help:"What a consumer needs of the topics and groups."`
	Deny       bool     `name:"deny" help:"Deny instead of allow."`
	Hosts      []string `name:"host" default:"*" help:"Only from this address; may be repeated."`
}

// Run adds a rule for every principal, host, resource and operation.
func (c *aclAddCmd) Run(io streams) error {
	bs, err := c.bindings()
	if err != nil {
		return err
	}
	return c.withClient(func(ctx context.Context, cl *kgo.Client) error {
		r := kmsg.NewPtrCreateACLsRequest()
		for _, b := range bs {
			r.Creations = append(r.Creations, kmsg.CreateACLsRequestCreation{
				ResourceType: kmsg.ACLResourceType(b.Type), ResourceName: b.Name,
				ResourcePatternType: kmsg.ACLResourcePatternType(b.Pattern), Principal: b.Principal, Host: b.Host,
				Operation: kmsg.ACLOperation(b.Operation), PermissionType: kmsg.ACLPermissionType(b.Permission)})
		}
		resp, err := r.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, res := range resp.Results {
			if res.ErrorCode == kerr.SecurityDisabled.Code {
				return errNoRules
			}
			if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
				message := ""
				if res.ErrorMessage != nil {
					message = *res.ErrorMessage
				}
				return explain(err, message)
			}
		}
		return printRules(io, false, bs)
	})
}

// bindings are the rules that the flags stand for.
func (c *aclAddCmd) bindings() (bs []auth.Binding, err error) {
	ops, err := operations(c.Operations)
	if err != nil {
		return nil, err
	}
	if len(c.list()) == 0 {
		return nil, errors.New("rules about what? Name a --topic, --group, --transactional-id or --cluster")
	}
	for _, r := range c.list() {
		needs := slices.Clone(ops)
		if c.Producer && (r.kind == auth.Topic || r.kind == auth.TransactionalID) {
			needs = append(needs, auth.Write, auth.Describe)
		}
		if c.Producer && r.kind == auth.Topic {
			needs = append(needs, auth.Create)
		}
		if c.Consumer && (r.kind == auth.Topic || r.kind == auth.Group) {
			needs = append(needs, auth.Read)
		}
		if c.Consumer && r.kind == auth.Topic {
			needs = append(needs, auth.Describe)
		}
		if len(needs) == 0 {
			return nil, fmt.Errorf("%s %s: which --operation? It may be one of %s", r.kind, r.name, possible(r.kind))
		}
		slices.Sort(needs)
		for _, op := range slices.Compact(needs) {
			if op != auth.AllOperations && !slices.Contains(auth.Operations(r.kind), op) {
				return nil, fmt.Errorf("%s %s: %s cannot be done with it; what can is %s", r.kind, r.name, op,
					possible(r.kind))
			}
			for _, who := range c.Principals {
				for _, host := range c.Hosts {
					b := auth.Binding{Type: r.kind, Name: r.name, Pattern: c.pattern(), Principal: who, Host: host,
						Operation: op, Permission: auth.Allow}
					if c.Deny {
						b.Permission = auth.Deny
					}
					if r.kind == auth.Cluster {
						b.Pattern = auth.Literal
					}
					if err := b.Check(); err != nil {
						return nil, err
					}
					bs = append(bs, b)
				}
			}
		}
	}
	return bs, nil
}

func possible(kind auth.ResourceType) string {
	names := []string{"all"}
	for _, op := range auth.Operations(kind) {
		names = append(names, strings.ToLower(op.String()))
	}
	return strings.Join(names, ", ")
}

// operations reads names as Kafka's tools take them: DescribeConfigs, describe_configs, DESCRIBE-CONFIGS.
func operations(names []string) (ops []auth.Operation, err error) {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, name := range names {
		op := auth.AllOperations
		for op <= auth.TwoPhaseCommit && plain(op.String()) != plain(name) {
			op++
		}
		if op > auth.TwoPhaseCommit {
			return nil, fmt.Errorf("--operation %s: there is no such operation", name)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// aclDeleteCmd deletes rules.
type aclDeleteCmd struct {
	clientFlags
	aclFilter
	All     bool `name:"all" help:"Every rule there is."`
	Execute bool `name:"execute" help:"Delete what is shown."`
}

// Run shows what would go, or lets it go.
func (c *aclDeleteCmd) Run(io streams) error {
	if len(c.list()) == 0 && c.Principal == "" && !c.All {
		return errors.New("which rules? Name a resource or a --principal, or say --all")
	}
	return c.withClient(func(ctx context.Context, cl *kgo.Client) error {
		found, err := c.find(ctx, cl)
		if err != nil {
			return err
		}
		if err := printRules(io, false, found); err != nil || len(found) == 0 {
			return err
		}
		if !c.Execute {
			fmt.Fprintln(io.err, "Nothing was deleted; add --execute to delete these rules.")
			return nil
		}
		r := kmsg.NewPtrDeleteACLsRequest()
		for i := range found {
			b := &found[i]
			r.Filters = append(r.Filters, kmsg.DeleteACLsRequestFilter{ResourceType: kmsg.ACLResourceType(b.Type),
				ResourceName: &b.Name, ResourcePatternType: kmsg.ACLResourcePatternType(b.Pattern),
				Principal: &b.Principal,
				Host:      &b.Host, Operation: kmsg.ACLOperation(b.Operation),
				PermissionType: kmsg.ACLPermissionType(b.Permission)})
		}
		resp, err := r.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, res := range resp.Results {
			if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
				return err
			}
		}
		return nil
	})
}
