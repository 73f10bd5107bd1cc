package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the part of a control group's memory the Go heap may grow to before the collector works harder; the
// page cache of the logs lives in the rest.
const memoryShare = 0.8

// limitMemory sets Go's soft memory limit from the control group, unless GOMEMLIMIT says otherwise.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := groupLimit("/sys/fs/cgroup", selfGroup())
	if limit <= 0 {
		return
	}
	soft := int64(float64(limit) * memoryShare)
	debug.SetMemoryLimit(soft)
	log.Info("memory limit follows the control group", "group_bytes", limit, "heap_bytes", soft)
}

// selfGroup is this process's control group (version 2), "/" if it cannot be told.
func selfGroup() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return "/"
}

// groupLimit is the least memory.max from the group up to the root, 0 if none limits it.
func groupLimit(root, group string) int64 {
	least := int64(0)
	for dir := filepath.Clean(group); ; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(root, dir, "memory.max")); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err == nil && (least == 0 || n < least) {
				least = n
			}
		}
		if dir == "/" || dir == "." {
			return least
		}
	}
}
