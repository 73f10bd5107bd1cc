package auth

import (
	"cmp"
	"strings"
)

// Authorizer decides by the rules of a store (StandardAuthorizer). A nil one lets everybody do everything. Methods may
// be called from any goroutine.
type Authorizer struct {
	Store *Store
	// Supers may do everything, whatever the rules say (super.users).
	Supers map[string]bool
	// Open lets everybody do what no rule is about (allow.everyone.if.no.acl.found).
	Open bool
}

// ParseSupers reads super.users: principals separated by semicolons.
func ParseSupers(s string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, p := range strings.Split(s, ";") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		if err := checkPrincipal(p); err != nil {
			return nil, err
		}
		out[p] = true
	}
	return out, nil
}

// May reports whether somebody may do op with a resource.
func (a *Authorizer) May(who Principal, op Operation, kind ResourceType, name string) bool {
	if a == nil || a.Supers[who.Name] {
		return true
	}
	v := a.Store.now.Load().rules.look(who, op, resource{kind, name})
	return !v.denied && (v.allowed || !v.any && a.Open)
}

// MaySomewhere reports whether somebody may do op with any resource of the type at all (KIP-679).
func (a *Authorizer) MaySomewhere(who Principal, op Operation, kind ResourceType) bool {
	if a == nil || a.Supers[who.Name] {
		return true
	}
	r := a.Store.now.Load().rules
	return r.somewhere(who, op, kind) ||
		a.Open && !r.denies(who, op, resource{kind, Wildcard}, false)
}

// compare orders rules for people.
func compare(a, b Binding) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pattern, b.Pattern),
		cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(a.Permission, b.Permission))
}
