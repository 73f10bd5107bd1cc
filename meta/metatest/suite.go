// Package metatest is the conformance suite of meta.MetadataStore. Every implementation passes it unchanged; it is
// for tests alone.
package metatest

import (
	"testing"

	"sekali/meta"
)

// Harness makes the stores that the suite looks at.
type Harness struct {
	// Open gives an empty store; the suite closes it through Close at the end of the test.
	Open func(t *testing.T) meta.MetadataStore
	// Close ends a store that Open or Reopen gave. A second call is not made.
	Close func(t *testing.T, s meta.MetadataStore)
	// Reopen closes the store and gives one with the same content, as after a restart.
	Reopen func(t *testing.T, s meta.MetadataStore) meta.MetadataStore
	// Forget makes the store drop changes that watchers may still want, up to the current revision or near it.
	Forget func(t *testing.T, s meta.MetadataStore)
}

// Run runs every test of the suite as a subtest.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"Conditions", testConditions},
		{"Refusal", testRefusal},
		{"TestOnly", testTestOnly},
		{"Limits", testLimits},
		{"Isolation", testIsolation},
		{"Range", testRange},
		{"Model", testModel},
		{"Contention", testContention},
		{"WatchOrder", testWatchOrder},
		{"WatchFrom", testWatchFrom},
		{"WatchCompacted", testWatchCompacted},
		{"WatchEnds", testWatchEnds},
		{"Session", testSession},
		{"Barrier", testBarrier},
		{"Context", testContext},
		{"Closed", testClosed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}
