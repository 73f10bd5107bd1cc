//go:build !sekali_check && !race

package check

// Costly is true under the build tag sekali_check and under -race. Code puts checks that walk data, and the
// poisoning of memory that was given back, behind it; being a constant it removes them from ordinary builds.
const Costly = false
