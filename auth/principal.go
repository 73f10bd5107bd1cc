package auth

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Principal is who sent a request and from where. Name is "User:" and a name, Host an address without a port.
type Principal struct{ Name, Host string }

// UserPrefix is the type of every principal there is.
const UserPrefix = "User:"

// Anonymous is who did not say who they are.
const Anonymous = UserPrefix + "ANONYMOUS"

// NameRules make the name of a principal out of the distinguished name of a client certificate
// (ssl.principal.mapping.rules, KIP-371). The zero value gives the distinguished name as it is.
type NameRules struct{ rules []nameRule }

type nameRule struct {
	match   *regexp.Regexp // nil: DEFAULT
	replace string
	fold    byte // 'L', 'U' or 0
}

// ErrNameRule wraps why the rules cannot be used.
var ErrNameRule = errors.New("auth: ssl.principal.mapping.rules")

// ParseNameRules reads a comma-separated list of DEFAULT and RULE:pattern/replacement/ with L or U behind. The pattern
// has to match the whole distinguished name; $1 in the replacement is its first group.
func ParseNameRules(s string) (n NameRules, err error) {
	for rest := strings.TrimSpace(s); rest != ""; {
		var r nameRule
		if r, rest, err = parseNameRule(rest); err != nil {
			return NameRules{}, err
		}
		n.rules = append(n.rules, r)
		rest = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), ","))
	}
	return n, nil
}

var (
	nameRuleForm = regexp.MustCompile(`^RULE:((?:\\/|[^/])*)/((?:\\/|[^/])*)/([LU]?)\s*(,|$)`)
	reference    = regexp.MustCompile(`\$(\d)`)
)

func parseNameRule(s string) (r nameRule, rest string, err error) {
	if rest, ok := strings.CutPrefix(s, "DEFAULT"); ok && (rest == "" || strings.HasPrefix(strings.TrimSpace(rest),
		",")) {
		return nameRule{}, rest, nil
	}
	m := nameRuleForm.FindStringSubmatch(s)
	if m == nil {
		return r, "", fmt.Errorf("%w: %q is neither DEFAULT nor RULE:pattern/replacement/[LU]", ErrNameRule, s)
	}
	if r.match, err = regexp.Compile("^(?:" + strings.ReplaceAll(m[1], `\/`, "/") + ")$"); err != nil {
		return r, "", fmt.Errorf("%w: %w", ErrNameRule, err)
	}
	r.replace = reference.ReplaceAllString(strings.ReplaceAll(m[2], `\/`, "/"), "$${$1}")
	if m[3] != "" {
		r.fold = m[3][0]
	}
	return r, s[len(m[0]):], nil
}

// Principal is the name for a certificate's subject, an ASN.1 sequence of distinguished names (x509.Certificate's
// RawSubject); the text is that of RFC 2253. False: no rule is about it, or it cannot be read.
func (n NameRules) Principal(subject []byte) (string, bool) {
	var names pkix.RDNSequence
	if rest, err := asn1.Unmarshal(subject, &names); err != nil || len(rest) > 0 {
		return "", false
	}
	dn := names.String()
	if len(n.rules) == 0 {
		return UserPrefix + dn, true
	}
	for _, r := range n.rules {
		if r.match == nil {
			return UserPrefix + dn, true
		}
		at := r.match.FindStringSubmatchIndex(dn)
		if at == nil {
			continue
		}
		name := string(r.match.ExpandString(nil, r.replace, dn, at))
		switch r.fold {
		case 'L':
			name = strings.ToLower(name)
		case 'U':
			name = strings.ToUpper(name)
		}
		return UserPrefix + name, true
	}
	return "", false
}
