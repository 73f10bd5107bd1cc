package meta

import (
	"slices"
	"sort"
	"strings"
)

// State is the content of the store at one revision. It is immutable and may be read by any number of goroutines; a
// later State shares what did not change.
type State struct {
	chunks []*chunk // sorted, none empty
	n      int
}

// chunk holds up to itemsPerChunk items sorted by key. It is frozen once the State that made it is published.
type chunk struct{ items []Item }

// Len returns the number of keys.
func (s *State) Len() int { return s.n }

// Get returns the item of a key.
func (s *State) Get(key string) (Item, bool) {
	ci := s.chunkOf(key)
	if ci < 0 {
		return Item{}, false
	}
	i, ok := s.chunks[ci].find(key)
	if !ok {
		return Item{}, false
	}
	return s.chunks[ci].items[i], true
}

// Range calls fn with every item whose key begins with prefix, sorted by key, until fn returns false.
func (s *State) Range(prefix string, fn func(Item) bool) {
	ci := max(s.chunkOf(prefix), 0)
	for first := true; ci < len(s.chunks); ci++ {
		items := s.chunks[ci].items
		if first {
			i, _ := s.chunks[ci].find(prefix)
			items, first = items[i:], false
		}
		for _, it := range items {
			if !strings.HasPrefix(it.Key, prefix) || !fn(it) {
				return
			}
		}
	}
}

// chunkOf returns the last chunk whose first key is not above key: the only one that may hold it. -1: none.
func (s *State) chunkOf(key string) int {
	return sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].items[0].Key > key }) - 1
}

func (c *chunk) find(key string) (int, bool) {
	return slices.BinarySearchFunc(c.items, key, func(it Item, k string) int { return strings.Compare(it.Key, k) })
}

// apply returns the state after ops at rev. The receiver stays as it is.
func (s *State) apply(ops []Op, rev Rev) *State {
	e := editor{s: &State{chunks: slices.Clone(s.chunks), n: s.n}, fresh: make(map[*chunk]bool, 1)}
	for _, op := range ops {
		if op.Value == nil {
			e.del(op.Key)
		} else {
			e.set(Item{Key: op.Key, Value: op.Value, Rev: rev})
		}
	}
	return e.s
}

// editor builds one State; chunks in fresh were made for it and may still be written.
type editor struct {
	s     *State
	fresh map[*chunk]bool
}

func (e *editor) own(ci int) *chunk {
	c := e.s.chunks[ci]
	if !e.fresh[c] {
		c = &chunk{items: slices.Clone(c.items)}
		e.s.chunks[ci] = c
		e.fresh[c] = true
	}
	return c
}

func (e *editor) set(it Item) {
	if len(e.s.chunks) == 0 {
		c := &chunk{items: []Item{it}}
		e.s.chunks, e.s.n, e.fresh[c] = []*chunk{c}, 1, true
		return
	}
	ci := max(e.s.chunkOf(it.Key), 0)
	c := e.own(ci)
	i, ok := c.find(it.Key)
	if ok {
		c.items[i] = it
		return
	}
	c.items = slices.Insert(c.items, i, it)
	e.s.n++
	if len(c.items) <= itemsPerChunk {
		return
	}
	half := len(c.items) / 2
	right := &chunk{items: slices.Clone(c.items[half:])}
	c.items = slices.Delete(c.items, half, len(c.items))
	e.fresh[right] = true
	e.s.chunks = slices.Insert(e.s.chunks, ci+1, right)
}

func (e *editor) del(key string) {
	ci := e.s.chunkOf(key)
	if ci < 0 {
		return
	}
	i, ok := e.s.chunks[ci].find(key)
	if !ok {
		return
	}
	e.s.n--
	if len(e.s.chunks[ci].items) == 1 {
		e.s.chunks = slices.Delete(e.s.chunks, ci, ci+1)
		return
	}
	c := e.own(ci)
	c.items = slices.Delete(c.items, i, i+1)
}
