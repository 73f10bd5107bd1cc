//go:build race

package wire

// raceFactor is what the race detector makes of allocations: it has no allocator for tiny objects.
const raceFactor = 2
