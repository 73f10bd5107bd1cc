package pidmap

import "time"

// Window is how many batches per producer and partition are remembered exactly. Clients keep at most five requests in
// flight on a connection, so five is the least they rely on (spec: producer state, section 5.1).
const Window = 5

// ProducersLimit is the most producers one Map can hold at all: index slots carry 24 bits of entry number plus one.
const ProducersLimit = 1<<24 - 1

// EarlyEviction is the idle time below which an eviction by Options.ProducersMax is reported as early.
const EarlyEviction = 24 * time.Hour

const (
	chunkBits    = 9
	chunkEntries = 1 << chunkBits // 512 entries of 176 bytes are exactly 11 pages of the runtime
	chunkMin     = 4              // entries the first chunk begins with; it doubles
	slabChunks   = 11             // 968 KiB

	shardMin    = 32   // slots the first shard begins with; it doubles
	shardMax    = 2048 // slots at which a shard splits instead of growing
	slabShards  = 128  // 1 MiB of slots
	dirDepthMax = 20   // deeper, a shard grows instead of splitting: hashes that agree so far are no accident

	guardsMax    = 1 << 16 // pending verifications; beyond it a random one is forgotten and must be asked for again
	evictScanMax = 256     // chunks one eviction looks at, which bounds the time an insert takes
	sparesMax    = 4       // buffers of finished copies kept for the next ones
)
