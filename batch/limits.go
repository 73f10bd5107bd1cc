package batch

// Limits of decoding. They bound what one hostile batch can cost; none of them is a size of honest data.
const (
	// DecodedMax is the number of bytes one compressed batch may expand to where Limits.DecodedMax is 0.
	DecodedMax = 64 << 20

	// recordsMax bounds what Records and Rewrite decompress. They read what a log holds already, perhaps under a
	// higher limit or from another broker, so the bound is wide.
	recordsMax = 1 << 30

	// windowLen is the pooled memory records are decompressed into. A batch that fits is walked in one piece.
	windowLen = 256 << 10

	// largeMax is how many batches that need more memory than a window are decoded at once; others wait.
	largeMax = 4

	// largeKeep is the largest buffer kept for the next such batch.
	largeKeep = 8 << 20

	// zstdWindowMax is the largest zstd window accepted: what the reference decoder of the consumers accepts.
	zstdWindowMax = 128 << 20

	// zstdStreamMax is the largest window decoded as a stream, in memory of that size; a batch that declares a
	// larger one is decoded as a whole, up to zstdWholeMax bytes.
	zstdStreamMax = 32 << 20
	zstdWholeMax  = 24 << 20

	// snappyChunk is the size of the chunks CompressXerial writes, the one of snappy-java.
	snappyChunk = 32 << 10

	// recordMin is the smallest encoded record: its length and six one-byte fields.
	recordMin = 7
	bodyMin   = recordMin - 1

	// emptyReads is how often a decompressor may return neither bytes nor an error in a row.
	emptyReads = 64
)
