package coord

import "sekali/internal/javahash"

// Partition is the journal partition, 0..partitions-1, that holds the state of a transactional id, as Kafka places it.
// Any number of callers may overlap; partitions is at least 1.
func Partition(id string, partitions int32) int32 { return javahash.Partition(id, partitions) }
