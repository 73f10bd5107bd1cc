package group

import "sekali/internal/javahash"

// Partition is the partition of __consumer_offsets, 0..partitions-1, that holds a group (spec groups.md, placement).
// Any number of callers may overlap; partitions is at least 1.
func Partition(id string, partitions int32) int32 { return javahash.Partition(id, partitions) }

// utf16Len is the length of s in UTF-16 code units, the characters of Kafka's limits.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x10000 {
			n++
		}
	}
	return n
}
