package broker

import (
	"log/slog"
	"sync"
	"time"

	"sekali/internal/clock"
)

// complaints is a logger for what clients can provoke: at most ten lines a second; how many were left out is said with
// the next line. Any goroutine may use it.
type complaints struct {
	log *slog.Logger
	clk clock.Clock

	mu      sync.Mutex
	since   time.Duration
	said    int
	skipped int
}

// clip shortens what a client chose, for a log line.
func clip(s string) string {
	if len(s) > clientTextMax {
		return s[:clientTextMax] + "..."
	}
	return s
}

func (l *complaints) warn(msg string, args ...any) {
	l.mu.Lock()
	if now := l.clk.Mono(); now-l.since >= time.Second {
		l.since, l.said = now, 0
	}
	if l.said >= complaintsPerSecond {
		l.skipped++
		l.mu.Unlock()
		return
	}
	l.said++
	skipped := l.skipped
	l.skipped = 0
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args, "left_out_before", skipped)
	}
	l.log.Warn(msg, args...)
}
