package auth

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ResourceType is what a rule is about, by Kafka's numbers.
type ResourceType int8

// The resource types. Any is for filters alone.
const (
	AnyResource     ResourceType = 1
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
	DelegationToken ResourceType = 6
	UserResource    ResourceType = 7
)

// PatternType is how the name of a rule meets the name of a resource, by Kafka's numbers (KIP-290).
type PatternType int8

// The pattern types. AnyPattern and Match are for filters alone: Match finds every rule that applies to the name.
const (
	AnyPattern PatternType = 1
	Match      PatternType = 2
	Literal    PatternType = 3
	Prefixed   PatternType = 4
)

// Operation is what somebody wants to do, by Kafka's numbers.
type Operation int8

// The operations. AnyOperation is for filters alone; AllOperations in a rule stands for each of the others.
const (
	AnyOperation    Operation = 1
	AllOperations   Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
	CreateTokens    Operation = 13
	DescribeTokens  Operation = 14
	TwoPhaseCommit  Operation = 15
)

// Permission is what a rule says, by Kafka's numbers.
type Permission int8

// The permissions. AnyPermission is for filters alone.
const (
	AnyPermission Permission = 1
	Deny          Permission = 2
	Allow         Permission = 3
)

// The names of the numbers, as Kafka's tools show them.
var (
	resourceNames = []string{"UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN",
		"USER"}
	patternNames = []string{"UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"}
	opNames      = []string{"UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
		"CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS",
		"TWO_PHASE_COMMIT"}
	permissionNames = []string{"UNKNOWN", "ANY", "DENY", "ALLOW"}
)

func nameOf(names []string, n int8) string {
	if n < 0 || int(n) >= len(names) {
		return names[0]
	}
	return names[n]
}

// String is the name Kafka's tools show.
func (t ResourceType) String() string { return nameOf(resourceNames, int8(t)) }

// String is the name Kafka's tools show.
func (t PatternType) String() string { return nameOf(patternNames, int8(t)) }

// String is the name Kafka's tools show.
func (o Operation) String() string { return nameOf(opNames, int8(o)) }

// String is the name Kafka's tools show.
func (p Permission) String() string { return nameOf(permissionNames, int8(p)) }

// Wildcard is the name of every resource, in a literal pattern, and every host.
const Wildcard = "*"

// ClusterName is the one name of a resource of type Cluster.
const ClusterName = "kafka-cluster"

// anyUser in a rule is every principal.
const anyUser = "User:*"

// Binding is one rule: who, from which host, may or may not do what with which resources.
type Binding struct {
	Type       ResourceType
	Name       string
	Pattern    PatternType
	Principal  string // "User:alice", "User:*"
	Host       string // an address, or "*"
	Operation  Operation
	Permission Permission
}

// ErrBinding wraps why a rule is refused.
var ErrBinding = errors.New("auth: not a rule")

// possible lists the operations a resource type has (AclEntry.supportedOperations); each has AllOperations, too.
var possible = map[ResourceType][]Operation{
	Topic:           {Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs},
	Group:           {Read, Describe, Delete, DescribeConfigs, AlterConfigs},
	Cluster:         {Create, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, Alter, Describe},
	TransactionalID: {Describe, Write, TwoPhaseCommit},
	DelegationToken: {Describe},
	UserResource:    {CreateTokens, DescribeTokens},
}

// Operations lists what can be done with a resource type, in the order of the numbers (KIP-430).
func Operations(t ResourceType) []Operation { return possible[t] }

// Check refuses what is no rule, with ErrBinding and the reason.
func (b Binding) Check() error {
	switch {
	case b.Type < Topic || b.Type > UserResource:
		return fmt.Errorf("%w: resource type %d", ErrBinding, b.Type)
	case b.Pattern != Literal && b.Pattern != Prefixed:
		return fmt.Errorf("%w: pattern type %d", ErrBinding, b.Pattern)
	case b.Operation < AllOperations || b.Operation > TwoPhaseCommit:
		return fmt.Errorf("%w: operation %d", ErrBinding, b.Operation)
	case b.Permission != Deny && b.Permission != Allow:
		return fmt.Errorf("%w: permission %d", ErrBinding, b.Permission)
	case b.Name == "":
		return fmt.Errorf("%w: the resource has no name", ErrBinding)
	case b.Type == Cluster && b.Name != ClusterName:
		return fmt.Errorf("%w: the only name of a cluster resource is %s", ErrBinding, ClusterName)
	case b.Host == "":
		return fmt.Errorf("%w: no host", ErrBinding)
	case !utf8.ValidString(b.Name + b.Principal + b.Host):
		// The rules are stored as JSON, which would put another name in its place.
		return fmt.Errorf("%w: a name that is not UTF-8", ErrBinding)
	}
	return checkPrincipal(b.Principal)
}

// checkPrincipal: a type, a colon and a name; rules are looked up for users alone.
func checkPrincipal(p string) error {
	kind, name, ok := strings.Cut(p, ":")
	if !ok || kind == "" || name == "" {
		return fmt.Errorf("%w: principal %q is not TYPE:NAME", ErrBinding, p)
	}
	return nil
}

// Filter finds rules. Nil names are any; the numbers may be the Any ones.
type Filter struct {
	Type       ResourceType
	Name       *string
	Pattern    PatternType
	Principal  *string
	Host       *string
	Operation  Operation
	Permission Permission
}

// Check refuses numbers that are neither of a rule nor Any.
func (f Filter) Check() error {
	switch {
	case f.Type < AnyResource || f.Type > UserResource:
		return fmt.Errorf("%w: resource type %d", ErrBinding, f.Type)
	case f.Pattern < AnyPattern || f.Pattern > Prefixed:
		return fmt.Errorf("%w: pattern type %d", ErrBinding, f.Pattern)
	case f.Operation < AnyOperation || f.Operation > TwoPhaseCommit:
		return fmt.Errorf("%w: operation %d", ErrBinding, f.Operation)
	case f.Permission < AnyPermission || f.Permission > Allow:
		return fmt.Errorf("%w: permission %d", ErrBinding, f.Permission)
	}
	return nil
}

// Finds reports whether the filter finds a rule (AclBindingFilter.matches, ResourcePatternFilter.matches).
func (f Filter) Finds(b Binding) bool {
	return (f.Type == AnyResource || f.Type == b.Type) && f.findsName(b) &&
		(f.Principal == nil || *f.Principal == b.Principal) && (f.Host == nil || *f.Host == b.Host) &&
		(f.Operation == AnyOperation || f.Operation == b.Operation) &&
		(f.Permission == AnyPermission || f.Permission == b.Permission)
}

func (f Filter) findsName(b Binding) bool {
	if f.Pattern != AnyPattern && f.Pattern != Match && f.Pattern != b.Pattern {
		return false
	}
	if f.Name == nil {
		return true
	}
	if f.Pattern != Match {
		return *f.Name == b.Name
	}
	if b.Pattern == Prefixed {
		return strings.HasPrefix(*f.Name, b.Name)
	}
	return b.Name == *f.Name || b.Name == Wildcard
}
