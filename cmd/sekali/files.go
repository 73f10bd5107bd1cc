package main

import (
	"log/slog"
	"math"
	"syscall"
)

// filesWanted is the limit of open files below which a daemon says at start how few partitions fit.
const filesWanted = 10_000

// openFiles is how many files this process may have open. The Go runtime has raised the soft limit to the hard one at
// start. A limit that is small is said once, with what would raise it.
func openFiles(log *slog.Logger) int {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		log.Warn("limit of open files not known", "err", err)
		return 0
	}
	n := int(min(lim.Cur, math.MaxInt32))
	if n < filesWanted {
		log.Warn("few files may be open: new partitions are refused beyond that", "limit", n,
			"help", "raise it with ulimit -n or LimitNOFILE= of the service")
	}
	return n
}
