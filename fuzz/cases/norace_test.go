//go:build !race

package cases

// slower is how much more processor time things take than in an ordinary build.
const slower = 1
