//go:build !race

package batch

const underRace = false
