// Package javahash places strings on partitions as Kafka does, by Java's hash of them.
package javahash

// Partition is the absolute value of Of(s) modulo partitions (at least 1); that of -2^31, which does not fit, counts as
// 0 (Kafka: Utils.abs in partitionFor of both coordinators). Any number of callers may overlap.
func Partition(s string, partitions int32) int32 {
	h := Of(s)
	if h < 0 {
		h = -h
	}
	if h < 0 {
		return 0
	}
	return h % partitions
}

// Of is Java's String.hashCode of s. It runs over UTF-16 code units; bytes that are no UTF-8 count as U+FFFD each. Any
// number of callers may overlap.
func Of(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xD800 + r>>10
			h = 31*h + 0xDC00 + r&0x3FF
			continue
		}
		h = 31*h + r
	}
	return h
}
