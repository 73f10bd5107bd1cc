package store

import "time"

const (
	// NameBytesMax bounds a topic name, so that a directory name fits into 255 bytes (Kafka's Topic class).
	NameBytesMax = 249
	// PartitionsMax bounds the partitions of one topic: five digits fit behind the longest name.
	PartitionsMax = 100_000

	fileNameMax = 255

	// filesReserved is how many descriptors are kept for connections and housekeeping when partitions are counted
	// against the limit of open files; filesPerPartition is what an open partition holds.
	filesReserved     = 512
	filesPerPartition = 1

	// reserveBytes is kept for what must be written on a full disk: offset files, snapshots of some thousand producers,
	// a copy of the metadata. It is taken in pieces down to reserveLeast: what is left over goes to appends.
	reserveBytes = 2 << 20
	reserveLeast = 4 << 10

	syncersDefault  = 4
	recoverersUsual = 2
)

// The schedule of housekeeping, on monotonic time.
const (
	markEvery    = time.Second            // durable marks, and sekali.high
	sweepEvery   = 60 * time.Second       // idle descriptors of sealed segments
	tickShare    = 5                      // every log has its turn within this many ticks
	tickLogsMin  = 64                     // logs that have a turn in every tick, if there are so many
	tickTime     = 500 * time.Millisecond // what the turns of one tick may take
	purgePerTick = 64                     // deleted directories that are removed in one tick, in purgeTime at most
	purgeTime    = 100 * time.Millisecond

	deleteWait = time.Second // for the fetches under way of a topic that is deleted

	reopenFirst = 5 * time.Second // doubled after each failed attempt
	reopenMax   = 300 * time.Second
)

// Gathering before a commit round.
const (
	gatherShare    = 4         // the wait for a crowd is at most this part of the mean flush time
	expectShare    = 2         // and that for an append that was announced this part
	crowdRounds    = 3         // rounds that had a crowd before one waits for it
	gatherBytesMax = 256 << 10 // no wait above this many unflushed bytes
	flushMeanShift = 3         // the mean moves by an eighth of the difference each round
)
