package vfs

import (
	"cmp"
	"maps"
	"slices"

	"sekali/internal/check"
)

type opKind uint8

const (
	opLink opKind = iota
	opUnlink
	opRename
)

// dirOp is one change of directory entries that is not yet durable.
type dirOp struct {
	kind     opKind
	n        *node
	dir      *node
	name     string
	from     *node // opRename
	fromName string
}

type place struct {
	dir  *node
	name string
}

// tree is the entries of a disk at one moment. Every node lies in one place at most, whatever subset of the changes
// was applied, and no directory in itself: where a node's parent changes, the order is kept.
type tree struct {
	kids map[*node]map[string]*node
	at   map[*node]place
	root *node
}

func newTree(root *node) tree {
	return tree{kids: map[*node]map[string]*node{}, at: map[*node]place{}, root: root}
}

func (t tree) clone() tree {
	c := tree{kids: make(map[*node]map[string]*node, len(t.kids)), at: maps.Clone(t.at), root: t.root}
	for n, k := range t.kids {
		c.kids[n] = maps.Clone(k)
	}
	return c
}

func (t tree) apply(o dirOp) {
	if o.kind == opUnlink {
		t.remove(o.n)
		return
	}
	t.remove(o.n)
	if old := t.kids[o.dir][o.name]; old != nil {
		t.remove(old)
	}
	if t.kids[o.dir] == nil {
		t.kids[o.dir] = map[string]*node{}
	}
	t.kids[o.dir][o.name] = o.n
	t.at[o.n] = place{o.dir, o.name}
}

func (t tree) remove(n *node) {
	p, ok := t.at[n]
	if !ok {
		return
	}
	delete(t.at, n)
	delete(t.kids[p.dir], p.name)
	if len(t.kids[p.dir]) == 0 {
		delete(t.kids, p.dir)
	}
}

// imply completes a set of changes that survived a crash: a rename between directories happens only after all
// before it, and a name is given anew only after those who had it have left. So no file is lost that nobody removed
// or replaced.
func imply(ops []dirOp, kept []bool) {
	for i := len(ops) - 1; i >= 0; i-- {
		o := ops[i]
		if !kept[i] || o.kind == opUnlink {
			continue
		}
		cross := o.kind == opRename && o.dir != o.from
		for j, e := range ops[:i] {
			left := e.kind == opRename && e.from == o.dir && e.fromName == o.name
			kept[j] = kept[j] || cross || left
		}
	}
}

// syncDir makes the entries of dir durable (nil: of all directories); under mu. A rename between two directories
// takes all changes before it along, as a journal does, so the file never lacks a name, nor its directory.
func (d *disk) syncDir(dir *node) {
	taken, all := make([]bool, len(d.pending)), dir == nil
	for i := len(d.pending) - 1; i >= 0; i-- {
		o := d.pending[i]
		taken[i] = all || o.dir == dir || o.from == dir
		all = all || taken[i] && o.kind == opRename && o.dir != o.from
	}
	rest := d.pending[:0]
	for i, o := range d.pending {
		if taken[i] {
			d.durable.apply(o)
		} else {
			rest = append(rest, o)
		}
	}
	clear(d.pending[len(rest):])
	d.pending = rest
	if dir != nil {
		check.That(maps.Equal(dir.entries, d.durable.kids[dir]), "vfs: synced directory differs from its entries")
	}
	d.sweep()
}

// sweep forgets nodes that nothing can reach any more; under mu.
func (d *disk) sweep() {
	if len(d.orphans) == 0 {
		return
	}
	inPending := map[*node]bool{}
	for _, o := range d.pending {
		inPending[o.n] = true
	}
	rest := d.orphans[:0]
	for _, n := range d.orphans {
		_, durable := d.durable.at[n]
		if n.refs > 0 || durable || inPending[n] {
			rest = append(rest, n)
		}
	}
	clear(d.orphans[len(rest):])
	d.orphans = rest
}

// nodes lists every node that a process can reach, and those it cannot reach any more but the disk may still have,
// in the order they were made; under mu.
func (d *disk) nodes() (all []*node) {
	var walk func(n *node)
	walk = func(n *node) {
		all = append(all, n)
		for _, k := range n.entries {
			walk(k)
		}
	}
	walk(d.root)
	all = append(all, d.orphans...)
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.ino, b.ino) })
	return all
}
