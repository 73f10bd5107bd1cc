package meta

const (
	// KeyBytesMax bounds a key.
	KeyBytesMax = 1024
	// ValueBytesMax bounds a value.
	ValueBytesMax = 1 << 20
	// OpsMax bounds the operations of one transaction, and its conditions.
	OpsMax = 1 << 16

	// recordBytesMax bounds one record of the log: the payload of one transaction.
	recordBytesMax = 64 << 20

	// historyMax and historyBytesMax bound the changes kept for watchers.
	historyMax      = 10_000
	historyBytesMax = 32 << 20

	// logBytesMin is the size of the log below which no snapshot is taken.
	logBytesMin = 1 << 20

	// reserveBytes is how far ahead of its end blocks of the log are reserved.
	reserveBytes = 256 << 10

	// itemsPerChunk bounds one chunk of a State: a change copies one chunk and the list of chunks.
	itemsPerChunk = 128
)
