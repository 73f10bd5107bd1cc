package broker

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"sekali/engine"
	"sekali/internal/clock"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestJournalReadLater: a server starts with no handle left for the journals of its groups. It answers that it is not
// their coordinator, tries again by itself, and then the committed offsets are there.
func TestJournalReadLater(t *testing.T) {
	disk := vfs.Inject(vfs.NewMem())
	clk := clock.NewSim(1_700_000_000_000)
	with := func(c *Config) { c.Store.FS, c.Clock = disk, clk }
	n, c := grouped(t, with)
	id := n.topic("t1", 1, nil)
	if code := commitCode(t, c, commitRequest(8, "g", id, 7)); code != 0 {
		t.Fatalf("commit: code %d", code)
	}
	n.stop()

	// The snapshots are looked for when the store is open and the journals are about to be read.
	var once sync.Once
	disk.Add(vfs.Rule{Op: "openfile", Match: engine.GroupSnapshotPrefix + "*", Do: func() {
		once.Do(func() {
			disk.Add(vfs.Rule{Op: "readat", Match: "/data/__consumer_offsets-*/*.log", Err: syscall.EMFILE})
		})
	}})
	n = start(t, with)
	c = n.dial()
	if code := commitCode(t, c, commitRequest(8, "g", id, 8)); code != kerr.NotCoordinator.Code {
		t.Fatalf("commit while the journal cannot be read: code %d", code)
	}
	disk.Clear()
	for range 100 {
		clk.Advance(time.Second)
		if len(n.engine.Unloaded()) == 0 {
			if at := position(t, c, "g", "t1", 0, false); at.Offset != 7 {
				t.Errorf("committed offset %d, want 7", at.Offset)
			}
			return
		}
		time.Sleep(10 * time.Millisecond) // the reload runs in a goroutine of the server's
	}
	t.Fatal("the journal was not read again")
}
