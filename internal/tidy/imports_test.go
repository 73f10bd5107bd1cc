package tidy

import (
	"slices"
	"strings"
	"testing"
)

const module = "sekali"

// rowOf is the row a package is held to.
func rowOf(pkg string) (row, bool) {
	if r, ok := table[pkg]; ok {
		return r, true
	}
	for _, p := range prefixRows {
		if strings.HasPrefix(pkg, p+"/") {
			return table[p], true
		}
	}
	return row{}, false
}

// thirdParty reports whether an import path names another module (its first element has a dot).
func thirdParty(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}

func allowed(r row, s *source, path string) bool {
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		return own == s.pkg || slices.Contains(r.project, anything) || slices.Contains(r.project, own) ||
			s.test && slices.Contains(testOnly, own)
	}
	if !thirdParty(path) || s.test {
		return true
	}
	return slices.ContainsFunc(r.third, func(p string) bool { return p == anything || strings.HasPrefix(path, p) })
}

// TestImportTable holds every import against the layering table.
func TestImportTable(t *testing.T) {
	for _, s := range sources(t) {
		r, ok := rowOf(s.pkg)
		if !ok {
			t.Errorf("%s: package %s has no row in the import table", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if !allowed(r, s, path) {
				t.Errorf("%s: %s may not import %s", s.at(imp), s.pkg, path)
			}
		}
	}
}

// TestImportTableRefuses proves that the table test can fail: an upward, a sideways and a foreign import are refused.
func TestImportTableRefuses(t *testing.T) {
	for _, c := range []struct {
		pkg, path string
		test, ok  bool
	}{
		{"batch", module + "/plog", false, false},
		{"index", module + "/batch", false, false},
		{"plog", module + "/store", true, false},
		{"pidmap", "github.com/twmb/franz-go/pkg/kmsg", false, false},
		{"pidmap", "pgregory.net/rapid", true, true},
		{"plog", module + "/segment", false, true},
		{"wire", "github.com/twmb/franz-go/pkg/kmsg", false, true},
	} {
		r, _ := rowOf(c.pkg)
		if got := allowed(r, &source{pkg: c.pkg, test: c.test}, c.path); got != c.ok {
			t.Errorf("%s importing %s: allowed %v, want %v", c.pkg, c.path, got, c.ok)
		}
	}
}
