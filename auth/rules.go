package auth

import (
	"slices"
	"strings"
)

// rules is an immutable index of bindings.
type rules struct {
	all      []Binding
	literal  map[resource][]Binding // also those of the wildcard
	prefixed map[resource][]Binding // by prefix
	lengths  [UserResource + 1][]int
}

type resource struct {
	kind ResourceType
	name string
}

func newRules(all []Binding) *rules {
	r := &rules{all: all, literal: map[resource][]Binding{}, prefixed: map[resource][]Binding{}}
	for _, b := range all {
		at := resource{b.Type, b.Name}
		if b.Pattern == Literal {
			r.literal[at] = append(r.literal[at], b)
			continue
		}
		if r.prefixed[at] == nil {
			r.lengths[b.Type] = append(r.lengths[b.Type], len(b.Name))
		}
		r.prefixed[at] = append(r.prefixed[at], b)
	}
	for i, l := range r.lengths {
		slices.Sort(l)
		r.lengths[i] = slices.Compact(l)
	}
	return r
}

// verdict is what the rules of a resource say of somebody.
type verdict struct {
	allowed, denied bool
	any             bool // there is a rule for the resource, whoever it is about
}

// look asks the rules of one resource: its own, those of its prefixes and those of every resource.
func (r *rules) look(who Principal, op Operation, at resource) (v verdict) {
	v.add(r.literal[at], who, op)
	if at.name != Wildcard {
		v.add(r.literal[resource{at.kind, Wildcard}], who, op)
	}
	for _, n := range r.lengths[at.kind] {
		if n > len(at.name) {
			break
		}
		v.add(r.prefixed[resource{at.kind, at.name[:n]}], who, op)
	}
	return v
}

func (v *verdict) add(bs []Binding, who Principal, op Operation) {
	for _, b := range bs {
		v.any = true
		if !b.about(who) {
			continue
		}
		if b.Permission == Deny {
			v.denied = v.denied || b.Operation == op || b.Operation == AllOperations
		} else {
			v.allowed = v.allowed || b.allows(op)
		}
	}
}

func (b *Binding) about(who Principal) bool {
	return (b.Principal == anyUser || b.Principal == who.Name) && (b.Host == Wildcard || b.Host == who.Host)
}

// allows: who may read, write, delete or alter may describe; who may alter settings may see them. A denial implies
// nothing.
func (b *Binding) allows(op Operation) bool {
	if b.Operation == op || b.Operation == AllOperations {
		return true
	}
	switch op {
	case Describe:
		return b.Operation == Read || b.Operation == Write || b.Operation == Delete || b.Operation == Alter
	case DescribeConfigs:
		return b.Operation == AlterConfigs
	}
	return false
}

// somewhere reports whether the rules allow op for a resource of the type that no denial takes back
// (Authorizer.authorizeByResourceType, KIP-679).
func (r *rules) somewhere(who Principal, op Operation, kind ResourceType) bool {
	if r.denies(who, op, resource{kind, Wildcard}, false) {
		return false
	}
	for _, b := range r.all {
		if b.Type == kind && b.Permission == Allow && b.about(who) && b.allows(op) &&
			(b.Name == Wildcard && b.Pattern == Literal || !r.denies(who, op, resource{kind, b.Name},
				b.Pattern == Prefixed)) {
			return true
		}
	}
	return false
}

// denies: a denial covers everything the name stands for. For a prefix only denials of prefixes of it do.
func (r *rules) denies(who Principal, op Operation, at resource, prefix bool) bool {
	for _, b := range r.all {
		if b.Type != at.kind || b.Permission != Deny || !b.about(who) ||
			b.Operation != op && b.Operation != AllOperations {
			continue
		}
		if b.Pattern == Prefixed && strings.HasPrefix(at.name, b.Name) || b.Pattern == Literal && b.Name == at.name &&
			!prefix {
			return true
		}
	}
	return false
}
