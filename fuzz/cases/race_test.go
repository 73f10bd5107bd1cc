//go:build race

package cases

// slower is how much more processor time things take under the race detector.
const slower = 15
