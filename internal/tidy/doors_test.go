package tidy

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// door is a standard package whose use is kept to one place; elsewhere only the listed names may be used.
type door struct {
	path  string
	owner string
	free  func(name string) bool
}

// doors: files are reached through internal/vfs, the clock through internal/clock. Errors, flags and constants of the
// system, and types and constants of time, are free everywhere.
var doors = []door{
	{"os", "internal/vfs", func(n string) bool {
		return strings.HasPrefix(n, "O_") || strings.HasPrefix(n, "Err") ||
			slices.Contains([]string{"FileMode", "PathError", "LinkError", "SyscallError", "IsNotExist", "IsExist"}, n)
	}},
	{"syscall", "internal/vfs", func(n string) bool { return strings.HasPrefix(n, "E") }},
	{"golang.org/x/sys/unix", "internal/vfs", func(n string) bool { return strings.HasPrefix(n, "E") }},
	{"time", "internal/clock", func(n string) bool {
		return !slices.Contains([]string{
			"Now", "After", "AfterFunc", "Sleep", "Since", "Until", "Tick", "NewTicker", "NewTimer",
		}, n)
	}},
}

// quiet packages lie on the append path: no formatting and no reflection there.
var quiet = []string{"batch", "pidmap", "segment", "wire"}
var quietFiles = []string{"plog/append.go", "plog/gather.go"}

// localNames maps the names by which a file knows its imports to their paths.
func localNames(s *source) map[string]string {
	names := map[string]string{}
	for _, imp := range s.file.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = path
	}
	return names
}

// selectors calls fn for every use pkg.Name of an imported package.
func selectors(s *source, fn func(n ast.Node, path, name string)) {
	names := localNames(s)
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok {
			if path, ok := names[id.Name]; ok {
				fn(sel, path, sel.Sel.Name)
			}
		}
		return true
	})
}

// TestDoors: only internal/vfs touches files, only internal/clock reads the clock.
func TestDoors(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || under(s.pkg, exempt) {
			continue
		}
		selectors(s, func(n ast.Node, path, name string) {
			for _, d := range doors {
				if d.path == path && d.owner != s.pkg && !d.free(name) {
					t.Errorf("%s: %s.%s belongs to %s", s.at(n), path, name, d.owner)
				}
			}
		})
	}
}

// TestQuiet: the packages of the append path neither format nor reflect.
func TestQuiet(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !slices.Contains(quiet, s.pkg) && !slices.Contains(quietFiles, s.path) {
			continue
		}
		selectors(s, func(n ast.Node, path, name string) {
			if path == "reflect" || path == "fmt" && strings.HasPrefix(name, "Sprint") {
				t.Errorf("%s: %s.%s on the append path", s.at(n), path, name)
			}
		})
	}
}

// TestAtomics: only typed atomics, whose fields cannot be read by accident.
func TestAtomics(t *testing.T) {
	for _, s := range sources(t) {
		selectors(s, func(n ast.Node, path, name string) {
			if path != "sync/atomic" {
				return
			}
			for _, p := range []string{"Add", "And", "CompareAndSwap", "Load", "Or", "Store", "Swap"} {
				if strings.HasPrefix(name, p) {
					t.Errorf("%s: atomic.%s: use a typed atomic", s.at(n), name)
				}
			}
		})
	}
}

// TestPanics: a panic in the product goes through internal/check, which names the invariant.
func TestPanics(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.pkg == "internal/check" || under(s.pkg, exempt) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
					t.Errorf("%s: panic outside internal/check", s.at(call))
				}
			}
			return true
		})
	}
}
