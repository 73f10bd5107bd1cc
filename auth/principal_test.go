package auth

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"testing"
)

// TestNameRules: names out of distinguished names (KIP-371), a row each.
func TestNameRules(t *testing.T) {
	subject, err := asn1.Marshal(pkix.Name{CommonName: "Pay", OrganizationalUnit: []string{"Eng"},
		Organization: []string{"Sekali"},
		Country:      []string{"ID"}}.ToRDNSequence())
	if err != nil {
		t.Fatal(err)
	}
	const dn = "CN=Pay,OU=Eng,O=Sekali,C=ID"
	for rules, want := range map[string]string{
		"":                                   "User:" + dn,
		"DEFAULT":                            "User:" + dn,
		"RULE:^CN=(.*?),.*$/$1/":             "User:Pay",
		"RULE:^CN=(.*?),.*$/$1/L":            "User:pay",
		"RULE:^CN=(.*?),.*$/$1/U, DEFAULT":   "User:PAY",
		"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/": "User:Pay@Eng",
		"RULE:^CN=(.*?),OU=Ops.*$/$1/,RULE:^CN=(.*?),OU=Eng.*$/eng-$1/L": "User:eng-pay",
		"RULE:^CN=nobody$/x/,DEFAULT":                                    "User:" + dn,
		"RULE:^CN=nobody$/x/":                                            "",
		"RULE:CN=Pay/x/":                                                 "",
		`RULE:^CN=(.*?),.*$/a\/$1/`:                                      "User:a/Pay",
	} {
		n, err := ParseNameRules(rules)
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		if got, ok := n.Principal(subject); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
	for _, rules := range []string{"RULE:", "RULE:a/b", "RULE:(/x/", "default", "DEFAULT RULE:a/b/", "RULE:a/b/X"} {
		if _, err := ParseNameRules(rules); !errors.Is(err, ErrNameRule) {
			t.Errorf("%s: %v", rules, err)
		}
	}
	if _, ok := (NameRules{}).Principal([]byte("x")); ok {
		t.Error("what is no subject has a name")
	}
}

// TestSupers: super.users is a list with semicolons, since names hold commas.
func TestSupers(t *testing.T) {
	m, err := ParseSupers(" User:CN=a,O=b ; User:c;")
	if err != nil || len(m) != 2 || !m["User:CN=a,O=b"] || !m["User:c"] {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := ParseSupers("alice"); !errors.Is(err, ErrBinding) {
		t.Errorf("%v", err)
	}
}
