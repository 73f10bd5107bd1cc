// Package index maps offsets and times to positions in a segment file and lists its aborted transactions, without
// touching record bytes.
//
// The growing index of the active segment is Active and Aborted: one owner adds, any number of readers search the
// published prefix without a lock. A full segment's index is a Sealed: the bytes of its three files, immutable, held in
// a Cache that may forget it. The encodings are Apache Kafka's (OffsetIndex, TimeIndex, TransactionIndex): big-endian,
// without header and without checksum, therefore checked for order on every load.
//
// An entry is sparse and names the LAST offset of the batch at its position, relative to the segment's base offset.
// The first batch of a segment has no entry, so no entry is all zero. Offsets are inclusive, times are milliseconds.
package index
