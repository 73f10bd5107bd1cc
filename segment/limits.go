package segment

// Limits of one segment. Sizes are in bytes.
const (
	// SizeMax is the largest size of a segment: positions in the index files are 31-bit numbers (spec/on-disk.md 3).
	SizeMax = 1<<31 - 1

	// indexEvery and indexBytes hold where Options has none (index.interval.bytes, segment.index.bytes).
	indexEvery = 4096
	indexBytes = 10 << 20

	// entriesMax bounds the index in memory. A segment of SizeMax bytes cannot hold more batches.
	entriesMax = SizeMax / 61

	// reserveFrom is the size from which blocks are reserved ahead, so that thousands of partitions with a few records
	// each take no more than they hold. The step doubles from reserveMin to reserveMax.
	reserveFrom = 64 << 10
	reserveMin  = 1 << 20
	reserveMax  = 64 << 20

	// hotTail is the stretch below the end of the active segment whose headers are read through the mapping: its pages
	// were written a moment ago. A header anywhere else is read with pread, which cannot stop a processor.
	hotTail = 4 << 20

	// windowLen is what a header walk reads at once: one index interval and one header.
	windowLen = indexEvery + 61

	// scanLen is what a scan reads at once. A larger batch is summed up piece by piece before memory is taken for it.
	scanLen = 256 << 10

	// resyncFactor bounds the work of looking for whole batches behind a cut, in multiples of the bytes cut: bytes made
	// to look like headers must not make recovery quadratic.
	resyncFactor = 4
)
