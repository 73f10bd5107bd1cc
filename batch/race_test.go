//go:build race

package batch

// The race detector makes sync.Pool forget at random, so nothing can be said about allocations under it.
const underRace = true
