package auth

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var alice = Principal{"User:alice", "10.0.0.1"}

// rule reads "TOPIC orders LITERAL User:alice * READ ALLOW".
func rule(t *testing.T, s string) Binding {
	t.Helper()
	f := strings.Fields(s)
	at := func(names []string, word string) int8 {
		for i, n := range names {
			if n == word {
				return int8(i)
			}
		}
		t.Fatalf("%s: no %s", s, word)
		return 0
	}
	b := Binding{Type: ResourceType(at(resourceNames, f[0])), Name: f[1], Pattern: PatternType(at(patternNames, f[2])),
		Principal: f[3], Host: f[4], Operation: Operation(at(opNames, f[5])),
		Permission: Permission(at(permissionNames, f[6]))}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	return b
}

func authorizer(t *testing.T, open bool, rules ...string) *Authorizer {
	t.Helper()
	var all []Binding
	for _, s := range rules {
		all = append(all, rule(t, s))
	}
	s := &Store{}
	s.now.Store(&snapshot{rules: newRules(all)})
	return &Authorizer{Store: s, Supers: map[string]bool{"User:root": true}, Open: open}
}

// TestMay: Kafka's rules, a row each.
func TestMay(t *testing.T) {
	for _, c := range []struct {
		name  string
		open  bool
		rules []string
		who   Principal
		op    Operation
		kind  ResourceType
		on    string
		want  bool
	}{
		{"no rule", false, nil, alice, Read, Topic, "t", false},
		{"no rule, open", true, nil, alice, Read, Topic, "t", true},
		{"a rule for another, open", true, []string{"TOPIC t LITERAL User:bob * READ ALLOW"}, alice, Read, Topic, "t",
			false},
		{"a rule of another topic, open", true, []string{"TOPIC u LITERAL User:bob * READ ALLOW"}, alice, Read, Topic,
			"t", true},
		{"allowed", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW"}, alice, Read, Topic, "t", true},
		{"another operation", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW"}, alice, Write, Topic, "t",
			false},
		{"another type", false, []string{"GROUP t LITERAL User:alice * READ ALLOW"}, alice, Read, Topic, "t", false},
		{"everybody", false, []string{"TOPIC t LITERAL User:* * READ ALLOW"}, alice, Read, Topic, "t", true},
		{"that host", false, []string{"TOPIC t LITERAL User:alice 10.0.0.1 READ ALLOW"}, alice, Read, Topic, "t", true},
		{"another host", false, []string{"TOPIC t LITERAL User:alice 10.0.0.2 READ ALLOW"}, alice, Read, Topic, "t",
			false},
		{"all operations", false, []string{"TOPIC t LITERAL User:alice * ALL ALLOW"}, alice, AlterConfigs, Topic, "t",
			true},
		{"every topic", false, []string{"TOPIC * LITERAL User:alice * READ ALLOW"}, alice, Read, Topic, "t", true},
		{"a star in a prefix is a letter", false, []string{"TOPIC * PREFIXED User:alice * READ ALLOW"}, alice, Read,
			Topic, "t", false},
		{"prefix", false, []string{"TOPIC ord PREFIXED User:alice * READ ALLOW"}, alice, Read, Topic, "orders", true},
		{"the prefix itself", false, []string{"TOPIC ord PREFIXED User:alice * READ ALLOW"}, alice, Read, Topic,
			"ord", true},
		{"shorter than the prefix", false, []string{"TOPIC ord PREFIXED User:alice * READ ALLOW"}, alice, Read, Topic,
			"or", false},
		{"a denial wins", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW",
			"TOPIC t LITERAL User:* * READ DENY"},
			alice, Read, Topic, "t", false},
		{"a denial of a prefix wins", false, []string{"TOPIC orders LITERAL User:alice * READ ALLOW",
			"TOPIC o PREFIXED User:alice * ALL DENY"}, alice, Read, Topic, "orders", false},
		{"a denial for another host", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW",
			"TOPIC t LITERAL User:alice 10.9.9.9 READ DENY"}, alice, Read, Topic, "t", true},
		{"read implies describe", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW"}, alice, Describe, Topic,
			"t", true},
		{"write implies describe", false, []string{"TOPIC t LITERAL User:alice * WRITE ALLOW"}, alice, Describe,
			Topic, "t", true},
		{"delete implies describe", false, []string{"TOPIC t LITERAL User:alice * DELETE ALLOW"}, alice, Describe,
			Topic, "t", true},
		{"alter implies describe", false, []string{"TOPIC t LITERAL User:alice * ALTER ALLOW"}, alice, Describe,
			Topic, "t", true},
		{"create does not", false, []string{"TOPIC t LITERAL User:alice * CREATE ALLOW"}, alice, Describe, Topic, "t",
			false},
		{"alter settings implies to see them", false, []string{"TOPIC t LITERAL User:alice * ALTER_CONFIGS ALLOW"},
			alice, DescribeConfigs, Topic, "t", true},
		{"a denial implies nothing", false, []string{"TOPIC t LITERAL User:alice * DESCRIBE ALLOW",
			"TOPIC t LITERAL User:alice * READ DENY"}, alice, Describe, Topic, "t", true},
		{"super", false, []string{"TOPIC t LITERAL User:* * ALL DENY"}, Principal{"User:root", "x"}, Read, Topic, "t",
			true},
		{"the cluster", false, []string{"CLUSTER kafka-cluster LITERAL User:alice * ALTER ALLOW"},
			alice, Alter, Cluster, ClusterName, true},
	} {
		if got := authorizer(t, c.open, c.rules...).May(c.who, c.op, c.kind, c.on); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if !(*Authorizer)(nil).May(alice, Read, Topic, "t") {
		t.Error("without an authorizer somebody is refused")
	}
}

