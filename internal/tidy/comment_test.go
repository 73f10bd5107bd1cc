package tidy

import (
	"go/ast"
	"go/token"
	"testing"
)

// TestComments asks for a comment on every package and on every exported name: the comment is the contract.
func TestComments(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		documented[s.pkg] = documented[s.pkg] || s.file.Doc != nil
		for _, d := range s.file.Decls {
			declaration(t, s, d)
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func declaration(t *testing.T, s *source, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			t.Errorf("%s: exported %s has no comment", s.at(d), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			specification(t, s, d, spec)
		}
	}
}

// exportedReceiver is true for functions and for methods of exported types.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if g, ok := typ.(*ast.IndexExpr); ok {
		typ = g.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func specification(t *testing.T, s *source, d *ast.GenDecl, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() && spec.Doc == nil && (d.Doc == nil || d.Lparen != token.NoPos) {
			t.Errorf("%s: exported type %s has no comment", s.at(spec), spec.Name.Name)
		}
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			if n.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
				t.Errorf("%s: exported %s has no comment", s.at(spec), n.Name)
			}
		}
	}
}
