//go:build !race

package wire

const raceFactor = 1