// TestMaySomewhere: KIP-679, a row each.
func TestMaySomewhere(t *testing.T) {
	for _, c := range []struct {
		name  string
		open  bool
		rules []string
		want  bool
	}{
		{"no rule", false, nil, false},
		{"no rule, open", true, nil, true},
		{"one topic", false, []string{"TOPIC t LITERAL User:alice * WRITE ALLOW"}, true},
		{"another operation", false, []string{"TOPIC t LITERAL User:alice * READ ALLOW"}, false},
		{"somebody else", false, []string{"TOPIC t LITERAL User:bob * WRITE ALLOW"}, false},
		{"taken back", false, []string{"TOPIC t LITERAL User:alice * WRITE ALLOW",
			"TOPIC t LITERAL User:* * WRITE DENY"}, false},
		{"taken back for a prefix", false, []string{"TOPIC orders LITERAL User:alice * WRITE ALLOW",
			"TOPIC ord PREFIXED User:alice * ALL DENY"}, false},
		{"another taken back", false, []string{"TOPIC t LITERAL User:alice * WRITE ALLOW",
			"TOPIC u LITERAL User:alice * WRITE DENY"}, true},
		{"everything taken back", false, []string{"TOPIC t LITERAL User:alice * WRITE ALLOW",
			"TOPIC * LITERAL User:alice * ALL DENY"}, false},
		{"everything taken back, open", true, []string{"TOPIC * LITERAL User:alice * ALL DENY"}, false},
		{"a prefix with one name of it taken back", false, []string{"TOPIC ord PREFIXED User:alice * WRITE ALLOW",
			"TOPIC ord LITERAL User:alice * WRITE DENY"}, true},
		{"a prefix within a denied one", false, []string{"TOPIC orders PREFIXED User:alice * WRITE ALLOW",
			"TOPIC ord PREFIXED User:alice * WRITE DENY"}, false},
		{"every topic", false, []string{"TOPIC * LITERAL User:alice * WRITE ALLOW"}, true},
	} {
		if got := authorizer(t, c.open, c.rules...).MaySomewhere(alice, Write, Topic); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestRulesAgainstAScan: the index finds what a look at every rule finds.
func TestRulesAgainstAScan(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "ab", "abc", "b", "*"})
	rapid.Check(t, func(t *rapid.T) {
		var all []Binding
		for range rapid.IntRange(0, 12).Draw(t, "rules") {
			all = append(all, Binding{
				Type: Topic, Name: names.Draw(t, "name"), Pattern: PatternType(rapid.IntRange(3, 4).Draw(t, "pattern")),
				Principal: rapid.SampledFrom([]string{"User:a", "User:b", "User:*"}).Draw(t, "principal"),
				Host:      rapid.SampledFrom([]string{"*", "h"}).Draw(t, "host"),
				Operation: Operation(rapid.IntRange(2, 8).Draw(t, "op")), Permission: Permission(rapid.IntRange(2,
					3).Draw(t, "p"))})
		}
		who := Principal{rapid.SampledFrom([]string{"User:a", "User:b"}).Draw(t, "who"), "h"}
		op := Operation(rapid.IntRange(3, 8).Draw(t, "operation"))
		on := rapid.SampledFrom([]string{"a", "ab", "abc", "abcd", "b", "c"}).Draw(t, "on")
		want := verdict{}
		on2 := on
		for _, b := range all {
			if (Filter{Type: Topic, Name: &on2, Pattern: Match}).findsName(b) {
				want.add([]Binding{b}, who, op)
			}
		}
		if got := newRules(all).look(who, op, resource{Topic, on}); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// TestFilter: which rules a filter finds.
func TestFilter(t *testing.T) {
	all := []Binding{
		rule(t, "TOPIC orders LITERAL User:alice * READ ALLOW"), rule(t, "TOPIC ord PREFIXED User:bob * WRITE ALLOW"),
		rule(t, "TOPIC * LITERAL User:carol h DESCRIBE DENY"), rule(t, "GROUP orders LITERAL User:alice * READ ALLOW"),
	}
	any := Filter{Type: AnyResource, Pattern: AnyPattern, Operation: AnyOperation, Permission: AnyPermission}
	with := func(change func(*Filter)) Filter {
		f := any
		change(&f)
		return f
	}
	text := func(s string) *string { return &s }
	for i, c := range []struct {
		f    Filter
		want string
	}{
		{any, "[0 1 2 3]"},
		{with(func(f *Filter) { f.Type = Topic }), "[0 1 2]"},
		{with(func(f *Filter) { f.Type, f.Name = Topic, text("orders") }), "[0]"},
		{with(func(f *Filter) { f.Type, f.Name, f.Pattern = Topic, text("orders"), Match }), "[0 1 2]"},
		{with(func(f *Filter) { f.Name, f.Pattern = text("orders"), Literal }), "[0 3]"},
		{with(func(f *Filter) { f.Name, f.Pattern = text("orders"), Prefixed }), "[]"},
		{with(func(f *Filter) { f.Pattern = Prefixed }), "[1]"},
		{with(func(f *Filter) { f.Principal = text("User:alice") }), "[0 3]"},
		{with(func(f *Filter) { f.Host = text("h") }), "[2]"},
		{with(func(f *Filter) { f.Operation = Write }), "[1]"},
		{with(func(f *Filter) { f.Permission = Deny }), "[2]"},
	} {
		found := []int{}
		for n, b := range all {
			if c.f.Finds(b) {
				found = append(found, n)
			}
		}
		if got := fmt.Sprint(found); got != c.want {
			t.Errorf("filter %d: %s, want %s", i, got, c.want)
		}
	}
}
