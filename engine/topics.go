package engine

import (
	"maps"
	"slices"

	"sekali/group"
	"sekali/store"
)

// topics shows the catalog to the groups (group.Topics).
type topics struct{ st *store.Store }

var _ group.Topics = topics{}

// Lookup implements group.Topics.
func (t topics) Lookup(name string) (id [16]byte, partitions int32, ok bool) {
	found := t.st.Catalog().ByName[name]
	if found == nil {
		return id, 0, false
	}
	return found.ID, int32(len(found.Partitions)), true
}

// Names implements group.Topics.
func (t topics) Names() []string { return slices.Collect(maps.Keys(t.st.Catalog().ByName)) }

// Watch implements group.Topics.
func (t topics) Watch(fn func(changed []string)) { t.st.Watch(fn) }
