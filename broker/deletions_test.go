package broker

import (
	"syscall"
	"testing"
	"time"

	"sekali/internal/clock"
	"sekali/internal/vfs"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestInterruptedDeletionEnds: a deletion that a fault cuts short keeps the name, and housekeeping brings it to its end
// without a second request or a restart.
func TestInterruptedDeletionEnds(t *testing.T) {
	mem := vfs.NewMem()
	disk := vfs.Inject(mem)
	clk := clock.NewSim(1_700_000_000_000)
	n := start(t, func(c *Config) { c.Store.FS, c.Clock = disk, clk })
	n.topic("going", 2, nil)
	fault := disk.Add(vfs.Rule{Op: "rename", Match: "*-delete", Err: syscall.EIO})
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TopicNames = []string{"going"}
	r.SetVersion(5)
	if code := call[*kmsg.DeleteTopicsResponse](t, n.dial(), r).Topics[0].ErrorCode; code == 0 {
		t.Fatal("the deletion was answered as done although a directory could not be renamed")
	}
	fault.Remove()
	for range 50 {
		clk.Advance(time.Second)
		if len(n.store.Interrupted()) == 0 {
			if _, err := n.dial().CreateTopic("going", 1, nil); err == nil {
				return
			}
		}
		time.Sleep(10 * time.Millisecond) // housekeeping runs in a goroutine of the server's
	}
	t.Fatal("the name is still taken")
}
