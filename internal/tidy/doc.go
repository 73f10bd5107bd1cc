// Package tidy keeps the rules of the house as tests: which package may import which, how long files, functions and
// lines may grow, what must be commented, and which door leads to the file system and to the clock. It has no code of
// its own; `go test ./internal/tidy` reads the sources of the module and names every breach with its place.
package tidy
