package plog

import "time"

// Bounds of the walk back for a duplicate older than the window (spec: producer state, 5.1).
const (
	olderHeadersMax = 4096
	olderTimeMax    = 2 * time.Millisecond
	olderStride     = 64 << 10 // bytes of the first stride back; each next one is twice as long
)

// Bounds of one gathered write.
const (
	gatherBatchesMax = 64
	gatherBytesMax   = 1 << 20
)

// A checkpoint (producer snapshot, indexes on disk, recovery point) is due when this many bytes were appended since the
// last one, and when this much time has passed and anything was appended at all. Together they bound the scan of the
// next start; the factor keeps the snapshots of a log with very many producers below a quarter of what it writes.
const (
	checkpointBytes  = 64 << 20
	checkpointAge    = 60 * time.Second
	checkpointFactor = 4
)

// snapshotsKept is how many producer snapshots that lie on no segment border are kept beside those that do.
const snapshotsKept = 2

// expireBudget is how many producers one Tick looks at for expiry.
const expireBudget = 4096

// walkWindow is what one read of a header walk fetches in bytes: enough for the headers of many small batches, and for
// large ones no more than the one system call costs anyway.
const walkWindow = 4096

// epochFileMax bounds the leader epoch checkpoint that is read at open, in bytes.
const epochFileMax = 16 << 20

// nameMax is the longest file name the file systems in use take, in bytes.
const nameMax = 255

// folioMax is the largest unit in which the page cache of a file is kept and dropped, in bytes; units lie on multiples
// of their size.
const folioMax = 2 << 20

// misplacedHeadersMax is how many batches in front of a snapshot's offset are held against it.
const misplacedHeadersMax = 256

// copyPiece is how many bytes of a segment are copied at once where its cached pages cannot be trusted.
const copyPiece = 1 << 20

// cleanPiece is how many bytes compaction reads or writes between two looks at the pace and at who wants it to end.
const cleanPiece = 256 << 10

// cleanRoom is the least a segment that compaction writes has room for, in bytes.
const cleanRoom = 64 << 10

// cacheLine separates words that different processors write.
const cacheLine = 64
