package vfs

const (
	iovMax        = 1024     // pieces of one pwritev (IOV_MAX)
	uncacheTries  = 3        // attempts of Uncache before it reports pages that stay
	mincorePages  = 1024     // pages asked of one mincore
	poisonedMaps  = 64       // unmapped regions kept unreadable under check.Costly
	lockTextBytes = 32       // of a lock file that is read for the holder's process id
	readFileMax   = 1 << 30  // bytes ReadFile takes
	heapMapMax    = 16 << 20 // bytes of a mapping of Mem that lies in the Go heap

	writevBytesMax = 1 << 30 // bytes of one pwritev; the kernel takes less than 2 GiB
)
