package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one parsed Go file of the module.
type source struct {
	path string // below the module root, with slashes
	pkg  string // folder of path
	test bool
	text []byte
	file *ast.File
	fset *token.FileSet
}

// at is the place of a node as path:line.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return s.path + ":" + strconv.Itoa(p.Line)
}

// nested reports whether dir is the root of another module.
func nested(root, dir string) bool {
	if dir == root {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// sources reads every Go file of this module, nested modules and testdata left out.
func sources(t *testing.T) []*source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out []*source
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			hidden := strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"
			if path != root && hidden || nested(root, path) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, _ := filepath.Rel(root, path)
		s, err := parse(path, filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no source found: the test looks in the wrong folder")
	}
	return out
}

func parse(path, rel string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(rel, "_test.go"),
		text: text, file: f, fset: fset,
	}, nil
}

// under reports whether pkg is one of the folders or lies below one.
func under(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return pkg == f || strings.HasPrefix(pkg, f+"/") })
}
