package tidy

import (
	"bytes"
	"go/ast"
	"go/format"
	"strings"
	"testing"
	"unicode/utf8"
)

// Caps of one file, one function and one line. A file past its cap hides a second idea that wants its own file.
const (
	fileLinesMax     = 500
	testFileLinesMax = 900
	funcLinesMax     = 80
	lineColumnsMax   = 120
)

// TestSizes holds files, functions and lines to their caps; generated data in one unbroken word may be longer.
func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		lines := strings.Split(strings.TrimSuffix(string(s.text), "\n"), "\n")
		limit := fileLinesMax
		if s.test {
			limit = testFileLinesMax
		}
		if len(lines) > limit {
			t.Errorf("%s: %d lines, at most %d", s.path, len(lines), limit)
		}
		for i, l := range lines {
			if utf8.RuneCountInString(l) > lineColumnsMax && strings.ContainsAny(strings.TrimSpace(l), " \t") {
				t.Errorf("%s:%d: %d columns, at most %d", s.path, i+1, utf8.RuneCountInString(l), lineColumnsMax)
			}
		}
		if !s.test {
			functions(t, s)
		}
	}
}

func functions(t *testing.T, s *source) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
		if n > funcLinesMax {
			t.Errorf("%s: function %s has %d lines, at most %d", s.at(f), f.Name.Name, n, funcLinesMax)
		}
	}
}

// TestFormatted holds every file to gofmt.
func TestFormatted(t *testing.T) {
	for _, s := range sources(t) {
		want, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if !bytes.Equal(want, s.text) {
			t.Errorf("%s: gofmt would change it", s.path)
		}
	}
}
